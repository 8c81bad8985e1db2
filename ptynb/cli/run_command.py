"""`ptynb run`: a reconstruction without a notebook; `python -m ptynb.run` has the same options."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptynb.batch.exit_statuses import STATUSES
from ptynb.cli.arguments import (
    add_cluster_options,
    add_load_options,
    load_options_as_text,
    load_options_of,
)
from ptynb.cli.module_path import with_working_folder

if TYPE_CHECKING:
    from ptynb.batch.run_job import RunJob
    from ptynb.settings.run_files.run_file import RunFile
    from ptynb.settings.run_files.trusted_fields import Line


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    statuses = "; ".join(f"{number} {meaning}" for number, meaning in STATUSES.items())
    run = commands.add_parser(
        "run", help="reconstruct without a notebook, by a run file", epilog=f"Exit statuses: {statuses}."
    )
    add_options(run)
    add_cluster_options(run, "cluster", "engines")
    run.add_argument("--reproduce", action="store_true", help="FILE is a result: repeat its run and compare")
    run.set_defaults(run=_run)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of all ways to run."""
    parser.add_argument("file", type=Path, nargs="?", metavar="FILE", help="run file, or settings as YAML")
    parser.add_argument(
        "--scan", type=Path, action="append", metavar="FILE", help="file with a scan; given again: with another scan"
    )
    parser.add_argument("--share", choices=["probe", "object"], help="what several scans have in common")
    parser.add_argument("--epochs", type=int, metavar="N", help="total number of epochs")
    parser.add_argument("--result", type=Path, metavar="FILE", help="file for the result")
    parser.add_argument(
        "--set",
        action="append",
        metavar="KEY=VALUE",
        help="value of a field of the run file, as in it: settings.loss=poisson, stages.0.epochs=50; can be repeated",
    )
    parser.add_argument(
        "--set-json",
        type=Path,
        action="append",
        metavar="FILE",
        help="the same for several fields, as JSON or YAML with nested or dotted names; -: standard input",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="folder for all that the run writes, in DIR/ID: run.yaml, result.h5, checkpoints, progress.jsonl and, at "
        "the end, outcome.json",
    )
    parser.add_argument("--id", metavar="ID", help="name of the run (default: that of FILE without its ending)")
    parser.add_argument(
        "--progress",
        choices=["text", "json"],
        default="text",
        help="json: events as lines of JSON on standard output, and messages on the error stream",
    )
    parser.add_argument(
        "--start", type=Path, metavar="FILE", help="result, of ptynb or another package, as initial guess"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="folder for checkpoints and pictures")
    parser.add_argument("--pictures", type=float, metavar="SECONDS", help="time between pictures, for ptynb watch")
    add_cluster_options(parser, "device", "threads")
    parser.add_argument("--on-failure", choices=["pause", "continue"], help="what to do after the loss of an engine")
    parser.add_argument("--resume", action="store_true", help="continue from the latest checkpoint, if there is one")
    parser.add_argument(
        "--trust",
        action="store_true",
        help="accept fields of FILE that call functions, run programs or connect to other hosts: you know its author",
    )
    parser.add_argument("--example", action="store_true", help="print an example of a run file")
    add_load_options(parser)


def plan_of(chosen: argparse.Namespace) -> RunFile:
    """Return the run of a command line. Raises SettingsError."""
    from ptynb.exceptions import SettingsError
    from ptynb.settings.run_files.run_changes import changes_of, read_changes
    from ptynb.settings.run_files.run_file import read_run

    _check_file(chosen, "run file (ptynb run --example prints one)")
    beside = [f"--{name}" for name in ("result", "keep") if getattr(chosen, name) is not None]
    if chosen.output is not None and beside:
        raise SettingsError(
            f"--output and {' and '.join(beside)} exclude each other; everything is written in the folder of --output.",
            code="argument.conflict",
        )
    options: dict[str, Any] = {
        "scan": chosen.scan,
        "share": chosen.share,
        "epochs": chosen.epochs,
        "result": chosen.result,
    }
    options["start"] = chosen.start
    options["load"] = load_options_of(chosen, Path.cwd())
    options["on_failure"] = chosen.on_failure
    options["checkpointing"] = {"folder": chosen.keep, "pictures": chosen.pictures}
    cluster = {"kind": getattr(chosen, "cluster", None), "engines": getattr(chosen, "engines", None)}
    options["cluster"] = {**cluster, "device": chosen.device, "threads": chosen.threads}
    by_file = [change for path in chosen.set_json or () for change in read_changes(path)]
    changes = (*by_file, *changes_of(chosen.set or ()))
    defaults = {} if chosen.output is None else {"result": f"{chosen.file.stem}.h5"}
    return read_run(chosen.file, _given(options), changes, **defaults)


def job_of(chosen: argparse.Namespace, command: str, *, leads: bool = True) -> RunJob:
    """Return what records the run of a command line. Raises SettingsError, InvalidValueError.

    command: the words before FILE. leads: whether this process records it.
    """
    from ptynb.batch.run_job import RunJob

    _check_file(chosen, "run file (ptynb run --example prints one)")
    name = chosen.id or chosen.file.stem
    again = resume_command(command, chosen)
    return RunJob(name, chosen.output, lines=chosen.progress == "json", again=again, leads=leads)


def _check_file(chosen: argparse.Namespace, expected: str) -> None:
    from ptynb.exceptions import SettingsError

    if chosen.file is None:
        raise SettingsError(f"FILE is missing; expected a {expected}.", code="argument.missing")


