"""The command `ptynb`: lab, doctor, scaling, advise, estimate. Other subcommands are in their own files."""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ptynb.batch.exit_statuses import COMPLETED, UNAVAILABLE, exit_status, told
from ptynb.batch.signals import status_of_end
from ptynb.cli import (
    dashboard_command,
    demo_command,
    direct_command,
    emulate_command,
    export_command,
    info_command,
    ps_command,
    recommend_command,
    report_command,
    run_command,
    serve_command,
    watch_command,
)
from ptynb.cli.arguments import add_cluster_options, add_load_options, load_options_of
from ptynb.cli.module_path import without_working_folder
from ptynb.exceptions import FileError
from ptynb.private_folder import make_folder
from ptynb.systems import become

if TYPE_CHECKING:
    from ptynb.settings import Settings
    from ptynb.table import Tabular

# The package is imported inside the commands: torch alone takes seconds, and `ptynb --help` does not need it.


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit status, one of `ptynb.batch.exit_statuses`."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    chosen.ends_process = arguments is None
    try:
        # Notebooks can import modules in their folder, as in Jupyter.
        with contextlib.nullcontext() if chosen.notebooks else without_working_folder():
            status: int = chosen.run(chosen)
    except (ValueError, RuntimeError, OSError, MemoryError) as error:
        _print_whole(Console(stderr=True), f"ptynb: {told(error)}", "red")
        return exit_status(error)
    except KeyboardInterrupt as error:
        Console(stderr=True).print("ptynb: interrupted")
        return status_of_end(error)
    return status


