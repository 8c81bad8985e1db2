"""What ranks are told that can't find each other, and that they meet once they have done what it says."""

from __future__ import annotations

import socket

import pytest

from ptynb.distributed import rendezvous
from tests.raising import raises

SAID = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "TORCHELASTIC_USE_AGENT_STORE")


def a_free_port() -> int:
    with socket.socket() as asking:
        asking.bind(("127.0.0.1", 0))
        port: int = asking.getsockname()[1]
        return port


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in SAID:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_ranks_meet_once_what_the_message_names_is_set(environment: pytest.MonkeyPatch) -> None:
    with raises("group.address-invalid", "MASTER_ADDR and MASTER_PORT", "torchrun"):
        rendezvous.find_store("env://", 0, 2, 5.0)
    port = str(a_free_port())
    environment.setenv("MASTER_PORT", port)
    with raises("group.address-invalid", "MASTER_ADDR"):
        rendezvous.find_store("env://", 0, 2, 5.0)
    environment.setenv("MASTER_ADDR", "127.0.0.1")
    try:
        environment.setattr(rendezvous, "_groups", 0)
        first = rendezvous.find_store("env://", 0, 2, 5.0)
        environment.setattr(rendezvous, "_groups", 0)  # the other rank counts in a process of its own
        second = rendezvous.find_store("env://", 1, 2, 5.0)
        first.set("said", "here")
        assert second.get("said") == b"here"
    finally:
        rendezvous.close_store(f"env://127.0.0.1:{port}")
