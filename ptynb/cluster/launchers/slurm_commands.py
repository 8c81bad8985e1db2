"""Commands of Slurm: allocations, the state of a job, submission and cancellation.

Imports neither torch nor ipyparallel: an engine's process selects its GPU (`own_gpu`) before torch is loaded.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Self

from ptynb.cluster.addresses import address_towards
from ptynb.cluster.launchers import scheduler_commands
from ptynb.cluster.launchers.scheduler_commands import USUAL_CORES, quoted
from ptynb.exceptions import ClusterError
from ptynb.settings.cluster_options import ClusterSection

KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")
"""Variables SLURM_... that are kept: all others describe the present job or step, and would be options of a new one."""
GONE = re.compile("Invalid job id|already completing or completed")
"""Messages about a job that has ended."""
REASONS = {
    "Resources": "waiting for resources",
    "Priority": "other jobs have priority",
    "Dependency": "waiting for another job",
    "BeginTime": "its begin time is in the future",
    "Licenses": "waiting for licences",
    "Reservation": "waiting for its reservation",
    "ReqNodeNotAvail": "a node it needs is not available",
    "JobHeldUser": "held; 'scontrol release' releases it",
    "JobHeldAdmin": "held by an administrator",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is inactive",
}
NEVER = {
    "BadConstraints": "no node meets its constraints",
    "PartitionTimeLimit": "its time limit exceeds that of the partition",
    "PartitionNodeLimit": "its number of nodes exceeds the limit of the partition",
    "DependencyNeverSatisfied": "the job that it depends on failed",
    "InvalidAccount": "the account is not valid",
    "InvalidQOS": "the quality of service is not valid",
    "QOSMaxWallDurationPerJobLimit": "its time limit exceeds that of the quality of service",
    "AssocMaxWallDurationPerJobLimit": "its time limit exceeds that of the account",
}
"""Reasons for which a pending job never starts unless it is changed."""
ENDS = {
    "COMPLETED": "has ended",
    "FAILED": "failed",
    "TIMEOUT": "reached its time limit; restart with a longer time=",
    "CANCELLED": "was cancelled",
    "NODE_FAIL": "ended because a node failed",
    "OUT_OF_MEMORY": "exceeded its memory; restart with more memory=",
    "PREEMPTED": "was preempted by another job",
    "BOOT_FAIL": "ended because a node did not boot",
    "DEADLINE": "reached its deadline",
    "REVOKED": "was revoked",
    "GONE": "has ended, and Slurm has no record of it",
}


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """Nodes of a Slurm cluster and the engines on them, without options that are not set.

    engines_per_node: 0: one per GPU, or one per node without GPUs.
    cpus_per_engine: processor cores of each engine, on which it reads frames and, without a GPU, computes; 0: its share
        of the present job, or 4.
    time: of the whole job, for example "01:00:00" or "2-12" (days-hours); empty: the partition's own limit.
    memory: of each node, for example "64G"; empty: the partition's own.
    extra: further options of sbatch, for example "--qos=high"; they override the others.
    """

    nodes: int = 1
    engines_per_node: int = 0
    gpus_per_node: int = 0
    cpus_per_engine: int = 0
    time: str = ""
    partition: str = ""
    account: str = ""
    memory: str = ""
    extra: tuple[str, ...] = ()

    @classmethod
    def of(cls, options: ClusterSection) -> Self:
        """Create an allocation from options of `Cluster.slurm`."""
        fields = [name for name in cls.__dataclass_fields__ if name != "nodes"]
        chosen = {name: value for name in fields if (value := getattr(options, name))}
        return cls(nodes=options.nodes or 1, **chosen)

    @property
    def per_node(self) -> int:
        """Number of engines of each node."""
        return self.engines_per_node or self.gpus_per_node or 1

    @property
    def cores(self) -> int:
        """Number of processor cores of each engine."""
        return self.cpus_per_engine or USUAL_CORES

    @property
    def engines(self) -> int:
        """Number of engines."""
        return self.nodes * self.per_node

    def place(self, rank: int) -> tuple[int, int]:
        """Return the number of the node, and the number on it, of a rank; ranks fill the nodes in order."""
        return divmod(rank, self.per_node)

    def options(self) -> tuple[str, ...]:
        """Return the options of sbatch."""
        return (
            f"--nodes={self.nodes}",
            f"--ntasks-per-node={self.per_node}",
            f"--cpus-per-task={self.cores}",
            *([f"--gres=gpu:{self.gpus_per_node}"] if self.gpus_per_node else []),
            *([f"--time={self.time}"] if self.time else []),
            *([f"--partition={self.partition}"] if self.partition else []),
            *([f"--account={self.account}"] if self.account else []),
            *([f"--mem={self.memory}"] if self.memory else []),
            *self.extra,
        )

    def lacks(self, wanted: Allocation) -> str:
        """Return what a request needs and this allocation lacks, as text; empty if nothing."""
        for what, has, needs in (
            ("nodes", self.nodes, wanted.nodes),
            ("GPUs on each node", self.gpus_per_node, wanted.gpus_per_node),
            ("cores on each node", self.per_node * self.cores, wanted.per_node * wanted.cpus_per_engine),
        ):
            if has < needs:
                return f"{has} {what} of {needs} requested"
        return ""


def own_gpu(environment: Mapping[str, str]) -> str:
    """Return CUDA_VISIBLE_DEVICES for the own GPU of a Slurm task; "" without GPUs.

    Either all GPUs of the job on its node are visible to a task (numbers or UUIDs, also of slices), and it uses the one
    with its number on the node, or, with --gpus-per-task, only its own. The number is PTYNB_LOCALID (a restarted engine
    is alone in its step) or SLURM_LOCALID. Raises ClusterError if tasks would share a GPU.
    """
    listed = [entry.strip() for entry in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if entry.strip()]
    if not listed or listed[0].lower() in ("nodevfiles", "-1", "none", "void"):
        return ""
    local = int(environment.get("PTYNB_LOCALID") or environment.get("SLURM_LOCALID", "0"))
    shared = environment.get("SLURM_GPUS_ON_NODE", "")
    alone = len(listed) == 1 and shared.isdecimal() and int(shared) > 1
    if alone:
        return listed[0]
    if local >= len(listed):
        raise ClusterError(
            f"Task {local} of this node has no own GPU: Slurm assigned {len(listed)} "
            f"({','.join(listed)}); request as many GPUs as engines on each node.",
            code="gpu.too-few",
        )
    return listed[local]


@dataclass(frozen=True)
class JobState:
    """A job as Slurm describes it.

    name, reason: of Slurm, such as PENDING and Resources. nodes: empty while it waits.
    start: actual or expected, in local time as 2026-01-31T14:05:00; empty if unknown.
    exit: exit code and signal of a failure, such as 1:0.
    """

    job: str
    name: str
    reason: str = ""
    nodes: tuple[str, ...] = ()
    start: str = ""
    exit: str = ""

    @property
    def waiting(self) -> bool:
        """Whether it has not started."""
        return self.name in ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT")

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.name in ENDS

    @property
    def never(self) -> str:
        """Return why it can never start; empty if it can."""
        return NEVER.get(self.reason.split(",")[0], "") if self.waiting else ""

    def words(self, now: float | None = None) -> str:
        """Return a description in one line. now: seconds since 1970."""
        if self.waiting:
            reason = self.reason.split(",")[0]
            why = NEVER.get(reason) or REASONS.get(reason) or reason.strip("()")
            details = "; ".join(part for part in (why if why != "None" else "", _expected(self.start, now)) if part)
            return f"job {self.job} waits in the queue" + (f" ({details})" if details else "")
        if self.over:
            return f"job {self.job} {ENDS[self.name]}{self._why_failed()}"
        if self.name in ("RUNNING", "COMPLETING"):
            verb = "runs" if self.name == "RUNNING" else "is ending"
            return f"job {self.job} {verb} on {', '.join(self.nodes)}"
        if self.name == "CONFIGURING":
            return f"job {self.job} is configuring {', '.join(self.nodes)}"
        return f"job {self.job} is {self.name.lower().replace('_', ' ')}"

    def _why_failed(self) -> str:
        if self.name != "FAILED":
            return ""
        if self.reason == "JobLaunchFailure":
            return " (its first node, where its script runs, was lost or did not start it)"
        return f" (exit code {self.exit.split(':')[0]})" if self.exit else ""


def _expected(start: str, now: float | None) -> str:
    """Return for example 'may start at 14:05', with the day if that is not today."""
    try:
        when = time.strptime(start, "%Y-%m-%dT%H:%M:%S")
    except ValueError:
        return ""
    today = time.localtime(now)
    same = (when.tm_year, when.tm_yday) == (today.tm_year, today.tm_yday)
    return "may start at " + time.strftime("%H:%M" if same else "%Y-%m-%d %H:%M", when)


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without variables of the present job or step, and of the format of squeue."""
    return {
        name: value
        for name, value in environment.items()
        if name in KEPT or not name.startswith(("SLURM_", "SQUEUE_", "PMI_", "PMIX_"))
    }


