"""Launchers: how the processes of a cluster's engines come to be, are looked after, and end."""

from __future__ import annotations

import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

import psutil

from ptynb.cluster.devices import ClusterPlan
from ptynb.cluster.lifetime.watchdog import MARK


class Launcher(ABC):
    """Engine processes of one cluster."""

    kind: str
    """The word for it: "local", "slurm", "ssh"."""
    here: bool
    """Whether the engines run on this machine, so that their processes can be looked at."""

    @abstractmethod
    def start(self, ranks: Sequence[int]) -> None:
        """Starts the engines of these ranks, or asks for them; returns at once. Raises ClusterError."""

    @abstractmethod
    def join(self, processes: Mapping[int, int], described: Mapping[str, Any]) -> None:
        """Takes over engines that another process of this user started.

        processes: their ids by rank, on the engines' own machines. described: what the cluster's file says, with what
        `describe` added to it.
        """

    def describe(self) -> dict[str, Any]:
        """What `join` needs to know of it, for JSON."""
        return {}

    @abstractmethod
    def dead(self) -> list[int]:
        """Ranks whose processes are known to have ended."""

    @abstractmethod
    def kill(self, rank: int) -> None:
        """Ends the engine of this rank, which does not listen to anything else."""

    def held(self, rank: int) -> bool:
        """Whether its process is known to be held by a signal."""
        return False

    @abstractmethod
    def stop(self) -> None:
        """Ends what it started, and waits for it; nothing may be left."""

    @abstractmethod
    def record(self) -> dict[str, Any]:
        """What another process needs in order to end it: {"processes": [[pid, start]], "end": [[argument]]}, for JSON.

        processes: on this machine, known by id and start time together; end: commands to run.
        """

    def waiting(self) -> bool:
        """Whether engines wait for something that takes as long as it takes, as a queue."""
        return False

    def news(self) -> str:
        """What it waits for, in one line for the notebook; empty where there is nothing to tell."""
        return ""

    def failed(self) -> str:
        """Why an engine that was asked for will never come, in a sentence; empty while there is hope."""
        return ""


@final
class LocalLauncher(Launcher):
    """A process for each engine of the plan, on this machine."""

    kind, here = "local", True

    def __init__(self, plan: ClusterPlan, name: str, folder: Path) -> None:
        self._plan, self._name, self._folder = plan, name, folder
        self._processes: dict[int, psutil.Process] = {}
        self._own: list[subprocess.Popen[bytes]] = []

    def start(self, ranks: Sequence[int]) -> None:
        """Starts them all at the same time."""
        for rank in ranks:
            command = [sys.executable, "-m", "ptynb.cluster.engine_main", str(self._folder)]
            environment = {**self._plan.engines[rank].environment, "PTYNB_GPU": "chosen"}
            process = begin(command, self._name, self._folder / "log" / f"engine-rank{rank}.log", environment)
            self._own.append(process)
            self._processes[rank] = psutil.Process(process.pid)

    def join(self, processes: Mapping[int, int], described: Mapping[str, Any]) -> None:
        """Takes over their processes."""
        self._processes |= {rank: psutil.Process(pid) for rank, pid in processes.items()}

    def dead(self) -> list[int]:
        """Ranks whose processes have ended."""
        for process in self._own:
            process.poll()  # one that has ended is not a zombie any more
        return [rank for rank, process in self._processes.items() if not is_alive(process)]

    def held(self, rank: int) -> bool:
        """Whether the process of this rank is held by a signal (SIGSTOP, a debugger)."""
        return is_held(self._processes[rank])

    def kill(self, rank: int) -> None:
        """Ends an engine that does not listen."""
        if is_alive(self._processes[rank]):
            self._processes[rank].kill()
            psutil.wait_procs([self._processes[rank]], timeout=5)
        self.dead()

    def stop(self) -> None:
        """What the cluster's records list was ended with them; here the zombies are buried."""
        for process in self._own:
            process.kill()
            process.wait()
        self._own.clear()

    def record(self) -> dict[str, Any]:
        """The processes of the engines."""
        alive = [process for process in self._processes.values() if is_alive(process)]
        return {"processes": [[process.pid, process.create_time()] for process in alive], "end": []}


def begin(
    command: Sequence[str], name: str, log: Path, environment: Mapping[str, str] | None = None, stdin: int | None = None
) -> subprocess.Popen[bytes]:
    """Starts a process of the cluster `name`: in a session of its own, marked, its output in a file."""
    log.parent.mkdir(mode=0o700, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {}), MARK: name},
            start_new_session=True,
        )


def is_alive(process: psutil.Process) -> bool:
    """Whether this very process still runs; one that ended and waits for its parent does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def is_held(process: psutil.Process) -> bool:
    """Whether it is held by a signal (SIGSTOP, a debugger), so that it can't answer."""
    try:
        return process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.NoSuchProcess:
        return False
