"""Dectris' stream2 (`stream2://host:31001`): messages of CBOR, pushed by ZeroMQ.

    start   series_id, number_of_images, image_size_x and _y, image_dtype, channels, incident_energy [eV], pixel_size_x
            and _y [m], detector_distance [m], detector_description, pixel_mask {channel: array}
    image   series_id, image_id, data {channel: array}
    end     series_id; neither a number of images nor a reason

An array is tag 40, [[y, x], numbers]: a typed array (RFC 8746), or, compressed, tag 56500, [algorithm, size of a
number, bytes]. Tags are taken as they are, without a hook: the signature of hooks differs between versions of cbor2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cbor2
import numpy as np
from numpy.typing import NDArray

from ptynb.acquisition.compression import Compression, Packed, damaged
from ptynb.acquisition.messages import (
    Damaged,
    Frame,
    Message,
    SeriesEnded,
    SeriesStarted,
    Stray,
    count_type,
    image_shape,
    positive,
    whole,
)
from ptynb.acquisition.protocols.pulling import Pulling
from ptynb.data.source_address import Address
from ptynb.exceptions import AcquisitionError
from ptynb.text import in_one_line

ARRAY, COMPRESSED = 40, 56500
TYPED = {
    64: "|u1", 65: ">u2", 66: ">u4", 67: ">u8", 68: "|u1", 69: "<u2", 70: "<u4", 71: "<u8",
    72: "|i1", 73: ">i2", 74: ">i4", 75: ">i8", 77: "<i2", 78: "<i4", 79: "<i8",
    81: ">f4", 82: ">f8", 85: "<f4", 86: "<f8",
}  # fmt: skip
"""Tags of typed arrays, RFC 8746, and their types."""
ALGORITHMS: dict[str, Compression] = {"bslz4": "h5bslz4", "lz4": "h5lz4"}
DEEPEST = 16
"""Most nested containers of a message."""


def open_stream2(address: Address) -> Pulling:
    """Connect to a detector."""
    parse = Stream2Parser(address.options.get("channel")).parse
    return Pulling(address, lambda parts, arrival: parse(parts[0].buffer if len(parts) == 1 else b"", arrival))


class Stream2Parser:
    """Makes a message of the bytes of one; keeps which series has begun.

    channel: which one of several thresholds is taken; by default the first.
    """

    def __init__(self, channel: str | None = None) -> None:
        self._wanted = channel
        self._series: str | None = None
        self._channel = ""
        self._dtype: np.dtype[Any] | None = None

    def parse(self, raw: Any, arrival: float) -> Message:
        """Return the message; `Damaged` if it cannot be read."""
        try:
            found = _decoded(raw)
            kind, series = found.get("type"), str(whole(found.get("series_id"), "the number of a series", 2**63))
            if kind == "start":
                return self._start(found, series)
            if kind not in ("image", "end"):
                raise damaged(f"the type {kind!r:.80}; expected start, image or end")
            if self._series is None:
                return Stray(f"{kind} of series {series}".replace("image", "pattern"), is_pattern=kind == "image")
            return SeriesEnded(series) if kind == "end" else self._image(found, series, arrival)
        except AcquisitionError as error:
            if error.code != "acquisition.damaged-message":
                raise
            return Damaged(str(error))

    def _start(self, found: Mapping[Any, Any], series: str) -> SeriesStarted:
        channels = _items(found.get("channels"))
        if not channels or not all(isinstance(one, str) for one in channels):
            raise damaged(f"the channels {channels!r:.80}; expected their names")
        if self._wanted is not None and self._wanted not in channels:
            raise AcquisitionError(
                f"The detector sends the channels {in_one_line(', '.join(channels))}; expected {self._wanted}. Name "
                "another one: stream2://host:31001?channel=NAME.",
                code="acquisition.failed",
            )
        shape = image_shape(found.get("image_size_y"), found.get("image_size_x"))
        dtype = count_type(found.get("image_dtype"))
        masks, bad_pixels = found.get("pixel_mask"), None
        channel = self._wanted or channels[0]
        if isinstance(masks, Mapping) and channel in masks:
            bad_pixels = _packed(masks[channel], None)
        pixel = positive(found.get("pixel_size_y")), positive(found.get("pixel_size_x"))
        count = found.get("number_of_images")
        self._series, self._channel, self._dtype = series, channel, dtype
        return SeriesStarted(
            series=series,
            count=None if count is None else whole(count, "the number of patterns"),
            shape=shape,
            dtype=dtype,
            energy=positive(found.get("incident_energy")),
            detector=in_one_line(found.get("detector_description") or "", 80),
            distance=positive(found.get("detector_distance")),
            detector_pixel=None if pixel[0] is None or pixel[1] is None else (pixel[0], pixel[1]),
            bad_pixels=bad_pixels,
        )

    def _image(self, found: Mapping[Any, Any], series: str, arrival: float) -> Frame:
        data = found.get("data")
        if not isinstance(data, Mapping) or self._channel not in data:
            raise damaged(f"no pattern of the channel {in_one_line(self._channel, 40)}")
        return Frame(
            series=series,
            number=whole(found.get("image_id"), "the number of a pattern"),
            arrival=arrival,
            packed=_packed(data[self._channel], self._dtype),
        )


def _decoded(raw: Any) -> Mapping[Any, Any]:
    try:
        found = cbor2.loads(raw, max_depth=DEEPEST)
    except Exception as error:  # noqa: BLE001, cbor2's decoders of tags raise whatever Python's types do
        raise damaged(f"bytes that are no CBOR ({in_one_line(error, 80)})") from None
    if not isinstance(found, Mapping):  # inside of a tag, cbor2 returns what cannot be changed
        raise damaged(f"CBOR of type {type(found).__name__}; expected names and values")
    return found


def _packed(value: Any, dtype: np.dtype[Any] | None) -> Packed:
    """Return the numbers of tag 40, still compressed. dtype: announced by the header, for compressed ones."""
    if not isinstance(value, cbor2.CBORTag) or value.tag != ARRAY or len(_items(value.value)) != 2:
        raise damaged("a pattern that is no array of two axes")
    sides, numbers = _items(value.value)
    if len(_items(sides)) != 2:
        raise damaged(f"the shape {sides!r:.80}; expected [y, x]")
    shape = image_shape(*_items(sides))
    if not isinstance(numbers, cbor2.CBORTag):
        raise damaged("a pattern without a type")
    kind, compression = dtype, "none"  # type: np.dtype[Any] | None, Compression
    while isinstance(numbers, cbor2.CBORTag):  # compressed inside of a typed array, or instead of one
        if numbers.tag == COMPRESSED:
            items = _items(numbers.value)
            if len(items) != 3 or items[0] not in ALGORITHMS or not isinstance(items[1], int):
                raise damaged(f"the compression {items[:2]!r:.80}; expected {' or '.join(ALGORITHMS)}")
            if kind is None:
                kind = count_type(f"uint{8 * items[1]}" if items[1] in (1, 2, 4, 8) else "")
            if kind.itemsize != items[1]:
                raise damaged(f"compressed numbers of {items[1]} bytes; expected {kind.itemsize}")
            compression, numbers = ALGORITHMS[items[0]], items[2]
        elif numbers.tag in TYPED and compression == "none":
            kind, numbers = _same(np.dtype(TYPED[numbers.tag]), dtype), numbers.value
        else:
            raise damaged(f"numbers with tag {numbers.tag}")
    if kind is None or not isinstance(numbers, bytes):
        raise damaged("a pattern without bytes")
    return Packed(numbers, shape, kind, compression)


def _items(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _same(dtype: np.dtype[Any], announced: np.dtype[Any] | None) -> np.dtype[Any]:
    if announced is not None and dtype.newbyteorder("<") != announced:
        raise damaged(f"counts of type {dtype}; {announced} was announced")
    return dtype


def typed_array(counts: NDArray[Any]) -> cbor2.CBORTag:
    """Return an array as tag 40 around a typed array, for emulators and tests."""
    counts = np.ascontiguousarray(counts)
    tag = next(number for number, kind in TYPED.items() if np.dtype(kind) == counts.dtype and number != 68)
    return cbor2.CBORTag(ARRAY, [list(counts.shape), cbor2.CBORTag(tag, counts.tobytes())])
