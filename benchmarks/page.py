"""RESULTS.md: the tables of all machines, and where ptynb loses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.problems import PROBLEMS

Found = dict[str, Any]
OURS = "ptynb"
MARGIN = 1.1
"""A loss is listed if ptynb is worse than another package by more than this factor: below lies the spread of runs."""

HEAD = """# Packages on the same problems

Written by `python -m benchmarks`; [README.md](README.md) says what is measured, how, and how to add a machine.
Of each package the step size counts that reaches the aim first. A dash: not reached in the time of a run.
"""


def written(records: list[Found]) -> str:
    """Return the page of all records."""
    if not records:
        return f"{HEAD}\nNothing was measured yet.\n"
    return "\n".join([HEAD, *(_machine(record) for record in records)])


def _machine(record: Found) -> str:
    machine = record["machine"]
    title = machine["device"] if machine["device"] != "cpu" else machine["processor"]
    lines = [
        f"## {title}",
        "",
        f"{machine['processor']}, {machine['threads']} threads, {machine['memory_bytes'] / 2**30:.0f} GiB; "
        f"{machine['system']}, Python {machine['python']}; load {machine['load']} when the last run began.",
        "",
        "Versions: "
        + ", ".join(sorted({f"{n} {v}" for run in record["runs"] for n, v in run["versions"].items()}))
        + ".",
        "",
    ]
    good = [run for run in record["runs"] if "failed" not in run]
    for name in PROBLEMS:
        runs = [run for run in good if run["problem"] == name]
        if runs:
            lines += [*_problem(name, runs), ""]
    lines += ["### Where ptynb loses", "", *(_losses(good) or ["Nowhere here."]), ""]
    failed = [run for run in record["runs"] if "failed" in run]
    if failed:
        lines += ["### What did not run", ""]
        for run in failed:
            described = (
                f"{run['problem']}, {run['package']} {run['algorithm']}, batch {run['batch']}, step {run['rate']:g}"
            )
            lines.append(f"- {described}: `{run['failed']}`")
    return "\n".join(lines)


def _problem(name: str, runs: list[Found]) -> list[str]:
    problem = PROBLEMS[name]
    batches = sorted({run["batch"] for run in runs})
    lines = [f"### {name}", "", (problem.make.__doc__ or "").split("\n")[0], ""]
    columns: dict[str, Callable[[Found], str]] = {"seconds an epoch": lambda run: f"{run['epoch_seconds']:.3g}"}
    if problem.error:
        columns = {
            f"seconds to an error of {problem.error:g}": lambda run: _number(run["time_to_error"]),
            f"seconds to {problem.frequency:g} of the Nyquist frequency": lambda run: _number(run["time_to_frequency"]),
            "smallest error": lambda run: _number(run["error"]),
            **columns,
        }
    columns["memory [MB]"] = lambda run: f"{run['peak_bytes'] / 1e6:.0f}"
    for title, shown in columns.items():
        lines += [f"| {title} | " + " | ".join(f"batch {batch}" for batch in batches) + " |"]
        lines += ["| --- |" + " --- |" * len(batches)]
        for package, algorithm in dict.fromkeys((run["package"], run["algorithm"]) for run in runs):
            cells = [_chosen(runs, package, algorithm, batch) for batch in batches]
            lines.append(
                f"| {package} {algorithm} | " + " | ".join("" if run is None else shown(run) for run in cells) + " |"
            )
        lines.append("")
    return lines


def _chosen(runs: Iterable[Found], package: str, algorithm: str, batch: int) -> Found | None:
    """Return the run with the best step size: the first at the aim, else that with the smallest error."""
    found = [run for run in runs if (run["package"], run["algorithm"], run["batch"]) == (package, algorithm, batch)]
    return min(found, key=lambda run: (_or_infinite(run["time_to_error"]), _or_infinite(run["error"])), default=None)


QUANTITIES = {
    "time_to_error": "time to the error",
    "time_to_frequency": "time to the resolution",
    "error": "smallest error",
    "peak_bytes": "memory",
}


def _losses(runs: list[Found]) -> list[str]:
    """Return a line for each problem, batch and quantity in which another package is better than ptynb's best run."""
    lines = []
    for problem in PROBLEMS:
        for batch in sorted({run["batch"] for run in runs}):
            here = [run for run in runs if (run["problem"], run["batch"]) == (problem, batch)]
            chosen = [
                _chosen(here, package, algorithm, batch)
                for package, algorithm in dict.fromkeys((run["package"], run["algorithm"]) for run in here)
            ]
            for quantity, title in QUANTITIES.items():
                best = {
                    ours: min(
                        (run for run in chosen if run is not None and (run["package"] == OURS) == ours),
                        key=lambda run: _or_infinite(run[quantity]),
                        default=None,
                    )
                    for ours in (True, False)
                }
                if best[False] is None or best[False][quantity] is None:
                    continue
                if best[True] is None:
                    lines.append(f"- {problem}, batch {batch}, {title}: ptynb did not run.")
                    continue
                mine, theirs = _or_infinite(best[True][quantity]), best[False][quantity]
                if mine > MARGIN * theirs:
                    factor = f"{mine / theirs:.2f} times" if mine < float("inf") else "not reached, against"
                    name = f"{best[False]['package']} {best[False]['algorithm']}"
                    lines.append(f"- {problem}, batch {batch}, {title}: {factor} that of {name}.")
    return lines


def _or_infinite(value: float | None) -> float:
    return float("inf") if value is None else value


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"
