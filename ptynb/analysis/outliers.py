"""Suspicious positions and patterns, found by comparison with others of the scan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from ptynb.analysis.scan_survey import Survey, survey
from ptynb.data.scan import Scan
from ptynb.exceptions import InvalidValueError
from ptynb.preparation.rotation_fit import check_survey
from ptynb.preparation.selection import select

Indices = NDArray[np.int64]
NEIGHBOURS = 8
LONE = 3.0
"""Distance to the nearest position from which a position is far from others [typical distances]."""
SAME = 0.05
"""Distance within which two positions are the same [typical distances]."""
FENCE = 2.0
"""Distance from the quartiles from which a position is outside [interquartile ranges]; the scan's edge is at 0.5."""
DARK = 0.1
"""Fraction of the median counts below which a pattern is dark."""
SIGMAS = 8.0
"""Deviation from the neighbours from which a pattern is an outlier [robust standard deviations]."""
LEAST_CHANGE, LEAST_SHIFT = 0.2, 0.5
"""Smallest deviations of counts (relative) and of the centre of mass [detector pixels] that are reported."""
CEILING = 255
"""Counts above which a maximum shared by several pixels and patterns is taken as saturation."""


@dataclass(frozen=True, eq=False)
class Suspicious:
    """Suspicious patterns by reason.

    Parameters
    ----------
    found : Mapping of str to ndarray of int64
        Indices in increasing order by reason; reasons without patterns are missing.
    """

    found: Mapping[str, Indices] = field(default_factory=dict)

    @property
    def indices(self) -> Indices:
        """All indices, each once, in increasing order."""
        return np.unique(np.concatenate([np.zeros(0, np.int64), *self.found.values()]))

    def reasons(self, index: int) -> tuple[str, ...]:
        """Return the reasons for a pattern.

        Parameters
        ----------
        index : int
            Index of the pattern.

        Returns
        -------
        tuple of str
            Reasons; empty if it is not suspicious.
        """
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
    """Find positions and patterns that should be checked before they are used.

    Positions: "same place" as another, "far from others" (three times the typical distance to the nearest), "outside"
    the main part of the scan, "off the path" between neighbours in time that are close to each other. Patterns: "dark",
    "brighter" or "darker" than their neighbours, "shifted" (centre of mass against the neighbours), "saturated"
    (several pixels at a maximum), "negative" and "not finite" counts.

    Parameters
    ----------
    scan : Scan
        Scan to examine.
    seen : Survey, optional
        Survey of any part of its patterns; by default all patterns are read.

    Returns
    -------
    Suspicious
        Indices by reason.

    Raises
    ------
    InvalidValueError
        If the survey belongs to another scan (code "scan.wrong-survey").
    """
    seen = survey(scan) if seen is None else seen
    check_survey(scan, seen)
    found = {**suspicious_positions(scan.positions), **suspicious_patterns(scan, seen)}
    return Suspicious({reason: indices for reason, indices in found.items() if len(indices)})


def suspicious_positions(positions: NDArray[np.float64]) -> dict[str, Indices]:
    """Return the indices of suspicious positions (pattern, yx) by reason."""
    if len(positions) < 4:
        return {}
    nearest = cKDTree(positions).query(positions, k=2)[0][:, 1]
    apart = nearest[nearest > 0]
    typical = float(np.median(apart)) if len(apart) else 0.0
    low, high = np.percentile(positions, [25, 75], axis=0)
    reach = FENCE * np.maximum(high - low, typical)
    outside = ((positions < low - reach) | (positions > high + reach)).any(1)
    return {
        "same place": np.flatnonzero(nearest <= SAME * typical),
        "far from others": np.flatnonzero((nearest > LONE * typical) & ~outside),
        "outside": np.flatnonzero(outside),
        "off the path": _off_the_path(positions, typical),
    }


def _off_the_path(positions: NDArray[np.float64], typical: float) -> Indices:
    """Return positions far from their neighbours in time, if these are close to each other and the scan has a path."""
    step = np.hypot(*np.diff(positions, axis=0).T)
    if not len(step) or np.median(step) > LONE * typical:
        return np.zeros(0, np.int64)
    bridge = np.hypot(*(positions[2:] - positions[:-2]).T)
    far = 2 * LONE * typical
    return 1 + np.flatnonzero((step[:-1] > far) & (step[1:] > far) & (bridge <= LONE * typical))


def suspicious_patterns(scan: Scan, seen: Survey) -> dict[str, Indices]:
    """Return the indices of suspicious surveyed patterns by reason."""
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
    bright = known[~dark]
    if len(bright) > 2 * NEIGHBOURS and median > 0:
        _, around = cKDTree(scan.positions[bright]).query(scan.positions[bright], k=NEIGHBOURS + 1)
        change = _minus_neighbours(np.log(seen.sums[bright])[:, None], around)[:, 0]
        bound = max(SIGMAS * 1.4826 * float(np.median(np.abs(change))), np.log1p(LEAST_CHANGE))
        found["brighter"], found["darker"] = bright[change > bound], bright[change < -bound]
        shift = np.hypot(*_minus_neighbours(seen.moments[bright], around).T)
        # The length of a vector of two normal variables has a median of 1.177 standard deviations.
        found["shifted"] = bright[shift > max(SIGMAS * float(np.median(shift)) / 1.1774, LEAST_SHIFT)]
    return found


def _minus_neighbours(values: NDArray[np.float64], around: Indices) -> NDArray[np.float64]:
    """Return each value (pattern, …) minus the median of its neighbours."""
    return values - np.median(values[around[:, 1:]], axis=1)


def _saturated(scan: Scan, seen: Survey) -> NDArray[np.bool_]:
    """Return which patterns reach the maximum of their type, or a maximum that several pixels and patterns share."""
    brightest = np.nan_to_num(seen.brightest)
    type_ = scan.frames.dtype
    full = float(np.iinfo(type_).max) if np.issubdtype(type_, np.integer) else np.inf
    ceiling = float(brightest.max(initial=0))
    at_ceiling = brightest == ceiling
    shared = at_ceiling & (seen.at_brightest > 1)
    if ceiling > CEILING and shared.sum() >= 3 and 2 * shared.sum() >= at_ceiling.sum():
        return at_ceiling
    return brightest >= full


def leave_out(scan: Scan, patterns: ArrayLike) -> Scan:
    """Return the scan without some patterns.

    Parameters
    ----------
    scan : Scan
        Scan, which does not change.
    patterns : array_like of int
        Indices of these patterns; negative ones count from the end.

    Returns
    -------
    Scan
        The new scan.

    Raises
    ------
    InvalidValueError
        For indices outside the scan, and if no pattern is left (code "scan.nothing-left").
    """
    unwanted = np.asarray(patterns)
    if unwanted.size and not np.issubdtype(unwanted.dtype, np.integer):
        raise InvalidValueError(
            f"patterns has type {unwanted.dtype}; expected integers.",
            code="argument.invalid-type",
        )
    whole = unwanted.astype(np.int64)
    wrong = whole[(whole < -len(scan)) | (whole >= len(scan))]
    if wrong.size:
        raise InvalidValueError(
            f"patterns contains {int(wrong[0])}; the scan has patterns 0 to {len(scan) - 1}.",
            code="argument.invalid-value",
        )
    keep = np.ones(len(scan), bool)
    keep[whole] = False
    if not keep.any():
        raise InvalidValueError(
            f"All {len(scan)} patterns would be left out; expected at least one to remain.", code="scan.nothing-left"
        )
    return select(scan, np.flatnonzero(keep))
