"""Functions that ranks run in tests of checkpoints, importable by other processes."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ptynb.data.commands import CheckpointRequest, CloseRun, Command, LeaveRun, StartRun
from ptynb.data.scan import Scan
from ptynb.distributed.group import Group, Membership, join
from ptynb.engine import checkpoint_loading
from ptynb.engine.loop import Loop
from ptynb.engine.worker import Worker
from ptynb.exceptions import FileError
from ptynb.io import checkpoint_file as files
from ptynb.io.checkpoint_file import ReconstructionState, packed
from ptynb.io.reading.checkpoint_object import Area
from ptynb.physics.components.component import Batch, ModelComponent
from ptynb.settings import Checkpointing, Settings
from tests.engine.work import finished, leave, loaded, obeyed
from tests.waiting import until

Change = tuple[int, dict[str, Any]]
Script = list[tuple[float, Command | None]]
"""Seconds to wait, and then a command; None: wait until the run has ended."""


def run(loop: Loop, updates: int, changes: tuple[Change, ...] = ()) -> None:
    """So many updates in all, with settings that change before some of them."""
    while _done(loop) < updates:
        for before, values in changes:
            if before == _done(loop):
                loop.change(loop.settings.replace(**values))
        loop.step()


def _done(loop: Loop) -> int:
    return loop.epoch * loop.updates + loop.update


def numbers(loop: Loop) -> dict[str, Any]:
    """All that the next updates depend on, without what a clock said."""
    record, arrays = packed(loop.state(loop.loss_sums()))
    record["losses"] = [epoch["loss"] for epoch in record["epochs"]]
    names = "object_change", "probe_change", "position_change"
    record["moved"] = [tuple(epoch[name] for name in names) for epoch in record.pop("epochs")]
    for change in record["changes"]:
        change.pop("when")
    del record["seconds"], record["about"], record["started"]
    mine = {name: values.clone().numpy() for name, values in loop.model.arrays().items()}
    return {**record, **arrays, **{f"mine/{name}": values for name, values in mine.items()}}


def keep_beside(loop: Loop, group: Group, path: Path) -> None:
    """Keeps a state as workers do, each rank its own part."""
    state = loop.state(loop.loss_sums(), target=9)
    token = group.broadcast_object(files.Header("a run", f"{time.time_ns():016x}", 0).token)
    kept = files.image(ReconstructionState(**{**vars(state), "run": "a run", "token": token}), group.rank)
    if group.rank == 0 or state.parts > 1:
        files.put(files.companion(path, group.rank), kept)
    group.broadcast_object(None)


def straight(
    membership: Membership,
    scan: Scan,
    settings: Settings,
    updates: int,
    keep_at: dict[int, Path] | None = None,
    changes: tuple[Change, ...] = (),
    extensions: Any = None,
) -> dict[str, Any]:
    """A run without interruption that keeps states after some updates, or none."""
    group = join(membership)
    loop = Loop(scan, settings, group, extensions() if extensions else ())
    try:
        for after, path in sorted((keep_at or {}).items()):
            run(loop, after, changes)
            keep_beside(loop, group, path)
        run(loop, updates, changes)
        return numbers(loop)
    finally:
        leave(loop, group)


def going_on(
    membership: Membership,
    scan: Scan,
    settings: Settings,
    updates: int,
    path: Path,
    changes: tuple[Change, ...] = (),
    extensions: Any = None,
    layout: str | None = None,
    of_rank_1: Path | None = None,
) -> dict[str, Any]:
    """The same run from a kept state on, by other loops in a new group. layout: of the object, if it is another one.

    of_rank_1: what this engine has in place of the file, as on a machine of its own.
    """
    if membership.rank == 1 and of_rank_1 is not None:
        path = of_rank_1
    found = checkpoint_loading.read_start(path, membership.rank)
    group = join(membership)
    state = checkpoint_loading.shared(found, group)
    assert state is not None
    assert not any(files.of_object(name, one.ndim) for name, one in packed(state)[1].items()), "the group was sent it"
    now = Settings(**state.settings)
    now = now if layout is None else now.replace(object={"layout": layout})
    begun = checkpoint_loading.settings_to_begin_with(state, now)
    loop = Loop(scan, begun, group, extensions() if extensions else ())
    try:
        held = None if loop.tile is None else loop.tile.held
        state = checkpoint_loading.with_object(state, held, group, path)
        loop.restore(checkpoint_loading.with_rows(state, path, loop.shard.patterns), now)
        ahead = loop.shard._ahead
        before = ahead.unexpected if ahead else 0
        run(loop, updates, tuple(change for change in changes if change[0] > _done(loop)))
        assert ahead is None or ahead.unexpected == before, "what was read ahead was not what was asked for"
        return numbers(loop)
    finally:
        leave(loop, group)


def going_on_slowly(
    membership: Membership, scan: Scan, settings: Settings, updates: int, path: Path, seconds: float
) -> dict[str, Any]:
    """As `going_on`, with a disk of rank 1 that takes so long."""
    plain = checkpoint_loading.load_object

    def load(*arguments: Any) -> ReconstructionState:
        time.sleep(seconds)
        return plain(*arguments)

    if membership.rank == 1:
        checkpoint_loading.load_object = load
    try:
        return going_on(membership, scan, settings, updates, path)
    finally:
        checkpoint_loading.load_object = plain


def sent_parts(membership: Membership, path: Path, areas: list[Area | None]) -> tuple[list[str], dict[str, Any]]:
    """Arrays of the object before and after rank 0, which has all of them, sends each rank those of its area."""
    loaded = files.load_state(path) if membership.rank == 0 else None
    group = join(membership)
    try:
        state = checkpoint_loading.shared(loaded, group)
        assert state is not None
        complete = checkpoint_loading.with_object(state, areas[membership.rank], group)
    finally:
        group.close()
    before, after = (
        {name: one for name, one in packed(some)[1].items() if files.of_object(name, one.ndim)}
        for some in (state, complete)
    )
    return [*before], after


def why_not_gone_on(membership: Membership, scan: Scan, settings: Settings, path: Path, layout: str) -> str:
    """What is said on this rank of a file from which the run cannot go on."""
    with pytest.raises(FileError) as raised:
        going_on(membership, scan, settings, 1, path, layout=layout)
    return f"{raised.value.code}: {raised.value}"


def work(
    membership: Membership,
    scan: Scan,
    settings: Settings,
    keep: Checkpointing | None,
    script: Script,
    start: Path | None = None,
    slow: float = 0.0,
) -> dict[str, Any]:
    """A worker driven by (seconds to wait before, command, value), then told to close, if the script does not end it.

    slow: seconds that a file of rank 0 takes to be written.
    """
    plain = files.put
    if slow and membership.rank == 0:

        def put(path: Path, data: memoryview) -> None:
            time.sleep(slow)
            plain(path, data)

        files.put = put
    try:
        worker = Worker(scan, settings, membership, checkpointing=keep, start=start)
        if membership.rank == 0:
            _drive(worker, script)
        worker._thread.join(60)
    finally:
        files.put = plain
    status, loop = worker.status(), worker._loop
    assert loop is not None, status.failure
    model = {name: values.numpy() for name, values in loop.model.arrays().items()}
    return {"status": status, "losses": [epoch.loss for epoch in loop.epochs], "model": model}


def _drive(worker: Worker, script: Script) -> None:
    loaded(worker)
    for seconds, order in script:
        time.sleep(seconds)
        if order is None:
            finished(worker)
            continue
        number = worker.command(order)
        if order == LeaveRun():
            return
        obeyed(worker, number)
    worker.command(CloseRun())


def equal(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Names of what differs in any bit, or is there in one of them only."""
    nothing = np.array(None)
    return [name for name in {*one, *other} if not np.array_equal(one.get(name, nothing), other.get(name, nothing))]


