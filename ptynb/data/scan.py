"""Scan: the handle of a data set, with patterns, positions, mask, geometry and initial guesses."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from ptynb.data.admissions import RecordedArrivals
from ptynb.data.arrivals import Acquisition, Arrivals
from ptynb.data.geometry import Geometry, NearField, metres_to_pixels
from ptynb.data.optics.aberrations import Aberrations
from ptynb.data.optics.lens import electron_probe, lens_aberrations
from ptynb.data.patterns import AbsentFrames, Frames, SelectedFrames, StackedFrames, frames_of
from ptynb.data.provenance import Loaded
from ptynb.data.tilted_geometry import TiltedGeometry, positions_on_sample
from ptynb.exceptions import InvalidTypeError, InvalidValueError, PtynbWarning, ScanError, check_choice
from ptynb.plugins import Plugin
from ptynb.table import gigabytes

AnyGeometry = Geometry | NearField | TiltedGeometry
"""Conversion from metres to object pixels."""
Share = Literal["probe", "object"]
"""What scans that are combined have in common."""
SAMPLED_PATTERNS = 8
"""Number of patterns whose counts identify a scan."""
ROOM_FOR_POSITIONS = 1 / 8
"""Margin of the object of a scan that is being measured, in windows, since measured positions differ from the plan."""


@dataclass(frozen=True, eq=False)
class Truth:
    """The object (y, x) or (slice, y, x) and the probe (mode, y, x) of a simulated scan, both complex.

    Position (0, 0) of the scan is the first pixel of the object.
    """

    object: NDArray[np.complexfloating[Any, Any]]
    probe: NDArray[np.complexfloating[Any, Any]]


@dataclass(frozen=True)
class ObjectFrame:
    """The array of the object: its shape (y, x), and the scan coordinates (origin) of its first pixel."""

    origin: tuple[int, int]
    shape: tuple[int, int]


@dataclass(frozen=True, eq=False)
class CombinedScans:
    """How a scan is made of several, from `ptynb.preparation.combine`.

    share: "probe": the objects lie side by side in one array. "object": each scan has a probe of its own.
    scans: the scans, in the order of their patterns, without patterns.
    offsets: (scan, yx) float64: position in this scan minus that in the original one [object pixels].
    frames: (scan, 2, yx) int64: first pixel, and the one behind the last, of the windows (or of the object guess) of
        each scan, in the coordinates of this scan, without a margin.
    gap: free pixels between the objects, if the probe is shared.
    """

    share: Share
    scans: tuple[Scan, ...]
    offsets: NDArray[np.float64]
    frames: NDArray[np.int64]
    gap: int = 0

    @property
    def spans(self) -> tuple[slice, ...]:
        """The patterns of each scan."""
        edges = np.cumsum([0, *(len(scan) for scan in self.scans)]).tolist()
        return tuple(slice(first, last) for first, last in itertools.pairwise(edges))


@dataclass(frozen=True, eq=False, kw_only=True)
class Scan:
    """A data set: metadata and positions, and patterns that are read on demand.

    Create one with `ptynb.load`, `Scan.from_arrays` or `ptynb.simulate`.

    Parameters
    ----------
    frames : Frames
        Diffraction patterns (pattern, y, x) [counts].
    positions : ndarray of float64
        Top-left corners (pattern, yx) of the probe window [object pixels].
    centred : bool, default True
        Whether the zero frequency is at index n // 2 (True) or at index 0 (FFT order).
    mask : ndarray of bool, optional
        Working pixels (y, x), in the order of the patterns; by default all.
    probe : ndarray of complex, optional
        Initial guess (mode, y, x), centred in its window; by default found by a short reconstruction of neighbouring
        patterns (setting `probe.start`).
    object : ndarray of complex, optional
        Initial guess (y, x) or (slice, y, x), in whose pixels positions are given; by default flat.
    geometry : Geometry, NearField or TiltedGeometry, optional
        Conversion from metres to pixels; None if only pixels are known.
    clip_negative : bool, default False
        Whether negative counts are set to 0; otherwise they are an error.
    motion : ndarray of float64, optional
        Displacement (pattern, yx) of each position during its exposure, whose middle the position is [object pixels].
    ground_truth : Truth, optional
        Object and probe of a simulated scan.
    name : str, default "scan"
        Name of the scan.
    loaded : Loaded, optional
        How the scan was loaded from a file.
    preparation : tuple of dict
        Steps of preparation since then, {function of `ptynb.preparation`: its arguments}, recorded by these functions.
    combination : CombinedScans, optional
        How the scan is made of several, by `ptynb.preparation.combine`.
    acquisition : Acquisition or RecordedArrivals, optional
        Where the patterns of a scan come to that `ptynb.listen` receives, or the record by which those of an earlier
        run are admitted again; its `positions` are those of the plan.

    Raises
    ------
    ScanError
        If shapes do not fit together, or values are not finite.
    """

    frames: Frames
    positions: NDArray[np.float64]
    centred: bool = True
    mask: NDArray[np.bool_] | None = None
    probe: NDArray[np.complexfloating[Any, Any]] | None = None
    object: NDArray[np.complexfloating[Any, Any]] | None = None
    geometry: AnyGeometry | None = None
    clip_negative: bool = False
    motion: NDArray[np.float64] | None = None
    ground_truth: Truth | None = None
    name: str = "scan"
    loaded: Loaded | None = None
    preparation: tuple[dict[str, Any], ...] = ()
    combination: CombinedScans | None = None
    acquisition: Acquisition | RecordedArrivals | None = None

    def __post_init__(self) -> None:
        _check_frames(self.frames)
        if self.probe is not None and self.probe.ndim == 2:
            object.__setattr__(self, "probe", self.probe[None])  # one mode
        if self.combination is not None:
            _check_combination(self, self.combination)
        for guess, dimensions, name in ((self.probe, (2, 3), "probe"), (self.object, (2, 3), "object")):
            if guess is None:
                continue
            bad = int((~np.isfinite(guess)).sum())
            if guess.ndim not in dimensions or bad:
                found = (
                    f"{bad} values that are not finite; expected finite values"
                    if bad
                    else (f"shape {guess.shape}; expected {' or '.join(map(str, dimensions))} dimensions")
                )
                raise ScanError(f"The {name} guess has {found}.", code="scan.invalid-guess", fields=(name,))
        if self.probe is not None and (self.probe.shape[-2:] != self.pattern_shape or not np.abs(self.probe).any()):
            raise ScanError(
                f"The probe guess has shape {self.probe.shape}; expected (mode, y, x), not zero everywhere, with "
                f"the patterns' {self.pattern_shape[0]} x {self.pattern_shape[1]} pixels. Crop, pad or resample one "
                "of them.",
                code="scan.invalid-guess",
            )
        side_by_side = self.combination is not None and self.combination.share == "probe"
        check_positions(self.positions, len(self), self.pattern_shape, self.object, connected=not side_by_side)
        if self.motion is not None and (self.motion.shape != (len(self), 2) or not np.isfinite(self.motion).all()):
            raise ScanError(
                f"The motion has shape {self.motion.shape} and {int((~np.isfinite(self.motion)).sum())} values that "
                f"are not finite; expected finite numbers ({len(self)}, 2): (y, x) for each pattern.",
                code="array.shape-mismatch",
            )
        if self.mask is not None:
            _check_mask(self.mask, self.pattern_shape)

    @classmethod
    def from_arrays(
        cls,
        patterns: ArrayLike,
        positions: ArrayLike,
        *,
        units: str = "pixels",
        order: str = "centred",
        probe: ArrayLike | None = None,
        object: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        geometry: AnyGeometry | None = None,
        clip_negative: bool = False,
        motion: ArrayLike | None = None,
        name: str = "arrays",
    ) -> Self:
        """Create a scan from arrays. The patterns are checked here and sent to the engines once.

        Parameters
        ----------
        patterns : array_like
            Counts (pattern, y, x), real. An array that numpy maps from a file (`np.load(path, mmap_mode="r")`) stays
            there, and engines read the file themselves.
        positions : array_like
            Top-left corners (pattern, yx) of the probe window, in `units`.
        units : {"pixels", "metres"}, default "pixels"
            Unit of the positions: object pixels, or metres (requires `geometry`).
        order : {"centred", "fft"}, default "centred"
            Index of the zero frequency: n // 2 (centred) or 0 (fft).
        probe : array_like, optional
            Initial guess (y, x) or (mode, y, x), complex, centred in its window; any scale.
        object : array_like, optional
            Initial guess (y, x) or (slice, y, x), complex, in whose pixels positions are given.
        mask : array_like, optional
            Mask (y, x), True or 1 at working pixels, in the order of the patterns.
        geometry : Geometry, NearField or TiltedGeometry, optional
            Geometry of the measurement.
        clip_negative : bool, default False
            Whether negative counts are set to 0; otherwise they are an error.
        motion : array_like, optional
            Displacement (pattern, yx) of each position during its exposure, in `units`, for `Settings.fly_scan`.
        name : str, default "arrays"
            Name of the scan.

        Returns
        -------
        Scan
            The scan.

        Raises
        ------
        InvalidValueError
            If units or order is none of the choices.
        ScanError
            If arrays do not fit together (code "array.shape-mismatch"), counts are invalid ("scan.invalid-count"), or
            the geometry is missing ("scan.no-geometry").
        """
        check_choice(units, "units", ("pixels", "metres"))
        check_choice(order, "order", ("centred", "fft"))
        array = np.asarray(patterns)
        if array.ndim != 3:
            raise ScanError(
                f"The patterns have shape {array.shape}; expected (pattern, y, x).", code="array.shape-mismatch"
            )
        try:
            corners = np.asarray(positions, dtype=np.float64)
            way = None if motion is None else np.asarray(motion, dtype=np.float64)
        except (TypeError, ValueError):
            raise ScanError(
                "The positions (or the motion) are not real numbers.", code="argument.invalid-type"
            ) from None
        if units == "metres":
            if geometry is None:
                raise ScanError(
                    "The positions are in metres; give geometry=Geometry(wavelength=..., distance=..., "
                    "detector_pixel=...) to convert them to pixels.",
                    code="scan.no-geometry",
                    fields=("geometry",),
                )
            way = None if way is None else metres_to_pixels(way, geometry.object_pixel(array.shape[1:]))
            if isinstance(geometry, TiltedGeometry) and corners.ndim == 2 and corners.shape[1] == 3:
                corners = positions_on_sample(geometry.planes((array.shape[1], array.shape[2])), corners)[0]
            else:
                corners = metres_to_pixels(corners, geometry.object_pixel(array.shape[1:]))
        scan = cls(
            frames=frames_of(array),
            positions=corners,
            centred=order == "centred",
            mask=None if mask is None else np.asarray(mask).astype(bool),
            probe=None if probe is None else np.asarray(probe),
            object=None if object is None else np.asarray(object),
            geometry=geometry,
            clip_negative=clip_negative,
            motion=way,
            name=name,
        )
        step = max(1, 2**24 // (array.shape[1] * array.shape[2]))
        empty = True
        for start in range(0, len(scan), step):
            empty = not scan.counts(start, min(start + step, len(scan))).any() and empty
        if empty:
            where = "" if scan.mask is None else " where the mask is True; is it inverted?"
            warnings.warn(f"All counts of the scan ({len(scan)} patterns) are zero{where}", PtynbWarning, stacklevel=2)
        return scan

    def __len__(self) -> int:
        return self.frames.shape[0]

    @property
    def pattern_shape(self) -> tuple[int, int]:
        """Size (y, x) of the patterns and of the probe [pixels]."""
        return self.frames.shape[1:]

    @property
    def is_far_field(self) -> bool:
        """Whether the patterns are in Fourier space; False for near-field scans."""
        return not isinstance(self.geometry, NearField)

    @property
    def pixel_size(self) -> tuple[float, float] | None:
        """Size (y, x) of an object pixel [m]; None without a geometry."""
        return None if self.geometry is None else self.geometry.object_pixel(self.pattern_shape)

    @property
    def spans(self) -> tuple[slice, ...]:
        """The patterns of each scan that this one is made of; one slice unless it is combined."""
        return (slice(0, len(self)),) if self.combination is None else self.combination.spans

    @property
    def probe_scans(self) -> tuple[Scan, ...]:
        """The scans that have a probe each: several if they share an object, or else this one."""
        combination = self.combination
        return (self,) if combination is None or combination.share == "probe" else combination.scans

    @property
    def probe_of_pattern(self) -> NDArray[np.int64] | None:
        """Index (pattern,) in `probe_scans` of the scan whose probe illuminates a pattern; None if there is one."""
        if len(self.probe_scans) == 1:
            return None
        return np.repeat(np.arange(len(self.probe_scans)), [len(scan) for scan in self.probe_scans])

    def counts(self, start: int, stop: int) -> NDArray[Any]:
        """Read patterns with bad pixels set to 0, and check that counts are finite and not negative.

        Parameters
        ----------
        start : int
            Index of the first pattern.
        stop : int
            Index behind the last pattern.

        Returns
        -------
        ndarray
            Patterns (pattern, y, x) [counts].

        Raises
        ------
        ScanError
            If a count is invalid (code "scan.invalid-count"); the message names the first pattern.
        """
        counts = self.frames.read(start, stop)
        if self.mask is not None:
            counts = np.where(self.mask, counts, np.zeros((), counts.dtype))
        if not np.issubdtype(counts.dtype, np.unsignedinteger):
            if np.issubdtype(counts.dtype, np.floating) and not np.isfinite(counts).all():
                pattern, y, x = np.argwhere(~np.isfinite(counts))[0]
                raise ScanError(
                    f"Pattern {start + pattern} has the count {counts[pattern, y, x]} at pixel ({y}, {x}); "
                    "expected finite numbers. Give a mask that is False at bad pixels.",
                    code="scan.invalid-count",
                )
            if self.clip_negative:
                counts = np.maximum(counts, 0)
            elif counts.size and counts.min() < 0:
                pattern, y, x = np.argwhere(counts < 0)[0]
                raise ScanError(
                    f"Pattern {start + pattern} has the count {counts[pattern, y, x]} at pixel ({y}, {x}); "
                    "expected counts of at least 0. Give a mask that is False at bad pixels, or clip_negative=True "
                    "if a background was subtracted.",
                    code="scan.invalid-count",
                    fields=("mask", "clip_negative"),
                )
        return counts

    def margin(self, padding: int) -> int:
        """Return the margin around the windows of an object without a guess, for that of the settings.

        Parameters
        ----------
        padding : int
            Margin of the settings [object pixels].

        Returns
        -------
        int
            Margin [object pixels]; of a scan that is being measured at least an eighth of a window.
        """
        if self.acquisition is None:
            return padding
        return max(padding, math.ceil(ROOM_FOR_POSITIONS * max(self.pattern_shape)))

    def object_frame(
        self, padding: int, window: tuple[int, int] | None = None, shift: tuple[int, int] = (0, 0)
    ) -> ObjectFrame:
        """Return the array that contains all probe windows: that of the object guess, if there is one.

        Parameters
        ----------
        padding : int
            Margin on each side, as for `margin` [object pixels].
        window : (int, int), optional
            Size (y, x) of the probe; by default that of the patterns.
        shift : (int, int), default (0, 0)
            Shift (y, x) of the windows towards smaller indices [object pixels].

        Returns
        -------
        ObjectFrame
            Origin and shape.
        """
        if self.object is not None:
            return ObjectFrame((0, 0), (self.object.shape[-2], self.object.shape[-1]))
        padding = self.margin(padding)
        low = np.rint(self.positions.min(0)).astype(int) - padding - shift
        high = np.rint(self.positions.max(0)).astype(int) + (window or self.pattern_shape) + padding - shift
        return ObjectFrame((int(low[0]), int(low[1])), (int(high[0] - low[0]), int(high[1] - low[1])))

    @functools.cached_property
    def sample_digest(self) -> str:
        """SHA-256 (hexadecimal) of up to eight patterns, evenly spaced from the first to the last, after preparation.

        It differs for scans with different stored patterns or preparation (flips, crops, scaling). Empty for a scan
        that is being measured. Raises an error if the patterns cannot be read.
        """
        if self.acquisition is not None:
            return ""
        digest = hashlib.sha256()
        for index in np.unique(np.linspace(0, len(self) - 1, SAMPLED_PATTERNS).astype(int)).tolist():
            digest.update(np.ascontiguousarray(self.frames.read(index, index + 1), dtype="<f8").tobytes())
        return digest.hexdigest()

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        """Plug-ins that read the file of the scan, or of its parts, or received it."""
        scans = [self] if self.combination is None else [self, *self.combination.scans]
        return (*dict.fromkeys(plugin for one in scans if one.loaded is not None for plugin in one.loaded.plugins),)

    @property
    def metadata_digest(self) -> str:
        """SHA-256 (hexadecimal) of everything but the counts: shape, order, positions, mask, geometry, guesses."""
        facts = {
            "shape": [int(side) for side in self.frames.shape],
            "centred": self.centred,
            "clip_negative": self.clip_negative,
            "geometry": plain_geometry(self.geometry),
        }
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
        # Scans without motion have the digest of earlier versions.
        for name in ("positions", "mask", "probe", "object", *(() if self.motion is None else ("motion",))):
            values: NDArray[Any] | None = getattr(self, name)
            digest.update(name.encode())
            if values is not None:
                little = values.dtype.newbyteorder("<")
                digest.update(f"{little.str}{values.shape}".encode())
                digest.update(np.ascontiguousarray(values, dtype=little).tobytes())
        if self.combination is not None:
            digest.update(self.combination.share.encode())
            for scan in self.combination.scans:
                digest.update(scan.metadata_digest.encode())
        return digest.hexdigest()

    @functools.cached_property
    def preparation_steps(self) -> int:
        """Number of steps that change or select patterns when they are read; each preparation adds one."""
        frames, steps = self.frames, 0
        while (source := getattr(frames, "source", None)) is not None:
            frames, steps = source, steps + 1
        return steps

    def loaded_from(self, path: Path, options: Mapping[str, Any], plugins: tuple[Plugin, ...] = ()) -> Scan:
        """Return the same scan with a record of the file and the options of `ptynb.load`.

        Parameters
        ----------
        path : Path
            The file.
        options : dict
            Options of `ptynb.load`; arrays among them are recorded by name.
        plugins : tuple of Plugin, optional
            Plug-ins that have read the file, or received the scan.

        Returns
        -------
        Scan
            The scan, whose `loaded` is the record.
        """
        status = path.stat() if path.is_file() else None
        arrays = {
            name
            for name in ("positions", "motion", "mask", "probe")
            if not isinstance(options.get(name, ""), str | Path)
        }
        plain = {name: _plain(value) for name, value in options.items() if name not in arrays}
        loaded = Loaded(
            str(path.absolute()),
            None if status is None else status.st_size,
            None if status is None else status.st_mtime,
            plain,
            tuple(sorted(arrays)),
            self.metadata_digest,
            self.preparation_steps,
            plugins,
        )
        return dataclasses.replace(self, loaded=loaded, preparation=())

    def with_frames(self, frames: Frames) -> Scan:
        """Return the scan with other frames and without ground truth.

        Parameters
        ----------
        frames : Frames
            Some of the patterns, or none, at the same indices.

        Returns
        -------
        Scan
            The new scan, with the same `sample_digest`.
        """
        scan = dataclasses.replace(self, frames=frames, ground_truth=None)
        # Those of the whole scan, which cannot be computed from a part.
        vars(scan).update(sample_digest=self.sample_digest, preparation_steps=self.preparation_steps)
        return scan

    def part(self, patterns: NDArray[np.int64]) -> Scan:
        """Return what an engine with these patterns needs; indices are those of the whole scan.

        Parameters
        ----------
        patterns : ndarray of int64
            Indices (pattern,), ascending.

        Returns
        -------
        Scan
            The new scan.
        """
        return self.with_frames(self.frames.part(patterns))

    def with_probe(
        self,
        probe: ArrayLike | None = None,
        *,
        convergence_angle: float | None = None,
        defocus: float = 0.0,
        aberrations: Aberrations | None = None,
    ) -> Scan:
        """Return the scan with an initial guess of the probe: an array, or that of a round aperture and a lens.

        A lens is recorded as the step `preparation.lens_probe`, so that recipes and results have it.

        Parameters
        ----------
        probe : array_like, optional
            Probe (y, x) or (mode, y, x), complex, centred in its window; any scale.
        convergence_angle : float, optional
            Convergence semi-angle of the lens [rad], instead of an array.
        defocus : float, default 0
            Distance from the focus to the sample [m], positive downstream: the aberration C10. It is -Δf for a
            defocus Δf that is positive for underfocus.
        aberrations : mapping, optional
            Aberrations of the lens, {"C10": z, "C12": (magnitude [m], azimuth [rad]), "C30": Cs}, in the axes of the
            detector, as `ptynb.direct` finds them and `ptynb.illumination.electron_probe` takes them.

        Returns
        -------
        Scan
            The new scan.

        Raises
        ------
        InvalidValueError
            If there is not either an array or a convergence angle ("argument.conflict"), or as raised by
            `illumination.electron_probe`.
        ScanError
            If the array is no probe of this scan ("scan.invalid-guess"), the scan has no geometry with a flat detector
            in the far field ("scan.no-geometry"), or it is combined of scans with probes of their own
            ("scan.combined").
        """
        if len(self.probe_scans) > 1:
            raise ScanError(
                f"'{self.name}' is made of {len(self.probe_scans)} scans with probes of their own; give each scan its "
                "probe, then combine them.",
                code="scan.combined",
            )
        if (probe is None) == (convergence_angle is None) or (probe is not None and (defocus or aberrations)):
            raise InvalidValueError(
                "with_probe takes either an array, or convergence_angle= [rad] with defocus= and aberrations=.",
                code="argument.conflict",
                fields=("probe", "convergence_angle"),
            )
        if convergence_angle is None:
            return dataclasses.replace(self, probe=np.asarray(probe))
        if not isinstance(self.geometry, Geometry):
            found = "no geometry" if self.geometry is None else f"a {type(self.geometry).__name__}"
            raise ScanError(
                f"'{self.name}' has {found}, and the probe of a lens needs the wavelength and the angle of a pixel "
                "of a far-field detector that faces the sample: give a Geometry.",
                code="scan.no-geometry",
                fields=("convergence_angle",),
            )
        lens = lens_aberrations(defocus, aberrations)
        pixel = self.geometry.object_pixel(self.pattern_shape)
        field = electron_probe(self.pattern_shape, pixel, self.geometry.wavelength, convergence_angle, lens)
        step = {"convergence_angle": float(convergence_angle)} | ({"aberrations": lens} if lens else {})
        return dataclasses.replace(self, probe=field, preparation=(*self.preparation, {"lens_probe": step}))

    def stop_listening(self) -> Arrivals:
        """End the reception of a scan that `ptynb.listen` has returned; what has come is kept.

        Returns
        -------
        Arrivals
            What has come.

        Raises
        ------
        AcquisitionError
            If the receiver does not end (code "acquisition.failed").
        ScanError
            If the scan is not received ("scan.not-received").
        """
        if not isinstance(self.acquisition, Acquisition):
            raise ScanError(
                f"'{self.name}' is not being received; only a scan that ptynb.listen returned can be stopped.",
                code="scan.not-received",
            )
        return self.acquisition.stop()

    def __repr__(self) -> str:
        pixel = self.pixel_size
        size = "" if pixel is None else f", object pixel {pixel[0]:.3g} x {pixel[1]:.3g} m"
        patterns = f"{len(self)} patterns of {self.pattern_shape[0]} x {self.pattern_shape[1]}, {self.frames.dtype}"
        return f"<Scan {self.name}: {patterns}, {gigabytes(self.frames.nbytes)} in memory{size}>"


def check_scan(scan: object) -> None:
    """Raise InvalidTypeError if this is not a scan."""
    if not isinstance(scan, Scan):
        several = " Several scans make one with Reconstruction(scans, share=...), or preparation.combine."
        raise InvalidTypeError(
            f"The scan is a {type(scan).__name__}; expected one Scan, as ptynb.load, Scan.from_arrays or "
            f"ptynb.simulate return it.{several if isinstance(scan, list | tuple) else ''}",
            code="argument.invalid-type",
        )


def plain_geometry(geometry: AnyGeometry | None) -> dict[str, Any]:
    """Return a geometry as plain values with its "kind"; empty for None."""
    if geometry is None:
        return {}
    fields = {name: _plain(value) for name, value in dataclasses.asdict(geometry).items()}
    return {"kind": type(geometry).__name__, **fields}


def _plain(value: Any) -> Any:
    """Return a value that JSON can represent."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    return value


