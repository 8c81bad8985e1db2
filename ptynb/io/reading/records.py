"""What a file says of a scan, what its user adds, and what is missing then.

A reader (one a format) fills in a `FileRecord` and refuses nothing for being incomplete: `assemble` does, once, for all
formats, by name and with the unit. `ptynb info` prints the same record.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import ArrayLike, NDArray

from ptynb.data.electrons import electron_wavelength
from ptynb.data.geometry import wavelength_from_energy
from ptynb.data.patterns import Frames
from ptynb.data.scan import AnyGeometry
from ptynb.exceptions import FileError
from ptynb.text import quoted

NUMBERS = "rotation", "wavelength", "energy", "voltage", "distance"


def _are_numbers(*values: object) -> bool:
    return all(isinstance(value, Real) and not isinstance(value, bool) for value in values)


def pairs(*, raster: Any, **sizes: Any) -> dict[str, Any]:
    """The same words for `Given`, sizes as (y, x): one number stands for both. Raises FileError for anything else."""
    for name, value in sizes.items():
        if value is not None:
            sizes[name] = (value, value) if _are_numbers(value) else _two(name, value, "a number, or two: (y, x)")
    if raster is not None:
        raster = _two("raster", raster, "two whole numbers: (rows, columns)", Integral)
    return {"raster": raster, **sizes}


def _two(name: str, value: Any, expected: str, kind: type = Real) -> tuple[Any, Any]:
    both = tuple(value) if isinstance(value, Sequence | np.ndarray) and len(value) == 2 else ()
    if not both or not _are_numbers(*both) or not all(isinstance(number, kind) for number in both):
        raise FileError(f"{name} is {quoted(value)}; expected {expected}.")
    return both


@dataclass(frozen=True, eq=False, kw_only=True)
class Given:
    """What the user says of a file; it takes the place of what the file says.

    patterns, positions, mask: names of datasets in the file ("entry/data/data"); positions and mask also files or
        arrays: positions (pattern, yx) of the probe on the sample [m], mask (y, x), True where the detector works.
    units: of positions that were given: "metres" or "pixels" (of the object).
    raster, step: (y, x) numbers of positions and steps between them [m], of a scan line by line.
    rotation: of the scan against the detector, from x towards y [rad].
    wavelength [m], or energy of photons [eV], or voltage of electrons [V].
    distance [m] and detector_pixel (y, x) [m], or angular_pixel (y, x): a detector pixel seen from the sample [rad].
    clip_negative: negative counts become 0 (else they are an error).
    links: which other files may be read because the file names them: those in its "folder" (see `LinkPolicy`), or
        "anywhere".
    """

    patterns: str | None = None
    positions: str | Path | ArrayLike | None = None
    mask: str | Path | ArrayLike | None = None
    units: str = "metres"
    raster: tuple[int, int] | None = None
    step: tuple[float, float] | None = None
    rotation: float | None = None
    wavelength: float | None = None
    energy: float | None = None
    voltage: float | None = None
    distance: float | None = None
    detector_pixel: tuple[float, float] | None = None
    angular_pixel: tuple[float, float] | None = None
    clip_negative: bool = False
    links: str = "folder"

    def __post_init__(self) -> None:
        if self.units not in ("metres", "pixels"):
            raise FileError(f"units is {self.units!r}; expected 'metres' or 'pixels'.")
        if self.links not in ("folder", "anywhere"):
            raise FileError(f"links is {self.links!r}; expected 'folder' or 'anywhere'.")
        for name in NUMBERS:
            if name in self.names and not _are_numbers(getattr(self, name)):
                raise FileError(f"{name} is {quoted(getattr(self, name))}; expected a number.")
        units = {"wavelength": "m", "energy": "eV", "voltage": "V"}
        beams = [f"{name}={getattr(self, name)} {unit}" for name, unit in units.items() if name in self.names]
        if len(beams) > 1:
            raise FileError(f"{' and '.join(beams)} were given; they say the same thing, so give one of them.")
        if self.angular_pixel is not None and (self.distance is not None or self.detector_pixel is not None):
            raise FileError(
                "angular_pixel was given beside distance or detector_pixel; give the angle, or both lengths."
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Which of them were given."""
        return tuple(f.name for f in dataclasses.fields(self) if getattr(self, f.name) is not f.default)

    @property
    def beam(self) -> float | None:
        """Wavelength [m], whichever way it was given. Raises ValueError for one that can't be."""
        if self.energy is not None:
            return wavelength_from_energy(self.energy)
        return self.wavelength if self.voltage is None else electron_wavelength(self.voltage)


