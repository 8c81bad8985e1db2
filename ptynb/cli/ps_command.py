"""`ptynb ps` and `ptynb stop`: list and end the clusters of the user, including those left by a crash."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import json
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ptynb.exceptions import InvalidValueError

if TYPE_CHECKING:
    from ptynb.cluster.lifetime.orphans import FoundCluster

HEADS = ("Cluster", "Where", "Since", "Engines", "Processes", "Held by", "GPU memory", "Run")
WIDE = 10_000
"""Width of a line without a terminal."""
NONE = "You have no clusters."


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands."""
    ps = commands.add_parser("ps", help="list your clusters, including those left by a crash")
    ps.add_argument("--json", action="store_true", help="print JSON instead of a table")
    ps.set_defaults(run=_ps)
    stop = commands.add_parser("stop", help="write checkpoints of clusters and end them")
    stop.add_argument("names", nargs="*", metavar="CLUSTER", help="name of a cluster in 'ptynb ps'")
    stop.add_argument("--all", action="store_true", help="all your clusters on this machine")
    stop.add_argument("--orphaned", action="store_true", help="orphaned and idle clusters")
    stop.set_defaults(run=_stop)


def _ps(chosen: argparse.Namespace) -> int:
    from ptynb.cluster.lifetime import orphans

    found = [orphans.look(one) for one in orphans.with_memory(orphans.find())]
    if chosen.json:
        print(json.dumps([plain(one) for one in found]))
        return 0
    console = Console() if sys.stdout.isatty() else Console(width=WIDE)
    if not found:
        console.print(NONE)
        return 0
    table = Table(box=None, pad_edge=False)
    for head in HEADS:
        table.add_column(head, no_wrap=head == HEADS[0])
    for one in found:
        table.add_row(*(Text(cell, style="dim" if one.orphaned else "") for cell in row(one)))
    console.print(table)
    if any(one.orphaned for one in found):
        console.print("'ptynb stop --orphaned' ends orphaned and idle clusters.", highlight=False)
    return 0


def row(found: FoundCluster) -> tuple[str, ...]:
    """Return a row of the table."""
    from ptynb.table import gigabytes

    alive, planned = ("?" if count is None else str(count) for count in (found.alive, found.planned))
    return (
        found.name,
        f"{found.kind or '?'}, {found.machine}",
        "?" if found.started is None else time.strftime("%d %b %H:%M", time.localtime(found.started)),
        f"{alive} of {planned}",
        ranges([process.pid for process in found.processes]) or "none",
        holder(found),
        "-" if found.memory is None else gigabytes(found.memory * 2**20),
        "; ".join(part for part in (found.note, "" if found.work is None else str(found.work)) if part) or "nothing",
    )


def ranges(numbers: Sequence[int]) -> str:
    """Return '12-14 17 20-21' for sorted numbers."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return " ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def holder(found: FoundCluster) -> str:
    """Return for example 'process 1234', 'none, ends in 52 min', or 'none'."""
    if found.place == "elsewhere":
        return "?"
    if found.holder is not None:
        return f"process {found.holder}{_program(found.holder)}"
    left = None if found.lease_ends is None else found.lease_ends - time.time()
    if left is None or left <= 0:
        return "none"
    return f"none, ends in {f'{left / 60:.0f} min' if left >= 99.5 else f'{left:.0f} s'}"


def _program(pid: int) -> str:
    """Return ' (a notebook)' if the process is a kernel."""
    import psutil

    try:
        words = psutil.Process(pid).cmdline()
    except psutil.Error:
        return ""
    return " (a notebook)" if any("ipykernel" in word for word in words) else ""


def plain(found: FoundCluster) -> dict[str, Any]:
    """Return plain values for JSON."""
    values = dataclasses.asdict(found)
    if found.work is not None:
        values["work"]["folder"] = None if found.work.folder is None else str(found.work.folder)
    values["folder"] = None if found.folder is None else str(found.folder)
    return values | {
        "alive": found.alive,
        "orphaned": found.orphaned,
        "note": found.note,
        "held_by": holder(found),
    }


def _stop(chosen: argparse.Namespace) -> int:
    from ptynb.cluster.lifetime import orphans

    if bool(chosen.names) + chosen.all + chosen.orphaned != 1:
        raise InvalidValueError(
            "Expected names of clusters (see 'ptynb ps'), or one of --all and --orphaned.",
            code="argument.missing",
        )
    found = orphans.find()
    selected = named(found, chosen.names) if chosen.names else [one for one in found if one.place != "elsewhere"]
    console, errors = Console(), Console(stderr=True)
    failed = False
    for one in map(orphans.look, selected):
        if chosen.orphaned and not one.orphaned:
            console.print(f"{one.name} is not ended: {why_spared(one)}.", markup=False, highlight=False)
            continue
        console.print(f"{one.name}: ending {what(one)}.", markup=False, highlight=False, soft_wrap=True)
        with console.status("Writing a checkpoint, within a minute."):
            ended = orphans.end(one)
        for failure in ended.failures:
            failed = True
            errors.print(f"ptynb: {one.name}: {failure}", style="red", markup=False, highlight=False, soft_wrap=True)
        if not ended.failures:
            console.print(f"{one.name}: ended{kept(one, ended)}.", markup=False, highlight=False, soft_wrap=True)
    if not selected:
        console.print(NONE)
    return 1 if failed else 0


def named(found: Sequence[FoundCluster], names: Sequence[str]) -> list[FoundCluster]:
    """Return the clusters with these names. Raises InvalidValueError for one that cannot be ended from here."""
    known = {one.name: one for one in found}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3, cutoff=0.0)
            known_names = f"similar: {', '.join(near)}" if near else "there is none"
            raise InvalidValueError(
                f"There is no cluster {name!r}; expected a name in 'ptynb ps' ({known_names}).",
                code="cluster.not-found",
            )
        if known[name].place == "elsewhere":
            raise InvalidValueError(
                f"{name} was started on {known[name].machine}; run 'ptynb stop {name}' there.", code="cluster.elsewhere"
            )
    return [known[name] for name in dict.fromkeys(names)]


def what(found: FoundCluster) -> str:
    """Return a description of what is ended."""
    if not found.processes:
        return "no process here, and removing its folder"
    description = f"process{'' if len(found.processes) == 1 else 'es'} {ranges([one.pid for one in found.processes])}"
    return f"{description}{'' if found.work is None else f' ({found.work})'}, held by {holder(found)}"


def why_spared(found: FoundCluster) -> str:
    """Return why it is not orphaned."""
    if found.holder is not None:
        return f"held by {holder(found)}"
    return f"{found.work}" if found.work is not None else "it is starting"


def kept(found: FoundCluster, ended: Any) -> str:
    """Return a description of its latest checkpoint."""
    if found.work is None:
        return ""
    if not found.work.checkpointing:
        return "; no checkpoint was requested"
    if ended.checkpoint is None:
        return "; its checkpoint was not found"
    return f"; its checkpoint after epoch {ended.epoch} is {ended.checkpoint}"
