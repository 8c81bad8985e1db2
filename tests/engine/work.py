"""What ranks do in the tests, as functions that other processes can import."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from ptynb.data.commands import CloseRun, Command, MakeResult, ReduceObject, StartRun
from ptynb.data.engine_records import Failure
from ptynb.data.scan import Scan
from ptynb.distributed.group import Group, Membership, join
from ptynb.engine.loop import Loop
from ptynb.engine.worker import Worker
from ptynb.exceptions import ReconstructionError
from ptynb.optimize import sampler
from ptynb.optimize.lbfgs import LBFGS
from ptynb.optimize.object_tiles import Rectangle, TileLayout
from ptynb.physics.components.component import Batch, ModelComponent
from ptynb.settings import Settings
from tests.waiting import until


def train(membership: Membership, scan: Scan, settings: Settings, updates: int) -> dict[str, Any]:
    """Parameters and record after some updates, those of the start, and which patterns this rank had in each."""
    group = join(membership)
    loop = Loop(scan, settings, group)
    try:
        start = {name: tensor.numpy().copy() for name, tensor in (loop.arrays() | loop.parameters()).items()}
        patterns = []
        for _ in range(updates):
            part = loop.order.part(loop.order.epoch(loop.epoch + 1), loop.update, group.rank, group.world)
            patterns.append(part.tolist())
            loop.step()
        return {
            **{name: tensor.numpy() for name, tensor in loop.arrays().items()},
            **{name: tensor.numpy() for name, tensor in loop.parameters().items()},
            "start": start,
            "losses": [epoch.loss for epoch in loop.epochs],
            "changes": [
                [epoch.object_change, epoch.probe_change, epoch.position_change or 0.0] for epoch in loop.epochs
            ],
            "patterns": patterns,
            "r_factor": loop.r_factor()[0],
            "rates": loop.algorithm.rates(),
            "complex": [name for name, tensor in loop.model.arrays().items() if tensor.is_complex()],
        }
    finally:
        leave(loop, group)


def train_in_moved_tiles(
    membership: Membership, scan: Scan, settings: Settings, updates: int, shift: int
) -> dict[str, Any]:
    """As `train`, with the edges between tiles moved by some pixels; also the tiles that all ranks own."""
    plain = sampler.tile_layout
    layouts = list[TileLayout]()

    def moved(*arguments: Any, **options: Any) -> TileLayout:
        layout = plain(*arguments, **options)
        height, width = arguments[2]
        edges = [
            {0: 0, height: height}.get(edge, edge + shift)
            if number < 2
            else {0: 0, width: width}.get(edge, edge + shift)
            for area in layout.owned
            for number, edge in enumerate(area)
        ]
        owned = tuple(Rectangle(*edges[4 * rank : 4 * rank + 4]) for rank in range(len(layout.owned)))
        whole = Rectangle(0, height, 0, width)
        near = (Rectangle(one.top - 1, one.bottom + 1, one.left - 1, one.right + 1).common(whole) for one in owned)
        held = tuple(one.around(other) for one, other in zip(layout.held, near, strict=True))
        layouts.append(dataclasses.replace(layout, owned=owned, held=held))
        return layouts[-1]

    sampler.tile_layout = moved
    try:
        return {**train(membership, scan, settings, updates), "owned": [tuple(one) for one in layouts[-1].owned]}
    finally:
        sampler.tile_layout = plain


def pushed_beyond_tile(membership: Membership, scan: Scan, settings: Settings) -> str:
    """The error after an epoch in which a component moves all windows by 10 pixels."""

    class Shift(ModelComponent):
        name = "shift"
        rate = 0.1

        def __init__(self) -> None:
            super().__init__()
            self.distance = torch.nn.Parameter(torch.full((2,), 10.0, dtype=torch.float64))

        def shift_positions(self, positions: Tensor, batch: Batch) -> Tensor:
            return positions + self.distance

    group = join(membership)
    loop = Loop(scan, settings, group, (Shift(),))
    try:
        for _ in range(loop.updates):
            loop.step()
        return ""
    except ReconstructionError as error:
        return f"{error.code}: {error}"
    finally:
        leave(loop, group)


def magnified(membership: Membership, scan: Scan, settings: Settings, updates: int) -> dict[str, Any]:
    """Arrays after some updates with a component that magnifies the scan."""

    class Magnification(ModelComponent):
        name = "magnification"
        rate = 1e-4

        def __init__(self) -> None:
            super().__init__()
            self.factor = torch.nn.Parameter(torch.tensor(1.02, dtype=torch.float64))

        def shift_positions(self, positions: Tensor, batch: Batch) -> Tensor:
            return positions * self.factor

    group = join(membership)
    loop = Loop(scan, settings, group, (Magnification(),))
    try:
        for _ in range(updates):
            loop.step()
        return {name: tensor.numpy() for name, tensor in (loop.arrays() | loop.parameters()).items()}
    finally:
        leave(loop, group)


def refused_live(membership: Membership, scan: Scan, settings: Settings, changed: Settings) -> str:
    """Why settings cannot change in a run."""
    group = join(membership)
    loop = Loop(scan, settings, group)
    try:
        return loop.why_not_live(changed)
    finally:
        leave(loop, group)


def leave(loop: Loop, group: Group) -> None:
    """As the worker does it: the wrapped module goes before the group."""
    loop.disconnect()
    group.close()


def initial(membership: Membership, scan: Scan, settings: Settings) -> dict[str, Any]:
    return train(membership, scan, settings, 0)


def drift(membership: Membership, scan: Scan, settings: Settings) -> str:
    """The error after rank 1's object was changed behind everybody's back."""
    group = join(membership)
    loop = Loop(scan, settings, group)
    try:
        if group.rank == 1:
            with torch.no_grad():
                loop.model.object.parts[0, 0, 3, 3, 0] += 1e-3
        try:
            for _ in range(loop.order.updates):
                loop.step()
        except RuntimeError as error:
            return str(error)
        return "nothing noticed"
    finally:
        leave(loop, group)


def lonely(membership: Membership) -> float:
    """Seconds until joining a group whose other rank never comes is given up."""
    started = time.monotonic()
    try:
        join(membership).close()
    except RuntimeError:
        return time.monotonic() - started
    return -1.0


def engines_on_its_gpu(membership: Membership, planned: int) -> int:
    """Number of engines that share this one's GPU, as the group knows it; rank 1 has another one."""
    group = join(dataclasses.replace(membership, identity=f"GPU-{membership.rank % 2}", engines_per_gpu=planned))
    group.close()
    return group.engines_per_gpu


