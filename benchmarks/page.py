"""RESULTS.md: the tables of all machines, and where ptynb loses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.problems import PROBLEMS, Problem

Found = dict[str, Any]
OURS = "ptynb"
MARGIN = 1.1
"""A loss is listed if ptynb is worse than another package by more than this factor: below lies the spread of runs."""

HEAD = """# Packages on the same problems

Written by `python -m benchmarks`; [README.md](README.md) says what is measured, how, and how to add a machine.
Of the step sizes of an algorithm that counts which is best for the quantity of a table. A dash: not reached in the
time of a run. Packages with ¹ set amplitudes of the object above 1 to 1, which is right for these objects.
"""
CLIPPING = ("quantem", "py4dstem")


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
    lengths = " or ".join(f"{seconds:g}" for seconds in sorted({run["seconds"] for run in runs}))
    described = (problem.make.__doc__ or "").split("\n")[0]
    lines = [f"### {name}", "", f"{described} Runs of {lengths} s.", ""]
    for quantity in _quantities(problem):
        lines += [f"| {quantity.title} | " + " | ".join(f"batch {batch}" for batch in batches) + " |"]
        lines += ["| --- |" + " --- |" * len(batches)]
        for title, found in _by_algorithm(runs).items():
            cells = (_text(quantity, [run for run in found if run["batch"] == batch]) for batch in batches)
            lines.append(f"| {title} | " + " | ".join(cells) + " |")
        lines.append("")
    return lines


@dataclass(frozen=True)
class Quantity:
    """What is compared; the smaller value is better. of: returns it for a run, None if it was not reached."""

    title: str
    of: Callable[[Found], float | None]

    def cost(self, run: Found) -> float:
        """Return the value of a run, infinite if it was not reached."""
        value = self.of(run)
        return float("inf") if value is None else value


EPOCH = Quantity("seconds an epoch", lambda run: run["epoch_seconds"])
MEMORY = Quantity("memory [MB]", lambda run: run["peak_bytes"] / 1e6)


def _quantities(problem: Problem) -> list[Quantity]:
    """Return what is known of the runs of a problem; without a truth time and memory alone."""
    if not problem.error:
        return [EPOCH, MEMORY]
    frequency = f"seconds to {problem.frequency:g} of the Nyquist frequency"
    return [
        Quantity(f"seconds to an error of {problem.error:g}", lambda run: run["time_to_error"]),
        Quantity(frequency, lambda run: run["time_to_frequency"]),
        Quantity("smallest error", lambda run: run["error"]),
        EPOCH,
        MEMORY,
    ]


def _by_algorithm(runs: list[Found]) -> dict[str, list[Found]]:
    """Return the runs by the names of package and algorithm."""
    found: dict[str, list[Found]] = {}
    for run in runs:
        mark = "¹" if run["package"] in CLIPPING else ""
        found.setdefault(f"{run['package']}{mark} {run['algorithm']}", []).append(run)
    return found


def _text(quantity: Quantity, runs: list[Found]) -> str:
    """Return the best value of these runs, a dash if none reached it, and nothing without runs."""
    if not runs:
        return ""
    value = quantity.of(min(runs, key=quantity.cost))
    return "–" if value is None else f"{value:.3g}"


def _losses(runs: list[Found]) -> list[str]:
    """Return a line for each problem, batch and quantity in which another package is better than ptynb's best run.

    Seconds of an epoch count where no truth is known: algorithms make different progress in one.
    """
    lines = []
    for name, problem in PROBLEMS.items():
        for batch in sorted({run["batch"] for run in runs if run["problem"] == name}):
            here = [run for run in runs if (run["problem"], run["batch"]) == (name, batch)]
            others = {title: found for title, found in _by_algorithm(here).items() if found[0]["package"] != OURS}
            own = [run for run in here if run["package"] == OURS]
            for quantity in _quantities(problem):
                if not others or (quantity is EPOCH and problem.error):
                    continue
                theirs, title = min((min(map(quantity.cost, found)), title) for title, found in others.items())
                mine = min(map(quantity.cost, own), default=float("inf"))
                if mine > MARGIN * theirs:
                    factor = f"{mine / theirs:.2f} times" if mine < float("inf") else "not reached, against"
                    lines.append(f"- {name}, batch {batch}, {quantity.title}: {factor} that of {title}.")
    return lines
