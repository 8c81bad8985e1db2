"""The parts of the system tests: a change of a file makes those due whose tests depend on it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests import run, system_parts
from tests.import_graph import imported, nearest, reached
from tests.system_parts import PARTS, ROOT, digest


def test_every_file_that_a_part_names_is_there():
    named = {path for part in PARTS.values() for path in (*part.tests, *part.protects)}
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_every_part_has_tests_and_every_mark_names_a_part():
    texts = [file.read_text() for file in (ROOT / "tests").rglob("test_*.py")]
    assert {found for text in texts for found in re.findall(r"mark\.system\(\"(\w+)\"\)", text)} <= set(PARTS)
    assert [part for part in PARTS if not system_parts.own_tests(part)] == []


def test_a_file_belongs_to_the_part_with_the_longest_path():
    assert system_parts.part_of("tests/faults/test_engines.py") == "faults"
    assert system_parts.part_of("tests/faults/test_leaks.py") == "leaks"
    assert system_parts.part_of("tests/faultsmore.py") is None


def test_what_a_part_protects_is_reached_by_its_tests():
    """Commands, scripts and the workbench are run by their names, and pages of the browser are not imported."""
    started = ("ptynb/cli", "ptynb/app", "frontend", "notebooks", "ptynb/__init__", "tests", "benchmarks", "deploy")
    for name, part in PARTS.items():
        found = {path.relative_to(ROOT).as_posix() for path in reached(system_parts.own_tests(name))}
        subjects = [path for path in part.protects if not path.startswith(started)]
        assert [path for path in subjects if not any(one.startswith(path) for one in found)] == [], name


def a_checkout(root: Path) -> Path:
    """A package of a few files, with one test for the part "faults" and one for "leaks"."""
    files = {
        "ptynb/__init__.py": "",
        "ptynb/__init__.pyi": "from .a.scan import Scan as Scan",
        "ptynb/a/scan.py": "def f():\n    import ptynb.b.late",
        "ptynb/b/late.py": "",
        "ptynb/cluster/rpc.py": "",
        "ptynb/cluster/page.html": "",
        "ptynb/io/checkpoint_file.py": "",
        "tests/conftest.py": "",
        "tests/faults/kill.py": "",
        "constraints.txt": "",
        "tests/faults/test_engines.py": "import ptynb as pt\nfrom tests.faults.kill import kill\npt.Scan",
        "tests/faults/test_leaks.py": "from ptynb.cluster import rpc",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("changed", "due"),
    [
        ("ptynb/cluster/rpc.py", ["faults", "leaks"]),
        ("ptynb/cluster/page.html", ["faults", "leaks"]),
        ("ptynb/a/scan.py", []),
        ("tests/faults/kill.py", ["faults"]),
        ("tests/faults/test_leaks.py", ["leaks"]),
        ("tests/conftest.py", ["faults", "leaks"]),
        ("constraints.txt", ["faults", "leaks"]),
    ],
)
def test_a_change_makes_the_parts_due_that_depend_on_it(changed, due, tmp_path: Path):
    root = a_checkout(tmp_path)
    before = {part: digest(part, root) for part in ("faults", "leaks")}
    (root / changed).write_text(f"{(root / changed).read_text()}\n# changed\n")
    assert [part for part, one in before.items() if digest(part, root) != one] == due


def test_the_nearest_tests_come_first(tmp_path: Path):
    root = a_checkout(tmp_path)
    engines, leaks = (root / f"tests/faults/test_{name}.py" for name in ("engines", "leaks"))
    assert nearest({root / "ptynb/b/late.py"}, [engines, leaks], root) == [engines]
    assert reached([engines], root)[root / "ptynb/b/late.py"] == 2
    leaks.write_text("import ptynb.b.late")
    imported.cache_clear()
    assert nearest({root / "ptynb/b/late.py"}, [engines, leaks], root) == [leaks, engines]


def test_a_part_has_passed_if_one_of_two_branches_ran_it_with_these_files(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(system_parts, "RECORD", tmp_path / "record.txt")
    monkeypatch.setattr(system_parts, "PARTS", {name: PARTS[name] for name in ("hosts", "leaks")})
    system_parts.RECORD.write_text("hosts 0123 9 s\nleaks 4567 9 s\n")
    system_parts.record("hosts", 12.3)
    assert system_parts.due() == ["leaks"]
    system_parts.RECORD.write_text(f"{system_parts.RECORD.read_text()}hosts 89ab 9 s\n")
    assert system_parts.due() == ["leaks"]


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
