"""Stands for a notebook's kernel in `tests.soak`: does what it is told, line by line, and answers in JSON."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import ptynb as pt
from ptynb.physics.model import Model

SETTINGS = pt.Settings(batch=40, probe=pt.Probe(modes=2))
KEEP_EPOCHS, TIMEOUT = 10, 5.0


class Raising(pt.CustomConstraint):
    """Raises on rank 1 where a file says so, once."""

    after = "epoch"

    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def impose(self, model: Model) -> None:
        if os.environ.get("PTYNB_RANK") == "1" and self.flag.exists():
            self.flag.unlink()
            raise RuntimeError("an error of the soak")


DISK = "disk"
"""Where the states are: a small disk of its own, where the soak may mount one (root, Linux)."""


class Notebook:
    """Each method is a command."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.states = folder, folder / DISK / "states"
        self.recon: Any = None
        self.cluster: Any = None

    def _options(self) -> dict[str, Any]:
        return {
            "checkpointing": pt.Checkpointing(folder=self.states, epochs=KEEP_EPOCHS, seconds=None),
            "on_failure": "continue",
            "timeout": TIMEOUT,
            "extensions": [Raising(self.folder / "raise")],
        }

    def begin(self, epochs: int) -> str:
        self.cluster = pt.Cluster(2, device="cpu", detached_timeout=120.0)
        self.recon = pt.Reconstruction(pt.load(self.folder / "scan.h5"), SETTINGS, self.cluster, **self._options())
        self.recon.start(epochs)
        return str(self.cluster.name)

    def attach(self) -> str:
        self.recon = pt.attach()
        self.cluster = self.recon.cluster
        return str(self.cluster.name)

    def go_on(self, epochs: int) -> str:
        """After a failure, or on a cluster of its own: from the newest state that is whole."""
        if self.cluster is None or not self.cluster.running:
            self.cluster = pt.Cluster(2, device="cpu", detached_timeout=120.0)
        path: Path | None = self.states
        while path is not None:
            try:
                self.recon = pt.resume(path, cluster=self.cluster, **self._options())
                break
            except pt.FileError as error:
                named = re.search(r" Use (.*), the one before it", str(error))
                path = None if named is None else Path(named[1])
        else:  # nothing was kept yet
            scan = pt.load(self.folder / "scan.h5")
            self.recon = pt.Reconstruction(scan, SETTINGS, self.cluster, **self._options())
        if epochs > self.recon.epoch:
            self.recon.start(epochs - self.recon.epoch)
        return str(self.cluster.name)

    def look(self) -> dict[str, Any]:
        recon, state = self.recon, "failed"
        with contextlib.suppress(pt.ReconstructionError):
            state = recon.state
        return {
            "state": state,
            "losses": [epoch.loss for epoch in recon.epochs],
            "numbers": [epoch.number for epoch in recon.epochs],
            "changes": [[change.epoch, change.name] for change in recon.changes],
            "kept": None if recon.latest_checkpoint is None else recon.latest_checkpoint.name,
            "notices": list(recon.notices),
            "failure": None if recon.failure is None else str(recon.failure).splitlines()[0],
        }

    def pids(self) -> list[int]:
        return [status["pid"] for status in self.cluster.status()]

    def order(self, name: str) -> None:
        getattr(self.recon, name)()

    def begin_again(self, epochs: int) -> None:
        self.recon.start(epochs)

    def rate(self, rate: float) -> None:
        self.recon.settings = self.recon.settings.replace(object={"learning_rate": rate})

    def wait(self) -> None:
        self.recon.wait()

    def end(self) -> str:
        """A fingerprint of the object; the cluster is stopped."""
        result = self.recon.result
        self.cluster.stop()
        return hashlib.sha256(result.object.tobytes()).hexdigest()

    def stop_cluster(self) -> None:
        self.cluster.stop()


def main(folder: str) -> None:
    notebook = Notebook(Path(folder))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print("READY", flush=True)
    for line in sys.stdin:
        method, *arguments = json.loads(line)
        answer: Any
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                answer = [None, getattr(notebook, method)(*arguments)]
            except Exception as error:  # noqa: BLE001 - goes to who asked
                answer = [f"{type(error).__name__}: {error}", None]
            finally:
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a kernel does between two cells
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            answer = ["interrupted", None]
        print("ANSWER", json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
