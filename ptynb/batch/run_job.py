"""What a run without a notebook leaves for whoever started it: its folder (`run_folder`), lock, progress as JSON lines,
and outcome.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml
from filelock import FileLock, Timeout
from rich.console import Console

from ptynb import __version__
from ptynb.batch.exit_statuses import COMPLETED, exit_status
from ptynb.batch.run_folder import CHECKPOINTS, LOCK, OUTCOME, PROGRESS, RESULT, RUN, SCAN
from ptynb.batch.signals import Leaving, signal_that_came, status_of_end
from ptynb.exceptions import FileError, InvalidValueError, PtynbError, ReconstructionError
from ptynb.io.new_files import replacing_file, writable
from ptynb.private_folder import make_folder
from ptynb.progress import log
from ptynb.settings.run_files.run_file import RunFile

ID = re.compile(r"\w[\w.+=@-]{0,199}")


class RunJob:
    """Context of a run, which records its end.

    The error that ends the context is recorded and continues, but for that of a signal: `exit_status` has its status.

    Parameters
    ----------
    id : str
        Name of the run in its lines, and of its folder.
    output : Path or None
        Folder that has the folder of the run; None: nothing is written.
    lines : bool
        Whether the progress is printed as JSON lines; messages for people are on the error stream then.
    again : str
        The command that begins or continues the run, for messages.
    leads : bool
        Whether this process records the run: of several ranks the first.
    """

    def __init__(
        self, id: str, output: Path | None = None, *, lines: bool = False, again: str = "", leads: bool = True
    ):
        if output is not None and not ID.fullmatch(id):
            raise InvalidValueError(
                f"The name of the run is {id!r}; expected --id with letters, digits, '_', '-', '.', '+', '=' and '@', "
                "of which the first is a letter, digit or '_'.",
                code="argument.invalid-value",
            )
        self.id, self.again = id, again
        self.folder = None if output is None else output.expanduser().absolute() / id
        self.console = Console(stderr=lines)
        self.exit_status = COMPLETED
        self.error: BaseException | None = None
        """An error that was reported, and does not end the context."""
        self.result: Path | None = None
        self.epoch: int | None = None
        """Number of completed epochs; None: not known."""
        self.told_how_to_go_on = False
        self._prints, self._leads = lines and leads, leads
        self._began = self._is_silent = False
        self._started = _now()
        self._lock: FileLock | None = None

    def __enter__(self) -> Self:
        """Lock the folder. Raises ReconstructionError if another process works in it, FileError."""
        if self.folder is None or not self._leads:
            return self
        with writable(self.folder):
            make_folder(self.folder)
            lock = FileLock(self.folder / LOCK)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                raise ReconstructionError(
                    f"Another process works on the run {self.id!r} in {self.folder}; wait for its end, or choose "
                    "another --id.",
                    code="run.locked",
                ) from None
        self._lock = lock
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Record the end, and release the folder."""
        number = signal_that_came()
        if error is not None and number is not None and not isinstance(error, Leaving):
            if not isinstance(error, KeyboardInterrupt):  # which lost its type where it was held back
                log(self.console, f"After the signal: {error}")
            error = Leaving(number)
        is_signal = isinstance(error, Leaving)
        if is_signal and self.result is not None:  # which is all that was to be done
            error = None
        found = error or self.error
        if error is not None:
            self.exit_status = status_of_end(error)
        if isinstance(found, Leaving) and self._leads and not self.told_how_to_go_on:
            log(self.console, f"No checkpoint was written. Start again with: {self.again}")
        try:
            self.finish(found)
        except FileError as problem:
            if found is None:
                self.exit_status = exit_status(problem)
                raise
            log(self.console, str(problem))  # the error that ended the run is told
        finally:
            if self._lock is not None:
                self._lock.release()
        return is_signal

    def plan(self, plan: RunFile) -> RunFile:
        """Return the run with all that it writes in the folder of this one."""
        if self.folder is None:
            return plan
        listen = plan.listen
        if listen is not None:
            listen = listen.model_copy(update={"folder": self.folder / SCAN})
        checkpointing = plan.checkpointing.model_copy(update={"folder": self.folder / CHECKPOINTS})
        return plan.model_copy(
            update={"result": self.folder / RESULT, "checkpointing": checkpointing, "listen": listen}
        )

    def is_completed(self, plan: RunFile) -> bool:
        """Whether this run, and no other one in its folder, was completed before: then there is nothing to do."""
        outcome = {} if self.folder is None else self._outcome()
        if self.folder is None or outcome.get("status") != "completed" or not plan.result.is_file():
            return False
        try:
            completed = (self.folder / RUN).read_text(encoding="utf-8") == _text(plan)
        except (OSError, UnicodeDecodeError):
            return False
        if completed:
            self.result, self.epoch = plan.result, outcome.get("epoch")
            if self._leads:
                log(self.console, f"The run {self.id!r} is completed. Result: {plan.result}")
        return completed

    def begin(self, plan: RunFile) -> None:
        """Record what is run, from now on."""
        self._began = True
        if self.folder is None or not self._leads:
            return
        with writable(self.folder / OUTCOME):
            (self.folder / OUTCOME).unlink(missing_ok=True)
        with writable(self.folder / RUN), replacing_file(self.folder / RUN) as path:
            path.write_text(_text(plan), encoding="utf-8")

    def tell(self, event: str, **facts: Any) -> None:
        """Write a line."""
        if not self._leads or not (self._prints or self.folder):
            return
        values = {"event": event, "time": _now(), "id": self.id, **facts}
        line = json.dumps({name: _finite(value) for name, value in values.items()}, allow_nan=False, default=str) + "\n"
        try:
            if self.folder is not None:
                with (self.folder / PROGRESS).open("a", encoding="utf-8") as file:
                    file.write(line)
            if self._prints:
                sys.stdout.write(line)
                sys.stdout.flush()
        except OSError as error:  # a full disk, or nobody reads any more: no reason to end a run
            if not self._is_silent:
                self._is_silent = True
                log(self.console, f"A line of the progress could not be written: {error}.")

    def finish(self, error: BaseException | None = None) -> None:
        """Tell the end, and write the outcome. error: that ended the run."""
        if not self._leads:
            return
        ended: dict[str, Any] = {"exit_status": self.exit_status, "epoch": self.epoch}
        problem = None
        if isinstance(error, Leaving):
            status = "interrupted"
            ended["command"] = self.again
        elif error is not None or self.exit_status != COMPLETED:
            status = "failed"
            problem = {"code": error.code if isinstance(error, PtynbError) else "", "message": str(error or "")}
        else:
            status = "completed"
        told = ended | ({"error": problem} if problem else {}) | ({"result": self.result} if self.result else {})
        self.tell(status, **told)
        if self.folder is None or (not self._began and self._outcome().get("status") == "completed"):
            return  # what was refused leaves the outcome of the run before
        outcome = {
            "id": self.id,
            "status": status,
            "exit_status": self.exit_status,
            "result": None if self.result is None else str(self.result),
            "epoch": self.epoch,
            "error": problem,
            "version": __version__,
            "started": self._started,
            "ended": _now(),
        }
        with writable(self.folder / OUTCOME), replacing_file(self.folder / OUTCOME) as path:
            path.write_text(json.dumps(outcome, indent=1) + "\n", encoding="utf-8")

    def _outcome(self) -> Mapping[str, Any]:
        """Return the outcome of an earlier process; empty without a whole one."""
        assert self.folder is not None
        try:
            found = json.loads((self.folder / OUTCOME).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def _text(plan: RunFile) -> str:
    """Return the run as a run file."""
    return yaml.safe_dump(plan.as_given(), sort_keys=False, allow_unicode=True)


def _finite(value: Any) -> Any:
    """Return a value that JSON has: null for a number that is not finite."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
