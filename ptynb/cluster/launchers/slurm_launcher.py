"""Engines as tasks of Slurm: a submitted job, or a step of the job that this process runs in."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, final

import psutil

from ptynb.cluster.launchers import scheduler_commands, slurm_commands
from ptynb.cluster.launchers.launcher import Launcher, begin, is_alive
from ptynb.cluster.launchers.slurm_commands import Allocation, JobState
from ptynb.cluster.lifetime import watchdog
from ptynb.cluster.lifetime.watchdog import MARK
from ptynb.exceptions import ClusterError
from ptynb.polling import wait_until
from ptynb.private_folder import private_folder

STOP_SECONDS = 60.0
"""Time limit of the end of a job [s]: Slurm's default time between TERM and KILL is 30 s."""
LOOK_SECONDS = 0.2
"""Period of reading srun's output [s]: the file may be on another machine."""
LOST = re.compile(r"srun: error: \S+: tasks? ([\d,-]+): ")
CANCELLED = re.compile(r"\*\*\* (?:JOB|STEP) \d+(?:\.\d+)? ON \S+ CANCELLED")
AGAIN = re.compile(r"ptynb: rank (\d+) is started again")

KILL = """
for process in /proc/[0-9]*; do
    environment=$(tr '\\0' '\\n' < $process/environ 2>/dev/null) || continue
    case "
$environment
" in *"
$1
"*) ;; *) continue ;; esac
    case "
$environment
" in *"
$2
"*) kill -KILL ${process#/proc/} ;; esac
done
"""
"""Program that ends the processes of a node whose environment contains both of two lines."""


