"""Checkpoints: when one is due, the thread that writes it, and the notices of what failed.

The training thread only copies to the host's memory; a thread of its own waits for the disk, so that no other engine
does. Failures never stop a reconstruction; each gives one notice.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ptynb.data.engine_records import Status, WatchedPictures
from ptynb.engine.rendering import make_watched
from ptynb.exceptions import FileError, InvalidValueError
from ptynb.io import checkpoint_branches
from ptynb.io import checkpoint_dir as own_folder
from ptynb.io import checkpoint_file as files
from ptynb.io.checkpoint_file import Array, ReconstructionState
from ptynb.io.status_file import status_text
from ptynb.private_folder import require_private
from ptynb.settings import Checkpointing

COMPANION_SECONDS = 60.0
"""How long rank 0 waits for the rows of other ranks, after it has written its own."""
STALE_SECONDS = 600.0
"""Age after which an unfinished file is removed: its engine has ended."""
MOST_NOTICES = 100
MOST_WAITING = 2
"""States in memory beside the one that is being written; only those requested by the user ever wait."""
MOST_HELD = 200
"""States whose settings an engine remembers; older ones that stay are assumed to have other settings."""

Progress = tuple[int, int, int]
"""Epochs, updates and changes completed."""


@dataclasses.dataclass(frozen=True)
class CheckpointRequest:
    """Where and as what all ranks write a checkpoint, as decided by rank 0.

    token: prefix of the tokens of this group's checkpoints, unique. stays: names of files that are not overwritten.
    """

    folder: str
    run: str
    token: str
    stays: tuple[str, ...] = ()


class Jobs:
    """A thread that runs jobs one after the other."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._waiting: list[tuple[str, Callable[[], None]]] = []
        self._current = ""
        self._ending = False
        self._thread: threading.Thread | None = None

    def give(self, kind: str, job: Callable[[], None]) -> None:
        """Queue a job; ignored after `end`."""
        with self._condition:
            if self._ending:
                return
            self._waiting.append((kind, job))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ptynb checkpoints", daemon=True)
                self._thread.start()
            self._condition.notify_all()

    def busy(self, kind: str) -> bool:
        """Return whether a job of this kind is running or waiting."""
        with self._condition:
            return self._current == kind or self.waiting(kind) > 0

    def waiting(self, kind: str) -> int:
        """Return the number of waiting jobs of this kind."""
        return sum(one == kind for one, _ in self._waiting)

    def end(self) -> None:
        """End the thread once all jobs are done; return immediately."""
        with self._condition:
            self._ending = True
            self._condition.notify_all()

    def join(self, seconds: float) -> bool:
        """Wait until the thread has ended, at most `seconds`; return whether it has."""
        if self._thread is not None:
            self._thread.join(seconds)
        return self._thread is None or not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._waiting and not self._ending:
                    self._condition.wait()
                if not self._waiting:
                    return
                self._current, job = self._waiting.pop(0)
            job()
            del job  # it references a whole state
            self._current = ""


