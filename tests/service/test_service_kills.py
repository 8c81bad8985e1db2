"""A service that is killed again and again loses no job and runs none twice; many jobs; TLS; other hosts."""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest

from ptynb.cli.main import main
from ptynb.service import guarded_process
from ptynb.service.job_worker import WorkerOptions
from tests.service.running_service import COMMAND, ENDED, RunningService, Start, environment
from tests.waiting import until

KILLS = 200
JOBS = 1000
CLIENTS = 20


def workers_of(service: RunningService) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(service.process.pid).children()
    return []


def runs_of(service: RunningService) -> list[psutil.Process]:
    found = []
    for worker in workers_of(service):
        with contextlib.suppress(psutil.Error):
            found += worker.children()
    return found


class Client:
    """Submits jobs one after the other, each until the service has answered: what was submitted before is no error."""

    def __init__(self, service: RunningService) -> None:
        self.submitted: list[str] = []
        self._service, self._ended = service, threading.Event()
        self._thread = threading.Thread(target=self._submit)
        self._thread.start()

    def _submit(self) -> None:
        chance = random.Random(1)
        while not self._ended.is_set():
            name, epochs = f"job{len(self.submitted)}", chance.randint(1, 25)
            while True:
                try:
                    answer = self._service.submit(id=name, epochs=epochs)
                except httpx.TransportError:  # the service was killed
                    time.sleep(0.05)
                    continue
                assert answer.status_code in (200, 201), answer.text
                break
            self.submitted.append(name)
            # So that the queue is neither empty nor long.
            while self._service.queue.counts()["queued"] > 5 and not self._ended.is_set():
                time.sleep(0.05)

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


