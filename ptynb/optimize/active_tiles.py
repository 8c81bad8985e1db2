"""Which part of the object windows touch, as rectangles of whole tiles, and how that part is packed for other engines.

The bounding box of a batch that is spread over the scan is the whole object, its tiles are not: 16 windows of 256 x 256
in 4096 x 4096 pixels touch a tenth of them. Neighbours' tiles are nearly their bounding box. So there are tiles only.
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
"""Pixels (y and x) of a tile. Windows of 256 x 256 are 1.26 times larger in tiles of 32, 1.53 times in tiles of 64."""
MOST = 0.75
"""Where windows touch more than this part of the object, the whole is sent: that needs no packing."""
SAVED_BYTES = 2**21
"""Where fewer can be saved, the whole is sent, and for smaller objects no tiles are looked for.

Looking is what costs, not packing: an update of 2 CPU engines (4 to 7 ms) took 1.11 to 1.26 times as long with tiles
looked for and not used, for objects of 0.3 and 1.1 MiB, 1.01 to 1.25 with them used; 0.78 for one of 4.5 MiB. The same
code against itself in these turns: 0.96 to 1.06.
"""


@dataclass(frozen=True, eq=False)
class Region:
    """A part of a plane of this shape (y, x): the tiles (tile y, tile x) that are True."""

    shape: tuple[int, int]
    tiles: NDArray[np.bool_]

    @cached_property
    def rectangles(self) -> list[tuple[int, int, int, int]]:
        """The same part as disjoint rectangles (top, bottom, left, right) [pixels]: runs of tiles, like rows as one."""
        found, growing = list[tuple[int, int, int, int]](), dict[tuple[int, int], tuple[int, int]]()
        edges = np.argwhere(np.diff(self.tiles, prepend=False, append=False))
        for row, first, end in zip(*edges.reshape(-1, 4)[:, [0, 1, 3]].T.tolist(), strict=True):
            top, bottom = growing.pop((first, end), (row, row))
            if bottom < row:
                found.append(self._pixels(top, bottom, first, end))
                top = row
            growing[first, end] = top, row + 1
        return found + [self._pixels(*rows, *columns) for columns, rows in growing.items()]

    @property
    def pixels(self) -> int:
        """How many there are."""
        return sum((bottom - top) * (right - left) for top, bottom, left, right in self.rectangles)

    def numbers(self, values: Tensor) -> int:
        """How many numbers `pack` takes from these values."""
        return self.pixels * (values.numel() // (self.shape[0] * self.shape[1]))

    def pack(self, values: Tensor, parts: int, message: Tensor, on_gpu: bool | None = None) -> None:
        """Copies what lies in the region to the flat `message`.

        values: real (…, y, x, part), or (…, y, x) where parts is 1; contiguous. on_gpu: packs as on a GPU, for tests.
        """
        planes = values.view(-1, *self.shape, parts)
        if _by_index(values, on_gpu):
            # One kernel instead of one for each rectangle.
            index = self._index.to(values.device)
            torch.index_select(planes.flatten(1, 2), 1, index, out=message.view(len(planes), -1, parts))
            return
        for part, (top, bottom, left, right) in self._parts(planes, message):
            part.copy_(planes[:, top:bottom, left:right])

    def unpack(self, message: Tensor, values: Tensor, parts: int, on_gpu: bool | None = None) -> None:
        """Copies what `pack` packed back into `values`; what lies outside stays."""
        planes = values.view(-1, *self.shape, parts)
        if _by_index(values, on_gpu):
            index = self._index.to(values.device)
            planes.flatten(1, 2).index_copy_(1, index, message.view(len(planes), -1, parts))
            return
        for part, (top, bottom, left, right) in self._parts(planes, message):
            planes[:, top:bottom, left:right].copy_(part)

    def _parts(self, planes: Tensor, message: Tensor) -> list[tuple[Tensor, tuple[int, int, int, int]]]:
        """Each rectangle with its part of the message, shaped (layer, y, x, part)."""
        shapes = [(len(planes), r[1] - r[0], r[3] - r[2], planes.shape[-1]) for r in self.rectangles]
        pieces = message.split([int(np.prod(shape)) for shape in shapes])
        return [
            (piece.view(shape), rectangle)
            for piece, shape, rectangle in zip(pieces, shapes, self.rectangles, strict=True)
        ]

    @cached_property
    def _index(self) -> Tensor:
        """Flat indices of the region's pixels."""
        rows, columns = (place[:, None] * TILE + np.arange(TILE) for place in np.nonzero(self.tiles))
        inside = (rows < self.shape[0])[:, :, None] & (columns < self.shape[1])[:, None, :]
        return torch.from_numpy((rows[:, :, None] * self.shape[1] + columns[:, None, :])[inside])

    def _pixels(self, first: int, end: int, left: int, right: int) -> tuple[int, int, int, int]:
        height, width = self.shape
        return first * TILE, min(end * TILE, height), left * TILE, min(right * TILE, width)


