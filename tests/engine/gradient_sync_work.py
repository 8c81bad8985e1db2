"""Functions that ranks run in tests of gradient synchronization, importable by other processes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ptynb.data.scan import Scan
from ptynb.distributed.group import Membership, TorchGroup, join
from ptynb.engine.loop import Loop
from ptynb.optimize import covered_region, gradient_descent
from ptynb.optimize.gradient_descent import Gradient
from ptynb.physics.components.component import Batch, ModelComponent
from ptynb.physics.constraints import Extension
from ptynb.settings import Settings
from tests.engine.work import leave


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
        plain, covered_region.SAVED_BYTES = covered_region.SAVED_BYTES, 0
        try:
            return function(*arguments)
        finally:
            covered_region.SAVED_BYTES = plain

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
            "counted": algorithm.exchange.sent_bytes,
            "region": algorithm.exchange.region is not None,
            "parameters": [parameter.nbytes for parameter in loop.model.parameters() if parameter.requires_grad],
        }


def trained_as_on_gpus(membership: Membership, scan: Scan, settings: Settings, updates: int) -> dict[str, Any]:
    """As `trained`, with regions of windows whose positions the host does not know, packed by indices."""
    windows, by_index = gradient_descent.Windows, covered_region._by_index
    gradient_descent.Windows = functools.partial(windows, on_gpu=True)  # type: ignore[assignment, misc]
    covered_region._by_index = lambda values, on_gpu: True
    try:
        answer: dict[str, Any] = trained(membership, scan, settings, updates)
    finally:
        gradient_descent.Windows, covered_region._by_index = windows, by_index  # type: ignore[misc]
    return answer


@packed
def nudged(membership: Membership, scan: Scan, settings: Settings) -> bool:
    """Whether a region was used although a piece of the user's moves windows."""
    with a_loop(membership, scan, settings, [Nudge()]) as loop:
        loop.step()
        return gradient_of(loop).exchange.region is not None
