"""Coming back to a reconstruction: to one that still runs (`attach`), or to its last kept state (`resume`)."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ptynb.cluster import runtime_dir
from ptynb.cluster.cluster import Cluster
from ptynb.data.scan import Scan
from ptynb.data.snapshot import Status
from ptynb.engine import registry
from ptynb.exceptions import ClusterError, FileError
from ptynb.io import checkpoint_branches
from ptynb.io.checkpoint_dir import default_folder
from ptynb.io.checkpoint_file import identity, load_state
from ptynb.io.load import load
from ptynb.session.engines import ClusterEngines
from ptynb.session.reconstruction import Reconstruction
from ptynb.session.spec import OnFailure, Opening
from ptynb.settings import Checkpointing, Settings


@dataclass(frozen=True)
class Running:
    """A reconstruction that is open on a cluster.

    name: that of its cluster; where it is one of several there, with its group's: "cluster/group".
    opened: when, seconds since 1970. places: the engines, in the order of the group's ranks.
    """

    name: str
    cluster: Cluster
    opening: Opening
    status: Status
    group: str
    places: list[int]

    def __str__(self) -> str:
        since = time.strftime("%d %b %H:%M", time.localtime(self.opening.opened))
        where = f"{self.status.state} at epoch {self.status.epoch} of {self.status.target}"
        return f"'{self.name}' ({self.opening.scan.name}, {where}, since {since})"


def attach(name: str | None = None) -> Reconstruction:
    """Joins a reconstruction that goes on without its notebook, or that this notebook has lost sight of.

    name: of its cluster, as `ptynb ps` lists it; needed only where there are several. Of several on one cluster: what
        the error that lists them says. The record is whole, the live view works, and from now on this process holds
        the cluster.

    Raises ClusterError where there is none (then `resume` goes on from its last state), or where another process that
    still lives holds it.
    """
    found = _running(name)
    if not found:
        wanted = "No reconstruction runs" if name is None else f"No reconstruction runs on a cluster named {name!r}"
        raise ClusterError(f"{wanted}. {_last_kept()}")
    if len(found) > 1:
        for one in found:
            _let_go(one.cluster)
        listed = "; ".join(str(one) for one in found)
        raise ClusterError(f"Several reconstructions run: {listed}. Name one: attach({found[0].name!r}).")
    chosen = found[0]
    chosen.cluster.hold()
    engines = ClusterEngines.joined(chosen.cluster, chosen.group, chosen.places)
    return Reconstruction._joined(chosen.cluster, engines, chosen.opening, chosen.status)


def going_on(scan: Scan | None = None) -> dict[str, str]:
    """Runs that go on and that no living process holds: for each its name for `attach`, and what it is, in words.

    scan: those of this scan, or of what was made of the same file; None: of all. A cluster that does not answer is left
    out.
    """
    found: dict[str, str] = {}
    for folder in runtime_dir.known_clusters():
        if Cluster.holder(folder) is None and (cluster := Cluster.joined(folder)) is not None:
            here = _on(cluster)
            _let_go(cluster)
            found |= {one.name: str(one) for one in here if scan is None or _same(scan, one.opening.scan)}
    return found


def any_held_elsewhere() -> bool:
    """Whether another process that lives holds a cluster, such as the kernel of a page that is being left."""
    holders = [Cluster.holder(folder) for folder in runtime_dir.known_clusters()]
    return any(holder is not None and holder.pid != os.getpid() for holder in holders)


def _same(one: Scan, other: Scan) -> bool:
    first, second = identity(one), identity(other)
    return first["file"] == second["file"] if first["file"] is not None else first == second


def _running(name: str | None) -> list[Running]:
    found = []
    for folder in runtime_dir.known_clusters():
        if name is not None and folder.name != name.partition("/")[0]:
            continue
        cluster = Cluster.joined(folder)
        if cluster is None:
            if name is not None:
                raise ClusterError(
                    f"The cluster {folder.name!r} does not answer; 'ptynb stop {folder.name}' ends what is left of it."
                )
            continue
        running = [one for one in _on(cluster) if name in (None, cluster.name, one.name)]
        if not running:
            _let_go(cluster)
        found += running
    return found


def _on(cluster: Cluster) -> list[Running]:
    places = cluster.alive()
    answers = cluster.call_all(places, registry.joinable, [()] * len(places), timeout=10.0)
    by_group: dict[str, dict[int, tuple[int, Opening, Status]]] = {}
    for place, found in zip(places, answers, strict=True):
        for group, opening, settings, status in found:
            present = replace(opening, settings=settings)
            by_group.setdefault(group, {})[status.rank] = place, present, status
    running = []
    for group, members in by_group.items():
        first = min(members)
        _, opening, status = members[first]
        # Where one was lost meanwhile, its place is one of those that nobody of the group is at.
        possible = {*(range(len(cluster)) if opening.ranks is None else opening.ranks)}
        free = iter(sorted(possible - {place for place, _, _ in members.values()}))
        in_order = [members[rank][0] if rank in members else next(free) for rank in range(status.world)]
        name = cluster.name if len(by_group) == 1 else f"{cluster.name}/{group}"
        running.append(Running(name, cluster, opening, status, group, in_order))
    return running


def _let_go(cluster: Cluster) -> None:
    """Of a cluster that was only asked; one that this process holds stays."""
    if not cluster.held_here:
        cluster.detach()


def _last_kept() -> str:
    found = (path for place in ("*", "*/branches/*") for path in default_folder().glob(f"{place}/state-*.h5"))
    newest = max(found, key=lambda path: path.stat().st_mtime, default=None)
    if newest is None:
        return "And no state of one was kept."
    folder = checkpoint_branches.root_of(newest.parent)
    return f"The last state was kept in {folder}: ptynb.resume({str(folder)!r}) goes on from it."


def resume(
    path: str | Path,
    scan: Scan | None = None,
    cluster: Cluster | None = None,
    *,
    settings: Settings | None = None,
    device: str = "auto",
    timeout: float = 30.0,
    extensions: Sequence[Any] = (),
    checkpointing: Checkpointing | None = None,
    on_failure: OnFailure = "pause",
) -> Reconstruction:
    """A reconstruction that goes on from a kept state, bit for bit on as many engines.

    path: of a state file, or of the folder with states: the newest is taken, of the branch that was worked on last.
    scan: that it is of; None: from the file it was in. settings: to go on with; None: those of the state.
    extensions: the same ones as before. checkpointing: None: as usual, in the folder of the state.
    The others are those of `Reconstruction`.

    Raises FileError where the state is truncated, damaged or foreign; the sentence names the one before it.
    """
    path = Path(path).expanduser().absolute()  # engines need not be where the notebook is
    start = checkpoint_branches.newest(path) if path.is_dir() else path
    state = load_state(start)
    if scan is None:
        file = state.scan.get("file")
        if file is None:
            raise FileError(
                f"{start} is the state of the scan '{state.scan.get('name')}', which was in no file; make that scan, "
                "and give it: resume(path, scan)."
            )
        scan = load(file)
    if checkpointing is None:
        inside = checkpoint_branches.root_of(start.absolute().parent).parent == default_folder()
        checkpointing = Checkpointing() if inside else Checkpointing(folder=start.absolute().parent)
    chosen = settings or Settings(**state.settings)
    return Reconstruction._from_state(
        start, state, scan, chosen, cluster, device, timeout, extensions, checkpointing, on_failure
    )
