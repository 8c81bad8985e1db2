"""Positions and patterns that look wrong: found by comparison with the scan's own, for a person to look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from ptynb.analysis.bad_pixels import check_survey
from ptynb.analysis.scan_survey import Survey, survey
from ptynb.data.scan import Scan
from ptynb.exceptions import InvalidValueError
from ptynb.preparation.selection import select

Indices = NDArray[np.int64]
NEIGHBOURS = 8
LONE = 3.0
"""Times the typical distance to the nearest position at which one is far from all others."""
SAME = 0.05
"""Part of the typical distance within which two positions are the same."""
FENCE = 2.0
"""Interquartile ranges beyond the quartiles at which a position is outside; 0.5 is the edge of an even scan."""
DARK = 0.1
"""Part of the median counts below which a pattern is dark."""
SIGMAS = 8.0
"""Robust standard deviations from the patterns around it at which one is an outlier."""
LEAST_CHANGE, LEAST_SHIFT = 0.2, 0.5
"""Smaller deviations of the counts (in parts), and of the centre of mass [detector pixels], are none."""
CEILING = 255
"""Counts from which on several pixels of several patterns at the same largest count are a ceiling."""


@dataclass(frozen=True, eq=False)
class Suspicious:
    """Indices of the patterns found, in order, by what is suspicious: only what was found is a key."""

    found: Mapping[str, Indices] = field(default_factory=dict)

    @property
    def indices(self) -> Indices:
        """All of them, each once."""
        return np.unique(np.concatenate([np.zeros(0, np.int64), *self.found.values()]))

    def reasons(self, index: int) -> tuple[str, ...]:
        """What is suspicious about this pattern."""
        return tuple(reason for reason, indices in self.found.items() if index in indices)

    def __iter__(self) -> Iterator[tuple[int, str]]:
        for reason, indices in self.found.items():
            for index in indices.tolist():
                yield index, reason

    def __len__(self) -> int:
        return sum(len(indices) for indices in self.found.values())

    def __repr__(self) -> str:
        return f"<Suspicious: {', '.join(f'{len(these)} {name}' for name, these in self.found.items()) or 'nothing'}>"


def find_suspicious(scan: Scan, seen: Survey | None = None) -> Suspicious:
    """Positions and patterns that a person should look at before they are used.

    Positions: "same place" as another, "far from others" (three times the usual distance to the nearest), "outside"
    the scan's bulk, "off the path" between neighbours in time that lie beside each other.
    Patterns: "dark", "brighter" or "darker" than those around, "shifted" (centre of mass against those around),
    "saturated" (several pixels at a ceiling), "negative" and "not finite" counts.

    seen: a survey of any part of the patterns; without one all are read. Raises ValueError for that of another scan.
    """
    seen = survey(scan) if seen is None else seen
    check_survey(scan, seen)
    found = {**suspicious_positions(scan.positions), **suspicious_patterns(scan, seen)}
    return Suspicious({reason: indices for reason, indices in found.items() if len(indices)})


def suspicious_positions(positions: NDArray[np.float64]) -> dict[str, Indices]:
    """Indices of positions (pattern, yx) by what is suspicious about them."""
    if len(positions) < 4:
        return {}
    nearest = cKDTree(positions).query(positions, k=2)[0][:, 1]
    apart = nearest[nearest > 0]
    usual = float(np.median(apart)) if len(apart) else 0.0
    low, high = np.percentile(positions, [25, 75], axis=0)
    reach = FENCE * np.maximum(high - low, usual)
    outside = ((positions < low - reach) | (positions > high + reach)).any(1)
    return {
        "same place": np.flatnonzero(nearest <= SAME * usual),
        "far from others": np.flatnonzero((nearest > LONE * usual) & ~outside),
        "outside": np.flatnonzero(outside),
        "off the path": _off_the_path(positions, usual),
    }


def _off_the_path(positions: NDArray[np.float64], usual: float) -> Indices:
    """Positions whose neighbours in time lie beside each other, and they do not; where a scan has a path at all."""
    step = np.hypot(*np.diff(positions, axis=0).T)
    if not len(step) or np.median(step) > LONE * usual:
        return np.zeros(0, np.int64)
    bridge = np.hypot(*(positions[2:] - positions[:-2]).T)
    far = 2 * LONE * usual
    return 1 + np.flatnonzero((step[:-1] > far) & (step[1:] > far) & (bridge <= LONE * usual))


def suspicious_patterns(scan: Scan, seen: Survey) -> dict[str, Indices]:
    """Indices of patterns seen by what is suspicious about them."""
    known = np.flatnonzero(seen.covered)
    sums = seen.sums[known]
    median = float(np.median(sums))
    dark = sums <= DARK * median
    found = {
        "not finite": np.flatnonzero(seen.infinite),
        "negative": np.zeros(0, np.int64) if scan.clip_negative else np.flatnonzero(seen.negative),
        "dark": known[dark],
        "saturated": np.flatnonzero(_saturated(scan, seen)),
    }
    lit = known[~dark]
    if len(lit) > 2 * NEIGHBOURS and median > 0:
        _, around = cKDTree(scan.positions[lit]).query(scan.positions[lit], k=NEIGHBOURS + 1)
        change = _against(np.log(seen.sums[lit])[:, None], around)[:, 0]
        bound = max(SIGMAS * _spread_of(change), np.log1p(LEAST_CHANGE))
        found["brighter"], found["darker"] = lit[change > bound], lit[change < -bound]
        shift = np.hypot(*_against(seen.moments[lit], around).T)
        # The length of two normal numbers has the median 1.177 standard deviations.
        found["shifted"] = lit[shift > max(SIGMAS * float(np.median(shift)) / 1.1774, LEAST_SHIFT)]
    return found


def _against(values: NDArray[np.float64], around: Indices) -> NDArray[np.float64]:
    """Each value (pattern, …) less the median of those around it."""
    return values - np.median(values[around[:, 1:]], axis=1)


def _spread_of(values: NDArray[np.float64]) -> float:
    """Standard deviation by the median of absolute values."""
    return 1.4826 * float(np.median(np.abs(values)))


def _saturated(scan: Scan, seen: Survey) -> NDArray[np.bool_]:
    """Patterns with pixels at the largest number the type holds, or at a ceiling that several pixels share."""
    brightest = np.nan_to_num(seen.brightest)
    type_ = scan.frames.dtype
    full = float(np.iinfo(type_).max) if np.issubdtype(type_, np.integer) else np.inf
    ceiling = float(brightest.max(initial=0))
    at_ceiling = brightest == ceiling
    shared = at_ceiling & (seen.at_brightest > 1)
    if ceiling > CEILING and shared.sum() >= 3 and 2 * shared.sum() >= at_ceiling.sum():
        return at_ceiling
    found: NDArray[np.bool_] = brightest >= full
    return found


def leave_out(scan: Scan, patterns: ArrayLike) -> Scan:
    """The scan without the patterns of these indices (negative ones count from the end).

    Raises ValueError for indices outside the scan, and if none would be left.
    """
    unwanted = np.asarray(patterns)
    if unwanted.size and not np.issubdtype(unwanted.dtype, np.integer):
        raise InvalidValueError(
            f"The patterns to leave out are of type {unwanted.dtype}; expected whole numbers.",
            code="argument.invalid-type",
        )
    whole = unwanted.astype(np.int64)
    wrong = whole[(whole < -len(scan)) | (whole >= len(scan))]
    if wrong.size:
        raise InvalidValueError(
            f"Pattern {int(wrong[0])} is to be left out; the scan has those from 0 to {len(scan) - 1}.",
            code="argument.invalid-value",
        )
    keep = np.ones(len(scan), bool)
    keep[whole] = False
    if not keep.any():
        raise InvalidValueError(
            f"All {len(scan)} patterns are to be left out; expected at least one to be kept.", code="scan.nothing-left"
        )
    return select(scan, np.flatnonzero(keep))
