"""`reproduce`: a run repeated from its own record, changes on the way included, and compared with what it was."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ptynb.analysis.common_area import Together
from ptynb.cluster.cluster import Cluster
from ptynb.data.result import Result
from ptynb.data.scan import Scan
from ptynb.exceptions import FileError
from ptynb.io.load import load
from ptynb.io.result_file import load_result
from ptynb.session.reconstruction import Reconstruction
from ptynb.settings import Checkpointing, Settings
from ptynb.settings.change_replay import settings_before, steps_of

ARRAYS = ("object", "probe", "positions")
SAME_COUNTS = 1e-9


@dataclass(frozen=True, eq=False)
class Reproduction:
    """A run and its repetition.

    first, second: the results. equal: whether objects, probes, positions and losses are the same to the last bit.
    difference: root of the mean squared complex difference of the objects after registration, over that of the first;
        None where they can't be compared. loss: the largest relative difference of an epoch's loss; None without
        epochs. notes: sentences on what could not be repeated, or differs.
    """

    first: Result
    second: Result
    equal: bool
    difference: float | None
    loss: float | None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        same = "Equal to the bit." if self.equal else "Not equal to the bit."
        told = [f"{len(self.second.epochs)} epochs again. {same}"]
        if not self.equal:
            difference = "unknown" if self.difference is None else f"{self.difference:.3g}"
            loss = "unknown" if self.loss is None else f"{self.loss:.3g}"
            told.append(f"Relative difference of the objects: {difference}; of the losses at most: {loss}.")
        return "\n".join([*told, *self.notes])


def reproduce(
    path: str | Path,
    scan: Scan | None = None,
    cluster: Cluster | None = None,
    *,
    device: str = "auto",
    extensions: Sequence[Any] = (),
    report: Callable[[str], None] | None = None,
) -> Reproduction:
    """Repeats the run whose result is in this file: scan, settings at the start, each change before the same update.

    scan: the same; None: it is loaded as it was then. cluster: whose engines reconstruct; None: this process does.
    extensions: the same pieces and constraints of your own as then. report: told, line by line, what is being done.

    On as many engines and threads of the same kind, with the same versions, the result is equal to the bit. What can't
    be repeated, or differs, is in `Reproduction.notes`.

    Raises FileError where the scan is not the same any more, or the record is not enough.
    """
    path = Path(path).expanduser()
    first = load_result(path)
    tell = report or _silent
    begun = settings_of(first, path)
    if len(extensions) != len(first.machines.extensions):
        raise FileError(
            f"{path} was made with pieces of your own ({', '.join(first.machines.extensions) or 'none'}), and "
            f"{len(extensions)} were given; give the same ones: reproduce(path, extensions=[...])."
        )
    scan = same_scan(first, path) if scan is None else scan
    check_same(scan, first, path)
    steps = steps_of(begun, first.changes)
    restructured = any(not Settings.is_live(name) for step in steps for name in step.names)
    with _folder(restructured) as keep:
        settings = Settings(**begun)
        with Reconstruction(scan, settings, cluster, device=device, checkpointing=keep, extensions=extensions) as recon:
            for step in steps:
                _reach(recon, step.epoch, step.update)
                tell(f"After epoch {step.epoch}: {', '.join(step.names)}")
                recon.reconfigure(step.settings)
            _reach(recon, len(first.epochs), first.update)
            second = recon.result
    return compared(first, second, (*notes_on(first, second), *_other_data(first, second)))


def settings_of(result: Result, path: Path) -> dict[str, Any]:
    """The settings that a run began with. Raises FileError where its result does not say."""
    begun = result.initial_settings or settings_before(result.settings, result.changes)
    if not begun:
        raise FileError(f"{path} does not say with which settings it was made, so it can't be repeated.")
    return begun


def same_scan(result: Result, path: Path) -> Scan:
    """The scan, opened as it was then. Raises FileError where it can't be, or the file has changed since."""
    then = result.scan
    if then.prepared:
        raise FileError(
            f"{path} is the result of {then.path}, changed after it was loaded (cropped, flipped, masked ...), which "
            "is not in the record; load it, change it in the same way, and give it: reproduce(path, scan)."
        )
    if not then.path or then.arrays:
        why = f"opened with {' and '.join(then.arrays)} as arrays" if then.path else "which was in no file"
        raise FileError(
            f"{path} is the result of the scan '{then.name}', {why}; make that scan, and give it: reproduce(path, "
            "scan)."
        )
    file = Path(then.path)
    if not file.exists():
        raise FileError(
            f"{path} is the result of {file}, which is not there any more; give the scan: reproduce(path, scan)."
        )
    if then.size is not None and file.stat().st_size != then.size:
        raise FileError(
            f"{file} has {file.stat().st_size} bytes, and had {then.size} when {path} was made of it; "
            "expected the same file."
        )
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in then.given.items()
    }
    try:
        return load(file, **given)
    except TypeError as error:
        raise FileError(f"{path} says that its scan was opened with words that load does not know: {error}.") from None


