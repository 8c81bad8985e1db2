"""Results of PtyRAD (model_iter*.hdf5, `save_results` of version 1.0; https://github.com/chiahao3/ptyrad).

    optimizable_tensors/obja, objp          (state, slice, y, x) amplitude and phase [rad]
    optimizable_tensors/probe               complex (mode, y, x), centred; versions before 1.0 too
    optimizable_tensors/probe_pos_shifts    (pattern, yx) [object pixels], the rest after rounding
    optimizable_tensors/slice_thickness     as `dx`
    model_attributes/crop_pos               (pattern, yx) whole pixels: top-left corners in the object
    model_attributes/dx                     object pixel: Å of electrons, m of X-rays
    params/init_params/probe_illum_type     "electron" (also where it is missing) or "xray"

Far field: F[P·O], norm "ortho", the phase of a delay is positive, as in ptynb; the probe is moved by the rest. Patterns
are divided by a constant first, so the probe's scale is its own.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import has, inside
from ptynb.io.initial_guess.imported_guess import Start
from ptynb.io.initial_guess.result_arrays import array, as_complex, as_places, first, number, square

TENSORS = "optimizable_tensors"
ATTRIBUTES = "model_attributes"
ANGSTROM = 1e-10


def recognises(file: h5py.File) -> bool:
    """Whether PtyRAD wrote this file."""
    return has(file, f"{TENSORS}/objp", f"{TENSORS}/probe")


def read(file: h5py.File, path: Path) -> Start:
    """What PtyRAD found. Raises FileError."""
    amplitude = array(file, f"{TENSORS}/obja", path, (4,))
    phase = array(file, f"{TENSORS}/objp", path, (4,))
    probe = array(file, f"{TENSORS}/probe", path, (3, 4))
    if probe.ndim == 4 and probe.shape[-1] == 2:  # real and imaginary part, as some versions keep it
        probe = probe[..., 0] + 1j * probe[..., 1]
    corners = as_places(array(file, f"{ATTRIBUTES}/crop_pos", path, (2,)), "crop_pos", path)
    rests = as_places(array(file, f"{TENSORS}/probe_pos_shifts", path, (2,)), "probe_pos_shifts", path)
    states, slices = amplitude.shape[:2]
    _same(amplitude.shape, phase.shape, "obja and objp", path)
    _same(corners.shape, rests.shape, "crop_pos and probe_pos_shifts", path)
    unit = 1.0 if _text(file, "params/init_params/probe_illum_type", path) == "xray" else ANGSTROM
    pixel = number(file, f"{ATTRIBUTES}/dx", path)
    thickness = number(file, f"{TENSORS}/slice_thickness", path) if slices > 1 else None
    object = as_complex(first(amplitude, "obja", path) * np.exp(1j * phase[0].astype(np.float64)), "the object", path)
    return Start(
        package="PtyRAD",
        path=path,
        object=object[0] if slices == 1 else object,
        probe=as_complex(probe, "the probe", path),
        positions=corners + rests,
        pixel_size=square(None if pixel is None else pixel * unit),
        thickness=None if thickness is None else thickness * unit,
        notes=(f"Of {states} states of the object the first was taken.",) if states > 1 else (),
    )


def _same(one: tuple[int, ...], other: tuple[int, ...], what: str, path: Path) -> None:
    if one != other:
        raise FileError(f"{path} has {what} of shapes {one} and {other}; expected equal ones.")


def _text(file: h5py.File, name: str, path: Path) -> str:
    found = inside(file, name, path)
    if not isinstance(found, h5py.Dataset) or found.shape != () or not h5py.check_string_dtype(found.dtype):
        return ""
    return str(found.asstr(errors="replace")[()])
