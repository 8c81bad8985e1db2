"""The clusters of this user, found by their processes and folders: running ones, and remains of earlier ones.

A process belongs to a cluster if the cluster's folder lists it, by id and start time together, or if its environment
contains exactly this cluster's name. No other process is included, whatever its name.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shlex
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import psutil

from ptynb.cluster import runtime_dir
from ptynb.cluster.gpus import memory_by_process
from ptynb.cluster.lifetime import watchdog
from ptynb.cluster.lifetime.watchdog import MARK
from ptynb.cluster.rpc import Caller
from ptynb.cluster.runtime_dir import client_file
from ptynb.engine import keepalive, run_registry
from ptynb.io import checkpoint_branches
from ptynb.io.checkpoint_dir import default_folder
from ptynb.io.checkpoint_file import NAME, newest_written, states

LOOK_SECONDS = 2.0
"""Time limit of a query of a cluster's status [s]."""
ROUNDS = 3
"""Number of searches for remaining processes: the holder may have just replaced an engine."""
NEW_SECONDS = 60.0
"""A folder without a recorded holder is being set up, unless it is older than this [s]."""

Place = Literal["here", "before", "elsewhere"]
"""Location of a cluster: this machine, this machine before it was restarted, or another one."""


@dataclass(frozen=True, order=True)
class Process:
    """A process that belongs to a cluster. start: seconds since 1970."""

    pid: int
    start: float

    @property
    def key(self) -> tuple[int, float]:
        """Return (id, start time), for functions of the watchdog."""
        return self.pid, self.start


@dataclass(frozen=True)
class Work:
    """A reconstruction on a cluster, as its engines report it.

    state, epoch, target: as in `Status`. checkpointing: whether checkpoints are written; folder: of these,
    if it is known.
    """

    scan: str
    state: str
    epoch: int
    target: int
    checkpointing: bool
    folder: Path | None

    @property
    def under_way(self) -> bool:
        """Whether it is active, so that a user may reconnect to it."""
        return self.state in ("loading", "running", "paused")

    def __str__(self) -> str:
        return f"{self.scan}: {self.state}, epoch {self.epoch} of {self.target}"


@dataclass(frozen=True)
class FoundCluster:
    """A cluster, or what remains of one.

    folder: None if it is removed. started: seconds since 1970. planned: requested number of engines.
    engines: their processes on this machine: engines, or the ssh or srun that started them. others: controller,
    schedulers, nannies, watchdog. unlisted: engines that its folder does not list any more; also part of `engines`.
    answering: engines that answered, and work: their report; None if they were not queried, or did not answer.
    holder: the running process that holds it. lease_ends: if no process holds it and its watchdog has noticed.
    setting_up: whether its description may not be written yet. controlled: whether its controller runs.
    memory: on GPUs, of its processes here [MiB]; None if it was not queried, or without a driver.
    """

    name: str
    folder: Path | None
    place: Place
    machine: str
    kind: str
    started: float | None
    planned: int | None
    engines: tuple[Process, ...]
    others: tuple[Process, ...]
    unlisted: tuple[Process, ...]
    holder: int | None
    lease_ends: float | None
    setting_up: bool
    controlled: bool
    memory: int | None = None
    answering: int | None = None
    work: Work | None = None

    @property
    def processes(self) -> tuple[Process, ...]:
        """All processes."""
        return tuple(sorted({*self.engines, *self.others}))

    @property
    def alive(self) -> int | None:
        """Number of running engines; None if it cannot be determined from this machine."""
        if self.place != "elsewhere" and self.kind in ("", "local"):
            return len(self.engines) - len(self.unlisted)
        return self.answering

    @property
    def orphaned(self) -> bool:
        """Whether no process holds it and no reconstruction is active that a user may reconnect to."""
        if self.place == "elsewhere" or self.holder is not None or self.setting_up:
            return False
        return self.work is None or not self.work.under_way

    @property
    def note(self) -> str:
        """Return what is wrong with it, or why its status is unknown; empty if neither."""
        if self.place == "elsewhere":
            return f"on {self.machine}: not looked into from here"
        if self.place == "before":
            return "left from before this machine was restarted"
        if self.folder is None:
            return "its folder is gone"
        if not self.processes:
            return "being set up" if self.setting_up else "nothing of it runs"
        if not self.controlled:
            return "its controller is gone"
        if self.unlisted:
            return f"{len(self.unlisted)} of its engines are not listed any more"
        if self.alive == 0:
            return "its engines are gone"
        if not self.answering:
            return "does not answer"
        return ""


