"""CXI files (Coherent X-ray Imaging data bank, version 1.6; https://www.cxidb.org/cxi.html), read the way CDTools does.

    entry_1/instrument_1/source_1/      wavelength [m], or energy [J]
    entry_1/instrument_1/detector_1/    distance [m] (or corner_position), basis_vectors (xyz, row/column) [m]
                                        or x_pixel_size, y_pixel_size; mask (0 is good); data
    entry_1/data_1/data                 (pattern, y, x) counts, zero frequency in the centre
    entry_1/data_1/translation          (pattern, xyz) [m], of the SAMPLE: the probe moves the other way
                                        (also in sample_1/geometry_1 or instrument_1/detector_1)

The object's pixel axes are those of the detector: its rows and columns, at pitch λ z / (n p).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ptynb.frames import HDF5Frames
from ptynb.geometry import ELECTRON_VOLT, wavelength_from_energy
from ptynb.io.found import Format, Found, Given, Head
from ptynb.io.hdf5 import FileError, open_for_reading

SOURCE = "entry_1/instrument_1/source_1"
DETECTOR = "entry_1/instrument_1/detector_1"
DATA = ("entry_1/data_1/data", f"{DETECTOR}/data")
TRANSLATIONS = (
    "entry_1/data_1/translation",
    "entry_1/sample_1/geometry_1/translation",
    f"{DETECTOR}/translation",
)
SIGNAL_ABOVE_BACKGROUND = 0x00001000
"""The one bit of a CXI mask that marks a good pixel."""
UPRIGHT = np.array([[0.0, -1.0], [-1.0, 0.0], [0.0, 0.0]])
"""Directions (xyz, row/column) of a detector that faces the beam: rows run down (-y), columns towards -x."""


def recognises(head: Head) -> bool:
    """Whether this looks like a CXI file with patterns."""
    return head.file is not None and ("cxi_version" in head.file or any(name in head.file for name in DATA))


def read(path: Path, given: Given) -> Found:
    """What a CXI file says; a pixel size that was given replaces its basis vectors, which positions depend on."""
    with open_for_reading(path) as file:
        frames = _frames(file, path)
        basis = _basis(file, path, given.detector_pixel)
        translations = _translations(file, path)
        return Found(
            format=FORMAT.name,
            frames=frames,
            positions=None if translations is None else _positions(translations, UPRIGHT if basis is None else basis),
            wavelength=_wavelength(file),
            distance=_distance(file, basis),
            detector_pixel=None if basis is None else _lengths(basis),
            mask=_mask(file),
        )


FORMAT = Format("CXI", recognises, read)


def _first(file: h5py.File, names: tuple[str, ...]) -> h5py.Dataset | None:
    for name in names:
        found = file.get(name)
        if isinstance(found, h5py.Dataset):
            return found
    return None


def _frames(file: h5py.File, path: Path) -> HDF5Frames:
    data = _first(file, DATA)
    if data is None:
        raise FileError(f"{path} has no patterns; expected them in {' or '.join(DATA)}.")
    if data.ndim != 3:
        raise FileError(f"{path} has patterns of shape {data.shape}; expected (pattern, y, x).")
    return HDF5Frames.of(data)


def _number(file: h5py.File, name: str) -> float | None:
    found = file.get(name)
    if not isinstance(found, h5py.Dataset) or found.size != 1:
        return None
    value = np.asarray(found[()]).reshape(-1)[0]
    return float(value) if np.issubdtype(np.asarray(value).dtype, np.number) else None


def _wavelength(file: h5py.File) -> float | None:
    wavelength = _number(file, f"{SOURCE}/wavelength")
    if wavelength is not None:
        return wavelength
    energy = _number(file, f"{SOURCE}/energy")
    return None if energy is None or energy <= 0 else wavelength_from_energy(energy / ELECTRON_VOLT)


def _basis(file: h5py.File, path: Path, detector_pixel: tuple[float, float] | None) -> NDArray[np.float64] | None:
    """(xyz, row/column) [m]: the step from one detector row to the next, and from one column to the next."""
    if detector_pixel is None:
        stored = file.get(f"{DETECTOR}/basis_vectors")
        if isinstance(stored, h5py.Dataset):
            basis = np.asarray(stored[()], dtype=np.float64)
            basis = basis.T if basis.shape == (2, 3) else basis
            if basis.shape != (3, 2) or not np.isfinite(basis).all() or np.linalg.matrix_rank(basis) < 2:
                raise FileError(
                    f"{path} has basis vectors {basis.tolist()}; "
                    "expected two that are not parallel, as (3, 2) or (2, 3)."
                )
            return basis
        sizes = [_number(file, f"{DETECTOR}/{axis}_pixel_size") for axis in ("y", "x")]
        known = [size for size in sizes if size is not None]
        if not known:
            return None
        detector_pixel = (known[0], known[-1])
    return UPRIGHT * np.asarray(detector_pixel)


def _distance(file: h5py.File, basis: NDArray[np.float64] | None) -> float | None:
    distance = _number(file, f"{DETECTOR}/distance")
    corner = file.get(f"{DETECTOR}/corner_position")
    if distance is not None or basis is None or not isinstance(corner, h5py.Dataset) or corner.size != 3:
        return distance
    normal = np.cross(basis[:, 0], basis[:, 1])
    return float(abs(np.dot(corner[()].ravel(), normal / np.linalg.norm(normal))))


def _translations(file: h5py.File, path: Path) -> NDArray[np.float64] | None:
    found = _first(file, TRANSLATIONS)
    if found is None:
        return None
    if not np.issubdtype(found.dtype, np.number):
        raise FileError(f"{path} has translations of type {found.dtype}; expected numbers [m].")
    translations = np.asarray(found[()], dtype=np.float64)
    if translations.ndim != 2 or translations.shape[1] not in (2, 3):
        raise FileError(f"{path} has translations of shape {translations.shape}; expected (pattern, 3): x, y, z [m].")
    if translations.shape[1] == 2:
        translations = np.column_stack([translations, np.zeros(len(translations))])
    return translations


def _positions(translations: NDArray[np.float64], basis: NDArray[np.float64]) -> NDArray[np.float64]:
    """(pattern, yx) [m]: the probe's movement along the detector's rows and columns."""
    return -translations @ np.linalg.pinv(basis / np.linalg.norm(basis, axis=0)).T


def _lengths(basis: NDArray[np.float64]) -> tuple[float, float]:
    height, width = np.linalg.norm(basis, axis=0)
    return float(height), float(width)


def _mask(file: h5py.File) -> NDArray[np.bool_] | None:
    stored = file.get(f"{DETECTOR}/mask")
    if not isinstance(stored, h5py.Dataset):
        return None
    bits: NDArray[Any] = stored[()].astype(np.uint32)
    return (bits == 0) | (bits == SIGNAL_ABOVE_BACKGROUND)
