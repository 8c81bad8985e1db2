"""The parts of the system tests: which tests they are, which files they protect, and with which of these they passed.

System tests kill processes, cut networks, drive JupyterLab, or repeat a quicker test with all its cases, and take
longer than all others together. So each part runs only where the files that it protects differ from those with which it
passed last: `system_parts.json` holds a digest of those for each part, and is committed with the change that it was run
on.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORD = Path(__file__).with_suffix(".json")
PROCESSES = ("ptynb/cluster", "ptynb/session", "ptynb/engine", "ptynb/distributed", "ptynb/io/checkpoint_file.py")
MODEL = ("ptynb/physics", "ptynb/kernels", "ptynb/optimize", "ptynb/engine/loop.py", "tests/cases.py")
CLUSTER_FIELDS = ("ptynb/app/cluster_choice.py", "ptynb/app/run_fields.py")
SCREEN = ("ptynb/widgets", "ptynb/app", "ptynb/session")
LAB = tuple(f"tests/widgets/test_{name}.py" for name in ("lab", "restart", "tasks", "workbench"))
RECOVERY = ("tests/engine/test_convergence.py", "tests/physics/test_recovery.py")
TRITON = ("tests/kernels/test_triton_kernels.py",)
TUNING = ("tests/tuning/test_recommendation.py", "tests/tuning/test_scaling_test.py")


@dataclass(frozen=True)
class Part:
    """One part: tests by file or folder (others carry the marker `system(part)`), and the files that they protect."""

    tests: tuple[str, ...]
    protects: tuple[str, ...]


PARTS = {
    "acceptance": Part(("tests/test_acceptance.py",), (*MODEL, "ptynb/loading", "tests/test_acceptance.py")),
    "acquisition": Part(
        ("tests/acquisition/test_endings.py", "tests/acquisition/test_kills.py"),
        (
            "ptynb/acquisition",
            "ptynb/data/arrivals.py",
            "ptynb/io/scan_file.py",
            "ptynb/loading/arrival_watch.py",
            "tests/acquisition",
        ),
    ),
    "benchmarks": Part(("tests/benchmarks",), ("tests/benchmarks",)),
    "faults": Part(("tests/faults",), (*PROCESSES, "tests/faults")),
    "hosts": Part(("tests/hosts",), ("ptynb/cluster", "ptynb/distributed", *CLUSTER_FIELDS, "tests/hosts")),
    "lab": Part(
        LAB,
        (*SCREEN, *LAB, "tests/widgets/user.py"),
    ),
    "leaks": Part(("tests/faults/test_leaks.py",), (*PROCESSES, "tests/faults/test_leaks.py")),
    "notebooks": Part(
        (),
        (
            "notebooks",
            "ptynb/__init__.py",
            "ptynb/__init__.pyi",
            "ptynb/app",
            "ptynb/cli",
            "tests/cli/test_cli.py",
            "tests/test_notebooks.py",
        ),
    ),
    "recovery": Part(RECOVERY, (*MODEL, "ptynb/simulation", *RECOVERY)),
    "sessions": Part(("tests/batch/test_torchrun.py",), (*PROCESSES, "ptynb/batch", "tests/batch")),
    "simulated_gpu": Part(("tests/gpu/test_pretended.py",), (*MODEL, "ptynb/loading", "tests/gpu")),
    "slurm": Part(("tests/slurm",), ("ptynb/cluster", *CLUSTER_FIELDS, "tests/slurm")),
    "triton": Part(TRITON, ("ptynb/kernels/gpu", "ptynb/physics", "tests/kernels/triton_checks.py", *TRITON)),
    "tuning": Part(TUNING, ("ptynb/optimize", "ptynb/preparation", "ptynb/session", "ptynb/tuning", *TUNING)),
    "worlds": Part((), (*MODEL, "ptynb/loading", "ptynb/distributed", "tests/engine", "tests/optimize")),
}


def part_of(path: str) -> str | None:
    """The part that the test file at this path (relative to the checkout) belongs to as a whole, if any."""
    found = [
        (len(start), name)
        for name, part in PARTS.items()
        for start in part.tests
        if path == start or path.startswith(f"{start}/")
    ]
    return max(found)[1] if found else None


def digest(part: str, root: Path = ROOT) -> str:
    """SHA-256 of the names and contents of the files that a part protects, without the tests of other parts."""
    found = hashlib.sha256()
    for start in sorted(set(PARTS[part].protects)):
        place = root / start
        files = [place] if place.is_file() else sorted(place.rglob("*"))
        for file in files:
            name = file.relative_to(root).as_posix()
            if not file.is_file() or {"__pycache__", ".ipynb_checkpoints"} & {*file.parts}:
                continue
            if part_of(name) in (None, part):
                content = file.read_bytes()
                found.update(f"{name} {len(content)}\n".encode())
                found.update(content)
    return found.hexdigest()


def due() -> list[str]:
    """The parts whose files are not those with which they passed last."""
    passed = json.loads(RECORD.read_text())
    return [part for part in PARTS if passed.get(part) != digest(part)]


def record(part: str) -> None:
    """Notes that a part passed with the files as they are."""
    passed = {**json.loads(RECORD.read_text()), part: digest(part)}
    RECORD.write_text(json.dumps(dict(sorted(passed.items())), indent=2) + "\n")
