"""`pt.direct`: the first pictures of a scan, in one pass over the patterns and without a reconstruction.

The pass keeps a few numbers of each pattern: counts on virtual detectors, the centre of mass, and the counts of some
hundred (groups of) pixels of the bright-field disc. The centre of mass ⟨k⟩ is the gradient of the phase smoothed by the
intensity of the probe, 2π ⟨k⟩ = ∇φ ⋆ |P|² (Lazić, Bosch and Lazar, Ultramicroscopy 160, 265 (2016)). The images of
bright-field pixels give aberrations, the tilt-corrected bright field and the single-side-band phase: `weak_phase`.
"""

from __future__ import annotations

import dataclasses
import functools
import html
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ptynb.analysis.direct.position_grid import PositionGrid, position_grid
from ptynb.analysis.direct.weak_phase import BrightFieldImages, WeakPhaseFit, integrated, turn_matrix
from ptynb.analysis.scan_survey import Survey, bright_radius, survey
from ptynb.data import images
from ptynb.data.arrivals import Acquisition
from ptynb.data.cut_pictures import length_text
from ptynb.data.electrons import LONGEST_ELECTRON
from ptynb.data.images import Picture, pictures_html
from ptynb.data.scan import Scan, check_scan, part_that_came
from ptynb.exceptions import ScanError
from ptynb.preparation.bright_field_disc import Disc, bright_field_disc
from ptynb.preparation.center_of_mass import PatternMoments
from ptynb.preparation.recorded_steps import check_measured
from ptynb.preparation.rotation_fit import ScanRotation, rotation_if_known
from ptynb.preparation.shared_transforms import as_centred, far_field_geometry, middle_of, pieces, pixel_of
from ptynb.table import Table, Tabular, duration

Array = NDArray[np.float64]
SAMPLE = 128
"""Number of evenly spread patterns whose mean shows the disc."""
ACROSS = 24
"""Largest number of (groups of) pixels across the bright-field disc."""
MOST_NUMBERS = 2**26
"""Largest number of counts of bright-field pixels of all patterns (256 MB)."""
IN_CACHE = 2**19
"""Number of pixels of patterns that are converted and summed at once: 9 ms for 227 of 192 x 192, and 27 ms in one."""
DARK = 1.1
"""Inner radius of the dark-field detector, in radii of the disc."""
ORIENTING = 10_000
"""Largest number of patterns that the rotation is found from: 0.4 s."""
GROWTH = 1.1
"""Factor by which the number of patterns that have come grows until the rotation is determined from them again."""
SKEWED = 0.3
"""Smallest skewness of the phase by which atoms are told from holes."""
PARALLAX_ERROR = math.radians(1.5)
"""Standard deviation [rad] of a rotation by parallax alone: 0.3 to 3.4 degrees on six scans of other packages."""
FEWEST_PIXELS = 12
"""Smallest number of bright-field pixels for the weak-phase model."""