def check_same(scan: Scan, result: Result, path: Path) -> None:
    """Raises FileError where this is not the scan that a result is of, as far as its metadata tell."""
    then = result.scan
    patterns, window = (
        then.patterns or len(result.positions),
        then.pattern_shape if then.patterns else scan.pattern_shape,
    )
    if (len(scan), scan.pattern_shape) != (patterns, window):
        raise FileError(
            f"{path} is the result of {patterns} patterns of {window[0]} x {window[1]} pixels, and this scan has "
            f"{len(scan)} of {scan.pattern_shape[0]} x {scan.pattern_shape[1]}; expected the same scan, prepared in "
            "the same way."
        )
    if then.digest and scan.metadata_digest != then.digest:
        raise FileError(
            f"{path} is the result of a scan with other positions, mask, geometry or guesses than '{scan.name}' has; "
            "expected the same, prepared in the same way: reproduce(path, scan)."
        )
    if then.sample_digest and scan.sample_digest != then.sample_digest:
        raise FileError(
            f"{path} is the result of a scan with other patterns than '{scan.name}' has: another file, or one that was "
            "flipped, scaled or otherwise changed; expected the same, prepared in the same way: reproduce(path, scan)."
        )


def notes_on(first: Result, second: Result) -> tuple[str, ...]:
    """Sentences on what could not be repeated, and on what was different this time."""
    found = [
        f"After epoch {change.epoch} engines were lost, and it went on from a kept state ({change.old}); "
        "that was not repeated."
        for change in first.changes
        if change.name == "engines"
    ]
    if first.failure:
        found.append(f"It was ended by a failure, which was not repeated: {first.failure.splitlines()[0]}")
    if Settings(**first.settings).sync_every > 1:
        found.append(
            "Engines exchanged their parameters now and then only (sync_every), and at each pause; pauses are not "
            "in the record."
        )
    if (len(second.epochs), second.update) != (len(first.epochs), first.update):
        found.append(
            f"It ended after epoch {len(second.epochs)} and {second.update} updates, and the first time after epoch "
            f"{len(first.epochs)} and {first.update}."
        )
    found += _differing("machines", first, second, {"engines": "engines", "threads": "threads of each engine"})
    found += _differing("machines", first, second, {"devices": "devices", "backend": "backend"})
    known = {"ptynb": "ptynb", "torch": "torch", "numpy": "numpy", "python": "Python", "system": "system"}
    return (*found, *_differing("software", first, second, known))


def _differing(part: str, first: Result, second: Result, names: dict[str, str]) -> list[str]:
    found = []
    for name, word in names.items():
        then, now = (getattr(getattr(result, part), name) for result in (first, second))
        if then and then != now:
            found.append(f"Other {word}: {_words(then)} then, {_words(now)} now.")
    return found


def _words(value: Any) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _other_data(first: Result, second: Result) -> tuple[str, ...]:
    then, now = first.scan.counts, second.scan.counts
    if then is None or now is None or abs(then - now) <= SAME_COUNTS * abs(then):
        return ()
    return (f"The patterns are others: {then:.9g} counts in all then, {now:.9g} now.",)


def compared(first: Result, second: Result, notes: tuple[str, ...] = ()) -> Reproduction:
    """How far two results are from each other."""
    mine, theirs = first.losses, second.losses
    common = min(len(mine), len(theirs))
    loss = None
    if common:
        scale = np.maximum(np.abs(mine[:common]), np.finfo(float).tiny)
        loss = float(np.max(np.abs(mine[:common] - theirs[:common]) / scale))
    equal = len(mine) == len(theirs) and np.array_equal(mine, theirs)
    equal = equal and all(np.array_equal(getattr(first, name), getattr(second, name)) for name in ARRAYS)
    difference = 0.0 if equal else None
    more: tuple[str, ...] = ()
    if not equal:
        try:
            difference = Together({"first": first, "second": second}).registered("second", "first").error
        except ValueError as error:
            more = (f"The objects can't be compared: {error}",)
    return Reproduction(first, second, equal, difference, loss, (*notes, *more))


def _reach(recon: Reconstruction, epoch: int, update: int) -> None:
    """Trains up to this update of this epoch. A change that was made earlier than where it is comes at once."""
    recon.wait()  # until the patterns are read
    status = recon.status()[0]
    if (status.epoch, status.update) < (epoch, update):
        recon.run_until(epoch, update)
        recon.wait()


@contextlib.contextmanager
def _folder(wanted: bool) -> Iterator[Checkpointing | None]:
    """Where states are kept that a restructuring goes through; removed in the end."""
    if not wanted:
        yield None
        return
    from ptynb.io.checkpoint_dir import new_folder

    folder = new_folder("again")
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=folder.parent))
    try:
        yield Checkpointing(folder=made, epochs=None, seconds=None)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _silent(line: str) -> None:
    """Nobody listens."""
