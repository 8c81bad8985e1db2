"""The patterns of each update and of each engine; batches are the same for any number of engines.

(With `batch_per="engine"` the number of engines determines the size of a batch, and nothing else.)

spread: the scan is cut into as many contiguous strata as a batch has patterns. An update takes one pattern of every
stratum, each stratum shuffled anew every epoch. So a batch is spread over the scan, it does not depend on the number of
engines, and an engine that holds a run of strata holds one contiguous part of the file and as much of every batch as
any other.

random: any patterns make a batch. Engines hold contiguous parts, and unequal parts of a batch.

interleaved: as spread, but a stratum has every n-th pattern of the scan, and an engine every n-th stratum. So the first
patterns are distributed over all strata and engines: the order of a scan that is reconstructed while it is measured
(`LiveSampler`).

bands: the scan is cut into bands along y, with equal numbers of patterns. All batches of a band follow each other, each
with one pattern of every cell of the band; the bands come in random order. An object that is streamed is on the device
only where the windows of the present band are.

cells: as spread, but a stratum has the patterns of one cell of the scan. Cells have equal numbers of patterns, from
recursive bisection across the longer side. With an object in tiles, each engine has the patterns of its tile.

compact: neighbours make a batch, the same ones in every epoch, the batches in random order. Their patterns are
distributed over the strata, so again each engine holds as much of every batch as any other, from all over the file.
"""

from __future__ import annotations

import functools
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

from ptynb.data.scan import Scan
from ptynb.optimize.object_tiles import TileLayout, tile_layout
from ptynb.physics.model_builder import model_window, object_frame, window_positions
from ptynb.physics.streamed_object import Bands
from ptynb.settings import Settings


