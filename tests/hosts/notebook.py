"""Runs on the head, does what the test says, line by line: what a user would in a notebook."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from typing import Any

import numpy as np

import ptynb as pt
from ptynb.cluster import controller
from ptynb.cluster.addresses import address_towards, interface_of

SETTINGS = pt.Settings(batch=20, schedule={"kind": "constant"})  # for runs of any length


class Notebook:
    """Each method is a command; what it returns goes back as JSON."""

    def __init__(self, ssh: list[str]) -> None:
        self._ssh = ssh
        self._cluster: Any = None
        self._recon: Any = None

    def start_in_clear(self, hosts: Any) -> dict[str, Any]:
        """A cluster as ours would be if nothing asked for encryption."""
        ours = controller._encrypt
        controller._encrypt = lambda folder: None  # type: ignore[assignment]
        try:
            return self.start(hosts)
        finally:
            controller._encrypt = ours

    def start(self, hosts: Any, how: dict[str, Any] | None = None) -> dict[str, Any]:
        options = {
            "ssh": self._ssh,
            "device": "cpu",
            "threads": 1,
            "environment": {"PYTHONPATH": os.environ["PYTHONPATH"]},
            **(how or {}),
        }
        try:
            self._cluster = cluster = pt.Cluster.ssh(hosts, **options)
        except pt.ClusterError as error:
            return {"error": str(error)}
        return {
            "folder": str(cluster.folder),
            "name": cluster.name,
            "identities": [engine.identity for engine in cluster.plan.engines],
            "pids": [status["pid"] for status in cluster.status()],
            "hosts": [status["host"] for status in cluster.status()],
        }

    def workbench(self, hosts: str, python: str) -> dict[str, Any]:
        """A run of two epochs on these hosts, started in the tab Run; what it says, and where its engines were."""
        bench = pt.workbench(pt.simulate(patterns=24, window=32, seed=3))
        tab = bench.run_tab
        tab.clusters.launcher, tab.epochs = "ssh", 2
        texts = {"hosts": hosts, "ssh": shlex.join(self._ssh), "python": python, "device": "cpu", "threads": "1"}
        for name, text in texts.items():
            tab.clusters.fields.enter(name, text)
        tab.new_run()
        bench.actions.settle(60)
        said = {"problems": tab.clusters.fields.problems, "message": bench.message}
        if bench.recon is not None and bench.cluster is not None:
            bench.recon.wait()
            engines = [status["host"] for status in bench.cluster.status()]
            lines = [line for line in bench.lines if line.startswith("cluster = ")]
            said |= {"epoch": bench.recon.epoch, "hosts": engines, "lines": lines}
            tab.stop_engines()
            bench.actions.settle(60)
        bench.close()
        return said

    def compare(self, layout: str) -> dict[str, Any]:
        """The same reconstruction by the cluster and by this process: their losses, and how far the objects differ."""
        scan = pt.simulate(patterns=24, window=32, seed=3)
        settings = pt.Settings(batch=12, batch_sampling="cells", optimiser="sgd", object={"layout": layout})
        losses, objects = [], []
        for cluster in (self._cluster, None):
            recon = pt.Reconstruction(scan, settings, cluster)
            losses.append([epoch.loss for epoch in recon.run(3)])
            objects.append(recon.result.object)
            recon.close()
        difference = float(np.abs(objects[0] - objects[1]).max() / np.abs(objects[1]).max())
        moved = float(np.abs(objects[1] - objects[1].flat[0]).max())
        return {"losses": losses, "difference": difference, "moved": moved}

    def train(self, folder: str) -> int:
        """Begins a run that goes on when a host is lost; the epoch after which its state was kept first."""
        scan = pt.save_scan(pt.simulate(patterns=100, window=64, seed=5), f"{folder}/scan.h5")
        keep = pt.Checkpointing(folder=f"{folder}/states", epochs=5, seconds=None)
        self._recon = recon = pt.Reconstruction(
            scan, SETTINGS, self._cluster, checkpointing=keep, on_failure="continue"
        )
        recon.start(100_000)
        while recon.latest_checkpoint is None:
            time.sleep(0.02)
        return recon.epoch

    def outlive(self) -> dict[str, Any]:
        """Seconds until the loss of a host is noticed, and until the run is beyond the epoch that it was in."""
        reached, started = self._recon.epoch, time.monotonic()
        while not self._recon.recovering:
            time.sleep(0.01)
        noticed = time.monotonic() - started
        while self._recon.recovering or self._recon.epoch <= reached + 1:
            time.sleep(0.01)
        beyond = time.monotonic() - started
        (change,) = self._recon.changes
        self._recon.stop()
        losses = [epoch.loss for epoch in self._recon.epochs]
        with pt.Reconstruction(self._recon.scan, SETTINGS, checkpointing=None) as alone:
            expected = [epoch.loss for epoch in alone.run(min(len(losses), 20))]
        return {
            "noticed": noticed,
            "beyond": beyond,
            "engines": self._recon.engines,
            "change": [change.name, change.new],
            "losses": losses[: len(expected)],
            "expected": expected,
        }

    def send(self, rank: int, text: str) -> int:
        """Has an engine tell how long a text is."""
        return int(self._cluster.call(rank, len, text))

    def lost_after(self, ranks: list[int], seconds: float) -> float | None:
        """How long it took until exactly these ranks were known to be lost; None: not so soon."""
        started = time.monotonic()
        while time.monotonic() < started + seconds:
            if sorted({*range(len(self._cluster))} - {*self._cluster.alive()}) == ranks:
                return time.monotonic() - started
            time.sleep(0.05)
        return None

    def stop(self) -> None:
        self._cluster.stop()

    def address(self, host: str) -> list[str]:
        try:
            address = address_towards(host)
        except pt.ClusterError as error:
            return [str(error)]
        return [address, interface_of(address)]


def main() -> None:
    notebook = Notebook(json.loads(sys.argv[1]))
    print("READY", flush=True)
    for line in sys.stdin:
        method, *arguments = json.loads(line)
        print("ANSWER", json.dumps(getattr(notebook, method)(*arguments)), flush=True)


if __name__ == "__main__":
    main()
