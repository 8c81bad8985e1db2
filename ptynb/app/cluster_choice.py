"""The cluster of the next run, without widgets: what was typed, and start, use and end of what was chosen."""

from __future__ import annotations

import os
import re
import shlex
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from ptynb.app.session_state import Desk
from ptynb.cluster import runtime_dir
from ptynb.cluster.cluster import Cluster, Report
from ptynb.cluster.cluster_start import check, python_of, start_cluster
from ptynb.engine import keepalive
from ptynb.exceptions import ClusterError, InvalidValueError
from ptynb.settings.cluster_options import (
    LOCAL_DEVICES,
    OFFERED_DEVICES,
    ClusterSection,
    LocalCluster,
    NoCluster,
    SlurmCluster,
    SshCluster,
)
from ptynb.text import counted

LOCAL, SLURM, SSH, EXISTING = "local", "slurm", "ssh", "existing"
TITLES = {LOCAL: "this machine", SLURM: "Slurm", SSH: "ssh hosts", EXISTING: "existing cluster"}
"""Launchers, as they are offered."""
SECTIONS = {LOCAL: LocalCluster, SLURM: SlurmCluster, SSH: SshCluster}
LAUNCHER = "launcher"
"""Field of errors that are about no option of the launcher."""


@dataclass(frozen=True)
class Existing:
    """A running cluster, by its name in `ptynb ps`."""

    name: str


Chosen = ClusterSection | Existing
"""What the next run uses; `NoCluster`: the process of the notebook."""


@dataclass(frozen=True)
class ClusterOption:
    """An option of a launcher as a form shows it. usual: what an empty field means; initial: what it contains first.

    choices: empty for text.
    """

    title: str
    description: str
    usual: str
    initial: str
    choices: tuple[str, ...]


def options_of(launcher: str) -> dict[str, ClusterOption]:
    """Return the options of a launcher by name, in their order."""
    return {
        name: ClusterOption(
            field.title or name.replace("_", " ").capitalize(),
            field.description or "",
            _usual(field.description or ""),
            f"{field.default:g}" if isinstance(field.default, float) else "",
            tuple(one for one in OFFERED_DEVICES if launcher == LOCAL or one not in LOCAL_DEVICES)
            if name == "device"
            else (),
        )
        for name, field in SECTIONS[launcher].model_fields.items()
        if name != "kind"
    }


def _usual(description: str) -> str:
    """Return what the description says of an empty field, or else its example."""
    _, empty, usual = description.partition("; none: ")
    _, such, example = description.partition("such as ")
    return usual if empty else f"such as {example.partition(';')[0]}" if such else ""


def section_of(launcher: str, texts: Mapping[str, str]) -> ClusterSection:
    """Return the options that were typed, of which empty ones are not set. Raises an error with the names in `fields`.

    Commands and lists of options are typed as in a shell, hosts as "gpu1, gpu2" or with numbers of engines "gpu1=4".
    """
    section = SECTIONS[launcher]
    return section(**{name: _parsed(section, name, text.strip()) for name, text in texts.items() if text.strip()})


def _parsed(section: type[ClusterSection], name: str, text: str) -> Any:
    annotation = section.model_fields[name].annotation
    kinds = {get_origin(kind) for kind in (annotation, *get_args(annotation))}
    if dict in kinds:
        return _hosts(text)
    if tuple not in kinds:
        return text
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise InvalidValueError(
            f"{text!r:.100} has a quote without its second one ({error}); expected words as in a shell.",
            code="argument.invalid-value",
            fields=(name,),
        ) from None


def _hosts(text: str) -> dict[str, str | None] | list[str]:
    """Return hosts with their numbers of engines; a list if none is given, or if a name comes twice."""
    pairs = [one.partition("=") for one in re.split(r"[,\s]+", re.sub(r"\s*=\s*", "=", text)) if one]
    names = [name for name, _, _ in pairs]
    if len(set(names)) < len(names) or not any(equals for _, equals, _ in pairs):
        return names
    return {name: number if equals else None for name, equals, number in pairs}


