"""Batches on their way from the host's memory to a device, through page-locked buffers that are used again.

A copy from pageable memory blocks the host, and page-locked memory is slow to allocate, is rounded up to a power of two
by torch, and is kept for the life of the process. So only some batches have it, not all patterns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, final

import numpy as np
import torch
from torch import Tensor


class Copied(Protocol):
    """The end of a copy: an event of the device, after which source and result may be used."""

    def synchronize(self) -> None:
        """Wait until the copy is complete."""


class Transfer(Protocol):
    """The copies to a device, beside its computation."""

    def pinned(self, count: int) -> Tensor:
        """Return so many bytes of page-locked memory of the host, uint8."""

    def send(self, counts: Tensor) -> tuple[Tensor, Copied]:
        """Begin to copy `counts` from page-locked memory; return those on the device, and the end of the copy."""

    def join(self, counts: Tensor, copied: Copied) -> None:
        """Let the computation that the calling thread begins from now on wait for the end of the copy."""


@final
class StreamTransfer:
    """`Transfer` to a GPU, in a stream of its own."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._backend = device, torch.get_device_module(device)
        self._side = self._backend.Stream(device)

    def pinned(self, count: int) -> Tensor:
        """Return page-locked memory."""
        return torch.empty(count, dtype=torch.uint8, pin_memory=True)

    def send(self, counts: Tensor) -> tuple[Tensor, Copied]:
        """Begin the copy in the stream beside that of the computation."""
        # Blocking: the reading thread, should it ever wait, leaves its core to others.
        event = torch.cuda.Event(blocking=True) if self._device.type == "cuda" else self._backend.Event()
        with self._backend.stream(self._side):
            on_device = counts.to(self._device, non_blocking=True)
            self._side.record_event(event)
        return on_device, event

    def join(self, counts: Tensor, copied: Copied) -> None:
        """Let the present stream wait, and keep the memory of `counts` until it has used them."""
        now = self._backend.current_stream(self._device)
        now.wait_event(copied)
        counts.record_stream(now)


@final
class BufferRing:
    """Page-locked buffers of batches, filled in turn, each only after its last copy is complete.

    Called by one thread at a time.
    """

    def __init__(self, transfer: Transfer, buffers: int) -> None:
        """buffers: their number; with one more than the batches that are read ahead, filling waits for no copy."""
        self._transfer = transfer
        self._buffers: list[Tensor | None] = [None] * buffers
        self._copied: list[Copied | None] = [None] * buffers
        self._next = 0

    def copy(
        self, shape: tuple[int, ...], dtype: torch.dtype, fill: Callable[[Tensor], object]
    ) -> tuple[Tensor, Copied]:
        """Return a batch on the device, and the end of its copy. fill: writes the counts into a tensor on the host."""
        slot, self._next = self._next, (self._next + 1) % len(self._buffers)
        counts = self._emptied(slot, int(np.prod(shape)) * dtype.itemsize).view(dtype).view(shape)
        fill(counts)
        on_device, copied = self._transfer.send(counts)
        self._copied[slot] = copied
        return on_device, copied

    def _emptied(self, slot: int, count: int) -> Tensor:
        """Return so many bytes of this buffer, which no copy reads any more."""
        copied = self._copied[slot]
        if copied is not None:
            copied.synchronize()
        buffer = self._buffers[slot]
        if buffer is None or len(buffer) < count:
            self._buffers[slot] = None  # before the larger one is allocated
            self._buffers[slot] = buffer = self._transfer.pinned(count)
        return buffer[:count]
