"""Ptychographic reconstructions saved by py4DSTEM (EMD 1.0, version 0.14; https://github.com/py4dstem/py4DSTEM).

    <root>/<name>/_object_emd/data                  complex, or a potential [rad]: (y, x) or (slice, y, x)
    <root>/<name>/_probe_emd/data                   complex (y, x) or (mode, y, x), its centre at index (0, 0)
    <root>/<name>/metadatabundle/preprocess_metadata/
        positions_px                                (pattern, yx) of the windows' centres [object pixels]
        sampling                                    (yx) [Å];   data_transpose: whether patterns were transposed
    .../instantiation_metadata/object_type, slice_thicknesses [Å]

Axes called x and y there are rows and columns here. Windows begin at the centre minus n // 2; the far field is F[P·O].
Patterns are moved to their common centre of mass and divided by their mean first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import has, values_text
from ptynb.io.initial_guess.imported_guess import Start
from ptynb.io.initial_guess.result_arrays import array, as_complex, as_places, flag

ANGSTROM = 1e-10
OBJECT, PROBE = "_object_emd/data", "_probe_emd/data"
PREPROCESS, INSTANCE = "metadatabundle/preprocess_metadata", "metadatabundle/instantiation_metadata"


def recognises(file: h5py.File) -> bool:
    """Whether py4DSTEM wrote this file, with a ptychographic reconstruction in it."""
    return bool(_found(file))


def read(file: h5py.File, path: Path) -> Start:
    """What py4DSTEM found. Raises FileError."""
    names = _found(file)
    if len(names) != 1:
        raise FileError(f"{path} has {len(names)} reconstructions ({', '.join(names)}); expected a file with one.")
    place = names[0]
    object = array(file, f"{place}/{OBJECT}", path, (2, 3))
    if object.dtype.kind != "c":
        object = np.exp(1j * object.astype(np.float64))
    probe = array(file, f"{place}/{PROBE}", path, (2, 3))
    probe = np.fft.fftshift(probe if probe.ndim == 3 else probe[None], axes=(-2, -1))
    centres = as_places(array(file, f"{place}/{PREPROCESS}/positions_px", path, (2,)), "positions_px", path)
    positions = centres - np.array(probe.shape[-2:]) // 2
    pixel = _sampling(file, f"{place}/{PREPROCESS}/sampling", path)
    if flag(file, f"{place}/{PREPROCESS}/data_transpose", path):
        object, probe = np.swapaxes(object, -1, -2), np.swapaxes(probe, -1, -2)
        positions, pixel = positions[:, ::-1].copy(), pixel and pixel[::-1]
    return Start(
        package="py4DSTEM",
        path=path,
        object=as_complex(object, "the object", path),
        probe=as_complex(probe, "the probe", path),
        positions=positions,
        pixel_size=pixel,
        thickness=_thickness(file, f"{place}/{INSTANCE}/slice_thicknesses", path) if object.ndim == 3 else None,
    )


def _found(file: h5py.File) -> list[str]:
    """Groups two levels down (root, then name) that hold an object, a probe and how they were made."""
    names = []
    for root in list(file):
        group = file.get(root, getlink=True)
        inner = file.get(root) if isinstance(group, h5py.HardLink) else None
        if isinstance(inner, h5py.Group):
            names += [f"{root}/{name}" for name in inner if _is_one(inner, name)]
    return names


def _is_one(group: h5py.Group, name: str) -> bool:
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        return False
    inside = group.get(name)
    return isinstance(inside, h5py.Group) and has(inside, OBJECT, PROBE, PREPROCESS)


def _sampling(file: h5py.File, name: str, path: Path) -> tuple[float, float] | None:
    if not has(file, name):
        return None
    values = _numbers(file, name, path)
    if len(values) != 2:
        raise FileError(f"{path} has a sampling {values_text(values)}; expected two numbers (y, x) [Å].")
    return float(values[0]) * ANGSTROM, float(values[1]) * ANGSTROM


def _thickness(file: h5py.File, name: str, path: Path) -> float | None:
    if not has(file, name):
        return None
    values = _numbers(file, name, path)
    if len(values) == 0 or not np.allclose(values, values[0]):
        raise FileError(f"{path} has slices of unequal thickness; expected equal ones, which ptynb's are.")
    return float(values[0]) * ANGSTROM


def _numbers(file: h5py.File, name: str, path: Path) -> NDArray[Any]:
    values = array(file, name, path, (0, 1))
    if values.dtype.kind == "c" or not np.isfinite(values).all():
        raise FileError(f"{path} has {name} {values_text(values)}; expected finite real numbers.")
    return values.astype(np.float64).reshape(-1)
