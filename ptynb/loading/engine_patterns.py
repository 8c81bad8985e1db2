"""One engine's patterns: read once and stored on the device or in host memory, or read from the file for each batch."""

from __future__ import annotations

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
from ptynb.loading.pattern_reader import PatternReader, narrowest, shifted
from ptynb.loading.prefetch import ParallelPrefetch, ThreadPrefetch
from ptynb.physics.components.component import Batch, selected
from ptynb.physics.losses import Sums

Storage = Literal["device", "host", "disk"]
Wanted = Literal["auto", "device", "host", "disk"]

FREE_PART = 0.5
"""Of the free memory, what frames may take by themselves; the rest is for object, optimiser and waves."""
NUMPY = {
    torch.uint8: np.uint8,
    torch.uint16: np.uint16,
    torch.int32: np.int32,
    torch.float32: np.float32,
    torch.float64: np.float64,
}


def detector_mask(scan: Scan, dtype: torch.dtype) -> Tensor | None:
    """The mask (y, x) in the order of the model, 1 where the detector works; None where it works everywhere."""
    if scan.mask is None or scan.mask.all():
        return None
    mask = np.fft.ifftshift(scan.mask) if shifted(scan) else scan.mask
    return torch.from_numpy(np.ascontiguousarray(mask)).to(dtype)


class EnginePatterns:
    """This engine's patterns as counts of the smallest exact type, and how to make a batch of some.

    place: "device" or "host", where they are held, or "disk", where they are read from. Whatever is not on the device
    comes by a `ThreadPrefetch`, or by `ParallelPrefetch`; on a CPU the host's memory is the device's.
    """

    def __init__(
        self,
        scan: Scan,
        patterns: NDArray[np.int64],
        group: Group,
        dtype: torch.dtype,
        frames: Literal["auto", "device", "host", "disk"] = "auto",
    ) -> None:
        """Reads all patterns once: checks them, adds them up, and keeps them where that was asked for.

        patterns: their indices in the whole scan, ascending. dtype: real, of the model.
        """
        self.patterns, self.group, self.dtype = patterns, group, dtype
        self.window = scan.pattern_shape
        self._row_of = np.full(len(scan), -1, dtype=np.int64)
        self._row_of[patterns] = np.arange(len(patterns))
        self._source = PatternReader(scan, dtype)
        self._type = narrowest(scan.frames.dtype, dtype)
        one = scan.pattern_shape[0] * scan.pattern_shape[1] * self._type.itemsize
        self.place = choose_storage(frames, one * len(self), one * len(scan), group.device, scan.frames.in_file)
        self._held = torch.empty((0, *scan.pattern_shape), dtype=self._type)
        self._total = np.zeros(scan.pattern_shape)
        self._read()
        at_hand = self.place == "device" or (self.place == "host" and group.device.type == "cpu")
        self._ahead = None if at_hand else self._reading_ahead()

    def _reading_ahead(self) -> ThreadPrefetch | ParallelPrefetch:
        if self.place == "disk" and ParallelPrefetch.possible(self._source, self.group.device):
            return ParallelPrefetch(self._source, self._type)
        return ThreadPrefetch(self._begin, self.group.device)

    def _read(self) -> None:
        patterns = self.patterns
        if self.place != "disk":
            self._held = self._room(len(self))
        scratch = torch.empty((0, *self.window), dtype=self._type)
        for rows, stored in self._source.pieces(patterns):
            wider = self._source.wide_enough(self._type, stored)
            if wider != self._type:
                self._widen(wider, rows.start)
            on_host = self.place != "disk" and self._held.device.type == "cpu"
            if not on_host and (len(scratch) < len(stored) or scratch.dtype != self._type):
                scratch = torch.empty(stored.shape, dtype=self._type)
            counts = self._held[rows] if on_host else scratch[: len(stored)]
            self._source.arrange(stored, counts, self._total)
            if self.place == "device" and not on_host:
                self._held[rows] = counts.to(self.group.device)

    def _room(self, patterns: int) -> Tensor:
        """Memory for so many patterns, as the frames have it."""
        shape = (patterns, *self.window)
        if self.place == "device":
            return torch.empty(shape, dtype=self._type, device=self.group.device)
        if self.group.device.type == "cuda":
            return torch.empty(shape, dtype=self._type, pin_memory=True)
        # numpy asks for large pages, torch does not: 0.5 instead of 0.9 s for half a GB, most of it page faults.
        return torch.from_numpy(np.empty(shape, NUMPY[self._type]))

    def _widen(self, dtype: torch.dtype, done: int) -> None:
        before, self._type = self._held, dtype
        if self.place != "disk":
            self._held = self._room(len(before))
            self._held[:done] = before[:done].to(dtype)

    def __len__(self) -> int:
        return len(self.patterns)

    @property
    def kind(self) -> torch.dtype:
        """The type that counts are held in."""
        return self._type

    def totals(self, count: int) -> tuple[Tensor, Sums]:
        """Of all `count` patterns of the group: their mean (y, x) float64 in the order of the model, and sums."""
        total = self.group.sum(torch.from_numpy(self._total).to(self.group.device)).cpu()
        if not total.any():
            raise InvalidValueError(f"All {count} patterns are empty: no pixel has a count above 0.")
        return total / count, Sums(float(total.sum()), self._squares)

    def _squares(self) -> float:
        """Σ I² over all engines: another pass over all patterns, on all of them."""
        squares = torch.zeros((), dtype=torch.float64, device=self.group.device)
        for patterns in self.portions(16):
            values = self._frames(patterns).double()
            squares += values.square_().sum()
        return float(self.group.sum(squares))

    def portions(self, size: int) -> Iterator[NDArray[np.int64]]:
        """This engine's patterns, `size` at a time."""
        for first in range(0, len(self), size):
            yield self.patterns[first : first + size]

    def follow(self, batches: Iterator[NDArray[np.int64]]) -> None:
        """Takes over which patterns will be asked for from now on, batch by batch, so that they can be read ahead."""
        if self._ahead is not None:
            self._ahead.follow(batches)

    def close(self) -> None:
        """Ends what reads ahead; no batch is made any more where frames are not held."""
        if self._ahead is not None:
            self._ahead.close()

    def batch(self, patterns: NDArray[np.int64], global_batch_size: int) -> Batch:
        """These patterns (indices of the whole scan) as the model takes them; `global_batch_size`: on all engines."""
        at_hand = self._ahead is None and self.place != "disk"
        return Batch(
            patterns=torch.from_numpy(patterns).to(self.group.device),
            stored=self._held if at_hand else self._frames(patterns),
            global_batch_size=global_batch_size,
            dtype=self.dtype,
            total=self.group.sum,
            rows=torch.from_numpy(self._row_of[patterns]) if at_hand else None,
        )

    def _frames(self, patterns: NDArray[np.int64]) -> Tensor:
        if self._ahead is not None and len(patterns):
            return self._ahead.take(patterns)
        return self._load(patterns)

    def _begin(self, patterns: NDArray[np.int64]) -> Callable[[], Tensor]:
        """Takes memory for the counts of these patterns; the function fills it, and brings it to the device."""
        if self.place != "disk":
            return lambda: self._load(patterns)
        counts = torch.empty(
            (len(patterns), *self.window), dtype=self._type, pin_memory=self.group.device.type == "cuda"
        )

        def fill() -> Tensor:
            self._source.batch(patterns, counts)
            return self._to_device(counts)

        return fill

    def _load(self, patterns: NDArray[np.int64]) -> Tensor:
        """The counts of patterns that are held (or of none), on the device."""
        if self.place == "disk":
            return torch.empty((0, *self.window), dtype=self._type, device=self.group.device)
        return self._to_device(selected(self._held, torch.from_numpy(self._row_of[patterns])))

    def _to_device(self, counts: Tensor) -> Tensor:
        return counts.to(self.group.device, non_blocking=True)


