"""Functions that ranks run in tests of gradient synchronization, importable by other processes."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ptynb.data.scan import Scan
from ptynb.distributed.group import Membership, TorchGroup, join
from ptynb.engine.loop import Loop
from ptynb.engine.worker import Command, Worker
from ptynb.optimize import active_tiles, gradient_descent
from ptynb.optimize.gradient_descent import Gradient
from ptynb.physics.components.component import Batch, ModelComponent
from ptynb.physics.constraints import Extension
from ptynb.settings import Settings
from tests.engine.work import leave, loaded, obeyed


class Nudge(ModelComponent):
    """A user's piece: windows lie where only this engine's batch tells."""

    name = "nudge"
    rate = 0.01

    def __init__(self) -> None:
        super().__init__()
        self.by = nn.Parameter(torch.zeros(2))

    def shift_positions(self, places: Tensor, batch: Batch) -> Tensor:
        return places + self.by


@contextmanager
def counted() -> Iterator[list[int]]:
    """Bytes of gradients and parameters summed over ranks; the loss and the checksum of an epoch have 1 or 2 numbers.

    Counted where a sum is requested, whether it passes through gloo or through shared memory.
    """
    plain, found = TorchGroup.start_sum, list[int]()

    def counting(group: TorchGroup, tensor: Tensor) -> Callable[[], None]:
        if tensor.is_floating_point() and tensor.numel() > 2:
            found.append(tensor.nbytes)
        return plain(group, tensor)

    TorchGroup.start_sum = counting  # type: ignore[method-assign]
    try:
        yield found
    finally:
        TorchGroup.start_sum = plain  # type: ignore[method-assign]


def packed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Even where so little is saved, as with the tests' small objects, that the whole would be sent."""

    @functools.wraps(function)
    def with_regions(*arguments: Any) -> Any:
        plain, active_tiles.SAVED_BYTES = active_tiles.SAVED_BYTES, 0
        try:
            return function(*arguments)
        finally:
            active_tiles.SAVED_BYTES = plain

    return with_regions


def gradient_of(loop: Loop) -> Gradient:
    assert isinstance(loop.algorithm, Gradient)
    return loop.algorithm


@contextmanager
def a_loop(
    membership: Membership, scan: Scan, settings: Settings, extensions: Sequence[Extension] = ()
) -> Iterator[Loop]:
    """A loop of this rank's, in a group that it leaves in the end."""
    group = join(membership)
    loop = Loop(scan, settings, group, extensions)
    try:
        yield loop
    finally:
        leave(loop, group)


@packed
def trained(membership: Membership, scan: Scan, settings: Settings, updates: int) -> dict[str, Any]:
    """As `as_it_is`, without the bound on what is worth while."""
    return as_it_is(membership, scan, settings, updates)


def trained_apart(membership: Membership, scan: Scan, settings: Settings, updates: int) -> dict[str, Any]:
    """As `trained`, with gradients summed after `backward`, as on GPUs."""
    plain = Gradient._sums_apart
    Gradient._sums_apart = property(lambda self: self.problem.group.world > 1)  # type: ignore[assignment, method-assign]
    try:
        answer: dict[str, Any] = trained(membership, scan, settings, updates)
    finally:
        Gradient._sums_apart = plain  # type: ignore[method-assign]
    return answer


def as_it_is(membership: Membership, scan: Scan, settings: Settings, updates: int) -> dict[str, Any]:
    """The state after some updates, and what was sent: all bytes, those the algorithm counts, those of the last."""
    with a_loop(membership, scan, settings) as loop:
        with counted() as sent:
            for _ in range(updates):
                last = len(sent)
                loop.step()
        algorithm = gradient_of(loop)
        return {
            **{name: tensor.numpy() for name, tensor in (loop.arrays() | loop.parameters()).items()},
            "losses": [epoch.loss for epoch in loop.epochs],
            "sent": sum(sent),
            "last": sent[last:],
            "counted": algorithm.exchange.sent_bytes + algorithm.averages.sent_bytes,
            "region": algorithm.exchange.region is not None,
            "parameters": [parameter.nbytes for parameter in loop.model.parameters() if parameter.requires_grad],
        }