def same_device(membership: Membership) -> str:
    """What joining says when two ranks hold one device under NCCL; found before NCCL is asked for anything."""
    try:
        join(dataclasses.replace(membership, identity="GPU-1", backend="nccl")).close()
    except RuntimeError as error:
        return str(error)
    return "nothing noticed"


Script = list[tuple[float, Command]]


def command(membership: Membership, scan: Scan, settings: Settings, script: Script) -> dict[str, Any]:
    """A worker driven by (seconds to wait before, command); every command is obeyed before the next."""
    worker = Worker(scan, settings, membership)
    if membership.rank == 0:
        for seconds, order in [*script, (0.0, MakeResult())]:
            time.sleep(seconds)
            obeyed(worker, worker.command(order))
        finished(worker)
        obeyed(worker, worker.command(MakeResult()))
        worker.command(CloseRun())
    worker._thread.join(60)
    status = worker.status()
    assert status.failure is None, status.failure
    loop = worker._loop
    assert loop is not None
    return {
        "status": status,
        "losses": [epoch.loss for epoch in loop.epochs],
        **{name: tensor.numpy() for name, tensor in loop.arrays().items()},
    }


def stop_and_go_on(
    membership: Membership, scan: Scan, settings: Settings, script: Script, epochs: int
) -> dict[str, Any]:
    """A worker driven by a script that leaves it stopped, then started again for what is missing of `epochs`."""
    worker = Worker(scan, settings, membership)
    if membership.rank == 0:
        for seconds, order in script:
            time.sleep(seconds)
            obeyed(worker, worker.command(order))
        assert worker.status().state == "ready"
    else:
        while worker.status().applied < len(script):
            time.sleep(0.002)
    stopped = (worker.status().epoch, worker.status().update)
    time.sleep(0.2)
    if membership.rank == 0:
        worker.command(StartRun(epochs - worker.status().epoch))
        obeyed(worker, worker.command(MakeResult()))
        finished(worker)
        worker.command(CloseRun())
    worker._thread.join(60)
    loop = worker._loop
    assert loop is not None
    return {
        "stopped": stopped,
        "losses": [epoch.loss for epoch in loop.epochs],
        **{name: tensor.numpy() for name, tensor in loop.arrays().items()},
    }


def diverging(membership: Membership, scan: Scan, settings: Settings) -> str:
    """What this rank says when the rates are far too high."""
    try:
        train(membership, scan, settings, 200)
    except FloatingPointError as error:
        return str(error)
    return "nothing noticed"


def infinite_in_one_tile(membership: Membership, scan: Scan, settings: Settings) -> str:
    """What this rank says when a pixel that rank 1 alone holds is not finite after the last update of an epoch."""
    group = join(membership)
    loop = Loop(scan, settings, group)
    try:
        plain = loop.after_update

        def after_update(epoch_ended: bool) -> None:
            plain(epoch_ended)
            tile = loop.tile
            assert tile is not None
            if epoch_ended and group.rank == 1:
                alone = torch.ones(tile.held.shape, dtype=torch.bool)
                for shared in tile.overlaps.values():
                    alone[shared.inside(tile.held)] = False
                loop.model.object.parts.data[..., alone, :] = torch.inf

        loop.after_update = after_update  # type: ignore[method-assign]
        for _ in range(loop.updates):
            loop.step()
    except FloatingPointError as error:
        return str(error)
    finally:
        leave(loop, group)
    return "nothing noticed"


