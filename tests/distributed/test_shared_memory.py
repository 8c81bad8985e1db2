"""Sums over ranks of one machine, in real processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from ptynb.distributed import group as groups
from ptynb.distributed import shared_memory
from ptynb.distributed.group import Membership, TorchGroup, join
from tests.engine.ranks import Ranks

SIZES = (1, 2, 1000, 2 * shared_memory.SLOT_BYTES // 8 + 5)
"""Numbers of a message: a single one goes by gloo, the largest in several parts."""


def numbers(rank: int, size: int, kind: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * rank + size % 97)
    dtype = getattr(torch, kind)
    if not dtype.is_floating_point:
        return torch.randint(-1000, 1000, (size,), generator=generator, dtype=dtype)
    return torch.randn(size, generator=generator, dtype=dtype)


def sums(membership: Membership, kind: str, most_direct: int, shared: bool) -> dict[str, Any]:
    shared_memory.MOST_DIRECT = most_direct
    if not shared:
        groups.place_of_process = lambda: str(os.getpid())  # as on hosts of their own
    group = join(membership)
    try:
        assert isinstance(group, TorchGroup)
        found = [group.sum(numbers(group.rank, size, kind)) for size in SIZES]
        waiting = [numbers(group.rank, size, kind).reshape(1, -1) for size in SIZES]
        for wait in [group.start_sum(tensor) for tensor in waiting]:
            wait()
        del wait  # refers to the memory
        empty = group.sum(torch.zeros(0))
        answer = {
            "shared": group._shared is not None,
            "found": [tensor.numpy() for tensor in found],
            "later": [tensor[0].numpy() for tensor in waiting],
            "empty": len(empty),
        }
    finally:
        shared_memory.MOST_DIRECT = 3
        groups.place_of_process = shared_memory.place_of_process
        group.close()
    return answer | {"mapped": "memfd:ptynb" in Path("/proc/self/maps").read_text()}


@pytest.mark.parametrize(
    ("world", "most_direct", "kind", "shared"),
    [
        (2, 3, "float32", True),
        (3, 3, "float64", True),
        (3, 1, "float32", True),
        (3, 1, "int64", True),
        (2, 3, "float32", False),
    ],
)
def test_ranks_get_the_sum_in_the_order_of_ranks(
    ranks: Ranks, world: int, most_direct: int, kind: str, shared: bool
) -> None:
    answers = ranks.run(world, sums, kind, most_direct, shared)
    for answer in answers:
        assert answer["shared"] is shared
        assert answer["empty"] == 0
        assert not answer["mapped"], "the memory stays after the group was closed"
        for size, found, later in zip(SIZES, answer["found"], answer["later"], strict=True):
            expected = numbers(0, size, kind)
            for rank in range(1, world):
                expected += numbers(rank, size, kind)
            if shared and size > 1:
                assert (found == expected.numpy()).all()
                assert (later == expected.numpy()).all()
            torch.testing.assert_close(torch.from_numpy(found), expected)
            torch.testing.assert_close(torch.from_numpy(later), expected)


def refused(membership: Membership) -> tuple[bool, list[float]]:
    """A sum where the system gives rank 1 no access to the memory of rank 0."""

    def open_file(path: Any, *arguments: Any) -> int:
        if membership.rank == 1 and str(path).startswith("/proc/"):
            raise PermissionError(f"Operation not permitted: {path}")
        return opened(path, *arguments)

    opened = os.open
    with mock.patch.object(os, "open", open_file):
        group = join(membership)
    try:
        assert isinstance(group, TorchGroup)
        return group._shared is None, group.sum(torch.tensor([1.0, 2.0])).tolist()
    finally:
        group.close()


def test_gloo_sums_where_a_rank_gets_no_access_to_the_memory(ranks: Ranks) -> None:
    assert ranks.run(2, refused) == [(True, [2.0, 4.0])] * 2
