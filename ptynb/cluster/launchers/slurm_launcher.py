"""Engines as tasks of Slurm: a submitted job, or a step of the job that this process runs in."""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, final

import psutil

from ptynb.cluster.cpu_cores import numbers
from ptynb.cluster.devices import ClusterPlan
from ptynb.cluster.launchers import scheduler_commands, slurm_commands
from ptynb.cluster.launchers.launcher import Launcher, begin, is_alive
from ptynb.cluster.launchers.scheduler_commands import SCHEDULERS, literal_path
from ptynb.cluster.launchers.slurm_commands import JobState
from ptynb.cluster.lifetime import watchdog
from ptynb.cluster.lifetime.watchdog import ENGINES, MARK
from ptynb.cluster.runtime_dir import engine_log
from ptynb.exceptions import ClusterError
from ptynb.polling import wait_until
from ptynb.private_folder import private_folder
from ptynb.settings.cluster_options import ClusterSection, SlurmCluster

STOP_SECONDS = 60.0
"""Time limit of the end of a job [s]: Slurm's default time between TERM and KILL is 30 s."""
LOOK_SECONDS = 0.2
"""Period of reading srun's output [s]: the file may be on another machine."""
LOST = re.compile(r"srun: error: \S+: tasks? ([\d,-]+): ")
CANCELLED = re.compile(r"\*\*\* (?:JOB|STEP) \d+(?:\.\d+)? ON \S+ CANCELLED")


