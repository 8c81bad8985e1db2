"""Splitting a scan into two halves that each cover the object, for a Fourier ring correlation."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from ptynb.data.patterns import SelectedFrames
from ptynb.data.scan import Scan
from ptynb.exceptions import ScanError

NEIGHBOURS = 8
"""Number of nearest positions that are taken into account: the neighbours in a raster."""


def split_scan(scan: Scan) -> tuple[Scan, Scan]:
    """Split a scan into halves, with neighbouring patterns in different ones: a checkerboard of a raster.

    Each half covers the object at half the density. Positions, mask, geometry and guesses are preserved; the origins of
    the two reconstructed objects may differ. No pattern is read.

    Parameters
    ----------
    scan : Scan
        Scan with at least 2 patterns.

    Returns
    -------
    (Scan, Scan)
        The halves.

    Raises
    ------
    ScanError
        If there are fewer than two patterns (code "scan.too-few-patterns"), or the positions of a half are not
        connected.
    """
    if len(scan) < 2:
        raise ScanError(
            f"The scan has {len(scan)} pattern; splitting requires at least 2.",
            code="scan.too-few-patterns",
        )
    second = in_second_half(scan.positions)
    one, other = (
        dataclasses.replace(
            scan,
            frames=SelectedFrames.of(scan.frames, indices),
            positions=scan.positions[indices],
            motion=None if scan.motion is None else scan.motion[indices],
            name=f"{scan.name}, half {number} of 2",
        )
        for number, indices in enumerate((np.flatnonzero(~second), np.flatnonzero(second)), start=1)
    )
    return one, other


def in_second_half(positions: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which positions (pattern, yx) belong to the second half, (pattern,); the halves differ by at most one.

    One after another, each position joins the half with the smaller total weight among its neighbours, the weight being
    the inverse fourth power of the distance; finally the larger half transfers the positions that fit least. The parity
    of the index would give stripes for a raster with an even number of columns.
    """
    count = len(positions)
    distances, indices = cKDTree(positions).query(positions, min(NEIGHBOURS, count - 1) + 1)
    # Avoids division by 0 for positions measured twice.
    weights = np.maximum(distances / (float(np.median(distances[:, 1:])) or 1.0), 1e-2) ** -4.0
    weights[indices == np.arange(count)[:, None]] = 0
    side = np.zeros(count)
    balance = 0.0
    for here, (weight, neighbours) in enumerate(zip(weights, indices, strict=True)):
        pull = float(weight @ side[neighbours])
        level = abs(pull) < 1e-9 * weight.sum()
        side[here] = -1.0 if (balance if level else pull) > 0 else 1.0
        balance += side[here]
    surplus = int(abs(balance)) // 2
    pulls = (weights * side[indices]).sum(1) * np.sign(balance)
    larger = np.flatnonzero(side == np.sign(balance))
    side[larger[np.argsort(-pulls[larger], kind="stable")[:surplus]]] *= -1
    return side < 0
