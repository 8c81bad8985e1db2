"""How a run is held and its state kept before it is opened again, with engines that say what the test wants."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ptynb.data.commands import CheckpointRequest, PauseRun
from ptynb.data.engine_records import Status
from ptynb.exceptions import EngineLostError, ReconstructionError
from ptynb.session import reopen
from ptynb.session.engine_client import EngineClient
from tests.raising import raises


def a_client(statuses: Iterable[dict[str, Any]], sent: int = 0) -> tuple[EngineClient, list[str]]:
    """One whose rank 0 says this, one after the other, and the commands that it was given."""
    given, coming = list[str](), iter(statuses)

    def wait_inside(condition: Callable[[Any], bool], until: float = float("inf")) -> Any:
        for status in (SimpleNamespace(**values) for values in coming):
            if condition(status):
                return status
        raise TimeoutError

    client = SimpleNamespace(engines=SimpleNamespace(), sent=sent, wait_inside=wait_inside, command_inside=given.append)
    return cast(EngineClient, client), given


def test_a_start_that_is_on_its_way_is_held_too() -> None:
    client, given = a_client(
        [
            {"state": "loading", "applied": 0},
            {"state": "ready", "applied": 0},
            {"state": "running", "applied": 1},
        ],
        sent=1,
    )
    assert reopen._pause(client)
    assert given == [PauseRun()]


def test_a_state_that_never_comes_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reopen, "CHECKPOINT_SECONDS", 0.0)
    status = {"checkpoint_counts": (0, 0), "writes_checkpoint": True, "epoch": 1, "update": 0, "checkpoint": None}
    client, given = a_client([status] * 3)
    with raises("checkpoint.timeout", "0 s"):
        reopen._write_checkpoint(client)
    assert given == [CheckpointRequest()]


def test_a_requested_checkpoint_is_told_from_earlier_ones() -> None:
    """(written, failed), newest file and whether one is under way, after a request in epoch 7 when (3, 1) were."""

    def since(counts: tuple[int, int], file: str, writes: bool) -> Path | None:
        now = {
            "checkpoint_counts": counts,
            "checkpoint": file,
            "writes_checkpoint": writes,
            "checkpoint_failure": "full",
        }
        before = {"checkpoint_counts": (3, 1), "epoch": 7, "update": 2}
        return reopen.checkpoint_since(cast(Status, SimpleNamespace(**before)), cast(Status, SimpleNamespace(**now)))

    assert since((3, 1), "state-00007-002.h5", False) is None, "of a request before this one"
    assert since((4, 1), "state-00007.h5", True) is None, "an earlier one, written late"
    assert since((3, 2), "state-00006.h5", True) is None, "an earlier one, failed late"
    assert since((4, 1), "state-00007-002.h5", False) == Path("state-00007-002.h5")
    assert since((4, 2), "state-00008.h5", False) == Path("state-00008.h5"), "written after an earlier one failed"
    assert since((1, 0), "state-00007-002.h5", False) == Path("state-00007-002.h5"), "by an engine that replaced one"
    with raises("checkpoint.failed", "full"):
        since((3, 2), "state-00006.h5", False)


def test_what_went_wrong_first_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: Any) -> None:
        raise EngineLostError("and the engine is lost")

    client, _ = a_client([])
    client.engines.call = lost  # type: ignore[method-assign]
    monkeypatch.setattr(reopen, "_pause", lambda _: True)
    monkeypatch.setattr(reopen, "_write_checkpoint", lambda _: (_ for _ in ()).throw(ReconstructionError("no room")))
    with pytest.raises(ReconstructionError, match="no room"):
        reopen._exchange(client, lambda _: pytest.fail("nothing was kept"))
