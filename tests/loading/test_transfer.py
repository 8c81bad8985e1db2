"""Patterns on their way to a device: in their stored type, through few page-locked buffers, none overwritten too early.

The device is torch's "meta", whose tensors have shapes and types but no values, or a stream of copies that are made as
late as they may be.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ptynb.data.patterns import ArrayFrames, HDF5Frames
from ptynb.data.scan import Scan
from ptynb.distributed.group import SingleGroup
from ptynb.loading import engine_patterns, pattern_reader
from ptynb.loading.engine_patterns import EnginePatterns
from ptynb.loading.prefetch import AHEAD
from ptynb.loading.transfer import BufferRing
from tests.parametrization import each

COUNT, WINDOW = 30, (8, 6)
META = torch.device("meta")
PLACES = np.stack([np.arange(COUNT), np.arange(COUNT)], 1).astype(float)
STORED = {"uint8": torch.uint8, "uint16": torch.uint16, "int64": torch.int32, "float32": torch.float32}
"""Types in files, with counts up to 100,000 in the widest integer, and in which they are kept."""


class LateStream:
    """A device's stream of copies, each of which is made when it has to be, in order: `Transfer` in its worst case."""

    def __init__(self, device: torch.device | None = None) -> None:
        self.allocated, self.sent, self.waits = list[int](), list[Tensor](), 0
        self._pending = list[Callable[[], object]]()

    def pinned(self, count: int) -> Tensor:
        self.allocated.append(count)
        return torch.empty(count, dtype=torch.uint8)

    def send(self, counts: Tensor) -> tuple[Tensor, Late]:
        on_device = torch.zeros_like(counts)
        self._pending.append(lambda: on_device.copy_(counts))
        self.sent.append(counts)
        return on_device, Late(self, len(self.sent))

    def join(self, counts: Tensor, copied: Late) -> None:
        copied.synchronize()

    def run(self, until: int) -> None:
        done = len(self.sent) - len(self._pending)
        for _ in range(until - done):
            self.waits += 1
            self._pending.pop(0)()


@dataclasses.dataclass
class Late:
    """The end of the copy of this number, counted from 1."""

    stream: LateStream
    number: int

    def synchronize(self) -> None:
        self.stream.run(self.number)


class Copies(TorchDispatchMode):
    """Types and bytes of all that is copied from the host to the device "meta"."""

    def __init__(self) -> None:
        super().__init__()
        self.found = list[tuple[torch.dtype, int]]()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        source = args[1] if function is torch.ops.aten.copy_.default else args[0] if args else None
        copying = function in (torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default)
        if copying and source.device.type == "cpu" and result.device == META:
            self.found.append((result.dtype, result.nbytes))
        return result


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[LateStream]]:
    """The streams that are made, in place of those of CUDA."""
    made = list[LateStream]()

    def make(device: torch.device) -> LateStream:
        made.append(LateStream(device))
        return made[-1]

    monkeypatch.setattr(engine_patterns, "StreamTransfer", make)
    monkeypatch.setattr(engine_patterns, "free_on_device", lambda device, engines: 10**9)
    monkeypatch.setattr(pattern_reader, "PIECE_BYTES", 2000)
    return made