def asked_for_what_is_not_there(membership: Membership, scan: Scan, settings: Settings) -> tuple[str, int, int]:
    """The error of a picture of a slice that an object in tiles has not; commands that count, and epochs made after."""
    worker = Worker(scan, settings, membership)
    try:
        loaded(worker)
        if membership.rank == 0:
            answer = worker._reduce(ReduceObject(0, 3, (0, 8, 0, 8), 1))
            error = f"{answer.exception(30)}"
            taken = worker._reduce(ReduceObject(0, 0, (0, 8, 0, 8), 1)).result(30)
            assert tuple(taken.object.shape) == (8, 8)
            number = worker.command(StartRun(1))
            obeyed(worker, number)
            until(lambda: worker.status().epoch == 1 or worker.status().failure, 30, "the run continues")
            status = worker.status()
            assert status.failure is None, status.failure
            return error, status.applied, status.epoch
        return "", 0, 0
    finally:
        if membership.rank == 0:
            worker.command(CloseRun())
        worker._thread.join(60)


def obeyed(worker: Worker, number: int) -> None:
    until(lambda: worker.status().applied >= number or worker.status().failure, 30, "a command is obeyed")
    assert worker.status().failure is None, worker.status().failure


def finished(worker: Worker) -> None:
    until(lambda: worker.status().state != "running", 60, "the run ends")


def loaded(worker: Worker) -> Loop:
    """The loop of a worker, once it is there."""
    until(lambda: worker.status().state != "loading", 30, "the loop is there")
    assert worker._loop is not None
    return worker._loop


def failing(membership: Membership, scan: Scan, settings: Settings, at: int) -> tuple[str, bool, float]:
    """Rank 1 raises in its update `at`; what this rank says, whether it blames another, and after how long."""
    worker = Worker(scan, settings, membership)
    loop = loaded(worker)
    if membership.rank == 1:
        plain, count = loop.shard.batch, [0]

        def broken(patterns: np.ndarray[Any, Any], members: int, indices: Any = None) -> Any:
            count[0] += 1
            if count[0] == at:
                raise MemoryError("out of memory, says the test")
            return plain(patterns, members, indices)

        loop.shard.batch = broken  # type: ignore[method-assign]
    time.sleep(0.2)
    started = time.monotonic()
    if membership.rank == 0:
        worker.command(StartRun(100))
    worker._thread.join(20)
    failure = worker.status().failure
    assert failure is not None, worker.status()
    return failure.message, failure.lost_group, time.monotonic() - started


def losing_gpu(
    membership: Membership, scan: Scan, settings: Settings, where: str, engine: bool
) -> tuple[Failure, list[str], float]:
    """Rank 1 raises what torch does when its GPU is lost: in an update, or in a request while nothing runs.

    engine: whether the process may be ended. Returns this rank's failure, the messages with which it would have been
    ended, and the seconds until then.
    """
    ended: list[str] = []

    def end(message: str) -> NoReturn:
        ended.append(message)
        raise SystemExit

    def broken(*_: Any, **__: Any) -> Any:
        raise torch.AcceleratorError("CUDA error: unspecified launch failure\nCUDA kernel errors might be ...")

    worker = Worker(scan, settings, membership, end_process=end if engine else None)
    loop = loaded(worker)
    time.sleep(0.2)
    started = time.monotonic()
    if membership.rank == 1 and where == "request":
        with contextlib.suppress(torch.AcceleratorError):
            worker._call_in_thread(broken)
    if membership.rank == 1 and where == "update":
        loop.shard.batch = broken  # type: ignore[method-assign]
    if membership.rank == 0 and where == "update":
        worker.command(StartRun(100))
    worker._thread.join(20)
    failure = worker.status().failure
    assert failure is not None, worker.status()
    if membership.rank == 1 and not engine:
        assert worker.result() is None, "what is on the GPU cannot be read"
    return failure, ended, time.monotonic() - started


def drift_between_updates(membership: Membership, scan: Scan, settings: Settings, epochs: int) -> str:
    """The error where rank 1's object changed behind everybody's back after some epochs."""
    group = join(membership)
    loop = Loop(scan, settings, group)
    try:
        while loop.epoch < epochs:
            loop.step()
        if group.rank == 1:
            with torch.no_grad():
                loop.model.object.parts[0, 0, 3, 3, 0] += 1e-3
        try:
            for _ in range(loop.updates):
                loop.step()
        except RuntimeError as error:
            return str(error)
        return "nothing noticed"
    finally:
        leave(loop, group)


def passes(membership: Membership, scan: Scan, settings: Settings, updates: int) -> tuple[int, int]:
    """How often L-BFGS went through all patterns in so many updates, and how many patterns this rank holds."""
    group = join(membership)
    loop = Loop(scan, settings, group)
    try:
        for _ in range(updates):
            loop.step()
        assert isinstance(loop.algorithm, LBFGS)
        return loop.algorithm.passes, len(loop.shard)
    finally:
        leave(loop, group)
