"""`reproduce`: repeat a run from its result, with its changes of settings, and compare."""

from __future__ import annotations

import contextlib
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ptynb.analysis.result_comparison import Together
from ptynb.cluster.cluster import Cluster
from ptynb.data.record import RunSpan
from ptynb.data.result import Result
from ptynb.data.scan import Scan
from ptynb.exceptions import FileError, PtynbWarning
from ptynb.io.checkpoint_dir import new_folder
from ptynb.io.prepared_scan import check_same, loaded_again
from ptynb.io.result_file import load_result
from ptynb.io.scan_file import as_planned
from ptynb.plugins import other_versions
from ptynb.session.reconstruction import Reconstruction
from ptynb.session.recorded_arrivals import with_recorded_arrivals
from ptynb.settings import Checkpointing, Settings
from ptynb.settings.change_replay import Step, settings_before, steps_of
from ptynb.settings.recipe import Recipe

ARRAYS = ("object", "probe", "positions", "losses")
SAME_COUNTS = 1e-9
COMPARED = {
    "machines": {"engines": "engines", "threads": "threads of each engine", "devices": "devices", "backend": "backend"},
    "software": {"ptynb": "ptynb", "torch": "torch", "numpy": "numpy", "python": "Python", "system": "system"},
}
"""Fields of a result that may explain a difference, by its part, and their names in the notes."""


@dataclass(frozen=True, eq=False)
class Reproduction:
    """A run and its repetition.

    Parameters
    ----------
    first, second : Result
        The original and the repeated run.
    equal : bool
        Whether objects, probes, positions and losses are bitwise equal.
    difference : float or None
        Root mean square of the complex difference of the objects after registration, relative to that of the first;
        None if they cannot be compared.
    loss : float or None
        Largest relative difference of the loss of an epoch; None without epochs.
    notes : tuple of str
        Notes on what could not be repeated, or differs.
    """

    first: Result
    second: Result
    equal: bool
    difference: float | None
    loss: float | None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        same = "Equal to the bit." if self.equal else "Not equal to the bit."
        lines = [f"{len(self.second.epochs)} epochs again. {same}"]
        if not self.equal:
            found = self.difference, self.loss
            difference, loss = ("unknown" if value is None else f"{value:.3g}" for value in found)
            lines.append(f"Relative difference of the objects: {difference}; of the losses at most: {loss}.")
        return "\n".join([*lines, *self.notes])


def reproduce(
    path: str | Path,
    scan: Scan | None = None,
    cluster: Cluster | None = None,
    *,
    device: str = "auto",
    extensions: Sequence[Any] = (),
    report: Callable[[str], None] | None = None,
) -> Reproduction:
    """Repeat the run of a result with its scan, preparation, initial settings, stages, and changes at the same updates.

    With the same number and kind of engines, the same number of threads and the same versions of software, the result
    is bitwise equal. `Reproduction.notes` lists what could not be repeated, or differs.

    Parameters
    ----------
    path : str or Path
        Path of the result.
    scan : Scan, optional
        Scan of the original run. None: it is loaded with the recorded arguments.
    cluster : Cluster, optional
        Cluster whose engines reconstruct. None: this process reconstructs.
    device : {"auto", "cpu", "cuda", "xpu"}
        As for `Reconstruction`.
    extensions : sequence of ModelComponent or CustomConstraint
        Components and constraints of the original run.
    report : callable, optional
        Function called with each line about the progress.

    Returns
    -------
    Reproduction
        Both results and their differences.

    Raises
    ------
    FileError
        If the scan has changed ("scan.other"), or is not available ("scan.not-in-file", "file.not-found"), or the
        record is incomplete ("file.incomplete").
    PluginError
        If a plug-in of the original run is not installed ("plugin.not-installed").

    Warns
    -----
    PtynbWarning
        If a plug-in of the original run is installed in another version.
    """
    path = Path(path).expanduser()
    first = load_result(path)
    versions = other_versions(first.plugins, loads=scan is None)
    for remark in versions:
        warnings.warn(remark, PtynbWarning, stacklevel=2)
    initial = first.initial_settings or settings_before(first.settings, first.changes)
    if not initial:
        raise FileError(
            f"{path} does not have the settings that the run began with, so it cannot be repeated.",
            code="file.incomplete",
        )
    if len(extensions) != len(first.machines.extensions):
        raise FileError(
            f"{path} was made with extensions ({', '.join(first.machines.extensions) or 'none'}), and "
            f"{len(extensions)} are given; give the same ones: reproduce(path, extensions=[...]).",
            code="argument.missing",
        )
    if scan is None:
        scan = loaded_again(first.scan, path)
        scan = scan if first.admissions is None else as_planned(Path(first.scan.path))
    if first.admissions is not None:
        scan = with_recorded_arrivals(scan, first.admissions)
    check_same(scan, first, path)
    steps = steps_of(initial, first.changes)
    live = all(Settings.is_live(name) for step in steps for name in step.names)
    # Positions that were refined later needed a larger object.
    reconfigured = not live or any(step.settings.margin > Settings(**initial).margin for step in steps)
    with _temporary_checkpoints() if reconfigured else contextlib.nullcontext() as checkpointing:
        recipe = Recipe(settings=Settings(**initial), stages=first.stages)
        with Reconstruction(
            scan, recipe, cluster, device=device, checkpointing=checkpointing, extensions=extensions
        ) as recon:
            run: RunSpan | None = None
            # In the order of their times, as an epoch that was restarted has some of both twice.
            events: list[Step | RunSpan] = [*steps, *first.runs]
            for event in sorted(events, key=lambda event: event.when):
                _reach(recon, event.epoch, event.update, run)
                if isinstance(event, Step):
                    if report is not None:
                        report(f"After epoch {event.epoch}: {', '.join(event.names)}")
                    recon.reconfigure(event.settings)
                else:
                    run = event
            _reach(recon, len(first.epochs), first.update, run)
            second = recon.result
    return compared(first, second, (*versions, *notes_on(first, second)))