@dataclass(frozen=True, eq=False)
class DirectImages(Tabular):
    """Pictures of a scan without a reconstruction, on the grid of its positions, and what was found with them.

    Pictures have the axes of the positions as they are in the scan; NaN where no position is near.

    Parameters
    ----------
    scan : str
        Name of the scan.
    pictures : dict of str to ndarray
        Pictures (y, x) by name: "sum", "bright field" and "dark field" (counts of a pattern), "deflection y" and
        "deflection x" (of the beam, without its mean, in the axes of the positions), "integrated phase", and, if the
        aberrations were found, "parallax" (tilt-corrected bright field, relative to the mean) and "single side band"
        (phase).
    units : dict of str to str
        Unit of each picture; "" for pure numbers.
    y, x : ndarray of float64
        Coordinates of rows and columns: the centre of the probe [m], without geometry [object pixels].
    pixel_size : (float, float) or None
        Size (y, x) of the pixels of the pictures [m]; None without geometry.
    raster : bool
        Whether each pixel is one pattern; otherwise scattered positions were interpolated.
    counts : float
        Mean counts of a pattern.
    disc : Disc or None
        Bright-field disc on the detector; None if the mean pattern has none.
    convergence_angle : float or None
        Semi-angle of the disc [rad]; None without disc or geometry.
    rotation : ScanRotation or None
        Rotation between scan and detector for which the deflections have no curl; None if they show none.
    angle : float
        Rotation [rad] that the pictures use, of the weak-phase model if it fits, from x towards y.
    transposed : bool
        Whether y and x of the positions are exchanged before.
    aberrations : dict or None
        "C10" [m], positive for a sample downstream of the focus, and "C12" ([m], azimuth [rad]) in the axes of the
        detector, as `ptynb.illumination.electron_probe` takes them; None if they were not found.
    gain : float
        Power that the weak-phase model explains, relative to noise; 1 if it explains none.
    seconds : float
        Wall time [s].
    notes : tuple of str
        What was not found, and why.
    """

    scan: str
    pictures: dict[str, Array]
    units: dict[str, str]
    y: Array
    x: Array
    pixel_size: tuple[float, float] | None
    raster: bool
    counts: float
    disc: Disc | None
    convergence_angle: float | None
    rotation: ScanRotation | None
    angle: float
    transposed: bool
    aberrations: dict[str, float | tuple[float, float]] | None
    gain: float
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def correction(self) -> ScanRotation | None:
        """The correction of the positions that the pictures use; None if neither deflections nor parallax show one."""
        if self.rotation is None and self.aberrations is None:
            return None
        first = self.rotation or ScanRotation(self.angle, self.transposed, math.nan, math.nan, PARALLAX_ERROR, 0.0)
        return dataclasses.replace(first, angle=self.angle, transposed=self.transposed)

    @property
    def lines(self) -> tuple[str, ...]:
        """What was found as lines of Python: the correction of the positions, and the probe."""
        turned = self.correction
        found = turned.lines if turned is not None and turned.needed else ()
        if self.aberrations is not None and self.convergence_angle is not None:
            found += (
                "probe = pt.illumination.electron_probe(scan.pattern_shape, scan.pixel_size, scan.geometry.wavelength, "
                f"{self.convergence_angle:.4g}, {_plain(self.aberrations)})",
            )
        return found

    def initial_guess(self, scan: Scan) -> Scan:
        """Return the scan as a reconstruction may begin with it: positions corrected, and the probe of the fitted lens.

        The object stays flat: with the single-side-band phase the first three epochs of LSQML were worse for MoS2 and
        better for SrTiO3, and equal from the fifth and the tenth on.

        Parameters
        ----------
        scan : Scan
            The scan that the pictures are of.

        Returns
        -------
        Scan
            The new scan; its probe is the scan's own if no aberrations were found.

        Raises
        ------
        InvalidValueError
            If the probe does not fit in the window of the patterns ("probe.window-too-small").
        """
        found = self.correction
        corrected = scan if found is None or not found.needed else found.apply(scan)
        if self.aberrations is None or self.convergence_angle is None:
            return corrected
        return corrected.with_probe(convergence_angle=self.convergence_angle, aberrations=self.aberrations)

    def table(self) -> Table:
        """Return what was found as a table.

        Returns
        -------
        Table
            One row per quantity.
        """
        rows = [("counts of a pattern", f"{self.counts:.4g}")]
        size = "" if self.pixel_size is None else f", pixel {self.pixel_size[0]:.3g} x {self.pixel_size[1]:.3g} m"
        kind = "the raster of the positions" if self.raster else "interpolated from scattered positions"
        rows.append(("grid", f"{len(self.y)} x {len(self.x)}{size}, {kind}"))
        if self.disc is not None:
            angle = "" if self.convergence_angle is None else f", {self.convergence_angle * 1e3:.4g} mrad"
            y, x = self.disc.centre
            rows.append(
                ("bright-field disc", f"radius {self.disc.radius:.2f} pixels{angle}, centre ({y:.2f}, {x:.2f})")
            )
        if self.rotation is not None:
            rows.append(("rotation by deflections", str(self.rotation)))
        if self.gain > 1:
            exchanged = "y and x exchanged, " if self.transposed else ""
            rows.append(("rotation by parallax", f"{exchanged}{math.degrees(self.angle):.1f}° from x towards y"))
        if self.aberrations is not None:
            magnitude, azimuth = self._astigmatism
            c10 = self.aberrations["C10"]
            assert isinstance(c10, float)
            side = "underfocus" if c10 < 0 else "overfocus"
            rows.append(("C10", f"{length_text(c10, 4)} ({side})"))
            rows.append(("C12", f"{length_text(magnitude, 4)} at {math.degrees(azimuth):.0f}°"))
        caption = f"{self.scan}: {len(self.pictures)} pictures in {duration(self.seconds)}"
        return Table(("quantity", "value"), tuple(rows), "\n".join([caption, *self.notes, *self.lines]), left=(0, 1))

    @property
    def _astigmatism(self) -> tuple[float, float]:
        pair = (self.aberrations or {}).get("C12", (0.0, 0.0))
        return pair if isinstance(pair, tuple) else (pair, 0.0)

    def shown(self) -> tuple[Picture, ...]:
        """Return the pictures in grey levels, for a `Viewer` or a notebook.

        Returns
        -------
        tuple of Picture
            The pictures, with titles, units and limits of contrast.
        """
        return tuple(
            images.picture(
                values,
                name,
                name.capitalize(),
                unit=self.units[name],
                pixel_size=self.pixel_size,
                note=self.units[name],
            )
            for name, values in self.pictures.items()
        )

    def _repr_html_(self) -> str:
        lines = "".join(f"<pre>{html.escape(line)}</pre>" for line in self.lines)
        table = dataclasses.replace(self.table(), caption=self.table().caption.splitlines()[0])
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return f"{pictures_html(self.shown())}{table.html()}{notes}{lines}"

    def to_plain(self) -> dict[str, Any]:
        """Return what was found as JSON types, without the pictures.

        Returns
        -------
        dict
            The attributes, and the names of the pictures.
        """
        return {
            "scan": self.scan,
            "pictures": [*self.pictures],
            "shape": [len(self.y), len(self.x)],
            "pixel_size": self.pixel_size,
            "raster": self.raster,
            "counts": self.counts,
            "disc": None if self.disc is None else dataclasses.asdict(self.disc),
            "convergence_angle": self.convergence_angle,
            "rotation": None if self.rotation is None else dataclasses.asdict(self.rotation),
            "angle": self.angle,
            "transposed": self.transposed,
            "aberrations": self.aberrations,
            "gain": self.gain,
            "seconds": self.seconds,
            "notes": list(self.notes),
            "lines": list(self.lines),
        }

    def __repr__(self) -> str:
        return f"<DirectImages of {self.scan}: {', '.join(self.pictures)}, {len(self.y)} x {len(self.x)}>"


