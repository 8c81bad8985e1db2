"""Launchers: start, supervision and end of the processes of a cluster's engines."""

from __future__ import annotations

import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, final

import psutil

from ptynb.cluster.devices import ClusterPlan
from ptynb.cluster.launchers.scheduler_commands import clean
from ptynb.cluster.lifetime.watchdog import MARK
from ptynb.cluster.runtime_dir import engine_log
from ptynb.private_folder import private_folder
from ptynb.systems import NEW_GROUP


class Launcher(ABC):
    """Engine processes of one cluster."""

    kind: str
    """Kind of the section of its options: "local", "slurm", "ssh", "pbs", ..."""
    here: bool
    """Whether the engines run on this machine, so that their processes can be inspected."""

    @classmethod
    @abstractmethod
    def again(cls, plan: ClusterPlan, described: Mapping[str, Any], name: str, folder: Path) -> Self:
        """Return the launcher of a running cluster. described: content of its file, with the values of `describe`."""

    @abstractmethod
    def start(self, ranks: Sequence[int]) -> None:
        """Start or request the engines of these ranks; returns at once. Raises ClusterError."""

    @abstractmethod
    def join(self, processes: Mapping[int, int], described: Mapping[str, Any]) -> None:
        """Take over engines that another process of this user started.

        processes: their ids by rank, on the engines' own machines. described: as for `again`.
        """

    def describe(self) -> dict[str, Any]:
        """Return the values that `again` and `join` need, for JSON."""
        return {}

    @abstractmethod
    def dead(self) -> list[int]:
        """Return the ranks whose processes are known to have ended."""

    @abstractmethod
    def kill(self, rank: int) -> None:
        """End the engine of this rank, which does not respond."""

    def held(self, rank: int) -> bool:
        """Whether its process is known to be suspended by a signal."""
        return False

    @abstractmethod
    def stop(self) -> None:
        """End all started processes and wait for their end."""

    @abstractmethod
    def record(self) -> dict[str, Any]:
        """Return how another process can end it: {"processes": [[pid, start]], "end": [[argument]]}, for JSON.

        processes: on this machine, identified by id and start time together; end: commands to run.
        """

    def waiting(self) -> bool:
        """Whether engines wait for something without a time limit, such as a queue."""
        return False

    def news(self) -> str:
        """Return what it waits for, in one line for the notebook; empty if there is nothing to report."""
        return ""

    def failed(self) -> str:
        """Return why a requested engine will never start; empty if it may."""
        return ""


class ProcessLauncher(Launcher):
    """Engines of the plan with a process on this machine for each: the engine, or the ssh that started it."""

    def __init__(self, plan: ClusterPlan, name: str, folder: Path) -> None:
        self._plan, self._name, self._folder = plan, name, folder
        self._processes: dict[int, psutil.Process] = {}
        self._own: list[subprocess.Popen[bytes]] = []

    def _begin(
        self, rank: int, command: Sequence[str], environment: Mapping[str, str] | None = None, stdin: int | None = None
    ) -> subprocess.Popen[bytes]:
        process = begin(command, self._name, engine_log(self._folder, rank), environment, stdin)
        self._own.append(process)
        self._processes[rank] = psutil.Process(process.pid)
        return process

    def join(self, processes: Mapping[int, int], described: Mapping[str, Any]) -> None:
        """Take over their processes."""
        self._processes |= {rank: psutil.Process(pid) for rank, pid in processes.items()}

    def dead(self) -> list[int]:
        """Return the ranks whose processes have ended."""
        for process in self._own:
            process.poll()  # reaps it if it has ended
        return [rank for rank, process in self._processes.items() if not is_alive(process)]

    def kill(self, rank: int) -> None:
        """End an engine that does not respond."""
        if is_alive(self._processes[rank]):
            self._processes[rank].kill()
            psutil.wait_procs([self._processes[rank]], timeout=5)
        self.dead()

    def stop(self) -> None:
        """Reap the processes, which were ended by the cluster's records."""
        for process in self._own:
            process.kill()
            process.wait()
        self._own.clear()

    def record(self) -> dict[str, Any]:
        """Return the processes."""
        alive = [process for process in self._processes.values() if is_alive(process)]
        return {"processes": [[process.pid, process.create_time()] for process in alive], "end": []}


@final
class LocalLauncher(ProcessLauncher):
    """One process on this machine per engine of the plan."""

    kind, here = "local", True

    @classmethod
    def again(cls, plan: ClusterPlan, described: Mapping[str, Any], name: str, folder: Path) -> Self:
        """Return the launcher of a running cluster."""
        return cls(plan, name, folder)

    def start(self, ranks: Sequence[int]) -> None:
        """Start all at the same time."""
        for rank in ranks:
            command = [sys.executable, "-m", "ptynb.cluster.engine_main", str(self._folder)]
            self._begin(rank, command, {**self._plan.engines[rank].environment, "PTYNB_GPU": "chosen"})

    def held(self, rank: int) -> bool:
        """Whether the process of this rank is suspended by a signal (SIGSTOP, a debugger)."""
        return is_held(self._processes[rank])


def begin(
    command: Sequence[str], name: str, log: Path, environment: Mapping[str, str] | None = None, stdin: int | None = None
) -> subprocess.Popen[bytes]:
    """Start a process of the cluster `name`: in a new session, marked, with its output in a file.

    It does not get the variables of a step of Slurm around this process, which srun would read as options, and by which
    the step's first rank is told.
    """
    private_folder(log.parent)
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**clean(os.environ), **(environment or {}), MARK: name},
            start_new_session=True,
            creationflags=NEW_GROUP,
        )


def is_alive(process: psutil.Process) -> bool:
    """Whether this process still runs; a zombie does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def is_held(process: psutil.Process) -> bool:
    """Whether it is suspended by a signal (SIGSTOP, a debugger), so that it cannot answer."""
    try:
        return process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.NoSuchProcess:
        return False
