"""How the scan axes lie to the detector, with the figures that tell whether to believe it."""

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
"""Part of the patterns that has to be seen: gradients need neighbours."""
MOST = 40_000
"""Patterns that the angle is found from: triangles of 200,000 positions on a raster take 25 s, of these 1.5 s."""


@dataclass(frozen=True)
class ScanRotation:
    """How the positions are put right so that the centre-of-mass field has no curl.

    angle: [rad] in (-π/2, π/2], from x towards y: clockwise as arrays are printed. transposed: y and x are exchanged
    first. Half a turn more fits as well, with the opposite phase. curl_before, curl_after: part of the field's
    variation that is curl, as the positions are and as they will be; noise alone has about a half.
    """

    angle: float
    transposed: bool
    curl_before: float
    curl_after: float

    @property
    def degrees(self) -> float:
        """The angle in degrees."""
        return math.degrees(self.angle)

    def apply(self, scan: Scan) -> Scan:
        """The scan put right: `transpose_positions` if transposed, then `rotate_positions`."""
        return rotate_positions(transpose_positions(scan) if self.transposed else scan, self.angle)


def scan_rotation(scan: Scan, seen: Survey | None = None) -> ScanRotation:
    """The rotation between scan and detector from the patterns' centres of mass, as in 4D-STEM.

    The field is to be a gradient, so its curl is made least (and its divergence largest) over all angles, in closed
    form; see `ptynb.preparation.estimate_rotation`. Of more than 40,000 patterns those nearest to the middle are used.

    seen: a survey of at least half of the patterns; without one all are read.

    Raises ScanError where there is nothing to find: near-field scans, tilted geometry, fewer than 16 patterns or ones
    on a line, noise; and where too few were surveyed.
    """
    check_deflections(scan)
    if seen is None:
        moments = centre_of_mass(scan)
    else:
        check_survey(scan, seen)
        if seen.patterns < ENOUGH * len(scan):
            raise ScanError(
                f"{seen.patterns} of {len(scan)} patterns were surveyed; expected at least half of them, since the "
                "curl is seen between neighbours. Wait for the survey, or leave it out: all patterns are read then.",
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