def part_that_came(scan: Scan, patterns: NDArray[np.int64], positions: NDArray[np.float64]) -> Scan:
    """Return these patterns of a received scan as a scan of their own. positions: of all patterns (pattern, yx)."""
    frames = SelectedFrames.of(scan.frames, patterns)
    return dataclasses.replace(scan, frames=frames, positions=positions[patterns], acquisition=None)


def _check_frames(frames: Frames) -> None:
    if len(frames.shape) != 3 or min(frames.shape) < 1:
        raise ScanError(
            f"The patterns have shape {frames.shape}; expected (pattern, y, x), each at least 1.",
            code="array.shape-mismatch",
        )
    if min(frames.shape[1:]) < 4:
        raise ScanError(
            f"The patterns are {frames.shape[1]} x {frames.shape[2]} pixels; expected at least 4 x 4.",
            code="scan.too-small",
        )
    if not (np.issubdtype(frames.dtype, np.integer) or np.issubdtype(frames.dtype, np.floating)):
        raise ScanError(
            f"The patterns are of type {frames.dtype}; expected real counts (integers or floats).",
            code="argument.invalid-type",
        )


def _check_combination(scan: Scan, combination: CombinedScans) -> None:
    """Raise ScanError if a combined scan was changed after it was combined."""
    one = combination.scans[0]
    positions = [part.positions + offset for part, offset in zip(combination.scans, combination.offsets, strict=True)]
    same = (
        isinstance(scan.frames, StackedFrames | AbsentFrames)
        and np.array_equal(scan.positions, np.concatenate(positions))
        and scan.frames.shape == (len(scan.positions), *one.pattern_shape)
    )
    if not same:
        raise ScanError(
            f"The patterns or positions of '{scan.name}' were changed after {len(combination.scans)} scans were "
            "combined; expected them as they were combined: prepare each scan, then combine them.",
            code="scan.combined",
        )


