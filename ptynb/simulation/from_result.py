"""Simulation of a scan from the object and the probe of a result."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ptynb.analysis.orthogonal_cuts import slice_distance
from ptynb.data.geometry import Geometry, NearField
from ptynb.data.result import Result
from ptynb.data.scan import Scan, check_positions
from ptynb.data.tilted_geometry import TiltedGeometry
from ptynb.exceptions import ScanError
from ptynb.io.scan_identity import geometry_from
from ptynb.simulation.diffraction import simulate_diffraction

Array = NDArray[Any]


def simulate_from_result(
    result: Result,
    positions: ArrayLike | None = None,
    *,
    dose: float | None = None,
    noise: bool = True,
    seed: int = 0,
    guesses: bool = False,
) -> Scan:
    """Simulate a scan from the object, probe and positions of a result, with the object as `scan.ground_truth`.

    Oversampling, point spread function and saturation of the detector are those of the result's settings.

    Parameters
    ----------
    result : Result
        Result of a reconstruction.
    positions : array_like, optional
        Top-left corners (pattern, yx) of the probe windows [pixels of the result's object]; by default those of the
        result, with its pattern intensities, descan, motion, probe variations and tilts.
    dose : float, optional
        Mean counts of a pattern; by default that of the result's probe. The background does not change.
    noise : bool
        Whether counts are drawn from the Poisson distribution.
    seed : int
        Seed of the random numbers.
    guesses : bool
        Whether the object is an initial guess of the scan, too; a reconstruction then begins at the level of the
        noise.

    Returns
    -------
    Scan
        The scan, in memory.

    Raises
    ------
    ScanError
        The geometry is tilted or unknown ("scan.tilted-geometry", "scan.no-geometry"), a probe window lies outside the
        object ("scan.position-outside"), or `guesses` is set for an object of several modes ("argument.conflict").
    """
    own = positions is None
    positions = np.atleast_1d(np.asarray(result.positions if positions is None else positions, dtype=np.float64))
    check_positions(positions, len(positions), result.probe.shape[-2:], result.object, connected=False)
    parameters, detector = result.parameters, result.settings.get("detector", {})
    probe = _probes(result) if own else result.probe
    factor = 1.0 if dose is None else float(np.sqrt(dose / _mean_counts(result, probe, positions)))
    scan = simulate_diffraction(
        result.object,
        factor * probe,
        positions,
        geometry=_geometry(result),
        thickness=slice_distance(result),
        steps=1,
        tilt=_tilt(result, own),
        weights=parameters.get("weights/weights") if own else None,
        descan=parameters.get("descan/shifts") if own else None,
        motion=parameters.get("fly_scan/motion") if own else None,
        motion_steps=int(result.settings.get("fly_scan", {}).get("steps", 1)),
        background=parameters.get("background/background", 0.0),
        oversampling=int(detector.get("oversampling", 1)),
        blur=float(detector.get("psf_sigma", 0.0)),
        saturation=detector.get("saturation"),
        noise=noise,
        seed=seed,
        guess=factor * result.probe,
        name=f"{result.scan.name or 'result'}, simulated",
    )
    if not guesses:
        return scan
    if result.object.ndim == 4:
        raise ScanError(
            f"The object has {len(result.object)} modes and cannot be an initial guess; leave out guesses=True.",
            code="argument.conflict",
        )
    return dataclasses.replace(scan, object=result.object)


def _geometry(result: Result) -> Geometry | NearField | None:
    if result.scan.geometry.get("kind") == "TiltedGeometry":
        raise ScanError(
            "The result has a tilted geometry, which simulation does not support.", code="scan.tilted-geometry"
        )
    geometry = geometry_from(result.scan.geometry)
    assert not isinstance(geometry, TiltedGeometry)
    if geometry is None and not result.scan.is_far_field:
        raise ScanError("The result is of a near-field scan and contains no geometry.", code="scan.no-geometry")
    return geometry


def _tilt(result: Result, own: bool) -> Array:
    """Return the tilt of the beam [rad], (yx) or (pattern, yx); for other positions the mean."""
    settings = result.settings.get("tilt", {})
    angles = np.asarray(result.parameters.get("tilt/angles", [[settings.get("y", 0.0), settings.get("x", 0.0)]]))
    return angles if own and len(angles) > 1 else angles.mean(0)


def _probes(result: Result) -> Array:
    """Return the probe (mode, y, x), or (pattern, mode, y, x) if its first mode varies."""
    ways, shares = (result.parameters.get(f"variations/{name}") for name in ("ways", "coefficients"))
    if ways is None or shares is None:
        return result.probe
    probes = np.repeat(result.probe[None], len(result.positions), axis=0)
    probes[:, 0] += np.einsum("pr,ryx->pyx", shares, ways)
    return probes


def _mean_counts(result: Result, probe: Array, positions: NDArray[np.float64]) -> float:
    """Return the mean counts of a pattern without background; propagation to the detector conserves energy."""
    power = (np.abs(probe) ** 2).sum(-3)
    power = power if power.ndim == 3 else power[None]
    transmission = np.abs(result.projection) ** 2
    height, width = result.probe.shape[-2:]
    sums = [
        float((power[index % len(power)] * transmission[y : y + height, x : x + width]).sum())
        for index, (y, x) in enumerate(np.rint(positions).astype(int))
    ]
    return float(np.mean(sums))
