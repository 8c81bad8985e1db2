"""Rotation between scan and detector, from the centres of mass of the patterns, as in electron microscopy.

An object whose phase grows by g [rad] per pixel deflects the beam, and so shifts the centre of mass: to first order the
shift is the gradient of a potential, the phase smoothed by the probe. A gradient has no curl; if positions are rotated
relative to the detector, or mirrored, the field has an apparent curl.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import Delaunay

from ptynb.data.scan import Scan
from ptynb.exceptions import ScanError
from ptynb.preparation.center_of_mass import centre_of_mass
from ptynb.preparation.shared_transforms import facing_geometry, pixel_of

FEWEST_PATTERNS = 16
MOST_CURL = 0.35
"""Largest fraction of curl in the best orientation; for noise it is one half in any orientation."""


def estimate_rotation(scan: Scan) -> tuple[float, bool]:
    """Find the rotation of the scan for which the field of the centres of mass has no curl. Reads all patterns once.

    Apply `transpose_positions` if the second value is True, then `rotate_positions` by the first. A mirrored scan is
    equivalent to one that is transposed and rotated by 90 degrees. A rotation by another 180 degrees has the same curl
    and the opposite phase: if atoms appear as holes, add π. Any set of positions is supported; the steps must not be
    longer than the probe is wide. After Lazić, Bosch and Lazar, Ultramicroscopy 160, 265 (2016), who derive that the
    field is a gradient.

    Parameters
    ----------
    scan : Scan
        Far-field scan of an area.

    Returns
    -------
    angle : float
        Angle [rad] in (-π/2, π/2].
    transposed : bool
        Whether y and x are exchanged first.


    Raises
    ------
    ScanError
        For near-field scans and tilted geometries, for fewer than 16 patterns or ones on a line (code
        "scan.too-few-patterns"), and if the field is not a gradient in any orientation ("scan.no-rotation").
    """
    check_deflections(scan)
    return rotation_of_field(*deflections(scan, centre_of_mass(scan)))


def check_deflections(scan: Scan) -> None:
    """Raise ScanError for near-field scans and tilted geometries, whose centres of mass are not deflections."""
    if not scan.is_far_field:
        raise ScanError(
            "The scan is a near-field one; the centres of mass of its patterns are not deflections.",
            code="scan.near-field",
        )
    facing_geometry(scan, "the rotation of a scan")


def deflections(scan: Scan, moments: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return positions (point, yx) and deflections (point, yx) of the patterns that have a centre of mass.

    moments: (pattern, yx) from `centre_of_mass`, NaN if there is none; non-square pixels are taken into account.
    """
    geometry = facing_geometry(scan, "the rotation of a scan")
    sizes = np.ones(2) if geometry is None else np.array(geometry.detector_pixel)
    pixel = pixel_of(scan)
    nonempty = np.isfinite(moments).all(1)
    return scan.positions[nonempty] * (pixel / pixel.mean()), moments[nonempty] * (sizes / sizes.mean())


def rotation_of_field(places: NDArray[np.float64], field: NDArray[np.float64]) -> tuple[float, bool]:
    """Apply `estimate_rotation` to a field (point, yx) at positions `places` (point, yx), each in any unit.

    With the derivatives J = ∂g/∂r and z = (J_yy + J_xx) + i (J_yx - J_xy), J_yx being ∂g_y/∂x, a rotation of the
    positions by θ rotates z by -θ: its real part is the divergence, its imaginary part the curl. Σ Im(z exp(-iθ))² is
    smallest at θ = ½ arg Σ z².
    """
    angle, transposed, _ = least_curl(weighted_gradients(places, field), float(field.std()))
    return angle, transposed