def ask(*command: str, text: str | None = None, allowed: re.Pattern[str] | None = None) -> str:
    """Return the output of a Slurm command, as `scheduler_commands.ask`."""
    return scheduler_commands.ask("Slurm", *command, text=text, environment=clean(os.environ), allowed=allowed)


def script(allocation: Allocation, name: str, folder: Path, run: Sequence[str]) -> str:
    """Return the script of a job that runs one command (srun) and lasts as long as it and later steps.

    It has no secrets: other users may be able to read scripts.
    """
    options = (
        f"--job-name={name}",
        f"--output={pattern(folder / 'log' / 'job.log')}",
        "--open-mode=append",
        "--no-requeue",  # engines that Slurm restarts would find no controller
        "--no-kill",  # engines on other nodes continue when a node fails
        "--export=ALL",
        *allocation.options(),
    )
    return "\n".join(
        [
            "#!/bin/sh",
            *(f"#SBATCH {quoted(option)}" for option in options),
            scheduler_commands.test_of(folder),
            shlex.join(run),
            "status=$?",
            "# An engine that was started again is a further step: the job lasts as long as one of them runs.",
            "pause=1",
            'while steps=$(squeue --noheader --steps --jobs="$SLURM_JOB_ID" --format=%i); do',
            '    case "$steps" in *.[0-9]*) sleep $pause ;; *) break ;; esac',
            "    pause=10",
            "done",
            "exit $status",
            "",
        ]
    )


