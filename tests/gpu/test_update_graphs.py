"""Updates recorded as CUDA graphs: on the pretended GPU, with a recorder that repeats operations on the same memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from ptynb.optimize import update_graphs
from ptynb.optimize.update_graphs import WARM_UP, UpdateGraphs

CPU = torch.device("cpu")


def test_runs_with_graphs_are_equal_to_the_bit_to_those_without() -> None:
    command = [sys.executable, "-m", "tests.gpu.recorded_updates"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout)
    assert {name: one["differ"] for name, one in found.items() if one["differ"]} == {}
    # One for whole batches and one for the last, smaller ones, if there are enough of them; more after a change.
    assert {name: one["graphs"] for name, one in found.items()} == {
        **dict.fromkeys(found, found["plain"]["graphs"]),
        **{name: found[name]["graphs"] for name in ("rates", "positions later", "restored", "rpie", "regularizers")},
    }
    assert found["plain"]["graphs"] >= 1
    assert all(
        found[name]["graphs"] > found["plain"]["graphs"]
        for name in ("rates", "positions later", "rpie", "regularizers")
    )


class Failing:
    """A recorder on a device that cannot record."""

    def __init__(self, device: torch.device) -> None:
        self.executed = 0

    @contextmanager
    def aside(self) -> Iterator[None]:
        yield

    @contextmanager
    def recording(self) -> Iterator[None]:
        yield
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nCUDA kernel errors might ...")


def test_an_update_that_cannot_be_recorded_is_executed_with_one_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(update_graphs.RECORDERS, "cpu", Failing)
    graphs, done = UpdateGraphs(CPU), list[int]()

    def compute(indices: torch.Tensor) -> torch.Tensor:
        done.append(len(indices))
        return indices.sum()

    def update() -> Any:
        return graphs.run((3,), np.arange(3), compute, [])

    assert graphs.possible
    for _ in range(WARM_UP):
        assert update() == 3
    assert graphs.notices == ()
    assert update() == 3
    (notice,) = graphs.notices
    assert "not permitted when stream is capturing. A component" in notice
    assert not graphs.possible
    assert update() == 3
    assert graphs.notices == (notice,)
    assert len(done) == WARM_UP + 3, "each update is executed, and the failed recording was one more call"
