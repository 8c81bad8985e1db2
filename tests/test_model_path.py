"""From a scan to a model on an engine, and from a batch to its gradient: a reader follows few files."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any, Literal

import pytest
import torch

import ptynb
from ptynb.distributed.group import SingleGroup
from ptynb.engine.loop import Loop
from ptynb.optimize.algorithm_choice import make_algorithm
from ptynb.optimize.batch_algorithm import BatchAlgorithm
from ptynb.settings import Settings
from tests.architecture import named
from tests.cases import a_scan

MOST_FILES = 15
RECORDS = "data", "settings"
"""Packages of records, which count once each: a reader looks up a field there, and follows nothing."""


@contextlib.contextmanager
def files_of_calls(end: FunctionType | None = None) -> Iterator[set[str]]:
    """The files of ptynb, packages of records as one each, with functions that are called before `end` is."""
    package, before = Path(ptynb.__file__).parent, sys.getprofile()
    files, ended = set[str](), False

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal ended
        ended = ended or (end is not None and frame.f_code is end.__code__)
        path = Path(frame.f_code.co_filename)
        if event == "call" and not ended and path.is_relative_to(package):
            parts = path.relative_to(package).parts
            files.add(parts[0] if parts[0] in RECORDS else "/".join(parts))

    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(before)
    assert end is None or ended


def test_a_model_is_built_by_few_files():
    build = a_scan(), Settings(), SingleGroup(torch.device("cpu"))
    Loop(*build).disconnect()  # compiles and imports what is needed
    with files_of_calls(make_algorithm) as files:
        loop = Loop(*build)
    loop.disconnect()
    assert {"engine/loop.py", "loading/engine_patterns.py", "physics/model.py", *RECORDS} <= files
    assert len(files) <= MOST_FILES, sorted(files)
    assert not files - named("The way of a pattern")


@pytest.mark.parametrize("optimiser", ["adam", "lsqml"])
def test_a_batch_gets_to_its_gradient_by_few_files(optimiser: Literal["adam", "lsqml"]):
    loop = Loop(a_scan(), Settings(optimiser=optimiser), SingleGroup(torch.device("cpu")))
    loop.step()
    algorithm, own = loop.algorithm, loop.shard.patterns[:4]
    assert isinstance(algorithm, BatchAlgorithm)
    with files_of_calls() as files, torch.set_grad_enabled(optimiser == "adam"):
        algorithm.measure(own, len(own), None)
    loop.disconnect()
    assert {"loading/engine_patterns.py", "physics/model.py", "physics/hotpath.py"} <= files
    assert len(files) <= MOST_FILES, sorted(files)
    assert not files - named("The way of a pattern")
