"""Changing the positions alone: mirrored, transposed, turned, or mapped by any linear map in the sample's plane.

What the stage reports and what the detector sees may disagree in these; the object keeps to the detector.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ptynb.data.scan import Scan
from ptynb.exceptions import InvalidValueError
from ptynb.preparation.carry_over import facing_geometry, middle_of, pixel_of, with_room


def affine_matrix(
    scale: float = 1.0, asymmetry: float = 0.0, rotation: float = 0.0, shear: float = 0.0
) -> NDArray[np.float64]:
    """The matrix (yx, yx) that shears, then turns, then scales:

        scale · [1 + asymmetry/2, 0; 0, 1 - asymmetry/2] · [cos θ, sin θ; -sin θ, cos θ] · [1, 0; tan(shear), 1]

    rotation: θ [rad], from x towards y, clockwise as arrays are printed. shear: [rad], x gains tan(shear) of y.
    asymmetry: by how much y is scaled more than x, as a fraction.

    Raises ValueError for numbers that leave no plane.
    """
    numbers = (scale, asymmetry, rotation, shear)
    if not (all(map(math.isfinite, numbers)) and scale > 0 and abs(asymmetry) < 2 and abs(shear) < math.pi / 2):
        raise InvalidValueError(
            f"affine_matrix got scale={scale}, asymmetry={asymmetry}, rotation={rotation}, shear={shear}; expected "
            "a positive scale, an asymmetry within ±2, a shear within ±π/2 and a finite rotation.",
            code="argument.invalid-value",
        )
    sizes = scale * np.diag([1 + asymmetry / 2, 1 - asymmetry / 2])
    turn = np.array([[math.cos(rotation), math.sin(rotation)], [-math.sin(rotation), math.cos(rotation)]])
    return sizes @ turn @ np.array([[1, 0], [math.tan(shear), 1]])


def affine_positions(scan: Scan, matrix: ArrayLike) -> Scan:
    """Maps the positions by `matrix` (yx, yx) about their mean, in metres where the geometry is known.

    Without geometry detector pixels are taken as square. Raises ValueError unless the matrix is finite and can be
    inverted, and ScanError for a tilted geometry. An object guess grows by transparent pixels
    where windows would lie outside.
    """
    try:
        given = np.asarray(matrix, dtype=np.float64)
        usable = given.shape == (2, 2) and np.isfinite(given).all() and np.linalg.matrix_rank(given) == 2
    except (TypeError, ValueError):
        given, usable = np.zeros(0), False
    if not usable:
        raise InvalidValueError(
            f"The affine matrix is {np.asarray(matrix).tolist()}; expected 2 x 2 finite numbers, (y, x) by (y, x), "
            "that can be inverted.",
            code="argument.invalid-value",
        )
    facing_geometry(scan, "a map of positions in metres")
    pixel = pixel_of(scan)
    in_pixels = given * pixel[None, :] / pixel[:, None]
    centre = scan.positions.mean(0)
    return _moved(scan, centre + (scan.positions - centre) @ in_pixels.T)


def rotate_positions(scan: Scan, angle: float) -> Scan:
    """Turns the positions about their mean by `angle` [rad], from x towards y: clockwise as arrays are printed."""
    return affine_positions(scan, affine_matrix(rotation=angle))


def flip_positions(scan: Scan, axes: str) -> Scan:
    """Mirrors the positions along `axes` ("y", "x" or "yx").

    About the middle of the object where there is a guess or a truth, which `flip` mirrors about it too; else about
    their own middle. Raises ValueError for other axes.
    """
    chosen = list(axes_of(axes))
    field = scan.object if scan.object is not None else None if scan.ground_truth is None else scan.ground_truth.object
    if field is None:
        total = scan.positions.max(0) + scan.positions.min(0)
    else:
        total = np.array(field.shape[-2:]) - 1 - 2 * middle_of(scan)
    positions = scan.positions.copy()
    positions[:, chosen] = (total - positions)[:, chosen]
    return _moved(scan, positions)


def transpose_positions(scan: Scan) -> Scan:
    """Exchanges y and x of the positions of the probe's centre, in metres where the geometry is known.

    Without geometry detector pixels are taken as square. Raises ScanError where an object guess no longer holds all
    windows, and for a tilted geometry.
    """
    facing_geometry(scan, "exchanging the axes of positions")
    return dataclasses.replace(scan, positions=transposed_places(scan, detector=False))


def transposed_places(scan: Scan, *, detector: bool) -> NDArray[np.float64]:
    """Corners after the detector's axes have changed places, or after the positions' have.

    Either way the probe's centre is what is meant to stay, or to be exchanged, in metres.
    """
    pixel = pixel_of(scan)
    centres = scan.positions + middle_of(scan)
    if detector:
        return centres * (pixel / pixel[::-1]) - middle_of(scan, scan.pattern_shape[::-1])
    return (centres * pixel)[:, ::-1] / pixel - middle_of(scan)


def axes_of(axes: str) -> tuple[int, ...]:
    """0 for "y", 1 for "x", both for "yx"."""
    if axes not in ("y", "x", "yx", "xy"):
        raise InvalidValueError(f"axes is {axes!r}; expected 'y', 'x' or 'yx'.", code="argument.invalid-value")
    return tuple("yx".index(axis) for axis in axes)


def _moved(scan: Scan, positions: NDArray[np.float64]) -> Scan:
    return dataclasses.replace(scan, **with_room(positions, scan.pattern_shape, scan.object, scan.ground_truth))
