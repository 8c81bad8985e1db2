"""Splitting a scan into two halves that each cover the object, for a Fourier ring correlation between them."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from ptynb.data.patterns import SelectedFrames
from ptynb.data.scan import Scan
from ptynb.exceptions import ScanError

NEIGHBOURS = 8
"""Nearest positions that a position looks at: those around it in a raster."""


def split_scan(scan: Scan) -> tuple[Scan, Scan]:
    """Two scans with half of the patterns each, so that neighbours lie in different ones: a checkerboard of a raster.

    Each half covers the object at half the density. Positions, mask, geometry and first guesses stay as they are; the
    two reconstructions may begin at different pixels, which their origins tell. No pattern is read.

    Raises ScanError where the scan has fewer than two patterns, and where the positions are so far apart that a half
    does not hang together.
    """
    if len(scan) < 2:
        raise ScanError(
            f"The scan has {len(scan)} pattern; expected at least 2 to split it into halves.",
            code="scan.too-few-patterns",
        )
    second = in_second_half(scan.positions)
    one, other = (
        dataclasses.replace(
            scan,
            frames=SelectedFrames.of(scan.frames, indices),
            positions=scan.positions[indices],
            name=f"{scan.name}, half {number} of 2",
        )
        for number, indices in enumerate((np.flatnonzero(~second), np.flatnonzero(second)), start=1)
    )
    return one, other


def in_second_half(positions: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which positions (pattern, yx) belong to the second half: (pattern,) bool; the halves differ by at most one.

    In their order, each position goes where it has less weight of neighbours already, a neighbour's weight being the
    inverse fourth power of its distance. At last the larger half gives up what fits there least. The parity of the
    index alone would make stripes of a raster with an even number of columns.
    """
    count = len(positions)
    distances, indices = cKDTree(positions).query(positions, min(NEIGHBOURS, count - 1) + 1)
    # Positions measured twice are nearest of all, and should not divide by 0.
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
