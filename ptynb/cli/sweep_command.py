"""`ptynb sweep`: a notebook run once for each combination of values, through papermill, with one report per run."""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ptynb.cli.sweep_combinations import (
    NOTEBOOK,
    Combination,
    Done,
    check,
    combinations,
    identity,
    parameters_of,
    parse,
)
from ptynb.exceptions import InvalidValueError
from ptynb.private_folder import make_folder

if TYPE_CHECKING:
    from ptynb.data.result import Result
    from ptynb.table import Table

TABLE = "table.csv"
REPORT = "report.html"


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    sweep = commands.add_parser(
        "sweep",
        help="run a notebook for each combination of values (needs ptynb[sweep])",
        description="Runs a notebook for each combination of values, each into a folder of its own. Plain names "
        "replace those in the cell tagged 'parameters'; dotted names are settings, which the notebook gets as the "
        "dictionary 'sweep' and uses with settings.with_values(sweep). 'folder' is where it should save "
        "its result. What is done already is not run again.",
    )
    sweep.add_argument("notebook", type=Path, metavar="NOTEBOOK", help="with a cell tagged 'parameters'")
    sweep.add_argument(
        "-p",
        "--parameter",
        dest="parameters",
        action="append",
        default=[],
        metavar="NAME=VALUE,VALUE",
        help="values to try, such as probe.modes=1,2,4 (may be given several times)",
    )
    sweep.add_argument("--folder", type=Path, metavar="OUT", help="where everything goes (default: NOTEBOOK-sweep)")
    sweep.add_argument(
        "--report", action=argparse.BooleanOptionalAction, default=True, help="a report of each result, and of all"
    )
    sweep.set_defaults(run=_sweep, notebooks=True)


def _sweep(chosen: argparse.Namespace) -> int:
    try:
        import papermill  # noqa: F401 - a missing one raises its error before any run
    except ImportError:
        raise InvalidValueError(
            "Papermill, which runs notebooks, is not installed; pip install 'ptynb[sweep]'.",
            code="package.not-installed",
        ) from None
    notebook: Path = chosen.notebook
    if not chosen.parameters:
        raise InvalidValueError(
            "No values were given; name some, such as -p probe.modes=1,2,4.", code="argument.missing"
        )
    values = parse(chosen.parameters)
    names, source = parameters_of(notebook), identity(notebook)
    check(values, names, notebook)
    folder = (chosen.folder or Path(f"{notebook.stem}-sweep")).expanduser().resolve()
    console = Console()
    found = [
        (one, _run(one, notebook.resolve(), source, console, chosen.report))
        for one in combinations(values, folder, source)
    ]
    if chosen.report:
        _report_of_all(found, folder, console)
    _show(found, folder, console)
    return 1 if any(done.error for _, done in found) else 0


def _run(one: Combination, notebook: Path, source: str, console: Console, with_report: bool) -> Done:
    """Run a combination that is not done yet, and print its outcome."""
    done = one.done()
    label = ", ".join(f"{name}={value}" for name, value in one.values.items())
    if done is not None:
        _say(console, f"{one.number:03d} {label}: done before.")
        return done
    make_folder(one.folder)
    _say(console, f"{one.number:03d} {label}: runs ...")
    started = time.perf_counter()
    error = _execute(one, notebook)
    seconds = time.perf_counter() - started
    done = Done(error, seconds, "" if error else _saved(one.folder))
    if done.result and with_report:
        try:
            _report([one.folder / done.result], one.folder / REPORT)
        except (ValueError, OSError) as problem:
            _say(console, f"    No report of it: {problem}", "yellow")
    one.write(source, done)
    if error:
        _say(console, f"    FAILED: {error}", "red")
    else:
        _say(console, f"    {seconds:.0f} s, {f'result {done.result}' if done.result else 'no result was saved'}.")
    return done


def _execute(one: Combination, notebook: Path) -> str:
    """Run the notebook in its own folder, as Jupyter would; return its error in one line, or ""."""
    import papermill
    from nbclient.exceptions import CellTimeoutError, DeadKernelError
    from papermill.exceptions import PapermillException, PapermillExecutionError

    try:
        papermill.execute_notebook(
            str(notebook),
            str(one.folder / NOTEBOOK),
            parameters=one.parameters(),
            cwd=str(notebook.parent),
            language="python",
            progress_bar=False,
            extra_arguments=["--log-level=50"],  # messages of the kernel are in the notebook
        )
    except PapermillExecutionError as error:
        return " ".join(f"{error.ename}: {error.evalue}".split())
    except (PapermillException, DeadKernelError, CellTimeoutError) as error:
        return " ".join(f"{type(error).__name__}: {error}".split())
    return ""


def _saved(folder: Path) -> str:
    """Return the newest result file of ptynb in the folder, relative to it; empty if there is none."""
    from ptynb.exceptions import FileError
    from ptynb.io.hdf5_file import open_for_reading
    from ptynb.io.result_file import is_result

    for path in sorted(folder.rglob("*.h5"), key=lambda path: path.stat().st_mtime, reverse=True):
        try:
            with open_for_reading(path) as file:
                if is_result(file):
                    return str(path.relative_to(folder))
        except FileError:
            continue
    return ""


def _report(results: Sequence[Path], path: Path) -> None:
    from ptynb.report.report_file import report

    report(results[0] if len(results) == 1 else {one.parent.name: one for one in results}, path)


def _report_of_all(found: Sequence[tuple[Combination, Done]], folder: Path, console: Console) -> None:
    results = [one.folder / done.result for one, done in found if done.result]
    if len(results) < 2:
        return
    try:
        _report(results, folder / REPORT)
    except (ValueError, OSError) as problem:
        _say(console, f"No report of all together: {problem}", "yellow")
    else:
        _say(console, f"All results together: {folder / REPORT}")


def _show(found: Sequence[tuple[Combination, Done]], folder: Path, console: Console) -> None:
    table = table_of(found, folder)
    with (folder / TABLE).open("w", newline="") as file:
        csv.writer(file).writerows([table.heads, *table.rows])
    print(table.text())


def table_of(found: Sequence[tuple[Combination, Done]], folder: Path) -> Table:
    """Return a table of the combinations and their outcomes."""
    from ptynb.table import Table

    names = tuple(found[0][0].values)
    rows = tuple(
        (
            f"{one.number:03d}",
            *(str(one.values[name]) for name in names),
            *_figures(one, done),
            f"{done.seconds:.0f}",
            f"{one.folder.name}/{done.result}" if done.result else f"failed: {done.error}" if done.error else "",
        )
        for one, done in found
    )
    failed = sum(bool(done.error) for _, done in found)
    caption = f"{len(rows)} combinations, {failed} failed; in {folder}"
    return Table(("", *names, "loss", "R-factor", "seconds", "result"), rows, caption)


def _figures(one: Combination, done: Done) -> tuple[str, str]:
    """Return the last loss and R-factor of its result."""
    if not done.result:
        return "", ""
    from ptynb.exceptions import FileError
    from ptynb.io.result_file import load_result

    try:
        result: Result = load_result(one.folder / done.result)
    except FileError:
        return "?", "?"
    return f"{result.losses[-1]:.5g}" if result.epochs else "", f"{result.r_factor:.4f}"


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)