class Fading(ModelComponent):
    """A piece of a user's with a parameter and a buffer that every update changes."""

    name = "fading"
    rate = 0.01

    def __init__(self) -> None:
        super().__init__()
        self.strength = torch.nn.Parameter(torch.zeros(()))
        self.register_buffer("steps", torch.zeros(()))

    def detect(self, intensity: Tensor, batch: Batch) -> Tensor:
        return intensity * (1 + self.strength / (1 + self.steps))

    def update_done(self) -> None:
        self.steps += 1


def fading() -> list[ModelComponent]:
    return [Fading()]


def failing(membership: Membership, scan: Scan, settings: Settings, keep: Checkpointing, epochs: int) -> dict[str, Any]:
    """Rank 1 runs out of memory after so many epochs; the folder's bytes before and after."""
    worker = Worker(scan, settings, membership, checkpointing=keep)
    loop = loaded(worker)
    assert keep.folder is not None
    if membership.rank == 0:
        kept_now(worker, epochs)
        before = {path.name: path.read_bytes() for path in files.states(keep.folder)}
        worker.command(StartRun(100))
    else:
        while loop.epoch < epochs:
            time.sleep(0.001)

        def broken(patterns: Any, members: int, indices: Any = None) -> Any:
            raise MemoryError("no more, says the test")

        loop.shard.batch = broken  # type: ignore[method-assign]
        before = {}
    worker._thread.join(30)
    after = {path.name: path.read_bytes() for path in files.states(keep.folder)}
    return {"status": worker.status(), "before": before, "after": after}


def full_disk(membership: Membership, scan: Scan, keep: Checkpointing) -> dict[str, Any]:
    """States kept by a worker whose files may suddenly have no more than 20 kB, twice; and what is told then."""
    assert keep.folder is not None
    worker = Worker(scan, Settings(batch=8), membership, checkpointing=keep)
    loaded(worker)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    told, names, good = [], [], []
    for limited in (False, True, True, False, True):
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000 if limited else soft, hard))
        try:
            kept_now(worker, 2)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        told.append(worker.status().notices)
        names.append(sorted(path.name for path in keep.folder.iterdir()))
        good.append(files.load_state(str(worker.status().checkpoint)).epoch)
    worker.close()
    return {"told": told, "names": names, "good": good, "epoch": worker.status().epoch, "state": worker.status().state}


def kept_now(worker: Worker, epochs: int = 1) -> None:
    """Some more epochs, and a state after them, written or not."""
    obeyed(worker, worker.command(StartRun(epochs)))
    finished(worker)
    obeyed(worker, worker.command(CheckpointRequest()))
    writer = worker._writer
    assert writer is not None
    until(lambda: not writer.busy("state"), 20, "the state is written")


handed: list[Path] = []


def note(path: Path) -> None:
    """A transfer hook."""
    assert path.exists()
    handed.append(path)


def refuse(path: Path) -> None:
    """A transfer hook that never works."""
    raise ConnectionError("nobody answers")


def refused(membership: Membership, scan: Scan, settings: Settings, start: Path) -> str:
    """Why a worker does not go on from this state."""
    worker = Worker(scan, settings, membership, start=start)
    worker._thread.join(30)
    failure = worker.status().failure
    assert failure is not None, worker.status()
    return failure.message
