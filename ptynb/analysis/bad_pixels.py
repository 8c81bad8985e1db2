"""Bad pixels by kind, from a survey, and the mask that leaves them out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptynb.analysis.scan_survey import Survey, survey
from ptynb.data.scan import Scan
from ptynb.exceptions import InvalidValueError
from ptynb.preparation.pixel_mask import Statistics, judged


@dataclass(frozen=True, eq=False)
class BadPixels:
    """Pixels (y, x) found to be bad, in the order of the patterns; none of them is masked in the scan.

    hot: brighter than their neighbours; dead: darker; stuck: neither, but without any change, though their neighbours
    change; lost: with counts that are not finite.
    """

    hot: NDArray[np.bool_]
    dead: NDArray[np.bool_]
    stuck: NDArray[np.bool_]
    lost: NDArray[np.bool_]

    @property
    def mask(self) -> NDArray[np.bool_]:
        """(y, x), True where the detector works: for `ptynb.preparation.mask_pixels`."""
        return ~(self.hot | self.dead | self.stuck | self.lost)

    def __repr__(self) -> str:
        kinds = {"hot": self.hot, "dead": self.dead, "stuck": self.stuck, "not finite": self.lost}
        return f"<BadPixels: {', '.join(f'{int(kind.sum())} {name}' for name, kind in kinds.items())}>"


def find_bad_pixels(scan: Scan, seen: Survey | None = None, *, factor: float = 3.0, sigmas: float = 6.0) -> BadPixels:
    """Bad pixels of the scan by kind, found as `ptynb.preparation.find_bad_pixels` finds them.

    A pixel is hot whose mean exceeds that of all but two of its eight neighbours by `factor` and by `sigmas` standard
    errors, dead if it lies as far below all but two of them; so the sharp edges of a beam are left alone, and Poisson
    noise is. Pixels masked already are not judged, and judge no neighbour.

    seen: a survey of the scan, of any part of its patterns; without one all patterns are read.

    Raises ValueError for a factor below 1 or negative sigmas, and for a survey of other patterns.
    """
    if not (np.isfinite(factor) and factor >= 1 and np.isfinite(sigmas) and sigmas >= 0):
        raise InvalidValueError(
            f"factor is {factor!r} and sigmas {sigmas!r}; expected at least 1, and at least 0.",
            code="argument.invalid-value",
        )
    seen = survey(scan) if seen is None else seen
    check_survey(scan, seen)
    found = judged(scan, Statistics(seen.patterns, seen.finite, seen.mean, seen.variance), factor=factor, sigmas=sigmas)
    lost = ~seen.finite if scan.mask is None else ~seen.finite & scan.mask
    return BadPixels(found.hot, found.dead, found.stuck & ~found.hot & ~found.dead, lost)


def check_survey(scan: Scan, seen: Survey) -> None:
    """Raises ValueError for a survey that is none of this scan, as far as its shape says."""
    if (len(seen.covered), *seen.mean.shape) != scan.frames.shape:
        height, width = seen.mean.shape
        raise InvalidValueError(
            f"The survey is of {len(seen.covered)} patterns of {height} x {width}, and the scan has {len(scan)} of "
            f"{scan.pattern_shape[0]} x {scan.pattern_shape[1]}; expected a survey of this scan.",
            code="scan.wrong-survey",
        )
