"""Clusters of real processes: ranks, what they hold, who can reach them, and errors."""

from __future__ import annotations

import threading
import time

import psutil
import pytest

import ptynb as pt
from ptynb.engine import run_registry
from ptynb.exceptions import ClusterError


def test_ranks_come_from_our_own_variable_and_threads_share_the_cores(cluster: pt.Cluster) -> None:
    answers = cluster.status()
    assert [answer["rank"] for answer in answers] == [0, 1]
    assert len({answer["pid"] for answer in answers}) == 2
    assert {answer["threads"] for answer in answers} == {cluster.plan.engines[0].threads}


def test_a_cluster_tells_what_its_engines_hold(cluster: pt.Cluster) -> None:
    private = [psutil.Process(status["pid"]).memory_full_info().uss for status in cluster.status()]
    assert min(private) > 50e6
    assert cluster.held_bytes() == pytest.approx(sum(private), rel=0.1)


def test_connection_files_are_this_users_only(cluster: pt.Cluster) -> None:
    assert cluster.folder is not None
    assert cluster.folder.stat().st_mode & 0o077 == 0
    for file in cluster.folder.glob("security/*-client.json"):
        assert file.stat().st_mode & 0o077 == 0


def test_everything_listens_on_this_machine_only(cluster: pt.Cluster) -> None:
    assert cluster.folder is not None
    listening = []
    for process in psutil.Process().children(recursive=True):
        listening += [c.laddr.ip for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN]
    assert len(listening) > 5
    assert set(listening) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def test_a_call_that_waits_while_the_cluster_stops_ends_soon() -> None:
    cluster = pt.Cluster(1, device="cpu")
    told: list[str] = []

    def ask() -> None:
        try:
            cluster.call(0, time.sleep, 60.0)
        except ClusterError as error:
            told.append(str(error))

    asking = threading.Thread(target=ask)
    asking.start()
    time.sleep(0.3)
    cluster.stop()
    asking.join(3)
    assert not asking.is_alive()
    assert told
    assert "was stopped" in told[0]


def test_engines_that_do_not_start_in_time_are_an_error_and_leave_nothing() -> None:
    with pytest.raises(pt.ClusterError, match="1 engine did not start within 1 s"):
        pt.Cluster(1, device="cpu", timeout=1)


def test_an_error_in_a_call_names_rank_and_cause(cluster: pt.Cluster) -> None:
    with pytest.raises(pt.ClusterError, match="On the engine of rank 1: KeyError"):
        cluster.call(1, run_registry.call_worker, "no such reconstruction", "status")
