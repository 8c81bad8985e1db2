"""A worker and its runs, which are real processes: how a run ends, and what becomes of its job."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import filelock
import psutil
import pytest

from ptynb.service import guarded_process, job_worker
from ptynb.service.job_queue import Job, JobQueue, sqlite_url
from ptynb.service.job_worker import JobWorker, WorkerOptions
from ptynb.supervised_thread import SupervisedThread
from tests.service.running_service import COMMAND, ENDED, environment
from tests.waiting import until

pytestmark = pytest.mark.timeout(120)
LONG = 100_000


class Bench:
    """A queue with one worker in a thread of this process."""

    def __init__(self, folder: Path, **options: object) -> None:
        self.jobs = folder / "jobs"
        self.jobs.mkdir(mode=0o700)
        self.options = WorkerOptions(database=sqlite_url(folder), folder=str(self.jobs), command=COMMAND, **options)
        self.queue = self.options.queue()
        self.ended: list[bool] = []

    def begin(self) -> None:
        self.ended.clear()
        self.worker = JobWorker(self.options, self.queue)
        self.thread = SupervisedThread("worker of a test", self.worker.work, lambda: self.ended)
        self.thread.start()

    def end(self) -> None:
        self.ended.append(True)
        self.thread.join()

    def submit(self, epochs: int, **fault: object) -> None:
        if fault:
            (self.jobs / "a.faults.json").write_text(json.dumps(fault))
        self.queue.submit("a", "ann", json.dumps({"epochs": epochs}))
        self.begin()

    def enough(self) -> None:
        """Lets the run end."""
        (self.jobs / "a.enough").touch()

    def job(self) -> Job:
        return self.queue.find("a")

    def runs(self) -> bool:
        """Whether the job has a run that has done an epoch."""
        return bool(self.job().epoch)

    def reaches(self, *statuses: str) -> Job:
        until(lambda: self.job().status in statuses, 60, f"the job is {statuses}")
        return self.job()

    def journal(self) -> list[str]:
        return (self.jobs / "a" / "journal.txt").read_text().split()


def runs() -> list[psutil.Process]:
    """The runs of this process."""
    found = []
    for one in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # one that has just ended
            if "tests.service.child_run" in one.cmdline():
                found.append(one)
    return found


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    for name in ("IDLE", "BUSY", "RENEWAL"):
        monkeypatch.setattr(job_worker, name, 0.1)
    made = Bench(tmp_path)
    yield made
    made.end()
    made.queue.close()


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (65, "file.damaged"),
        (66, "file.not-found"),
        (70, "reconstruction.not-finite"),
        (78, "settings.invalid-value"),
    ],
)
def test_what_somebody_has_to_correct_is_not_tried_again(bench: Bench, status: int, code: str):
    bench.submit(3, status=status, code=code, times=1)
    job = bench.reaches(*ENDED)
    assert (job.status, job.attempt, job.exit_status, job.code) == ("failed", 1, status, code)
    assert job.message == "It went wrong."


@pytest.mark.parametrize(("times", "end"), [(2, "completed"), (9, "failed")])
def test_what_lacks_resources_is_tried_again_some_times(bench: Bench, times: int, end: str):
    bench.options = WorkerOptions(**{**vars(bench.options), "attempts": 3})
    bench.queue.attempts = 3
    bench.submit(1, status=69, code="memory.insufficient", times=times)
    job = bench.reaches(*ENDED)
    assert (job.status, job.attempt) == (end, 3)
    assert job.code == (None if end == "completed" else "memory.insufficient")
    assert bench.journal().count("end") == (end == "completed")


def test_a_folder_that_another_process_holds_is_waited_for(bench: Bench):
    (bench.jobs / "a").mkdir(mode=0o700)
    with filelock.FileLock(bench.jobs / "a" / "lock"):
        bench.submit(1)
        until(lambda: bench.job().attempt > 2, 60)
        assert "Another process holds the folder" in (bench.job().message or "") or bench.job().status == "running"
        assert not (bench.jobs / "a" / "journal.txt").exists()
    job = bench.reaches(*ENDED)
    assert (job.status, job.losses, job.message) == ("completed", 0, None)
    assert bench.journal() == ["begin", "end"]


def test_a_run_that_takes_too_long_has_failed_with_a_checkpoint(bench: Bench):
    bench.submit(LONG)
    until(bench.runs, 60)
    bench.worker.options = WorkerOptions(**{**vars(bench.options), "hours": 1e-9})
    job = bench.reaches(*ENDED)
    assert (job.status, job.code, job.exit_status) == ("failed", "job.time-limit", 75)
    assert (bench.jobs / "a" / "checkpoint.json").exists()


def test_a_run_is_stopped_with_a_checkpoint_and_continues_from_it(bench: Bench):
    bench.submit(LONG)
    until(bench.runs, 60)
    assert bench.queue.stop("a").status == "stopping"
    bench.reaches("stopped")
    kept = json.loads((bench.jobs / "a" / "checkpoint.json").read_text())["epoch"]
    bench.queue.restart("a")
    until(lambda: (bench.job().epoch or 0) > kept, 60)
    assert (bench.job().attempt, bench.job().losses, bench.journal()) == (2, 0, ["begin", "begin"])


def test_a_worker_that_ends_puts_its_run_back(bench: Bench):
    bench.submit(LONG)
    until(bench.runs, 60)
    bench.end()
    job = bench.job()
    assert (job.status, job.worker, job.losses, job.attempt) == ("queued", None, 0, 1)
    assert (bench.jobs / "a" / "checkpoint.json").exists()


def test_a_run_that_is_killed_is_begun_again_and_counted(bench: Bench):
    bench.submit(LONG)
    until(bench.runs, 60)
    [run] = runs()
    run.kill()
    until(lambda: bench.journal() == ["begin", "begin"], 60)
    bench.enough()
    job = bench.reaches(*ENDED)
    assert (job.status, job.losses) == ("completed", 1)
    assert bench.journal() == ["begin", "begin", "end"]


def test_a_worker_that_lost_its_job_ends_the_run_and_changes_nothing(bench: Bench):
    bench.submit(LONG)
    until(bench.runs, 60)
    other = JobQueue(bench.options.database, lease=-1000.0)
    held = bench.job()
    other.renew(held)  # as if this worker had been suspended until its lease expired
    other.lease = 60.0
    taken = other.take("other")
    while taken is None:  # it was renewed in between
        other.lease = -1000.0
        other.renew(held)
        other.lease = 60.0
        taken = other.take("other")
    until(lambda: not runs(), 30)
    assert bench.job().worker == "other"
    assert other.finish(taken, "completed")
    other.close()


def test_a_job_that_was_completed_by_a_lost_attempt_is_not_run_again(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:  # the worker is gone before it could tell
        patch.setattr(bench.queue, "finish", lambda job, status, **_: bench.queue.put_back(job, delay=0.5))
        bench.submit(2)
        until(lambda: ((job := bench.job()).status, job.attempt) == ("queued", 1), 60)
    job = bench.reaches("completed")
    assert job.attempt > 1
    assert bench.journal() == ["begin", "end"]


@pytest.mark.parametrize("end", ["stopped", "queued"])
def test_a_run_that_a_signal_ended_before_it_could_tell_has_not_failed(bench: Bench, end: str):
    bench.submit(LONG, early=130)
    until(bench.runs, 60)
    if end == "stopped":
        bench.queue.stop("a")
        bench.reaches(*ENDED)
    else:
        bench.end()
    assert (bench.job().status, bench.job().losses, bench.job().attempt) == (end, 0, 1)


@pytest.mark.parametrize(("user", "epochs"), [("ben", 2), ("ann", 3)])
def test_files_of_another_job_are_not_delivered(bench: Bench, user: str, epochs: int):
    """With a new database and the same folder."""
    bench.submit(2)
    bench.reaches("completed")
    bench.end()
    bench.queue.close()
    for left in bench.jobs.parent.glob("queue.sqlite*"):
        left.unlink()
    bench.queue = bench.options.queue()
    bench.queue.submit("a", user, json.dumps({"epochs": epochs}))
    bench.begin()
    job = bench.reaches(*ENDED)
    assert (job.status, job.code, bench.journal()) == ("failed", "job.exists", ["begin", "end"])
    assert "files of another job" in (job.message or "")


def test_the_folder_of_a_run_that_was_not_submitted_is_not_used(bench: Bench):
    (bench.jobs / "a").mkdir(mode=0o700)
    (bench.jobs / "a" / "outcome.json").write_text('{"status": "completed", "exit_status": 0}')
    bench.submit(2)
    assert bench.reaches(*ENDED).code == "job.exists"


def test_a_run_that_leaves_a_process_with_its_pipes_ends(bench: Bench):
    bench.submit(1, leaves=True)
    try:
        assert bench.reaches(*ENDED).status == "completed"
        bench.queue.submit("b", "ann", json.dumps({"epochs": 1}))
        until(lambda: bench.queue.find("b").status == "completed", 60)
    finally:
        psutil.Process(int((bench.jobs / "a" / "left.txt").read_text())).kill()


def test_a_job_that_was_lost_very_often_waits_ten_minutes_at_most(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    waited: list[float] = []
    job = bench.queue.submit("a", "ann", "{}")[0]
    bench.begin()
    bench.end()
    monkeypatch.setattr(job_worker, "BUSY", 5.0)
    monkeypatch.setattr(bench.queue, "put_back", lambda job, delay, **_: waited.append(delay))
    for losses in (0, 3, 10**6):
        bench.worker._conclude(dataclasses.replace(job, losses=losses), 69, job_worker.RunLines(io.BytesIO()), "")
    assert waited == [5.0, 40.0, 600.0]


def test_a_run_that_cannot_be_started_is_tried_again(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    start, failed = guarded_process.start, [OSError(errno.EAGAIN, "Resource temporarily unavailable")]

    def fails_once(*given: Any, **options: Any) -> Any:
        if failed:
            raise failed.pop()
        return start(*given, **options)

    monkeypatch.setattr(guarded_process, "start", fails_once)
    bench.submit(1)
    job = bench.reaches(*ENDED)
    assert (job.status, job.attempt, job.losses) == ("completed", 2, 1)


def test_no_run_has_the_database_of_the_service(monkeypatch: pytest.MonkeyPatch):
    for name in ("PTYNB_SITE_SERVE__DATABASE", "PTYNB_SITE_SERVE", "ptynb_site_serve__database"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setattr(subprocess, "Popen", made := MagicMock())
    guarded_process.start(("x",))
    assert "secret" not in made.call_args.kwargs["env"].values()


def test_a_process_that_ends_before_its_first_line_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(guarded_process.sys, "executable", "/bin/false")
    with pytest.raises(BrokenPipeError):
        guarded_process.start(("x",), first="x" * 10**6)


def test_a_signal_that_comes_when_all_is_done_leaves_the_job_completed(bench: Bench):
    bench.submit(1, ends_by_signal=True)
    job = bench.reaches(*ENDED)
    assert (job.status, job.exit_status, job.attempt) == ("completed", 0, 1)


def test_a_folder_that_cannot_be_made_is_told(bench: Bench):
    (bench.jobs / "a").write_text("a file in its place")
    bench.queue.attempts = 1
    bench.submit(1)
    job = bench.reaches(*ENDED)
    assert (job.status, job.code) == ("failed", "file.not-writable")


def test_a_guarded_process_ends_with_the_one_that_started_it():
    program = (
        "import time; from ptynb.service.guarded_process import start\n"
        "words = ('ptynb.service.guarded_process', 'timeit', '-n', '1', '-r', '1', 'import time; time.sleep(99)')\n"
        "print(start(words).pid, flush=True); time.sleep(99)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment()) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        assert child.is_running()
        parent.kill()
    until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, 30)