def weighted_gradients(places: NDArray[np.float64], field: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return `local_gradients` times the square roots of their weights.

    Raises ScanError for too few positions, or positions on a line.
    """
    if len(places) < FEWEST_PATTERNS or np.linalg.matrix_rank(places - places.mean(0), tol=1e-6 * np.ptp(places)) < 2:
        raise ScanError(
            f"The rotation cannot be found from {len(places)} patterns with counts that are on a line or fewer than "
            f"{FEWEST_PATTERNS}; expected a scan of an area.",
            code="scan.too-few-patterns",
        )
    derivatives, weights = local_gradients(places, field)
    return derivatives * np.sqrt(weights)[:, None, None]


def least_curl(derivatives: NDArray[np.float64], spread: float) -> tuple[float, bool, float]:
    """Return the angle, whether y and x are exchanged, and the remaining fraction of curl; see `rotation_of_field`.

    derivatives: from `weighted_gradients`. spread: standard deviation of the field [detector pixels], for the message.
    Raises ScanError if the field is not a gradient in any orientation.
    """
    candidates = []
    for transposed in (False, True):
        z = divergence_and_curl(derivatives[:, :, ::-1] if transposed else derivatives)
        angle = float(np.angle((z**2).sum()) / 2)
        candidates.append((curl_of(derivatives, angle, transposed), angle, transposed))
    curl, angle, transposed = min(candidates)
    if not derivatives.any() or curl > MOST_CURL:
        raise ScanError(
            f"The centres of mass of the patterns vary by {spread:.3g} pixels and are not a gradient in any "
            "orientation (noise, or an object without phase); more counts, or patterns centred on the beam, may help.",
            code="scan.no-rotation",
        )
    return (angle if angle > -math.pi / 2 else math.pi / 2), transposed, curl


def curl_of(derivatives: NDArray[np.float64], angle: float, transposed: bool) -> float:
    """Return the fraction of the field's variation that is curl in this orientation."""
    z = divergence_and_curl(derivatives[:, :, ::-1] if transposed else derivatives)
    curl = float((np.imag(z * np.exp(-1j * angle)) ** 2).sum())
    return curl / max(float((np.abs(derivatives) ** 2).sum()), 1e-300)


def divergence_and_curl(jacobian: NDArray[np.float64]) -> NDArray[np.complex128]:
    """Return z (point,) of `rotation_of_field` from derivatives (point, yx of the field, yx of the position)."""
    z: NDArray[np.complex128] = jacobian[:, 0, 0] + jacobian[:, 1, 1] + 1j * (jacobian[:, 0, 1] - jacobian[:, 1, 0])
    return z


def local_gradients(
    places: NDArray[np.float64], field: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return ∂field_i/∂place_j (point, i, j) at each point by least squares from neighbours, and weights (point,).

    Neighbours share an edge of the Delaunay triangulation, which also suits rasters with unequal steps. The difference
    along an edge of length d has the same noise for all edges, and an error from curvature that grows as d²; its weight
    is 1 / (1 + (d / d₀)⁴) with the median length d₀. The weight of a point is the inverse variance of the gradient, 0
    if the gradient is not determined.
    """
    triangles = Delaunay(places).simplices
    sides = np.concatenate([triangles[:, pair] for pair in ([0, 1], [1, 2], [2, 0])])
    start, end = np.unique(np.sort(sides, axis=1), axis=0).T
    step, change = places[end] - places[start], field[end] - field[start]
    squared = (step**2).sum(1, keepdims=True)
    weighted = step / (1 + (squared / np.median(squared)) ** 2)
    squares, products = np.zeros((2, len(places), 2, 2))
    for side in (start, end):
        np.add.at(squares, side, weighted[:, :, None] * step[:, None, :])
        np.add.at(products, side, weighted[:, :, None] * change[:, None, :])
    gradients = np.swapaxes(np.linalg.pinv(squares, rcond=1e-6, hermitian=True) @ products, 1, 2)
    trace = np.trace(squares, axis1=1, axis2=2)
    weights = np.maximum(np.linalg.det(squares), 0) / np.where(trace > 0, trace, 1)
    return gradients, weights
