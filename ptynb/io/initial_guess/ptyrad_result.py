"""Results of PtyRAD (model_iter*.hdf5, `save_results` of version 1.0; https://github.com/chiahao3/ptyrad).

    optimizable_tensors/obja, objp          (mode, slice, y, x) amplitude and phase [rad]
    optimizable_tensors/probe               complex (mode, y, x), centred; versions before 1.0 too
    optimizable_tensors/probe_pos_shifts    (pattern, yx) [object pixels], subpixel shifts
    optimizable_tensors/slice_thickness     as `dx`
    model_attributes/crop_pos               (pattern, yx) whole pixels: top-left corners in the object
    model_attributes/dx                     object pixel: Å for electrons, m for X-rays
    params/init_params/probe_illum_type     "electron" (default) or "xray"

Far field: F[P·O], norm "ortho", the phase of a delay is positive, as in ptynb; the probe is shifted by the subpixel
shifts. Patterns are divided by a constant first, so the scale of the probe is arbitrary.
"""

from __future__ import annotations

import h5py
import numpy as np

from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import inside
from ptynb.io.initial_guess.imported_guess import ImportedGuess
from ptynb.io.initial_guess.result_arrays import ForeignResult, as_complex

TENSORS, ATTRIBUTES = "optimizable_tensors", "model_attributes"


def recognises(source: ForeignResult) -> bool:
    """Return whether PtyRAD wrote this file."""
    return source.has(f"{TENSORS}/objp", f"{TENSORS}/probe")


def read(source: ForeignResult) -> ImportedGuess:
    """Return the guess in a result of PtyRAD. Raise FileError."""
    path = source.path
    amplitude, phase = source.array(f"{TENSORS}/obja", 4), source.array(f"{TENSORS}/objp", 4)
    probe = source.array(f"{TENSORS}/probe", 3, 4)
    if probe.ndim == 4 and probe.shape[-1] == 2:  # real and imaginary part, of some versions
        probe = probe[..., 0] + 1j * probe[..., 1]
    corners = source.reals(f"{ATTRIBUTES}/crop_pos", ("pattern", 2))
    shifts = source.reals(f"{TENSORS}/probe_pos_shifts", ("pattern", 2))
    for names, one, other in (("obja and objp", amplitude, phase), ("crop_pos and probe_pos_shifts", corners, shifts)):
        if one.shape != other.shape:
            raise FileError(
                f"{path} has {names} of shapes {one.shape} and {other.shape}; expected equal ones.",
                code="file.unexpected-content",
            )
    modes, slices = amplitude.shape[:2]
    kind = inside(source.file, "params/init_params/probe_illum_type", path)
    unit = 1e-10
    if isinstance(kind, h5py.Dataset) and kind.shape == () and h5py.check_string_dtype(kind.dtype):
        unit = 1.0 if kind.asstr(errors="replace")[()] == "xray" else 1e-10
    pixel = source.number(f"{ATTRIBUTES}/dx")
    thickness = source.number(f"{TENSORS}/slice_thickness") if slices > 1 else None
    object = as_complex(amplitude[0] * np.exp(1j * phase[0].astype(np.float64)))
    return ImportedGuess(
        package="PtyRAD",
        path=path,
        object=object[0] if slices == 1 else object,
        probe=as_complex(probe),
        positions=corners + shifts,
        pixel_size=None if pixel is None else (pixel * unit, pixel * unit),
        thickness=None if thickness is None else thickness * unit,
        notes=(f"Of {modes} modes of the object the first was taken.",) if modes > 1 else (),
    )
