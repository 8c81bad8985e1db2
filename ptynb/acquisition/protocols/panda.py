"""PandA's data port (`panda://host:8889`): captured positions of encoders, by TCP.

The client asks for "XML FRAMED SCALED" and gets "OK"; then, for each experiment, a header in XML with the captured
fields, frames of samples ("BIN ", the length with these 8 bytes, little-endian, and the samples), and "END ", the
number of samples and a reason. Sample i belongs to pattern i, unless a field with the pattern's number is named.

PandABlocks-server, documentation, "Data Capture".
"""

from __future__ import annotations

import contextlib
import itertools
import re
import select
import socket
import struct
from typing import Any

import numpy as np
from defusedxml import ElementTree
from numpy.typing import NDArray

from ptynb.acquisition.compression import damaged
from ptynb.acquisition.messages import MOST_PATTERNS, LiveSource, MeasuredPositions, Message, SeriesEnded
from ptynb.data.source_address import Address
from ptynb.exceptions import AcquisitionError
from ptynb.io.reading.hdf5_reading import factor
from ptynb.text import in_one_line

REQUEST = b"XML FRAMED SCALED\n"
CONNECTING = 10.0
"""Time in which a connection has to be made [s]."""
LARGEST_HEADER = 2**20
LARGEST_FRAME = 2**28
"""Most bytes of a header, and of a frame; PandA sends at most some megabytes."""
MOST_FIELDS = 1000
TYPES = {"int32": "<i4", "uint32": "<u4", "int64": "<i8", "uint64": "<u8", "double": "<f8", "float": "<f4"}
LETTERS = {axis: re.compile(rf"(?:^|[._\W]){axis}(?:$|[._\W])", re.IGNORECASE) for axis in "yx"}


class Panda(LiveSource):
    """A PandA's data port, with names of the fields ("INENC1.VAL.Mean") as options "y", "x" and "number"."""

    def __init__(self, address: Address) -> None:
        self._place = f"{address.place}:{address.port}"
        try:
            self._socket = socket.create_connection((address.place.strip("[]"), address.port), timeout=CONNECTING)
            self._socket.sendall(REQUEST)
        except OSError as error:
            raise AcquisitionError(
                f"No connection to PandA's data port at {self._place} ({error.strerror or error}); is the address "
                "right, and is PandA switched on?",
                code="acquisition.source-lost",
            ) from None
        self._parser = PandaParser(address.options)

    def poll(self, timeout: float) -> list[Message]:
        """Return the positions that have come."""
        if not select.select([self._socket], [], [], timeout)[0]:
            return []
        try:
            raw = self._socket.recv(2**20)
        except OSError as error:
            raise self._lost(str(error.strerror or error)) from None
        if not raw:
            raise self._lost("it closed the connection")
        try:
            return self._parser.parse(raw)
        except AcquisitionError as error:
            # What follows cannot be found in a stream of bytes.
            raise error.retold(AcquisitionError, f"PandA at {self._place}: {error}") from None

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def _lost(self, why: str) -> AcquisitionError:
        return AcquisitionError(
            f"The connection to PandA at {self._place} is lost: {why}.", code="acquisition.source-lost"
        )


