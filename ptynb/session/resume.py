"""Reconnect to a running reconstruction (`attach`), or continue from a checkpoint (`resume`)."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ptynb.cluster import runtime_dir
from ptynb.cluster.cluster import Cluster
from ptynb.data.engine_records import Status
from ptynb.data.provenance import ScanIdentity
from ptynb.data.scan import Scan
from ptynb.engine import run_registry
from ptynb.engine.checkpoint_loading import plan_and_settings
from ptynb.exceptions import ClusterError, PtynbWarning
from ptynb.io import checkpoint_branches
from ptynb.io.checkpoint_dir import default_folder
from ptynb.io.checkpoint_file import ReconstructionState, identity, load_state
from ptynb.io.prepared_scan import loaded_again
from ptynb.plugins import other_versions
from ptynb.session.engines import ClusterEngines
from ptynb.session.reconstruction import Reconstruction, place_for
from ptynb.session.recorded_arrivals import measured_again
from ptynb.session.run_spec import OnFailure, RunSpec, pickled
from ptynb.settings import Checkpointing, Settings
from ptynb.settings.recipe import Recipe, StagePlan


@dataclass(frozen=True)
class Running:
    """A reconstruction that is open on a cluster.

    name: name of the cluster, or "cluster/group" if the cluster has several reconstructions. ranks: ranks in the
    cluster, in the order of the ranks in the group.
    """

    name: str
    cluster: Cluster
    spec: RunSpec
    status: Status
    group: str
    ranks: list[int]

    def __str__(self) -> str:
        since = time.strftime("%d %b %H:%M", time.localtime(self.spec.opened))
        where = f"{self.status.state} at epoch {self.status.epoch} of {self.status.target}"
        return f"'{self.name}' ({self.spec.scan.name}, {where}, since {since})"


def attach(name: str | None = None) -> Reconstruction:
    """Connect to a reconstruction that continues to run after its notebook has ended.

    The returned object has the complete record of the run, and this process becomes the holder of the cluster.

    Parameters
    ----------
    name : str, optional
        Name of the cluster, as listed by `ptynb ps`; only needed if there are several. If the cluster has several
        reconstructions: the name in the error that lists them.

    Returns
    -------
    Reconstruction
        Reconstruction connected to the engines.

    Raises
    ------
    ClusterError
        If there is none ("reconstruction.not-found"; `resume` continues from its latest checkpoint), if there are
        several ("reconstruction.ambiguous"), or if another running process holds the cluster
        ("cluster.held-elsewhere").
    """
    runs = _running(name)
    if not runs:
        where = "" if name is None else f" on a cluster named {name!r}"
        raise ClusterError(f"No reconstruction runs{where}. {_latest_checkpoint()}", code="reconstruction.not-found")
    if len(runs) > 1:
        for one in runs:
            _release(one.cluster)
        raise ClusterError(
            f"Several reconstructions run: {'; '.join(map(str, runs))}. Choose one: attach({runs[0].name!r}).",
            code="reconstruction.ambiguous",
        )
    chosen = runs[0]
    chosen.cluster.hold()
    engines = ClusterEngines.joined(chosen.cluster, chosen.group, chosen.ranks)
    return Reconstruction._joined(chosen.cluster, engines, chosen.spec, chosen.status)


def going_on(scan: Scan | None = None) -> dict[str, str]:
    """Return the runs that no process holds, as name for `attach` -> description.

    scan: restrict to runs of this scan, or of the same file. Clusters that do not answer are omitted.
    """
    runs: dict[str, str] = {}
    for folder in runtime_dir.known_clusters():
        if Cluster.holder(folder) is None and (cluster := Cluster.joined(folder)) is not None:
            here = _on(cluster)
            _release(cluster)
            runs |= {one.name: str(one) for one in here if scan is None or _same(scan, one.spec.scan)}
    return runs


def any_held_elsewhere() -> bool:
    """Whether another running process holds a cluster, such as the kernel of a page that is being closed."""
    holders = [Cluster.holder(folder) for folder in runtime_dir.known_clusters()]
    return any(holder is not None and holder.pid != os.getpid() for holder in holders)


def _same(one: Scan, other: Scan) -> bool:
    first, second = identity(one), identity(other)
    return first["file"] == second["file"] if first["file"] is not None else first == second


def _running(name: str | None) -> list[Running]:
    runs = []
    for folder in runtime_dir.known_clusters():
        if name is not None and folder.name != name.partition("/")[0]:
            continue
        cluster = Cluster.joined(folder)
        if cluster is None:
            if name is not None:
                raise ClusterError(
                    f"The cluster {folder.name!r} does not answer; 'ptynb stop {folder.name}' ends its processes.",
                    code="cluster.not-reachable",
                )
            continue
        running = [one for one in _on(cluster) if name in (None, cluster.name, one.name)]
        if not running:
            _release(cluster)
        runs += running
    return runs


def _on(cluster: Cluster) -> list[Running]:
    ranks = cluster.alive()
    answers = cluster.call_all(ranks, run_registry.joinable, [()] * len(ranks), timeout=10.0)
    by_group: dict[str, dict[int, tuple[int, RunSpec, Status]]] = {}
    for cluster_rank, answer in zip(ranks, answers, strict=True):
        for group, spec, settings, status in answer:
            present = replace(spec, settings=settings, plan=replace(spec.plan, number=status.stage))
            by_group.setdefault(group, {})[status.rank] = cluster_rank, present, status
    running = []
    for group, members in by_group.items():
        _, spec, status = members[min(members)]
        # A group rank that no engine reports belonged to an engine that is lost.
        possible = {*(range(len(cluster)) if spec.ranks is None else spec.ranks)}
        free = iter(sorted(possible - {cluster_rank for cluster_rank, _, _ in members.values()}))
        in_order = [members[rank][0] if rank in members else next(free) for rank in range(status.world)]
        name = cluster.name if len(by_group) == 1 else f"{cluster.name}/{group}"
        running.append(Running(name, cluster, spec, status, group, in_order))
    return running


def _release(cluster: Cluster) -> None:
    """Disconnect from a cluster, unless this process holds it."""
    if not cluster.held_here:
        cluster.detach()


def _latest_checkpoint() -> str:
    paths = (path for folder in ("*", "*/branches/*") for path in default_folder().glob(f"{folder}/state-*.h5"))
    newest = max(paths, key=lambda path: path.stat().st_mtime, default=None)
    if newest is None:
        return "There is no checkpoint either."
    folder = checkpoint_branches.root_of(newest.parent)
    return f"The latest checkpoint is in {folder}: ptynb.resume({str(folder)!r}) continues from it."


def resume(
    path: str | Path,
    scan: Scan | None = None,
    cluster: Cluster | None = None,
    *,
    settings: Settings | Recipe | None = None,
    device: str = "auto",
    timeout: float = 30.0,
    extensions: Sequence[Any] = (),
    checkpointing: Checkpointing | None = None,
    on_failure: OnFailure = "pause",
) -> Reconstruction:
    """Continue from a checkpoint; with the same number of engines the result is bitwise equal to an uninterrupted run.

    Parameters
    ----------
    path : str or Path
        Checkpoint, or folder with checkpoints, of which the newest on the last used branch is taken.
    scan : Scan, optional
        Scan of the run. None: it is loaded from its file.
    cluster : Cluster, optional
        As for `Reconstruction`.
    settings : Settings or Recipe, optional
        Settings to continue with, or a recipe with the remaining stages, too; its preparation is applied to a scan that
        is loaded here. None: those of the checkpoint, with its stages.
    device : {"auto", "cpu", "cuda", "xpu"}
        As for `Reconstruction`.
    timeout : float
        As for `Reconstruction` [s].
    extensions : sequence of ModelComponent or CustomConstraint
        Components and constraints of the run.
    checkpointing : Checkpointing, optional
        Options of further checkpoints. None: the defaults, in the folder of the checkpoint.
    on_failure : {"pause", "continue"}
        As for `Reconstruction`.

    Returns
    -------
    Reconstruction
        Reconstruction in the state of the checkpoint.

    Raises
    ------
    FileError
        If the checkpoint is truncated, damaged or of another program; the message names the previous one.
    """
    path = Path(path).expanduser().absolute()  # engines may have another working directory
    start = checkpoint_branches.newest(path) if path.is_dir() else path
    if checkpointing is None:
        inside = checkpoint_branches.root_of(start.parent).parent == default_folder()
        checkpointing = Checkpointing() if inside else Checkpointing(folder=start.parent)
    state = load_state(start)
    for remark in other_versions(state.plugins, loads=scan is None):
        warnings.warn(remark, PtynbWarning, stacklevel=2)
    scan = scan_of_state(state, start) if scan is None else scan
    plan, chosen = to_continue_with(state, settings)
    spec = RunSpec(scan, chosen, pickled(extensions, plan), checkpointing, timeout, on_failure, plan=plan)
    return Reconstruction._opened(spec, place_for(device, cluster), start, state)


def to_continue_with(state: ReconstructionState, given: Settings | Recipe | None) -> tuple[StagePlan, Settings]:
    """Return stages and settings to continue with from a checkpoint: those given, else its own."""
    plan, chosen = StagePlan.of(state.stages, state.stage), Settings(**state.settings)
    if isinstance(given, Recipe):
        plan, chosen = plan_and_settings(state, StagePlan(given.stages, state.stage), chosen)
        if given.stages or not state.stages:
            chosen = given.stage_settings[state.stage]
    elif given is not None:
        chosen = given
    return plan, chosen


def scan_of_state(state: ReconstructionState, start: Path) -> Scan:
    """Load the scan of a checkpoint with the options and the preparation of the run."""
    seen = state.scan
    opened = seen.get("opened", {})  # older checkpoints have only the file of the patterns
    then = ScanIdentity(
        name=seen.get("name", ""),
        path=opened.get("path") or seen.get("file") or "",
        given=opened.get("given", {}),
        arrays=tuple(opened.get("arrays", ())),
        preparation=tuple(seen.get("preparation", ())),
        combination=seen.get("combination", {}),
    )
    if state.admissions is not None and then.path and not then.arrays:
        return measured_again(Path(then.path), state.admissions)
    return loaded_again(then, start, "resume(path, scan)")
