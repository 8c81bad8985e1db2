"""How much object, probe and positions changed in an epoch; computed on rank 0 between two epochs.

All of it is computed on the device, so that the host waits for a GPU only once, when it reads the record of the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ptynb.data.record import Array
from ptynb.physics.model import Model

MOST_PIXELS = 2**20
"""Largest number of pixels, of all slices and modes together, that are compared; of larger arrays every n-th row is.

This limits the memory to 8 MB for each of object and probe (16 MB in double precision), and twice that for a moment.
"""


class StateChanges:
    """Compare object, probe and positions with those at the end of the previous epoch, which are kept for that."""

    def __init__(self, model: Model, area: tuple[slice, slice]) -> None:
        """area: slices (y, x) of the illuminated area of the object."""
        self._model, self._area = model, area
        self._before = self._now()

    @torch.no_grad()
    def take(self) -> Tensor:
        """Return `object_change`, `probe_change` and `position_change` of `Epoch`; NaN where one is not known.

        (3,), float64, on the device.
        """
        before, self._before = self._before, self._now()
        object, probe = (relative_change(before.get(name), self._before[name]) for name in ("object", "probe"))
        start, end = before.get("positions"), self._before["positions"]
        positions = _unknown(end)
        if start is not None and self._model.movers:
            positions = (end - start).square().sum(1).mean().sqrt()
        return torch.stack([object, probe, positions])

    def arrays(self) -> dict[str, Array]:
        """Return copies of the arrays at the beginning of the present epoch, for a checkpoint within it."""
        return {name: values.cpu().numpy().copy() for name, values in self._before.items()}

    def restore(self, arrays: Mapping[str, Array], update: int) -> None:
        """Continue after `update` updates of an epoch that began with these arrays; without them it is not known."""
        now = self._now()
        stored = {name: torch.from_numpy(values).to(now[name]) for name, values in arrays.items() if name in now}
        self._before = now
        if update > 0:
            # After a reconfiguration the arrays have other shapes.
            self._before = {name: values for name, values in stored.items() if values.shape == now[name].shape}

    @torch.no_grad()
    def _now(self) -> dict[str, Tensor]:
        """Return copies of the compared rows of object (state, slice, y, x) and probe (mode, y, x), and positions."""
        model, (rows, columns) = self._model, self._area
        object, probe = model.object, torch.view_as_complex(model.probe.parts)
        states, slices = next(object.parameters()).shape[:2]
        pixels = states * slices * (rows.stop - rows.start) * (columns.stop - columns.start)
        area = slice(rows.start, rows.stop, _step(pixels)), columns
        return {
            "object": torch.stack([object.covered(state, area) for state in range(states)]),
            "probe": probe[:, :: _step(probe.numel())].clone(),
            "positions": model.positions_of(model.all_patterns()).double(),
        }


def _step(pixels: int) -> int:
    """Return the distance of the rows that are compared."""
    return -(-pixels // MOST_PIXELS)


def relative_change(before: Tensor | None, now: Tensor) -> Tensor:
    """Return min over c of ‖now - c before‖ / ‖now‖, c complex, a scalar; NaN if there is nothing to compare with.

    With d = now - before, c - 1 is ⟨before, d⟩ / ‖before‖²: small differences lose no digits.
    """
    if before is None:
        return _unknown(now)
    scale, size = _norm(before), _norm(now)
    moved = now - before
    along = torch.vdot(before.flatten(), moved.flatten()) / scale**2
    change = _norm(moved.addcmul_(before, along.to(moved.dtype), value=-1)) / size
    return torch.where((scale > 0) & (size > 0), change, torch.nan)


def _unknown(like: Tensor) -> Tensor:
    return torch.full((), torch.nan, dtype=torch.float64, device=like.device)


def _norm(values: Tensor) -> Tensor:
    """Return ‖values‖, float64; of the parts, since torch computes absolute values of complex numbers slowly."""
    return torch.linalg.vector_norm(torch.view_as_real(values)).double()
