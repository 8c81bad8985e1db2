"""A group over two machines: it meets and talks where it is told to, and lets go when a cable is cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.hosts import ADDRESSES, ADDRESSES_6, Far, Hosts, wait_until

MEMBER = Path(__file__).with_name("member.py")
SSH_PORT = 22


@pytest.fixture(scope="module")
def members(hosts: Hosts) -> Iterator[list[Far]]:
    started = [Far(hosts, "one", MEMBER), Far(hosts, "two", MEMBER)]
    yield started
    for member in started:
        member.close()


def together(members: list[Far], method: str, *arguments: tuple[Any, ...]) -> list[Any]:
    """The same command to all, each with its own arguments; the answers."""
    for member, own in zip(members, arguments or [()] * len(members), strict=True):
        member.ask(method, *own)
    return [member.answer() for member in members]


def form(members: list[Far], store: str, timeout: float = 30.0) -> None:
    assert together(members, "join", (0, 2, store, timeout), (1, 2, store, timeout)) == [[], []]


def check_sums(members: list[Far]) -> None:
    """Of 1.6 MB, in which every rank has its own values."""
    sums = together(members, "sum", ([1.0, 2.0, 4.0], 33333), ([0.5, 16.0, 32.0], 33333))
    assert sums == [[1.5, 18.0, 36.0]] * 2


@pytest.mark.parametrize("address", [ADDRESSES["one"], ADDRESSES_6["one"]])
def test_sums_over_two_machines_again_and_again_and_nothing_stays_open(
    hosts: Hosts, members: list[Far], address: str
) -> None:
    stores = set()
    held: list[Any] = []
    for _ in range(3):
        store = members[0].call("open_store", address)
        stores.add(store)
        form(members, store)
        check_sums(members)
        for host in ("one", "two"):
            listening = hosts.listening(host)
            assert {found for found, _ in listening} <= {ADDRESSES[host], ADDRESSES_6[host]}
            assert len(listening) > 1  # gloo beside the ssh server
        assert (address, int(store.rsplit(":", 1)[1])) in hosts.listening("one")
        together(members, "close")
        wait_until(
            lambda: all(hosts.listening(host) == {(ADDRESSES[host], SSH_PORT)} for host in ("one", "two")),
            5,
            "no port stays open",
        )
        held.append(together(members, "held"))
    assert len(stores) == 3
    assert held[2] == held[1]


def test_a_cut_cable_waits_until_told_and_the_same_processes_form_the_next_group(
    hosts: Hosts, members: list[Far]
) -> None:
    form(members, members[0].call("open_store"), timeout=60.0)
    before = together(members, "held")
    together(members, "sum_in_background")
    hosts.cut("two")
    try:
        assert members[0].call("ended", 1.0) is None  # nobody tells it
        together(members, "abort")
        for text, seconds in together(members, "ended", (5.0,), (5.0,)):
            assert "gloo" in text
            assert seconds < 1
        together(members, "close")
    finally:
        hosts.mend("two")
    form(members, members[0].call("open_store"))
    check_sums(members)
    assert together(members, "held") == before
    together(members, "close")


def test_a_rank_that_joins_gives_up_when_the_store_is_out_of_reach(hosts: Hosts, members: list[Far]) -> None:
    store = members[0].call("open_store")
    members[1].call("join_in_background", 1, 2, store, 2.0)
    hosts.cut("two")
    try:
        text, seconds = members[1].call("ended", 15.0) or ["it waits for ever", 0.0]
    finally:
        hosts.mend("two")
    assert "wait" not in text, seconds


def test_a_rank_that_joins_can_be_told_to_give_up(members: list[Far]) -> None:
    members[1].call("join_in_background", 1, 2, members[0].call("open_store"), 60.0)
    assert members[1].call("ended", 0.5) is None
    members[1].call("abort")
    text, _ = members[1].call("ended", 1.0)
    assert text


@pytest.mark.parametrize(
    ("store", "told"),
    [
        ("file://relative", "expected 'file:///path'"),
        ("tcp://10.77.0.2", "expected 'file:///path'"),
        ("env://", "MASTER_ADDR and MASTER_PORT must be set"),
    ],
)
def test_what_is_no_store_is_named(members: list[Far], store: str, told: str) -> None:
    text, _ = members[0].call("join", 0, 2, store)
    assert told in text


def test_nobody_at_the_address_of_the_store_is_named(members: list[Far]) -> None:
    text, _ = members[0].call("join", 1, 2, f"tcp://{ADDRESSES['two']}:9", 1.0)
    assert f"The engine of rank 0 did not answer on {ADDRESSES['two']}, port 9" in text
