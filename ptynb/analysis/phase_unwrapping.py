"""The phase of an object for display: without its linear ramp, and unwrapped."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from skimage.restoration import unwrap_phase

from ptynb.data import images
from ptynb.exceptions import InvalidValueError

Array = NDArray[Any]

ITERATIONS = 50
"""Largest number of iterations; a few are usual."""


def without_ramp(
    object: Array, area: tuple[slice, slice] | None = None, weight: Array | None = None, scale: bool = False
) -> Array:
    """Remove the linear ramp and the constant of the phase of an object, for each (y, x) separately.

    The plane is fitted to the phases by least squares, weighted by |O|² and `weight`: first by the mean phase step
    between pixels, which does not depend on wraps, then to the remaining phases in [-π, π].

    Parameters
    ----------
    object : ndarray of complex
        Object (…, y, x).
    area : (slice, slice), optional
        Part that is fitted; by default everything.
    weight : ndarray, optional
        Weight (y, x) of each pixel, at least 0: for example 1 where there is no sample.
    scale : bool, default False
        Whether to divide by the weighted root-mean-square amplitude, too.

    Returns
    -------
    ndarray of complex
        Object (…, y, x).

    Raises
    ------
    InvalidValueError
        If shapes do not fit, or the weights are 0 everywhere (code "comparison.nothing-to-fit").
    """
    if object.ndim < 2 or not np.iscomplexobj(object):
        raise InvalidValueError(
            f"The object has type {object.dtype} and shape {object.shape}; expected complex values (…, y, x).",
            code="array.shape-mismatch",
        )
    shape = object.shape[-2:]
    weights = np.zeros(shape)
    weights[... if area is None else area] = 1
    if weight is not None:
        if np.shape(weight) != shape or not np.isfinite(weight).all() or np.min(weight) < 0:
            raise InvalidValueError(
                f"The weight has shape {np.shape(weight)}; expected {shape} as the object, and finite values >= 0.",
                code="array.shape-mismatch",
            )
        weights = weights * weight
    layers = object.reshape(-1, *shape)
    return np.stack([_layer_without_ramp(layer, weights, scale) for layer in layers]).reshape(object.shape)


def flat_phase(object: Array) -> NDArray[np.floating[Any]]:
    """Return the phase of an object as pictures show it: without its mean and its mean step between pixels.

    Diffraction patterns determine neither. Unlike the fit of `without_ramp`, which is more exact where there is a flat
    area, this takes a moment only and follows wraps.

    Parameters
    ----------
    object : ndarray of complex
        Object (y, x).

    Returns
    -------
    ndarray of float
        Phase (y, x) [rad], in [-π, π].

    Raises
    ------
    InvalidValueError
        If the object is not complex with two axes (code "array.shape-mismatch").
    """
    if object.ndim != 2 or not np.iscomplexobj(object):
        raise InvalidValueError(
            f"The object has type {object.dtype} and shape {object.shape}; expected complex values (y, x), such as "
            "result.projection.",
            code="array.shape-mismatch",
        )
    return images.flat_phase(object)


def unwrapped_phase(object: Array, mask: Array | None = None) -> NDArray[np.float64]:
    """Return the phase of an object without jumps of 2π, for each (y, x) separately.

    The multiple of 2π is chosen so that the mean lies in [-π, π]. Remove the ramp first, by `without_ramp`. If the
    phase changes by more than π between pixels, or has vortices, no unwrapping is correct.

    M. A. Herráez et al., Appl. Opt. 41, 7437 (2002): pixels are joined in the order of their reliability.

    Parameters
    ----------
    object : ndarray of complex
        Object (…, y, x).
    mask : ndarray of bool, optional
        Pixels (y, x) with a reliable phase; the others become NaN. By default all.

    Returns
    -------
    ndarray of float64
        Phase (…, y, x) [rad].

    Raises
    ------
    InvalidValueError
        If shapes do not fit, or the mask is empty (code "array.shape-mismatch").
    """
    if object.ndim < 2 or min(object.shape[-2:]) < 3:
        raise InvalidValueError(
            f"The object has shape {object.shape}; expected (…, y, x) with at least 3 x 3 pixels.",
            code="array.shape-mismatch",
        )
    shape = object.shape[-2:]
    reliable = np.ones(shape, dtype=bool) if mask is None else np.asarray(mask, dtype=bool)
    if reliable.shape != shape or not reliable.any():
        raise InvalidValueError(
            f"The mask has shape {reliable.shape} and is True at {reliable.sum()} pixels; expected shape {shape} and "
            "True where the phase is reliable.",
            code="array.shape-mismatch",
        )
    phases = np.angle(object).astype(np.float64).reshape(-1, *shape)
    return np.stack([_unwrapped(phase, reliable) for phase in phases]).reshape(object.shape)


def _unwrapped(phase: NDArray[np.float64], reliable: NDArray[np.bool_]) -> NDArray[np.float64]:
    # The method uses random numbers; with a fixed seed the result is reproducible.
    unwrapped = unwrap_phase(np.ma.array(phase, mask=~reliable), rng=0)
    values = np.where(reliable, np.ma.getdata(unwrapped), np.nan)
    return values - 2 * np.pi * np.round(values[reliable].mean() / (2 * np.pi))


def _layer_without_ramp(layer: Array, weights: Array, scale: bool) -> Array:
    """Remove ramp and constant from one layer (y, x), as `without_ramp`."""
    power = weights * np.abs(layer) ** 2
    if not (np.isfinite(power).all() and power.any()):
        raise InvalidValueError(
            "The object is 0 or not finite where its phase ramp is fitted. Choose another area or weight.",
            code="comparison.nothing-to-fit",
        )
    y, x = (np.arange(side) - (side - 1) / 2 for side in layer.shape)
    weighted = weights * layer
    plane = np.array([0.0, *np.angle(images.step_sums(weighted))])
    plane[0] = np.angle((weighted * _plane(plane, y, x).conj()).sum())
    columns = np.stack(np.broadcast_arrays(1.0, y[:, None], x[None, :])).reshape(3, -1)
    normal = (columns * power.ravel()) @ columns.T
    for _ in range(ITERATIONS):
        residual = np.angle(layer * _plane(plane, y, x).conj())
        change = np.linalg.lstsq(normal, columns @ (power * residual).ravel(), rcond=None)[0]
        plane = plane + change
        if np.abs(change * (1, *layer.shape)).max() < 1e-10:
            break
    level = np.sqrt(power.sum() / weights.sum()) if scale else 1.0
    return (layer * (_plane(plane, y, x).conj() / level)).astype(layer.dtype, copy=False)


def _plane(plane: Array, y: Array, x: Array) -> Array:
    return np.exp(1j * (plane[0] + plane[1] * y))[:, None] * np.exp(1j * plane[2] * x)[None, :]
