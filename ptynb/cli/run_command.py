"""`ptynb run`: a reconstruction without a notebook. Its options are those of `python -m ptynb.run` too."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptynb.cli.cluster_arguments import add_cluster_options
from ptynb.cli.load_arguments import (
    add_load_options,
    load_options_as_text,
    load_options_of,
)
from ptynb.cli.module_path import with_working_folder

if TYPE_CHECKING:
    from ptynb.settings.run_file import RunFile


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command."""
    run = commands.add_parser("run", help="reconstruct without a notebook, as a file says")
    add_options(run)
    run.add_argument("--cluster", choices=["local", "none", "slurm", "ssh"], help="kind of cluster")
    add_cluster_options(run, "engines")
    run.add_argument(
        "--reproduce", action="store_true", help="FILE is a result: repeat its run from its own record, and compare"
    )
    run.set_defaults(run=_run)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options that every way to run has."""
    parser.add_argument("file", type=Path, nargs="?", metavar="FILE", help="a run file, or settings as YAML")
    parser.add_argument("--scan", type=Path, metavar="FILE", help="a file with a scan")
    parser.add_argument("--epochs", type=int, metavar="N", help="epochs in all")
    parser.add_argument("--result", type=Path, metavar="FILE", help="where the result goes")
    parser.add_argument(
        "--start", type=Path, metavar="FILE", help="a result, of another package or of ptynb, to start from"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where states and pictures are kept")
    parser.add_argument("--pictures", type=float, metavar="SECONDS", help="between pictures there, for ptynb watch")
    add_cluster_options(parser, "device", "threads")
    parser.add_argument("--on-failure", choices=["pause", "continue"], help="after an engine is lost")
    parser.add_argument("--resume", action="store_true", help="go on from the last kept state, where there is one")
    parser.add_argument(
        "--trust",
        action="store_true",
        help="obey lines of FILE that call functions, run programs or reach other hosts: you know who wrote them",
    )
    parser.add_argument("--example", action="store_true", help="print a run file to begin with")
    add_load_options(parser)


def plan_of(chosen: argparse.Namespace) -> RunFile:
    """The run that the command line asks for. Raises SettingsError."""
    from ptynb.exceptions import SettingsError
    from ptynb.settings.run_file import read_run

    if chosen.file is None:
        raise SettingsError(
            "No run file was named; expected one, and 'ptynb run --example' prints one to begin with.",
            code="argument.missing",
        )
    options: dict[str, Any] = {"scan": chosen.scan, "epochs": chosen.epochs, "result": chosen.result}
    options["start"] = chosen.start
    options["load"] = load_options_of(chosen, Path.cwd())
    options["on_failure"] = chosen.on_failure
    options["checkpointing"] = {"folder": chosen.keep, "pictures": chosen.pictures}
    cluster = {"kind": getattr(chosen, "cluster", None), "engines": getattr(chosen, "engines", None)}
    options["cluster"] = {**cluster, "device": chosen.device, "threads": chosen.threads}
    return read_run(chosen.file, _given(options))


def check_plan(plan: RunFile, chosen: argparse.Namespace, *, on_ranks: bool = False) -> None:
    """Raises SettingsError where the file says more than how to reconstruct, and nobody has confirmed it.

    on_ranks: whether somebody else started this process, one of several: then nobody can be asked, and what the file
    says of its cluster is not obeyed.
    """
    from ptynb.cli.trust_prompt import check_trust, lines_to_confirm

    if chosen.trust:
        return
    file = chosen.file.expanduser()
    lines = [
        line
        for line in lines_to_confirm(plan, file)
        # What the command line says, the user has said.
        if getattr(chosen, line.name, None) is None and not (on_ranks and line.name.startswith("cluster."))
    ]
    check_trust(file, lines, ask=not on_ranks)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """The options that are there; a part without any is left out."""
    parts = {name: _given(value) if isinstance(value, dict) else value for name, value in options.items()}
    return {name: value for name, value in parts.items() if value is not None and value != {}}


def resume_command(command: str, chosen: argparse.Namespace) -> str:
    """The command line that goes on where this one ends."""
    words = [str(chosen.file)]
    for name in (
        "scan",
        "epochs",
        "result",
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
        if value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    trust = ["--trust"] if chosen.trust else []
    return f"{command} {shlex.join([*words, *load_options_as_text(chosen), *trust])} --resume"


def print_example() -> None:
    """Prints a run file to begin with."""
    from ptynb.settings.run_file_example import example

    print(example(), end="")


def _run(chosen: argparse.Namespace) -> int:
    if chosen.example:
        print_example()
        return 0
    if chosen.reproduce:
        return _again(chosen)
    plan = plan_of(chosen)
    check_plan(plan, chosen)
    if plan.checkpointing.transfer is not None:
        with_working_folder()  # where its module may be
    told = resume_command("ptynb run", chosen)
    if plan.cluster.kind == "none":
        from ptynb.batch.rank_env import Place, take_seat

        seat = take_seat(Place(), plan.cluster.device, plan.cluster.threads)
        from ptynb.batch import torchrun

        return torchrun.run(plan, Place(), seat, chosen.resume, told)
    from ptynb.batch.run_on_cluster import run

    return run(plan, chosen.resume, told)


def _again(chosen: argparse.Namespace) -> int:
    """Repeats the run of a result: on as many engines as then, unless told otherwise."""
    from ptynb.cluster.cluster import Cluster
    from ptynb.exceptions import SettingsError
    from ptynb.io.load import load
    from ptynb.io.result_file import load_result, save_result
    from ptynb.session.reproduce import reproduce as repeat

    if chosen.file is None:
        raise SettingsError(
            "No result was named; expected one that ptynb wrote: 'ptynb run RESULT.h5 --reproduce'.",
            code="argument.missing",
        )
    refused = [f"--{name.replace('_', '-')}" for name in NOT_AGAIN if getattr(chosen, name)]
    if refused:
        raise SettingsError(
            f"{', '.join(refused)} can't go with --reproduce, which repeats what was; leave it out.",
            code="argument.conflict",
        )
    then = load_result(chosen.file).machines
    scan = None if chosen.scan is None else load(chosen.scan)
    if chosen.cluster in ("slurm", "ssh"):
        raise SettingsError(
            f"--reproduce runs on this machine, not by {chosen.cluster}; use ptynb.reproduce(path, cluster=...).",
            code="argument.conflict",
        )
    device: Any = chosen.device or "auto"
    alone = chosen.cluster == "none" or (chosen.engines is None and then.backend in ("", "none") and not chosen.cluster)
    if alone:
        found = repeat(chosen.file, scan, device=device, report=print)
    else:
        engines = chosen.engines or then.engines or None
        with Cluster(engines, device=device, threads=chosen.threads or then.threads or None) as cluster:
            found = repeat(chosen.file, scan, cluster, report=print)
    print(found)
    if chosen.result is not None:
        print(f"Result: {save_result(found.second, chosen.result)}")
    return 0


NOT_AGAIN = ("epochs", "keep", "pictures", "on_failure", "resume", "trust")
"""Options that the record has its own values for, or no use: a result calls nothing."""
