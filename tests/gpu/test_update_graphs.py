"""Updates recorded as CUDA graphs: on the pretended GPU, with a recorder that repeats operations on the same memory."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from ptynb.exceptions import PtynbWarning
from ptynb.optimize import update_graphs
from ptynb.optimize.update_graphs import WARM_UP, UpdateGraphs

CPU = torch.device("cpu")
CHANGED = ("rates", "positions later", "rpie", "regularizers", "lsqml, frozen", "lsqml, parts")
"""Cases of `tests.gpu.recorded_updates` in which a number that is part of a recorded update changes."""


def test_runs_with_graphs_are_equal_to_the_bit_to_those_without() -> None:
    command = [sys.executable, "-m", "tests.gpu.recorded_updates"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout)
    assert {name: one["differ"] for name, one in found.items() if one["differ"]} == {}
    # One for whole batches and one for the last, smaller ones, if there are enough of them; more after a change.
    graphs = {name: one["graphs"] for name, one in found.items()}
    changed = {name for name in graphs if name in CHANGED or "restored" in name or "one of two" in name}
    assert {name: count for name, count in graphs.items() if name not in changed} == {
        name: graphs["plain"] for name in graphs if name not in changed
    }
    assert graphs["plain"] >= 1
    assert all(graphs[name] > graphs["plain"] for name in CHANGED)
    assert graphs["one of two"] >= 1
    assert graphs["lsqml, one of two"] > graphs["one of two"], "one more after a change"


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


def test_an_update_that_cannot_be_recorded_is_executed_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
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
    with pytest.warns(PtynbWarning, match=r"not permitted when stream is capturing\. A component") as caught:
        assert update() == 3
    assert len(caught) == 1
    assert not graphs.possible
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert update() == 3
    assert len(done) == WARM_UP + 3, "each update is executed, and the failed recording was one more call"
