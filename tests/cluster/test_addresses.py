"""This machine's address on the way to another one, and what is said where there is none."""

from __future__ import annotations

import socket

import pytest

from ptynb.cluster.addresses import address_towards, environment_towards
from tests.raising import raises


def test_a_name_that_nobody_knows_is_written_right_or_given_as_an_address() -> None:
    with raises("cluster.no-address", "'no.such.host.invalid'"):
        address_towards("no.such.host.invalid")
    assert address_towards("localhost") == address_towards("127.0.0.1") == "127.0.0.1"


def test_without_a_network_it_says_where_to_look_and_with_one_there_is_a_way(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unplugged(socket.socket):
        def connect(self, address: object) -> None:
            raise OSError(101, "Network is unreachable")

    with monkeypatch.context() as cable:
        cable.setattr("ptynb.cluster.addresses.socket.socket", Unplugged)
        with raises("cluster.no-address", "'127.0.0.1'"):
            environment_towards("127.0.0.1")
    assert environment_towards("127.0.0.1")["PTYNB_ADDRESS"] == "127.0.0.1"