class Sampler(ABC):
    """The order of patterns in batches, the same on all engines.

    count: number of patterns that are there. batch: the largest number of patterns of an update.
    """

    count: int
    batch: int

    @property
    def open(self) -> bool:
        """Whether further patterns may come."""
        return False

    @property
    @abstractmethod
    def strata(self) -> int:
        """Number of strata: the largest batch."""

    @property
    @abstractmethod
    def updates(self) -> int:
        """Number of updates in an epoch."""

    def share(self, world: int) -> int:
        """Return the largest number of patterns of a batch on one engine (while patterns come approximately)."""
        return -(-self.strata // world)

    def owned(self, rank: int, world: int) -> NDArray[np.int64]:
        """Return the patterns of this rank, ascending, also those that are not there yet."""
        return np.flatnonzero(self.owner(world) == rank)

    def part(self, table: NDArray[np.int64], update: int, rank: int, world: int) -> NDArray[np.int64]:
        """Return this rank's patterns of an update; may be empty."""
        patterns = table[:, update]
        patterns = patterns[patterns >= 0]
        return patterns[self.owner(world)[patterns] == rank]

    @abstractmethod
    def owner(self, world: int) -> NDArray[np.int64]:
        """Return the rank of each pattern (pattern,)."""

    @abstractmethod
    def epoch(self, number: int) -> NDArray[np.int64]:
        """Return the table (stratum, update) of an epoch: the pattern of a stratum in an update, or -1 for none.

        Each pattern occurs once, unless further ones may come: then the table is empty, and `fill` completes it.
        """

    def begin_epoch(self, number: int) -> NDArray[np.int64]:
        """Begin an epoch, and return its table."""
        return self.epoch(number)

    def fill(self, table: NDArray[np.int64], update: int) -> None:
        """Enter the batch of the next update into the table, if it is not there."""
        return

    def upcoming(self) -> Iterator[NDArray[np.int64]]:
        """Yield the batches (pattern,) to come, as long as no other patterns come, if `epoch` does not have them."""
        return iter(())

    def state(self) -> dict[str, NDArray[np.int64]]:
        """Return what the further order depends on, besides patterns and epoch."""
        return {}


@final
@dataclass(frozen=True, eq=False)
class BatchSampler(Sampler):
    """The order of `count` patterns in batches of at most `batch`, from one seed.

    positions: positions (pattern, yx), needed for compact batches, cells and bands only. owners: rank of each pattern
    (pattern,) by the number of engines, where it is not that of its stratum. bands: largest number of bands.
    """

    count: int
    batch: int
    seed: int
    kind: Literal["spread", "cells", "bands", "random", "compact", "interleaved"] = "spread"
    positions: NDArray[np.float64] | None = None
    owners: Mapping[int, NDArray[np.int64]] = field(default_factory=dict, repr=False)
    bands: int = 1
    _owners: dict[int, NDArray[np.int64]] = field(default_factory=dict, init=False, repr=False)

    @property
    def strata(self) -> int:
        """Number of strata: the largest batch."""
        return min(self.batch, self.count)

    @property
    def updates(self) -> int:
        """Number of updates in an epoch."""
        if self.kind == "bands":
            return sum(order.updates for _, order in self.in_bands)
        return -(-self.count // self.strata)

    def share(self, world: int) -> int:
        """Return the largest number of patterns of a batch on one engine; of random ones, what one of 10^6 exceeds.

        Their number on an engine is hypergeometric: the mean and five standard deviations.
        """
        if self.kind == "bands":
            return max(order.share(world) for _, order in self.in_bands)
        if world in self.owners and self.kind == "cells":
            owner, edges = self.owners[world][self._in_cells], self._edges()
            cells = [np.bincount(owner[first:end], minlength=world) > 0 for first, end in itertools.pairwise(edges)]
            return int(np.sum(cells, axis=0).max())
        if self.kind != "random":
            return super().share(world)
        own = int(np.bincount(self.owner(world)).max()) / self.count
        variance = self.strata * own * (1 - own) * (self.count - self.strata) / max(1, self.count - 1)
        return min(self.strata, math.ceil(self.strata * own + 5 * math.sqrt(variance)))

    def epoch(self, number: int) -> NDArray[np.int64]:
        """Return the table (stratum, update) of an epoch: the pattern of a stratum in an update, or -1 for none.

        Each pattern occurs once. Strata with one pattern less skip an update, evenly spread, so that no batch is much
        smaller than the others.
        """
        random = np.random.default_rng([self.seed, number])
        match self.kind:
            case "spread" | "interleaved":
                return self.strata_shuffled(random)
            case "cells":
                table = self.strata_shuffled(random)
                return np.where(table < 0, -1, self._in_cells[table])
            case "bands":
                return self._band_by_band(random)
            case "random":
                return self._columns(np.array_split(random.permutation(self.count), self.updates))
            case "compact":
                return self._columns([self._groups[index] for index in random.permutation(len(self._groups)).tolist()])

    def strata_shuffled(self, random: np.random.Generator) -> NDArray[np.int64]:
        """Return a table (stratum, update) whose rows are the strata, each shuffled."""
        strata, updates = np.arange(self.strata), np.arange(self.updates)
        if self.kind == "interleaved":
            lengths = (self.count - strata + self.strata - 1) // self.strata
            firsts, step = strata, self.strata
        else:
            edges = self._edges()
            lengths, firsts, step = np.diff(edges), edges[:-1], 1
        short = np.flatnonzero(lengths < self.updates)
        stride = max(1, self.updates // max(len(short), 1))
        gaps = (random.integers(self.updates) + np.arange(len(short)) * stride) % self.updates
        table = np.zeros((self.strata, self.updates), dtype=np.int64)
        for rows in np.split(strata, np.flatnonzero(np.diff(lengths)) + 1):  # neighbours of the same length at once
            own = updates[: lengths[rows[0]]]
            table[rows, : len(own)] = random.permuted(np.tile(own, (len(rows), 1)), axis=1)
        table = firsts[:, None] + step * table
        before = np.take_along_axis(table[short], updates - (updates > gaps[:, None]), axis=1)
        table[short] = np.where(updates == gaps[:, None], -1, before)
        return table

    def _columns(self, batches: list[NDArray[np.int64]]) -> NDArray[np.int64]:
        table = np.full((self.strata, self.updates), -1, dtype=np.int64)
        sizes = np.array([len(patterns) for patterns in batches])
        for size in np.unique(sizes).tolist():
            updates = np.flatnonzero(sizes == size)
            of_size = np.stack([batches[update] for update in updates.tolist()], axis=1)
            table[np.ix_(self._dealt(size), updates)] = of_size
        return table

    def _band_by_band(self, random: np.random.Generator) -> NDArray[np.int64]:
        table, first = np.full((self.strata, self.updates), -1, dtype=np.int64), 0
        for band in random.permutation(len(self.in_bands)).tolist():
            patterns, order = self.in_bands[band]
            own = order.strata_shuffled(random)
            of_band = np.where(own < 0, -1, patterns[order._in_cells[own]])
            table[: order.strata, first : first + order.updates] = of_band
            first += order.updates
        return table

    @functools.cached_property
    def in_bands(self) -> list[tuple[NDArray[np.int64], BatchSampler]]:
        """The patterns of each band, ascending along y, and their order."""
        assert self.positions is not None, "bands need positions"
        along = np.argsort(self.positions[:, 0], kind="stable")
        number = max(1, min(self.bands, self.count // self.strata))
        return [
            (patterns, BatchSampler(len(patterns), self.batch, self.seed, "cells", self.positions[patterns]))
            for patterns in np.array_split(along, number)
        ]

    @functools.cached_property
    def band_of_pattern(self) -> NDArray[np.int64]:
        """The band of each pattern (pattern,)."""
        bands = np.empty(self.count, dtype=np.int64)
        for number, (patterns, _) in enumerate(self.in_bands):
            bands[patterns] = number
        return bands

    @functools.cached_property
    def _groups(self) -> list[NDArray[np.int64]]:
        """One group of neighbouring patterns for each update of an epoch; sizes differ by at most one."""
        assert self.positions is not None, "compact batches need positions"
        sizes = [len(part) for part in np.array_split(np.arange(self.count), self.updates)]
        return _bisected(np.arange(self.count), self.positions, sizes)

    @functools.cached_property
    def _in_cells(self) -> NDArray[np.int64]:
        """The patterns, cell by cell."""
        assert self.positions is not None, "cells need positions"
        sizes = np.diff(self._edges()).tolist()
        return np.concatenate(_bisected(np.arange(self.count), self.positions, sizes))

    def owner(self, world: int) -> NDArray[np.int64]:
        """Return the rank of each pattern (pattern,)."""
        if world in self.owners:
            return self.owners[world]
        if world not in self._owners:
            owner = np.empty(self.count, dtype=np.int64)
            rank_of_stratum = np.empty(self.strata, dtype=np.int64)
            for rank in range(world):
                rank_of_stratum[rank * self.strata // world : (rank + 1) * self.strata // world] = rank
            if self.kind == "bands":
                # The engine with most patterns is another one in each band.
                for number, (patterns, own) in enumerate(self.in_bands):
                    owner[patterns] = (own.owner(world) + number) % world
            elif self.kind == "compact":
                for patterns in self._groups:
                    owner[patterns] = rank_of_stratum[self._dealt(len(patterns))]
            elif self.kind == "interleaved":
                owner = np.arange(self.count) % self.strata % world
            else:
                order = self._in_cells if self.kind == "cells" else np.arange(self.count)
                owner[order] = np.repeat(rank_of_stratum, np.diff(self._edges()))
            self._owners[world] = owner
        return self._owners[world]

    def _dealt(self, global_batch_size: int) -> NDArray[np.int64]:
        """Return the strata of a batch of this size, evenly spread over all."""
        return np.arange(global_batch_size) * self.strata // max(global_batch_size, 1)

    def _edges(self) -> NDArray[np.int64]:
        """Return the first pattern of each stratum, and the number of patterns."""
        return np.arange(self.strata + 1) * self.count // self.strata


def planned_order(scan: Scan, settings: Settings, world: int) -> BatchSampler:
    """Return the order of all patterns of a scan, or of its plan, with these settings on `world` engines."""
    kind = settings.batch_sampling if scan.acquisition is None else "interleaved"
    layout = layout_of(scan, settings, world)
    owners = {} if layout is None else {world: layout.owner}
    batch, seed = settings.effective_batch(world), settings.seed
    return BatchSampler(len(scan), batch, seed, kind, scan.positions, owners, settings.batch_bands)


def layout_of(scan: Scan, settings: Settings, world: int, cropped: Scan | None = None) -> TileLayout | None:
    """Return the tiles of the object on `world` engines; None if each has the whole object.

    cropped: the scan with patterns cropped to a window, whose tiles have the same patterns.
    """
    if settings.object.layout != "tiles" or world == 1:
        return None
    layout = _tiles_of(scan, settings, world, None)
    return layout if cropped is None or cropped is scan else _tiles_of(cropped, settings, world, layout)


def _tiles_of(scan: Scan, settings: Settings, world: int, like: TileLayout | None) -> TileLayout:
    frame, window = object_frame(scan, settings), model_window(scan, settings)
    positions, reach = window_positions(scan, settings), reach_of(settings)
    return tile_layout(positions, window, frame.shape, world, margin=settings.margin, reach=reach, like=like)


def bands_of(scan: Scan, settings: Settings, order: BatchSampler) -> Bands:
    """Return the bands of a scan with the rows of the object that the windows of each reach.

    scan: with patterns in the present window. order: of the patterns.
    """
    rows, (height, _) = object_frame(scan, settings).shape[0], model_window(scan, settings)
    # One more pixel than windows reach, since positions are rounded.
    origins, margin = np.rint(window_positions(scan, settings)[:, 0]).astype(np.int64), settings.margin + 1
    spans = [(origins[own].min() - margin, origins[own].max() + height + margin) for own, _ in order.in_bands]
    limited = [(max(0, int(first)), min(rows, int(end))) for first, end in spans]
    most = max(end - first for first, end in limited)
    return Bands(order.band_of_pattern, tuple(min(first, rows - most) for first, _ in limited), most, settings.margin)


def reach_of(settings: Settings) -> int:
    """Return the distance of other pixels on which one of the object depends in regularizers and constraints."""
    return max([1, *(one.reach or 0 for one in settings.constraints)])


def _bisected(patterns: NDArray[np.int64], positions: NDArray[np.float64], sizes: list[int]) -> list[NDArray[np.int64]]:
    """Split the patterns recursively into groups of these sizes, each time across the longer side of their area."""
    if len(sizes) == 1:
        return [patterns]
    own = positions[patterns]
    along = int(np.ptp(own, axis=0).argmax())
    ordered = patterns[np.argsort(own[:, along], kind="stable")]
    half = len(sizes) // 2
    cut = sum(sizes[:half])
    first = _bisected(ordered[:cut], positions, sizes[:half])
    return first + _bisected(ordered[cut:], positions, sizes[half:])
