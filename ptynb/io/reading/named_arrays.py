"""Scans stored as named arrays, as in .npz, .mat and zarr.

Names are compared without case and without preceding group names. Lengths are metres, energies eV, angles
radians, unless a name ends with its unit ("wavelength_nm", "energy_keV", "step_A"); voltages up to 3000 are kV.

    patterns, diffraction, dp, cbed, data, ...      (pattern, y, x) or (row, column, y, x); or the only such array
    positions, probe_positions, scan, ...           (pattern, yx) of the probe on the sample [m]
    positions_px, pixel_positions                   the same [object pixels]
    mask                                            (y, x), not 0 where the detector works
    probe                                           first guess (y, x) or (mode, y, x)
    wavelength, energy, voltage, distance, detector_pixel, angular_pixel, step, raster, rotation: as in `load`
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.data.patterns import Frames
from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import values_text
from ptynb.io.reading.hdf5_reading import factor
from ptynb.io.reading.microscope_scales import volts
from ptynb.io.reading.reader_interface import FileRecord
from ptynb.io.reading.safe_reading import check_small, size
from ptynb.settings.load_options import LoadOptions

Raster = tuple[int, int]

PATTERNS = (
    "patterns", "diffraction_patterns", "diffraction", "dp", "dps", "cbed", "datacube", "frames", "intensities",
    "diffraction_intensities", "intensity", "measurements", "data", "images",
)  # fmt: skip
SURE = 6
"""Number of the first names that are used for patterns only."""
POSITIONS = ("positions", "probe_positions", "scan_positions", "positions_real", "pos", "scan")
PIXEL_POSITIONS = ("positions_px", "positions_pixels", "pixel_positions")
MASKS = ("mask", "detector_mask", "valid_mask")
VOLTAGES = ("voltage", "acceleration_voltage", "accelerating_voltage", "high_voltage", "voltage_kv", "voltage_v")
PROBES = ("probe", "initial_probe", "probe_guess")
METRES_AT_MOST = 0.05
"""Maximum extent of a scan [m]; positions that exceed it must be in other units."""


@dataclass(frozen=True)
class StoredArray:
    """An array in a file, not read yet.

    read: returns the whole array. frames: returns it as patterns, read lazily if possible, and the raster.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[], NDArray[Any]]
    frames: Callable[..., tuple[Frames, Raster | None]]


def found_in(
    form: str, arrays: Mapping[str, StoredArray], options: LoadOptions, path: Path, notes: tuple[str, ...] = ()
) -> FileRecord:
    """Return the record of a file with these arrays. Raise FileError if values are implausible for their names."""
    return _Reading(form, arrays, options, path, list(notes)).found()


