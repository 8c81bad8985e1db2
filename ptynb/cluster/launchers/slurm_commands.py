"""Slurm by its own commands: allocations, the state of a job, and submitting, cancelling, asking for one.

Imports neither torch nor ipyparallel: an engine's process chooses its GPU (`own_gpu`) before torch loads.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Self

from ptynb.cluster.addresses import address_towards
from ptynb.exceptions import ClusterError
from ptynb.settings.cluster_options import ClusterSection
from ptynb.text import has_control_characters

COMMAND_SECONDS = 30.0
"""How long a command of Slurm may take: its controller is slow where thousands of jobs wait."""
KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")
"""Of SLURM_... all else describes a job or step around this process, and would be taken for options of a new one."""


USUAL_CORES = 4
"""Of an engine by default: it computes, reads frames, answers and writes checkpoints at the same time."""
REASONS = {
    "Resources": "waiting for resources",
    "Priority": "others come first",
    "Dependency": "waiting for another job",
    "BeginTime": "its time of beginning has not come",
    "Licenses": "waiting for a licence",
    "Reservation": "waiting for its reservation",
    "ReqNodeNotAvail": "a node it needs is not available",
    "JobHeldUser": "held; 'scontrol release' lets it go",
    "JobHeldAdmin": "held by an administrator",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is inactive",
}
NEVER = {
    "BadConstraints": "no node has what it asks for",
    "PartitionTimeLimit": "its time is longer than the partition allows",
    "PartitionNodeLimit": "the partition allows no such number of nodes",
    "DependencyNeverSatisfied": "the job it depends on did not end as it should",
    "InvalidAccount": "the account is not valid",
    "InvalidQOS": "the quality of service is not valid",
    "QOSMaxWallDurationPerJobLimit": "its time is longer than the quality of service allows",
    "AssocMaxWallDurationPerJobLimit": "its time is longer than the account allows",
}
"""Reasons for which a waiting job will wait for ever, unless somebody changes it."""
ENDS = {
    "COMPLETED": "has ended",
    "FAILED": "failed",
    "TIMEOUT": "reached its time limit; start again with a longer time=",
    "CANCELLED": "was cancelled",
    "NODE_FAIL": "ended because a node failed",
    "OUT_OF_MEMORY": "ran out of the memory it asked for; start again with more memory=",
    "PREEMPTED": "had to make room for another job",
    "BOOT_FAIL": "ended because a node did not boot",
    "DEADLINE": "reached its deadline",
    "REVOKED": "was revoked",
    "GONE": "has ended, and Slurm has forgotten how",
}


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """Nodes of a Slurm cluster, and how engines are spread over them. Raises ValueError where that can't be.

    engines_per_node: 0: one per GPU, or one where there are none.
    cpus_per_engine: processor cores of each engine, on which it reads frames and, without a GPU, computes; 0: its share
        of the present job, or 4.
    time: of the whole job, for example "01:00:00" or "2-12" (days-hours); empty: the partition's own limit.
    memory: of each node, for example "64G"; empty: the partition's own.
    extra: further options of sbatch, for example "--qos=high"; the last word where they repeat one of the others.
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
        """From options of `Cluster.slurm`."""
        fields = [name for name in cls.__dataclass_fields__ if name != "nodes"]
        chosen = {name: value for name in fields if (value := getattr(options, name))}
        return cls(nodes=options.nodes or 1, **chosen)

    @property
    def per_node(self) -> int:
        """How many engines each node has."""
        return self.engines_per_node or self.gpus_per_node or 1

    @property
    def cores(self) -> int:
        """How many processor cores each engine has."""
        return self.cpus_per_engine or USUAL_CORES

    @property
    def engines(self) -> int:
        """How many engines there are."""
        return self.nodes * self.per_node

    def place(self, rank: int) -> tuple[int, int]:
        """Number of the node, and number on it, of this rank: ranks fill one node after the other."""
        return divmod(rank, self.per_node)

    def options(self) -> tuple[str, ...]:
        """The options of sbatch that ask for it."""
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
        """What of `wanted` is not here, in words; empty where all is."""
        for what, has, needs in (
            ("nodes", self.nodes, wanted.nodes),
            ("GPUs on each node", self.gpus_per_node, wanted.gpus_per_node),
            ("cores on each node", self.per_node * self.cores, wanted.per_node * wanted.cpus_per_engine),
        ):
            if has < needs:
                return f"{has} {what} where {needs} are wanted"
        return ""