def pattern(path: Path) -> str:
    """Return a path for --output of Slurm, in which % is special."""
    return str(path).replace("%", "%%")


def submit(text: str) -> str:
    """Submit a job and return its number. Raises ClusterError."""
    answer = ask("sbatch", "--parsable", text=text).strip().split("\n")[-1]
    job = answer.split(";")[0]
    if not job.isdecimal():
        raise ClusterError(
            f"sbatch returned {answer!r}; expected the number of a job.", code="scheduler.command-failed"
        )
    return job


def state(job: str) -> JobState:
    """Return the state of a job. Raises ClusterError."""
    question = ("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T|%N|%S|%r")
    lines = ask(*question, allowed=GONE).splitlines()
    if not lines:  # some minutes after its end only the accounting lists it
        return _accounted(job)
    name, nodes, start, reason = (*lines[0].split("|", 3), "", "", "")[:4]
    exit_code = _field(ask("scontrol", "show", "job", "--oneliner", job), "ExitCode") if name == "FAILED" else ""
    return JobState(job, name, reason, hostnames(nodes), "" if start == "N/A" else start, exit_code)


def _accounted(job: str) -> JobState:
    try:
        listing = ask("sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={job}", "--format=State,ExitCode")
        name, exit_code = listing.splitlines()[0].split("|")
    except (ClusterError, LookupError, ValueError):
        return JobState(job, "GONE")
    return JobState(job, name.split()[0], exit=exit_code)


def _field(listing: str, name: str) -> str:
    found = re.search(rf"(?:^|\s){re.escape(name)}=(\S*)", listing)
    return found[1] if found and found[1] not in ("(null)", "N/A") else ""


@lru_cache(maxsize=64)
def hostnames(nodes: str) -> tuple[str, ...]:
    """Return ('n1', 'n2') for 'n[1-2]'."""
    return tuple(ask("scontrol", "show", "hostnames", nodes).split()) if nodes else ()


def cancel(job: str) -> None:
    """Cancel a job, or a step such as '12.0', unless it has ended. Raises ClusterError."""
    ask("scancel", "--quiet", job, allowed=GONE)


def present_job() -> str:
    """Return the number of the present job (salloc, sbatch, srun), or ""."""
    return os.environ.get("SLURM_JOB_ID", "")


def inside() -> Allocation | None:
    """Return the allocation of the present job, or None. Raises ClusterError if its nodes differ."""
    job = present_job()
    if not job:
        return None
    listing = ask("scontrol", "show", "job", "--details", "--oneliner", job)
    if (found := _field(listing, "JobState")) != "RUNNING":
        raise ClusterError(
            f"SLURM_JOB_ID names job {job}, which is {found or 'unknown'}; exit its shell, or unset SLURM_JOB_ID.",
            code="slurm.no-job",
        )
    return offered(listing, os.environ)


