"""A row of the benchmark: two sides measured in turn, the ratio of their medians, and the goal it is held to."""

from __future__ import annotations

import dataclasses
import datetime
import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import ptynb as pt


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
            said(f"  turn {turn + 1} of {turns}, {name}: {_short(given[name][-1])}")
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
        "ptynb": pt.__version__,
    }


def described(record: Mapping[str, Any]) -> str:
    """The machine in two lines of Markdown."""
    versions = ", ".join(f"{name} {number}" for name, number in {**record["versions"], **record["peers"]}.items())
    gpu = "no GPU" if record["gpu"] is None else record["gpu"]
    return (
        f"{record['date'][:10]}: {record['processor']}, {record['cores']} cores, "
        f"{counted(record['threads'], 'thread')} a process, "
        f"{record['memory_bytes'] / 2**30:.0f} GiB, {gpu}; load of the last 5 minutes {record['load']}.\n"
        f"Python {record['python']}, {versions}."
    )


def counted(number: int, noun: str) -> str:
    """ "1 thread", "2 threads"."""
    return f"{number} {noun}{'s' * (number != 1)}"


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


def _short(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items() if isinstance(value, int | float))
