"""The harness of all benchmarks: sides measured in turn, each in a process of its own, and the table of their ratios.

The peers' scripts, the problem and its scoring lie in the folder that PTYNB_TEST_BENCH names; the peers are found by a
Python interpreter that has them. Each side answers with one line of JSON.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

FOLDER = "PTYNB_TEST_BENCH"
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, eq=False)
class Row:
    """What was measured of one thing.

    ours, other: median of each side, in `unit`. ratio: ours / other. low, high: smallest and largest ratio of a turn.
    limit: the largest ratio that meets the goal; None: no goal, shown for comparison.
    raw: every number the medians are made of, by side.
    """

    subject: str
    name: str
    against: str
    ours: float
    other: float
    unit: str
    low: float
    high: float
    limit: float | None
    note: str = ""
    raw: dict[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        return self.ours / self.other

    @property
    def met(self) -> str:
        """yes, no, or nothing where there is no goal."""
        if self.limit is None:
            return ""
        return "yes" if self.ratio <= self.limit else "no"

    def record(self) -> dict[str, Any]:
        """Everything, as JSON holds it."""
        return dataclasses.asdict(self) | {"ratio": self.ratio, "met": self.met}


@dataclass(frozen=True, eq=False)
class Missing:
    """What could not be measured here, and why."""

    subject: str
    name: str
    why: str

    def record(self) -> dict[str, Any]:
        """Everything, as JSON holds it."""
        return dataclasses.asdict(self)


Measured = Row | Missing


def in_turn(
    sides: Mapping[str, Callable[[], Mapping[str, Any]]], turns: int, said: Callable[[str], None]
) -> dict[str, list[Any]]:
    """What each side gives, A B A B ..., so that what the machine does besides meets all of them."""
    given: dict[str, list[Any]] = {name: [] for name in sides}
    for turn in range(turns):
        for name, side in sides.items():
            given[name].append(dict(side()))
            figures = {key: value for key, value in given[name][-1].items() if isinstance(value, int | float)}
            said(f"  turn {turn + 1} of {turns}, {name}: {figures}")
    return given


def compared(
    subject: str,
    name: str,
    given: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    limit: float | None,
    unit: str = "s",
    key: str = "seconds",
    factors: tuple[float, float] = (1.0, 1.0),
    note: str = "",
) -> Row:
    """The row of two sides, ours first, that were measured in turn; `factors` multiply their figures."""
    against = list(given)[1]
    ours, other = (
        [factor * turn[key] for turn in turns] for factor, turns in zip(factors, given.values(), strict=True)
    )
    ratios = [one / two for one, two in zip(ours, other, strict=True)]
    middle = statistics.median(ours), statistics.median(other)
    return Row(
        subject,
        name,
        against,
        *middle,
        unit,
        min(ratios),
        max(ratios),
        limit,
        note,
        {k: [*v] for k, v in given.items()},
    )


def table(rows: Sequence[Measured]) -> str:
    """The rows as a Markdown table."""
    lines = [
        "| | ptynb | against | ratio (each turn) | goal | met |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        if isinstance(row, Missing):
            lines.append(f"| {row.name} | not measured: {row.why} | | | | |")
            continue
        goal = "" if row.limit is None else f"at most {row.limit:.3g}"
        note = f" ({row.note})" if row.note else ""
        lines.append(
            f"| {row.name}{note} | {row.ours:.4g} {row.unit} | {row.other:.4g} {row.unit}, {row.against} "
            f"| {row.ratio:.3g} ({row.low:.3g} to {row.high:.3g}) | {goal} | {row.met} |"
        )
    return "\n".join(lines)


def machine(threads: int, peers: Mapping[str, str]) -> dict[str, Any]:
    """What the figures depend on: machine, versions, date; and how busy the machine was with other work."""
    found = {name: _version(name) for name in ("ptynb", "torch", "numpy", "h5py")}
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": threads,
        "load": round(os.getloadavg()[1], 1),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": found,
        "peers": dict(peers),
    }


def described(record: Mapping[str, Any]) -> str:
    """The machine in two lines of Markdown."""
    versions = ", ".join(f"{name} {number}" for name, number in {**record["versions"], **record["peers"]}.items())
    gpu = "no GPU" if record["gpu"] is None else record["gpu"]
    return (
        f"{record['date'][:10]}: {record['processor']}, {record['cores']} cores, "
        f"threads a process: {record['threads']}, "
        f"{record['memory_bytes'] / 2**30:.0f} GiB, {gpu}; load of the last 5 minutes {record['load']}.\n"
        f"Python {record['python']}, {versions}."
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "?"


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What all rows share.

    peers: the Python interpreter that has the peers; None: there is none. threads: of every process.
    turns: how often each side is measured. epochs: of a turn. folder: for problems and results.
    said: takes a line about what goes on. options: what single rows can be told. timeout: of a process [s].
    """

    peers: Path | None
    threads: int
    turns: int
    epochs: int
    folder: Path
    said: Callable[[str], None]
    options: Mapping[str, Any]
    timeout: float = 3600.0

    @property
    def scripts(self) -> Path:
        """The folder of the peers' scripts."""
        named = os.environ.get(FOLDER)
        if named is None:
            raise RuntimeError(f"{FOLDER} does not name a folder; CONTRIBUTING.md says what it holds.")
        return Path(named)

    def ours(self, problem: Path, settings: Mapping[str, Any], epochs: int, *more: str) -> dict[str, Any]:
        """ptynb on a problem: "seconds" (median of the epochs after the first), "all" of them, "loss"."""
        text = json.dumps(settings)
        return self.answer([sys.executable, "-m", "tests.benchmarks.ours", problem, text, "--epochs", epochs, *more])

    def peer(self, script: str, problem: Path, epochs: int, *more: str) -> dict[str, Any]:
        """A peer on a problem, "seconds" being the median of its epochs after the first."""
        if self.peers is None:
            raise RuntimeError("The peers' interpreter is missing; give --peers PYTHON.")
        given = self.answer([self.peers, self.scripts / script, problem, "--epochs", epochs, *more])
        return {**given, "seconds": given["s_per_epoch"]}

    def answer(self, command: Sequence[object]) -> dict[str, Any]:
        """Runs a command with this many threads; what its last line of JSON says."""
        threads = {name: str(self.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        words = [str(word) for word in command]
        # The peers get an environment of their own: ptynb's packages are not theirs.
        own = {"PYTHONPATH": path} if words[0] == sys.executable else {"PYTHONPATH": ""}
        ran = subprocess.run(
            words,
            cwd=ROOT if words[0] == sys.executable else self.folder,
            env=os.environ | threads | own,
            capture_output=True,
            text=True,
            timeout=self.timeout,
            check=False,
        )
        lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
        if ran.returncode or not lines:
            last = (ran.stderr or ran.stdout).strip().splitlines()[-3:]
            raise RuntimeError(f"{' '.join(words[:4])} ended with {ran.returncode} and said: {' / '.join(last)}")
        answer: dict[str, Any] = json.loads(lines[-1])
        return answer

    def row(
        self,
        subject: str,
        name: str,
        sides: Mapping[str, Callable[[], Mapping[str, Any]]],
        *,
        limit: float | None,
        **more: Any,
    ) -> Row:
        """Two sides, ours first, measured in turn; `more` as in `compared`."""
        self.said(name)
        return compared(subject, name, in_turn(sides, self.turns, self.said), limit=limit, **more)

    def versions(self) -> dict[str, str]:
        """The peers' versions, by name."""
        if self.peers is None:
            return {}
        asked = "import importlib.metadata as m, json; "
        asked += "print(json.dumps({n: m.version(n) for n in ('ptyrad', 'ptychi', 'cdtools-py', 'torch')}))"
        found: dict[str, str] = self.answer([self.peers, "-c", asked])
        return {name if name != "torch" else "their torch": number for name, number in found.items()}
