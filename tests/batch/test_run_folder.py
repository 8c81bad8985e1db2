"""The names of what is in the folder of a run are in one place, which a worker of the service can afford."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import ptynb
from ptynb.batch.run_folder import CHECKPOINTS, OUTCOME, PROGRESS, RESULT, RUN

PACKAGE = Path(ptynb.__file__).parent


def test_each_name_is_written_once() -> None:
    names = (RUN, RESULT, CHECKPOINTS, PROGRESS, OUTCOME)
    found = [
        (node.value, path.name)
        for folder in ("batch", "service")
        for path in sorted((PACKAGE / folder).glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in names
    ]
    assert found == [(name, "run_folder.py") for name in names]


def test_a_worker_starts_without_what_writes_the_folder() -> None:
    program = "import sys, ptynb.service.job_worker; print(*sys.modules)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(answer.stdout.split())
    assert "ptynb.batch.run_folder" in loaded
    assert not loaded & {"torch", "numpy", "ptynb.batch.run_job"}
