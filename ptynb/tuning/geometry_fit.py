"""Geometry of a scan against its patterns: mirrored or transposed detector, rotated scan, pixel size, defocus.

Electrons. `direct` finds the bright-field disc, the rotation of the scan and the aberrations of the lens, from the
middle of the scan. The radius of the disc calibrates the pixel against the convergence angle of the first guess of the
probe. The rotation, modulo the eight orientations of a detector, is one of the positions; the orientation is that of
the detector, so that the object has the axes of the scan. A half turn with the opposite aberrations and phase fits any
data equally well: the sign of the phase decides, where atoms tell it, against the sign of the defocus that is claimed.

X-rays. The centres of mass of the patterns tell the rotation, or short reconstructions of neighbouring patterns with
each orientation: half a turn, with the conjugate object, is the same for these.

What is found is adopted only if a short reconstruction fits better with it than with what was claimed, and a defocus
only of thin samples: of 15.6 nm of SrTiO3, 10 nm from focus, the weak-phase model finds 2 nm on the other side.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptynb.analysis.direct.direct_imaging import DirectImages, direct
from ptynb.analysis.direct.weak_phase import turn_matrix
from ptynb.data.electrons import LONGEST_ELECTRON
from ptynb.data.geometry import Geometry
from ptynb.data.optics.lens import electron_probe
from ptynb.data.scan import Scan
from ptynb.engine import initial_probe
from ptynb.exceptions import PtynbError, ScanError
from ptynb.io.prepared_scan import prepare
from ptynb.preparation.bright_field_disc import SMALLEST_RADIUS
from ptynb.preparation.rotation_fit import (
    FEWEST_PATTERNS,
    ORIENTING,
    ScanRotation,
    nearest_to_centre,
    rotation_if_known,
)
from ptynb.preparation.selection import select
from ptynb.settings import Settings
from ptynb.settings.recipe import PrepareStep

Losses = Callable[[Sequence[Scan], Settings, int], list[float]]
"""Function that returns the loss after so many epochs of each of these scans; infinite if it diverged, NaN if time was
too short to try."""
TRIED, EPOCHS, WIDEST = 100, 25, 128
"""Patterns, epochs, and largest side of the patterns of a short reconstruction.

Of six X-ray scans of other packages the loss after 20 epochs of 100 patterns was 5 to 200 times as large with a wrong
orientation as with the right one.
"""
BETTER_ORIENTATION, BETTER_LENS = 0.7, 0.98
"""Largest loss, relative to that of what is claimed, with which another orientation, or another lens, is adopted."""
LEAST_CALIBRATION, EDGE = 0.015, 0.25
"""Smallest relative change of the pixel size, and of the disc's radius [detector pixels], that are adopted.

Discs of thick samples are 1% too large; those of a pupil with edges as soft as a pixel are 0.2 pixels too small.
"""
SAME_PROBE = 0.97
"""Overlap of the claimed probe and of that of the fitted lens above which the claimed one is kept.

It is 0.996 for a defocus of 14.4 instead of 15 nm, and 0.90 for one of 19.5 nm, at 80 kV and 21.4 mrad.
"""
THICK = 1.2
"""χ² of a pixel above which the lens that is claimed is kept, whatever fits better.