def _check_mask(mask: NDArray[np.bool_], window: tuple[int, int]) -> None:
    if mask.shape != window:
        raise ScanError(
            f"The mask has shape {mask.shape}; expected that of a pattern, {window}.", code="array.shape-mismatch"
        )
    if not mask.any():
        raise ScanError(
            "The mask is False everywhere; expected True where the detector works. Is it inverted?",
            code="scan.mask-empty",
            fields=("mask",),
        )


def _cause_of_shape(shape: tuple[int, ...], count: int, window: tuple[int, int]) -> str:
    """Return the likely cause of a wrong shape of positions, after a space; empty if it is not known."""
    if shape == (2, count):
        return " They look transposed."
    if shape == (count,):
        return " One axis alone? Both are given as positions=np.stack([y, x], 1)."
    axis = next((axis for axis, side in enumerate(window, 1) if side in shape and count not in shape), None)
    if axis is None:
        return ""
    return (
        f" Patterns are (pattern, y, x); if the axis of length {window[axis - 1]} counts them, move it to the front: "
        f"Scan.from_arrays(np.moveaxis(patterns, {axis}, 0), positions, ...)."
    )


def check_positions(
    positions: NDArray[np.float64],
    count: int,
    window: tuple[int, int],
    guess: NDArray[Any] | None,
    *,
    connected: bool,
) -> None:
    """Raise ScanError for invalid positions. connected: whether the windows have to form one area."""
    if positions.shape != (count, 2):
        raise ScanError(
            f"The positions have shape {positions.shape}; expected ({count}, 2): "
            f"(y, x) for each of the {count} patterns.{_cause_of_shape(positions.shape, count, window)}",
            code="array.shape-mismatch",
        )
    if not np.isfinite(positions).all():
        bad = int(np.argwhere(~np.isfinite(positions))[0, 0])
        raise ScanError(
            f"Position {bad} is {_position_text(positions[bad])}; expected finite numbers.", code="array.not-finite"
        )
    if guess is not None:
        corner = np.rint(positions)
        outside = (corner < 0).any(1) | (corner + window > guess.shape[-2:]).any(1)
        if outside.any():
            bad = int(outside.argmax())
            raise ScanError(
                f"Position {bad} is {_position_text(positions[bad])}: its {window[0]} x {window[1]} window "
                "is not inside the given "
                f"object of {guess.shape[-2]} x {guess.shape[-1]} pixels.",
                code="scan.position-outside",
            )
    far = _disconnected(positions, window) if connected else np.empty(0, np.intp)
    if len(far):
        bad = int(far[0])
        extent = np.ptp(positions, axis=0) + window
        others = f" and {len(far) - 1} more" if len(far) > 1 else ""
        raise ScanError(
            f"Position {bad}{others} at {_position_text(positions[bad])} pixels "
            f"is more than a probe window ({window[0]} x {window[1]}) away from all others, which requires an "
            f"object of {extent[0]:.0f} x {extent[1]:.0f} pixels. Leave such patterns out, or check the units of the "
            "positions.",
            code="scan.position-disconnected",
        )


def _position_text(position: NDArray[np.float64]) -> str:
    return f"({position[0]:.6g}, {position[1]:.6g})"


def _disconnected(positions: NDArray[np.float64], window: tuple[int, int]) -> NDArray[np.intp]:
    """Return the indices of positions that no chain of overlapping windows connects to the largest part.

    Windows are sorted into cells of the window size first, so that the number of pairs is that of occupied cells, not
    of positions. Positions up to two windows apart may count as connected; a wrong one is much farther away.
    """
    cells, cell_of = np.unique(np.floor(positions / window).astype(np.int64), axis=0, return_inverse=True)
    pairs = scipy.spatial.cKDTree(cells).query_pairs(1.5, p=np.inf, output_type="ndarray")
    graph = scipy.sparse.coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(len(cells), len(cells)))
    _, part_of_cell = scipy.sparse.csgraph.connected_components(graph, directed=False)
    part = part_of_cell[cell_of.ravel()]
    return np.flatnonzero(part != np.bincount(part).argmax())