class CheckpointWriter:
    """Writes the checkpoints of one engine. All methods are called by the training thread."""

    def __init__(self, keep: Checkpointing, rank: int, world: int, scan: str, start: Path | None = None) -> None:
        """Choose the run id and the folder. start: the checkpoint that the reconstruction continues from.

        Raises InvalidValueError if the folder has checkpoints of another run, or `transfer` cannot be imported, and
        FileError if others can write to the folder.
        """
        self._keep, self._rank, self._world, self._scan = keep, rank, world, scan
        self._transfer = None if keep.transfer is None else _imported(keep.transfer)
        self._folder = None if keep.folder is None else keep.folder.expanduser().absolute()
        header = None if start is None or rank else _header(start)
        self._run = secrets.token_hex(8) if header is None else header.run
        self._token = secrets.token_hex(8)
        self._permanent: tuple[str, ...] = ()
        self._settings_of: dict[str, str] = {}
        """Settings (JSON) of the checkpoints that this process wrote last, or continued from, by file name."""
        if rank == 0:
            self._choose_folder(start if header is not None else None)
            self._read_permanent_files()
        self._jobs = Jobs()
        self._reported: dict[str, bool] = {}
        self.notices: tuple[str, ...] = ()
        self.successes = self.failures = 0
        """Number of checkpoints that this process has written, and has failed to write."""
        self.checkpoint: str | None = None
        self.checkpoint_epoch: int | None = None
        self.checkpoint_folder: str | None = None
        """Folder of the checkpoints, once there is one; on all engines, so that any surviving one can report it."""
        self._saved_progress: Progress | None = None
        self._last_epoch, self._last_time = 0, time.monotonic()
        self._pictures_time = float("-inf")
        self._picture: dict[str, Any] | None = None

    def _choose_folder(self, start: Path | None) -> None:
        start_folder = None if start is None else start.absolute().parent
        if start_folder is not None and checkpoint_branches.root_of(start_folder) == self._folder:
            self._folder = start_folder  # a branch of the folder: the next checkpoints belong to that branch
        if self._folder is None:
            in_default_folder = (
                start_folder is not None
                and checkpoint_branches.root_of(start_folder).parent == own_folder.default_folder()
            )
            self._folder = start_folder if in_default_folder else None
            require_private(self._folder or own_folder.default_folder())
            return
        require_private(self._folder)
        for path in files.states(self._folder):
            header = _header(path)
            if header is not None and header.run != self._run:
                raise InvalidValueError(
                    f"The folder {self._folder} already contains checkpoints of another reconstruction ({path.name}); "
                    "choose another folder, or resume from that checkpoint.",
                    code="checkpoint.exists",
                )

    # When

    def begin(self, progress: Progress, start: Path | None, settings: dict[str, Any]) -> None:
        """Note that the reconstruction is ready to run, possibly from `start`, a checkpoint with these settings."""
        self._saved_progress, self._last_epoch, self._last_time = progress, progress[0], time.monotonic()
        if start is not None:
            self.checkpoint_folder, self._settings_of[start.name] = str(start.parent), json.dumps(settings)
            if self._rank == 0:
                self.checkpoint, self.checkpoint_epoch = str(start), progress[0]

    def order(self, look: bool = False) -> CheckpointRequest:
        """Return the request for the next checkpoint, which all engines receive; rank 0 only.

        look: whether to read from disk which files must not be overwritten. The training thread passes False, as it
        does not wait for the disk; whoever marks further files as permanent requests the next checkpoint with True.
        """
        if self._folder is None:
            self._folder = own_folder.new_folder(self._scan)
        if look:
            self._read_permanent_files()
        return CheckpointRequest(str(self._folder), self._run, self._token, self._permanent)

    def _read_permanent_files(self) -> None:
        if self._folder is not None:
            self._permanent = checkpoint_branches.read_note(self._folder).stays

    def changed(self, progress: Progress) -> bool:
        """Return whether the run has changed since the last checkpoint."""
        return progress != self._saved_progress

    def due(self, progress: Progress, ends_epoch: bool) -> bool:
        """Return whether a checkpoint is due after the next update. ends_epoch: whether that update ends an epoch."""
        if self._jobs.busy("state"):
            return False
        every = self._keep.epochs
        if every is not None and ends_epoch and (progress[0] + 1) // every > self._last_epoch // every:
            return True
        seconds = self._keep.seconds
        return seconds is not None and time.monotonic() - self._last_time >= seconds and self.changed(progress)

    # Handing over to the writing thread

    def take(self, copy: Callable[[], ReconstructionState], order: CheckpointRequest, progress: Progress) -> None:
        """Copy the state and queue it for writing; `copy` waits for no other engine."""
        self._last_epoch, self._last_time, self.checkpoint_folder = progress[0], time.monotonic(), order.folder
        # Only rank 0 limits the queue: it waits for the others' parts before it begins with its next state.
        if self._rank == 0 and self._jobs.waiting("state") >= MOST_WAITING:
            self.failures += 1
            self._notify(
                "slow", f"{MOST_WAITING} states wait for the disk already, so that of epoch {progress[0]} was left out."
            )
            return
        self._reported["slow"] = False
        # Two checkpoints of the same progress share one token, so parts of either one from another rank are accepted.
        token = "-".join([order.token, *map(str, progress)])
        try:
            state = dataclasses.replace(copy(), run=order.run, token=token)
        except (RuntimeError, MemoryError, TypeError) as error:
            self.failures += 1
            self._notify(
                "state",
                f"The state of epoch {progress[0]} could not be copied for a checkpoint: {error}. The run continues.",
            )
            return
        if self._rank and state.parts == 1:
            return
        # After a change of settings a permanent file of the same update is a different state: do not overwrite it.
        settings = json.dumps(state.settings)
        protected = [name for name in order.stays if self._settings_of.get(name) != settings]
        path = Path(order.folder) / files.file_name(state.epoch, state.update, protected)
        self._saved_progress, self._settings_of[path.name] = progress, settings
        if len(self._settings_of) > MOST_HELD:
            del self._settings_of[next(iter(self._settings_of))]
        self._jobs.give("state", lambda: self._store(state, path))

    def pictures_due(self) -> bool:
        """Return whether new pictures are due; rank 0 only."""
        every = self._keep.pictures
        late = every is not None and time.monotonic() - self._pictures_time >= every
        return late and not self._jobs.busy("pictures")

    def show(self, status: Status, look: Callable[[], tuple[Array, Array]] | None, area: Any) -> None:
        """Queue the writing of status.json, and of pictures if `look` is given.

        look: returns a projection of the object (y, x) and the probe (mode, y, x).
        """
        if self._keep.pictures is None or self._rank:
            return
        arrays = None if look is None else look()
        self._pictures_time = time.monotonic()
        # The root folder for all branches, so that a viewer finds the pictures at one path.
        folder = checkpoint_branches.root_of(Path(self.order().folder))

        def draw() -> None:
            pictures = None
            if arrays is not None:
                pictures = make_watched(*arrays, area, status.epoch, status.update)
            self._publish(folder, status, pictures)

        self._jobs.give("pictures", draw)

    def close(self, meanwhile: Callable[[], None], seconds: float = COMPANION_SECONDS) -> bool:
        """Wait until all is written, calling `meanwhile` repeatedly; return False if that takes more than `seconds`."""
        self._jobs.end()
        until = time.monotonic() + seconds
        while not self._jobs.join(0.02):
            meanwhile()
            if time.monotonic() > until:
                return False
        return True

    # In the writing thread

    def _store(self, state: ReconstructionState, path: Path) -> None:
        try:
            _check_finite(state)
            self._make_folder(path.parent)
            files.put(
                files.companion(path, self._rank), files.image(state, self._rank, files.newest_written(path.parent))
            )
            if self._rank == 0:
                self._wait_for_parts(path, state)
                self.checkpoint, self.checkpoint_epoch = str(path), state.epoch
                self.successes += 1
                self._remove_old(path.parent)
        except Exception as error:  # noqa: BLE001 - whatever it is, training goes on and the user is told
            self._saved_progress = None
            self.failures += 1
            last = f"; the latest one is {self.checkpoint}" if self.checkpoint else ""
            self._notify(
                "state",
                f"The checkpoint of epoch {state.epoch} could not be written to {path.parent} ({error}){last}. "
                "The run continues; free disk space, or create the folder again.",
            )
            return
        self._reported["state"] = False
        self._transfer_file(files.companion(path, self._rank))

    def _make_folder(self, folder: Path) -> None:
        """Create the folder if it is one of ptynb's default ones; others are created when a file is written."""
        if folder.parent == own_folder.default_folder() and not folder.is_dir():
            own_folder.create_and_prune(folder, remove=self._rank == 0)

    def _wait_for_parts(self, path: Path, state: ReconstructionState) -> None:
        until = time.monotonic() + COMPANION_SECONDS
        while missing := files.missing_parts(path, state.token, state.parts):
            if time.monotonic() > until:
                raise OSError(f"the parts of ranks {missing} did not come; all engines have to see the folder")
            time.sleep(0.02)

    def _remove_old(self, folder: Path) -> None:
        try:
            permanent = checkpoint_branches.read_note(folder).stays
        except (OSError, FileError):
            return  # it is unknown which files are permanent, so remove none
        known = files.states(folder)
        replaceable = [path for path in known if path.name not in permanent]
        old = replaceable[: -self._keep.max_to_keep]
        remaining = [path for path in known if path not in old]
        for path in old:
            for part in [path, *folder.glob(f"{path.stem}.rank*.h5")]:
                part.unlink(missing_ok=True)
        for part in folder.glob("state-*.rank*.h5"):
            # A part of a checkpoint that rank 0 failed to write.
            if part.name < min(path.name for path in remaining):
                part.unlink(missing_ok=True)
        for part in folder.glob(".*.part"):
            with contextlib.suppress(OSError):
                if time.time() - part.stat().st_mtime > STALE_SECONDS:
                    part.unlink()

    def _publish(self, folder: Path, status: Status, pictures: WatchedPictures | None) -> None:
        written = []
        try:
            self._make_folder(folder)
            if pictures is not None:
                limits = {name: list(values) for name, values in pictures.limits.items()}
                self._picture = {
                    "epoch": pictures.epoch,
                    "update": pictures.update,
                    "limits": limits,
                    "powers": [*pictures.powers],
                }
                for name, jpeg in pictures.files.items():
                    files.put(folder / f"{name}.jpg", memoryview(jpeg))
                    written.append(folder / f"{name}.jpg")
            kept = None if self.checkpoint is None else Path(self.checkpoint).name
            text = status_text(folder.name, self._scan, status, self._picture, kept)
            files.put(folder / "status.json", memoryview(text))
            written.append(folder / "status.json")
        except Exception as error:  # noqa: BLE001 - whatever it is, training goes on and the user is told
            self._notify("pictures", f"The pictures could not be written in {folder} ({error}). The run continues.")
            return
        self._reported["pictures"] = False
        for path in written:
            self._transfer_file(path)

    def _transfer_file(self, path: Path) -> None:
        if self._transfer is None:
            return
        try:
            self._transfer(path)
        except Exception as error:  # noqa: BLE001 - the user's own function; training goes on
            self._notify(
                "transfer", f"'{self._keep.transfer}' failed with {path.name}: {type(error).__name__}: {error}."
            )
            return
        self._reported["transfer"] = False

    def _notify(self, kind: str, sentence: str) -> None:
        """Add a notice, but only once until this kind of job has succeeded again."""
        if not self._reported.get(kind) and len(self.notices) < MOST_NOTICES:
            self.notices += (sentence,)
        self._reported[kind] = True


