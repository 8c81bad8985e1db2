"""Engines as jobs of PBS, LSF, SGE or HTCondor, one for each: a lost one is replaced by a new job."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, final

from ptynb.cluster.devices import ClusterPlan
from ptynb.cluster.launchers import scheduler_commands
from ptynb.cluster.launchers.launcher import Launcher
from ptynb.cluster.launchers.scheduler_commands import ENDED, FAILED, HELD, SCHEDULERS, WAITS, end_mark
from ptynb.cluster.lifetime import watchdog
from ptynb.cluster.runtime_dir import engine_log
from ptynb.exceptions import ClusterError
from ptynb.polling import wait_until
from ptynb.private_folder import private_folder
from ptynb.settings.cluster_options import SECTIONS, ClusterSection

STOP_SECONDS = 60.0
"""Time limit of the end of the jobs [s]."""
LOOK_SECONDS = 0.2
"""Period of reading the engines' logs [s]: the files may be on another machine."""
LAST_BYTES = 4096
"""Of a log, in which the line about the end of its engine is looked for; ipyparallel's nanny may write after it."""
NEW_SECONDS = 5.0
"""Time after which a job is listed that was submitted [s]."""
SUBMITTED = "ptynb: the job of this engine is submitted"


@final
class JobLauncher(Launcher):
    """One job per engine.

    options: of the cluster. folder: of the cluster, on a file system that the nodes share. command: of an engine, for
    tests.
    """

    here = False

    def __init__(
        self, options: ClusterSection, name: str, folder: Path, *, command: Sequence[str] | None = None
    ) -> None:
        self.kind = options.kind
        self._options, self._name, self._folder = options, name, folder
        self._command = tuple(command or (sys.executable, "-m", "ptynb.cluster.engine_main", str(folder)))
        self._jobs: dict[int, str] = {}
        self._states: dict[str, str] = {}
        self._silence = ""
        self._asked = self._began = self._looked = 0.0
        self._dead: set[int] = set()

    def start(self, ranks: Sequence[int]) -> None:
        """Submit their jobs; earlier ones of these ranks are cancelled. Raises ClusterError."""
        self._cancel(ranks)
        private_folder(self._folder / "log")
        for rank in ranks:
            text = scheduler_commands.engine_script(self._options, self._name, self._folder, rank, self._command)
            with engine_log(self._folder, rank).open("a", encoding="utf-8") as log:
                log.write(f"{SUBMITTED}\n")  # behind the end of an earlier engine
            self._jobs[rank] = scheduler_commands.submit(self.kind, text)
        self._dead -= {*ranks}
        self._began, self._asked = time.monotonic(), 0.0

    def _cancel(self, ranks: Sequence[int]) -> None:
        scheduler_commands.cancel(self.kind, [self._jobs.pop(rank) for rank in ranks if rank in self._jobs])

    def _look(self) -> dict[str, str]:
        """Return the last known states by job, queried every second at first and then less often."""
        now = time.monotonic()
        due = not self._asked or now - self._asked >= scheduler_commands.interval(now - self._began)
        if self._jobs and due:
            self._asked = now
            try:
                found, self._silence = scheduler_commands.states(self.kind, [*self._jobs.values()]), ""
                new = now - self._began < NEW_SECONDS
                self._states = {job: WAITS if new and state == ENDED else state for job, state in found.items()}
            except ClusterError as error:
                self._silence = str(error)
        return {job: self._states.get(job, WAITS) for job in self._jobs.values()}

    def waiting(self) -> bool:
        """Whether a job is in the queue, or held there."""
        return any(state in (WAITS, HELD) for state in self._look().values())

    def news(self) -> str:
        """Return how many jobs are in which state."""
        states = self._look()
        groups = {state: [job for job, own in states.items() if own == state] for state in states.values()}
        parts = [f"{len(jobs)} {state} ({', '.join(jobs)})" for state, jobs in groups.items()]
        return self._silence or f"jobs of {SCHEDULERS[self.kind].title}: {'; '.join(parts)}"

    def failed(self) -> str:
        """Return why a job will not start its engine."""
        states = self._look()
        for rank, job in self._jobs.items():
            if states[job] == FAILED:
                return f"Job {job} of the engine of rank {rank} is in an error state, and will not start."
            if states[job] == ENDED and self._last_mark(rank) == SUBMITTED:
                wrote = self._folder / "log" / f"job-rank{rank}.log"
                return f"Job {job} has ended, and has not started the engine of rank {rank}; it wrote to {wrote}."
        return ""

    def dead(self) -> list[int]:
        """Return the ranks whose jobs have ended, as their logs or the scheduler say."""
        now = time.monotonic()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            self._dead |= {rank for rank in self._jobs if self._last_mark(rank).startswith(end_mark(rank))}
        over = {rank for rank, job in self._jobs.items() if self._states.get(job) == ENDED}
        return sorted(self._dead | over)

    def _last_mark(self, rank: int) -> str:
        """Return the last line that a job's script or its launcher has added to the log of an engine."""
        try:
            with engine_log(self._folder, rank).open("rb") as log:
                log.seek(max(0, log.seek(0, 2) - LAST_BYTES))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        return next((line for line in reversed(lines) if line.startswith("ptynb: ")), "")

    def kill(self, rank: int) -> None:
        """Cancel the job of an engine that does not respond. Raises ClusterError."""
        self._cancel([rank])
        self._dead.add(rank)

    def stop(self) -> None:
        """Cancel all jobs and wait for their end."""
        jobs = [*self._jobs.values()]
        self._cancel([*self._jobs])
        if jobs:
            wait_until(lambda: {*scheduler_commands.states(self.kind, jobs).values()} == {ENDED}, STOP_SECONDS, 0.2)

    def describe(self) -> dict[str, Any]:
        """Return the options, for `again`."""
        return {"options": self._options.model_dump(mode="json")}

    @classmethod
    def again(cls, plan: ClusterPlan, described: Mapping[str, Any], name: str, folder: Path) -> Self:
        """Return the launcher of a running cluster, from `describe`."""
        return cls(SECTIONS[described["kind"]](**described["options"]), name, folder)

    def join(self, processes: Mapping[int, int], described: Mapping[str, Any]) -> None:
        """Take over the jobs, which the cluster's records name."""
        self._began = time.monotonic()
        for command in watchdog.recorded(self._folder, "processes.json").get("end", []):
            pairs = [word.split("=") for word in command if "=" in word]
            self._jobs |= {int(rank): job for rank, job in pairs}

    def record(self) -> dict[str, Any]:
        """Return the command that cancels the jobs."""
        jobs = [f"{rank}={job}" for rank, job in self._jobs.items()]
        cancel = [sys.executable, "-P", "-m", scheduler_commands.__name__, self.kind, *jobs]
        return {"processes": [], "end": [cancel] if jobs else []}