def own_gpu(environment: Mapping[str, str]) -> str:
    """What CUDA_VISIBLE_DEVICES is to be for a task of Slurm, so that it sees its own GPU only; "" without one.

    Slurm shows a task either all GPUs of its node's share (numbers or UUIDs, of slices too), of which it takes the one
    of its number on the node, or, with --gpus-per-task, its own alone. That number is PTYNB_LOCALID (an engine that was
    started again is alone in its step) or SLURM_LOCALID. Raises ClusterError where tasks would have to share.
    """
    listed = [entry.strip() for entry in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if entry.strip()]
    if not listed or listed[0].lower() in ("nodevfiles", "-1", "none", "void"):
        return ""
    local = int(environment.get("PTYNB_LOCALID") or environment.get("SLURM_LOCALID", "0"))
    shared = environment.get("SLURM_GPUS_ON_NODE", "")
    alone = len(listed) == 1 and shared.isdigit() and int(shared) > 1
    if alone:
        return listed[0]
    if local >= len(listed):
        raise ClusterError(
            f"Task {local} of this node has no GPU of its own: Slurm shows it {len(listed)} "
            f"({','.join(listed)}); ask for as many GPUs as engines on each node.",
            code="gpu.too-few",
        )
    return listed[local]


@dataclass(frozen=True)
class JobState:
    """A job as Slurm describes it.

    name, reason: Slurm's own words, as PENDING and Resources. nodes: empty while it waits.
    start: when it began or is expected to, in local time as 2026-01-31T14:05:00; empty where that is not known.
    exit: exit code and signal of what failed, as 1:0.
    """

    job: str
    name: str
    reason: str = ""
    nodes: tuple[str, ...] = ()
    start: str = ""
    exit: str = ""

    @property
    def waiting(self) -> bool:
        """Whether it has not begun."""
        return self.name in ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT")

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.name in ENDS

    @property
    def never(self) -> str:
        """Why it will wait for ever; empty where it will not."""
        return NEVER.get(self.reason.split(",")[0], "") if self.waiting else ""

    def words(self, now: float | None = None) -> str:
        """One line for people. now: seconds since 1970."""
        if self.waiting:
            reason = self.reason.split(",")[0]
            why = NEVER.get(reason) or REASONS.get(reason) or reason.strip("()")
            told = "; ".join(part for part in (why if why != "None" else "", _expected(self.start, now)) if part)
            return f"job {self.job} waits in the queue" + (f" ({told})" if told else "")
        if self.over:
            return f"job {self.job} {ENDS[self.name]}{self._why_failed()}"
        if self.name in ("RUNNING", "COMPLETING"):
            verb = "runs" if self.name == "RUNNING" else "is ending"
            return f"job {self.job} {verb} on {', '.join(self.nodes)}"
        if self.name == "CONFIGURING":
            return f"job {self.job} has {', '.join(self.nodes)}, which are being made ready"
        return f"job {self.job} is {self.name.lower().replace('_', ' ')}"

    def _why_failed(self) -> str:
        if self.name != "FAILED":
            return ""
        if self.reason == "JobLaunchFailure":
            return " (its first node, where its script runs, was lost or did not start it)"
        return f" (exit code {self.exit.split(':')[0]})" if self.exit else ""


def _expected(start: str, now: float | None) -> str:
    """'may start at 14:05', with the day where that is not today."""
    try:
        when = time.strptime(start, "%Y-%m-%dT%H:%M:%S")
    except ValueError:
        return ""
    today = time.localtime(now)
    same = (when.tm_year, when.tm_yday) == (today.tm_year, today.tm_yday)
    return "may start at " + time.strftime("%H:%M" if same else "%Y-%m-%d %H:%M", when)


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without what a surrounding job or step, or a taste in squeue's columns, left there."""
    return {
        name: value
        for name, value in environment.items()
        if name in KEPT or not name.startswith(("SLURM_", "SQUEUE_", "PMI_", "PMIX_"))
    }


def require(name: str) -> str:
    """The path of a command of Slurm. Raises ClusterError where it is missing."""
    found = shutil.which(name)
    if found is None:
        raise ClusterError(
            f"{name} was not found on this machine; run the notebook on a login node of the Slurm cluster, "
            "or load the module that has Slurm's commands first.",
            code="slurm.not-installed",
        )
    return found


