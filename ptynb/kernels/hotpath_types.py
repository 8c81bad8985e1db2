"""The two input records of the hot path: illumination and detection."""

from __future__ import annotations

from typing import Literal, NamedTuple

from torch import Tensor


class Illumination(NamedTuple):
    """Object, probes and window origins of a batch.

    object: (state, slice, y, x), complex. window_origins: top-left corners (pattern, yx), int64.
    probes: before their subpixel shifts, (pattern or 1, mode, y, x), complex. shifts: (pattern, yx) [pixels].
    kernel: (y, x) or (pattern, y, x), from `propagation.angular_spectrum_kernel`; needed for more than one slice.
    propagator: (y, x), from the same function, to a detector in the near field; None: the far field.
    """

    object: Tensor
    window_origins: Tensor
    probes: Tensor
    shifts: Tensor
    kernel: Tensor | None = None
    propagator: Tensor | None = None


class Detection(NamedTuple):
    """Measured counts of a batch, and parameters of the comparison with the model.

    stored, rows: as in `Batch`. mask: (y, x), 0 or 1; None: all 1. floor, damping: ε and δ of `losses.AmplitudeLoss`
    [counts]. weights: w (pattern,); None: all 1. background: B (y, x) [counts]; None: 0. loss: the name of the loss;
    the others have no damping, and "intensity" is for a GPU only.
    """

    stored: Tensor
    rows: Tensor | None = None
    mask: Tensor | None = None
    floor: float = 0.0
    weights: Tensor | None = None
    background: Tensor | None = None
    damping: float = 0.0
    loss: Literal["amplitude", "poisson", "intensity"] = "amplitude"
