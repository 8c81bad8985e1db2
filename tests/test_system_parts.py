"""The parts of the system tests: what they name is there, and a change of a file makes its parts due."""

from __future__ import annotations

import dataclasses
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests import run, system_parts
from tests.system_parts import PARTS, ROOT


def test_every_file_that_a_part_names_is_there():
    named = {path for part in PARTS.values() for path in (*part.tests, *part.protects)}
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_every_part_has_tests_and_every_mark_names_a_part():
    marks = {
        found
        for file in (ROOT / "tests").rglob("test_*.py")
        for found in re.findall(r"mark\.system\(\"(\w+)\"\)", file.read_text())
    }
    assert marks <= set(PARTS)
    assert {name for name, part in PARTS.items() if not part.tests} <= marks


def test_a_file_belongs_to_the_part_with_the_longest_path():
    assert system_parts.part_of("tests/faults/test_engines.py") == "faults"
    assert system_parts.part_of("tests/faults/test_leaks.py") == "leaks"
    assert system_parts.part_of("tests/faultsmore.py") is None


def test_a_part_is_due_once_a_file_that_it_protects_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    copy = tmp_path / "checkout"
    for start in PARTS["hosts"].protects:
        (copy / start).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / start).is_dir() else shutil.copy)(ROOT / start, copy / start)
    monkeypatch.setattr(system_parts, "RECORD", tmp_path / "record.json")
    system_parts.RECORD.write_text("{}")
    assert set(system_parts.due()) == set(PARTS)
    system_parts.record("hosts")
    assert set(system_parts.due()) == set(PARTS) - {"hosts"}
    before = system_parts.digest("hosts", copy)
    assert before == system_parts.digest("hosts")
    (copy / "ptynb/cluster/rpc.py").write_text("# changed\n")
    changed = system_parts.digest("hosts", copy)
    assert changed != before
    (copy / "ptynb/cluster/rpc.py").rename(copy / "ptynb/cluster/rpc2.py")
    assert system_parts.digest("hosts", copy) not in (before, changed)


def test_a_part_is_not_due_for_the_tests_of_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(PARTS, "faults", dataclasses.replace(PARTS["faults"], protects=("tests/faults",)))
    shutil.copytree(ROOT / "tests/faults", tmp_path / "tests/faults")
    before = system_parts.digest("faults", tmp_path)
    (tmp_path / "tests/faults/test_leaks.py").write_text("# changed\n")
    assert system_parts.digest("faults", tmp_path) == before
    (tmp_path / "tests/faults/test_engines.py").write_text("# changed\n")
    assert system_parts.digest("faults", tmp_path) != before


def test_a_check_that_a_signal_ends_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Such as pytest, of which the system takes the memory; the checks before and after it pass."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\ncase "$*" in *loadfile*) kill -KILL $$;; esac\n')
    python.chmod(0o700)
    for name, value in {"executable": str(python), "argv": ["run.py"]}.items():
        monkeypatch.setattr(sys, name, value)
    monkeypatch.setattr(run, "install", lambda: None)
    monkeypatch.setattr(run, "run", lambda *command: None)
    monkeypatch.setattr(run, "due", lambda: [])
    with pytest.raises(SystemExit) as ended:
        run.main()
    assert ended.value.code == 128 + 9
    python.write_text("#!/bin/sh\n")
    with pytest.raises(SystemExit) as ended:
        run.main()
    assert ended.value.code == 0
