"""A service in a process of its own, whose runs are `child_run`, and requests to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from ptynb.service.job_queue import JobQueue, sqlite_url
from ptynb.service.service_process import serve, worker_options
from ptynb.settings.site_file import Site
from tests.system_parts import ROOT
from tests.waiting import until

COMMAND = ("ptynb.service.guarded_process", "tests.service.child_run")
ENDED = ("completed", "failed", "stopped")
Start = Callable[..., "RunningService"]


def environment() -> dict[str, str]:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


class RunningService:
    """`ptynb serve` with a folder, and clients with tokens of two users and an administrator."""

    def __init__(self, folder: Path, data: Path, command: tuple[str, ...] = COMMAND, **options: Any) -> None:
        self.folder, self.jobs, self.data = folder, folder / "jobs", data
        options = {"workers": 1, "lease": 5.0, "database": None, **options}
        self._given = {**options, "folder": str(folder), "data": [str(data)], "command": command}
        folder.mkdir(mode=0o700, exist_ok=True)
        self.database = options["database"] or sqlite_url(folder)
        self.queue = JobQueue(self.database)
        self.tokens = {name: self.queue.add_user(name, admin=name == "root") for name in ("ann", "ben", "root")}
        self.start()

    def start(self) -> None:
        words = [sys.executable, "-m", "tests.service.running_service", json.dumps(self._given)]
        with (self.folder / "serve.log").open("a") as log:
            self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, env=environment())
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode().strip()
        assert line.startswith("http"), (self.folder / "serve.log").read_text()
        self.url = line

    def client(self, user: str = "ann") -> httpx.Client:
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.tokens[user]}"}, timeout=60)

    def request(self, method: str, path: str, user: str = "ann", **given: Any) -> httpx.Response:
        with self.client(user) as client:
            return client.request(method, path, **given)

    def submit(self, user: str = "ann", epochs: int = 3, **given: Any) -> httpx.Response:
        run = {"scan": "scan.h5", "epochs": epochs, "cluster": {"kind": "none"}}
        return self.request("POST", "/jobs", user, json={"run": run, **given})

    def job(self, id: str, user: str = "ann") -> dict[str, Any]:
        answer = self.request("GET", f"/jobs/{id}", user)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def reaches(self, id: str, *statuses: str, seconds: float = 60.0) -> dict[str, Any]:
        """Waits until the job has one of these statuses, and returns it."""
        until(lambda: self.queue.find(id).status in statuses, seconds, f"{id} is {statuses}")
        return self.job(id, "root")

    def journal(self, id: str) -> list[str]:
        path = self.jobs / id / "journal.txt"
        return path.read_text().split() if path.exists() else []

    def kill(self) -> None:
        self.process.kill()
        self._gone()

    def _gone(self) -> None:
        self.process.wait(90)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def end(self) -> int:
        """Ends it as an operator does, and returns its exit status."""
        if self.process.returncode is None:
            self.process.terminate()
            self._gone()
        self.queue.close()
        return self.process.returncode


def main(given: dict[str, Any]) -> None:
    service = {name: given[name] for name in ("folder", "data", "workers", "database")}
    site = Site(serve={**service, "watch": given.get("watch", [])}, limits=given.get("limits", {}))
    site = site.model_copy(update={"serve": site.serve.model_copy(update={"port": 0})})
    attempts = {"attempts": given["attempts"]} if "attempts" in given else {}
    options = worker_options(site, Path(given["folder"]), command=given["command"], lease=given["lease"], **attempts)
    serve(site, options, lambda url: print(url, flush=True))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
