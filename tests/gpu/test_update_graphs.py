"""Updates recorded as CUDA graphs: on the pretended GPU, with a recorder that repeats operations on the same memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import ptynb as pt
from ptynb.distributed.group import SingleGroup
from ptynb.engine.loop import Loop
from ptynb.loading import device_memory
from ptynb.optimize import update_graphs
from ptynb.optimize.algorithm import Problem
from ptynb.optimize.update_graphs import MOST_GRAPHS, WARM_UP, UpdateGraphs
from ptynb.physics.components.component import Batch
from tests.gpu.recorded_cases import LIVE

CPU = torch.device("cpu")
CHANGED = ("rates", "positions later", "rpie", "regularizers", "lsqml, frozen", "lsqml, parts")
"""Cases of `tests.gpu.recorded_updates` in which a number that is part of a recorded update changes."""


def test_runs_with_graphs_are_equal_to_the_bit_to_those_without() -> None:
    command = [sys.executable, "-m", "tests.gpu.recorded_updates"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout)
    assert {name: one["differ"] for name, one in found.items() if one["differ"]} == {}
    # One for whole batches and one for the last, smaller ones, if there are enough of them; more after a change.
    graphs = {name: one["graphs"] for name, one in found.items()}
    changed = {name for name in graphs if name in CHANGED or name.endswith(("restored", "one of two", "live"))}
    assert {name: count for name, count in graphs.items() if name not in changed} == {
        name: graphs["plain"] for name in graphs if name not in changed
    }
    assert graphs["plain"] >= 1
    assert all(graphs[name] > graphs["plain"] for name in CHANGED)
    assert graphs["one of two"] >= 1
    assert graphs["lsqml, one of two"] > graphs["one of two"], "one more after a change"
    assert {graphs[f"{name}, live"] for name in LIVE} == {2}, "another one once the patterns are in other memory"


class Recorder:
    """A recorder whose replays do nothing."""

    fails = False

    def __init__(self, device: torch.device) -> None:
        pass

    @contextmanager
    def aside(self) -> Iterator[None]:
        yield

    memory = staticmethod(update_graphs.CudaRecorder.memory)

    @contextmanager
    def recording(self) -> Iterator[Any]:
        yield SimpleNamespace(replay=lambda: None)
        if self.fails:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nCUDA kernel errors might")

    def forget(self) -> None:
        pass


@pytest.fixture
def problem(monkeypatch: pytest.MonkeyPatch) -> Problem:
    monkeypatch.setitem(update_graphs.RECORDERS, "cpu", Recorder)
    return Loop(pt.simulate(patterns=16, window=16, seed=0), pt.Settings(), SingleGroup(CPU)).problem


class Executed:
    """Updates of some patterns, and how many were executed without a graph."""

    def __init__(self, problem: Problem) -> None:
        self.graphs, self.count = UpdateGraphs(problem), 0

    def __call__(self, patterns: int) -> int:
        def compute(indices: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return indices.sum()

        return int(self.graphs.run((patterns,), np.arange(patterns), compute, []))


def test_an_update_that_cannot_be_recorded_is_executed_with_one_notice(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recorder, "fails", True)
    update = Executed(problem)
    assert update.graphs.possible
    for _ in range(WARM_UP):
        assert update(3) == 3
    assert update.graphs.notices == ()
    assert update(3) == 3
    (notice,) = update.graphs.notices
    assert "not permitted when stream is capturing. A component" in notice
    assert not update.graphs.possible
    assert update(3) == 3
    assert update.graphs.notices == (notice,)
    assert update.count == WARM_UP + 3, "each update is executed, and the failed recording was one more call"


def test_few_sizes_are_recorded_and_large_batches_are_not(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update_graphs, "MOST_RECORDED", 8 * 16 * 16)
    update = Executed(problem)
    for patterns in (*range(1, 4 + MOST_GRAPHS), 9):
        update.count = 0
        for _ in range(WARM_UP + 3):
            update(patterns)
        recorded = patterns <= MOST_GRAPHS
        assert update.count == (WARM_UP + 1 if recorded else WARM_UP + 3), patterns
    update.graphs.clear()
    for patterns, count in ((8, WARM_UP + 1), (9, WARM_UP + 3)):
        update.count = 0
        for _ in range(WARM_UP + 3):
            update(patterns)
        assert update.count == count


class Unchanging(pt.ModelComponent):
    """A component of the user's without an effect."""

    name = "unchanging"

    def illuminate(self, probes: torch.Tensor, batch: Batch) -> torch.Tensor:
        return probes


@pytest.mark.parametrize("recordable", [False, True])
def test_a_custom_component_is_recorded_only_if_it_says_so(
    recordable: bool, problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Unchanging, "recordable", recordable)
    own = Unchanging()
    loop = Loop(pt.simulate(patterns=16, window=16, seed=0), pt.Settings(), SingleGroup(CPU), [own])
    graphs = UpdateGraphs(loop.problem)
    assert graphs.possible is recordable
    own.active = False
    assert graphs.possible


class Capture:
    """`torch.cuda` as far as recording uses it: what was called, and the stream that is current; recordings fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.called, self.streams, self.pools = list[str](), ["default"], 0
        side = SimpleNamespace(device_index=0)
        graph = SimpleNamespace(capture_begin=self.begin, capture_end=self.end)
        for name, value in (
            ("Stream", lambda device: side),
            ("stream", self.stream),
            ("CUDAGraph", lambda: graph),
            ("graph_pool_handle", self.pool),
            ("synchronize", lambda: None),
            ("empty_cache", lambda: None),
        ):
            monkeypatch.setattr(torch.cuda, name, value)
        for name in ("_cuda_endAllocateToPool", "_cuda_releasePool"):
            monkeypatch.setattr(torch._C, name, lambda *given, name=name: self.called.append(f"{name} {given}"), False)

    @contextmanager
    def stream(self, stream: object) -> Iterator[None]:
        self.streams.append("side")
        try:
            yield
        finally:
            self.streams.pop()

    def pool(self) -> tuple[int, int]:
        self.pools += 1
        return 0, self.pools

    def begin(self, pool: tuple[int, int], capture_error_mode: str) -> None:
        self.called.append(f"begin {pool} on {self.streams[-1]}")

    def end(self) -> None:
        raise RuntimeError("CUDA error: operation failed due to a previous error during capture")


def test_after_a_failed_recording_stream_and_memory_are_those_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Capture(monkeypatch)
    recorder = update_graphs.CudaRecorder(torch.device("cuda", 0))
    for pool in (1, 2):
        cuda.called.clear()
        with pytest.raises(RuntimeError, match="previous error"), recorder.recording():
            assert device_memory.WHOLE_GPU.locked()
        assert cuda.called == [
            f"begin (0, {pool}) on side",
            f"_cuda_endAllocateToPool (0, (0, {pool}))",
            f"_cuda_releasePool (0, (0, {pool}))",
        ]
        assert cuda.streams == ["default"]
        assert not device_memory.WHOLE_GPU.locked()
        recorder.forget()
