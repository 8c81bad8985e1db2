"""From a scan to a model on an engine: a reader follows few files."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import ptynb
from ptynb.distributed.group import SingleGroup
from ptynb.engine.loop import Loop
from ptynb.optimize.algorithm_choice import make_algorithm
from ptynb.settings import Settings
from tests.cases import a_scan

MOST_FILES = 15
RECORDS = "data", "settings"
"""Packages of records, which count once each: a reader looks up a field there, and follows nothing."""


def test_a_model_is_built_by_few_files():
    package = Path(ptynb.__file__).parent
    files, ended = set[str](), False

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal ended
        ended = ended or frame.f_code is make_algorithm.__code__
        path = Path(frame.f_code.co_filename)
        if event == "call" and not ended and path.is_relative_to(package):
            parts = path.relative_to(package).parts
            files.add(parts[0] if parts[0] in RECORDS else "/".join(parts))

    build = a_scan(), Settings(), SingleGroup(torch.device("cpu"))
    Loop(*build).disconnect()  # compiles and imports what is needed
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        loop = Loop(*build)
    finally:
        sys.setprofile(before)
    loop.disconnect()
    assert ended
    assert {"engine/loop.py", "loading/engine_patterns.py", "physics/model.py", *RECORDS} <= files
    assert len(files) <= MOST_FILES, sorted(files)
