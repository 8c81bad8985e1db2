"""The cluster of the next run, without widgets: what was typed, and start, use and end of what was chosen."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from ptynb.cluster import runtime_dir
from ptynb.cluster.cluster import Cluster
from ptynb.cluster.cluster_start import check, python_of
from ptynb.engine import keepalive
from ptynb.exceptions import ClusterError, InvalidValueError
from ptynb.settings.cluster_options import QUEUED, ClusterSection, LauncherPlugin, NoCluster, all_sections
from ptynb.text import counted

LOCAL, SLURM, SSH, EXISTING = "local", "slurm", "ssh", "existing"
LAUNCHER = "launcher"
"""Field of errors that are about no option of the launcher."""


@dataclass(frozen=True)
class Existing:
    """A running cluster, by its name in `ptynb ps`."""

    name: str


Chosen = ClusterSection | Existing
"""What the next run uses; `NoCluster`: the process of the notebook."""


def section_of(launcher: str, texts: Mapping[str, str]) -> ClusterSection:
    """Return the options that were typed, of which empty ones are not set. Raises an error with the names in `fields`.

    Commands and lists of options are typed as in a shell, hosts as "gpu1, gpu2" or with numbers of engines "gpu1=4".
    """
    section = all_sections()[launcher]
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


def start_text(chosen: ClusterSection) -> str:
    """Return what is being done while a cluster starts."""
    if chosen.kind in QUEUED:
        return "asking Slurm for nodes …" if chosen.kind == SLURM else f"submitting jobs to {chosen.kind} …"
    if isinstance(chosen, LauncherPlugin):
        return f"starting {counted(chosen.engines, 'engine')} by {chosen.kind} …"
    return f"starting {'engines by ssh' if chosen.kind == SSH else counted(chosen.engines, 'engine')} …"


def checked_cluster(chosen: Chosen) -> Cluster | None:
    """Refuse what would fail; return the cluster if it exists already, held by this process. Raises ClusterError."""
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