@dataclass
class _Reading:
    form: str
    arrays: Mapping[str, StoredArray]
    options: LoadOptions
    path: Path
    notes: list[str]

    def found(self) -> FileRecord:
        self.places: dict[str, str] = {}
        name = self._patterns()
        frames, raster = (None, None) if name is None else self.arrays[name].frames()
        beam: dict[str, Any] = {} if self.options.beam is not None else self._beam()
        positions, pixel_positions = self._positions()
        window = None if frames is None else frames.shape[1:]
        return FileRecord(
            format=self.form,
            frames=frames,
            centred=self._centred(),
            positions=positions,
            pixel_positions=pixel_positions,
            raster=raster or self._raster(),
            step=self._pair("step", ("step", "scan_step", "scan_step_size"), "length"),
            rotation=self._number("rotation", ("rotation", "scan_rotation"), "angle"),
            **beam,
            distance=self._number("distance", ("distance", "detector_distance"), "length"),
            detector_pixel=self._pair("detector_pixel", ("detector_pixel", "detector_pixel_size"), "length"),
            angular_pixel=self._pair("angular_pixel", ("angular_pixel",), "angle"),
            mask=self._mask(),
            probe=None if window is None else self._probe(window),
            places=self.places,
            notes=tuple(self.notes),
            named=self._named,
        )

    def _named(self, name: str) -> NDArray[Any] | None:
        return self._read(name) if name in self.arrays else None

    def _read(self, name: str) -> NDArray[Any]:
        stored = self.arrays[name]
        check_small(size(stored.shape, stored.dtype), name, self.path)
        return stored.read()

    def _patterns(self) -> str | None:
        stacks = [
            name
            for name, stored in self.arrays.items()
            if len(stored.shape) in (3, 4) and stored.dtype.kind in "iufcb" and min(stored.shape) > 0
        ]
        if self.options.patterns is not None:
            if self.options.patterns not in self.arrays:
                raise FileError(
                    f"{self.path} has no array {self.options.patterns!r}; it has {self._names(stacks or self.arrays)}: "
                    "name one with patterns=...",
                    code="file.incomplete",
                    fields=("patterns",),
                )
            return self._record_place("patterns", self.options.patterns)
        for alias in PATTERNS:
            # An array with a name of patterns but other axes raises an error when its frames are created.
            found = next((name for name in self.arrays if _last(name) == alias), None)
            if found is not None and (found in stacks or alias in PATTERNS[:SURE]):
                return self._record_place("patterns", found)
        others = {alias for group in (POSITIONS, PIXEL_POSITIONS, MASKS, PROBES, ("object",)) for alias in group}
        left = [name for name in stacks if _last(name) not in others and self.arrays[name].dtype.kind != "c"]
        if not left:  # its frames raise the error, with its shape
            left = [
                name for name, stored in self.arrays.items() if len(stored.shape) > 4 and stored.dtype.kind in "iuf"
            ]
        if len(left) > 1:
            raise FileError(
                f"{self.path} has {self._names(left)}; name the patterns: patterns={left[0]!r}.",
                code="file.several-choices",
                fields=("patterns",),
                proposals={"patterns": left[0]},
            )
        return self._record_place("patterns", left[0]) if left else None

    def _names(self, names: Mapping[str, StoredArray] | list[str]) -> str:
        shown = [f"{name} {self.arrays[name].shape}" for name in list(names)[:8]]
        return ", ".join(shown) + (", ..." if len(names) > 8 else "") if shown else "no arrays"

    def _record_place(self, what: str, name: str) -> str:
        self.places[what] = name
        return name

    def _first(self, aliases: tuple[str, ...]) -> str | None:
        return next((name for alias in aliases for name in self.arrays if _last(name) == alias), None)

    def _positions(self) -> tuple[NDArray[np.float64] | None, NDArray[np.float64] | None]:
        """Return (positions [m], positions [object pixels]); at most one of them is not None."""
        if self.options.positions is not None or self.options.raster is not None:
            return None, None
        name = self._first(PIXEL_POSITIONS)
        if name is not None:
            return None, self._places(self._record_place("positions", name))
        name = self._first(POSITIONS)
        if name is None:
            return None, None
        positions = self._places(self._record_place("positions", name))
        reach = float(np.ptp(positions, axis=0).max()) if positions.size else 0.0
        if self.options.units == "pixels":
            return None, positions
        if not reach <= METRES_AT_MOST:
            raise FileError(
                f"{self.path} has positions in {name} with an extent of {reach:.4g}, which can't be metres; give "
                f"units='pixels' if they are object pixels, or positions=array [m].",
                code="scan.implausible-metadata",
                fields=("units", "positions"),
                proposals={"units": "pixels"},
            )
        return positions, None

    def _places(self, name: str) -> NDArray[np.float64]:
        values = self._read(name)
        if values.dtype.kind not in "iuf":
            raise FileError(
                f"{self.path} has positions of type {values.dtype} in {name}; expected real numbers.",
                code="file.unexpected-content",
            )
        while values.ndim > 2 and values.shape[0] == 1:
            values = values[0]
        if values.ndim != 2:
            raise FileError(
                f"{self.path} has positions of shape {values.shape} in {name}; expected (pattern, yx).",
                code="file.unexpected-content",
            )
        bad = np.flatnonzero(~np.isfinite(values).all(1))
        if len(bad):
            raise FileError(
                f"{self.path} has position {bad[0]} {values_text(values[bad[0]])} in {name}; expected finite numbers.",
                code="file.unexpected-content",
            )
        return values.astype(np.float64)

    def _mask(self) -> NDArray[np.bool_] | None:
        name = self._first(MASKS)
        if name is None or self.options.mask is not None:
            return None
        values = self._read(self._record_place("mask", name))
        if values.dtype.kind not in "iufb":
            raise FileError(
                f"{self.path} has a mask of type {values.dtype} in {name}; expected True where the detector works.",
                code="file.unexpected-content",
            )
        while values.ndim > 2 and values.shape[0] == 1:
            values = values[0]
        return values != 0

    def _probe(self, window: tuple[int, int]) -> NDArray[Any] | None:
        name = self._first(PROBES)
        if name is None:
            return None
        shape = self.arrays[name].shape
        if shape[-2:] != window or self.arrays[name].dtype.kind not in "fc" or math.prod(shape[:-3]) != 1:
            self.notes.append(
                f"{name} of shape {shape} is ignored; expected (mode, y, x) with the shape of the patterns."
            )
            return None
        return self._read(self._record_place("probe", name)).reshape(-1, *window).astype(np.complex64)

    def _centred(self) -> bool:
        name = self._first(("centred",))
        return name is None or bool(self._flat(name, 1)[0])

    def _raster(self) -> Raster | None:
        name = self._first(("raster", "scan_shape"))
        if name is None:
            return None
        rows, columns = self._flat(self._record_place("raster", name), 2)
        if not all(number == int(number) and 1 <= number < 2**31 for number in (rows, columns)):
            raise FileError(
                f"{self.path} has the raster {rows:g} x {columns:g} in {name}; expected (rows, columns).",
                code="file.unexpected-content",
            )
        return int(rows), int(columns)

    def _beam(self) -> dict[str, Any]:
        voltage = self._first(VOLTAGES)
        if voltage is not None:
            voltage = self._record_place("voltage", voltage)
        return {
            "wavelength": self._number("wavelength", ("wavelength", "lambda"), "length"),
            "energy": self._number("energy", ("energy", "photon_energy"), "energy"),
            "voltage": None if voltage is None else volts(self._flat(voltage, 1)[0], f"{self.path}: {voltage}"),
        }

    def _number(self, what: str, aliases: tuple[str, ...], kind: str) -> float | None:
        values = self._values(what, aliases, kind, 1)
        return None if values is None else values[0]

    def _pair(self, what: str, aliases: tuple[str, ...], kind: str) -> tuple[float, float] | None:
        values = self._values(what, aliases, kind, 2)
        return None if values is None else (values[0], values[1])

    def _values(self, what: str, aliases: tuple[str, ...], kind: str, count: int) -> list[float] | None:
        """Return `count` numbers in SI units; None if the option is given. kind: of the unit, as of `factor`."""
        if what in self.options.names:
            return None
        for name in self.arrays:
            last = _last(name)
            for alias in aliases:
                if last != alias and not last.startswith(f"{alias}_"):
                    continue
                scale = 1.0 if last == alias else factor(last[len(alias) + 1 :], kind)
                if scale is not None:
                    return [number * scale for number in self._flat(self._record_place(what, name), count)]
        return None

    def _flat(self, name: str, count: int) -> list[float]:
        values = np.asarray(self._read(name)).ravel()
        if values.dtype.kind not in "iufb" or values.size not in (1, count):
            raise FileError(
                f"{self.path} has {name} of type {values.dtype} and shape {self.arrays[name].shape}; expected "
                f"{'a number' if count == 1 else 'two numbers (y, x)'}.",
                code="file.unexpected-content",
            )
        numbers = [float(number) for number in values]
        return numbers * count if len(numbers) == 1 else numbers


def _last(name: str) -> str:
    return name.rsplit("/", 1)[-1].lower()