def direct(scan: Scan, *, report: Callable[[int], None] = lambda _: None) -> DirectImages:
    """Return the first pictures of a scan, without a reconstruction. Reads all patterns once, in parts.

    Virtual detectors (sum, bright and dark field), the deflection of the beam (differential phase contrast) and its
    integral (integrated phase, as iCOM), and, if the mean pattern has a disc, the aberrations C10 and C12 and the
    rotation of the scan from the shifts of the images of bright-field pixels, with the tilt-corrected bright field
    (parallax) and the single-side-band phase. The last two assume a weak phase object in the plane of C10.

    Of a scan that is being measured these are the pictures of what has come, NaN elsewhere, without those that need
    the aberrations.

    Positions may be scattered; they are interpolated then. A rotation by another half turn with aberrations and phases
    of the other sign fits equally well. Angles are those within a quarter turn; of electrons with known aberrations,
    beyond an eighth of a turn, those for which atoms have positive phases.

    Parameters
    ----------
    scan : Scan
        Far-field scan of an area.
    report : callable, optional
        Called with the number of patterns that were read.

    Returns
    -------
    DirectImages
        Pictures by name, and what was found.

    Raises
    ------
    ScanError
        For near-field scans (code "scan.near-field"), tilted geometries ("scan.tilted-geometry"), combined scans
        ("scan.combined"), positions on a line ("scan.too-few-patterns"), scans of which no pattern has come yet
        ("scan.live"), and scans without counts ("scan.empty").
    """
    reading = DirectReading(scan)
    reading.read(report)
    return reading.images()


