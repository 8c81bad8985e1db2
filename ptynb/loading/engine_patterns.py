"""One engine's patterns: read once and stored on the device or in host memory, or read from the file for each batch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
import psutil
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptynb.data.scan import Scan
from ptynb.distributed.group import Group
from ptynb.exceptions import InvalidValueError
from ptynb.loading.device_memory import free_on_device
from ptynb.loading.pattern_reader import PatternReader, narrowest, shifted
from ptynb.loading.prefetch import AHEAD, ParallelPrefetch, ThreadPrefetch
from ptynb.loading.transfer import BufferRing, Copied, StreamTransfer
from ptynb.physics.components.component import Batch, copied_to, selected
from ptynb.physics.losses import Sums
from ptynb.physics.patches import add_windows
from ptynb.preparation.field_resampling import middle_start

Storage = Literal["device", "host", "disk"]
StorageOption = Literal["auto", "device", "host", "disk"]

FREE_PART = 0.5
"""Fraction of the free memory that patterns may take; the rest is for object, optimiser and waves."""
NUMPY = {
    torch.uint8: np.uint8,
    torch.uint16: np.uint16,
    torch.int32: np.int32,
    torch.float32: np.float32,
    torch.float64: np.float64,
}


def detector_mask(scan: Scan, dtype: torch.dtype) -> Tensor | None:
    """Return the mask (y, x) in the pixel order of the model, 1 at valid pixels; None if all are valid."""
    if scan.mask is None or scan.mask.all():
        return None
    mask = np.fft.ifftshift(scan.mask) if shifted(scan) else scan.mask
    return torch.from_numpy(np.ascontiguousarray(mask)).to(dtype)


class EnginePatterns:
    """This engine's patterns as counts of the smallest exact type, and batches of them.

    place: where they are stored: "device", "host", or "disk" (read for each batch). Patterns that are not on the device
    are read ahead by `ThreadPrefetch` or `ParallelPrefetch`; on a CPU the host's memory is the device's. They
    keep the stored type everywhere: only the counts of a batch are converted (`Batch.counts`).
    """

    def __init__(
        self,
        scan: Scan,
        patterns: NDArray[np.int64],
        group: Group,
        dtype: torch.dtype,
        frames: StorageOption = "auto",
        present: NDArray[np.int64] | None = None,
    ) -> None:
        """Read all patterns once: check, sum and store them.

        patterns: their indices in the scan, ascending. dtype: real type of the model. frames: where to store them.
        present: those that can be read now, for a scan that is being measured; the others follow by `admit`.
        """
        self.patterns, self.group, self.dtype = patterns, group, dtype
        self.present = patterns if present is None else present
        """Those of `patterns` that have been read, ascending."""
        self.window = scan.pattern_shape
        self._row_of = np.full(len(scan), -1, dtype=np.int64)
        self._row_of[patterns] = np.arange(len(patterns))
        in_order = np.array_equal(self._row_of, np.arange(len(scan)))
        self._rows = None if in_order else torch.from_numpy(self._row_of).to(group.device)
        """Row of each pattern of the scan, on the device; None: its index."""
        self._last: tuple[NDArray[np.int64], Tensor] | None = None
        self._reader: PatternReader | None = PatternReader(scan, dtype)
        """None once all patterns are stored: those that were sent to this engine are freed."""
        self._type = narrowest(scan.frames.dtype, dtype)
        pattern_bytes = scan.pattern_shape[0] * scan.pattern_shape[1] * self._type.itemsize
        self.place = choose_storage(
            frames,
            pattern_bytes * len(self),
            pattern_bytes * len(scan),
            group.device,
            scan.frames.in_file,
            group.engines_per_gpu,
        )
        self._held = torch.empty((0, *scan.pattern_shape), dtype=self._type)
        if self.place != "disk":
            self._held = self._allocate(len(self))
        self._total = np.zeros(scan.pattern_shape)
        self._read(self.present)
        if self.place != "disk" and len(self.present) == len(patterns):
            self._reader = None
        in_place = self.place == "device" or (self.place == "host" and group.device.type == "cpu")
        self._ring: BufferRing | None = None
        self._ahead = None if in_place else self._make_prefetch()

    def _make_prefetch(self) -> ThreadPrefetch | ParallelPrefetch:
        if self.place == "disk" and ParallelPrefetch.possible(self._patterns_reader, self.group.device):
            return ParallelPrefetch(self._patterns_reader, self._type)
        if self.group.device.type == "cpu":
            return ThreadPrefetch(self._begin)
        transfer = StreamTransfer(self.group.device)
        self._ring = BufferRing(transfer, AHEAD + 1)
        return ThreadPrefetch(self._begin, transfer)

    def admit(self, patterns: NDArray[np.int64]) -> None:
        """Read patterns that have come meanwhile: those of these (ascending) that are this engine's."""
        own = patterns[self._row_of[patterns] >= 0]
        if not len(own):
            return
        dtype = self._type
        self._read(own)
        self.present = np.sort(np.concatenate([self.present, own]))
        if self._type != dtype and self._ahead is not None:
            self._ahead.close()
            self._ahead = self._make_prefetch()

    @property
    def _patterns_reader(self) -> PatternReader:
        assert self._reader is not None, "all patterns are stored"
        return self._reader

    def _read(self, patterns: NDArray[np.int64]) -> None:
        reader, rows_of = self._patterns_reader, self._row_of[patterns]
        consecutive = len(rows_of) == 0 or rows_of[-1] - rows_of[0] == len(rows_of) - 1
        scratch = torch.empty((0, *self.window), dtype=self._type)
        for part, stored in reader.chunks(patterns):
            wider = reader.wide_enough(self._type, stored)
            if wider != self._type:
                self._widen(wider, part.start if len(patterns) == len(self) else len(self))
            in_place = self.place != "disk" and self._held.device.type == "cpu" and consecutive
            if not in_place and (len(scratch) < len(stored) or scratch.dtype != self._type):
                scratch = torch.empty(stored.shape, dtype=self._type)
            rows = slice(int(rows_of[part.start]), int(rows_of[part.start]) + len(stored))
            counts = self._held[rows] if in_place else scratch[: len(stored)]
            reader.arrange(stored, counts, self._total)
            if self.place == "disk" or in_place:
                continue
            if consecutive:
                self._held[rows] = counts.to(self.group.device)
            else:
                for row, one in zip(rows_of[part].tolist(), counts, strict=True):
                    self._held[row].copy_(one)

    def _allocate(self, patterns: int) -> Tensor:
        """Allocate memory for this number of patterns, on the device or host that stores them."""
        shape = (patterns, *self.window)
        if self.place == "device":
            return torch.empty(shape, dtype=self._type, device=self.group.device)
        # numpy requests huge pages, torch does not: 0.5 instead of 0.9 s for half a GB, most of it page faults.
        return torch.from_numpy(np.empty(shape, NUMPY[self._type]))

    def _widen(self, dtype: torch.dtype, done: int) -> None:
        before, self._type = self._held, dtype
        if self.place != "disk":
            self._held = self._allocate(len(before))
            self._held[:done].copy_(before[:done])

    def __len__(self) -> int:
        return len(self.patterns)

    @property
    def kind(self) -> torch.dtype:
        """Type of the stored counts."""
        return self._type

    def totals(self, count: int) -> tuple[Tensor, Sums]:
        """Return the mean pattern (y, x), float64, in the pixel order of the model, and sums of all `count` patterns.

        Over all engines. Raises InvalidValueError if all patterns are empty.
        """
        total = self.group.sum(torch.from_numpy(self._total.copy()).to(self.group.device)).cpu()
        if not total.any():
            raise InvalidValueError(f"All {count} patterns are empty: no pixel has a count above 0.", code="scan.empty")
        return total / count, Sums(float(total.sum()), self._squares, whole=bool((total == total.round()).all()))

    def mean_patterns(self, of_pattern: NDArray[np.int64]) -> Tensor:
        """Return the mean pattern of each scan (scan, y, x), float64, on the CPU, over all engines, by another pass.

        of_pattern: index of the scan of each pattern (pattern,).
        """
        sums = torch.zeros((int(of_pattern.max()) + 1, *self.window), dtype=torch.float64, device=self.group.device)
        for patterns in self.portions(16):
            # The mean patterns as one plane, to which patterns are added in a fixed order.
            origins = torch.from_numpy(np.stack([of_pattern[patterns] * self.window[0], 0 * patterns], 1))
            frames = self._frames(patterns).to(sums.device).double()
            add_windows(sums.view(-1, self.window[1]), origins.to(sums.device), frames)
        means: Tensor = self.group.sum(sums).cpu() / torch.from_numpy(np.bincount(of_pattern))[:, None, None]
        return means

    def _squares(self) -> float:
        """Return Σ I² over all engines, by another pass over all patterns."""
        squares = torch.zeros((), dtype=torch.float64, device=self.group.device)
        for patterns in self.portions(16):
            values = self._frames(patterns).double()
            squares += values.square_().sum()
        return float(self.group.sum(squares))

    def centres_of_mass(self, count: int) -> NDArray[np.float64]:
        """Return the centres of mass of all `count` far-field patterns (pattern, yx) [detector pixels].

        Relative to the zero frequency, over all engines, by another pass; NaN for patterns without counts.
        """
        y, x = (torch.fft.fftfreq(side, 1 / side, dtype=torch.float64) for side in self.window)
        moments = torch.zeros((count, 3), dtype=torch.float64)
        for patterns in self.portions(16):
            counts = self._frames(patterns).double().cpu()
            rows, columns = counts.sum(2), counts.sum(1)
            moments[torch.from_numpy(patterns)] = torch.stack([rows @ y, columns @ x, rows.sum(1)], 1)
        sums = self.group.sum(moments.to(self.group.device)).cpu().numpy()
        with np.errstate(invalid="ignore"):
            centres: NDArray[np.float64] = sums[:, :2] / sums[:, 2:]
        return centres

    def gathered(self, patterns: NDArray[np.int64], size: tuple[int, int]) -> Tensor:
        """Return the counts (pattern, y, x) of these patterns of all engines, cropped to this size, see `in_middle`."""
        counts = torch.zeros((len(patterns), *size), dtype=self.dtype, device=self.group.device)
        places = np.flatnonzero(np.isin(patterns, self.present))
        portions = [places[first : first + 16] for first in range(0, len(places), 16)]
        self.follow(iter([patterns[portion] for portion in portions]))
        for portion in portions:
            own = in_middle(self._frames(patterns[portion]).to(counts), size)
            counts[torch.from_numpy(portion).to(counts.device)] = own
        gathered: Tensor = self.group.sum(counts)
        return gathered

    def portions(self, size: int) -> Iterator[NDArray[np.int64]]:
        """Yield this engine's patterns that are there, `size` at a time."""
        for first in range(0, len(self.present), size):
            yield self.present[first : first + size]

    def follow(self, batches: Iterator[NDArray[np.int64]]) -> None:
        """Set the sequence of batches to come, which are then read ahead."""
        if self._ahead is not None:
            self._ahead.follow(batches)

    def close(self) -> None:
        """Stop reading ahead; afterwards batches are available only of patterns in memory."""
        if self._ahead is not None:
            self._ahead.close()

    @property
    def in_place(self) -> bool:
        """Whether batches refer to all patterns in the memory of the device, and copy none."""
        return self._ahead is None and self.place != "disk"

    def batch(self, patterns: NDArray[np.int64], global_batch_size: int, indices: Tensor | None = None) -> Batch:
        """Return the batch of these patterns (indices in the scan); `global_batch_size`: on all engines.

        indices: the same on the device, if they are there already.
        """
        in_place = self.in_place
        own = self.on_device(patterns) if indices is None else indices
        rows = own if self._rows is None else self._rows[own]
        return Batch(
            patterns=own,
            stored=self._held if in_place else self._frames(patterns),
            global_batch_size=global_batch_size,
            dtype=self.dtype,
            total=self.group.sum,
            rows=rows if in_place else None,
        )

    def on_device(self, patterns: NDArray[np.int64]) -> Tensor:
        """Return indices of patterns on the device; the last ones are not copied again."""
        if self._last is None or self._last[0] is not patterns:
            self._last = patterns, copied_to(torch.from_numpy(patterns), self.group.device)
        return self._last[1]

    def _frames(self, patterns: NDArray[np.int64]) -> Tensor:
        """Return the counts (pattern, y, x) of these patterns, on the device."""
        if self._ahead is not None and len(patterns):
            return self._ahead.take(patterns)
        if self.place == "disk":  # no pattern, or none ahead any more
            return torch.empty((0, *self.window), dtype=self._type, device=self.group.device)
        own = copied_to(torch.from_numpy(self._row_of[patterns]), self._held.device)
        return selected(self._held, own).to(self.group.device)

    def _begin(self, patterns: NDArray[np.int64]) -> Callable[[], tuple[Tensor, Copied | None]]:
        """Prepare to read these patterns; the function that is returned reads them and begins to copy them."""
        shape, ring = (len(patterns), *self.window), self._ring
        if ring is not None:
            return lambda: ring.copy(shape, self._type, functools.partial(self._fill, patterns))
        counts = torch.empty(shape, dtype=self._type)

        def read() -> tuple[Tensor, None]:
            self._fill(patterns, counts)
            return counts, None

        return read

    def _fill(self, patterns: NDArray[np.int64], counts: Tensor) -> None:
        """Write these patterns into `counts` (pattern, y, x), on the host."""
        if self.place == "disk":
            self._patterns_reader.batch(patterns, counts)
        else:
            selected(self._held, torch.from_numpy(self._row_of[patterns]), counts)


