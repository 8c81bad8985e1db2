"""The parts of the system tests: which tests they are, which files they protect, and with which of these they passed.

System tests kill processes, cut networks, drive JupyterLab, or repeat a quicker test with all its cases, and take
longer than all others together. So each part runs only where the files that it protects differ from those with which it
passed last: the folders of `ptynb` that only these tests show to work, and, of `tests`, all that they import
(`import_graph.py`). Imports alone do not say what a part protects: through them each of these tests depends on 280 to
490 of the 490 files of `ptynb`.
`system_parts.txt` has a line for each part, with a digest of those and the time that it took, and is committed with the
change that it was run on; where branches meet, git keeps the lines of both, and a part has passed if one of its lines
is right.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.import_graph import ROOT, reached

RECORD = Path(__file__).with_suffix(".txt")
LEFT_OUT = {"__pycache__", ".ipynb_checkpoints", "node_modules", "static"}
VERSIONS = "constraints.txt"
"""The versions of other packages, which every part protects."""
CHECKPOINTS = ("ptynb/io/checkpoint_file.py", "ptynb/io/reading/checkpoint_object.py")
PROCESSES = ("ptynb/cluster", "ptynb/session", "ptynb/engine", "ptynb/distributed", *CHECKPOINTS)
MODEL = ("ptynb/physics", "ptynb/kernels", "ptynb/optimize", "ptynb/engine/loop.py")
CLUSTER_FIELDS = ("ptynb/app/cluster_choice.py", "ptynb/app/run_fields.py")


@dataclass(frozen=True)
class Part:
    """One part: tests by file or folder (others carry the marker `system(part)`), and the files that they protect."""

    tests: tuple[str, ...]
    protects: tuple[str, ...]


PARTS = {
    "acceptance": Part(("tests/test_acceptance.py",), (*MODEL, "ptynb/loading")),
    "acquisition": Part(
        ("tests/acquisition/test_endings.py", "tests/acquisition/test_kills.py"),
        ("ptynb/acquisition", "ptynb/data/arrivals.py", "ptynb/io/scan_file.py", "ptynb/loading/arrival_watch.py"),
    ),
    "benchmarks": Part(("tests/benchmarks",), ("tests/benchmarks", "benchmarks")),
    "deploy": Part((), ("deploy", "ptynb/batch")),
    "faults": Part(("tests/faults",), PROCESSES),
    "hosts": Part(("tests/hosts",), ("ptynb/cluster", "ptynb/distributed", *CLUSTER_FIELDS)),
    "lab": Part(
        tuple(f"tests/widgets/test_{name}.py" for name in ("lab", "restart", "tasks", "workbench")),
        ("ptynb/widgets", "ptynb/app", "ptynb/session", "frontend/src"),
    ),
    "leaks": Part(("tests/faults/test_leaks.py",), PROCESSES),
    "notebooks": Part((), ("notebooks", "ptynb/__init__.py", "ptynb/__init__.pyi", "ptynb/app", "ptynb/cli")),
    "recovery": Part(
        ("tests/engine/test_convergence.py", "tests/physics/test_recovery.py"), (*MODEL, "ptynb/simulation")
    ),
    "service": Part(
        ("tests/service/test_real_runs.py", "tests/service/test_service_kills.py"),
        ("ptynb/service", "ptynb/batch"),
    ),
    "sessions": Part(("tests/batch/test_torchrun.py",), (*PROCESSES, "ptynb/batch")),
    "simulated_gpu": Part(("tests/gpu/test_pretended.py",), (*MODEL, "ptynb/loading")),
    "slurm": Part(("tests/slurm",), ("ptynb/cluster", *CLUSTER_FIELDS)),
    "tiled": Part((), ("ptynb/io/export",)),
    "triton": Part(("tests/kernels/test_triton_kernels.py",), ("ptynb/kernels/gpu", "ptynb/physics")),
    "tuning": Part(
        ("tests/tuning/test_recommendation.py", "tests/tuning/test_scaling_test.py"),
        ("ptynb/optimize", "ptynb/preparation", "ptynb/session", "ptynb/tuning"),
    ),
    "worlds": Part((), (*MODEL, "ptynb/loading", "ptynb/distributed")),
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


def own_tests(part: str, root: Path = ROOT) -> list[Path]:
    """The test files of a part."""
    mark = f'mark.system("{part}")'
    return [
        file
        for file in sorted((root / "tests").rglob("test_*.py"))
        if part_of(file.relative_to(root).as_posix()) == part or mark in file.read_text()
    ]


def protected(part: str, root: Path = ROOT) -> set[Path]:
    """The files whose change makes a part due."""
    imported = {file for file in reached(own_tests(part, root), root) if file.is_relative_to(root / "tests")}
    return imported | {*_files(*(root / start for start in (VERSIONS, *PARTS[part].protects)))}


def _files(*places: Path) -> Iterator[Path]:
    for place in places:
        for file in [place] if place.is_file() else place.rglob("*"):
            if file.is_file() and not LEFT_OUT & {*file.parts}:
                yield file


def digest(part: str, root: Path = ROOT) -> str:
    """SHA-256 of the names and contents of the files that a part protects."""
    found = hashlib.sha256()
    for file in sorted(protected(part, root)):
        content = file.read_bytes()
        found.update(f"{file.relative_to(root).as_posix()} {len(content)}\n".encode())
        found.update(content)
    return found.hexdigest()


def due() -> list[str]:
    """The parts whose files are not those with which they passed last."""
    passed = {tuple(line.split()[:2]) for line in RECORD.read_text().splitlines()}
    return [part for part in PARTS if (part, digest(part)) not in passed]


def record(part: str, seconds: float) -> None:
    """Notes that a part passed with the files as they are, and how long it took."""
    others = [line for line in RECORD.read_text().splitlines() if line.partition(" ")[0] != part]
    RECORD.write_text("".join(f"{line}\n" for line in sorted([*others, f"{part} {digest(part)} {seconds:.0f} s"])))