def _print_whole(console: Console, text: str, style: str = "") -> None:
    """Print a text as it is: no line breaks in its paths, and nothing in brackets is markup."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ptynb", description="Interactive ptychographic reconstruction in Jupyter.")
    parser.set_defaults(notebooks=False)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    demo_command.add(commands)

    lab = commands.add_parser("lab", help="open JupyterLab on a copy of the starter notebooks")
    lab.add_argument("--folder", type=Path, default=Path("ptynb-notebooks"), help="folder for the copy")
    lab.add_argument("--no-open", action="store_true", help="copy the notebooks without opening JupyterLab")
    lab.add_argument("rest", nargs="*", metavar="-- ARGUMENT", help="arguments of 'jupyter lab'")
    lab.set_defaults(run=_lab, notebooks=True)

    doctor = commands.add_parser("doctor", help="check this machine for a cluster")
    add_cluster_options(doctor, "engines", "device", device="auto")
    doctor.add_argument("--cluster", action="store_true", help="start a cluster and run its self-test")
    doctor.set_defaults(run=_doctor)
    _add_measuring(commands)
    info_command.add(commands)
    direct_command.add(commands)
    recommend_command.add(commands)
    run_command.add(commands)
    report_command.add(commands)
    watch_command.add(commands)
    serve_command.add(commands)
    dashboard_command.add(commands)
    ps_command.add(commands)
    export_command.add(commands)
    emulate_command.add(commands)
    return parser


def _add_measuring(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    scaling = commands.add_parser("scaling", help="compare the speed of several numbers of engines")
    scaling.add_argument(
        "--engines", type=int, nargs="+", default=[1, 2, 4], metavar="N", help="numbers of engines (default 1 2 4)"
    )
    scaling.add_argument(
        "--threads",
        type=int,
        nargs="+",
        metavar="N",
        help="threads of each engine (default: an equal share of the cores)",
    )
    scaling.add_argument("--trials", type=int, default=3, metavar="N", help="runs of each configuration (default 3)")
    scaling.add_argument(
        "--epochs", type=int, default=6, metavar="N", help="epochs of a run, the first as a warm-up (default 6)"
    )
    scaling.add_argument("--figure", type=Path, metavar="FILE", help="file for a figure")
    scaling.set_defaults(run=_scaling)
    advise = commands.add_parser("advise", help="find the fastest number of engines and exchange between them")
    advise.add_argument(
        "--engines",
        type=int,
        metavar="N",
        help="largest number of engines (default: one per GPU; on the CPU two per NUMA node)",
    )
    advise.set_defaults(run=_advise)
    estimate = commands.add_parser("estimate", help="estimate memory and time of an epoch")
    estimate.add_argument("--engines", type=int, default=1, metavar="N", help="number of engines (default 1)")
    estimate.set_defaults(run=_estimate)
    for command in (scaling, advise, estimate):
        command.add_argument("scan", type=Path, metavar="SCAN", help="file with a scan")
        command.add_argument(
            "--settings", type=Path, metavar="FILE", help="settings as YAML (default: those of ptynb.Settings)"
        )
        add_cluster_options(command, "device", device="auto")
        command.add_argument("--json", action="store_true", help="print JSON instead of a table")
        add_load_options(command)


def notebooks_folder() -> Path:
    """Return the folder of the starter notebooks: in the installed package, or beside it in a checkout."""
    package = Path(__file__).parent.parent
    for folder in (package / "notebooks", package.parent / "notebooks"):
        if folder.is_dir():
            return folder
    raise FileError(
        f"The starter notebooks are neither in {package} nor beside it; install ptynb again.", code="file.not-found"
    )


def _lab(chosen: argparse.Namespace) -> int:
    folder: Path = chosen.folder
    make_folder(folder)
    copied, existing = [], []
    for notebook in sorted(notebooks_folder().glob("*.ipynb")):
        target = folder / notebook.name
        if target.exists():
            existing.append(target.name)  # it may have changes of the user
        else:
            shutil.copy(notebook, target)
            copied.append(target.name)
    _print_whole(Console(), f"Notebooks in {folder.resolve()}: {len(copied)} new, {len(existing)} unchanged.")
    if chosen.no_open:
        return 0
    command = [sys.executable, "-P", "-m", "jupyter", "lab", f"--ServerApp.root_dir={folder.resolve()}", *chosen.rest]
    # JupyterLab replaces this process, so that its signals and exit status are those of this command.
    return become(command)


def _doctor(chosen: argparse.Namespace) -> int:
    from ptynb.cluster.doctor import examine, examine_cluster

    report = (examine_cluster if chosen.cluster else examine)(chosen.engines, chosen.device)
    console = Console()
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in report.facts:
        table.add_row(Text(name, style="bold"), Text(value))
    if report.facts:
        console.print(table)
    notes = report.notes if chosen.cluster else (*report.notes, *_plugins(console))
    for note in notes:
        _print_whole(console, f"NOTE: {note}", "yellow")
    for problem in report.problems:
        _print_whole(console, f"PROBLEM: {problem}", "red")
    if not report.problems:
        console.print("No problem found.", style="green")
    return UNAVAILABLE if report.problems else COMPLETED


def _plugins(console: Console) -> tuple[str, ...]:
    """Print the installed plug-ins; return a note if some of them cannot be used."""
    from ptynb.cli.plugin_checks import listed, problems

    found = problems()
    _print_whole(console, f"\n{listed(found)}\n")
    unusable = sum(map(bool, found.values()))
    return (f"{unusable} of {len(found)} plug-ins cannot be used; the table says why.",) if unusable else ()


def _scaling(chosen: argparse.Namespace) -> int:
    import ptynb as pt
    from ptynb.data.scaling_result import ScalingTrial
    from ptynb.text import counted

    def report(trial: ScalingTrial) -> None:
        done = f"{counted(trial.engines, 'engine')}, trial {trial.number}: {trial.seconds:.3g} s per epoch"
        Console(stderr=True).print(done, markup=False, highlight=False)

    test = pt.scaling_test(
        pt.load(chosen.scan, **load_options_of(chosen)),
        _settings(chosen),
        chosen.engines,
        trials=chosen.trials,
        threads=chosen.threads,
        epochs=chosen.epochs,
        device=chosen.device,
        report=report,
    )
    _show(test, chosen)
    if chosen.figure is not None:
        pt.scaling_figure(test).savefig(chosen.figure, dpi=130)
    return 0


def _advise(chosen: argparse.Namespace) -> int:
    import ptynb as pt

    advice = pt.advise(
        pt.load(chosen.scan, **load_options_of(chosen)), _settings(chosen), chosen.engines, device=chosen.device
    )
    _show(advice, chosen)
    return 0


def _estimate(chosen: argparse.Namespace) -> int:
    import ptynb as pt

    found = pt.estimate(
        pt.load(chosen.scan, **load_options_of(chosen)), _settings(chosen), chosen.engines, device=chosen.device
    )
    _show(found, chosen)
    return COMPLETED if found.problem is None else UNAVAILABLE


def _show(found: Tabular, chosen: argparse.Namespace) -> None:
    print(json.dumps(found.to_plain()) if chosen.json else found)


def _settings(chosen: argparse.Namespace) -> Settings:
    from ptynb.settings import Settings

    return Settings() if chosen.settings is None else Settings.from_yaml(chosen.settings)


if __name__ == "__main__":
    sys.exit(main())