def choose_storage(
    option: StorageOption, needed: int, total: int, device: torch.device, in_file: bool, engines_per_gpu: int = 1
) -> Storage:
    """Return `storage_for` with the memory that is free now. Raises InvalidValueError if it is impossible.

    engines_per_gpu: number of engines that share the device.
    """
    if option == "disk" and not in_file:
        raise InvalidValueError(
            "pattern_storage is 'disk' and the patterns of this scan are in memory; "
            "write them with save_scan and load that file, or use 'auto'.",
            code="patterns.not-in-file",
        )
    free = free_on_host()
    on_device = None if device.type == "cpu" else free_on_device(device, engines_per_gpu)
    storage = storage_for(option, needed, total, in_file, free, on_device)
    if option == "auto" and storage == "host" and total > free:
        raise InvalidValueError(
            f"The patterns take {total / 1e9:.3g} GB and {free / 1e9:.3g} GB of memory are free; "
            "write them with save_scan and load that file, to have them read for each batch.",
            code="patterns.not-enough-memory",
        )
    return storage


def storage_for(
    option: StorageOption, needed: float, total: float, in_file: bool, host: float, device: float | None
) -> Storage:
    """Return the storage that is set, or with "auto" the first of device, host and disk with enough memory.

    needed: size of this engine's patterns, total: of those of all engines, which share the host's memory [bytes].
    host, device: free memory [bytes]; device is None on a CPU.
    """
    if option == "device" and device is None:
        return "host"
    if option != "auto":
        return option
    if device is not None and needed <= FREE_PART * device:
        return "device"
    return "host" if total <= FREE_PART * host or not in_file else "disk"


def free_on_host() -> int:
    """Return the available memory of this host [bytes]."""
    return int(psutil.virtual_memory().available)


def in_middle(counts: Tensor, size: tuple[int, int]) -> Tensor:
    """Return patterns (..., y, x) in the pixel order of the model with the zero frequency in the middle, cropped."""
    middle = torch.fft.fftshift(counts, dim=(-2, -1))
    y, x = middle_start((counts.shape[-2], counts.shape[-1]), size)
    return middle[..., y : y + size[0], x : x + size[1]]
