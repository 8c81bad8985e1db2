"""Shadows among patterns that are taken for far-field ones: they move on the detector as the sample does.

A diffraction pattern of the far field changes with the position, but does not move. A shadow of the near field moves,
by the same number of pixels for each metre everywhere. A defocused probe in the far field makes shadows too, inside
the cone of its beam; there both descriptions are possible, so that only patterns that are bright up to the corners of
the detector are taken for the near field.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from ptynb.data.patterns import Frames

PAIRS = 8
"""Number of pairs of neighbouring positions that are compared."""
FEWEST_PATTERNS = 6
"""Smallest number of patterns whose mean is the beam without the sample."""
MOST_BYTES = 2**30
"""Limit of the bytes of chunks that are unpacked."""
SMALLEST_SIDE = 16
"""Patterns with a smaller side have too few pixels for a correlation peak."""
LARGEST_SIDE = 512
"""Patterns are binned to at most this side [pixels], which is enough to find a motion of some pixels."""
DARK_CORNER = 0.1
"""Intensity of a corner, relative to the mean, below which the beam does not fill the detector."""
LEAST_CORRELATION = 0.1
"""Height of a correlation peak; that of unrelated patterns of 64 x 64 pixels is 0.06 at most."""
LEAST_MOTION = 1.5
"""Motion [pixels] below which a peak may be that of two patterns at the same place on the detector."""
MOST_DEVIATION = 1.5, 0.1
"""Deviation of a motion from proportionality [pixels, and relative to the motion]."""
AGREEING = 0.75
"""Part of the pairs whose motion has to be proportional to the change of position."""


def shadow_motion(
    frames: Frames, positions: NDArray[np.float64], mask: NDArray[np.bool_] | None = None
) -> float | None:
    """Return by how many detector pixels patterns move for a metre on the sample; None if they are not shadows.

    Up to 16 patterns are read, none if that takes long. positions: (pattern, yx) [m]. mask: (y, x), True where the
    detector works.
    """
    count, height, width = frames.shape
    if positions.shape != (count, 2) or not np.isfinite(positions).all() or min(height, width) < SMALLEST_SIDE:
        return None
    pairs = _neighbours(positions)
    indices = sorted({int(index) for pair in pairs for index in pair})
    # One pattern is read at the cost of a chunk.
    cost = frames.stored_together * frames.nbytes // count
    if len(indices) < FEWEST_PATTERNS or len(indices) * cost > MOST_BYTES:
        return None
    factor = -(-max(frames.shape[1:]) // LARGEST_SIDE)
    patterns = {index: _binned(_counts(frames, index, mask), factor) for index in indices}
    beam = np.mean([*patterns.values()], axis=0)
    if not _fills_detector(beam):
        return None
    contrast = {index: _contrast(pattern, beam) for index, pattern in patterns.items()}
    peaks = [_motion(contrast[first], contrast[second]) for first, second in pairs]
    motions = factor * np.array([motion for motion, _ in peaks])
    steps = np.array([positions[second] - positions[first] for first, second in pairs])
    clear = np.array([height >= LEAST_CORRELATION for _, height in peaks])
    clear &= np.linalg.norm(motions, axis=1) >= max(LEAST_MOTION, factor)
    if clear.sum() < AGREEING * len(pairs):
        return None
    # The median resists single wrong peaks. The shadow of the sample moves against the probe.
    ratios = -(motions * steps).sum(1)[clear] / (steps**2).sum(1)[clear]
    scale = float(np.median(ratios))
    deviation = np.linalg.norm(motions + scale * steps, axis=1)
    allowed = np.maximum(factor * MOST_DEVIATION[0], MOST_DEVIATION[1] * np.linalg.norm(motions, axis=1))
    agreeing = clear & (deviation <= allowed)
    if scale <= 0 or agreeing.sum() < AGREEING * len(pairs):
        return None
    return float(-(motions * steps).sum(1)[agreeing].sum() / (steps**2).sum(1)[agreeing].sum())


def _counts(frames: Frames, index: int, mask: NDArray[np.bool_] | None) -> NDArray[np.float64]:
    """Return a pattern with bad, negative and non-finite counts set to 0."""
    counts = frames.read(index, index + 1)[0].astype(np.float64)
    good = np.isfinite(counts) if mask is None else np.isfinite(counts) & mask
    return np.maximum(np.where(good, counts, 0.0), 0.0)


def _neighbours(positions: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Return pairs of different neighbouring positions, spread over the scan."""
    places, first = np.unique(positions, axis=0, return_index=True)
    if len(places) < 2:
        return []
    nearest = cKDTree(places).query(places, k=2)[1][:, 1]
    spread = np.unique(np.linspace(0, len(places) - 1, PAIRS).astype(int))
    return [(int(first[one]), int(first[nearest[one]])) for one in spread]


def _binned(pattern: NDArray[np.float64], factor: int) -> NDArray[np.float64]:
    height, width = (side // factor for side in pattern.shape)
    cut = pattern[: height * factor, : width * factor]
    return cut.reshape(height, factor, width, factor).mean((1, 3))


def _fills_detector(beam: NDArray[np.float64]) -> bool:
    """Whether all four corners, an eighth of each side, are bright."""
    height, width = (max(2, side // 8) for side in beam.shape)
    ends = ((slice(height), slice(-height, None)), (slice(width), slice(-width, None)))
    corners = [beam[rows, columns].mean() for rows in ends[0] for columns in ends[1]]
    return bool(min(corners) > DARK_CORNER * beam.mean() > 0)


def _contrast(pattern: NDArray[np.float64], beam: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the difference from the beam in units of its noise, so that dim pixels do not dominate."""
    lit = beam > 0.01 * beam.mean()
    relative = pattern * (beam.sum() / max(pattern.sum(), np.finfo(float).tiny)) - beam
    return np.where(lit, relative / np.sqrt(np.where(lit, beam, 1.0)), 0.0)


def _motion(first: NDArray[np.float64], second: NDArray[np.float64]) -> tuple[tuple[float, float], float]:
    """Return by how many pixels (y, x) the second image is shifted, and the height of its correlation peak."""
    product = np.fft.rfft2(second) * np.conj(np.fft.rfft2(first))
    correlation = np.fft.irfft2(product, s=first.shape)
    norm = float(np.sqrt((first**2).sum() * (second**2).sum()))
    peak = np.unravel_index(int(correlation.argmax()), correlation.shape)
    y, x = ((int(at) + side // 2) % side - side // 2 for at, side in zip(peak, first.shape, strict=True))
    return (float(y), float(x)), float(correlation.max()) / norm if norm > 0 else 0.0
