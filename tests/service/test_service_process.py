"""A service in real processes: a run from its submission to its result, and what ends, fails or is killed meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from ptynb.service import guarded_process
from ptynb.service.job_worker import WorkerOptions
from tests.raising import raises
from tests.service.running_service import COMMAND, ENDED, RunningService, Start, environment
from tests.waiting import until

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def service(start: Start) -> RunningService:
    return start()


def runs(service: RunningService) -> list[psutil.Process]:
    """The processes of runs and workers of a service."""
    found = []
    for process in psutil.process_iter():
        try:
            line = process.cmdline()
        except psutil.Error:
            continue
        if "tests.service.child_run" in line and str(service.jobs) in line:
            found.append(process)
    return found


def test_a_job_runs_from_its_submission_to_its_result(service: RunningService):
    answer = service.submit(id="first", epochs=4)
    assert (answer.status_code, answer.json()["status"]) == (201, "queued")
    done = service.reaches("first", *ENDED)
    assert (done["status"], done["exit_status"], done["attempt"], done["error"]) == ("completed", 0, 1, None)
    assert (done["epoch"], done["epochs"], done["loss"]) == (4, 4, 0.25)
    assert service.journal("first") == ["begin", "end"]
    told = service.request("GET", "/jobs/first/progress").json()
    assert [line["event"] for line in told["lines"]] == ["started", *["epoch"] * 4, "completed"]
    assert service.request("GET", f"/jobs/first/progress?since={told['next']}").json() == {**told, "lines": []}
    whole = service.request("GET", "/jobs/first/result")
    assert whole.content == b"\x89HDF" + bytes(range(250))
    part = service.request("GET", "/jobs/first/result", headers={"Range": "bytes=1-3"})
    assert (part.status_code, part.content) == (206, b"HDF")
    assert service.submit(id="first", epochs=4).status_code == 200
    assert service.submit(id="first", epochs=5).status_code == 409
    assert service.end() == 0
    assert service.journal("first") == ["begin", "end"]


def test_a_run_is_stopped_with_a_checkpoint_and_continues_from_it(service: RunningService):
    service.submit(id="a", epochs=100_000)
    until(lambda: (service.queue.find("a").epoch or 0) > 0, 60)
    assert service.request("POST", "/jobs/a/stop").json()["status"] in ("stopping", "stopped")
    service.reaches("a", "stopped")
    kept = json.loads((service.jobs / "a" / "checkpoint.json").read_text())["epoch"]
    assert service.request("POST", "/jobs/a/restart").json()["status"] == "queued"
    until(lambda: (service.queue.find("a").epoch or 0) > kept, 60)
    assert service.job("a")["attempt"] == 2
    assert service.journal("a") == ["begin", "begin"]
    service.request("POST", "/jobs/a/stop")
    service.reaches("a", "stopped")
    assert service.request("DELETE", "/jobs/a").status_code == 204
    assert not (service.jobs / "a").exists()
    assert service.request("GET", "/jobs/a").status_code == 404


def test_at_its_end_the_service_puts_a_run_back_and_goes_on_after_its_next_start(service: RunningService):
    service.submit(id="a", epochs=150)
    until(lambda: (service.queue.find("a").epoch or 0) > 0, 60)
    assert service.end() == 0
    assert runs(service) == []
    put_back = service.queue.find("a")
    assert (put_back.status, put_back.losses, put_back.worker) == ("queued", 0, None)
    service.start()
    assert service.reaches("a", *ENDED)["status"] == "completed"
    assert service.journal("a") == ["begin", "begin", "end"]


@pytest.mark.parametrize("whom", ["serve", "worker", "run"])
def test_whatever_is_killed_the_run_goes_on_once(service: RunningService, whom: str):
    service.submit(id="a", epochs=150)
    until(lambda: (service.queue.find("a").epoch or 0) > 0, 60)
    [run] = runs(service)
    worker = run.parent()
    assert worker is not None
    if whom == "serve":
        service.kill()
        until(lambda: not runs(service) and not worker.is_running(), 30, "workers and runs end with it")
        service.start()
    else:
        (worker if whom == "worker" else run).kill()
    assert service.reaches("a", *ENDED, seconds=90)["status"] == "completed"
    assert service.journal("a")[-1] == "end"
    assert service.journal("a").count("end") == 1


@pytest.mark.parametrize(
    ("status", "code", "attempts", "end"),
    [
        (65, "file.damaged", 1, "failed"),
        (66, "file.not-found", 1, "failed"),
        (70, "reconstruction.not-finite", 1, "failed"),
        (78, "settings.invalid-value", 1, "failed"),
    ],
)
def test_what_somebody_has_to_correct_is_not_tried_again(start: Start, status: int, code: str, attempts: int, end: str):
    service = start(workers=0)
    service.submit(id="a")
    fault = {"status": status, "code": code, "times": 1}
    (service.jobs / "a.faults.json").write_text(json.dumps(fault))
    service.end()
    again = start(workers=1)
    done = again.reaches("a", *ENDED)
    assert (done["status"], done["attempt"], done["exit_status"]) == (end, attempts, status)
    assert done["error"] == {"code": code, "message": "It went wrong."}


def test_what_lacks_resources_is_tried_again_some_times(service: RunningService):
    fault = {"status": 69, "code": "memory.insufficient", "times": 1}
    (service.jobs / "a.faults.json").write_text(json.dumps(fault))
    service.submit(id="a")
    waits = service.reaches("a", "queued", "completed")
    until(lambda: service.queue.find("a").attempt == 1 and service.queue.find("a").status == "queued", 60)
    waits = service.job("a")
    assert waits["error"]["code"] == "memory.insufficient"
    assert service.reaches("a", *ENDED)["status"] == "completed"
    assert service.job("a")["attempt"] == 2
    assert service.journal("a") == ["begin", "begin", "end"]


def test_a_folder_that_another_process_holds_is_waited_for(service: RunningService):
    import filelock

    folder = service.jobs / "a"
    folder.mkdir(mode=0o700)
    with filelock.FileLock(folder / "lock"):
        service.submit(id="a")
        until(lambda: service.queue.find("a").message is not None, 60)
        waits = service.job("a")
        assert (waits["status"], waits["attempt"]) == ("queued", 1)
        assert "Another process holds the folder" in waits["error"]["message"]
    assert service.reaches("a", *ENDED)["status"] == "completed"
    assert service.queue.find("a").losses == 0


def test_a_job_that_takes_too_long_has_failed(start: Start):
    service = start(limits={"hours": 1 / 3600})
    service.submit(id="a", epochs=100_000)
    done = service.reaches("a", *ENDED)
    assert (done["status"], done["error"]["code"]) == ("failed", "job.time-limit")
    assert (service.jobs / "a" / "checkpoint.json").exists()


def test_the_database_survives_and_is_whole(service: RunningService):
    service.submit(id="a", epochs=1)
    service.kill()
    with sqlite3.connect(service.folder / "queue.sqlite") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    service.start()
    assert service.reaches("a", *ENDED)["status"] == "completed"


def test_workers_of_other_hosts_share_queue_and_folder(start: Start, server: str, database: str):
    service = start(workers=0, database=database)
    options = WorkerOptions(database=database, folder=str(service.jobs), command=COMMAND, lease=5.0)
    for number in range(6):
        service.submit(id=f"j{number}", epochs=10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
        workers = [options.start(subprocess.DEVNULL) for _ in range(2)]
    try:
        for number in range(6):
            assert service.reaches(f"j{number}", *ENDED)["status"] == "completed"
            assert service.journal(f"j{number}") == ["begin", "end"]
    finally:
        for worker in workers:
            guarded_process.end(worker, 60)
    assert [worker.returncode for worker in workers] == [0, 0]


def test_a_guarded_process_ends_with_the_one_that_started_it(tmp_path: Path):
    program = "import subprocess, sys, time\nfrom ptynb.service.guarded_process import start\n" + (
        "child = start(('ptynb.service.guarded_process', 'timeit', '-n', '1', '-r', '1', 'import time; time.sleep(99)'))\n"
        "print(child.pid, flush=True); time.sleep(99)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment()) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, 30)


def command(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ptynb.cli.main", *words],
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_commands_serve_and_submit(tmp_path: Path, data: Path):
    folder = tmp_path / "made"
    token = command("serve", "--folder", str(folder), "--add-token", "ann").stdout.strip()
    assert token.startswith("ann~")
    assert folder.stat().st_mode & 0o077 == 0
    words = [sys.executable, "-m", "ptynb.cli.main", "serve", "--folder", str(folder), "--port", "0", "--workers", "0"]
    with subprocess.Popen(
        [*words, "--data", str(data)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), text=True
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[2].rstrip(";")
        run = tmp_path / "run.yaml"
        run.write_text("scan: scan.h5\nepochs: 3\n")
        right = command("submit", str(run), "--server", address, "--id", "a", PTYNB_TOKEN=token)
        assert (right.returncode, right.stdout.strip()) == (0, "a"), right.stderr
        wrong = command("submit", str(run), "--server", address, PTYNB_TOKEN="ann~wrong")
        assert "no valid token" in wrong.stderr
        assert "PTYNB_TOKEN is not set" in command("submit", str(run), PTYNB_TOKEN="").stderr
        assert "--add-token" in command("submit", str(run), "--server", address, PTYNB_TOKEN="x").stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "--folder FOLDER"),
        (("--folder", "x", "--host", "0.0.0.0"), "--tls-certificate"),
        (("--folder", "x", "--tls-key", "y"), "give both"),
        (("--folder", "x", "--lease", "0"), "--lease is 0.0"),
    ],
)
def test_a_service_that_may_not_start_says_why(tmp_path: Path, words: tuple[str, ...], says: str):
    given = [str(tmp_path / word) if word in ("x", "y") else word for word in words]
    answer = command("serve", *given)
    assert answer.returncode != 0
    assert says in answer.stderr


def test_without_the_extra_the_commands_say_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    import importlib.util

    from ptynb.service import require_packages

    require_packages()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with raises("package.not-installed", "fastapi", "pip install 'ptynb[serve]'"):
        require_packages()


def test_the_command_line_imports_nothing_of_the_service():
    program = "import sys, ptynb.cli.main; print([m for m in sys.modules if m.partition('.')[0] in %r])"
    names = ("fastapi", "uvicorn", "sqlalchemy", "psycopg", "starlette")
    found = subprocess.run(
        [sys.executable, "-c", program % (names,)], env=environment(), capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_tls(tmp_path: Path, data: Path):
    key, certificate, folder = tmp_path / "key.pem", tmp_path / "certificate.pem", tmp_path / "made"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    token = command("serve", "--folder", str(folder), "--add-token", "ann").stdout.strip()
    words = [sys.executable, "-m", "ptynb.cli.main", "serve", "--folder", str(folder), "--port", "0", "--workers", "0"]
    words += ["--host", "0.0.0.0", "--tls-certificate", str(certificate), "--tls-key", str(key), "--data", str(data)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment(), text=True) as process:
        assert process.stdout is not None
        port = process.stdout.readline().split()[2].rstrip(";").rpartition(":")[2]
        run = tmp_path / "run.yaml"
        run.write_text("scan: scan.h5\nepochs: 3\n")
        options = ("--server", f"https://127.0.0.1:{port}", "--id", "a")
        trusting = command("submit", str(run), *options, "--certificate", str(certificate), PTYNB_TOKEN=token)
        assert trusting.stdout.strip() == "a", trusting.stderr
        assert "cannot be reached" in command("submit", str(run), *options, PTYNB_TOKEN=token).stderr
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(60) == 0