def trained_as_on_gpus(membership: Membership, scan: Scan, settings: Settings, updates: int) -> dict[str, Any]:
    """As `trained`, with regions of windows whose positions the host does not know, packed by indices."""
    windows, by_index = gradient_descent.Windows, active_tiles._by_index
    gradient_descent.Windows = functools.partial(windows, on_gpu=True)  # type: ignore[assignment, misc]
    active_tiles._by_index = lambda values, on_gpu: True
    try:
        answer: dict[str, Any] = trained(membership, scan, settings, updates)
    finally:
        gradient_descent.Windows, active_tiles._by_index = windows, by_index  # type: ignore[misc]
    return answer


@packed
def nudged(membership: Membership, scan: Scan, settings: Settings) -> bool:
    """Whether a region was used although a piece of the user's moves windows."""
    with a_loop(membership, scan, settings, [Nudge()]) as loop:
        loop.step()
        return gradient_of(loop).exchange.region is not None


def state_of(loop: Loop) -> dict[str, Any]:
    """Every parameter and all that optimisers keep of it."""
    found, names = dict[str, Any](), dict[int, str]()
    for name, piece in loop.model.components.items():
        for key, parameter in piece.named_parameters():
            names[id(parameter)] = f"{name}.{key}"
            found[f"{name}.{key}"] = parameter.detach().numpy().copy()
    for optimiser in gradient_of(loop).optimisers:
        for parameter, state in optimiser.state.items():
            for key, value in state.items():
                if isinstance(value, Tensor):
                    found[f"{names[id(parameter)]}/{key}"] = value.numpy().copy()
    return found


@packed
def met(membership: Membership, scan: Scan, settings: Settings, updates: int) -> dict[str, Any]:
    """The states before and after engines that made some updates alone meet, and whose patterns were whose."""
    with a_loop(membership, scan, settings) as loop:
        seen = 0
        for _ in range(updates):
            seen += len(loop.order.part(loop.order.epoch(1), loop.update, membership.rank, membership.world))
            loop.step()
        before = state_of(loop)
        with counted() as sent:
            loop.settle()
        rows = {f"{name}.{key}" for name, piece in loop.model.components.items() for key in piece.rows}
        return {
            "before": before,
            "after": state_of(loop),
            "seen": seen,
            "own": loop.shard.patterns,
            "rows": rows,
            "sent": sum(sent),
        }


@packed
def followed(membership: Membership, scan: Scan, settings: Settings, updates: int) -> list[dict[str, Any]]:
    """The state after every update."""
    with a_loop(membership, scan, settings) as loop:
        states = []
        for _ in range(updates):
            loop.step()
            states.append(state_of(loop))
        return states


@packed
def interrupted(membership: Membership, scan: Scan, settings: Settings, kind: str, value: Any) -> dict[str, Any]:
    """Two epochs with a command in the middle of the first: the state where it stopped, and losses in the end."""
    worker = Worker(scan, settings, membership)
    loop = loaded(worker)
    step = loop.step

    def slow() -> None:
        step()
        time.sleep(0.02)

    loop.step = slow  # type: ignore[method-assign]
    if membership.rank == 0:
        obeyed(worker, worker.command(Command("start", 2)))
        while worker.status().update < 3:
            time.sleep(0.001)
        obeyed(worker, worker.command(Command(kind, value)))  # type: ignore[arg-type]
    while worker.status().applied < 2:
        time.sleep(0.001)
    found: dict[str, Any] = {"update": worker.status().update}
    if kind in ("pause", "stop"):
        time.sleep(0.2)  # no engine moves any more
        found["state"] = state_of(loop)
    if membership.rank == 0:
        time.sleep(0.3)
        if kind in ("pause", "stop"):
            worker.command(Command("resume") if kind == "pause" else Command("start", 2))
        until = time.monotonic() + 60
        while worker.status().epoch < 2 and worker.status().failure is None:
            assert time.monotonic() < until
            time.sleep(0.002)
        worker.command(Command("close"))
    worker._thread.join(60)
    failure = worker.status().failure
    return {**found, "failure": failure and failure.message, "losses": [epoch.loss for epoch in loop.epochs]}