Without electrons most pixels have less than 1: 0.18 for MoS2, 1.8 for 15.6 nm of SrTiO3, at 36,000 electrons.
"""
SKEWED = 0.3
"""Smallest skewness of the phase by which atoms are told from holes."""
ORIENTATIONS = {
    "as it is": (),
    "transposed": ("transpose",),
    "mirrored": ({"flip": "y"},),
    "transposed and mirrored": ("transpose", {"flip": "y"}),
}
"""Orientations of the detector that differ by more than half a turn, and their correction."""


@dataclass(frozen=True)
class MendedGeometry:
    """A scan with its geometry put right, the steps that did it, (names, reason) of them, and what was not decided."""

    scan: Scan
    steps: tuple[PrepareStep, ...] = ()
    reasons: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


def mended_geometry(scan: Scan, losses: Losses) -> MendedGeometry:
    """Find what is wrong with the geometry of a scan, and put it right.

    Scans of the near field, tilted and combined ones, and those of fewer than 96 patterns do not change.
    """
    flat = scan.geometry is None or isinstance(scan.geometry, Geometry)
    if not flat or scan.combination is not None or len(scan) < FEWEST_PATTERNS:
        return MendedGeometry(scan)
    try:
        return _found(scan, losses)
    except ScanError as error:
        if error.code != "scan.position-outside":
            raise
        return MendedGeometry(scan, notes=(f"The geometry was left as it is, with the guess of the object: {error}",))


def _found(scan: Scan, losses: Losses) -> MendedGeometry:
    part = middle(scan, ORIENTING)
    if isinstance(scan.geometry, Geometry) and scan.geometry.wavelength < LONGEST_ELECTRON:
        seen = _seen(part)
        if seen is not None and seen.correction is not None:
            return _Electrons(scan, part, seen, losses).mended()
    found = rotation_if_known(part)
    return _by_trials(scan, losses) if found is None else _by_deflection(scan, found)


def _by_deflection(scan: Scan, found: ScanRotation) -> MendedGeometry:
    operations, turned = _orientation(found)
    steps = (*operations, *_turning(turned))
    if not steps:
        return MendedGeometry(scan)
    reason = (
        f"{found}: the centres of mass of the patterns fit the positions only then (probability of a false alarm "
        f"{found.false_alarm:.0e}); a further 180° fits equally, with the opposite phase"
    )
    return MendedGeometry(prepare(scan, steps), steps, ((_names(steps), reason),))


def _by_trials(scan: Scan, losses: Losses) -> MendedGeometry:
    """Compare the orientations by short reconstructions, with a probe that is found anew for each of them."""
    short = _short(dataclasses.replace(scan, probe=None, object=None, ground_truth=None))
    tried = losses([prepare(short, steps) for steps in ORIENTATIONS.values()], SETTINGS, EPOCHS)
    if np.isnan(tried).any():
        return MendedGeometry(scan, notes=("Orientations of the detector were not tried, for lack of time.",))
    claimed, best = tried[0], int(np.argmin(tried))
    if not (best and tried[best] < BETTER_ORIENTATION * claimed):
        return MendedGeometry(scan)
    name = [*ORIENTATIONS][best]
    steps = _steps(*ORIENTATIONS[name])
    others = ", ".join(f"{loss:.3g} {one}" for one, loss in zip(ORIENTATIONS, tried, strict=True) if one != name)
    reason = (
        f"the detector is {name}: loss {tried[best]:.3g} in {EPOCHS} epochs of {len(short)} patterns; {others}. "
        "A detector turned by a further 180° fits equally, with the conjugate object"
    )
    return MendedGeometry(prepare(scan, steps), steps, ((_names(steps), reason),))


class _Electrons:
    """The geometry of a scan of electrons: `mended` once."""

    def __init__(self, scan: Scan, part: Scan, seen: DirectImages, losses: Losses) -> None:
        self._scan, self._part, self._seen, self._losses = scan, part, seen, losses
        self._steps: list[PrepareStep] = []
        self._reasons: list[tuple[str, str]] = []
        self._notes: list[str] = []

    def mended(self) -> MendedGeometry:
        before = self._part
        angle = self._calibrated()
        self._oriented()
        oriented, steps, reasons = self._part, [*self._steps], [*self._reasons]
        fitted = self._with_fitted_lens(angle)
        if fitted is None and not steps:
            return MendedGeometry(self._scan, notes=tuple(self._notes))
        candidates = [before, *([oriented] if steps else []), *([] if fitted is None else [fitted])]
        tried = self._losses([_short(one) for one in candidates], HELD, EPOCHS)
        if fitted is not None and (why := self._why_not(tried)):
            self._notes.append(f"The images of bright-field pixels suggest {self._reasons[-1][1]}; left out, as {why}.")
            self._steps, self._reasons, tried = steps, reasons, tried[:-1]
        if self._steps and tried[-1] >= tried[0]:
            names = _names(self._steps)
            self._notes.append(
                f"{names} was suggested ({'; '.join(reason for _, reason in self._reasons)}), with which a short "
                f"reconstruction fits no better (loss {tried[-1]:.3g}, {tried[0]:.3g} without): left out."
            )
            return MendedGeometry(self._scan, notes=tuple(self._notes))
        if self._steps and math.isfinite(tried[-1]):
            name, reason = self._reasons[-1]
            self._reasons[-1] = name, f"{reason} (loss {tried[-1]:.3g}, {tried[0]:.3g} as it was claimed)"
        found = tuple(self._steps)
        return MendedGeometry(prepare(self._scan, found), found, tuple(self._reasons), tuple(self._notes))

    def _why_not(self, tried: Sequence[float]) -> str:
        """Return why the fitted lens, whose loss is the last, is not adopted; "" if it is."""
        excess = 4 * self._seen.counts * tried[-1] / math.prod(self._scan.pattern_shape)
        if tried[-1] >= BETTER_LENS * min(tried[:-1]):
            return f"a short reconstruction fits no better with it (loss {tried[-1]:.3g}, {tried[-2]:.3g} without)"
        if self._scan.probe is not None and excess > THICK:
            return (
                f"one slice does not describe the patterns (χ² of a pixel is {excess:.2g}): of a thick sample the "
                "defocus of a slice in its middle is found"
            )
        return ""

    def _add(self, steps: Sequence[PrepareStep], reason: str) -> None:
        self._steps += steps
        self._reasons.append((_names(steps), reason))
        self._part = prepare(self._part, steps)
        self._seen = _seen(self._part) or self._seen

    def _calibrated(self) -> float | None:
        """Calibrate the pixel size if the disc contradicts it; return the convergence angle [rad], None if unknown."""
        disc, geometry = self._seen.disc, self._part.geometry
        assert isinstance(geometry, Geometry)
        pixel = math.sqrt(math.prod(geometry.detector_pixel)) / geometry.distance
        angle = claimed_angle(self._part)
        if disc is None or angle is None or self._seen.aberrations is None:
            return angle if angle is not None or disc is None else disc.radius * pixel
        change = angle / (disc.radius * pixel) - 1
        if abs(change) < max(LEAST_CALIBRATION, EDGE / disc.radius):
            return angle
        remark = (
            f"the bright-field disc has a radius of {disc.radius * pixel * 1e3:.4g} mrad, and the probe one of "
            f"{angle * 1e3:.4g} mrad"
        )
        if self._scan.object is not None:
            self._notes.append(f"{remark}; the pixel size was left as it is, as the scan has an object guess.")
            return angle
        step = PrepareStep(function="calibrate_from_disc", arguments={"convergence_angle": angle})
        self._add([step], f"{remark}: pixels are {abs(change):.1%} {'larger' if change > 0 else 'smaller'}")
        return angle

    def _oriented(self) -> None:
        """Put detector and positions right."""
        found = self._seen.correction
        assert found is not None
        c10 = None if self._seen.aberrations is None else self._seen.aberrations["C10"]
        if isinstance(c10, float):
            phase = self._seen.pictures["single side band"]
            skewness, claimed = _skewness(phase), self._claimed_sign(c10)
            contradicts = claimed is not None and claimed != math.copysign(1, c10)
            far = abs(math.remainder(found.angle, 2 * math.pi)) > math.pi / 4
            if contradicts and (skewness < -SKEWED or (far and skewness <= SKEWED)):
                found = dataclasses.replace(found, angle=math.remainder(found.angle + math.pi, 2 * math.pi))
            elif contradicts and skewness <= SKEWED:
                self._notes.append(
                    "The phase tells no atoms from holes: a detector turned by 180° fits as well as a defocus of the "
                    "other sign than was claimed, which is assumed."
                )
            elif skewness < -SKEWED:
                self._notes.append(
                    "The phase shows holes rather than atoms: check the sign of the defocus, and whether the detector "
                    "is turned by 180°, which fits equally with both signs."
                )
        operations, turned = _orientation(found)
        steps = [*operations, *_turning(turned)]
        if steps:
            self._add(steps, f"{found}: the images of bright-field pixels and the centres of mass fit only then")

    def _claimed_sign(self, c10: float) -> float | None:
        """Return the sign of the defocus of the guess of the probe; None if it does not tell."""
        angle = claimed_angle(self._part)
        if self._part.probe is None or angle is None:
            return None
        over, under = (overlap(self._part, angle, {"C10": sign * abs(c10)}) for sign in (1, -1))
        return None if abs(over - under) < 0.1 else 1.0 if over > under else -1.0

    def _with_fitted_lens(self, angle: float | None) -> Scan | None:
        """Return the middle of the scan with the probe of the fitted lens; None if it is that which it has."""
        lens = self._seen.aberrations
        if angle is None or lens is None:
            return None
        plain = {name: [*map(float, one)] if isinstance(one, tuple) else float(one) for name, one in lens.items()}
        try:
            # A guess with other pixels has another convergence angle.
            calibrated = any(step.function == "calibrate_from_disc" for step in self._steps)
            if self._part.probe is not None and not calibrated and overlap(self._part, angle, lens) > SAME_PROBE:
                return None
            step = PrepareStep(function="lens_probe", arguments={"convergence_angle": angle, "aberrations": plain})
            fitted = prepare(self._part, [step])
        except PtynbError as error:
            self._notes.append(f"The probe of the fitted lens was not used: {error}")
            return None
        self._steps.append(step)
        c10 = plain["C10"]
        assert isinstance(c10, float)
        had = "none was given" if self._part.probe is None else "which the given one contradicts"
        self._reasons.append(("lens_probe", f"a probe with C10 = {c10 * 1e9:.3g} nm, {had}"))
        return fitted


SETTINGS = initial_probe.run_settings(Settings())
HELD = SETTINGS.replace(probe={"start_epoch": EPOCHS + 1})
"""With the probe as it is given, which otherwise adapts to what is wrong."""


def claimed_angle(scan: Scan) -> float | None:
    """Return the semi-angle [rad] of the guess of the probe, from its lens or else its far field; None if unknown."""
    lens = next((step["lens_probe"] for step in reversed(scan.preparation) if "lens_probe" in step), None)
    if lens is None and scan.loaded is not None:
        lens = scan.loaded.given
    if lens and lens.get("convergence_angle") is not None:
        return float(lens["convergence_angle"])
    if scan.probe is None or not isinstance(scan.geometry, Geometry):
        return None
    # The area of the pupil, whose edge is soft on the grid.
    axes = (-2, -1)
    far = np.sqrt((np.abs(np.fft.fft2(scan.probe, axes=axes)) ** 2).sum(0))
    height = float(np.median(far[far > far.max() / 2]))
    area = float(np.minimum(far / height, 1)[far > height / 20].sum())
    if area < math.pi * SMALLEST_RADIUS**2 or area > far.size / 2:
        return None
    return math.sqrt(area / math.pi * math.prod(scan.geometry.detector_pixel)) / scan.geometry.distance


def overlap(scan: Scan, angle: float, aberrations: dict[str, float | tuple[float, float]]) -> float:
    """Return the overlap (0 to 1) of the first mode of the guess of the probe with a lens, wherever in the window."""
    assert scan.probe is not None
    assert isinstance(scan.geometry, Geometry)
    pixel = scan.geometry.object_pixel(scan.pattern_shape)
    lens = electron_probe(scan.pattern_shape, pixel, scan.geometry.wavelength, angle, aberrations)
    mode = scan.probe[0] / np.linalg.norm(scan.probe[0])
    return float(np.abs(np.fft.ifft2(np.fft.fft2(mode) * np.fft.fft2(lens).conj())).max())


def _orientation(found: ScanRotation) -> tuple[tuple[PrepareStep, ...], ScanRotation]:
    """Return the orientation of the detector as steps, and the rotation that is left for the positions: at most 45°."""
    correction = turn_matrix(found.angle, found.transposed)
    best = math.inf, tuple[PrepareStep, ...](), found
    for exchanged, y, x in itertools.product((False, True), (1, -1), (1, -1)):
        detector = np.diag([y, x]) @ np.eye(2)[:: -1 if exchanged else 1]
        left = detector @ correction
        if np.linalg.det(left) > 0:
            angle = math.atan2(left[0, 1], left[0, 0])
            axes = "y" * (y < 0) + "x" * (x < 0)
            steps = _steps(*(["transpose"] if exchanged else []), *([{"flip": axes}] if axes else []))
            best = min(best, (abs(angle), steps, dataclasses.replace(found, angle=angle, transposed=False)), key=_first)
    return best[1:]


def _first(values: tuple[float, tuple[PrepareStep, ...], ScanRotation]) -> float:
    return values[0]


def _turning(found: ScanRotation) -> tuple[PrepareStep, ...]:
    return found.steps if found.needed else ()


def _steps(*plain: object) -> tuple[PrepareStep, ...]:
    return tuple(PrepareStep.model_validate(one) for one in plain)


def _names(steps: Sequence[PrepareStep]) -> str:
    return ", ".join(step.function for step in steps)


def middle(scan: Scan, count: int) -> Scan:
    """Return the patterns nearest to the centre of the scan, in their order; all of them: the scan itself."""
    near = nearest_to_centre(scan.positions, count)
    return scan if len(near) == len(scan) else select(scan, near)


def _short(scan: Scan) -> Scan:
    """Return the middle of a scan for a short reconstruction, without the object, and with small patterns."""
    window = [min(side, WIDEST) for side in scan.pattern_shape]
    short = dataclasses.replace(middle(scan, TRIED), object=None, ground_truth=None)
    return prepare(short, [{"crop": window}]) if window != [*scan.pattern_shape] else short


def _seen(scan: Scan) -> DirectImages | None:
    """Return the first pictures of a scan; None if it has none."""
    try:
        return direct(scan)
    except ScanError as error:
        if error.code not in ("scan.too-few-patterns", "scan.empty"):
            raise
        return None


def _skewness(phase: NDArray[np.float64]) -> float:
    deviation = phase[np.isfinite(phase)] - np.nanmean(phase)
    return float((deviation**3).mean()) / max(float((deviation**2).mean()) ** 1.5, 1e-300)
