"""Input and output of the readers of formats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ptynb.data.patterns import Frames
from ptynb.data.scan import AnyGeometry
from ptynb.plugins import Plugin
from ptynb.settings.load_options import LoadOptions


@dataclass(frozen=True)
class Missing:
    """Metadata that a file lacks: name, how to give it, with units, and the options of `ptynb.load` that supply it."""

    name: str
    give: str
    options: tuple[str, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class FileRecord:
    """Content of a file with a scan; missing values are None.

    format: name of the format ("CXI").
    frames: patterns (pattern, y, x); centred: whether the zero frequency is at index n // 2.
    positions: (pattern, yx) float64 of the PROBE on the sample, along the patterns' rows and columns [m];
        pixel_positions: the same in object pixels.
    points: (pattern, yx) of a scan that is no raster [steps], instead of a raster.
    raster, step, rotation: as in `LoadOptions`; used if there are no positions.
    wavelength [m], energy [eV] of photons or electrons, voltage [V]: as stated; `settled` makes the wavelength of them.
    detector: its description. beam_question: what has to be asked about the beam.
    distance [m], detector_pixel (y, x) [m], angular_pixel (y, x) [rad]: of the measurement.
    focus_to_sample [m]: in the near field, if the file contains it.
    near_field: what in the file states that the patterns are of the near field ("info/propagation"); empty: nothing.
    geometry: replaces these for tilted planes.
    mask: (y, x), True where the detector works. probe (mode, y, x), object (y, x) or (slice, y, x): initial guesses.
    places: path in the file of each value, by name. notes: remarks for the user.
    named: function that returns an array by its name, if the file is not HDF5; None for an unknown name.
    plugin: that has read the file; set by `load`.
    """

    format: str
    frames: Frames | None = None
    centred: bool = True
    positions: NDArray[np.float64] | None = None
    pixel_positions: NDArray[np.float64] | None = None
    points: NDArray[np.float64] | None = None
    raster: tuple[int, int] | None = None
    step: tuple[float, float] | None = None
    rotation: float | None = None
    wavelength: float | None = None
    energy: float | None = None
    voltage: float | None = None
    detector: str = ""
    beam_question: Missing | None = None
    distance: float | None = None
    detector_pixel: tuple[float, float] | None = None
    angular_pixel: tuple[float, float] | None = None
    focus_to_sample: float | None = None
    near_field: str = ""
    geometry: AnyGeometry | None = None
    mask: NDArray[np.bool_] | None = None
    probe: NDArray[Any] | None = None
    object: NDArray[Any] | None = None
    places: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    named: Callable[[str], NDArray[Any] | None] | None = None
    plugin: Plugin | None = None


@dataclass(frozen=True, eq=False)
class Head:
    """Input for recognising a format: path, first bytes (none of a folder), and the open file if it is HDF5."""

    path: Path
    start: bytes
    file: h5py.File | None


@dataclass(frozen=True)
class Format:
    """A file format.

    name: for messages. recognises: whether a file is of this format, by its content.
    read: returns what the file contains; patterns stay in the file. Raise FileError for damaged files.
    suffixes: usual ends of names, by which lists of files are filtered.
    """

    name: str
    recognises: Callable[[Head], bool]
    read: Callable[[Path, LoadOptions], FileRecord]
    suffixes: tuple[str, ...]
