"""Bad pixels by kind, from a survey, and the mask that excludes them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptynb.analysis.scan_survey import Survey, survey
from ptynb.data.scan import Scan
from ptynb.preparation.pixel_mask import Statistics, check_limits, judged
from ptynb.preparation.rotation_fit import check_survey


@dataclass(frozen=True, eq=False)
class BadPixels:
    """Bad pixels (y, x) except those masked in the scan, in the order of the patterns.

    Parameters
    ----------
    hot : ndarray of bool
        Pixels brighter than their neighbours.
    dead : ndarray of bool
        Pixels darker than their neighbours.
    stuck : ndarray of bool
        Pixels that do not change although their neighbours do.
    lost : ndarray of bool
        Pixels with non-finite counts.
    """

    hot: NDArray[np.bool_]
    dead: NDArray[np.bool_]
    stuck: NDArray[np.bool_]
    lost: NDArray[np.bool_]

    @property
    def mask(self) -> NDArray[np.bool_]:
        """Mask (y, x), True at working pixels, for `ptynb.preparation.mask_pixels`."""
        return ~(self.hot | self.dead | self.stuck | self.lost)

    def __repr__(self) -> str:
        kinds = {"hot": self.hot, "dead": self.dead, "stuck": self.stuck, "not finite": self.lost}
        return f"<BadPixels: {', '.join(f'{int(kind.sum())} {name}' for name, kind in kinds.items())}>"


def find_bad_pixels(scan: Scan, seen: Survey | None = None, *, factor: float = 3.0, sigmas: float = 6.0) -> BadPixels:
    """Find bad pixels by kind, as `ptynb.preparation.find_bad_pixels`.

    A pixel is hot if its mean exceeds that of all but two of its eight neighbours by `factor` and by `sigmas` standard
    errors, and dead if it is as far below all but two of them; sharp edges of a beam and Poisson noise are not
    reported. Masked pixels are neither reported nor used as neighbours.

    Parameters
    ----------
    scan : Scan
        Scan to examine.
    seen : Survey, optional
        Survey of any part of its patterns; by default all patterns are read.
    factor : float, default 3.0
        Ratio to the neighbours, at least 1.
    sigmas : float, default 6.0
        Number of standard errors, at least 0.

    Returns
    -------
    BadPixels
        Bad pixels by kind.

    Raises
    ------
    InvalidValueError
        If factor or sigmas is out of range, or the survey belongs to another scan (code "scan.wrong-survey").
    """
    check_limits(factor, sigmas)
    seen = survey(scan) if seen is None else seen
    check_survey(scan, seen)
    found = judged(scan, Statistics(seen.patterns, seen.finite, seen.mean, seen.variance), factor=factor, sigmas=sigmas)
    lost = ~seen.finite if scan.mask is None else ~seen.finite & scan.mask
    return BadPixels(found.hot, found.dead, found.stuck & ~found.hot & ~found.dead, lost)