def touched_tiles(
    window_origins: NDArray[np.int64], window: tuple[int, int], shape: tuple[int, int], margin: int = 0
) -> NDArray[np.bool_]:
    """The tiles (tile y, tile x) of a plane (y, x) that windows with these corners (pattern, yx) reach into.

    margin: pixels by which windows may lie elsewhere.
    """
    tiles = np.zeros([-(-side // TILE) for side in shape], dtype=bool)
    firsts = np.maximum(window_origins - margin, 0) // TILE
    ends = (window_origins + np.array(window) + margin - 1) // TILE + 1
    for (top, left), (bottom, right) in zip(firsts.tolist(), ends.tolist(), strict=True):
        tiles[top:bottom, left:right] = True
    return tiles


class Windows:
    """Where the windows of patterns lie now, as far as every engine can tell of all of them."""

    def __init__(self, model: Model) -> None:
        self._model = model
        height, width = next(model.object.parameters()).shape[2:4]
        self.shape = (height, width)
        """Of the object (y, x) [pixels]."""

    @property
    def known(self) -> bool:
        """Whether engines know each other's: not where a piece of the user's moves them, by what it alone knows."""
        return all(isinstance(piece, Affine | Positions | Offset) for piece in self._model.movers)

    def tiles(self, patterns: NDArray[np.int64]) -> NDArray[np.bool_]:
        """The tiles that the windows of these patterns reach into."""
        model = self._model
        members = torch.from_numpy(patterns).to(model.initial_positions.device)
        with torch.no_grad():
            corners, _ = model.window_origins_and_shifts(
                Batch(members, model.initial_positions[:0], len(patterns), model.initial_positions.dtype)
            )
        # A product of matrices rounds otherwise for another number of rows: what is .5 here may be less elsewhere.
        margin = 1 if model.movers else 0
        return touched_tiles(corners.numpy(), model.window, self.shape, margin)


def worth_while(model: Model) -> bool:
    """Whether the object is so large that any region of it is worth looking for."""
    return next(model.object.parameters()).nbytes >= SAVED_BYTES


def region(tiles: NDArray[np.bool_], model: Model) -> Region | None:
    """The region of these tiles of the object, or None where all of it is sent as fast."""
    values = next(model.object.parameters())
    height, width = values.shape[2:4]
    found = Region((height, width), tiles)
    return found if saves_enough(found, values.nbytes) else None


def saves_enough(found: Region, nbytes: int) -> bool:
    """Whether it pays to pack this region of an object of so many bytes rather than to send all of it."""
    part = found.pixels / (found.shape[0] * found.shape[1])
    return part <= MOST and (1 - part) * nbytes >= SAVED_BYTES


def _by_index(values: Tensor, on_gpu: bool | None) -> bool:
    return values.device.type != "cpu" if on_gpu is None else on_gpu