@final
class SlurmLauncher(Launcher):
    """The engines of an allocation: the rank is SLURM_PROCID, the device that of SLURM_LOCALID.

    job: the number of the job to run in; "": one is submitted.
    folder: of the cluster, on a file system that the nodes share. command: of an engine, for tests.
    """

    kind, here = "slurm", False

    def __init__(
        self, allocation: Allocation, name: str, folder: Path, *, job: str = "", command: Sequence[str] | None = None
    ) -> None:
        self._allocation, self._name, self._folder = allocation, name, folder
        self._command = tuple(command or (sys.executable, "-m", "ptynb.cluster.engine_main", str(folder)))
        self._job, self._own_job = job, not job
        self._nodes: tuple[str, ...] = ()
        self._step: subprocess.Popen[bytes] | None = None
        self._again: dict[int, subprocess.Popen[bytes]] = {}
        self._state: JobState | None = None
        self._silence = ""
        self._asked = self._began = self._looked = 0.0
        self._lost: set[int] = set()
        self._later: set[int] = set()
        self._adopted: list[psutil.Process] = []
        self._read = 0

    @property
    def job(self) -> str:
        """Number of the job; empty before it is submitted."""
        return self._job

    @property
    def log(self) -> Path:
        """Output of the job's script and of srun; engines write separate files beside it."""
        return self._folder / "log" / "job.log"

    def start(self, ranks: Sequence[int]) -> None:
        """All ranks: submit the job, or start a step in the present one; some: start each in a separate step.

        Raises ClusterError with the message of Slurm.
        """
        self._began = time.monotonic()
        if sorted(ranks) == list(range(self._allocation.engines)) and (self._own_job or self._step is None):
            self._start_all()
        else:
            for rank in ranks:
                self._start_again(rank)

    def _start_all(self) -> None:
        if self._job and self._own_job:
            self.stop()
        private_folder(self.log.parent)
        self._lost, self._later, self._read = set(), set(), self.log.stat().st_size if self.log.exists() else 0
        self._state, self._asked = None, 0.0
        one = self._allocation
        output = self._folder / "log" / "engine-rank"
        steps = [
            f"--nodes={one.nodes}",
            f"--ntasks={one.engines}",
            f"--ntasks-per-node={one.per_node}",
            "--distribution=block",
            f"--output={slurm_commands.pattern(output)}%t.log",
        ]
        if self._own_job:
            run = ["srun", *self._options(), *steps, *self._engine()]
            self._job = slurm_commands.submit(slurm_commands.script(one, self._name, self._folder, run))
        else:
            self._step = self._srun(self.log, [*steps, *self._engine()])

    def _options(self) -> list[str]:
        """Return options of every step: engines continue without the others, and steps share the job's resources."""
        return [
            f"--job-name={self._name}",
            f"--cpus-per-task={self._allocation.cores}",
            "--kill-on-bad-exit=0",
            "--wait=0",
            "--no-kill",
            "--overlap",
            "--mpi=none",
            "--input=none",
            "--open-mode=append",
            "--export=ALL",
        ]

    def _engine(self, *environment: str) -> list[str]:
        """Return the command of a task: the engine, with variables that Slurm would not pass unchanged."""
        hidden = [] if self._allocation.gpus_per_node else ["CUDA_VISIBLE_DEVICES=", "PTYNB_GPU=chosen"]
        return ["env", f"{MARK}={self._name}", *hidden, *environment, *self._command]

    def _srun(self, log: Path, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a step of the running job from this process."""
        # Without the variables of the step that this notebook may run in, which srun would read as options.
        cleared = [f"--unset={name}" for name in os.environ if name not in slurm_commands.clean(os.environ)]
        srun = [scheduler_commands.require("Slurm", "srun"), f"--jobid={self._job}", *self._options()]
        return begin(["env", *cleared, *srun, *arguments], self._name, log)

    def _start_again(self, rank: int) -> None:
        """Start one engine in a separate step, on the same node and GPU as before."""
        state = self._look(fresh=True)
        if state is None or state.name != "RUNNING":
            told = self._silence if state is None else state.words()
            raise ClusterError(
                f"The engine of rank {rank} cannot be restarted: {told}.", code="cluster.engine-not-replaced"
            )
        place, local = self._allocation.place(rank)
        node = self._nodes[place]
        if node not in state.nodes:
            raise ClusterError(
                f"The engine of rank {rank} cannot be restarted: job {self._job} has lost its node {node}; "
                "continue with the remaining engines, or restart the cluster.",
                code="cluster.engine-not-replaced",
            )
        self._end(self._again.pop(rank, None))
        output = self._folder / "log" / f"engine-rank{rank}.log"
        arguments = ["--nodes=1", "--ntasks=1", f"--nodelist={node}", f"--output={slurm_commands.pattern(output)}"]
        for log in (self.log, self._step_log(rank)):  # for a process that takes over the cluster
            with log.open("a") as file:
                file.write(f"ptynb: rank {rank} is started again\n")
        self._later.add(rank)
        self._again[rank] = self._srun(
            self._step_log(rank),
            [*arguments, *self._engine(f"PTYNB_RANK={rank}", f"PTYNB_LOCALID={local}")],
        )

    def waiting(self) -> bool:
        """Whether the job is in the queue, or its nodes are being prepared."""
        self._look()
        state = self._state  # the last known state: Slurm may not answer for a while
        return state is not None and (state.waiting or state.name == "CONFIGURING")

    def news(self) -> str:
        """Return the state of the job: in the queue and why, or on which nodes."""
        state = self._look()
        if state is None:
            return self._silence
        return state.words()

    def failed(self) -> str:
        """Return why the job will not start engines any more."""
        if not self._job:
            return ""
        if self._step is not None and self._step.poll() is not None:
            return f"The engines' step in job {self._job} has ended (exit code {self._step.returncode})."
        state = self._look()
        if state is None or not (state.over or state.never):
            return ""
        if state.never:
            return f"Job {self._job} will never start: {state.never} ({state.reason})."
        told = state.words()
        if state.name == "FAILED" and state.exit == "0:53":  # Slurm's own failure, before the script
            told += f", its first node cannot write to {self._folder / 'log'}, which must be on a shared file system"
        return f"{told[0].upper()}{told[1:]}."

    def _look(self, *, fresh: bool = False) -> JobState | None:
        """Return the job's state, queried every second at first and then less often, to limit the load of Slurm."""
        now = time.monotonic()
        interval = scheduler_commands.interval(now - self._began)
        if not self._job or (not fresh and self._asked and now - self._asked < interval):
            return self._state
        if self._state is not None and self._state.over:
            return self._state
        self._asked = now
        try:
            self._state, self._silence = slurm_commands.state(self._job), ""
        except ClusterError as error:
            self._silence = str(error)
            return None
        if self._state.nodes and not self._nodes and not self._state.waiting:
            self._nodes = self._state.nodes
        return self._state

    def dead(self) -> list[int]:
        """Return the ranks whose end srun has reported; fast, since only files are read."""
        now = time.monotonic()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            self._read_log()
        ended = self._step is not None and self._step.poll() is not None
        everyone = set(range(self._allocation.engines))
        first = everyone if ended or (self._state is not None and self._state.over) else self._lost
        return sorted((first - self._later) | {rank for rank in self._later if self._ended_again(rank)})

    def _read_log(self) -> None:
        """Record which tasks ended, from lines like 'srun: error: n2: tasks 2-3: Killed', and which were restarted."""
        try:
            with self.log.open("rb") as file:
                file.seek(self._read)
                text = file.read()
        except OSError:
            return
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.decode(errors="replace").splitlines():
            if found := LOST.match(line):
                for part in found[1].split(","):
                    ends = [int(end) for end in part.split("-")]
                    self._lost |= set(range(ends[0], ends[-1] + 1))
            elif CANCELLED.search(line):
                self._lost = set(range(self._allocation.engines))
            elif found := AGAIN.match(line):
                self._later.add(int(found[1]))

    def _ended_again(self, rank: int) -> bool:
        """Whether the latest replacement of this rank's engine has ended."""
        if rank in self._again:
            return self._again[rank].poll() is not None
        try:  # by an earlier process
            lines = self._step_log(rank).read_text(errors="replace").splitlines()
        except OSError:
            return False
        last = max((number for number, line in enumerate(lines) if AGAIN.match(line)), default=0)
        return any(LOST.match(line) or CANCELLED.search(line) for line in lines[last:])

    def _step_log(self, rank: int) -> Path:
        return self._folder / "log" / f"srun-rank{rank}.log"

    def stop(self) -> None:
        """Cancel the submitted job and wait for its end; in the present job, end the steps."""
        for step in self._again.values():
            self._end(step)
        self._again.clear()
        self._end(self._step)
        self._step = None
        for process in self._adopted:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        psutil.wait_procs(self._adopted, timeout=STOP_SECONDS)
        self._adopted.clear()
        if not self._own_job or not self._job:
            return
        slurm_commands.cancel(self._job)
        wait_until(lambda: slurm_commands.state(self._job).over, STOP_SECONDS, 0.2)
        self._job, self._state, self._nodes = "", None, ()

    def _end(self, step: subprocess.Popen[bytes] | None) -> None:
        """End a step through its srun, which ends its tasks on TERM."""
        if step is None:
            return
        if step.poll() is None:
            step.terminate()
            try:
                step.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                step.kill()
        step.wait()

    def describe(self) -> dict[str, Any]:
        """Return the job, for `again`."""
        return {"slurm": {"allocation": asdict(self._allocation), "job": self._job, "own_job": self._own_job}}

    @classmethod
    def again(cls, described: Mapping[str, Any], name: str, folder: Path) -> SlurmLauncher:
        """Return the launcher of a running cluster, from `describe`."""
        said = described["slurm"]
        allocation = Allocation(**{**said["allocation"], "extra": tuple(said["allocation"]["extra"])})
        launcher = cls(allocation, name, folder, job=said["job"])
        launcher._own_job = said["own_job"]
        return launcher

    def join(self, processes: Mapping[int, int], described: Mapping[str, Any]) -> None:
        """Take over the job: past ends of tasks are in its log; the processes of srun are in the cluster's records."""
        self._began = time.monotonic()
        for pid, start in watchdog.recorded(self._folder, "processes.json").get("engines", []):
            if watchdog.is_alive(pid, start):
                self._adopted.append(psutil.Process(pid))

    def kill(self, rank: int) -> None:
        """End the process of this rank by a short step on its node. Raises ClusterError if that fails."""
        place, _ = self._allocation.place(rank)
        if not self._nodes:
            self._look(fresh=True)
        node = [f"--nodelist={self._nodes[place]}"] if self._nodes else []
        number = f"PTYNB_RANK={rank}" if rank in self._later else f"SLURM_PROCID={rank}"
        slurm_commands.ask(
            *("srun", f"--jobid={self._job}", "--overlap", "--mpi=none", "--nodes=1", "--ntasks=1", *node),
            *("sh", "-c", KILL, "sh", f"{MARK}={self._name}", number),
        )

    def record(self) -> dict[str, Any]:
        """Return the processes of srun on this machine, and the command that cancels the job."""
        steps = [step for step in (self._step, *self._again.values()) if step is not None and step.poll() is None]
        processes = [*self._adopted, *(psutil.Process(step.pid) for step in steps)]
        end = [["scancel", "--quiet", self._job]] if self._own_job and self._job else []
        return {"processes": [[one.pid, one.create_time()] for one in processes if is_alive(one)], "end": end}
