"""The part of the object that windows cover, in whole blocks, and its packing into messages for other engines.

The bounding box of a batch that is spread over the scan is the whole object, its blocks are not: 16 windows of
256 x 256 in 4096 x 4096 pixels touch a tenth of them. For neighbouring windows the blocks are nearly the bounding box.
Therefore bounding boxes are not used at all.

On a GPU the host must not wait for positions that move. Optimisers of rows move a position only in the update of its
pattern, once an epoch; what moves all positions together, moves them by a bounded distance in an update of Adam. So
positions are copied to the host once an epoch, and a margin covers what has happened since.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptynb.optimize.optimizers import Adam, RowAdam
from ptynb.physics.components.builtin import Affine, Offset, Positions
from ptynb.physics.components.component import Batch, ModelComponent, copied_to
from ptynb.physics.model import Model

BLOCK = 32
"""Side of a block [pixels]. Blocks of 32 enlarge the area of windows of 256 x 256 by 1.26, blocks of 64 by 1.53."""
MOST = 0.75
"""If windows cover more than this fraction of the object, all of it is sent, which needs no packing."""
SAVED_BYTES = 2**21
"""If packing saves fewer bytes, the whole object is sent; for objects smaller than this, blocks are not computed.

Computing the blocks is expensive, not packing: an update of 2 CPU engines (4 to 7 ms) took 1.11 to 1.26 times as long
with blocks computed and not used, for objects of 0.3 and 1.1 MiB, 1.01 to 1.25 with them used; 0.78 for one of 4.5 MiB.
Repeated measurements of the same code had ratios of 0.96 to 1.06.
"""


@dataclass(frozen=True, eq=False)
class Region:
    """A region of a plane of this shape (y, x): the blocks (block y, block x) that are True."""

    shape: tuple[int, int]
    blocks: NDArray[np.bool_]
    _indices: dict[torch.device, Tensor] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def rectangles(self) -> list[tuple[int, int, int, int]]:
        """The region as disjoint rectangles (top, bottom, left, right) [pixels].

        Each is a run of blocks in a row, merged with equal runs in the rows that follow.
        """
        complete, growing = list[tuple[int, int, int, int]](), dict[tuple[int, int], tuple[int, int]]()
        edges = np.argwhere(np.diff(self.blocks, prepend=False, append=False))
        for row, first, end in zip(*edges.reshape(-1, 4)[:, [0, 1, 3]].T.tolist(), strict=True):
            top, bottom = growing.pop((first, end), (row, row))
            if bottom < row:
                complete.append(self._pixels(top, bottom, first, end))
                top = row
            growing[first, end] = top, row + 1
        return complete + [self._pixels(*rows, *columns) for columns, rows in growing.items()]

    @cached_property
    def pixels(self) -> int:
        """Number of pixels in the region."""
        heights, widths = (np.minimum(BLOCK, side - BLOCK * np.arange(-(-side // BLOCK))) for side in self.shape)
        return int(heights @ self.blocks.astype(np.int64) @ widths)

    def numbers(self, values: Tensor) -> int:
        """Return how many numbers `pack` copies from a tensor of this size."""
        return self.pixels * (values.numel() // (self.shape[0] * self.shape[1]))

    def pack(self, values: Tensor, parts: int, message: Tensor, on_gpu: bool | None = None) -> None:
        """Copy the values inside the region to the flat tensor `message`.

        values: real (…, y, x, part), or (…, y, x) if parts is 1; contiguous. on_gpu: overrides, for tests, whether to
        pack as on a GPU.
        """
        planes = values.view(-1, *self.shape, parts)
        if _by_index(values, on_gpu):
            # A single kernel instead of one for each rectangle.
            index = self._index(values.device)
            torch.index_select(planes.flatten(1, 2), 1, index, out=message.view(len(planes), -1, parts))
            return
        for part, (top, bottom, left, right) in self._parts(planes, message):
            part.copy_(planes[:, top:bottom, left:right])

    def unpack(self, message: Tensor, values: Tensor, parts: int, on_gpu: bool | None = None) -> None:
        """Copy a message of `pack` back into `values`; values outside the region are unchanged."""
        planes = values.view(-1, *self.shape, parts)
        if _by_index(values, on_gpu):
            index = self._index(values.device)
            planes.flatten(1, 2).index_copy_(1, index, message.view(len(planes), -1, parts))
            return
        for part, (top, bottom, left, right) in self._parts(planes, message):
            planes[:, top:bottom, left:right].copy_(part)

    def _parts(self, planes: Tensor, message: Tensor) -> list[tuple[Tensor, tuple[int, int, int, int]]]:
        """Return views (layer, y, x, part) of the message for each rectangle, with the rectangle."""
        shapes = [(len(planes), r[1] - r[0], r[3] - r[2], planes.shape[-1]) for r in self.rectangles]
        pieces = message.split([int(np.prod(shape)) for shape in shapes])
        return [
            (piece.view(shape), rectangle)
            for piece, shape, rectangle in zip(pieces, shapes, self.rectangles, strict=True)
        ]

    @cached_property
    def _block_origins(self) -> tuple[list[tuple[int, int, int]], NDArray[np.int64]]:
        """Flat indices of the blocks' first pixels, those of each size together, with (number, height, width) of each.

        Blocks at the lower and right edge may be smaller.
        """
        sizes, origins = list[tuple[int, int, int]](), list[NDArray[np.int64]]()
        (rows, height), (columns, width) = ((-(-side // BLOCK), (side - 1) % BLOCK + 1) for side in self.shape)
        for along_y, block_height in ((slice(rows - 1), BLOCK), (slice(rows - 1, rows), height)):
            for along_x, block_width in ((slice(columns - 1), BLOCK), (slice(columns - 1, columns), width)):
                y, x = np.nonzero(self.blocks[along_y, along_x])
                origins.append(((y + (along_y.start or 0)) * self.shape[1] + x + (along_x.start or 0)) * BLOCK)
                sizes.append((len(y), block_height, block_width))
        return sizes, np.concatenate(origins)

    def _index(self, device: torch.device) -> Tensor:
        """Return flat indices of the region's pixels, kept for further calls.

        Only one number a block is sent to the device: the indices of 64 windows of 256 x 256 pixels, made on the host,
        took 0.5 s and 37 MB.
        """
        found = self._indices.get(device)
        if found is None:
            sizes, origins = self._block_origins
            parts = copied_to(torch.from_numpy(origins), device).split([number for number, _, _ in sizes])
            rows, columns = torch.arange(BLOCK, device=device) * self.shape[1], torch.arange(BLOCK, device=device)
            blocks = [
                (part[:, None, None] + rows[:height, None] + columns[:width]).reshape(-1)
                for part, (number, height, width) in zip(parts, sizes, strict=True)
                if number
            ]
            found = self._indices[device] = (
                torch.cat(blocks) if blocks else torch.zeros(0, dtype=torch.int64, device=device)
            )
        return found

    def _pixels(self, first: int, end: int, left: int, right: int) -> tuple[int, int, int, int]:
        height, width = self.shape
        return first * BLOCK, min(end * BLOCK, height), left * BLOCK, min(right * BLOCK, width)


def touched_blocks(
    window_origins: NDArray[np.int64], window: tuple[int, int], shape: tuple[int, int], margin: int = 0
) -> NDArray[np.bool_]:
    """Return the blocks (block y, block x) of a plane (y, x) that overlap with windows at these corners (pattern, yx).

    margin: uncertainty of the corners [pixels].
    """
    blocks = np.zeros([-(-side // BLOCK) for side in shape], dtype=bool)
    firsts = np.maximum(window_origins - margin, 0) // BLOCK
    ends = np.maximum((window_origins + np.array(window) + margin - 1) // BLOCK + 1, 0)
    for (top, left), (bottom, right) in zip(firsts.tolist(), ends.tolist(), strict=True):
        blocks[top:bottom, left:right] = True
    return blocks


class Windows:
    """Present probe windows of all patterns, which every engine computes itself."""

    def __init__(
        self, model: Model, optimisers: Sequence[torch.optim.Optimizer] = (), on_gpu: bool | None = None
    ) -> None:
        """optimisers: of the model's parameters. on_gpu: overrides, for tests, whether to work as on a GPU."""
        self._model, self._optimisers = model, optimisers
        self._on_gpu = model.initial_positions.device.type != "cpu" if on_gpu is None else on_gpu
        self._fixed: NDArray[np.int64] | None = None
        """Window origins of all patterns while no component moves them."""
        self._copied: tuple[NDArray[np.int64], int] | None = None
        """Window origins of all patterns before an update, and its number."""
        height, width = next(model.object.parameters()).shape[2:4]
        self.shape = (height, width)
        """Size (y, x) of the object [pixels]."""

    @property
    def known(self) -> bool:
        """Whether engines can compute each other's windows: not if a custom component moves any."""
        return all(isinstance(piece, Affine | Positions | Offset) for piece in self._model.movers)

    def forget(self) -> None:
        """Compute windows again when they are next needed.

        Call it where an epoch begins, and rates or positions change: in between every pattern is in one batch at most.
        """
        self._fixed = self._copied = None
        vars(self).pop("_initial", None)

    def blocks(self, patterns: NDArray[np.int64], update: int) -> NDArray[np.bool_]:
        """Return the blocks (block y, block x) that overlap with the windows of these patterns in this update."""
        if not self._model.movers:
            if self._fixed is None:
                self._fixed = self._origins()
            return self._touched(self._fixed[patterns], 0)
        # The rounding of matrix products depends on the number of rows: a corner near .5 may differ between engines.
        if not self._on_gpu:
            return self._touched(self._origins(patterns), 1)
        distance = self._distance()
        if distance is None:
            limits = [mover.limit for mover in self._model.movers if isinstance(mover, Positions)]
            if len(limits) == len(self._model.movers):
                return self._touched(self._initial[patterns], 1 + math.ceil(max(limits)))
            return np.ones([-(-side // BLOCK) for side in self.shape], dtype=bool)
        if self._copied is None:
            self._copied = self._origins(), update
        origins, before = self._copied
        return self._touched(origins[patterns], 2 + math.ceil((update - before) * distance))

    def _touched(self, origins: NDArray[np.int64], margin: int) -> NDArray[np.bool_]:
        return touched_blocks(origins, self._model.window, self.shape, margin)

    @torch.no_grad()
    def _origins(self, patterns: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Return the present window origins of these patterns, or of all, on the host."""
        start = self._model.initial_positions
        patterns = np.arange(len(start)) if patterns is None else patterns
        batch = Batch(copied_to(torch.from_numpy(patterns), start.device), start[:0], len(patterns), start.dtype)
        origins: NDArray[np.int64] = self._model.window_origins_and_shifts(batch)[0].cpu().numpy()
        return origins

    @cached_property
    def _initial(self) -> NDArray[np.int64]:
        """Window origins of all patterns at their initial positions."""
        origins: NDArray[np.int64] = self._model.initial_positions.round().to(torch.int64).cpu().numpy()
        return origins

    def _distance(self) -> float | None:
        """Return how far an update moves windows of other patterns than its own, at most [pixels]; None: unknown."""
        distance = 0.0
        for mover in self._model.movers:
            for parameter in mover.parameters():
                optimiser, group = self._optimiser_of(parameter)
                if isinstance(optimiser, RowAdam) or not parameter.requires_grad:
                    continue
                if not isinstance(optimiser, Adam):
                    return None
                distance += group["lr"] * largest_step(*group["betas"]) * self._lever(mover)
        return distance

    def _lever(self, mover: ModelComponent) -> float:
        """Return how far a step of 1 in each parameter of a component moves a window along y or x, at most [pixels]."""
        if not isinstance(mover, Affine):
            return 1.0
        limit = max((other.limit for other in self._model.movers if isinstance(other, Positions)), default=0.0)
        # Positions lie within the radius of the scan from its centre, and as far beyond it as they may move.
        return math.sqrt(2) * (1 + math.sqrt(2) * limit / mover.radius)

    def _optimiser_of(self, parameter: Tensor) -> tuple[torch.optim.Optimizer | None, dict[str, Any]]:
        for optimiser in self._optimisers:
            for group in optimiser.param_groups:
                if any(one is parameter for one in group["params"]):
                    return optimiser, group
        return None, {}


def largest_step(beta: float, beta_of_squares: float) -> float:
    """Return the largest step of Adam, in units of the learning rate.

    With b, c of the moments, and by Cauchy and Schwarz, (Σ (1-b) b^k g_k)² ≤ Σ (1-c) c^k g_k² Σ ((1-b) b^k)² /
    ((1-c) c^k), so that |mean| / √square ≤ (1-b) / √((1-c) (1 - b²/c)). Divided by 1 - b^t and √(1 - c^t) of the
    corrected moments it is less.
    """
    return (1 - beta) / math.sqrt((1 - beta_of_squares) * (1 - beta**2 / beta_of_squares))


def worth_while(model: Model) -> bool:
    """Return whether the object is large enough for regions to be worth computing."""
    return next(model.object.parameters()).nbytes >= SAVED_BYTES


def region(blocks: NDArray[np.bool_], model: Model) -> Region | None:
    """Return the region of these blocks of the object; None if sending all of it is as fast."""
    values = next(model.object.parameters())
    height, width = values.shape[2:4]
    candidate = Region((height, width), blocks)
    return candidate if saves_enough(candidate, values.nbytes) else None


def saves_enough(found: Region, nbytes: int) -> bool:
    """Return whether packing this region of an object of `nbytes` is faster than sending all of it."""
    part = found.pixels / (found.shape[0] * found.shape[1])
    return part <= MOST and (1 - part) * nbytes >= SAVED_BYTES


def _by_index(values: Tensor, on_gpu: bool | None) -> bool:
    return values.device.type != "cpu" if on_gpu is None else on_gpu
