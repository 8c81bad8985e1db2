"""A group by NCCL: how torch is told to treat failures; a hang ends in seconds and leaves the process usable."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path

import pytest
import torch

from ptynb.distributed import nccl
from ptynb.distributed.group import NEVER, is_echo
from ptynb.distributed.sockets import Connections
from ptynb.distributed.timeouts import ON_GPU
from tests.distributed import nccl_work
from tests.engine.ranks import Ranks

HEADER = Path(torch.__file__).parent / "include/torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp"
"""Installed with every build of torch."""


def test_torch_has_the_variables_and_the_mode_that_leaves_the_process_alone() -> None:
    text = HEADER.read_text()
    assert [name for name in nccl.SETTINGS if f'"{name}"' not in text] == []
    modes = dict(re.findall(r"(\w+) = (\d),?\n", text[text.index("enum ErrorHandlingMode") :]))
    assert modes["CleanUpOnly"] == nccl.SETTINGS["TORCH_NCCL_ASYNC_ERROR_HANDLING"]


def test_the_variables_of_a_user_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in nccl.SETTINGS:
        monkeypatch.setenv(name, "to be restored")
        monkeypatch.delenv(name)
    monkeypatch.setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    nccl.set_environment()
    assert {name: os.environ[name] for name in nccl.SETTINGS} == {
        **nccl.SETTINGS,
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }


def test_each_rank_names_its_gpu_and_torchs_own_limit_is_never_reached(ranks: Ranks) -> None:
    for rank, (asked, timeouts, aborts) in enumerate(ranks.run(2, nccl_work.formed)):
        assert asked == {
            "backend": "cpu:gloo,cuda:nccl",
            "rank": rank,
            "world_size": 2,
            "timeout": timedelta(seconds=30),
            "device_id": torch.device("cuda:0"),
        }
        assert timeouts == [NEVER]
        assert aborts == 0


def test_large_tensors_are_kept_for_gloo_only(ranks: Ranks) -> None:
    assert ranks.run(2, nccl_work.kept_for_gloo) == [1, 1]


def test_a_sum_in_which_a_rank_takes_no_part_ends_after_the_limit(ranks: Ranks) -> None:
    for seconds, text, code, aborts, closed in ranks.run(2, nccl_work.waits_in_vain, "silent", timeout=1.0):
        assert 1.0 < seconds < 3.0
        assert (code, aborts, closed) == ("group.no-answer", 1, True)
        assert "did not answer within 1 s" in text
        assert ON_GPU in text
        assert is_echo(text)
    assert ranks.run(2, nccl_work.kept_for_gloo) == [1, 1], "the processes form another group"


def test_a_sum_with_a_rank_that_has_left_ends_at_once(ranks: Ranks) -> None:
    seconds, text, _, aborts, closed = ranks.run(2, nccl_work.waits_in_vain, "left", timeout=8.0)[0]
    assert seconds < 4.0
    assert (aborts, closed) == (1, True)
    assert is_echo(text)


def test_a_sum_that_is_given_up_from_outside_ends_at_once(ranks: Ranks) -> None:
    """As by a session that replaces another, lost engine."""
    for seconds, text, _, aborts, closed in ranks.run(2, nccl_work.waits_in_vain, "given up"):
        assert seconds < 2.0
        assert (aborts, closed) == (1, True)
        assert is_echo(text)


def test_an_abort_before_the_group_is_formed_ends_it_once_it_is() -> None:
    connections, called = Connections(), list[int]()
    connections.abort()
    connections.on_abort(lambda: called.append(1))
    assert called == [1]
    connections.on_abort(None)
    connections.abort()
    assert called == [1]