def offered(listing: str, environment: Mapping[str, str]) -> Allocation:
    """Return the allocation in the output of `scontrol show job --details --oneliner`."""
    shares = [
        (nodes, _counted(cores), sum(int(number) for number in re.findall(r"gpu(?::[^:,()]+)?:(\d+)", resources)))
        for nodes, cores, resources in re.findall(r"\sNodes=(\S+) CPU_IDs=(\S+) \S* GRES=(\S*)", listing)
    ]
    if not shares:
        raise ClusterError(
            "scontrol lists no cores and GPUs of the present job; set nodes=, gpus_per_node= and so on.",
            code="slurm.unequal-nodes",
        )
    gpus = {number for _, _, number in shares}
    if len(gpus) > 1:
        details = ", ".join(f"{number} on {nodes}" for nodes, _, number in shares)
        raise ClusterError(
            f"The nodes of the present job differ in GPUs ({details}); request equal numbers.",
            code="slurm.unequal-nodes",
        )
    tasks = environment.get("SLURM_NTASKS_PER_NODE", "")
    engines = 0 if max(gpus) else int(tasks) if tasks.isdecimal() else 1
    cores = min(number for _, number, _ in shares)
    return Allocation(
        nodes=int(_field(listing, "NumNodes") or len(shares)),
        engines_per_node=engines,
        gpus_per_node=max(gpus),
        cpus_per_engine=max(1, cores // (engines or max(gpus))),
        partition=_field(listing, "Partition"),
        account=_field(listing, "Account"),
    )


def _counted(ranges: str) -> int:
    """Return the count of numbers in '0-3,8'."""
    bounds = [[int(end) for end in part.split("-")] for part in ranges.split(",")]
    return sum(part[-1] - part[0] + 1 for part in bounds)


def requested(nodes: int | None, device: str, allocation: Allocation) -> Allocation | None:
    """Return the requested allocation; None: all of the present job.

    nodes: None: those of the present job. Raises ClusterError if device and GPUs contradict each other.
    """
    gpus, engines = allocation.gpus_per_node, allocation.engines_per_node
    if device == "cpu" and gpus:
        raise ClusterError(
            f"device is 'cpu' and gpus_per_node is {gpus}; omit one of them.",
            code="argument.conflict",
            fields=("gpus_per_node", "device"),
        )
    if nodes is None and not gpus and not engines and device != "cpu":
        return None
    if not gpus and (device == "cuda" or not (engines or device == "cpu")):
        raise ClusterError(
            "No GPUs were requested; add gpus_per_node=, or device='cpu' for CPU engines.",
            code="argument.missing",
            fields=("gpus_per_node",),
        )
    if nodes is None:
        has = inside()
        if has is None:
            raise ClusterError("There is no present Slurm job; add nodes=.", code="slurm.no-job", fields=("nodes",))
        nodes = has.nodes
    return replace(allocation, nodes=nodes)


def own_address(partition: str) -> str:
    """Return the address of this machine towards the nodes. Raises ClusterError without a route to them."""
    chosen = [f"--partition={partition}"] if partition else []
    nodes = ask("sinfo", "--noheader", "--Node", "--format=%o", *chosen).split()
    for node in nodes[:8]:
        with contextlib.suppress(ClusterError):
            return address_towards(node)
    found = f"no route to {', '.join(nodes[:8])}" if nodes else f"sinfo lists no node {' '.join(chosen)}"
    raise ClusterError(
        f"The address of this machine towards the nodes is unknown ({found}); set address=.",
        code="cluster.no-address",
        fields=("address",) if nodes or not partition else ("partition",),
    )


def choose(wanted: Allocation | None, within: bool | None = None) -> tuple[Allocation, str]:
    """Return the allocation, and the number of the present job or "" for a new one.

    wanted: None: all of the present job. within: whether to use the present job; None: if there is one.
    Raises ClusterError if the present job is missing or too small.
    """
    if within is False or (within is None and not present_job()):
        if wanted is None:
            raise ClusterError(
                "There is no present Slurm job; set what to request, such as nodes=1, gpus_per_node=1.",
                code="slurm.no-job",
                fields=("nodes",),
            )
        return wanted, ""
    has = inside()
    if has is None:
        raise ClusterError(
            "There is no present Slurm job (SLURM_JOB_ID is not set); omit within=True.",
            code="slurm.no-job",
        )
    if wanted is not None and (lacking := has.lacks(wanted)):
        raise ClusterError(
            f"The present job {present_job()} has {lacking}; request less, or a new job: within=False.",
            code="slurm.job-too-small",
            fields=("nodes",),
        )
    if wanted is None:
        return has, present_job()
    share = max(1, has.per_node * has.cores // wanted.per_node)
    return replace(wanted, cpus_per_engine=wanted.cpus_per_engine or share), present_job()
