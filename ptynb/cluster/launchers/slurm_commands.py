"""Jobs of Slurm: what is requested or offered, their script and state.

Imports neither torch nor ipyparallel: an engine's process selects its GPU (`own_gpu`) before torch is loaded.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

from ptynb.cluster.addresses import address_towards
from ptynb.cluster.cpu_cores import numbers
from ptynb.cluster.launchers import scheduler_commands
from ptynb.cluster.launchers.scheduler_commands import GONE, cores
from ptynb.exceptions import ClusterError
from ptynb.settings.cluster_options import ClusterSection, SlurmCluster

ask = partial(scheduler_commands.ask, "Slurm")
"""Return the output of a Slurm command. Raises ClusterError."""
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


def script(options: ClusterSection, name: str, log: Path, run: Sequence[str]) -> str:
    """Return the script of a job that runs one command (srun) and lasts as long as it and later steps.

    log: of the script, in the folder of logs of the cluster.
    """
    lines = [
        scheduler_commands.test_of(log.parent.parent),
        shlex.join(run),
        "status=$?",
        "# An engine that was started again is a further step: the job lasts as long as one of them runs.",
        "pause=1",
        'while steps=$(squeue --noheader --steps --jobs="$SLURM_JOB_ID" --format=%i); do',
        '    case "$steps" in *.[0-9]*) sleep $pause ;; *) break ;; esac',
        "    pause=10",
        "done",
        "exit $status",
    ]
    return scheduler_commands.script(options, name, log, lines)


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


def inside() -> ClusterSection | None:
    """Return what the present job has, or None. Raises ClusterError if its nodes differ."""
    if not (job := os.environ.get("SLURM_JOB_ID", "")):
        return None
    listing = ask("scontrol", "show", "job", "--details", "--oneliner", job)
    if (found := _field(listing, "JobState")) != "RUNNING":
        raise ClusterError(
            f"SLURM_JOB_ID names job {job}, which is {found or 'unknown'}; exit its shell, or unset SLURM_JOB_ID.",
            code="slurm.no-job",
        )
    return offered(listing, os.environ)


def offered(listing: str, environment: Mapping[str, str]) -> ClusterSection:
    """Return what a job has, by the output of `scontrol show job --details --oneliner`."""
    shares = [
        (nodes, len(numbers(own)), sum(int(number) for number in re.findall(r"gpu(?::[^:,()]+)?:(\d+)", resources)))
        for nodes, own, resources in re.findall(r"\sNodes=(\S+) CPU_IDs=(\S+) \S* GRES=(\S*)", listing)
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
    engines = None if max(gpus) else int(tasks) if tasks.isdecimal() else 1
    return SlurmCluster.model_construct(  # not validated: it is Slurm's
        nodes=int(_field(listing, "NumNodes") or len(shares)),
        engines_per_node=engines,
        gpus_per_node=max(gpus) or None,
        cpus_per_engine=max(1, min(number for _, number, _ in shares) // (engines or max(gpus))),
        partition=_field(listing, "Partition") or None,
    )


def own_address(partition: str | None) -> str:
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


def choose(options: ClusterSection, within: bool | None = None) -> tuple[ClusterSection, str]:
    """Return what engines get, with a number of nodes, and the number of the present job or "" for a new one.

    Without nodes, GPUs, engines and device it is all of the present job. within: whether to use that; None: if there is
    one. Raises ClusterError if device and GPUs contradict each other, or the present job is missing or too small.
    """
    nodes, gpus, engines, device = options.nodes, options.gpus_per_node, options.engines_per_node, options.device
    if device == "cpu" and gpus:
        raise ClusterError(
            f"device is 'cpu' and gpus_per_node is {gpus}; omit one of them.",
            code="argument.conflict",
            fields=("gpus_per_node", "device"),
        )
    everything = nodes is None and not gpus and not engines and device != "cpu"
    if not (gpus or everything) and (device == "cuda" or not (engines or device == "cpu")):
        raise ClusterError(
            "No GPUs were requested; add gpus_per_node=, or device='cpu' for CPU engines.",
            code="argument.missing",
            fields=("gpus_per_node",),
        )
    job = "" if within is False else os.environ.get("SLURM_JOB_ID", "")
    if within and not job:
        raise ClusterError(
            "There is no present Slurm job (SLURM_JOB_ID is not set); omit within=True.", code="slurm.no-job"
        )
    has = inside() if job or (nodes is None and not everything) else None
    if has is None and nodes is None:
        what = "set what to request, such as nodes=1, gpus_per_node=1" if everything else "add nodes="
        raise ClusterError(f"There is no present Slurm job; {what}.", code="slurm.no-job", fields=("nodes",))
    if has is not None and everything:
        return has, job
    if has is not None and nodes is None:
        options = options.model_copy(update={"nodes": has.nodes})
    if has is None or not job:
        return options, ""
    for what, own, needs in (
        ("nodes", has.nodes, options.nodes),
        ("GPUs on each node", has.gpus_per_node or 0, gpus or 0),
        ("cores on each node", has.per_node * cores(has), options.per_node * (options.cpus_per_engine or 0)),
    ):
        if own < needs:
            raise ClusterError(
                f"The present job {job} has {own} {what} of {needs} requested; request less, or a new job: "
                "within=False.",
                code="slurm.job-too-small",
                fields=("nodes",),
            )
    share = max(1, has.per_node * cores(has) // options.per_node)
    return options.model_copy(update={"cpus_per_engine": options.cpus_per_engine or share}), job
