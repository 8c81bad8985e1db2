"""Slurm by its own commands: what the present allocation offers, and submitting, looking at, cancelling a job."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import get_args

from ptynb.cluster.addresses import address_towards
from ptynb.cluster.devices import Device
from ptynb.cluster.launchers.allocation import Allocation
from ptynb.cluster.launchers.job_state import JobState
from ptynb.exceptions import ClusterError
from ptynb.text import has_control_characters

COMMAND_SECONDS = 30.0
"""How long a command of Slurm may take: its controller is slow where thousands of jobs wait."""
KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")
"""Of SLURM_... all else describes a job or step around this process, and would be taken for options of a new one."""


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
            "or load the module that has Slurm's commands first."
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
            "Slurm's controller is down or busy: try again later."
        ) from None
    if done.returncode != 0:
        lines = [re.sub(rf"^{command[0]}: (error: )?", "", line) for line in done.stderr.splitlines() if line]
        told = "; ".join(lines)
        raise ClusterError(f"{command[0]} failed: {told or f'exit code {done.returncode}'}")
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
            f"The cluster's folder is {str(folder)!r}; expected a path that fits into one line of a job."
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
        raise ClusterError(f"sbatch answered {answer!r}; expected the number of a job.")
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
            f"SLURM_JOB_ID names job {job}, which is {found or 'unknown'}; leave its shell, or unset SLURM_JOB_ID."
        )
    return offered(listing, os.environ)


def offered(listing: str, environment: Mapping[str, str]) -> Allocation:
    """The allocation that `scontrol show job --details --oneliner` describes, from inside it."""
    shares = [
        (nodes, _counted(cores), sum(int(number) for number in re.findall(r"gpu(?::[^:,()]+)?:(\d+)", resources)))
        for nodes, cores, resources in re.findall(r"\sNodes=(\S+) CPU_IDs=(\S+) \S* GRES=(\S*)", listing)
    ]
    if not shares:
        raise ClusterError("scontrol does not say which cores and GPUs the present job has; give nodes= and so on.")
    gpus = {number for _, _, number in shares}
    if len(gpus) > 1:
        told = ", ".join(f"{number} on {nodes}" for nodes, _, number in shares)
        raise ClusterError(f"The present job has unequal numbers of GPUs ({told}); ask Slurm for equal ones.")
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


def asked(nodes: int | None, device: str, allocation: Allocation) -> Allocation | None:
    """What a user asks for: `allocation` on so many nodes; None where it is all that the present job has.

    nodes: None: those of the present job. Raises ClusterError where device and GPUs do not go together.
    """
    if device not in get_args(Device):
        raise ClusterError(f"device is {device!r}; expected 'auto', 'cpu' or 'cuda'.")
    gpus, engines = allocation.gpus_per_node, allocation.engines_per_node
    if device == "cpu" and gpus:
        raise ClusterError(f"CPU engines and {gpus} GPUs of each node were asked for; leave out one of them.")
    if nodes is None and not gpus and not engines and device != "cpu":
        return None
    if not gpus and (device == "cuda" or not (engines or device == "cpu")):
        raise ClusterError("No GPUs were asked for; add gpus_per_node=, or device='cpu' for CPU engines.")
    if nodes is None:
        has = inside()
        if has is None:
            raise ClusterError("There is no Slurm job around this process; add nodes=.")
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
    raise ClusterError(f"This machine's address towards Slurm's nodes can't be told ({found}); give address=.")


def choose(wanted: Allocation | None, within: bool | None = None) -> tuple[Allocation, str]:
    """Where engines will run: the allocation, and the number of the present job or "" for a new one.

    wanted: None: all that the present job has. within: whether in the present job; None: where there is one.
    Raises ClusterError where that can't be: a job is neither left nor filled beyond what it has without being told.
    """
    if within is False or (within is None and not present_job()):
        if wanted is None:
            raise ClusterError(
                "There is no Slurm job around this process; say what to ask for, as nodes=1, gpus_per_node=1."
            )
        return wanted, ""
    has = inside()
    if has is None:
        raise ClusterError(
            "There is no Slurm job around this process (SLURM_JOB_ID is not set); leave out within=True."
        )
    if wanted is not None and (lacking := has.lacks(wanted)):
        raise ClusterError(
            f"The present job {present_job()} has {lacking}; ask for less, or for a job of its own: within=False."
        )
    if wanted is None:
        return has, present_job()
    share = max(1, has.per_node * has.cores // wanted.per_node)
    return replace(wanted, cpus_per_engine=wanted.cpus_per_engine or share), present_job()