@pytest.mark.timeout(3600)
def test_200_kills_lose_no_job_and_run_none_twice(start: Start):
    service = start(workers=3, lease=2.0, attempts=10**6)
    client = Client(service)
    until(lambda: service.queue.counts()["completed"] > 0, 120)
    began = time.monotonic()
    until(lambda: service.queue.counts()["completed"] > 15, 300)
    pace = (time.monotonic() - began) / 5  # of a job on one worker
    chance, began = random.Random(0), time.monotonic()
    killed = {"serve": 0, "worker": 0}
    try:
        while sum(killed.values()) < KILLS:
            time.sleep(chance.uniform(0.0, 2 * pace))  # so that some jobs are done in between
            whom = chance.choices(["serve", "worker"], [1, 4])[0]
            if whom == "serve":
                service.kill()
                service.start()
            else:
                found = workers_of(service)
                if not found:
                    continue
                with contextlib.suppress(psutil.NoSuchProcess):
                    chance.choice(found).kill()
            killed[whom] += 1
        killing = time.monotonic() - began
    finally:
        client.end()
    for name in client.submitted:
        service.reaches(name, *ENDED, seconds=300)
    jobs = [service.queue.find(name) for name in client.submitted]
    print(f"\n{len(jobs)} jobs, {killed} killed in {killing:.0f} s, {sum(job.attempt for job in jobs)} attempts")
    assert [job.id for job in jobs if job.status != "completed"] == []
    assert [job.id for job in jobs if service.journal(job.id).count("end") != 1] == []
    assert {job.id for job in service.queue.jobs(limit=10**6)} == {*client.submitted}
    assert service.end() == 0
    with contextlib.closing(sqlite3.connect(service.folder / "queue.sqlite")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.timeout(1800)
def test_a_thousand_jobs_and_twenty_clients(start: Start, server: str, database: str):
    service = start(workers=2, database=database if server else None)
    seconds: dict[str, list[float]] = {"submit": [], "list": [], "stop": []}

    def timed(client: httpx.Client, what: str, method: str, path: str, **given: object) -> httpx.Response:
        began = time.perf_counter()
        answer = client.request(method, path, **given)
        seconds[what].append(time.perf_counter() - began)
        assert answer.status_code in (200, 201, 409), answer.text
        return answer

    def submit(number: int) -> None:
        run = {"scan": "scan.h5", "epochs": 1, "cluster": {"kind": "none"}}
        with service.client("ann" if number % 2 else "ben") as client:
            for job in range(number, JOBS, CLIENTS):
                timed(client, "submit", "POST", "/jobs", json={"run": run, "id": f"j{job}"})
                if job % 10 < 2:
                    timed(client, "list", "GET", "/jobs?limit=50")

    def stop(number: int) -> None:
        with service.client("root") as client:
            for job in range(number, JOBS, CLIENTS):
                timed(client, "stop", "POST", f"/jobs/j{job}/stop")

    began = time.monotonic()
    with ThreadPoolExecutor(CLIENTS) as pool:
        [*pool.map(submit, range(CLIENTS))]
        submitting = time.monotonic() - began
        assert sum(service.queue.counts().values()) == JOBS
        until(lambda: service.queue.counts()["completed"] >= 20, 300)
        [*pool.map(stop, range(CLIENTS))]
    until(lambda: not any(service.queue.counts()[status] for status in ("queued", "running", "stopping")), 120)
    listed, before = [], ""
    while before is not None:
        page = service.request("GET", f"/jobs?limit=300{before}", "root").json()
        listed += page["jobs"]
        before = None if page["next"] is None else f"&before={page['next']}"
    assert {job["id"] for job in listed} == {f"j{number}" for number in range(JOBS)}
    assert len(listed) == JOBS
    for job in listed:
        assert service.journal(job["id"]).count("end") == (job["status"] == "completed")
    words = [f"{what} {statistics.median(one) * 1e3:.0f} ms (to {max(one):.2f} s)" for what, one in seconds.items()]
    done = service.queue.counts()["completed"]
    print(f"\n{JOBS} jobs by {CLIENTS} clients in {submitting:.1f} s, {done} run meanwhile; {', '.join(words)}")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("whom", ["serve", "worker", "run"])
def test_whatever_is_killed_the_run_goes_on_once(start: Start, whom: str):
    service = start()
    service.submit(id="a", epochs=100_000)
    until(lambda: (service.queue.find("a").epoch or 0) > 0, 60)
    [run] = runs_of(service)
    [worker] = workers_of(service)
    if whom == "serve":
        service.kill()
        until(lambda: not run.is_running() and not worker.is_running(), 30, "worker and run end with it")
        service.start()
    else:
        (worker if whom == "worker" else run).kill()
    until(lambda: service.journal("a") == ["begin", "begin"], 90)
    (service.jobs / "a.enough").touch()
    assert service.reaches("a", *ENDED, seconds=90)["status"] == "completed"
    assert service.journal("a")[-1] == "end"
    assert service.journal("a").count("end") == 1


@pytest.mark.timeout(300)
def test_workers_of_other_hosts_share_queue_and_folder(start: Start, server: str, database: str):
    service = start(workers=0, database=database if server else None)
    options = WorkerOptions(database=service.database, folder=str(service.jobs), command=COMMAND, lease=5.0)
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


@pytest.mark.timeout(300)
def test_tls(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    openssl = shutil.which("openssl")
    assert openssl is not None
    key, certificate, folder = tmp_path / "key.pem", tmp_path / "certificate.pem", tmp_path / "made"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext"]
    words += ["subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([openssl, *words], check=True, capture_output=True)
    assert main(["serve", "--folder", str(folder), "--add-token", "ann"]) == 0
    monkeypatch.setenv("PTYNB_TOKEN", capsys.readouterr().out.strip())
    words = [sys.executable, "-m", "ptynb.cli.main", "serve", "--folder", str(folder), "--port", "0", "--workers", "0"]
    words += ["--host", "0.0.0.0", "--tls-certificate", str(certificate), "--tls-key", str(key), "--data", str(data)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment(), text=True) as process:
        assert process.stdout is not None
        port = process.stdout.readline().split()[2].rstrip(";").rpartition(":")[2]
        run = tmp_path / "run.yaml"
        run.write_text("scan: scan.h5\nepochs: 3\n")
        submit = ["submit", str(run), "--server", f"https://127.0.0.1:{port}", "--id", "a"]
        assert main(submit) == 69
        assert "cannot be reached" in capsys.readouterr().err
        assert main([*submit, "--certificate", str(certificate)]) == 0
        assert capsys.readouterr().out == "a\n"
        process.terminate()
        assert process.wait(60) == 0
