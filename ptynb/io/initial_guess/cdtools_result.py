"""Results of CDTools (`save_to_h5` of FancyPtycho and SimplePtycho, version 0.3; https://cdtools-developers.github.io).

    probe, obj                      complex (mode, y, x), times its norm; (y, x)
    obj_basis                       (xyz, row/column) [m]: steps between the object's pixels
    translations                    (pattern, xyz) [m], refined
    state_dict/min_translation      (yx) [object pixels]: what was subtracted
    weights                         (pattern), or with OPR (pattern, mode, way)
    state_dict/probe_support, fourier_probe, exponentiate_obj, phase_only, surface_normal, near_field

Position = basis⁺ · projection · translation - min_translation is the window's top-left corner. Far field: F[P·O]
centred, norm "ortho". A probe in Fourier space is transformed back; with exponentiate_obj the object is exp(i·obj).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.exceptions import FileError
from ptynb.io.initial_guess.imported_guess import ImportedGuess
from ptynb.io.initial_guess.result_arrays import ForeignResult, as_complex

STATE = "state_dict"


def recognises(source: ForeignResult) -> bool:
    """Return whether CDTools wrote this file."""
    return source.has("cdtools_version", "obj", "probe")


def read(source: ForeignResult) -> ImportedGuess:
    """Return the guess in a result of CDTools. Raise FileError."""
    path = source.path
    if source.number(f"{STATE}/near_field"):
        raise FileError(
            f"{path} (CDTools) is of a near-field model, whose probe is in another plane; use a far-field result.",
            code="file.unsupported-content",
        )
    probe, notes = _probe(source)
    object = source.array("obj", 2, 3)
    if object.ndim == 3 and len(object) == 1:
        object = object[0]
    if source.number(f"{STATE}/exponentiate_obj"):
        object = np.exp(1j * (object.real if source.number(f"{STATE}/phase_only") else object))
    basis = source.reals("obj_basis", (3, 2))
    lengths = np.linalg.norm(basis, axis=0)
    # Vectors may be as short as 1e-9 m: the rank is determined from normalized ones.
    if not (lengths > 0).all() or np.linalg.matrix_rank(basis / lengths) < 2:
        raise FileError(
            f"{path} has an obj_basis of {basis.tolist()} m; expected two steps that are not parallel.",
            code="file.unexpected-content",
        )
    return ImportedGuess(
        package="CDTools",
        path=path,
        object=as_complex(object),
        probe=as_complex(probe),
        positions=_positions(source, basis) if source.has("translations") else None,
        pixel_size=(float(lengths[0]), float(lengths[1])),
        notes=notes,
    )


def _probe(source: ForeignResult) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Return the probe (mode, y, x) and notes."""
    probe = source.array("probe", 2, 3)
    probe = probe if probe.ndim == 3 else probe[None]
    if source.has(f"{STATE}/probe_support"):
        support = source.array(f"{STATE}/probe_support", 2, 3)
        if support.shape[-2:] != probe.shape[-2:]:
            raise FileError(
                f"{source.path} has a probe_support of shape {support.shape}; expected the probe's {probe.shape}.",
                code="file.unexpected-content",
            )
        probe = probe * support
    if source.number(f"{STATE}/fourier_probe"):
        axes = (-2, -1)
        probe = np.fft.fftshift(np.fft.ifft2(np.fft.ifftshift(probe, axes), norm="ortho"), axes)
    weights = source.array("weights", *range(5)) if source.has("weights") else np.ones(1)
    if weights.ndim < 3:
        return probe, ()
    if weights.ndim != 3 or weights.shape[2] != len(probe):
        raise FileError(
            f"{source.path} has weights of shape {weights.shape}; expected (pattern,), or "
            f"(pattern, mode, {len(probe)}).",
            code="file.unexpected-content",
        )
    left_out = "The mean of the probe over the patterns was taken; its variations (OPR) were left out."
    return np.einsum("mw,wyx->myx", weights.mean(0), probe), (left_out,)


def _positions(source: ForeignResult, basis: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return positions (pattern, yx) [object pixels]."""
    # Projection along the beam onto the surface of the sample.
    projection = np.diag([1.0, 1.0, 0.0])
    if source.has(f"{STATE}/surface_normal"):
        normal = source.reals(f"{STATE}/surface_normal", (3,))
        if normal[2] == 0:
            raise FileError(
                f"{source.path} has a surface_normal {normal.tolist()}; expected (x, y, z) with z not 0.",
                code="file.unexpected-content",
            )
        surface = np.diag([1.0, 1.0, 0.0])
        surface[2] = -normal / normal[2]
        projection = np.linalg.inv(surface) @ projection
    positions = source.reals("translations", ("pattern", 3)) @ (np.linalg.pinv(basis) @ projection).T
    if source.has(f"{STATE}/min_translation"):
        positions -= source.reals(f"{STATE}/min_translation", (2,))
    return positions
