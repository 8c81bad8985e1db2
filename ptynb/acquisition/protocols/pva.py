"""EPICS' PV Access (`pva://PREFIX:Pva1:Image`): a detector's NTNDArray, as areaDetector serves it. Requires p4p.

A monitor gives the present value first, which is the last pattern of an earlier series; it is left out. What follows
has a `uniqueId` that counts patterns; numbers that are left out were lost on the way. The queue of the monitor is long,
and the server waits for it (pipeline); otherwise PV Access leaves out values without a sign of it. There is no end of a
series. Compressed arrays have a codec, and their own type in its parameters.

The PV is searched as EPICS is configured (EPICS_PVA_ADDR_LIST ...), or at one server: pva://PV?server=host:port.

EPICS 7 normative types, NTNDArray; areaDetector, NDPluginCodec.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from p4p.client.thread import Context

from ptynb.acquisition.compression import Compression, Packed, damaged
from ptynb.acquisition.messages import (
    Damaged,
    Frame,
    Gap,
    LiveSource,
    Message,
    SeriesStarted,
    Stray,
    count_type,
    image_shape,
    whole,
)
from ptynb.data.source_address import Address
from ptynb.exceptions import AcquisitionError
from ptynb.text import in_one_line

WAITING = 64
"""Most values that wait to be taken; then the monitor waits, and the server with it."""
REQUEST = "record[queueSize=500,pipeline=true]field()"
CODECS: dict[str, Compression] = {"lz4": "lz4", "bslz4": "bslz4", "blosc": "blosc"}
SCALAR_TYPES = {1: "i1", 2: "i2", 3: "i4", 4: "i8", 5: "u1", 6: "u2", 7: "u4", 8: "u8", 9: "f4", 10: "f8"}
"""Numbers of types in the parameters of a codec: ScalarType of EPICS' pvData."""
DISORDER = 1000
"""How much smaller than the largest one a number may be, after which a new series has begun."""
LARGEST_ID = 2**31 - 1


class PvAccess(LiveSource):
    """A PV. Without the option "first" it is that of the first pattern that comes."""

    def __init__(self, address: Address) -> None:
        first, server = address.options.get("first"), address.options.get("server")
        self._values: queue.Queue[Any] = queue.Queue(WAITING)
        self._closed = False
        self._parser = NtndarrayParser(None if first is None else int(first))
        at_server = {"EPICS_PVA_NAME_SERVERS": server, "EPICS_PVA_AUTO_ADDR_LIST": "NO", "EPICS_PVA_ADDR_LIST": ""}
        self._context = Context("pva", conf=at_server if server else None, useenv=server is None, nt=False)
        self._monitor = self._context.monitor(address.place, self._take, request=REQUEST, notify_disconnect=True)

    def poll(self, timeout: float) -> list[Message]:
        """Return the patterns that have come."""
        try:
            arrival, value = self._values.get(timeout=timeout)
        except queue.Empty:
            return []
        if isinstance(value, Exception):
            # EPICS connects again by itself; an error of another kind is one of the PV.
            if type(value).__name__ in ("Disconnected", "Cancelled"):
                return []
            raise AcquisitionError(f"The PV failed ({in_one_line(value)}).", code="acquisition.source-lost")
        return self._parser.parse(value, arrival)

    def close(self) -> None:
        """Close the connection."""
        self._closed = True
        self._monitor.close()
        self._context.close()

    def _take(self, value: Any) -> None:
        item = time.time(), value
        while not self._closed:
            with contextlib.suppress(queue.Full):
                self._values.put(item, timeout=0.1)
                return


class NtndarrayParser:
    """Makes messages of values of an NTNDArray: anything with its fields."""

    def __init__(self, first: int | None = None) -> None:
        self._first = first
        self._initial = True
        self._series = 0
        self._next: int | None = None

    def parse(self, value: Any, arrival: float) -> list[Message]:
        """Return the messages; `Damaged` if the value cannot be read."""
        if self._initial:
            self._initial = False
            return [Stray("the value from before")]
        try:
            packed = _packed(value)
            unique = whole(int(value.uniqueId), "the uniqueId", LARGEST_ID)
        except AcquisitionError as error:
            return [Damaged(str(error))]
        except Exception as error:  # noqa: BLE001, whatever Python's types do with a field of another type
            return [Damaged(f"A value is no NTNDArray ({in_one_line(error, 80)}).")]
        if self._first is None:
            self._first = unique
        number = unique - self._first
        found: list[Message] = []
        if self._next is None or number < self._next - DISORDER:
            self._series += 1
            self._next = number
            found.append(SeriesStarted(series=str(self._series), shape=packed.shape, dtype=packed.dtype))
        if number > self._next:
            found.append(Gap(self._next, number - 1))
        self._next = max(self._next, number + 1)
        return [*found, Frame(series=str(self._series), number=number, arrival=arrival, packed=packed)]


def _packed(value: Any) -> Packed:
    sides = [int(one.size) for one in value.dimension]
    if len(sides) == 3 and 1 in sides:
        sides.remove(1)  # a single colour
    if len(sides) != 2:
        raise damaged(f"{len(sides)} dimensions; expected two, x and y")
    shape = image_shape(sides[1], sides[0])
    numbers, codec = value.value, str(value.codec.name)
    if not isinstance(numbers, np.ndarray):
        raise damaged("no numbers")
    if not codec:
        return Packed(numbers.tobytes(), shape, count_type(numbers.dtype.name))
    if codec not in CODECS:
        raise damaged(f"the codec {in_one_line(codec, 40)}; expected {', '.join(CODECS)}, or none")
    dtype = count_type(SCALAR_TYPES.get(_parameter(value.codec.parameters), ""))
    return Packed(numbers.tobytes()[: int(value.compressedSize)], shape, dtype, CODECS[codec])


def _parameter(parameters: Any) -> int:
    """Return the type in the parameters of a codec, which p4p has as a number or as a structure with one."""
    convert: Callable[[Any], int] = int
    return convert(parameters["value"] if hasattr(parameters, "keys") else parameters)
