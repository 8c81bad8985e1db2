"""The part of the object that windows cover, in whole tiles, and its packing into messages for other engines.

The bounding box of a batch that is spread over the scan is the whole object, its tiles are not: 16 windows of 256 x 256
in 4096 x 4096 pixels touch a tenth of them. For neighbouring windows the tiles are nearly the bounding box. Therefore
bounding boxes are not used at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptynb.physics.components.builtin import Affine, Offset, Positions
from ptynb.physics.components.component import Batch
from ptynb.physics.model import Model

TILE = 32
"""Side of a tile [pixels]. Tiles of 32 enlarge the area of windows of 256 x 256 by 1.26, tiles of 64 by 1.53."""
MOST = 0.75
"""If windows cover more than this fraction of the object, all of it is sent, which needs no packing."""
SAVED_BYTES = 2**21
"""If packing saves fewer bytes, the whole object is sent; for objects smaller than this, tiles are not computed.

Computing the tiles is expensive, not packing: an update of 2 CPU engines (4 to 7 ms) took 1.11 to 1.26 times as long
with tiles computed and not used, for objects of 0.3 and 1.1 MiB, 1.01 to 1.25 with them used; 0.78 for one of 4.5 MiB.
Repeated measurements of the same code had ratios of 0.96 to 1.06.
"""


@dataclass(frozen=True, eq=False)
class Region:
    """A region of a plane of this shape (y, x): the tiles (tile y, tile x) that are True."""

    shape: tuple[int, int]
    tiles: NDArray[np.bool_]

    @cached_property
    def rectangles(self) -> list[tuple[int, int, int, int]]:
        """The region as disjoint rectangles (top, bottom, left, right) [pixels].

        Each is a run of tiles in a row, merged with equal runs in the rows that follow.
        """
        complete, growing = list[tuple[int, int, int, int]](), dict[tuple[int, int], tuple[int, int]]()
        edges = np.argwhere(np.diff(self.tiles, prepend=False, append=False))
        for row, first, end in zip(*edges.reshape(-1, 4)[:, [0, 1, 3]].T.tolist(), strict=True):
            top, bottom = growing.pop((first, end), (row, row))
            if bottom < row:
                complete.append(self._pixels(top, bottom, first, end))
                top = row
            growing[first, end] = top, row + 1
        return complete + [self._pixels(*rows, *columns) for columns, rows in growing.items()]

    @property
    def pixels(self) -> int:
        """Number of pixels in the region."""
        return sum((bottom - top) * (right - left) for top, bottom, left, right in self.rectangles)

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
            index = self._index.to(values.device)
            torch.index_select(planes.flatten(1, 2), 1, index, out=message.view(len(planes), -1, parts))
            return
        for part, (top, bottom, left, right) in self._parts(planes, message):
            part.copy_(planes[:, top:bottom, left:right])

    def unpack(self, message: Tensor, values: Tensor, parts: int, on_gpu: bool | None = None) -> None:
        """Copy a message of `pack` back into `values`; values outside the region are unchanged."""
        planes = values.view(-1, *self.shape, parts)
        if _by_index(values, on_gpu):
            index = self._index.to(values.device)
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
    def _index(self) -> Tensor:
        """Flat indices of the region's pixels."""
        rows, columns = (index[:, None] * TILE + np.arange(TILE) for index in np.nonzero(self.tiles))
        inside = (rows < self.shape[0])[:, :, None] & (columns < self.shape[1])[:, None, :]
        return torch.from_numpy((rows[:, :, None] * self.shape[1] + columns[:, None, :])[inside])

    def _pixels(self, first: int, end: int, left: int, right: int) -> tuple[int, int, int, int]:
        height, width = self.shape
        return first * TILE, min(end * TILE, height), left * TILE, min(right * TILE, width)


def touched_tiles(
    window_origins: NDArray[np.int64], window: tuple[int, int], shape: tuple[int, int], margin: int = 0
) -> NDArray[np.bool_]:
    """Return the tiles (tile y, tile x) of a plane (y, x) that overlap with windows at these corners (pattern, yx).

    margin: uncertainty of the corners [pixels].
    """
    tiles = np.zeros([-(-side // TILE) for side in shape], dtype=bool)
    firsts = np.maximum(window_origins - margin, 0) // TILE
    ends = (window_origins + np.array(window) + margin - 1) // TILE + 1
    for (top, left), (bottom, right) in zip(firsts.tolist(), ends.tolist(), strict=True):
        tiles[top:bottom, left:right] = True
    return tiles


class Windows:
    """Present probe windows of all patterns, which every engine computes itself."""

    def __init__(self, model: Model) -> None:
        self._model = model
        height, width = next(model.object.parameters()).shape[2:4]
        self.shape = (height, width)
        """Size (y, x) of the object [pixels]."""

    @property
    def known(self) -> bool:
        """Whether engines can compute each other's windows: not if a custom component moves any."""
        return all(isinstance(piece, Affine | Positions | Offset) for piece in self._model.movers)

    def tiles(self, patterns: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return the tiles (tile y, tile x) that overlap with the windows of these patterns."""
        model = self._model
        members = torch.from_numpy(patterns).to(model.initial_positions.device)
        with torch.no_grad():
            corners, _ = model.window_origins_and_shifts(
                Batch(members, model.initial_positions[:0], len(patterns), model.initial_positions.dtype)
            )
        # The rounding of matrix products depends on the number of rows: a corner near .5 may differ between engines.
        margin = 1 if model.movers else 0
        return touched_tiles(corners.numpy(), model.window, self.shape, margin)


def worth_while(model: Model) -> bool:
    """Return whether the object is large enough for regions to be worth computing."""
    return next(model.object.parameters()).nbytes >= SAVED_BYTES


def region(tiles: NDArray[np.bool_], model: Model) -> Region | None:
    """Return the region of these tiles of the object; None if sending all of it is as fast."""
    values = next(model.object.parameters())
    height, width = values.shape[2:4]
    candidate = Region((height, width), tiles)
    return candidate if saves_enough(candidate, values.nbytes) else None


def saves_enough(found: Region, nbytes: int) -> bool:
    """Return whether packing this region of an object of `nbytes` is faster than sending all of it."""
    part = found.pixels / (found.shape[0] * found.shape[1])
    return part <= MOST and (1 - part) * nbytes >= SAVED_BYTES


def _by_index(values: Tensor, on_gpu: bool | None) -> bool:
    return values.device.type != "cpu" if on_gpu is None else on_gpu
