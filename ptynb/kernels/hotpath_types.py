"""What the hot path is given: two records that travel together through all of it."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Illumination(NamedTuple):
    """What a batch's patterns are lit by, and where.

    object: (state, slice, y, x), complex. window_origins: of the windows (pattern, yx), int64, on the CPU.
    probes: before they are moved, (pattern or 1, mode, y, x), complex. shifts: (pattern, yx) [pixels].
    kernel: (y, x) or (pattern, y, x), from `propagate.angular_spectrum_kernel`; needed for more than one slice.
    """

    object: Tensor
    window_origins: Tensor
    probes: Tensor
    shifts: Tensor
    kernel: Tensor | None = None


class Detection(NamedTuple):
    """What the detector saw of them, and how.

    stored, rows: as of a `Batch`. mask: (y, x), 0 or 1; None: 1. floor, damping: ε and δ of `losses.AmplitudeLoss`
    [counts].
    weights: w (pattern,); None: 1. background: B (y, x) [counts]; None: 0.
    """

    stored: Tensor
    rows: Tensor | None = None
    mask: Tensor | None = None
    floor: float = 0.0
    weights: Tensor | None = None
    background: Tensor | None = None
    damping: float = 0.0
