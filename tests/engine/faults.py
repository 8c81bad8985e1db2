"""The self-test on ranks of which one has a fault; for processes of `tests.engine.ranks`."""

from __future__ import annotations

import dataclasses
from unittest import mock

import torch
import torch.distributed as dist

from ptynb.distributed.group import Membership, TorchGroup
from ptynb.engine import group_selftest
from ptynb.engine.group_selftest import Findings, attempt

GRADIENT = 128
"""Numbers of the self-test's gradient, and of no other message."""


def healthy(membership: Membership) -> tuple[Findings | None, str, bool]:
    """As it is; and whether a group is left."""
    return *attempt(membership), dist.is_initialized()


def not_reduced(membership: Membership, faulty: int) -> tuple[Findings | None, str]:
    """The faulty rank gives its gradient to the others, and keeps its own."""
    start_sum = TorchGroup.start_sum

    def keeps(group, tensor):
        return start_sum(group, tensor.clone() if tensor.numel() == GRADIENT else tensor)

    with mock.patch.object(TorchGroup, "start_sum", keeps if membership.rank == faulty else start_sum):
        return attempt(membership)


def part_lost(membership: Membership, part: int, scale: float) -> tuple[Findings | None, str]:
    """Real (0) or imaginary parts (1) arrive scaled, on all ranks."""
    start_sum = TorchGroup.start_sum

    def loses(group, tensor):
        wait = start_sum(group, tensor)

        def waits():
            wait()
            if tensor.numel() == GRADIENT:
                tensor.view(-1, 2)[:, part] *= scale

        return waits

    with mock.patch.object(TorchGroup, "start_sum", loses):
        return attempt(membership)


def wrong_first_sum(membership: Membership) -> tuple[Findings | None, str]:
    def nothing():
        return None

    with mock.patch.object(TorchGroup, "start_sum", return_value=nothing):
        return attempt(membership)


def same_device(membership: Membership) -> tuple[Findings | None, str]:
    """Rank 2 has the device of rank 0."""
    identity = "GPU-1" if membership.rank in (0, 2) else "GPU-2"
    return attempt(dataclasses.replace(membership, identity=identity))


def other_device(membership: Membership, identity: str, uuid: str) -> tuple[Findings | None, str]:
    """Rank 1 computes on another GPU than planned."""
    if membership.rank == 1:
        membership = dataclasses.replace(membership, identity=identity)
    with mock.patch.object(group_selftest, "gpu_uuid", return_value=uuid if membership.rank == 1 else ""):
        return attempt(membership)


def other_world(membership: Membership, name: str, value: object) -> tuple[Findings | None, str]:
    """Rank 1 finds itself in another group than was planned."""
    ask = getattr(dist, name)

    def other(*arguments):  # torch itself asks too
        return value if membership.rank == 1 and not arguments else ask(*arguments)

    with mock.patch.object(group_selftest.dist, name, other):
        return attempt(membership)


def wrong_transform(membership: Membership) -> tuple[Findings | None, str]:
    """The device of rank 1 computes something else."""
    fft2 = torch.fft.fft2

    def off(field, norm):
        return fft2(field, norm=norm) * (1 + 1e-3)

    with mock.patch.object(torch.fft, "fft2", off if membership.rank == membership.world - 1 else fft2):
        return attempt(membership)
