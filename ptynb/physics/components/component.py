"""Base class of model components: each is one effect in the forward model, with its parameters.

The forward model has four steps; a component takes part in those that it overrides:

    shift_positions  positions of the probe windows in the object
    illuminate       probe modes that illuminate the object
    exit_wave        exit waves, before propagation to the detector
    detect           intensity, before comparison with the counts

`update_done` restricts parameters to their allowed range after an update. Gradients are computed by automatic
differentiation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class Batch:
    """The patterns of an update that one engine processes.

    patterns: (pattern,) int64, indices in the whole scan, on the device. May be empty on some engines.
    stored: (…, y, x) counts in the model's pixel order, bad pixels 0, in the stored type; read-only.
    rows: (pattern,) int64, on the device of `stored`: the batch's patterns in it; None: all, in this order.
    dtype: real type of the model.
    total: collective call that sums a tensor over all engines and returns the sum on every engine.
    global_batch_size: number of patterns of the batch on all engines together.
    """

    patterns: Tensor
    stored: Tensor
    global_batch_size: int
    dtype: torch.dtype
    total: Callable[[Tensor], Tensor] = lambda tensor: tensor
    rows: Tensor | None = None

    @functools.cached_property
    def frames(self) -> Tensor:
        """Counts of the batch (pattern, y, x), in the stored type."""
        return self.stored if self.rows is None else selected(self.stored, self.rows)

    @functools.cached_property
    def counts(self) -> Tensor:
        """Counts of the batch in the model's real type."""
        return self.frames.to(self.dtype)

    def __len__(self) -> int:
        return len(self.patterns)


def pinned(values: Tensor, device: torch.device) -> Tensor:
    """Return a tensor of host memory from which a copy to this device does not wait for earlier work of the GPU."""
    return values.pin_memory() if device.type == "cuda" else values


def copied_to(values: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor from host memory to the device, on a GPU without waiting for the copy."""
    return pinned(values, device).to(device, non_blocking=True)


def selected(stored: Tensor, rows: Tensor, out: Tensor | None = None) -> Tensor:
    """Return these rows of `stored`, on its device. out: memory for them, of its type.

    torch selects rows of uint16 on some devices only, so they are viewed as int16.
    """
    dtype = torch.int16 if stored.dtype == torch.uint16 else stored.dtype
    into = None if out is None else out.view(dtype)
    return torch.index_select(stored.view(dtype), 0, rows, out=into).view(stored.dtype)


class ModelComponent(nn.Module):
    """Base class of the components of the forward model: one effect, with its parameters.

    A subclass overrides the steps that it takes part in. Its parameters are real: a complex one is stored as its real
    view (…, 2), since not every backend reduces complex tensors. They are created in the constructor, equal on all
    engines.

    Attributes
    ----------
    name : str
        Name under which the result stores its parameters.
    rate : float
        Step size of its updates, in the unit of its parameters; 0 freezes them.
    rows : frozenset of str
        Names of parameters whose first axis is the pattern; an update changes only the rows of its batch.
    active : bool
        Whether it takes part. A built-in component is inactive until it is first updated.
    admitted : Tensor or None
        Indices (pattern,) of the patterns that are there, while a scan is measured; None: all are.
    recordable : bool
        Whether an update that contains a user's component may be recorded as a CUDA graph, which is faster for small
        batches: its steps never read a tensor on the host, and depend on nothing that changes but tensors on the device
        that are changed in place. Numbers and other attributes that they read would stay as they were. Built-in
        components do not need it.
    """

    name: str = "piece"
    rate: float = 0.0
    rows: frozenset[str] = frozenset()
    active: bool = True
    admitted: Tensor | None = None
    recordable: bool = False

    def __init__(self) -> None:
        super().__init__()

    def shift_positions(self, positions: Tensor, batch: Batch) -> Tensor:
        """Return the positions of the probe windows.

        Parameters
        ----------
        positions : Tensor
            Top-left corners (pattern, yx) [object pixels], float64.
        batch : Batch
            The patterns, of which there may be none.

        Returns
        -------
        Tensor
            Shifted positions (pattern, yx), differentiable.
        """
        return positions

    def illuminate(self, probes: Tensor, batch: Batch) -> Tensor:
        """Return the probe modes that illuminate the object.

        Parameters
        ----------
        probes : Tensor
            Probe modes (1 or pattern, mode, y, x), complex [square roots of counts].
        batch : Batch
            The patterns, of which there may be none.

        Returns
        -------
        Tensor
            Probe modes (1 or pattern, mode, y, x).
        """
        return probes

    def exit_wave(self, waves: Tensor, batch: Batch) -> Tensor:
        """Return the exit waves, before they are propagated to the detector.

        Parameters
        ----------
        waves : Tensor
            Exit waves (pattern, object mode, probe mode, y, x), complex.
        batch : Batch
            The patterns, of which there may be none.

        Returns
        -------
        Tensor
            Exit waves of the same shape.
        """
        return waves

    def detect(self, intensity: Tensor, batch: Batch) -> Tensor:
        """Return the recorded intensity, before it is compared with the counts.

        Parameters
        ----------
        intensity : Tensor
            Intensity (pattern, y, x) [counts]; in the far field in FFT order.
        batch : Batch
            The patterns, of which there may be none.

        Returns
        -------
        Tensor
            Intensity (pattern, y, x) [counts].
        """
        return intensity

    def update_done(self) -> None:
        """Restrict parameters to their allowed range, after every update, on all engines, without gradients."""

    def arrays(self) -> dict[str, Tensor]:
        """Return what the result stores of this component.

        Returns
        -------
        dict of str to Tensor
            Arrays by name.
        """
        return {name: parameter.detach() for name, parameter in self.named_parameters()}


STEPS = "shift_positions", "illuminate", "exit_wave", "detect"


def overrides(component: ModelComponent, step: str) -> bool:
    """Whether this component overrides a step."""
    return getattr(type(component), step) is not getattr(ModelComponent, step)