def existing_clusters() -> dict[str, str]:
    """Return the running clusters of this machine that no other process holds: descriptions by name."""
    found = {}
    for folder in runtime_dir.known_clusters():
        holder, described = Cluster.holder(folder), runtime_dir.read(folder, "cluster.json")
        ours = holder is None or (holder.pid, holder.machine) == (os.getpid(), keepalive.machine())
        if ours and described.get("plan") and described["machine"] == keepalive.machine():
            held = "" if holder is not None else ", without a notebook"
            found[folder.name] = f"{folder.name}: {described['kind']}, {counted(described['engines'], 'engine')}{held}"
    return found


def lines_of(chosen: Chosen) -> list[str]:
    """Return the lines of Python that make `cluster`; an existing one that nobody holds is held from then on."""
    if isinstance(chosen, NoCluster):
        return []
    if not isinstance(chosen, Existing):
        return [f"cluster = {python_of(chosen)}"]
    held = Cluster.holder(runtime_dir.folder_of(chosen.name)) is not None
    return [f"cluster = pt.Cluster.joined({chosen.name!r})", *([] if held else ["cluster.hold()"])]


def _beginning(chosen: ClusterSection) -> str:
    if chosen.kind == SLURM:
        return "asking Slurm for nodes …"
    return f"starting {'engines by ssh' if chosen.kind == SSH else counted(chosen.engines, 'engine')} …"


class RunCluster:
    """The cluster of the workbench: that with which it was opened, or what is chosen, until another one is chosen.

    given: whether it is that with which the workbench was opened, which the workbench neither starts nor stops.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.given = desk.cluster is not None
        self._own: Cluster | None = None
        self._chosen: Chosen | None = None

    def use(self, chosen: Chosen, report: Report, cancel: threading.Event) -> None:
        """Make what was chosen the cluster of the desk, and end that which the workbench had started before.

        report: called with what a start waits for; cancel: ends that wait. Raises ClusterError, for what can be known
        beforehand before anything is ended.
        """
        desk = self._desk
        if self.given:
            if desk.cluster is not None and not desk.cluster.running:
                raise InvalidValueError(
                    "The cluster of this workbench was stopped; call its start() again.",
                    code="workbench.cluster-stopped",
                )
            return
        if desk.cluster is not None and desk.cluster.running and chosen == self._chosen:
            return
        lines = lines_of(chosen)
        joined = self._check(chosen)
        if self._own is not None and self._own is not joined:
            self.stop()
        self._chosen = None
        if isinstance(chosen, NoCluster):
            if desk.cluster is not None:
                desk.cluster = None
            return
        if joined is None:
            assert not isinstance(chosen, Existing)
            report(_beginning(chosen))
            joined = self._own = start_cluster(chosen, report, cancel)
        elif len(lines) > 1:  # nobody else has it
            self._own = joined
        desk.cluster, self._chosen = joined, chosen
        for line in lines:
            desk.tell(line)

    def _check(self, chosen: Chosen) -> Cluster | None:
        """Refuse what would fail; return the cluster if it exists already, held by this process."""
        if not isinstance(chosen, Existing):
            try:
                check(chosen)
            except ClusterError as error:
                error.fields = error.fields or (LAUNCHER,)
                raise
            return None
        cluster = Cluster.joined(runtime_dir.folder_of(chosen.name))
        if cluster is None:
            raise ClusterError(
                f"The cluster {chosen.name!r} does not answer any more; choose another one, or another launcher.",
                code="cluster.not-reachable",
                fields=(EXISTING,),
            )
        try:
            cluster.hold()
        except ClusterError as error:  # another process was faster
            cluster.detach()
            error.fields = (EXISTING,)
            raise
        return cluster

    def adopt(self, cluster: Cluster) -> None:
        """Take over the cluster of a run that was attached to."""
        self._desk.cluster = self._own = cluster
        self._chosen, self.given = Existing(cluster.name), False

    def stop(self) -> None:
        """End the run and the engines that the workbench has started."""
        if self._own is None:
            raise InvalidValueError(
                "The workbench has not started engines; stop a cluster of your own with cluster.stop().",
                code="workbench.no-cluster",
            )
        try:
            if self._desk.recon is not None:
                self._desk.recon.close()
        finally:
            self._own.stop()
            self._own = self._desk.cluster = self._chosen = None
            self._desk.tell("cluster.stop()")