class DirectReading:
    """Numbers of each pattern of a scan, read once, and the pictures that follow from them; see `direct`.

    Of a scan that is being measured, `read` continues with what has come since. Where the disc is on the detector is
    determined again while the first few hundred patterns come, which are read again then.
    """

    def __init__(self, scan: Scan) -> None:
        check_scan(scan)
        acquisition = scan.acquisition
        if not isinstance(acquisition, Acquisition):
            check_measured(scan, "direct")
        self._geometry = far_field_geometry(scan, "direct")
        if scan.combination is not None:
            raise ScanError(
                f"'{scan.name}' is made of {len(scan.combination.scans)} scans, which have no common pictures; "
                "expected one of them.",
                code="scan.combined",
            )
        self._index = acquisition.index() if isinstance(acquisition, Acquisition) else None
        self._scan = as_centred(scan)
        self._pixel = pixel_of(scan)
        self._detector: _Detector | None = None
        self._sampled = 0  # patterns that the detector was determined from, or a part of them
        self._turned_by = 0  # patterns that the rotation was determined from
        self._rotation: ScanRotation | None = None
        self._seconds = 0.0
        position_grid(self._places(scan))  # raises an error before anything is read

    def read(self, report: Callable[[int], None] = lambda _: None, most: int | None = None) -> bool:
        """Read the patterns that have come and were not read, at most so many; return whether there are more.

        Raises ScanError if none has come ("scan.live"), or they have no counts ("scan.empty").
        """
        began = time.perf_counter()
        came = np.arange(len(self._scan)) if self._index is None else np.flatnonzero(self._index.placed())
        if not len(came):
            raise ScanError(
                f"None of the {len(self._scan)} patterns of the scan has come yet; try again later.", code="scan.live"
            )
        if self._detector is None or self._sampled < min(SAMPLE, len(came) // 2):
            self._detector = self._find_detector(self._part(came))
            self._sampled = len(came)
            self._channels = np.full((len(self._scan), self._detector.weights.shape[1]), np.nan)
            self._pixels = np.empty((len(self._scan), int(self._detector.chosen.sum())), np.float32)
        left = came[np.isnan(self._channels[came, 0])]
        now = left[:most]
        for rows, channels, pixels in _read(self._part(now), self._detector, report) if len(now) else ():
            self._channels[now[rows]], self._pixels[now[rows]] = channels, pixels
        self._seconds += time.perf_counter() - began
        return len(now) < len(left)

    def images(self) -> DirectImages:
        """Return the pictures of the patterns that were read, at least one."""
        began = time.perf_counter()
        assert self._detector is not None, "nothing was read"
        known = np.flatnonzero(~np.isnan(self._channels[:, 0]))
        scan, disc, notes = self._part(known), self._disc, [*self._notes]
        read = _Read.of(self._channels[known], self._pixels[known])
        grid = position_grid(self._places(scan), None if self._index is None else self._places(self._scan))
        field = read.moments / (np.array(scan.pattern_shape) * self._pixel)
        if len(known) >= GROWTH * self._turned_by or len(known) == len(self._scan):
            moments = PatternMoments(read.sums, read.moments, self._seen.mean)
            self._rotation, self._turned_by = rotation_if_known(scan, ORIENTING, moments), len(known)
        rotation, fit = self._rotation, None
        if self._index is not None:
            notes.append(
                f"{len(known)} of {len(self._scan)} patterns have come. Aberrations, parallax and single side band are "
                "those of the file, after the end of the scan."
            )
        elif disc is not None and read.pixels.shape[1] >= FEWEST_PIXELS:
            bright = _bright_field(scan, self._detector, read, grid, disc, self._pixel)
            fit = bright.fit(None if rotation is None else (rotation.angle, rotation.transposed))
            if fit is None:
                notes.append("The images of bright-field pixels show no common shift (noise, or no phase contrast).")
        elif disc is not None:
            notes.append(f"The disc has {read.pixels.shape[1]} pixels, too few for aberrations.")
        if rotation is None and fit is None:
            notes.append("The deflections show no rotation of the scan; none is assumed.")
        wavelength = None if self._geometry is None else self._geometry.wavelength
        more: dict[str, Array] = {}
        if fit is not None:
            aligned, phase = bright.pictures(fit)
            if wavelength is not None and wavelength < LONGEST_ELECTRON and _reversed(fit, phase):
                fit, phase = fit.opposite, -phase
                notes.append("Of both half turns the one is taken for which atoms have positive phases.")
            more = {"parallax": aligned, "single side band": phase}
        found = fit or rotation
        angle, transposed = (0.0, False) if found is None else (found.angle, found.transposed)
        pictures, units = _pictures(read, field, grid, turn_matrix(angle, transposed), wavelength)
        pictures |= more
        units |= {"parallax": "", "single side band": "rad"}
        unit = np.ones(2) if self._geometry is not None else self._pixel
        radius = None if disc is None or wavelength is None else radius_of(scan, disc, self._pixel)
        return DirectImages(
            scan=scan.name,
            pictures={name: np.where(grid.inside, one, np.nan) for name, one in pictures.items()},
            units=units,
            y=grid.y / unit[0],
            x=grid.x / unit[1],
            pixel_size=None if self._geometry is None else grid.step,
            raster=grid.raster,
            counts=float(read.sums.mean()),
            disc=disc,
            convergence_angle=None if radius is None or wavelength is None else radius * wavelength,
            rotation=rotation,
            angle=angle,
            transposed=transposed,
            aberrations=None if fit is None or wavelength is None else _aberrations(fit, wavelength),
            gain=1.0 if fit is None else fit.gain,
            seconds=self._seconds + time.perf_counter() - began,
            notes=tuple(notes),
        )

    def _find_detector(self, scan: Scan) -> _Detector:
        self._seen = seen = survey(scan, SAMPLE)
        if not seen.mean.any():
            raise ScanError("All patterns that were read are 0 at the good pixels.", code="scan.empty")
        self._notes: list[str] = []
        self._disc = _disc(scan, seen, self._notes)
        return _Detector.of(scan, seen, self._disc, grouped=self._index is None)

    def _part(self, patterns: NDArray[np.int64]) -> Scan:
        """Return the scan of these patterns, which have come; of a complete scan all of it."""
        if self._index is None:
            return self._scan
        return part_that_came(self._scan, patterns, self._index.positions())

    def _places(self, scan: Scan) -> Array:
        return (scan.positions + middle_of(scan)) * self._pixel


def radius_of(scan: Scan, disc: Disc, pixel: Array) -> float:
    """Return the radius of a disc as a spatial frequency [1/m]."""
    return disc.radius / math.sqrt(float(np.prod(np.array(scan.pattern_shape) * pixel)))


def _disc(scan: Scan, seen: Survey, notes: list[str]) -> Disc | None:
    try:
        return bright_field_disc(scan, seen.mean)
    except ScanError as error:
        if error.code != "scan.no-bright-field-disc":
            raise
        notes.append(f"{error} There are no aberrations, and the bright field is the bright part of the beam.")
        return None


@dataclass(frozen=True, eq=False)
class _Detector:
    """Weights (pixel, channel) of sum, y, x, bright and dark field, and groups of side x side bright-field pixels.

    corner: first pixel (y, x) of the groups; chosen: groups (y, x) that are used.
    """

    weights: NDArray[np.float32]
    corner: tuple[int, int]
    side: int
    chosen: NDArray[np.bool_]

    @classmethod
    def of(cls, scan: Scan, seen: Survey, disc: Disc | None, *, grouped: bool) -> _Detector:
        height, width = scan.pattern_shape
        y, x = np.meshgrid(*(np.arange(side) - float(side // 2) for side in (height, width)), indexing="ij")
        centre, radius = (seen.centre, bright_radius(seen)) if disc is None else (disc.centre, disc.radius)
        away = np.hypot(y - centre[0], x - centre[1])
        parts = [np.ones_like(y), y, x, away <= radius, away > DARK * radius]
        weights = np.stack([part.ravel() for part in parts], 1).astype(np.float32)
        if disc is None or not grouped:
            return cls(weights, (0, 0), 1, np.zeros((0, 0), bool))
        side = math.ceil(2 * radius / ACROSS)
        while len(scan) * math.pi * (radius / side) ** 2 > MOST_NUMBERS:
            side += 1
        corner, counts = [], []
        for middle, length in zip(disc.centre, (height, width), strict=True):
            at = middle + length // 2
            half = math.ceil(radius / side)
            first = round(at - half * side + 0.5)
            skipped = max(0, math.ceil(-first / side))
            corner.append(first + skipped * side)
            counts.append(min(2 * half - skipped, (length - corner[-1]) // side))
        box = tuple(slice(first, first + side * count) for first, count in zip(corner, counts, strict=True))
        shape = (counts[0], side, counts[1], side)
        good = np.ones((height, width), bool) if scan.mask is None else scan.mask
        mean = np.where(good, seen.mean, 0)[box].reshape(shape).mean((1, 3))
        farthest = away[box].reshape(shape).mean((1, 3)) + side / 2
        chosen = good[box].reshape(shape).all((1, 3)) & (farthest <= radius)
        # A zone plate has a hole in its disc.
        chosen &= mean > 0.5 * (float(np.median(mean[chosen])) if chosen.any() else 0)
        return cls(weights, (corner[0], corner[1]), side, chosen)

    def pixels(self, scan: Scan, disc: Disc) -> Array:
        """Return the places (group, yx) of the groups from the centre of the disc [detector pixels]."""
        index = np.argwhere(self.chosen)
        middle = np.array(self.corner) + (index + 0.5) * self.side - 0.5
        return middle - np.array(scan.pattern_shape) // 2 - disc.centre

    def groups(self, counts: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the counts (pattern, group) of patterns (pattern, y, x)."""
        (rows, columns), side = self.chosen.shape, self.side
        top, left = self.corner
        box = counts[:, top : top + rows * side, left : left + columns * side]
        if side > 1:
            # Slices are added three times as fast as numpy sums over short axes.
            split = box.reshape(len(box), rows, side, columns, side)
            lines = functools.reduce(np.add, (split[:, :, row] for row in range(side)))
            box = functools.reduce(np.add, (lines[..., column] for column in range(side)))
        return box[:, self.chosen]


@dataclass(frozen=True, eq=False)
class _Read:
    """Numbers of each pattern: sum, centre of mass (pattern, yx), bright and dark field, counts of groups of pixels."""

    sums: Array
    moments: Array
    bright: Array
    dark: Array
    pixels: NDArray[np.float32]

    @classmethod
    def of(cls, channels: Array, pixels: NDArray[np.float32]) -> _Read:
        """Return the numbers of patterns from their channels of the detector (pattern, channel)."""
        sums = channels[:, 0]
        with np.errstate(invalid="ignore", divide="ignore"):
            moments = np.where(sums[:, None] > 0, channels[:, 1:3] / sums[:, None], np.nan)
        return cls(sums, moments, channels[:, 3], channels[:, 4], pixels)


def _read(
    scan: Scan, detector: _Detector, report: Callable[[int], None]
) -> Iterator[tuple[slice, NDArray[np.float32], NDArray[np.float32]]]:
    """Yield the channels and the groups of pixels of all patterns in parts, and which these are."""
    for part, counts in pieces(scan):
        few = max(1, IN_CACHE // (counts.shape[1] * counts.shape[2]))
        for first in range(0, len(counts), few):
            some = counts[first : first + few].astype(np.float32)
            rows = slice(part.start + first, part.start + first + len(some))
            yield rows, some.reshape(len(some), -1) @ detector.weights, detector.groups(some)
        report(part.stop)


def _bright_field(
    scan: Scan, detector: _Detector, read: _Read, grid: PositionGrid, disc: Disc, pixel: Array
) -> BrightFieldImages:
    mean = read.pixels.mean(0, dtype=np.float64)
    relative = read.pixels / mean.astype(np.float32) - 1
    frequencies = detector.pixels(scan, disc) / (np.array(scan.pattern_shape) * pixel)
    return BrightFieldImages(grid.picture(relative), grid.step, frequencies, radius_of(scan, disc, pixel))


def _pictures(
    read: _Read, field: Array, grid: PositionGrid, turn: Array, wavelength: float | None
) -> tuple[dict[str, Array], dict[str, str]]:
    """Return virtual detectors, deflections and integrated phase, and their units; field: ⟨k⟩ (pattern, yx) [1/m]."""
    # Deflections are those of the detector; R takes positions, and so gradients by them, to its axes.
    empty = np.isnan(field[:, 0])
    steered = field - np.nanmean(field, 0)
    steered[empty] = 0
    steered = steered @ turn
    deflection = grid.picture(steered)
    counts = {"sum": read.sums, "bright field": read.bright, "dark field": read.dark}
    pictures = {name: grid.picture(values) for name, values in counts.items()}
    # Without geometry ⟨k⟩ is in detector pixels.
    scale, unit = (1.0, "detector pixels") if wavelength is None else (wavelength, "rad")
    pictures |= {"deflection y": scale * deflection[..., 0], "deflection x": scale * deflection[..., 1]}
    # Of a part of a scan: gradients of 0 beside it would bend the phase at its edges.
    phase = pictures["integrated phase"] = np.zeros(grid.inside.shape)
    for box in ndimage.find_objects(grid.inside.astype(int)):
        phase[box] = integrated(2 * np.pi * deflection[box], grid.step)
    return pictures, dict.fromkeys(counts, "counts") | {
        "deflection y": unit,
        "deflection x": unit,
        "integrated phase": "rad",
    }


def _reversed(fit: WeakPhaseFit, phase: Array) -> bool:
    """Return whether the phase (y, x) shows holes, at a rotation that is no nearer to 0 than its opposite by much."""
    deviation = phase - phase.mean()
    skewness = float((deviation**3).mean()) / max(float((deviation**2).mean()) ** 1.5, 1e-300)
    return abs(math.remainder(fit.angle, 2 * math.pi)) > math.pi / 4 and skewness < -SKEWED


def _aberrations(fit: WeakPhaseFit, wavelength: float) -> dict[str, float | tuple[float, float]]:
    azimuth = math.atan2(fit.c12b, fit.c12a) / 2
    return {
        "C10": fit.c10 / wavelength,
        "C12": (math.hypot(fit.c12a, fit.c12b) / wavelength, azimuth),
    }


def _plain(aberrations: dict[str, float | tuple[float, float]]) -> str:
    """Return aberrations as Python, with four digits."""
    parts = []
    for name, value in aberrations.items():
        pair = f"({value[0]:.3g}, {value[1]:.3g})" if isinstance(value, tuple) else f"{value:.4g}"
        parts.append(f'"{name}": {pair}')
    return f"{{{', '.join(parts)}}}"