def find() -> list[FoundCluster]:
    """Return all clusters of this user, including those of other machines that share the home folder; queries none."""
    marked: dict[str, list[tuple[psutil.Process, dict[str, str]]]] = {}
    for process, environment in watchdog.all_marked():
        marked.setdefault(environment[MARK], []).append((process, environment))
    places: dict[str, Path | None] = {path.name: path for path in runtime_dir.all_folders()}
    for name, own in marked.items():
        places.setdefault(name, _folder_of(name, [process for process, _ in own]))
    return [_found(name, places[name], marked.get(name, [])) for name in sorted(places)]


def again(found: FoundCluster) -> FoundCluster | None:
    """Return its present state; None if nothing remains of it."""
    return next((one for one in find() if one.name == found.name), None)


def _folder_of(name: str, processes: Iterable[psutil.Process]) -> Path | None:
    """Return the folder of a cluster outside this process's default path, from the command lines of its processes."""
    for process in processes:
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        for word in words:
            match = re.fullmatch(rf"(?:--profile-dir=)?(/.*/{re.escape(name)})", word)
            if match and Path(match[1]).is_dir():
                return Path(match[1])
    return None


def _found(name: str, folder: Path | None, marked: list[tuple[psutil.Process, dict[str, str]]]) -> FoundCluster:
    described, holder, listed, alone = (
        {} if folder is None else runtime_dir.read(folder, f"{record}.json")
        for record in ("cluster", "holder", "processes", "alone")
    )
    place = _place(described or holder)
    engines, others, unlisted = set(_listed(listed, "engines")), set(_listed(listed, "others")), set()
    controlled = bool(others)
    for process, environment in marked:
        own = _process(process)
        if own is None or own in engines | others:
            continue
        if _is_engine(process, environment):
            engines.add(own)
            unlisted.add(own)
        else:
            others.add(own)
    held = _holder(folder, holder, {one.pid for one in engines | others})
    ends = alone["since"] + holder.get("lease", 0.0) if held is None and alone and holder else None
    touched = time.time() - folder.stat().st_mtime if folder is not None and folder.exists() else NEW_SECONDS
    return FoundCluster(
        name=name,
        folder=folder,
        place=place,
        machine=str((described or holder).get("machine", platform.node())).split(" ")[0],
        kind=str(described.get("kind", "")),
        started=described.get("started") or min((one.start for one in engines | others), default=None),
        planned=described.get("engines"),
        engines=tuple(sorted(engines)),
        others=tuple(sorted(others)),
        unlisted=tuple(sorted(unlisted)) if described.get("kind") == "local" else (),
        holder=held,
        lease_ends=ends,
        setting_up=not holder and touched < NEW_SECONDS,
        controlled=controlled,
    )


def _place(description: Mapping[str, Any]) -> Place:
    recorded, own = description.get("machine"), keepalive.machine()
    if recorded is None or recorded == own:
        return "here"
    started = description.get("started", description.get("start", float("inf")))
    same_name = str(recorded).split(" ")[0] == own.split(" ")[0]
    # Another machine of the same name (a container, for example) may have started it since this one was started.
    return "before" if same_name and started < psutil.boot_time() else "elsewhere"


def _listed(listed: Mapping[str, Any], kind: str) -> list[Process]:
    """Return the listed processes that run; one with another start time is another process."""
    return [Process(int(pid), start) for pid, start in listed.get(kind, []) if watchdog.is_alive(int(pid), start)]


def _process(process: psutil.Process) -> Process | None:
    try:
        return None if process.status() == psutil.STATUS_ZOMBIE else Process(process.pid, process.create_time())
    except psutil.Error:
        return None


