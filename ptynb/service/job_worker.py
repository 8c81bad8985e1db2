"""A worker: takes jobs from the queue, one after the other, and runs `ptynb run` for each as a process of its own.

    python -m ptynb.service.job_worker

is started by `ptynb serve` with the options as a line of JSON on its standard input, and ends with it. All that a run
writes is in FOLDER/ID. A run holds a lock there, so that two attempts never run at the same time, and writes
`outcome.json` at its end, by which a further attempt does nothing: a job is not run to its end twice, whenever a worker
or a run is killed.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from ptynb.batch.exit_statuses import COMPLETED, CTRL_C, INTERRUPTED, UNAVAILABLE
from ptynb.batch.run_folder import OUTCOME, WRITTEN
from ptynb.batch.signals import signals_are_noted
from ptynb.exceptions import FileError
from ptynb.io.new_files import replacing_file
from ptynb.polling import wait_while
from ptynb.private_folder import private_folder
from ptynb.service import guarded_process
from ptynb.service.job_queue import ATTEMPTS, LEASE, Job, JobQueue
from ptynb.supervised_thread import SupervisedThread

Value = TypeVar("Value")

RUN = ("ptynb.service.guarded_process", "ptynb.cli.main", "run")
"""Arguments of Python that run a job, before those of the job."""
SUBMITTED = "submitted.yaml"
"""In the folder of a job: whose it is, and its run file."""
MESSAGES = "messages.txt"
"""In the folder of a job: what its runs wrote for people."""
TEMPORARY = (UNAVAILABLE, INTERRUPTED)
"""Exit statuses of a run for lack of resources, and of one that was interrupted; another attempt may succeed."""
IDLE = 1.0
"""Time between looks at an empty queue [s]."""
PERIOD = 0.1
"""Time between looks at a run [s]."""
RENEWAL = 2.0
"""Time between renewals of a lease, at most a sixth of it [s]."""
KEEPING = 60.0
"""Time for a checkpoint, after which a run is killed [s]."""
BUSY = 5.0
"""Time after which a job is tried again whose folder another process holds [s]."""
LONGEST_DELAY = 600.0
"""Longest time after which a lost job is tried again [s]."""
LONGEST_LINE = 2**20
TAIL = 4000
"""Number of last bytes of the messages in which the reason of a failure is looked for."""

logger = logging.getLogger("ptynb.service")


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """Options of a worker, the same for all of a service. Times in seconds.

    folder: of the jobs. jobs_running: most running jobs of a user, hours: longest time of an attempt; None: no limit.
    trust: whether run files may have fields that call functions or connect to other machines. command: see `RUN`.
    """

    database: str
    folder: str
    jobs_running: int | None = None
    hours: float | None = None
    trust: bool = False
    lease: float = LEASE
    attempts: int = ATTEMPTS
    command: Sequence[str] = RUN

    def queue(self) -> JobQueue:
        """Return the queue. Raises ServiceError."""
        return JobQueue(self.database, lease=self.lease, attempts=self.attempts)

    def start(self, messages: IO[Any] | int | None = None) -> subprocess.Popen[bytes]:
        """Start a worker that ends with this process."""
        return guarded_process.start(("ptynb.service.job_worker",), first=json.dumps(asdict(self)), stderr=messages)


class RunLines:
    """What the lines of a run have told, read by a thread."""

    def __init__(self, lines: IO[bytes]) -> None:
        self.started = False
        self.epoch: int | None = None
        self.epochs: int | None = None
        self.loss: float | None = None
        self.error: dict[str, Any] = {}
        self._thread = SupervisedThread("ptynb run's lines", self._read, lines)
        self._thread.start()

    @property
    def values(self) -> dict[str, Any]:
        """What is kept in the queue."""
        return {"epoch": self.epoch, "epochs": self.epochs, "loss": self.loss}

    def join(self) -> None:
        """Wait for the last line; not for processes of a run that is gone and left the pipe open."""
        self._thread.join(1.0)

    def _read(self, lines: IO[bytes]) -> None:
        with lines:  # closed here: see `guarded_process.close`
            while line := lines.readline(LONGEST_LINE):
                told = _mapping(line)
                self.started |= told.get("event") == "started"
                if told.get("event") == "failed" and isinstance(told.get("error"), dict):
                    self.error = told["error"]
                # A run that is told to stop has the epochs so far as its goal.
                for name in ("epoch", "epochs") if told.get("event") == "started" else ("epoch",):
                    if isinstance(told.get(name), int) and 0 <= told[name] < 2**62:
                        setattr(self, name, told[name])
                if isinstance(told.get("loss"), float | int) and abs(told["loss"]) < 1e300:
                    self.loss = float(told["loss"])


class JobWorker:
    """Takes jobs and runs them until it is told to end."""

    def __init__(self, options: WorkerOptions, queue: JobQueue) -> None:
        self.options, self.queue = options, queue
        self.folder = Path(options.folder)
        self.name = f"{socket.gethostname()}:{os.getpid()}"
        self._renewal = min(RENEWAL, options.lease / 6)

    def work(self, ended: Callable[[], object]) -> None:
        """Run jobs until a function says that it is time to end; a run that is under way is put back then."""
        while not ended():
            job = None
            try:
                job = self.queue.take(self.name, self.options.jobs_running)
            except SQLAlchemyError as error:
                logger.warning("The database does not answer (%s); trying again.", error)
            if job is None:
                wait_while(lambda: not ended(), IDLE, PERIOD)
            else:
                self._run(job, ended)

    def _run(self, job: Job, ended: Callable[[], object]) -> None:
        logger.info("%s: attempt %d of %s, for %s", self.name, job.attempt, job.id, job.user)
        folder = self.folder / job.id
        try:
            if is_of_another(folder, job.user, job.run):
                self._refuse(job, folder)
                return
            file = private_folder(folder) / SUBMITTED
            with replacing_file(file) as part:  # a whole one: a run that reads it may be under way
                part.write_text(_submitted(job.user, job.run), encoding="utf-8")
            messages = (folder / MESSAGES).open("ab")
        except (OSError, ValueError, FileError) as error:
            self._put_back(job, "file.not-writable", f"{folder} cannot be written: {error}", counts=True)
            return
        trust = ["--trust"] if self.options.trust else []
        words = [*self.options.command, str(file), "--output", str(self.folder), "--id", job.id]
        words += ["--progress", "json", "--resume", *trust]
        try:
            with messages:
                child = guarded_process.start(words, folder=folder, stdout=subprocess.PIPE, stderr=messages)
        except OSError as error:
            self._put_back(job, "job.lost", f"its process cannot be started: {error}", delay=BUSY, counts=True)
            return
        assert child.stdout is not None
        lines = RunLines(child.stdout)
        try:
            why = self._attend(job, child, lines, ended)
        except BaseException:
            guarded_process.end(child, 0.0)
            raise
        lines.join()
        guarded_process.close(child)
        if why != "lost":
            self._conclude(job, child.returncode, lines, why)

    def _attend(self, job: Job, child: subprocess.Popen[bytes], lines: RunLines, ended: Callable[[], object]) -> str:
        """Wait for the end of a run; return why it was told to end: "stopping", "leaving", "late", "lost", or ""."""
        renewed = began = time.monotonic()
        why, told_at = "", 0.0
        while child.poll() is None:
            now = time.monotonic()
            wanted = ""
            if now - renewed >= self._renewal:
                try:
                    status = self.queue.renew(job, **lines.values)
                    renewed = time.monotonic()
                    wanted = "lost" if status is None else "stopping" if status == "stopping" else ""
                except SQLAlchemyError as error:
                    logger.warning("The lease of %s cannot be renewed (%s).", job.id, error)
                    # Another worker may have the job by now.
                    wanted = "lost" if now - renewed > self.options.lease else ""
            if ended():
                wanted = wanted or "leaving"
            if self.options.hours is not None and now - began > self.options.hours * 3600:
                wanted = wanted or "late"
            if wanted and not why:
                child.terminate()
                told_at = now
            why = "lost" if wanted == "lost" else why or wanted
            if why and now - told_at > KEEPING:
                child.kill()
            time.sleep(PERIOD)
        return why

    def _conclude(self, job: Job, status: int, lines: RunLines, why: str) -> None:
        """Tell the queue how a run has ended."""
        outcome = _outcome(self.folder / job.id)
        told = outcome.get("error") if outcome.get("exit_status") == status else None  # else of an earlier attempt
        error = told if isinstance(told, dict) else lines.error
        code, message = str(error.get("code") or "job.incomplete"), str(error.get("message") or self._last_words(job))
        if status == COMPLETED or outcome.get("status") == "completed":  # a signal may have come when all was done
            self._persistently(lambda: self.queue.finish(job, "completed", exit_status=COMPLETED, **lines.values))
        elif status == INTERRUPTED and not lines.started and not why:
            self._put_back(job, "", "Another process holds the folder of the job; it is tried again.", delay=BUSY)
        elif why == "late":
            message = f"The attempt took longer than {self.options.hours:g} h, the most that the site allows."
            self._end(job, status, "job.time-limit", message, lines)
        elif why and (status in TEMPORARY or status < 0 or (status == CTRL_C and not error)):
            self._put_back(job, "", "")  # a signal that comes while Python starts may end it with the status of Ctrl-C
        elif status in TEMPORARY or status < 0:
            code = code if status in TEMPORARY else "job.lost"
            message = message if status in TEMPORARY else f"its process was ended by signal {-status}"
            delay = min(BUSY * 2 ** min(job.losses, 20), LONGEST_DELAY)
            self._put_back(job, code, message, delay=delay, counts=True)
        else:
            self._end(job, status, code, message, lines)

    def _refuse(self, job: Job, folder: Path) -> None:
        message = f"{folder} has files of another job or run, which are not touched; move it, or choose another id."
        logger.warning("%s: %s", self.name, message)
        self._persistently(lambda: self.queue.finish(job, "failed", code="job.exists", message=message))

    def _end(self, job: Job, status: int, code: str, message: str, lines: RunLines) -> None:
        logger.info("%s: %s has failed: %s", self.name, job.id, message)
        values = {"exit_status": status, "code": code, "message": message, **lines.values}
        self._persistently(lambda: self.queue.finish(job, "failed", **values))

    def _put_back(self, job: Job, code: str, message: str, delay: float = 0.0, counts: bool = False) -> None:
        self._persistently(lambda: self.queue.put_back(job, delay=delay, code=code, message=message, counts=counts))

    def _persistently(self, change: Callable[[], Value]) -> Value | None:
        """Change the queue, for as long as this worker has the job. Then its next attempt finds the outcome."""
        until = time.monotonic() + self.options.lease
        while True:
            try:
                return change()
            except SQLAlchemyError as error:
                logger.warning("The database does not answer (%s); trying again.", error)
                if time.monotonic() > until:
                    return None
                time.sleep(IDLE)

    def _last_words(self, job: Job) -> str:
        """Return the last line that a run wrote for people."""
        with contextlib.suppress(OSError), (self.folder / job.id / MESSAGES).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
            if lines:
                return lines[-1]
        return "the run ended without a message"


def is_of_another(folder: Path, user: str, run: str) -> bool:
    """Return whether the folder of a job has files of another job, as one of a former database, or of another run."""
    try:
        return (folder / SUBMITTED).read_bytes() != _submitted(user, run).encode()
    except FileNotFoundError:
        return any((folder / name).exists() for name in WRITTEN)


def _submitted(user: str, run: str) -> str:
    return f"# a job of {user}\n{run}\n"


def _outcome(folder: Path) -> dict[str, Any]:
    try:
        return _mapping((folder / OUTCOME).read_bytes())
    except OSError:
        return {}


def _mapping(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def work(options: WorkerOptions) -> None:
    """Run jobs until a signal comes. Raises ServiceError if the database cannot be used."""
    queue = options.queue()
    try:
        with signals_are_noted() as came:
            JobWorker(options, queue).work(lambda: came)
    finally:
        queue.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    given = WorkerOptions(**json.loads(guarded_process.first_line()))
    guarded_process.end_with_parent()
    work(given)
