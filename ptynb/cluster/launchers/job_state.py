"""A job of Slurm: its state, and what to say of it."""

from __future__ import annotations

import time
from dataclasses import dataclass

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
