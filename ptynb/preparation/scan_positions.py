"""Transformations of the positions only: mirrored, transposed, rotated, or mapped linearly in the sample plane.

They correct differences between the axes of the stage and those of the detector; the object has the axes of the
detector.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ptynb.data.scan import Scan
from ptynb.exceptions import InvalidValueError, check_choice
from ptynb.preparation.recorded_steps import recorded
from ptynb.preparation.shared_transforms import facing_geometry, middle_of, motion_in, pixel_of, with_room


def affine_matrix(
    scale: float = 1.0, asymmetry: float = 0.0, rotation: float = 0.0, shear: float = 0.0
) -> NDArray[np.float64]:
    """Return the matrix (yx, yx) of a shear, followed by a rotation and a scaling.

    It is scale · [1 + asymmetry/2, 0; 0, 1 - asymmetry/2] · [cos θ, sin θ; -sin θ, cos θ] · [1, 0; tan(shear), 1].

    Parameters
    ----------
    scale : float, default 1.0
        Mean scale.
    asymmetry : float, default 0.0
        Difference of the scales along y and x, as a fraction.
    rotation : float, default 0.0
        Angle θ [rad] from x towards y, clockwise as arrays are printed.
    shear : float, default 0.0
        Shear angle [rad]; tan(shear) times y is added to x.

    Returns
    -------
    ndarray of float64
        Matrix (yx, yx).


    Raises
    ------
    InvalidValueError
        If the numbers give a singular matrix, or are not finite.
    """
    numbers = (scale, asymmetry, rotation, shear)
    if not (all(map(math.isfinite, numbers)) and scale > 0 and abs(asymmetry) < 2 and abs(shear) < math.pi / 2):
        raise InvalidValueError(
            f"Got scale={scale}, asymmetry={asymmetry}, rotation={rotation}, shear={shear}; expected "
            "a positive scale, an asymmetry within ±2, a shear within ±π/2 and a finite rotation.",
            code="argument.invalid-value",
        )
    sizes = scale * np.diag([1 + asymmetry / 2, 1 - asymmetry / 2])
    turn = np.array([[math.cos(rotation), math.sin(rotation)], [-math.sin(rotation), math.cos(rotation)]])
    return sizes @ turn @ np.array([[1, 0], [math.tan(shear), 1]])


@recorded
def affine_positions(scan: Scan, matrix: ArrayLike) -> Scan:
    """Transform the positions by a matrix about their mean, in metres if the geometry is known.

    Without geometry detector pixels are assumed to be square. An object guess is extended by transparent pixels if
    windows would be outside.

    Parameters
    ----------
    scan : Scan
        Scan, which does not change.
    matrix : array_like
        Matrix (yx, yx).

    Returns
    -------
    Scan
        The new scan.

    Raises
    ------
    InvalidValueError
        If the matrix is not finite or singular.
    ScanError
        For a tilted geometry (code "scan.tilted-geometry").
    """
    try:
        values = np.asarray(matrix, dtype=np.float64)
        usable = values.shape == (2, 2) and np.isfinite(values).all() and np.linalg.matrix_rank(values) == 2
    except (TypeError, ValueError):
        values, usable = np.zeros(0), False
    if not usable:
        raise InvalidValueError(
            f"matrix is {np.asarray(matrix).tolist()}; expected 2 x 2 finite numbers, (y, x) by (y, x), of an "
            "invertible matrix.",
            code="argument.invalid-value",
        )
    facing_geometry(scan, "a transformation of positions")
    pixel = pixel_of(scan)
    in_pixels = values * pixel[None, :] / pixel[:, None]
    centre = scan.positions.mean(0)
    return _moved(scan, centre + (scan.positions - centre) @ in_pixels.T, in_pixels)


@recorded
def rotate_positions(scan: Scan, angle: float) -> Scan:
    """Rotate the positions about their mean.

    Parameters
    ----------
    scan : Scan
        Scan, which does not change.
    angle : float
        Angle [rad] from x towards y, clockwise as arrays are printed.

    Returns
    -------
    Scan
        The new scan.
    """
    return affine_positions(scan, affine_matrix(rotation=angle))


@recorded
def flip_positions(scan: Scan, axes: str) -> Scan:
    """Mirror the positions: about the centre of the object guess or ground truth, else about their own centre.

    Parameters
    ----------
    scan : Scan
        Scan, which does not change.
    axes : {"y", "x", "yx"}
        Axes that are reversed.

    Returns
    -------
    Scan
        The new scan.

    Raises
    ------
    InvalidValueError
        For other axes.
    """
    chosen = list(axes_of(axes))
    field = scan.object if scan.object is not None else None if scan.ground_truth is None else scan.ground_truth.object
    if field is None:
        total = scan.positions.max(0) + scan.positions.min(0)
    else:
        total = np.array(field.shape[-2:]) - 1 - 2 * middle_of(scan)
    positions = scan.positions.copy()
    positions[:, chosen] = (total - positions)[:, chosen]
    return _moved(scan, positions, np.diag([-1.0 if axis in chosen else 1.0 for axis in (0, 1)]))


@recorded
def transpose_positions(scan: Scan) -> Scan:
    """Exchange y and x of the positions of the probe centre, in metres if the geometry is known.

    Without geometry detector pixels are assumed to be square.

    Parameters
    ----------
    scan : Scan
        Scan, which does not change.

    Returns
    -------
    Scan
        The new scan.

    Raises
    ------
    ScanError
        If an object guess no longer contains all windows, and for a tilted geometry.
    """
    facing_geometry(scan, "exchanging the axes of positions")
    pixel = pixel_of(scan)
    return dataclasses.replace(
        scan,
        positions=transposed_places(scan, detector=False),
        motion=motion_in(scan, np.fliplr(np.diag(pixel[::-1] / pixel))),
    )


def transposed_places(scan: Scan, *, detector: bool) -> NDArray[np.float64]:
    """Return the window corners after exchanging the axes of the detector (`detector`), or those of the positions.

    In the first case the positions of the probe centre in metres are preserved, in the second their axes exchanged.
    """
    pixel = pixel_of(scan)
    centres = scan.positions + middle_of(scan)
    if detector:
        return centres * (pixel / pixel[::-1]) - middle_of(scan, scan.pattern_shape[::-1])
    return (centres * pixel)[:, ::-1] / pixel - middle_of(scan)


def axes_of(axes: str) -> tuple[int, ...]:
    """Return 0 for "y", 1 for "x", both for "yx". Raise InvalidValueError for other values."""
    check_choice(axes, "axes", ("y", "x", "yx", "xy"))
    return tuple("yx".index(axis) for axis in axes)


def _moved(scan: Scan, positions: NDArray[np.float64], matrix: NDArray[np.float64]) -> Scan:
    """Return the scan with other positions; matrix (yx, yx): the linear part of their map."""
    scan = dataclasses.replace(scan, motion=motion_in(scan, matrix))
    return dataclasses.replace(scan, **with_room(positions, scan.pattern_shape, scan.object, scan.ground_truth))
