"""Rotation between scan and detector, with the fraction of curl before and after correction."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ptynb.analysis.bad_pixels import check_survey
from ptynb.analysis.scan_survey import Survey
from ptynb.data.scan import Scan
from ptynb.exceptions import ScanError
from ptynb.preparation.center_of_mass import centre_of_mass
from ptynb.preparation.rotation_fit import check_deflections, curl_of, deflections, least_curl, weighted_gradients
from ptynb.preparation.scan_positions import rotate_positions, transpose_positions

ENOUGH = 0.5
"""Smallest fraction of surveyed patterns: gradients require neighbours."""
MOST = 40_000
"""Largest number of patterns that are used: triangulation takes 1.5 s, and 25 s for 200,000 on a raster."""


@dataclass(frozen=True)
class ScanRotation:
    """Correction of the positions for which the field of the centres of mass has no curl.

    Parameters
    ----------
    angle : float
        Angle [rad] in (-π/2, π/2], from x towards y: clockwise as arrays are printed. Another half turn fits equally
        well, with the opposite phase.
    transposed : bool
        Whether y and x are exchanged first.
    curl_before : float
        Fraction of the field's variation that is curl before the correction; about one half for noise.
    curl_after : float
        Fraction after the correction.
    """

    angle: float
    transposed: bool
    curl_before: float
    curl_after: float

    @property
    def degrees(self) -> float:
        """Angle in degrees."""
        return math.degrees(self.angle)

    def apply(self, scan: Scan) -> Scan:
        """Correct the positions of a scan.

        Parameters
        ----------
        scan : Scan
            Scan, which does not change.

        Returns
        -------
        Scan
            The new scan.
        """
        return rotate_positions(transpose_positions(scan) if self.transposed else scan, self.angle)


def scan_rotation(scan: Scan, seen: Survey | None = None) -> ScanRotation:
    """Find the rotation between scan and detector from the centres of mass of the patterns, as in 4D-STEM.

    The field is a gradient, so its curl is minimised over all angles in closed form; see
    `ptynb.preparation.estimate_rotation`. Of more than 40,000 patterns those nearest to the centre are used.

    Parameters
    ----------
    scan : Scan
        Scan to examine.
    seen : Survey, optional
        Survey of at least half of the patterns; by default all patterns are read.

    Returns
    -------
    ScanRotation
        Angle and curl.

    Raises
    ------
    ScanError
        For near-field scans and tilted geometries, fewer than 16 patterns or ones on a line, noise, and an incomplete
        survey (code "scan.survey-incomplete").
    """
    check_deflections(scan)
    if seen is None:
        moments = centre_of_mass(scan)
    else:
        check_survey(scan, seen)
        if seen.patterns < ENOUGH * len(scan):
            raise ScanError(
                f"{seen.patterns} of {len(scan)} patterns were surveyed; expected at least half of them. "
                "Wait for the survey, or leave it out to read all patterns.",
                code="scan.survey-incomplete",
            )
        moments = seen.moments
    places, field = deflections(scan, moments)
    if len(places) > MOST:
        near = np.argpartition(((places - places.mean(0)) ** 2).sum(1), MOST)[:MOST]
        places, field = places[near], field[near]
    derivatives = weighted_gradients(places, field)
    angle, transposed, curl = least_curl(derivatives, float(field.std()))
    return ScanRotation(angle, transposed, curl_of(derivatives, 0.0, False), curl)
