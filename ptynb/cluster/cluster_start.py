"""The cluster of a section `cluster`, of a run file or of a form: its start, and the same as Python."""

from __future__ import annotations

import threading
from typing import Any

from ptynb.cluster.addresses import site_address
from ptynb.cluster.cluster import Cluster, Report
from ptynb.cluster.launchers import scheduler_commands, slurm_commands
from ptynb.cluster.launchers.scheduler_commands import SCHEDULERS
from ptynb.cluster.launchers.ssh_launcher import Remote, ask_hosts
from ptynb.settings.cluster_options import QUEUED, ClusterSection, LauncherPlugin
from ptynb.settings.site_file import with_site_defaults

METHODS = ("slurm", "ssh")
"""Kinds of clusters that a class method of `Cluster` starts."""


def start_cluster(chosen: ClusterSection, report: Report, cancel: threading.Event | None = None) -> Cluster:
    """Start a cluster of this kind. Raises ClusterError.

    report: called with what it waits for, such as a queue. cancel: ends that wait when another thread sets it.
    """
    first, given = _arguments(chosen)
    if chosen.kind in QUEUED or isinstance(chosen, LauncherPlugin):
        given |= {"report": report, "cancel": cancel}
    start = getattr(Cluster, chosen.kind) if chosen.kind in METHODS else Cluster
    cluster: Cluster = start(*first, **given)
    return cluster


def python_of(chosen: ClusterSection) -> str:
    """Return the start as Python, with the options that are not defaults: `pt.Cluster.slurm(nodes=2)`."""
    first, given = _arguments(chosen)
    arguments = ", ".join([*map(repr, first), *(f"{name}={value!r}" for name, value in given.items())])
    return f"pt.Cluster{f'.{chosen.kind}' if chosen.kind in METHODS else ''}({arguments})"


def check(chosen: ClusterSection) -> None:
    """Refuse what can be known to fail before anything is started. Raises ClusterError."""
    if chosen.kind == "ssh":
        ask_hosts([*chosen.hosts], Remote.of(chosen))
    if chosen.kind in SCHEDULERS:
        scheduler_commands.require(SCHEDULERS[chosen.kind].title, SCHEDULERS[chosen.kind].submit[0])
        scheduler_commands.template(chosen.template)
    if chosen.kind == "slurm":
        allocation, _ = slurm_commands.choose(with_site_defaults(chosen))
        if not chosen.address and not site_address():
            slurm_commands.own_address(allocation.partition)


def _arguments(chosen: ClusterSection) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and the keyword arguments; hosts without numbers of engines are a list of names."""
    given = chosen.model_dump(exclude={"kind"}, exclude_defaults=True)
    first = [given.pop(name) for name in ("engines", "hosts") if name in given]
    if (chosen.kind in SCHEDULERS and chosen.kind != "slurm") or isinstance(chosen, LauncherPlugin):
        given = {"launcher": chosen.kind, **given}
    if chosen.kind == "ssh" and not any(chosen.hosts.values()):
        first = [[*chosen.hosts]]
    return first, given