def choose_storage(wanted: Wanted, needed: int, everybody: int, device: torch.device, in_file: bool) -> Storage:
    """`storage_for` in the memory that is free now. Raises ValueError where frames can't be there."""
    if wanted == "disk" and not in_file:
        raise InvalidValueError(
            "frames is 'disk', and the patterns of this scan are in memory, not in a file; "
            "write them with save_scan and load that file, or choose 'auto'."
        )
    free = free_on_host()
    place = storage_for(
        wanted, needed, everybody, in_file, free, None if device.type == "cpu" else free_on_device(device)
    )
    if wanted == "auto" and place == "host" and everybody > free:
        raise InvalidValueError(
            f"The patterns take {everybody / 1e9:.3g} GB, and {free / 1e9:.3g} GB of memory are free; "
            "write them with save_scan and load that file, to have them read as they are needed."
        )
    return place


def storage_for(
    wanted: Wanted, needed: float, everybody: float, in_file: bool, host: float, device: float | None
) -> Storage:
    """The place that was asked for, or with "auto" the first one with room.

    needed: by this engine's frames, everybody: by those of all engines, which share the host's memory [bytes].
    host, device: what is free there [bytes]; device is None on a CPU, whose memory is the host's.
    """
    if wanted == "device" and device is None:
        return "host"
    if wanted != "auto":
        return wanted
    if device is not None and needed <= FREE_PART * device:
        return "device"
    return "host" if everybody <= FREE_PART * host or not in_file else "disk"


def free_on_host() -> int:
    """Memory that this machine has to give [bytes]."""
    return int(psutil.virtual_memory().available)


def free_on_device(device: torch.device) -> int:
    """Memory that a GPU has to give [bytes]."""
    return int(torch.cuda.mem_get_info(device)[0])