def notes_on(first: Result, second: Result) -> tuple[str, ...]:
    """Return notes on what could not be repeated, and what differs."""
    differences = [
        f"After epoch {change.epoch} engines were lost, and the run continued from a checkpoint ({change.old}); "
        "this was not repeated."
        for change in first.changes
        if change.name == "engines"
    ]
    if first.failure:
        differences.append(
            f"The original run ended with a failure, which was not repeated: {first.failure.splitlines()[0]}"
        )
    if (len(second.epochs), second.update) != (len(first.epochs), first.update):
        differences.append(
            f"The original run ended after epoch {len(first.epochs)} and {first.update} updates, this one after epoch "
            f"{len(second.epochs)} and {second.update} updates."
        )
    for part, names in COMPARED.items():
        for name, word in names.items():
            then, now = (getattr(getattr(result, part), name) for result in (first, second))
            if then and then != now:
                texts = [", ".join(value) if isinstance(value, tuple) else str(value) for value in (then, now)]
                differences.append(f"{word}: {texts[0]} in the original run, {texts[1]} now.")
    then, now = first.scan.counts, second.scan.counts
    if then is not None and now is not None and abs(then - now) > SAME_COUNTS * abs(then):
        differences.append(f"The patterns differ: {then:.9g} counts in total in the original run, {now:.9g} now.")
    return tuple(differences)


def compared(first: Result, second: Result, notes: tuple[str, ...] = ()) -> Reproduction:
    """Compare two results."""
    mine, theirs = first.losses, second.losses
    common = min(len(mine), len(theirs))
    loss = None
    if common:
        scale = np.maximum(np.abs(mine[:common]), np.finfo(float).tiny)
        loss = float(np.max(np.abs(mine[:common] - theirs[:common]) / scale))
    equal = all(np.array_equal(getattr(first, name), getattr(second, name)) for name in ARRAYS)
    difference = 0.0 if equal else None
    if not equal:
        try:
            difference = Together({"first": first, "second": second}).registered("second", "first").error
        except ValueError as error:
            notes = (*notes, f"The objects cannot be compared: {error}")
    return Reproduction(first, second, equal, difference, loss, notes)


def _reach(recon: Reconstruction, epoch: int, update: int, run: RunSpan | None) -> None:
    """Run up to this update after this number of completed epochs, as a part of a run, unless it is reached already."""
    recon.wait()  # until the patterns are loaded
    status = recon.status()[0]
    if (status.epoch, status.update) < (epoch, update):
        recon.run_until(epoch, update, None if run is None else (run.first, run.last))
        recon.wait()


@contextlib.contextmanager
def _temporary_checkpoints() -> Iterator[Checkpointing]:
    """Yield checkpointing, which `reconfigure` needs, in a folder that is removed."""
    folder = new_folder("again")
    try:
        yield Checkpointing(folder=folder, epochs=None, seconds=None)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