def _is_engine(process: psutil.Process, environment: Mapping[str, str]) -> bool:
    """Whether it is an engine, and not a process that an engine has started."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    return "ptynb.cluster.engine_main" in words and watchdog.rank_of(environment) is not None


def _holder(folder: Path | None, holder: Mapping[str, Any], own: set[int]) -> int | None:
    if folder is not None and holder:
        return int(holder["pid"]) if watchdog.is_alive(int(holder["pid"]), holder["start"]) else None
    return _connected(own) if folder is None else None


def _connected(own: set[int]) -> int | None:
    """Return another process that is connected to one of these: it uses their cluster."""
    try:
        connections = psutil.net_connections("tcp")
    except psutil.Error:  # some systems report connections to the administrator only
        return None
    listen = [one for one in connections if one.pid in own and one.status == psutil.CONN_LISTEN]
    listening = {port for one in listen for port in one.laddr[1:2]}
    for one in connections:
        if one.pid is not None and one.pid not in own and listening & {*one.raddr[1:2]}:
            return int(one.pid)
    return None


def with_memory(found: Iterable[FoundCluster]) -> list[FoundCluster]:
    """Return the same with the GPU memory of their processes."""
    held = memory_by_process()
    if held is None:
        return [*found]
    return [replace(one, memory=sum(held.get(process.pid, 0) for process in one.processes)) for one in found]


def look(found: FoundCluster) -> FoundCluster:
    """Return the same with the report of its engines, if it is on this machine; does not change the cluster."""
    if found.folder is None or found.place != "here" or not found.controlled:
        return found
    try:
        caller = Caller(client_file(found.folder), LOOK_SECONDS, lambda rank: "")
    except (OSError, ValueError):  # it does not answer, or has not written its connection file yet
        return found
    try:
        answering = sorted(caller.find(LOOK_SECONDS))
        return replace(found, answering=len(answering), work=_work(caller, answering, _directory(found)))
    except (OSError, RuntimeError):
        return found
    finally:
        caller.close()


def _directory(found: FoundCluster) -> Path:
    """Return the folder that relative paths of its engines refer to."""
    for process in found.engines:
        with contextlib.suppress(psutil.Error):
            return Path(psutil.Process(process.pid).cwd())
    return Path()


def _work(caller: Caller, ranks: list[int], directory: Path) -> Work | None:
    """Return the report of rank 0, or of another rank if that is lost."""
    found = None
    for rank in ranks:
        for _, opening, _, status in caller.call_all([rank], run_registry.joinable, [()], LOOK_SECONDS)[0]:
            keep = opening.checkpointing
            folder = directory / keep.folder.expanduser() if keep is not None and keep.folder is not None else None
            if status.checkpoint is not None:
                folder = Path(status.checkpoint).parent
            name = opening.scan.name
            found = Work(name, status.state, status.epoch, status.target, keep is not None, folder)
            if status.rank == 0:
                return found
    return found


@dataclass(frozen=True)
class Ended:
    """Outcome of ending a cluster. checkpoint: the newest checkpoint that it wrote, if any. failures: messages."""

    checkpoint: Path | None
    failures: tuple[str, ...]

    @property
    def epoch(self) -> str:
        """Epoch of the checkpoint: '41', or '41 and 7 updates of the next'."""
        match = None if self.checkpoint is None else NAME.fullmatch(self.checkpoint.name)
        if match is None:
            return ""
        return str(int(match[1])) + (f" and {int(match[2])} updates of the next" if match[2] else "")


def end(found: FoundCluster) -> Ended:
    """End all processes: engines first, with a minute to write a checkpoint, then the others; TERM, and then KILL.

    Its folder remains if a process could not be ended, so that the command can be repeated.
    """
    began = time.time_ns()
    if found.folder is not None:
        with contextlib.suppress(OSError):
            runtime_dir.write(found.folder, "stopping.json", {"pid": os.getpid()})
    commands = [] if found.folder is None else runtime_dir.read(found.folder, "processes.json").get("end", [])
    failures = [f"this command failed: {shlex.join(command)}" for command in watchdog.run(commands)]
    left: list[psutil.Process] = []
    present: FoundCluster | None = found
    for _ in range(ROUNDS):
        if present is None or not present.processes:
            break
        left = watchdog.end((one.key for one in present.engines), watchdog.KEEPING_SECONDS)
        left += watchdog.end((one.key for one in present.others), watchdog.GRACE_SECONDS)
        present = again(found)
    if found.folder is not None and not left and not failures:
        shutil.rmtree(found.folder, ignore_errors=True)
        if found.folder.exists():
            failures.append(f"its folder {found.folder} could not be removed")
        late = again(found)  # without the folder no process can be started any more
        left = [] if late is None else watchdog.end((one.key for one in late.processes), watchdog.GRACE_SECONDS)
    failures += [f"its process {process.pid} did not end" for process in left]
    return Ended(_state_since(found, began), tuple(failures))


def _state_since(found: FoundCluster, began: int) -> Path | None:
    """Return its newest checkpoint; in ptynb's default folder for checkpoints, one written since `began` [ns]."""
    if found.work is None or not found.work.checkpointing:
        return None
    folder = found.work.folder
    if folder is None:
        found_lines = [line for path in default_folder().glob("*") for line in checkpoint_branches.lines(path)]
        fresh = [line for line in found_lines if newest_written(line) >= began]
        line = max(fresh, key=newest_written, default=None)
    else:
        line = checkpoint_branches.last_line(folder)
    written = [] if line is None else states(line)
    return written[-1] if written else None
