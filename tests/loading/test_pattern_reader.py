"""Counts from files: the smallest exact type, what is refused, and how little memory it takes."""

from __future__ import annotations

import dataclasses
import tracemalloc
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from ptynb.data.patterns import ArrayFrames, HDF5Frames
from ptynb.data.scan import Scan
from ptynb.distributed.group import SingleGroup
from ptynb.exceptions import ScanError
from ptynb.loading import pattern_reader as source_module
from ptynb.loading.engine_patterns import EnginePatterns
from ptynb.loading.pattern_reader import PIECE_BYTES, PatternReader
from tests.raising import raises

COUNT, WINDOW = 40, (12, 9)
PATTERNS = np.random.default_rng(0).integers(0, 200, (COUNT, *WINDOW))
PLACES = np.stack([np.arange(COUNT), np.arange(COUNT)], 1).astype(float)


def a_scan(patterns: np.ndarray[Any, Any], **choices: Any) -> Scan:
    return Scan(frames=ArrayFrames.of(patterns), positions=PLACES[: len(patterns)], **choices)


def a_shard(scan: Scan, dtype: torch.dtype = torch.float32, patterns: Any = None) -> EnginePatterns:
    patterns = np.arange(len(scan)) if patterns is None else np.asarray(patterns)
    return EnginePatterns(scan, patterns, SingleGroup(torch.device("cpu")), dtype)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few patterns a piece."""
    monkeypatch.setattr(source_module, "PIECE_BYTES", 7 * WINDOW[0] * WINDOW[1] * 2)


def test_counts_are_held_in_the_smallest_exact_type() -> None:
    """The largest count comes late, in a piece of its own."""
    cases = [
        ("u1", 255, torch.float32, torch.uint8),
        (">i2", 32767, torch.float32, torch.uint16),
        ("<u4", 65535, torch.float32, torch.uint16),
        ("<u4", 65536, torch.float32, torch.int32),
        ("<i8", 2**31 - 1, torch.float64, torch.int32),
        ("<u4", 2**31, torch.float32, torch.float32),
        ("<u8", 2**40, torch.float64, torch.float64),
        ("<f4", 0.25, torch.float64, torch.float32),
        ("<f8", 0.1, torch.float64, torch.float64),
    ]
    for stored, most, working, held in cases:
        case = f"{stored} up to {most} for {working}"
        patterns = np.minimum(PATTERNS, 100).astype(stored)
        patterns[30, 4, 5] = most
        shard = a_shard(a_scan(patterns), working)
        assert shard._held.dtype == held, case
        expected = np.fft.ifftshift(patterns, axes=(1, 2))
        counts = shard.batch(np.arange(COUNT), COUNT).counts
        assert counts.dtype == working, case
        np.testing.assert_array_equal(counts.numpy(), expected.astype(str(working).split(".")[1]), case)


def test_a_bad_count_is_refused_as_the_scan_does() -> None:
    for fault, at in ((-3.0, 0), (np.nan, 17), (np.inf, 39)):
        case = f"{fault} in pattern {at}"
        patterns = PATTERNS.astype(np.float32)
        patterns[at, 2, 3] = fault
        scan = a_scan(patterns)
        with pytest.raises(ScanError) as by_the_scan:
            scan.counts(0, COUNT)
        with raises(by_the_scan.value.code, by_the_scan.value, f"attern {at} "):
            a_shard(scan)
        others = np.delete(np.arange(COUNT), at)
        expected = np.fft.ifftshift(patterns[others], axes=(1, 2))
        np.testing.assert_array_equal(a_shard(scan, patterns=others)._held.numpy(), expected, case)


def test_bad_pixels_are_not_looked_at_and_negative_counts_are_clipped() -> None:
    patterns = PATTERNS - 5.0
    patterns[:, 3, 4] = np.nan
    patterns[:, 5, 5] = -1e9
    mask = np.ones(WINDOW, bool)
    mask[3, 4] = mask[5, 5] = False
    scan = a_scan(patterns, mask=mask, clip_negative=True)
    expected = np.fft.ifftshift(np.where(mask, np.maximum(PATTERNS - 5, 0), 0), axes=(1, 2))
    np.testing.assert_array_equal(a_shard(scan)._held.numpy(), expected)
    counts = torch.empty((3, *WINDOW))
    PatternReader(scan, torch.float32).batch(np.array([8, 2, 9]), counts)
    np.testing.assert_array_equal(counts.numpy(), expected[[8, 2, 9]])


def test_patterns_in_fft_order_stay() -> None:
    shard = a_shard(a_scan(PATTERNS.astype(np.uint16), centred=False))
    np.testing.assert_array_equal(shard._held.numpy(), PATTERNS)


def test_no_chunk_is_cut(tmp_path: Path) -> None:
    """Compressed in chunks of 3; pieces of up to 7 patterns end with a chunk, some patterns are others'."""
    with h5py.File(tmp_path / "patterns.h5", "w") as file:
        data = PATTERNS.astype(np.uint16)
        frames = HDF5Frames.of(file.create_dataset("frames", data=data, chunks=(3, *WINDOW), compression="gzip"))
    source = PatternReader(dataclasses.replace(a_scan(data), frames=frames), torch.float32)
    own = np.flatnonzero(np.random.default_rng(3).random(COUNT) > 0.4)
    pieces = [(part, stored.copy()) for part, stored in source.chunks(own)]
    assert np.concatenate([own[part] for part, _ in pieces]).tolist() == own.tolist()
    ends = [set((own[part] // 3).tolist()) for part, _ in pieces]
    assert sum(len(chunks) for chunks in ends) == len(set().union(*ends))
    assert 1 < len(pieces) < len(set().union(*ends))
    for part, stored in pieces:
        assert 1 <= len(stored) <= 7
        np.testing.assert_array_equal(stored, data[own[part]])


def test_loading_takes_little_memory_beside_the_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "PIECE_BYTES", PIECE_BYTES)
    shape = (1500, 128, 128)
    with h5py.File(tmp_path / "patterns.h5", "w") as file:
        dataset = file.create_dataset("frames", shape, np.uint32, chunks=(1, 128, 128), compression="gzip")
        dataset[17] = 3
        scan = dataclasses.replace(
            a_scan(PATTERNS), frames=HDF5Frames.of(dataset), positions=np.zeros((1500, 2)), mask=np.eye(128) < 1
        )
    tracemalloc.start()
    shard = a_shard(scan)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert shard._held.nbytes == np.prod(shape) * 2
    assert shard._held.nbytes < peak < shard._held.nbytes + 3 * PIECE_BYTES