@final
class SlurmLauncher(Launcher):
    """The engines of an allocation: the rank is SLURM_PROCID, the device that of SLURM_LOCALID.

    options: of `Cluster.slurm`, with a number of nodes. job: the number of the job to run in; "": one is submitted.
    folder: of the cluster, on a file system that the nodes share. command: of an engine, for tests.
    """

    kind, here = "slurm", False

    def __init__(
        self, options: ClusterSection, name: str, folder: Path, *, job: str = "", command: Sequence[str] | None = None
    ) -> None:
        self._options, self._name, self._folder = options, name, folder
        self.log = folder / "log" / "job.log"
        """Output of the job's script and of srun; engines write separate files beside it."""
        self._command = tuple(command or (sys.executable, "-m", "ptynb.cluster.engine_main", str(folder)))
        self.job = job
        """Number of the job; empty before it is submitted."""
        self._own_job = not job
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

    def start(self, ranks: Sequence[int]) -> None:
        """All ranks: submit the job, or start a step in the present one; some: start each in a separate step.

        Raises ClusterError with the message of Slurm.
        """
        self._began = time.monotonic()
        if len(ranks) == self._options.engines and (self._own_job or self._step is None):
            self._start_all()
        else:
            for rank in ranks:
                self._start_again(rank)

    def _start_all(self) -> None:
        if self.job and self._own_job:
            self.stop()
        private_folder(self.log.parent)
        for log in (self.log, *self.log.parent.glob("srun-rank*.log")):
            log.unlink(missing_ok=True)  # of an earlier job
        self._lost, self._later, self._read = set(), set(), 0
        self._state, self._asked = None, 0.0
        one, output = self._options, engine_log(literal_path(self._folder), "%t")
        engines = [f"--nodes={one.nodes}", f"--ntasks={one.engines}", f"--ntasks-per-node={one.per_node}"]
        step = self._step_of([*engines, "--distribution=block", f"--output={output}"])
        if self._own_job:
            self.job = scheduler_commands.submit(
                self.kind, slurm_commands.script(one, self._name, self.log, ["srun", *step])
            )
        else:
            self._step = self._srun(self.log, step)

    def _step_of(self, tasks: Sequence[str], environment: Sequence[str] = ()) -> list[str]:
        """Return the arguments of srun for these tasks, with variables that Slurm would not pass unchanged.

        Engines continue without the others, and steps share the job's resources.
        """
        hidden = [] if self._options.gpus_per_node else ["CUDA_VISIBLE_DEVICES=", "PTYNB_GPU=chosen"]
        return [
            *(f"--job-name={self._name}", f"--cpus-per-task={scheduler_commands.cores(self._options)}"),
            *("--kill-on-bad-exit=0", "--wait=0", "--no-kill", "--overlap", "--mpi=none"),
            *("--input=none", "--open-mode=append", "--export=ALL", *tasks),
            *("env", f"{MARK}={self._name}", *hidden, *environment, *self._command),
        ]

    def _srun(self, log: Path, step: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a step of the running job from this process, in the environment that the template sets up."""
        command = [scheduler_commands.require("Slurm", "srun"), f"--jobid={self.job}", *step]
        if self._options.template:
            command = [str(scheduler_commands.executable(self._options, log, f"exec {shlex.join(command)}"))]
        return begin(command, self._name, log)

    def _start_again(self, rank: int) -> None:
        """Start one engine in a separate step, on the same node and GPU as before."""
        state = self._look(fresh=True)
        if state is None or state.name != "RUNNING":
            told = self._silence if state is None else state.words()
            raise ClusterError(
                f"The engine of rank {rank} cannot be restarted: {told}.", code="cluster.engine-not-replaced"
            )
        place, local = divmod(rank, self._options.per_node)
        node = self._nodes[place]
        if node not in state.nodes:
            raise ClusterError(
                f"The engine of rank {rank} cannot be restarted: job {self.job} has lost its node {node}; "
                "continue with the remaining engines, or restart the cluster.",
                code="cluster.engine-not-replaced",
            )
        if rank in self._again:
            _end([self._again.pop(rank)])
        output = engine_log(literal_path(self._folder), rank)
        tasks = ["--nodes=1", "--ntasks=1", f"--nodelist={node}", f"--output={output}"]
        self._step_log(rank).unlink(missing_ok=True)  # of an earlier step
        self._later.add(rank)
        step = self._step_of(tasks, [f"PTYNB_RANK={rank}", f"PTYNB_LOCALID={local}"])
        self._again[rank] = self._srun(self._step_log(rank), step)

    def waiting(self) -> bool:
        """Whether the job is in the queue, or its nodes are being prepared."""
        self._look()
        state = self._state  # the last known state: Slurm may not answer for a while
        return state is not None and (state.waiting or state.name == "CONFIGURING")

    def news(self) -> str:
        """Return the state of the job: in the queue and why, or on which nodes."""
        state = self._look()
        return self._silence if state is None else state.words()

    def failed(self) -> str:
        """Return why the job will not start engines any more."""
        if self._step is not None and self._step.poll() is not None:
            return f"The engines' step in job {self.job} has ended (exit code {self._step.returncode})."
        state = self._look()
        if state is None or not (state.over or state.never):
            return ""
        if state.never:
            return f"Job {self.job} will never start: {state.never} ({state.reason})."
        told = state.words()
        if state.name == "FAILED" and state.exit == "0:53":  # Slurm's own failure, before the script
            told += f", its first node cannot write to {self.log.parent}, which must be on a shared file system"
        return f"{told[0].upper()}{told[1:]}."

    def _look(self, *, fresh: bool = False) -> JobState | None:
        """Return the job's state, queried every second at first and then less often, to limit the load of Slurm."""
        now = time.monotonic()
        due = fresh or not self._asked or now - self._asked >= scheduler_commands.interval(now - self._began)
        if not self.job or not due or (self._state is not None and self._state.over):
            return self._state
        self._asked = now
        try:
            self._state, self._silence = slurm_commands.state(self.job), ""
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
        everyone = ended or (self._state is not None and self._state.over)
        first = {*range(self._options.engines)} if everyone else self._lost
        return sorted((first - self._later) | {rank for rank in self._later if self._ended_again(rank)})

    def _read_log(self) -> None:
        """Record which tasks ended, from lines like 'srun: error: n2: tasks 2-3: Killed'."""
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
                self._lost |= numbers(found[1])
            elif CANCELLED.search(line):
                self._lost = {*range(self._options.engines)}

    def _ended_again(self, rank: int) -> bool:
        """Whether the latest replacement of this rank's engine has ended."""
        if rank in self._again:
            return self._again[rank].poll() is not None
        try:  # by an earlier process
            lines = self._step_log(rank).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return False
        return any(LOST.match(line) or CANCELLED.search(line) for line in lines)

    def _step_log(self, rank: int) -> Path:
        return self.log.with_name(f"srun-rank{rank}.log")

    def stop(self) -> None:
        """Cancel the submitted job and wait for its end; in the present job, end the steps."""
        _end([*self._again.values(), *([] if self._step is None else [self._step]), *self._adopted])
        self._again, self._step, self._adopted = {}, None, []
        if self._own_job and self.job:
            scheduler_commands.cancel(self.kind, [self.job])
            wait_until(lambda: slurm_commands.state(self.job).over, STOP_SECONDS, 0.2)
            self.job, self._state, self._nodes = "", None, ()

    def describe(self) -> dict[str, Any]:
        """Return the job, for `again`."""
        allocation = self._options.model_dump(mode="json")
        return {"slurm": {"allocation": allocation, "job": self.job, "own_job": self._own_job}}

    @classmethod
    def again(cls, plan: ClusterPlan, described: Mapping[str, Any], name: str, folder: Path) -> Self:
        """Return the launcher of a running cluster, from `describe`."""
        said = described["slurm"]
        launcher = cls(SlurmCluster.model_construct(**said["allocation"]), name, folder, job=said["job"])
        launcher._own_job = said["own_job"]
        return launcher

    def join(self, processes: Mapping[int, int], described: Mapping[str, Any]) -> None:
        """Take over the job: past ends of tasks are in its log; the processes of srun are in the cluster's records."""
        self._began = time.monotonic()
        self._later = {rank for rank in range(self._options.engines) if self._step_log(rank).exists()}
        steps = watchdog.recorded(self._folder, "processes.json").get("engines", [])
        self._adopted += [psutil.Process(pid) for pid, start in steps if watchdog.is_alive(pid, start)]

    def kill(self, rank: int) -> None:
        """End the engine of this rank by a short step on its node. Raises ClusterError if that fails."""
        if not self._nodes:
            self._look(fresh=True)
        node = [f"--nodelist={self._nodes[rank // self._options.per_node]}"] if self._nodes else []
        slurm_commands.ask(
            *("srun", f"--jobid={self.job}", "--overlap", "--mpi=none", "--nodes=1", "--ntasks=1", *node),
            *(sys.executable, "-P", "-m", watchdog.__name__, ENGINES, self._name, str(rank)),
        )

    def record(self) -> dict[str, Any]:
        """Return the processes of srun on this machine, and the command that cancels the job."""
        steps = [step for step in (self._step, *self._again.values()) if step is not None and step.poll() is None]
        processes = [*self._adopted, *(psutil.Process(step.pid) for step in steps)]
        end = [[*SCHEDULERS[self.kind].cancel, self.job]] if self._own_job and self.job else []
        return {"processes": [[one.pid, one.create_time()] for one in processes if is_alive(one)], "end": end}


def _end(steps: Sequence[subprocess.Popen[bytes] | psutil.Process]) -> None:
    """End steps through their srun, which ends its tasks on TERM."""
    for step in steps:
        with contextlib.suppress(psutil.NoSuchProcess):
            step.terminate()
    for step in steps:
        try:
            step.wait(STOP_SECONDS)
        except (subprocess.TimeoutExpired, psutil.TimeoutExpired):
            step.kill()
            step.wait()
