"""Local SGD: engines make some updates independently, and then average their parameters.

Each engine steps with its own part of every batch. After `Settings.sync_every` updates, parameters and the
optimisers' moments become means over engines, weighted with the patterns that each has processed since the last
average: Stich, arXiv:1805.09767. The result is NOT that of one engine, which only `sync_every=1` gives: gradients are
those of smaller batches, at different parameters. (One step of plain SGD between two averages is the exception.)

Rows of parameters that belong to a pattern (its position, its weight) are taken from the engine that holds it.

Only the part of the object that some engine's windows covered since the last average is sent; elsewhere it is equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptynb.distributed.group import Group
from ptynb.optimize.active_tiles import Region, region
from ptynb.optimize.optimizers import COUNTERS
from ptynb.physics.model import Model

MESSAGE_BYTES = 2**25
"""Tensors are sent together up to this size, so the memory for messages is this or that of the largest one."""


@dataclass(eq=False)
class _Part:
    """The part of one tensor that is sent: its region, or all of it. scale: one factor (), or one for each row."""

    values: Tensor
    scale: Tensor
    region: Region | None
    parts: int

    @property
    def numbers(self) -> int:
        return self.values.numel() if self.region is None else self.region.numbers(self.values)

    def pack(self, message: Tensor) -> None:
        if self.region is None:
            message.view(self.values.shape).copy_(self.values).mul_(self.scale)
        else:
            self.region.pack(self.values, self.parts, message)
            message.mul_(self.scale)

    def unpack(self, message: Tensor) -> None:
        if self.region is None:
            self.values.copy_(message.view(self.values.shape))
        else:
            self.region.unpack(message, self.values, self.parts)


@final
@dataclass(eq=False)
class Averages:
    """Record of the updates since engines were last equal, and the average that makes them equal.

    own: this engine's patterns. updates: since the last average. covered: patterns processed since then, by rank.
    tiles: those that this engine's windows have covered since then; None: all. sent_bytes: size of all messages.
    """

    group: Group
    model: Model
    optimisers: list[torch.optim.Optimizer]
    own: NDArray[np.int64]
    updates: int = 0
    sent_bytes: int = 0
    covered: NDArray[np.int64] = field(init=False)
    tiles: NDArray[np.bool_] | None = field(init=False, default=None)
    _message: Tensor | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.covered = np.zeros(self.group.world, dtype=np.int64)

    def note(self, counts: list[int], tiles: NDArray[np.bool_] | None) -> None:
        """Record an update. counts: its patterns on each rank. tiles: those that it changes here; None: all."""
        if self.updates == 0:
            self.tiles = tiles
        else:
            self.tiles = None if self.tiles is None or tiles is None else self.tiles | tiles
        self.updates += 1
        self.covered += counts

    @property
    def equal(self) -> bool:
        """Whether the engines have equal parameters."""
        return self.updates == 0

    @torch.no_grad()
    def settle(self) -> None:
        """Average parameters and moments over engines, if they differ. Collective: call it on all of them."""
        if self.updates == 0:
            return
        together: list[_Part] = []
        size = 0
        for part in self._parts(self._region()):
            nbytes = part.numbers * part.values.element_size()
            if together and (size + nbytes > MESSAGE_BYTES or part.values.dtype != together[0].values.dtype):
                self._send(together)
                together, size = [], 0
            together.append(part)
            size += nbytes
        self._send(together)  # not empty: there is at least an object and a probe
        self.updates = 0
        self.covered[:] = 0

    def _region(self) -> Region | None:
        """Return the region that any engine has changed; positions, and so windows, may differ between engines."""
        if self.tiles is None:
            return None
        touched = self.group.sum(torch.from_numpy(self.tiles.astype(np.int32)).to(self.group.device))
        return region(touched.cpu().numpy() > 0, self.model)

    def _parts(self, touched: Region | None) -> Iterator[_Part]:
        """Yield parameters and moments, in the same order on all engines."""
        share = float(self.covered[self.group.rank] / self.covered.sum())
        states = {
            parameter: state for optimiser in self.optimisers for parameter, state in optimiser.state.items() if state
        }
        for piece in self.model.components.values():
            of_object = piece is self.model.object
            for name, parameter in piece.named_parameters():
                state = states.get(parameter, {})
                moments = [state[key] for key in sorted(state) if key not in COUNTERS]
                for values in (parameter.data, *(moment for moment in moments if isinstance(moment, Tensor))):
                    scale = self._owned(values) if name in piece.rows else values.new_tensor(share)
                    yield _Part(values, scale, touched if of_object else None, 1 if self.model.object.polar else 2)

    def _owned(self, values: Tensor) -> Tensor:
        owned = torch.zeros(len(values), dtype=values.dtype, device=values.device)
        owned[torch.from_numpy(self.own).to(values.device)] = 1
        return owned.view(-1, *[1] * (values.ndim - 1))

    def _send(self, parts: list[_Part]) -> None:
        sizes, dtype = [part.numbers for part in parts], parts[0].values.dtype
        count = sum(sizes)
        if self._message is None or len(self._message) < count or self._message.dtype != dtype:
            self._message = parts[0].values.new_empty(count)
        message = self._message[:count]
        for part, piece in zip(parts, message.split(sizes), strict=True):
            part.pack(piece)
        self.sent_bytes += message.nbytes
        self.group.sum(message)
        for part, piece in zip(parts, message.split(sizes), strict=True):
            part.unpack(piece)