def _check_finite(state: ReconstructionState) -> None:
    """Raise InvalidValueError if object or probe contain values that are not finite.

    The loop checks at the end of an epoch only; by then such checkpoints could have replaced all good ones.
    """
    for name, values in state.model.items():
        if name.startswith(("object.", "probe.")) and not np.isfinite(values).all():
            raise InvalidValueError(f"{name} contains values that are not finite", code="array.not-finite")


def _header(path: Path) -> files.Header | None:
    with contextlib.suppress(OSError):
        return files.header_of(path)
    return None


def _imported(name: str) -> Callable[[Path], Any]:
    """Import the function 'module:function'. Raise InvalidValueError if that fails."""
    module, function = name.split(":")
    try:
        attribute = getattr(importlib.import_module(module), function)
    except Exception as error:
        raise InvalidValueError(
            f"checkpointing.transfer is {name!r}, which can't be imported ({type(error).__name__}: {error}); expected "
            "'module:function' of a module that every engine can import.",
            code="checkpoint.invalid-transfer",
        ) from error
    if not callable(attribute):
        raise InvalidValueError(
            f"checkpointing.transfer is {name!r}, which is not callable; expected 'module:function'.",
            code="checkpoint.invalid-transfer",
        )
    imported: Callable[[Path], Any] = attribute
    return imported
