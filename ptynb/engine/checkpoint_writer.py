"""Checkpoints: when one is due, the jobs that write it, and the notices of what failed.

The training thread only copies to the host's memory; other threads wait for the disk, one job after the other, so that
no other engine does. Failures never stop a reconstruction, nor the jobs after them; each gives one notice.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import secrets
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import numpy as np

from ptynb.data.commands import CheckpointRequest
from ptynb.data.engine_records import Status
from ptynb.distributed.group import nothing
from ptynb.engine.rendering import make_watched
from ptynb.exceptions import FileError, InvalidValueError, PtynbError
from ptynb.io import checkpoint_branches
from ptynb.io import checkpoint_dir as own_folder
from ptynb.io import checkpoint_file as files
from ptynb.io.checkpoint_file import Array, ReconstructionState
from ptynb.io.status_file import status_text
from ptynb.polling import wait_while
from ptynb.private_folder import require_private
from ptynb.serial_executor import SerialExecutor
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


class CheckpointWriter:
    """Writes the checkpoints of one engine. All methods are called by the training thread."""

    def __init__(
        self,
        keep: Checkpointing,
        rank: int,
        world: int,
        scan: str,
        start: Path | None = None,
        changed: Callable[[], None] = nothing,
    ) -> None:
        """Choose the run id and the folder. start: the checkpoint that the reconstruction continues from.

        changed: called after the numbers of checkpoints written and failed have changed, and after a notice.

        Raises InvalidValueError if the folder has checkpoints of another run, or `transfer` cannot be imported, and
        FileError if others can write to the folder.
        """
        self._keep, self._rank, self._world, self._scan, self._changed = keep, rank, world, scan, changed
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
        self._executor = SerialExecutor("ptynb checkpoints")
        self._jobs: list[tuple[str, Future[None]]] = []
        """Kinds ("state" or "pictures") and futures of the jobs that were not done when the last one was queued."""
        self._reported: dict[str, bool] = {}
        self.notices: tuple[str, ...] = ()
        self.successes = self.failures = 0
        """Number of checkpoints that this process has written, and has failed to write."""
        self.failure = ""
        """Why the last one that it failed to write was not written."""
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
                    fields=("checkpointing.folder",),
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
        if self.busy("state"):
            return False
        every = self._keep.epochs
        if every is not None and ends_epoch and (progress[0] + 1) // every > self._last_epoch // every:
            return True
        seconds = self._keep.seconds
        return seconds is not None and time.monotonic() - self._last_time >= seconds and self.changed(progress)

    # Handing over to the writing threads

    def _queue(self, kind: str, job: Callable[[], None], failed: Callable[[str], None]) -> None:
        """Queue a job. failed: called with what ended it by an error, in its thread; the next job is done all the same.

        Errors of all kinds: a thread that SystemExit ends, as a library's function may raise it, ends without a word.
        """

        def work() -> None:
            try:
                job()
            except BaseException as error:  # noqa: BLE001 - whatever it is, training goes on and the user is told
                failed(str(error) if isinstance(error, OSError | PtynbError) else f"{type(error).__name__}: {error}")
            else:
                self._reported[kind] = False

        future = self._executor.submit(work)
        self._jobs = [one for one in self._jobs if not one[1].done()] + [(kind, future)]
        future.add_done_callback(lambda _: self._changed())

    def busy(self, kind: str) -> bool:
        """Return whether a job of this kind is running or waiting."""
        return any(one == kind and not future.done() for one, future in self._jobs)

    def _waiting(self, kind: str) -> int:
        return sum(one == kind and not (future.running() or future.done()) for one, future in self._jobs)

    def take(self, copy: Callable[[], ReconstructionState], order: CheckpointRequest, progress: Progress) -> None:
        """Copy the state and queue it for writing; `copy` waits for no other engine."""
        self._last_epoch, self._last_time, self.checkpoint_folder = progress[0], time.monotonic(), order.folder
        # Only rank 0 limits the queue: it waits for the others' parts before it begins with its next state.
        if self._rank == 0 and self._waiting("state") >= MOST_WAITING:
            self._note_failure(
                "slow", f"{MOST_WAITING} states wait for the disk already, so that of epoch {progress[0]} was left out."
            )
            return
        self._reported["slow"] = False
        # Two checkpoints of the same progress share one token, so parts of either one from another rank are accepted.
        token = "-".join([order.token, *map(str, progress)])
        try:
            state = dataclasses.replace(copy(), run=order.run, token=token)
        except (RuntimeError, MemoryError, TypeError) as error:
            self._note_failure(
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

        def failed(why: str) -> None:
            self._saved_progress = None
            last = f"; the latest one is {self.checkpoint}" if self.checkpoint else ""
            self._note_failure(
                "state",
                f"The checkpoint of epoch {state.epoch} could not be written to {path.parent} ({why}){last}. "
                "The run continues; free disk space, or create the folder again.",
            )

        self._queue("state", lambda: self._store(state, path), failed)

    def pictures_due(self) -> bool:
        """Return whether new pictures are due; rank 0 only."""
        every = self._keep.pictures
        late = every is not None and time.monotonic() - self._pictures_time >= every
        return late and not self.busy("pictures")

    def show(self, status: Status, look: Callable[[], tuple[Array, Array]] | None, area: Any) -> None:
        """Queue the writing of status.json, and of pictures if `look` is given.

        look: returns a projection of the object (y, x) and the probe (mode, y, x).
        """
        if self._keep.pictures is None or self._rank:
            return
        self._pictures_time = time.monotonic()
        arrays = None
        try:
            arrays = None if look is None else look()
        except (RuntimeError, MemoryError) as error:
            self._notify_of_drawing(status, error)
        # The root folder for all branches, so that a viewer finds the pictures at one path.
        folder = checkpoint_branches.root_of(Path(self.order().folder))

        def failed(why: str) -> None:
            self._notify("pictures", f"The status could not be written to {folder} ({why}). The run continues.")

        self._queue("pictures", lambda: self._publish(folder, status, arrays, area), failed)

    def close(self, meanwhile: Callable[[], None], seconds: float = COMPANION_SECONDS) -> bool:
        """Wait until all is written, calling `meanwhile` repeatedly; return False if that takes more than `seconds`."""
        until = time.monotonic() + seconds
        while wait([future for _, future in self._jobs], 0.02).not_done:
            meanwhile()
            if time.monotonic() > until:
                return False
        return True

    # In the writing threads

    def _store(self, state: ReconstructionState, path: Path) -> None:
        _check_finite(state)
        self._make_folder(path.parent)
        files.put(files.companion(path, self._rank), files.image(state, self._rank, files.newest_written(path.parent)))
        if self._rank == 0:
            self._wait_for_parts(path, state)
            self.checkpoint, self.checkpoint_epoch = str(path), state.epoch
            self.successes += 1
            self._changed()
            self._remove_old(path.parent)
        self._transfer_file(files.companion(path, self._rank))

    def _make_folder(self, folder: Path) -> None:
        """Create the folder if it is one of ptynb's default ones; others are created when a file is written."""
        if folder.parent == own_folder.default_folder() and not folder.is_dir():
            own_folder.create_and_prune(folder, remove=self._rank == 0)

    def _wait_for_parts(self, path: Path, state: ReconstructionState) -> None:
        missing = wait_while(lambda: files.missing_parts(path, state.token, state.parts), COMPANION_SECONDS)
        if missing:
            raise OSError(f"the parts of ranks {missing} did not come; all engines have to see the folder")

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
            if files.progress_of(part) < min(map(files.progress_of, remaining)):
                part.unlink(missing_ok=True)
        for part in folder.glob(".*.part"):
            # The file of a result waits for a pass over all patterns before it is written.
            limit = STALE_SECONDS * (100 if part.name.startswith(".result.") else 1)
            with contextlib.suppress(OSError):
                if time.time() - part.stat().st_mtime > limit:
                    part.unlink()

    def _publish(self, folder: Path, status: Status, arrays: tuple[Array, Array] | None, area: Any) -> None:
        """Write the pictures of object and probe, unless they cannot be drawn, and the status."""
        self._make_folder(folder)
        drawn = dict[str, bytes]()
        if arrays is not None:
            try:
                pictures = make_watched(*arrays, area, status.epoch, status.update)
            except Exception as error:  # noqa: BLE001 - the status is written without them, and says so
                self._notify_of_drawing(status, error)
            else:
                self._reported["drawing"] = False
                limits = {name: list(values) for name, values in pictures.limits.items()}
                self._picture = {
                    "epoch": pictures.epoch,
                    "update": pictures.update,
                    "limits": limits,
                    "powers": [*pictures.powers],
                }
                drawn = {f"{name}.jpg": jpeg for name, jpeg in pictures.files.items()}
        for name, jpeg in drawn.items():
            files.put(folder / name, memoryview(jpeg))
        kept = None if self.checkpoint is None else Path(self.checkpoint).name
        text = status_text(folder.name, self._scan, status, self._picture, kept)
        files.put(folder / "status.json", memoryview(text))
        for name in (*drawn, "status.json"):
            self._transfer_file(folder / name)

    def _notify_of_drawing(self, status: Status, error: Exception) -> None:
        self._notify(
            "drawing",
            f"The pictures of epoch {status.epoch} for the folder of the checkpoints could not be drawn "
            f"({type(error).__name__}: {error}). The run and its checkpoints continue.",
        )

    def _transfer_file(self, path: Path) -> None:
        if self._transfer is None:
            return
        try:
            self._transfer(path)
        except BaseException as error:  # noqa: BLE001 - the user's own function; training goes on
            self._notify(
                "transfer", f"'{self._keep.transfer}' failed with {path.name}: {type(error).__name__}: {error}."
            )
            return
        self._reported["transfer"] = False

    def _note_failure(self, kind: str, sentence: str) -> None:
        """Note that a checkpoint was not written."""
        self.failure = sentence  # before the number, which tells whoever waits to read it
        self.failures += 1
        self._notify(kind, sentence)

    def _notify(self, kind: str, sentence: str) -> None:
        """Add a notice, but only once until this kind of job has succeeded again."""
        if not self._reported.get(kind) and len(self.notices) < MOST_NOTICES:
            self.notices += (sentence,)
            self._changed()
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