def check_plan(plan: RunFile, chosen: argparse.Namespace, *, on_ranks: bool = False) -> None:
    """Raise SettingsError if the file has fields that run code or connect to other machines and are not confirmed.

    on_ranks: whether a launcher started this process as one of several; then it cannot ask, and ignores `cluster`.
    """
    from ptynb.cli.trust_prompt import check_trust, lines_to_confirm
    from ptynb.settings.run_files.run_changes import changes_of, leaves

    if chosen.trust:
        return
    file = chosen.file.expanduser()
    typed = [path for change in changes_of(chosen.set or ()) for path in change.paths]

    def is_typed(line: Line) -> bool:
        """Whether nothing of its value is from the file."""
        path = tuple(line.name.split("."))
        return all(any(one[: len(name)] == name for name in typed) for one in [*leaves(line.value, path)] or [path])

    lines = [
        line
        for line in lines_to_confirm(plan, file)
        # The command line is confirmed by the user; a file that it names is not.
        if getattr(chosen, line.name, None) is None
        and not is_typed(line)
        and not (on_ranks and line.name.startswith("cluster."))
    ]
    check_trust(file, lines, ask=not on_ranks)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options without those that are None and sections without any."""
    parts = {name: _given(value) if isinstance(value, dict) else value for name, value in options.items()}
    return {name: value for name, value in parts.items() if value is not None and value != {}}


def resume_command(command: str, chosen: argparse.Namespace) -> str:
    """Return the command line that continues this run."""
    words = [str(chosen.file)]
    for name in (
        "scan",
        "share",
        "epochs",
        "result",
        "set",
        "set_json",
        "output",
        "id",
        "start",
        "keep",
        "pictures",
        "device",
        "threads",
        "on_failure",
        "cluster",
        "engines",
    ):
        value = getattr(chosen, name, None)
        for one in [] if value is None else value if isinstance(value, list) else [value]:
            words += [f"--{name.replace('_', '-')}", str(one)]
    if chosen.progress != "text":
        words += ["--progress", chosen.progress]
    trust = ["--trust"] if chosen.trust else []
    return f"{command} {shlex.join([*words, *load_options_as_text(chosen), *trust])} --resume"


def print_example() -> None:
    """Print an example of a run file."""
    from ptynb.settings.run_files.run_file_example import example

    print(example(), end="")


def _run(chosen: argparse.Namespace) -> int:
    if chosen.example:
        print_example()
        return 0
    if chosen.reproduce:
        return _reproduce(chosen)
    from ptynb.batch.signals import signals_raise

    with signals_raise(ends_process=chosen.ends_process):
        job = job_of(chosen, "ptynb run")
        with job:
            plan = job.plan(plan_of(chosen))
            check_plan(plan, chosen)
            if not (chosen.resume and job.is_completed(plan)):
                _perform(plan, chosen, job)
        return job.exit_status


def _perform(plan: RunFile, chosen: argparse.Namespace, job: RunJob) -> None:
    """Run on a cluster, or in this process."""
    if plan.checkpointing.transfer is not None:
        with_working_folder()  # may contain its module
    if plan.cluster.kind == "none":
        from ptynb.batch import torchrun
        from ptynb.batch.rank_env import Place, take_seat

        seat = take_seat(Place(), plan.cluster.device, plan.cluster.threads)
        torchrun.run(plan, Place(), seat, chosen.resume, job)
        return
    from ptynb.batch.batch_run import run

    run(plan, chosen.resume, job)


def _reproduce(chosen: argparse.Namespace) -> int:
    """Repeat the run of a result, by default on the same number of engines."""
    from ptynb.cluster.cluster import Cluster
    from ptynb.exceptions import SettingsError
    from ptynb.io.load import load
    from ptynb.io.result_file import load_result, save_result
    from ptynb.session.reproduce import reproduce

    _check_file(chosen, "result of ptynb: 'ptynb run RESULT.h5 --reproduce'")
    refused = [f"--{name.replace('_', '-')}" for name in NOT_REPRODUCED if getattr(chosen, name)]
    refused += ["--progress json"] if chosen.progress != "text" else []
    if refused:
        raise SettingsError(
            f"{', '.join(refused)} and --reproduce exclude each other; omit the former.",
            code="argument.conflict",
        )
    then = load_result(chosen.file).machines
    if chosen.scan is not None and len(chosen.scan) > 1:
        raise SettingsError(
            f"--scan is given {len(chosen.scan)} times, and --reproduce takes one scan in place of the recorded one; "
            "use ptynb.reproduce(path, ptynb.preparation.combine(scans, share=...)).",
            code="argument.conflict",
        )
    scan = None if chosen.scan is None else load(chosen.scan[0])
    if chosen.cluster not in (None, "none", "local"):
        raise SettingsError(
            f"--reproduce does not support --cluster {chosen.cluster}; use ptynb.reproduce(path, cluster=...).",
            code="argument.conflict",
        )
    device: Any = chosen.device or "auto"
    alone = chosen.cluster == "none" or (chosen.engines is None and then.backend in ("", "none") and not chosen.cluster)
    if alone:
        found = reproduce(chosen.file, scan, device=device, report=print)
    else:
        engines = chosen.engines or then.engines or None
        with Cluster(engines, device=device, threads=chosen.threads or then.threads or None) as cluster:
            found = reproduce(chosen.file, scan, cluster, report=print)
    print(found)
    if chosen.result is not None:
        print(f"Result: {save_result(found.second, chosen.result)}")
    return 0


NOT_REPRODUCED = (
    *("share", "epochs", "keep", "pictures", "on_failure", "resume", "trust"),
    *("set", "set_json", "output", "id"),
)
"""Options that a result has already, or that have no effect with --reproduce."""
