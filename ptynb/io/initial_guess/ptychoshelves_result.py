"""Results of PtychoShelves and fold_slice (.mat; https://github.com/yijiang1/fold_slice, engines GPU and GPU_MS).

Niter*.mat (version 7.3) of the GPU engines, *_recons.mat (version 5) of all engines; in MATLAB's order of axes:

    object      (y, x), (y, x, slice) or (y, x, 1, slice)
    probe       (y, x), (y, x, mode) or (y, x, mode, way): the first way is the constant part of a variable probe
    outputs.probe_positions     (pattern, xy) [object pixels], from the object's centre (Niter*.mat)
    p.positions                 (pattern, yx) [object pixels], of windows' corners (*_recons.mat)
    p.dx_spec   (yx) object pixel: m, or Å where electrons are reconstructed
    p.multi_slice_param.z_distance, p.delta_z   between slices, in the same unit

The GPU engines' window begins, counted from 0, at round(position + ceil(object/2 - probe/2)) - 1. What they hand back
as p.positions (`save_to_p`) counts from another corner than the CPU engines' own, whose windows begin at p.positions:
by one pixel, and with an odd difference of sizes by another. The far field is F[P·O].
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ptynb.exceptions import FileError
from ptynb.io.formats.mat5 import STRUCT, variables
from ptynb.io.hdf5_file import has
from ptynb.io.initial_guess.imported_guess import Start
from ptynb.io.initial_guess.result_arrays import array, as_complex, as_numbers, as_places

Array = NDArray[Any]
ANGSTROM = 1e-10
HEADER = b"MATLAB 5.0 MAT-file"
"""How version 5 begins, and 6 and 7."""
GPU_ONLY = "p.probe_fourier_shift"
"""What only the GPU engines hand back, be it empty."""
LARGEST_PIXEL = 1e-4
"""[m] No object pixel is larger; numbers that are, are in Å."""


def recognises(file: h5py.File) -> bool:
    """Whether this is version 7.3 of such a file."""
    return has(file, "object", "probe") and (has(file, "outputs") or has(file, "p"))


def read(file: h5py.File, path: Path) -> Start:
    """What the engine found, from version 7.3, where HDF5 has MATLAB's axes the other way round. Raises FileError."""

    def value(name: str) -> Array | None:
        place = name.replace(".", "/")
        if not has(file, place):
            return None
        return array(file, place, path, tuple(range(6))).T

    return _start(value, path, gpu=True)


def read_version_5(path: Path) -> Start:
    """The same from version 5. Raises FileError."""
    found: dict[str, Array] = {}
    for variable in variables(path):
        if variable.name in ("object", "probe") and variable.numbers:
            found[variable.name] = variable.values()
        elif variable.name in ("outputs", "p") and variable.kind == STRUCT:
            found.update((name.replace("/", "."), values) for name, values in variable.fields())
    filled = {name: as_numbers(values, name, path) for name, values in found.items() if values.size}
    return _start(filled.get, path, gpu=GPU_ONLY in found)


def _start(value: Callable[[str], Array | None], path: Path, gpu: bool) -> Start:
    found = {name: value(name) for name in ("object", "probe")}
    object, probe = found["object"], found["probe"]
    if object is None or probe is None:
        raise FileError(f"{path} has no object or no probe; expected both, as PtychoShelves saves them.")
    remarks = []
    if probe.ndim == 4:
        if probe.shape[3] > 1:
            remarks.append("The probe's constant part was taken; how it changed between patterns was left out.")
        probe = probe[..., 0]
    if probe.ndim not in (2, 3):
        raise FileError(f"{path} has a probe of shape {probe.shape}; expected (y, x, mode).")
    probe = probe[..., None] if probe.ndim == 2 else probe
    if object.ndim == 4 and object.shape[2] == 1:
        object = object[:, :, 0]
    if object.ndim not in (2, 3):
        raise FileError(f"{path} has an object of shape {object.shape}; expected (y, x) or (y, x, slice).")
    pixel, unit = _pixel(value("p.dx_spec"), path)
    if object.ndim == 3:
        object = object[..., 0] if object.shape[2] == 1 else object.transpose(2, 0, 1)
    positions, doubt = _positions(value, object.shape[-2:], probe.shape[:2], path, gpu)
    remarks += [doubt] if doubt else []
    return Start(
        package="PtychoShelves",
        path=path,
        object=as_complex(object, "the object", path),
        probe=as_complex(probe.transpose(2, 0, 1), "the probe", path),
        positions=positions,
        pixel_size=pixel,
        thickness=_thickness(value, unit) if object.ndim == 3 else None,
        notes=tuple(remarks),
    )


def _positions(
    value: Callable[[str], Array | None], object: tuple[int, ...], probe: tuple[int, ...], path: Path, gpu: bool
) -> tuple[NDArray[np.float64] | None, str]:
    difference = np.array(object) - np.array(probe)
    centred = value("outputs.probe_positions")
    if centred is not None:
        centred = centred[..., 0] if centred.ndim == 3 else centred  # of a fly scan's first mode
        return as_places(centred, "outputs.probe_positions", path)[:, ::-1] + np.ceil(difference / 2) - 1, ""
    corners = value("p.positions")
    if corners is None:
        return None, ""
    places = as_places(corners, "p.positions", path)
    if not gpu:
        return places, ""
    doubt = "The engine's corner of the windows is known to a pixel only; let the positions move."
    return places - 1 + difference % 2, doubt if (difference % 2).any() else ""


def _pixel(stored: Array | None, path: Path) -> tuple[tuple[float, float] | None, float]:
    """The pixel (y, x) [m], and the unit [m] that lengths have in this file."""
    if stored is None or stored.size == 0:
        return None, 1.0
    if stored.dtype.kind == "c" or stored.size not in (1, 2) or not np.isfinite(stored).all():
        raise FileError(f"{path} has p.dx_spec of shape {stored.shape}; expected one or two finite numbers.")
    sizes = np.broadcast_to(stored.astype(np.float64).reshape(-1), (2,))
    unit = ANGSTROM if sizes.min() > LARGEST_PIXEL else 1.0
    return (float(sizes[0] * unit), float(sizes[1] * unit)), unit


def _thickness(value: Callable[[str], Array | None], unit: float) -> float | None:
    for name in ("p.multi_slice_param.z_distance", "p.delta_z"):
        stored = value(name)
        if stored is not None and stored.size and stored.dtype.kind in "iuf":
            distances = stored.astype(np.float64).reshape(-1)
            distances = distances[np.isfinite(distances)]  # the last goes to the detector, at infinity
            if len(distances) and np.allclose(distances, distances[0]) and distances[0] != 0:
                return float(distances[0] * unit)
    return None
