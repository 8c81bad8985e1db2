"""Launchers with programs that stand for engines: each writes its environment and stays."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from ptynb.cluster.launchers.slurm_launcher import SlurmLauncher
from ptynb.settings.cluster_options import ClusterSection

STAND_IN = """
import json, os, sys, time
from pathlib import Path
came = Path(sys.argv[1]) / "came"
came.mkdir(exist_ok=True)
part = came / f"{os.getpid()}.part"
part.write_text(json.dumps({**os.environ, "pid": os.getpid(), "cores": len(os.sched_getaffinity(0))}))
part.rename(part.with_suffix(".json"))
print("engine", os.environ.get("PTYNB_RANK", os.environ["SLURM_PROCID"]), "came", flush=True)
time.sleep(600)
"""
NAME = "ptynb-test"


def until(condition: Callable[[], object], seconds: float = 15) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.05)


class Run:
    """A launcher and what its stand-ins wrote."""

    def __init__(self, folder: Path, allocation: ClusterSection, job: str = "") -> None:
        self.folder = folder
        command = (sys.executable, "-S", "-c", STAND_IN, str(folder))
        self.launcher = SlurmLauncher(allocation, NAME, folder, job=job, command=command)
        self.count = allocation.engines

    def came(self) -> list[dict[str, str]]:
        return [json.loads(file.read_text()) for file in sorted(self.folder.glob("came/*.json"))]

    def start(self) -> dict[int, dict[str, str]]:
        """By rank, when all are there."""
        self.launcher.start(range(self.count))
        until(lambda: len(self.came()) == self.count or self.launcher.failed())
        assert not self.launcher.failed()
        return {int(one["SLURM_PROCID"]): one for one in self.came()}
