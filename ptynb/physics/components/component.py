"""Model components: one effect in the forward model, with the parameters that describe it.

A pattern comes about in four steps, and a component takes part in those it overrides:

    shift_positions  where the probe window of each pattern lies in the object
    illuminate       what shines on it: the probe's modes
    exit_wave        the exit waves, before they travel to the detector
    detect           the intensity, before it is compared with the counts

`update_done` brings parameters back to what is allowed after an update. Everything in between is recorded by automatic
differentiation, so a component needs no gradient of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class Batch:
    """One engine's patterns of an update.

    patterns: (pattern,) int64, indices in the whole scan, on the device. May be empty on some engines.
    stored: (…, y, x) counts in the detector's order inside, bad pixels 0, in the type they are held in; not to be
    changed. rows: (pattern,) int64, on the CPU: which of `stored` are the batch's; None: all, in this order.
    dtype: the model's real type.
    total: the sum of a tensor over all engines, on every engine; to be called by all of them.
    global_batch_size: patterns of the batch on all engines together.
    """

    patterns: Tensor
    stored: Tensor
    global_batch_size: int
    dtype: torch.dtype
    total: Callable[[Tensor], Tensor] = lambda tensor: tensor
    rows: Tensor | None = None

    @functools.cached_property
    def frames(self) -> Tensor:
        """The batch's own counts (pattern, y, x), in the type they are held in."""
        return self.stored if self.rows is None else selected(self.stored, self.rows)

    @functools.cached_property
    def counts(self) -> Tensor:
        """The frames in the model's real type."""
        return self.frames.to(self.dtype)

    def __len__(self) -> int:
        return len(self.patterns)


def selected(stored: Tensor, rows: Tensor) -> Tensor:
    """These rows of patterns, where they are held; from memory that a GPU can copy from, into such memory.

    torch selects rows of uint16 on some devices only, so its bits are taken for those of int16.
    """
    bits = stored.view(torch.int16) if stored.dtype == torch.uint16 else stored
    out = torch.empty((len(rows), *bits.shape[1:]), dtype=bits.dtype, device=bits.device, pin_memory=bits.is_pinned())
    return torch.index_select(bits, 0, rows.to(bits.device), out=out).view(stored.dtype)


class ModelComponent(nn.Module):
    """One effect in the forward model; override the steps it takes part in, and leave the others.

    name: of its parameters in the result. rate: step size of its updates, in its parameters' own unit; 0 freezes it.
    rows: names of parameters whose first axis is the pattern; of these only the rows of a batch move.

    Parameters are real: a complex one is kept as its real view (…, 2), since not every backend reduces complex ones.
    They are there from the start, equal on all engines.
    """

    name: str = "piece"
    rate: float = 0.0
    rows: frozenset[str] = frozenset()
    active: bool = True
    """Whether it takes part; a built-in component is inactive, as good as absent, until it is first updated."""

    def shift_positions(self, positions: Tensor, batch: Batch) -> Tensor:
        """Top-left corners of the probe windows (pattern, yx) [pixels of the object's array]."""
        return positions

    def illuminate(self, probes: Tensor, batch: Batch) -> Tensor:
        """What shines on the object: (pattern or 1, mode, y, x) complex, in square roots of counts."""
        return probes

    def exit_wave(self, waves: Tensor, batch: Batch) -> Tensor:
        """Exit waves (pattern, state, mode, y, x), complex."""
        return waves

    def detect(self, intensity: Tensor, batch: Batch) -> Tensor:
        """Intensity (pattern, y, x) [counts], in the order of the detector's pixels inside (FFT order in far field)."""
        return intensity

    def update_done(self) -> None:
        """Called after every update, on all engines, without gradients."""

    def arrays(self) -> dict[str, Tensor]:
        """What a result keeps of it, by name."""
        return {name: parameter.detach() for name, parameter in self.named_parameters()}


STEPS = "shift_positions", "illuminate", "exit_wave", "detect"


def overrides(piece: ModelComponent, step: str) -> bool:
    """Whether this piece has a step of its own."""
    return getattr(type(piece), step) is not getattr(ModelComponent, step)