def ask(*command: str, text: str | None = None) -> str:
    """What a command of Slurm prints. text: given to it on its standard input. Raises ClusterError where it fails."""
    program = require(command[0])
    try:
        done = subprocess.run(
            [program, *command[1:]],
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            text=True,
            env=clean(os.environ),
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ClusterError(
            f"{command[0]} did not answer within {COMMAND_SECONDS:.0f} s; "
            "Slurm's controller is down or busy: try again later.",
            code="slurm.no-answer",
        ) from None
    if done.returncode != 0:
        lines = [re.sub(rf"^{command[0]}: (error: )?", "", line) for line in done.stderr.splitlines() if line]
        told = "; ".join(lines)
        raise ClusterError(
            f"{command[0]} failed: {told or f'exit code {done.returncode}'}", code="slurm.command-failed"
        )
    return done.stdout


def script(allocation: Allocation, name: str, folder: Path, run: Sequence[str]) -> str:
    """The text of a job that runs one command (srun and what it starts) and lasts as long as it and later steps do.

    Nothing in it is secret: who may use Slurm can read the scripts of others where the site lets them.
    """
    options = (
        f"--job-name={name}",
        f"--output={pattern(folder / 'log' / 'job.log')}",
        "--open-mode=append",
        "--no-requeue",  # engines that Slurm starts a second time would find nobody
        "--no-kill",  # the engines on other nodes live on when a node fails
        "--export=ALL",
        *allocation.options(),
    )
    if has_control_characters(str(folder)):
        raise ClusterError(
            f"The cluster's folder is {str(folder)!r}; expected a path that fits into one line of a job.",
            code="argument.invalid-value",
        )
    there = shlex.quote(str(folder))
    return "\n".join(
        [
            "#!/bin/sh",
            *(f"#SBATCH {_quoted(option)}" for option in options),
            f'test -d {there} || {{ echo "$(hostname) does not have the folder "{there}; exit 3; }}',
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


def _quoted(option: str) -> str:
    """An option as sbatch reads it from a script: its value in double quotes where it has more than plain signs."""
    if re.fullmatch(r"[\w./:=,+@%-]+", option):
        return option
    return '"' + re.sub(r'(["\\])', r"\\\1", option) + '"'


def pattern(path: Path) -> str:
    """A path as Slurm's --output takes it, where % has a meaning."""
    return str(path).replace("%", "%%")


def submit(text: str) -> str:
    """Submits a job and returns its number. Raises ClusterError with what sbatch says."""
    answer = ask("sbatch", "--parsable", text=text).strip().split("\n")[-1]
    job = answer.split(";")[0]
    if not job.isdigit():
        raise ClusterError(f"sbatch answered {answer!r}; expected the number of a job.", code="slurm.command-failed")
    return job


def state(job: str) -> JobState:
    """How a job is doing. Raises ClusterError where Slurm does not answer."""
    try:
        lines = ask("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T|%N|%S|%r").splitlines()
    except ClusterError as error:
        if "Invalid job id" not in str(error):
            raise
        lines = []
    if not lines:  # some minutes after its end only the accounting knows it, where there is one
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
    """('n1', 'n2') of 'n[1-2]'."""
    return tuple(ask("scontrol", "show", "hostnames", nodes).split()) if nodes else ()


def cancel(job: str) -> None:
    """Cancels a job, or a step (as '12.0'); does nothing where it has ended. Raises ClusterError."""
    try:
        ask("scancel", "--quiet", job)
    except ClusterError as error:
        if "Invalid job id" not in str(error) and "already completing or completed" not in str(error):
            raise


def present_job() -> str:
    """The number of the job around this process (salloc, sbatch, srun); empty where there is none."""
    return os.environ.get("SLURM_JOB_ID", "")


def inside() -> Allocation | None:
    """What the job around this process has; None where there is none. Raises ClusterError where nodes are unequal."""
    job = present_job()
    if not job:
        return None
    listing = ask("scontrol", "show", "job", "--details", "--oneliner", job)
    if (found := _field(listing, "JobState")) != "RUNNING":
        raise ClusterError(
            f"SLURM_JOB_ID names job {job}, which is {found or 'unknown'}; leave its shell, or unset SLURM_JOB_ID.",
            code="slurm.no-job",
        )
    return offered(listing, os.environ)


def offered(listing: str, environment: Mapping[str, str]) -> Allocation:
    """The allocation that `scontrol show job --details --oneliner` describes, from inside it."""
    shares = [
        (nodes, _counted(cores), sum(int(number) for number in re.findall(r"gpu(?::[^:,()]+)?:(\d+)", resources)))
        for nodes, cores, resources in re.findall(r"\sNodes=(\S+) CPU_IDs=(\S+) \S* GRES=(\S*)", listing)
    ]
    if not shares:
        raise ClusterError(
            "scontrol does not say which cores and GPUs the present job has; give nodes= and so on.",
            code="slurm.unequal-nodes",
        )
    gpus = {number for _, _, number in shares}
    if len(gpus) > 1:
        told = ", ".join(f"{number} on {nodes}" for nodes, _, number in shares)
        raise ClusterError(
            f"The present job has unequal numbers of GPUs ({told}); ask Slurm for equal ones.",
            code="slurm.unequal-nodes",
        )
    tasks = environment.get("SLURM_NTASKS_PER_NODE", "")
    engines = 0 if max(gpus) else int(tasks) if tasks.isdigit() else 1
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
    """How many numbers '0-3,8' names."""
    bounds = [[int(end) for end in part.split("-")] for part in ranges.split(",")]
    return sum(part[-1] - part[0] + 1 for part in bounds)


def requested(nodes: int | None, device: str, allocation: Allocation) -> Allocation | None:
    """What a user asks for: `allocation` on so many nodes; None where it is all that the present job has.

    nodes: None: those of the present job. Raises ClusterError where device and GPUs do not go together.
    """
    gpus, engines = allocation.gpus_per_node, allocation.engines_per_node
    if device == "cpu" and gpus:
        raise ClusterError(
            f"CPU engines and {gpus} GPUs of each node were asked for; leave out one of them.", code="argument.conflict"
        )
    if nodes is None and not gpus and not engines and device != "cpu":
        return None
    if not gpus and (device == "cuda" or not (engines or device == "cpu")):
        raise ClusterError(
            "No GPUs were asked for; add gpus_per_node=, or device='cpu' for CPU engines.", code="argument.missing"
        )
    if nodes is None:
        has = inside()
        if has is None:
            raise ClusterError("There is no Slurm job around this process; add nodes=.", code="slurm.no-job")
        nodes = has.nodes
    return replace(allocation, nodes=nodes)


def own_address(partition: str) -> str:
    """The address of this machine on the network of the nodes. Raises ClusterError where there is no way to them."""
    chosen = [f"--partition={partition}"] if partition else []
    nodes = ask("sinfo", "--noheader", "--Node", "--format=%o", *chosen).split()
    for node in nodes[:8]:
        with contextlib.suppress(ClusterError):
            return address_towards(node)
    found = f"none of {', '.join(nodes[:8])} is known here" if nodes else f"sinfo lists no node {' '.join(chosen)}"
    raise ClusterError(
        f"This machine's address towards Slurm's nodes can't be told ({found}); give address=.",
        code="cluster.no-address",
    )


def choose(wanted: Allocation | None, within: bool | None = None) -> tuple[Allocation, str]:
    """Where engines will run: the allocation, and the number of the present job or "" for a new one.

    wanted: None: all that the present job has. within: whether in the present job; None: where there is one.
    Raises ClusterError where that can't be: a job is neither left nor filled beyond what it has without being told.
    """
    if within is False or (within is None and not present_job()):
        if wanted is None:
            raise ClusterError(
                "There is no Slurm job around this process; say what to ask for, as nodes=1, gpus_per_node=1.",
                code="slurm.no-job",
            )
        return wanted, ""
    has = inside()
    if has is None:
        raise ClusterError(
            "There is no Slurm job around this process (SLURM_JOB_ID is not set); leave out within=True.",
            code="slurm.no-job",
        )
    if wanted is not None and (lacking := has.lacks(wanted)):
        raise ClusterError(
            f"The present job {present_job()} has {lacking}; ask for less, or for a job of its own: within=False.",
            code="slurm.job-too-small",
        )
    if wanted is None:
        return has, present_job()
    share = max(1, has.per_node * has.cores // wanted.per_node)
    return replace(wanted, cpus_per_engine=wanted.cpus_per_engine or share), present_job()
