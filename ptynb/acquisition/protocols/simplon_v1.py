"""Dectris' Simplon stream, version 1 (`simplon://host:9999`): messages of JSON and binary parts, pushed by ZeroMQ.

    dheader-1.0      series; nothing more ("none"), or the detector's configuration ("basic"), or with it flat field,
                     mask and a table ("all")
    dimage-1.0       series and frame; dimage_d-1.0 with shape [x, y], type and encoding; the counts; dconfig-1.0
    dseries_end-1.0  series

An appendix may follow. After a series was aborted its last messages come before the header of the next one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ptynb.acquisition.compression import Compression, Packed, damaged
from ptynb.acquisition.messages import (
    MOST_PATTERNS,
    Damaged,
    Frame,
    Message,
    SeriesEnded,
    SeriesStarted,
    Stray,
    count_type,
    image_shape,
    parsed_json,
    positive,
    whole,
)
from ptynb.acquisition.protocols.pulling import Pulling
from ptynb.data.source_address import Address
from ptynb.exceptions import AcquisitionError
from ptynb.text import in_one_line

LONGEST_JSON = 2**20
"""Most bytes of a part that is JSON."""
ENCODING = re.compile(r"(bs(8|16|32))?-?(lz4)?(<|>)?")


def open_simplon(address: Address) -> Pulling:
    """Connect to a detector."""
    return Pulling(address, SimplonV1Parser().parse)


class SimplonV1Parser:
    """Makes a message of the parts of one; keeps which series has begun."""

    def __init__(self) -> None:
        self._series: str | None = None

    def parse(self, parts: Sequence[Any], arrival: float) -> Message:
        """Return the message; `Damaged` if it cannot be read."""
        try:
            first = _json(parts, 0)
            kind = first.get("htype")
            if kind == "dheader-1.0":
                return self._header(first, parts)
            if kind == "dimage-1.0":
                return self._image(first, parts, arrival)
            if kind == "dseries_end-1.0":
                return Stray("end of a series") if self._series is None else SeriesEnded(_series(first))
            return Stray(in_one_line(kind, 80)) if self._series is None else Damaged(f"htype {kind!r:.80}")
        except AcquisitionError as error:
            return Damaged(str(error))

    def _header(self, first: dict[str, Any], parts: Sequence[Any]) -> Message:
        self._series = _series(first)
        config = _json(parts, 1) if len(parts) >= 2 else {}
        bad_pixels = None
        if len(parts) >= 6:
            about = _json(parts, 4)
            if about.get("htype") == "dpixelmask-1.0":
                bad_pixels = Packed(_bytes(parts, 5), *_announced(about))
        images, triggers = positive(config.get("nimages")), positive(config.get("ntrigger"))
        count = None if images is None else int(images * (triggers or 1))
        pixel = positive(config.get("y_pixel_size")), positive(config.get("x_pixel_size"))
        return SeriesStarted(
            series=self._series,
            count=count if count is not None and count <= MOST_PATTERNS else None,
            energy=positive(config.get("incident_energy")) or positive(config.get("photon_energy")),
            detector=in_one_line(config.get("description") or "", 80),
            distance=positive(config.get("detector_distance")),
            detector_pixel=None if pixel[0] is None or pixel[1] is None else (pixel[0], pixel[1]),
            bad_pixels=bad_pixels,
        )

    def _image(self, first: dict[str, Any], parts: Sequence[Any], arrival: float) -> Message:
        series = _series(first)
        if self._series is None:
            return Stray(f"pattern of series {series}", is_pattern=True)
        if len(parts) < 3:
            raise damaged(f"{len(parts)} parts for a pattern; expected at least 3")
        about = _json(parts, 1)
        shape, dtype = _announced(about)
        encoding = about.get("encoding")
        return Frame(
            series=series,
            number=whole(first.get("frame"), "the number of a pattern"),
            arrival=arrival,
            packed=Packed(_bytes(parts, 2), shape, *_decoded(encoding, dtype)),
        )


def _decoded(encoding: Any, dtype: np.dtype[Any]) -> tuple[np.dtype[Any], Compression]:
    """Return type and compression of counts from an encoding such as "bs16-lz4<"."""
    found = ENCODING.fullmatch(encoding) if isinstance(encoding, str) else None
    if found is None:
        raise damaged(f"the encoding {encoding!r:.80}; expected one such as bs16-lz4< or lz4<")
    shuffled, bits, packed, order = found.groups()
    if shuffled and (not packed or int(bits) != 8 * dtype.itemsize):
        raise damaged(f"the encoding {encoding!r:.80} for counts of type {dtype}")
    dtype = dtype.newbyteorder(">") if order == ">" else dtype
    return dtype, "h5bslz4" if shuffled else "lz4" if packed else "none"


def _announced(about: dict[str, Any]) -> tuple[tuple[int, int], np.dtype[Any]]:
    sides = about.get("shape")
    if not isinstance(sides, list) or len(sides) != 2:
        raise damaged(f"the shape {sides!r:.80}; expected [x, y]")
    return image_shape(sides[1], sides[0]), count_type(about.get("type"))


def _series(first: dict[str, Any]) -> str:
    return str(whole(first.get("series"), "the number of a series", 2**63))


def _bytes(parts: Sequence[Any], number: int) -> Any:
    return getattr(parts[number], "buffer", parts[number])


def _json(parts: Sequence[Any], number: int) -> dict[str, Any]:
    raw = bytes(_bytes(parts, number)[: LONGEST_JSON + 1])
    if len(raw) > LONGEST_JSON:
        raise damaged(f"more than {LONGEST_JSON} bytes of JSON")
    return parsed_json(raw, "a part that is")
