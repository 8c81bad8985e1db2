"""How a run is held and its state kept before it is opened again, with engines that say what the test wants."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

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
    assert given == ["pause"]


def test_a_state_that_never_comes_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reopen, "CHECKPOINT_SECONDS", 0.0)
    status = {"checkpoint_counts": (0, 0), "writes_checkpoint": True, "epoch": 1, "update": 0, "checkpoint": None}
    client, given = a_client([status] * 3)
    with raises("checkpoint.timeout", "0 s"):
        reopen._write_checkpoint(client)
    assert given == ["checkpoint"]


def test_what_went_wrong_first_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: Any) -> None:
        raise EngineLostError("and the engine is lost")

    client, _ = a_client([])
    client.engines.call = lost  # type: ignore[method-assign]
    monkeypatch.setattr(reopen, "_pause", lambda _: True)
    monkeypatch.setattr(reopen, "_write_checkpoint", lambda _: (_ for _ in ()).throw(ReconstructionError("no room")))
    with pytest.raises(ReconstructionError, match="no room"):
        reopen._exchange(client, lambda _: pytest.fail("nothing was kept"))