def a_scan(dtype: str, folder: Path | None = None) -> Scan:
    frames = np.random.default_rng(1).integers(0, 200, (COUNT, *WINDOW)).astype(dtype)
    if dtype == "int64":
        frames[COUNT // 2] += 100_000  # after some pieces were read as 16 bits
    if folder is None:
        return Scan(frames=ArrayFrames.of(frames), positions=PLACES)
    with h5py.File(folder / f"{dtype}.h5", "w") as file:
        return Scan(frames=HDF5Frames.of(file.create_dataset("patterns", data=frames)), positions=PLACES)


def shard_of(scan: Scan, place: Any) -> EnginePatterns:
    return EnginePatterns(scan, np.arange(COUNT), SingleGroup(META), torch.float32, place)


@each("dtype", STORED)
def test_patterns_travel_and_stay_in_their_stored_type(streams: list[LateStream], dtype: str) -> None:
    """On the device, only the counts of a batch have the model's type."""
    scan, kept = a_scan(dtype), STORED[dtype]
    with Copies() as copies:
        shard = shard_of(scan, "device")
        batch = shard.batch(np.array([3, 1]), 2)
    pixels = WINDOW[0] * WINDOW[1]
    assert shard.place == "device"
    assert (batch.stored.dtype, batch.stored.device, len(batch.stored)) == (kept, META, COUNT)
    assert (batch.frames.dtype, batch.counts.dtype, batch.counts.shape) == (kept, torch.float32, (2, *WINDOW))
    narrow = {kept, torch.uint16} if dtype == "int64" else {kept}
    patterns = [(kind, nbytes) for kind, nbytes in copies.found if nbytes > 16]
    assert {kind for kind, _ in patterns} == narrow, "others are the indices of two patterns"
    assert sum(nbytes // kind.itemsize for kind, nbytes in patterns) == COUNT * pixels
    assert all(nbytes <= 16 for kind, nbytes in copies.found if kind == torch.int64)


@each("place", ["host", "disk"])
def test_batches_travel_in_their_stored_type(streams: list[LateStream], tmp_path: Path, place: str) -> None:
    for dtype, kept in STORED.items():
        scan = a_scan(dtype, tmp_path if place == "disk" else None)
        shard = shard_of(scan, place)
        batch = shard.batch(np.array([COUNT // 2, 1]), 2)
        shard.close()
        assert [one.dtype for one in streams[-1].sent] == [kept], dtype
        assert (batch.stored.dtype, batch.rows, batch.counts.dtype) == (kept, None, torch.float32), dtype
        np.testing.assert_array_equal(batch.stored.to(torch.int64), counts_of(scan, [COUNT // 2, 1]), dtype)


def counts_of(scan: Scan, patterns: list[int]) -> np.ndarray[Any, Any]:
    return np.fft.ifftshift(scan.frames.read(0, COUNT)[patterns], axes=(1, 2)).astype(np.int64)


@each("place", ["host", "disk"])
def test_some_buffers_serve_all_batches(streams: list[LateStream], tmp_path: Path, place: str) -> None:
    """Three epochs with a smaller last batch, and all patterns at once, which nothing announced."""
    scan = a_scan("uint16", tmp_path if place == "disk" else None)
    shard, random = shard_of(scan, place), np.random.default_rng(5)
    epochs = [part for _ in range(3) for part in np.split(random.permutation(COUNT), [7, 14, 21, 28])]
    shard.follow(iter(epochs))
    for number, patterns in enumerate(epochs):
        found = shard.batch(patterns, len(patterns)).stored
        np.testing.assert_array_equal(found.to(torch.int64), counts_of(scan, patterns.tolist()), str(number))
        if number == 4:
            whole = shard.batch(np.arange(COUNT), COUNT).stored
            np.testing.assert_array_equal(whole.to(torch.int64), counts_of(scan, [*range(COUNT)]))
        assert not shard._held.is_pinned()
    shard.close()
    stream = streams[-1]
    assert len(stream.sent) == len(epochs) + 1
    assert len({one.untyped_storage().data_ptr() for one in stream.sent}) <= AHEAD + 2, "and one that was too small"
    assert len(stream.allocated) == AHEAD + 2
    assert max(stream.allocated) == COUNT * WINDOW[0] * WINDOW[1] * 2


def test_a_buffer_waits_for_its_own_last_copy_only() -> None:
    stream = LateStream()
    ring = BufferRing(stream, 3)
    results = [ring.copy((2, 4), torch.uint16, lambda counts, value=value: counts.fill_(value)) for value in range(3)]
    assert stream.waits == 0
    results += [ring.copy((4,), torch.uint8, lambda counts: counts.fill_(9))]
    assert stream.waits == 1, "the first copy, whose buffer is filled again"
    for value, (counts, copied) in enumerate(results[:3]):
        copied.synchronize()
        assert counts.to(torch.int64).eq(value).all(), value
    assert len(stream.allocated) == 3