@dataclass(frozen=True, eq=False, kw_only=True)
class FileRecord:
    """What a file says of a scan. None: nothing.

    format: its name for a reader ("CXI").
    frames: the patterns (pattern, y, x); centred: whether the zero frequency is at index n // 2.
    positions: (pattern, yx) float64 of the PROBE on the sample, along the patterns' rows and columns [m];
        pixel_positions: the same, where the file counts in object pixels.
    raster, step, rotation: as in `Given`; used where there are no positions.
    wavelength [m], distance [m], detector_pixel (y, x) [m], angular_pixel (y, x) [rad]: of a far-field measurement.
    geometry: in the place of these, where the file says more (near field, tilted planes).
    mask: (y, x), True where the detector works. probe (mode, y, x), object (y, x) or (slice, y, x): first guesses.
    places: where in the file each of them was found, by name. notes: sentences for the user.
    named: an array of the file by its name, where the file is not HDF5; None for a name that it lacks.
    """

    format: str
    frames: Frames | None = None
    centred: bool = True
    positions: NDArray[np.float64] | None = None
    pixel_positions: NDArray[np.float64] | None = None
    raster: tuple[int, int] | None = None
    step: tuple[float, float] | None = None
    rotation: float | None = None
    wavelength: float | None = None
    distance: float | None = None
    detector_pixel: tuple[float, float] | None = None
    angular_pixel: tuple[float, float] | None = None
    geometry: AnyGeometry | None = None
    mask: NDArray[np.bool_] | None = None
    probe: NDArray[Any] | None = None
    object: NDArray[Any] | None = None
    places: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    named: Callable[[str], NDArray[Any] | None] | None = None


@dataclass(frozen=True, eq=False)
class Head:
    """What a format is recognised by: the path, the first bytes (none of a folder), and the file where it is HDF5."""

    path: Path
    start: bytes
    file: h5py.File | None


@dataclass(frozen=True)
class Format:
    """One kind of file.

    name: for a reader. recognises: whether a file is of this kind, by its content.
    read: what it says of a scan; patterns stay in the file. Raises FileError for one that is broken.
    """

    name: str
    recognises: Callable[[Head], bool]
    read: Callable[[Path, Given], FileRecord]


@dataclass(frozen=True)
class Missing:
    """Something that a file lacks: its name for a reader, and the words that give it, with the unit."""

    name: str
    give: str


def missing(found: FileRecord, given: Given) -> tuple[Missing, ...]:
    """What neither the file nor its user says, and without which there is no scan."""
    lacks: list[Missing] = []
    if found.frames is None:
        lacks.append(Missing("the patterns", "patterns='entry/data/data' (the name of their dataset)"))
    in_pixels = given.units == "pixels" if given.positions is not None else found.pixel_positions is not None
    if given.positions is None and found.positions is None and found.pixel_positions is None:
        step = "step=(20e-9, 20e-9) (y, x) [m]"
        if given.raster is None and found.raster is None:
            lacks.append(
                Missing("the positions", f"positions=array (pattern, yx) [m], or raster=(rows, columns) and {step}")
            )
        elif given.step is None and found.step is None:
            lacks.append(Missing("the scan's step", step))
    if found.geometry is not None or in_pixels:
        return tuple(lacks)
    if given.beam is None and found.wavelength is None:
        lacks.append(
            Missing("the wavelength", "wavelength=1.24e-10 [m], energy=10e3 (photons, [eV]) or voltage=300e3 [V]")
        )
    if given.angular_pixel is None and (found.angular_pixel is None or given.detector_pixel or given.distance):
        if given.distance is None and found.distance is None:
            lacks.append(Missing("the distance to the detector", "distance=2.0 [m]"))
        if given.detector_pixel is None and found.detector_pixel is None:
            lacks.append(
                Missing("the detector's pixel size", "detector_pixel=(55e-6, 55e-6) (y, x) [m], or angular_pixel [rad]")
            )
    return tuple(lacks)