class PandaParser:
    """Makes messages of the bytes of a stream, in whatever pieces they come."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        self._waiting = bytearray()
        self._state = "greeting"
        self._header = b""
        self._dtype: np.dtype[Any] = np.dtype([])
        self._columns: dict[str, tuple[str, float]] = {}
        self._sent = 0

    def parse(self, raw: bytes) -> list[Message]:
        """Return the messages that are complete. Raise AcquisitionError if the stream cannot be read."""
        self._waiting += raw
        found: list[Message] = []
        while (step := self._step(found)) is not None:
            self._state = step
        return found

    def _step(self, found: list[Message]) -> str | None:
        """Take one item out of what waits; return the next state, or None if the item is not complete."""
        if self._state == "data":
            return self._data(found)
        line = self._line()
        if line is None:
            return None
        if self._state == "greeting":
            if line != b"OK":
                raise damaged(f"the answer {in_one_line(line, 80)}; expected OK")
            return "header"
        if self._state == "end":
            self._end(line, found)
            return "header"
        if not self._header and line != b"<header>":
            return "header"  # empty lines, and those of an experiment that has begun before
        self._header += line + b"\n"
        if len(self._header) > LARGEST_HEADER:
            raise damaged("a header without an end")
        if line != b"</header>":
            return "header"
        self._read_header(self._header)
        self._header, self._sent = b"", 0
        return "data"

    def _line(self) -> bytes | None:
        place = self._waiting.find(b"\n")
        if place < 0:
            if len(self._waiting) > LARGEST_HEADER:
                raise damaged("a line without an end")
            return None
        line = bytes(self._waiting[:place])
        del self._waiting[: place + 1]
        return line

    def _data(self, found: list[Message]) -> str | None:
        while self._waiting[:1] == b"\n":
            del self._waiting[:1]
        if len(self._waiting) < 8:
            return None
        kind = bytes(self._waiting[:4])
        if kind == b"END ":
            del self._waiting[:4]
            return "end"
        if kind != b"BIN ":
            raise damaged(f"{kind!r} in the place of a frame's beginning")
        (length,) = struct.unpack_from("<I", self._waiting, 4)
        if not 8 <= length <= LARGEST_FRAME or (length - 8) % self._dtype.itemsize:
            raise damaged(f"a frame of {length} bytes, and samples of {self._dtype.itemsize}")
        if len(self._waiting) < length:
            return None
        samples = np.frombuffer(bytes(self._waiting[8:length]), self._dtype)
        del self._waiting[:length]
        found += self._positions(samples)
        return "data"

    def _positions(self, samples: NDArray[Any]) -> list[Message]:
        values = np.column_stack(
            [samples[name].astype(np.float64) * scale for name, scale in (self._columns["y"], self._columns["x"])]
        )
        first, self._sent = self._sent, self._sent + len(samples)
        if "number" not in self._columns:
            return [MeasuredPositions(first, values)] if len(values) else []
        numbers = samples[self._columns["number"][0]].astype(np.float64)
        known = np.isfinite(numbers) & (numbers >= 0) & (numbers < MOST_PATTERNS)
        numbers, values = numbers[known].astype(np.int64), values[known]
        edges = [0, *(np.flatnonzero(np.diff(numbers) != 1) + 1).tolist(), len(numbers)]
        return [MeasuredPositions(int(numbers[a]), values[a:b]) for a, b in itertools.pairwise(edges) if b > a]

    def _read_header(self, header: bytes) -> None:
        try:
            root = ElementTree.fromstring(header)
        except Exception as error:  # noqa: BLE001, of defusedxml and of the parser
            raise damaged(f"a header that is no XML ({in_one_line(error, 80)})") from None
        fields = root.findall("fields/field")
        data = root.find("data")
        names, units = [], {}
        for field in fields[:MOST_FIELDS]:
            name, kind = f"{field.get('name')}.{field.get('capture')}", TYPES.get(str(field.get("type")))
            if kind is None:
                raise damaged(f"the field {in_one_line(name, 60)} of type {in_one_line(field.get('type'), 20)}")
            names.append((name, kind))
            units[name] = field.get("units") or ""
        try:
            self._dtype = np.dtype(names)
        except ValueError:
            raise damaged("two fields of one name") from None
        size = None if data is None else data.get("sample_bytes")
        if not names or size != str(self._dtype.itemsize):
            raise damaged(
                f"{len(names)} fields of {self._dtype.itemsize} bytes, and samples of {in_one_line(size, 20)}"
            )
        self._columns = {}
        for axis in ("y", "x", *(["number"] if "number" in self._options else [])):
            name = self._column(axis, [name for name, _ in names])
            scale = 1.0 if axis == "number" else factor(units[name], "length")
            self._columns[axis] = name, 1.0 if scale is None else scale

    def _column(self, axis: str, names: list[str]) -> str:
        wanted = self._options.get(axis)
        if wanted is None:
            fitting = [name for name in names if LETTERS[axis].search(name)]
        else:
            fitting = [name for name in names if name == wanted] or [n for n in names if n.rpartition(".")[0] == wanted]
        if len(fitting) != 1:
            raise AcquisitionError(
                f"{len(fitting)} captured fields are {axis if wanted is None else wanted}: there are "
                f"{in_one_line(', '.join(names))}; name one: panda://host:8889?y=INENC1.VAL.Mean&x=INENC2.VAL.Mean.",
                code="acquisition.no-positions",
            )
        return fitting[0]

    def _end(self, line: bytes, found: list[Message]) -> None:
        samples, _, why = line.partition(b" ")
        if not samples.isdigit() or len(samples) > 12:
            raise damaged(f"the end {in_one_line(line, 60)}; expected a number of samples and a reason")
        text = in_one_line(why.decode(errors="replace"), 60)
        found.append(SeriesEnded(expected=int(samples), reason="" if text == "Ok" else f"PandA ended with: {text}"))
