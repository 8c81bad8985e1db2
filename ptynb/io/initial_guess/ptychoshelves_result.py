"""Results of PtychoShelves and fold_slice (.mat; https://github.com/yijiang1/fold_slice, engines GPU and GPU_MS).

Niter*.mat (version 7.3) of the GPU engines, *_recons.mat (version 5) of all engines; in MATLAB's order of axes:

    object      (y, x), (y, x, slice) or (y, x, 1, slice)
    probe       (y, x), (y, x, mode) or (y, x, mode, n): the first of n is the constant part of a variable probe
    outputs.probe_positions     (pattern, xy) [object pixels], from the object's centre (Niter*.mat)
    p.positions                 (pattern, yx) [object pixels], of windows' corners (*_recons.mat)
    p.dx_spec   (yx) object pixel: m, or Å where electrons are reconstructed
    p.multi_slice_param.z_distance, p.delta_z   between slices, in the same unit

The GPU engines' window begins, counted from 0, at round(position + ceil(object/2 - probe/2)) - 1. Their
p.positions (`save_to_p`) count from another corner than those of the CPU engines, whose windows begin at p.positions:
by one pixel, and by another one if the difference of sizes is odd. The far field is F[P·O].
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from ptynb.exceptions import FileError
from ptynb.io.formats.mat5 import STRUCT, variables
from ptynb.io.hdf5_file import inside
from ptynb.io.initial_guess.imported_guess import Array, ImportedGuess
from ptynb.io.initial_guess.result_arrays import ForeignResult, as_complex, as_numbers, as_reals

HEADER = b"MATLAB 5.0 MAT-file"
"""Beginning of files of versions 5 to 7."""
GPU_ONLY = "p.probe_fourier_shift"
"""Field that only the GPU engines write; it may be empty."""
LARGEST_PIXEL = 1e-4
"""Upper limit of an object pixel [m]; larger numbers are in Å."""
Value = Callable[[str], Array | None]


def recognises(source: ForeignResult) -> bool:
    """Return whether this is a result of PtychoShelves or fold_slice in a file of version 7.3."""
    return source.has("object", "probe") and (source.has("outputs") or source.has("p"))


def read(source: ForeignResult) -> ImportedGuess:
    """Return the guess in a file of version 7.3, in which HDF5 has MATLAB's axes in reverse. Raise FileError."""

    def value(name: str) -> Array | None:
        place = name.replace(".", "/")
        found = inside(source.file, place, source.path)
        empty = isinstance(found, h5py.Dataset) and not found.size
        return None if found is None or empty else source.array(place, *range(6)).T

    return _guess(value, source.path, gpu=True)


def read_version_5(path: Path) -> ImportedGuess:
    """Return the guess in a file of versions 5 to 7. Raise FileError."""
    found: dict[str, Array] = {}
    for variable in variables(path):
        if variable.name in ("object", "probe") and variable.numbers:
            found[variable.name] = variable.values()
        elif variable.name in ("outputs", "p") and variable.kind == STRUCT:
            found.update((name.replace("/", "."), values) for name, values in variable.fields())
    filled = {name: as_numbers(values, name, path) for name, values in found.items() if values.size}
    return _guess(filled.get, path, gpu=GPU_ONLY in found)


def _guess(value: Value, path: Path, gpu: bool) -> ImportedGuess:
    object, probe, notes = value("object"), value("probe"), []
    if object is None or probe is None:
        raise FileError(
            f"{path} has no object or no probe; expected both, as PtychoShelves saves them.", code="file.incomplete"
        )
    if probe.ndim == 4:
        if probe.shape[3] > 1:
            notes.append("The constant part of the probe was taken; its variations (OPR) were left out.")
        probe = probe[..., 0]
    if object.ndim == 4 and object.shape[2] == 1:
        object = object[:, :, 0]
    for name, values, expected in (("a probe", probe, "(y, x, mode)"), ("an object", object, "(y, x, slice)")):
        if values.ndim not in (2, 3):
            raise FileError(
                f"{path} has {name} of shape {values.shape}; expected (y, x) or {expected}.",
                code="file.unexpected-content",
            )
    probe = probe[None] if probe.ndim == 2 else probe.transpose(2, 0, 1)
    if object.ndim == 3:
        object = object[..., 0] if object.shape[2] == 1 else object.transpose(2, 0, 1)
    pixel, unit, stored = None, 1.0, value("p.dx_spec")
    if stored is not None:
        sizes = np.broadcast_to(as_reals(stored.reshape(-1), "p.dx_spec", path, (1,), (2,)), (2,))
        unit = 1e-10 if sizes.min() > LARGEST_PIXEL else 1.0
        pixel = float(sizes[0] * unit), float(sizes[1] * unit)
    positions, note = _positions(value, np.array(object.shape[-2:]) - probe.shape[-2:], path, gpu)
    return ImportedGuess(
        package="PtychoShelves",
        path=path,
        object=as_complex(object),
        probe=as_complex(probe),
        positions=positions,
        pixel_size=pixel,
        thickness=_thickness(value, unit) if object.ndim == 3 else None,
        notes=(*notes, note) if note else tuple(notes),
    )


def _positions(value: Value, margin: Array, path: Path, gpu: bool) -> tuple[NDArray[np.float64] | None, str]:
    """Return positions (pattern, yx) [object pixels] and a note. margin: size (y, x) of object minus probe [pixels]."""
    centred = value("outputs.probe_positions")
    if centred is not None:
        centred = centred[..., 0] if centred.ndim == 3 else centred  # of the first mode of a fly scan
        places = as_reals(centred, "outputs.probe_positions", path, ("pattern", 2))
        return places[:, ::-1] + np.ceil(margin / 2) - 1, ""
    corners = value("p.positions")
    if corners is None:
        return None, ""
    places = as_reals(corners, "p.positions", path, ("pattern", 2))
    if not gpu:
        return places, ""
    note = "The corner of the engine's windows is known to one pixel only; optimise the positions."
    return places - 1 + margin % 2, note if (margin % 2).any() else ""


def _thickness(value: Value, unit: float) -> float | None:
    for name in ("p.multi_slice_param.z_distance", "p.delta_z"):
        stored = value(name)
        if stored is not None and stored.size and stored.dtype.kind in "iuf":
            distances = stored.astype(np.float64).reshape(-1)
            distances = distances[np.isfinite(distances)]  # the last one, to the detector, is infinite
            if len(distances) and np.allclose(distances, distances[0]) and distances[0] != 0:
                return float(distances[0] * unit)
    return None
