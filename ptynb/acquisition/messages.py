"""Messages: what sources of patterns and positions say, whatever their protocol.

Everything here comes from outside and is checked: a message that cannot be read becomes `Damaged`, and costs no more
than itself; what makes the rest unreadable is an `AcquisitionError`, which ends the scan with its sentence.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.acquisition.compression import Packed, damaged
from ptynb.text import in_one_line

MOST_PIXELS = 2**27
"""Most pixels of a pattern: eight times the largest detector's. What announces more is damaged."""
MOST_PATTERNS = 2**28
"""Most patterns of a series."""
COUNTS = frozenset(np.dtype(kind).str for kind in ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8"))
"""Types of counts, little-endian, as numpy writes them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SeriesStarted:
    """A series has begun. What its header does not state is None, and comes with the first pattern or the plan.

    series: its identity. count: number of patterns. shape (y, x) and dtype: of a pattern. wavelength [m],
    energy [eV] of photons or electrons, distance [m] and detector_pixel (y, x) [m]: of the measurement. detector: its
    description. bad_pixels (y, x): 0 where the detector works, still compressed.
    """

    series: str
    count: int | None = None
    shape: tuple[int, int] | None = None
    dtype: np.dtype[Any] | None = None
    wavelength: float | None = None
    energy: float | None = None
    detector: str = ""
    distance: float | None = None
    detector_pixel: tuple[float, float] | None = None
    bad_pixels: Packed | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Frame:
    """A pattern: its series and number, the time of its arrival [s since 1970], and its counts, still compressed."""

    series: str
    number: int
    arrival: float
    packed: Packed


@dataclass(frozen=True, eq=False)
class MeasuredPositions:
    """Positions (pattern, yx) [m] of consecutive patterns, from pattern `first`; NaN where one is not known."""

    first: int
    values: NDArray[np.float64]


@dataclass(frozen=True)
class Gap:
    """Patterns that the source itself knows to be lost: first to last."""

    first: int
    last: int


@dataclass(frozen=True)
class Pace:
    """Patterns come in portions, of which the next may take so long [s]: a silence of this time is no end."""

    seconds: float


@dataclass(frozen=True)
class SeriesEnded:
    """The source says that there is no more.

    series: which one; None: the only one. expected: how many patterns (or positions) it sent, if it says so. reason: as
    the source states it; empty: it only ends.
    """

    series: str | None = None
    expected: int | None = None
    reason: str = ""


@dataclass(frozen=True)
class Damaged:
    """A message that could not be read, and why."""

    reason: str


@dataclass(frozen=True)
class Stray:
    """A message that belongs to no series that has begun, such as the rest of one that was aborted."""

    what: str
    is_pattern: bool = False


Message = SeriesStarted | Frame | MeasuredPositions | Gap | Pace | SeriesEnded | Damaged | Stray


class LiveSource(ABC):
    """Where messages come from. It connects to what was named when it is made, and is used by one thread."""

    @abstractmethod
    def poll(self, timeout: float) -> list[Message]:
        """Return the messages that have come; wait for the first one, up to `timeout` seconds.

        Raise AcquisitionError if there will be no more, for another reason than an end.
        """

    @abstractmethod
    def close(self) -> None:
        """Close connections and files."""


def parsed_json(raw: bytes, what: str) -> dict[str, Any]:
    """Return names and values of JSON. Raise AcquisitionError for anything else. what: "a part that is", say."""
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise damaged(f"{what} no JSON ({in_one_line(error, 80)})") from None
    if not isinstance(found, dict):
        raise damaged(f"JSON of type {type(found).__name__}; expected names and values")
    return found


def count_type(name: Any) -> np.dtype[Any]:
    """Return the type of counts that a header names ("uint16"). Raise AcquisitionError for others."""
    try:
        found = np.dtype(name).newbyteorder("<")
    except (TypeError, ValueError, SyntaxError):
        found = None
    if not isinstance(name, str) or found is None or found.str not in COUNTS:
        raise damaged(f"counts of type {name!r:.80}; expected integers or real numbers of up to 64 bits")
    return found


def whole(value: Any, what: str, most: int = MOST_PATTERNS) -> int:
    """Return a number from a header. Raise AcquisitionError if it is not whole, or not from 0 to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise damaged(f"{what} as {value!r:.80}; expected a whole number from 0 to {most}")
    return value


def image_shape(y: Any, x: Any) -> tuple[int, int]:
    """Return the shape (y, x) of a pattern from a header. Raise AcquisitionError if it is impossible."""
    shape = whole(y, "the height of a pattern", MOST_PIXELS), whole(x, "the width of a pattern", MOST_PIXELS)
    if not 0 < shape[0] * shape[1] <= MOST_PIXELS:
        raise damaged(f"a pattern of {shape[0]} x {shape[1]} pixels; expected at most {MOST_PIXELS}")
    return shape


def positive(value: Any) -> float | None:
    """Return a positive finite number from a header; None for anything else, which stands where nothing is set."""
    usable = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e30
    return float(value) if usable else None
