"""Results of CDTools (`save_to_h5` of FancyPtycho and SimplePtycho, version 0.3; https://cdtools-developers.github.io).

    probe, obj                      complex (mode, y, x), times its norm; (y, x)
    obj_basis                       (xyz, row/column) [m]: steps between the object's pixels
    translations                    (pattern, xyz) [m], as they were found
    state_dict/min_translation      (yx) [object pixels]: what was subtracted
    weights                         (pattern), or with OPR (pattern, mode, way)
    state_dict/probe_support, fourier_probe, exponentiate_obj, phase_only, surface_normal, near_field

Position = basis⁺ · projection · translation - min_translation is the window's top-left corner. Far field: F[P·O]
centred, norm "ortho". A probe in Fourier space comes back by the inverse transform; an exponent O is exp(iO).
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

STATE = "state_dict"


def recognises(file: h5py.File) -> bool:
    """Whether CDTools wrote this file."""
    return has(file, "cdtools_version", "obj", "probe")


def read(file: h5py.File, path: Path) -> Start:
    """What CDTools found. Raises FileError."""
    if flag(file, f"{STATE}/near_field", path):
        raise FileError(f"{path} (CDTools) is of a near-field model, whose probe lies elsewhere; start from another.")
    probe, remarks = _probe(file, path)
    object = array(file, "obj", path, (2, 3))
    if object.ndim == 3:
        object = object[0] if len(object) == 1 else object
    if flag(file, f"{STATE}/exponentiate_obj", path):
        object = np.exp(1j * (object.real if flag(file, f"{STATE}/phase_only", path) else object))
    basis = _basis(file, path)
    height, width = np.linalg.norm(basis, axis=0)
    return Start(
        package="CDTools",
        path=path,
        object=as_complex(object, "obj", path),
        probe=as_complex(probe, "the probe", path),
        positions=_positions(file, basis, path),
        pixel_size=(float(height), float(width)),
        notes=remarks,
    )


def _probe(file: h5py.File, path: Path) -> tuple[NDArray[Any], tuple[str, ...]]:
    probe = array(file, "probe", path, (2, 3))
    probe = probe if probe.ndim == 3 else probe[None]
    if has(file, f"{STATE}/probe_support"):
        support = array(file, f"{STATE}/probe_support", path, (2, 3))
        if support.shape[-2:] != probe.shape[-2:]:
            raise FileError(f"{path} has a probe_support of shape {support.shape}; expected the probe's {probe.shape}.")
        probe = probe * support
    if flag(file, f"{STATE}/fourier_probe", path):
        axes = (-2, -1)
        probe = np.fft.fftshift(np.fft.ifft2(np.fft.ifftshift(probe, axes), norm="ortho"), axes)
    if not has(file, "weights"):
        return probe, ()
    weights = array(file, "weights", path, tuple(range(5)))
    if weights.ndim < 3:
        return probe, ()
    if weights.ndim != 3 or weights.shape[2] != len(probe) or len(weights) == 0:
        raise FileError(
            f"{path} has weights of shape {weights.shape}; expected (pattern,), or (pattern, mode, {len(probe)})."
        )
    left_out = "The probe was taken as its mean over the patterns; how it changed from one to the next was left out."
    return np.einsum("mw,wyx->myx", weights.mean(0), probe), (left_out,)


def _basis(file: h5py.File, path: Path) -> NDArray[np.float64]:
    basis = array(file, "obj_basis", path, (2,))
    if basis.dtype.kind == "c" or basis.shape != (3, 2) or not np.isfinite(basis).all():
        raise FileError(f"{path} has an obj_basis of shape {basis.shape}; expected finite numbers (3, 2) [m].")
    basis = basis.astype(np.float64)
    # Lengths may be of 1e-9 m: what counts is the angle between the two.
    if not (np.linalg.norm(basis, axis=0) > 0).all() or (
        np.linalg.matrix_rank(basis / np.linalg.norm(basis, axis=0)) < 2
    ):
        raise FileError(f"{path} has an obj_basis of {basis.tolist()} m; expected two steps that are not parallel.")
    return basis


def _positions(file: h5py.File, basis: NDArray[np.float64], path: Path) -> NDArray[np.float64] | None:
    if not has(file, "translations"):
        return None
    moves = array(file, "translations", path, (2,))
    if moves.dtype.kind == "c" or moves.shape[1] != 3 or len(moves) == 0:
        raise FileError(f"{path} has translations of shape {moves.shape}; expected (pattern, 3) [m].")
    first = np.zeros(2)
    if has(file, f"{STATE}/min_translation"):
        first = as_places(array(file, f"{STATE}/min_translation", path, (1,))[None], "min_translation", path)[0]
    return moves.astype(np.float64) @ (np.linalg.pinv(basis) @ _onto_surface(file, path)).T - first


def _onto_surface(file: h5py.File, path: Path) -> NDArray[np.float64]:
    """What carries a movement along z on to the sample's surface, along the beam."""
    onto = np.diag([1.0, 1.0, 0.0])
    if has(file, f"{STATE}/surface_normal"):
        normal = array(file, f"{STATE}/surface_normal", path, (1,))
        if normal.shape != (3,) or normal.dtype.kind == "c" or not np.isfinite(normal).all() or normal[2] == 0:
            raise FileError(f"{path} has a surface_normal {values_text(normal)}; expected (x, y, z) with z not 0.")
        surface = np.diag([1.0, 1.0, 0.0])
        surface[2] = -normal.astype(np.float64) / float(normal[2])
        onto = np.linalg.inv(surface) @ onto
    return onto
