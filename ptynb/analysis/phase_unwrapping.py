"""The phase of an object for looking at: without its linear ramp, and unwrapped."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from skimage.restoration import unwrap_phase

from ptynb.exceptions import InvalidValueError

Array = NDArray[Any]

ITERATIONS = 50
"""A few are usual; each can only lower the sum of squares."""


def without_ramp(
    object: Array, area: tuple[slice, slice] | None = None, weight: Array | None = None, scale: bool = False
) -> Array:
    """A complex object (…, y, x) without the linear ramp and the constant of its phase, each (y, x) by itself.

    The plane is fitted to the phases by least squares, weighted with |O|² and `weight`: first by the mean phase step
    from pixel to pixel, which does not mind wraps, then to the phases that are left, in [-π, π].

    area: the part to fit; None: everything. weight: (y, x) of the object, at least 0, how much each pixel counts: 1
    where the sample is known to be empty, for one. scale: also divides by the weighted root-mean-square amplitude.

    Raises ValueError where no pixel counts.
    """
    if object.ndim < 2 or not np.iscomplexobj(object):
        raise InvalidValueError(
            f"The object is of type {object.dtype} and shape {object.shape}; expected complex values (…, y, x).",
            code="array.shape-mismatch",
        )
    shape = object.shape[-2:]
    counted = np.zeros(shape)
    counted[... if area is None else area] = 1
    if weight is not None:
        if np.shape(weight) != shape or not np.isfinite(weight).all() or np.min(weight) < 0:
            raise InvalidValueError(
                f"The weight has shape {np.shape(weight)}; expected {shape} as the object, and finite values >= 0.",
                code="array.shape-mismatch",
            )
        counted = counted * weight
    layers = object.reshape(-1, *shape)
    return np.stack([_straight(layer, counted, scale) for layer in layers]).reshape(object.shape)


def unwrapped_phase(object: Array, mask: Array | None = None) -> NDArray[np.float64]:
    """The phase of a complex object (…, y, x) [rad] without jumps of 2π, each (y, x) by itself.

    mask: (y, x), True where the phase is to be trusted; elsewhere the result is not a number. None: everywhere.
    The multiple of 2π that is left open is chosen so that the mean lies in [-π, π]. Take the ramp off before, by
    `without_ramp`. Where the phase steps by more than π between pixels or turns around a point, no unwrapping is right.

    M. A. Herráez et al., Appl. Opt. 41, 7437 (2002): pixels are joined in the order of their reliability.
    """
    if object.ndim < 2 or min(object.shape[-2:]) < 3:
        raise InvalidValueError(
            f"The object has shape {object.shape}; expected (…, y, x) with at least 3 x 3 pixels.",
            code="array.shape-mismatch",
        )
    shape = object.shape[-2:]
    trusted = np.ones(shape, dtype=bool) if mask is None else np.asarray(mask, dtype=bool)
    if trusted.shape != shape or not trusted.any():
        raise InvalidValueError(
            f"The mask has shape {trusted.shape} and is True at {trusted.sum()} pixels; expected shape {shape} and "
            "True where the phase is to be trusted.",
            code="array.shape-mismatch",
        )
    phases = np.angle(object).astype(np.float64).reshape(-1, *shape)
    return np.stack([_unwrapped(phase, trusted) for phase in phases]).reshape(object.shape)


def _unwrapped(phase: NDArray[np.float64], trusted: NDArray[np.bool_]) -> NDArray[np.float64]:
    # The method draws random numbers: the same ones every time.
    unwrapped = unwrap_phase(np.ma.array(phase, mask=~trusted), rng=0)
    values = np.where(trusted, np.ma.getdata(unwrapped), np.nan)
    return values - 2 * np.pi * np.round(values[trusted].mean() / (2 * np.pi))


def _straight(layer: Array, counted: Array, scale: bool) -> Array:
    """One layer (y, x) of `without_ramp`."""
    power = counted * np.abs(layer) ** 2
    if not (np.isfinite(power).all() and power.any()):
        raise InvalidValueError(
            "The object is 0 or not finite where its phase ramp is to be found; expected pixels that count. Choose "
            "another area or weight.",
            code="comparison.nothing-to-fit",
        )
    y, x = (np.arange(side) - (side - 1) / 2 for side in layer.shape)
    seen = counted * layer
    steps = [np.angle(np.vdot(seen[:-1], seen[1:])), np.angle(np.vdot(seen[:, :-1], seen[:, 1:]))]
    plane = np.array([0.0, *steps])
    plane[0] = np.angle((seen * _plane(plane, y, x).conj()).sum())
    columns = np.stack(np.broadcast_arrays(1.0, y[:, None], x[None, :])).reshape(3, -1)
    normal = (columns * power.ravel()) @ columns.T
    for _ in range(ITERATIONS):
        rest = np.angle(layer * _plane(plane, y, x).conj())
        change = np.linalg.lstsq(normal, columns @ (power * rest).ravel(), rcond=None)[0]
        plane = plane + change
        if np.abs(change * (1, *layer.shape)).max() < 1e-10:
            break
    level = np.sqrt(power.sum() / counted.sum()) if scale else 1.0
    return (layer * (_plane(plane, y, x).conj() / level)).astype(layer.dtype, copy=False)


def _plane(plane: Array, y: Array, x: Array) -> Array:
    return np.exp(1j * (plane[0] + plane[1] * y))[:, None] * np.exp(1j * plane[2] * x)[None, :]
