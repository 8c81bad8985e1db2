"""The self-test of a real cluster of two engines, and what is told where it fails."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Iterator

import pytest

import ptynb as pt
from ptynb.cluster import selftest
from ptynb.cluster.error_explanations import PEER_TO_PEER, SAME_GPU, SHARED_MEMORY
from ptynb.cluster.selftest import run_selftest


def test_two_real_engines_pass(cluster: pt.Cluster) -> None:
    found = run_selftest(cluster)
    assert (found.world, found.backend, found.reason) == (2, "gloo", "gloo: engines on the CPU")
    assert found.devices == tuple(engine.identity for engine in cluster.plan.engines)
    assert found.bandwidth is not None
    assert 2**25 / found.bandwidth < found.seconds
    assert found.latency is not None
    assert 0 < found.latency < found.seconds
    assert [name for name, _ in found.facts] == [
        *("World", "Devices", "Exchange by", "Bandwidth", "Latency", "Self-test")
    ]
    assert cluster.folder is not None
    assert [*cluster.folder.glob("link-*")] == []
    for rank in range(2):
        warm = "'torch._dynamo' in __import__('sys').modules"
        assert cluster.call(rank, eval, warm), "what DistributedDataParallel imports is there for the first update"


def test_a_duplicate_device_is_told_with_what_it_means(cluster: pt.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = cluster.plan.engines
    same = dataclasses.replace(second, identity=first.identity)
    monkeypatch.setattr(cluster, "_plan", dataclasses.replace(cluster.plan, engines=(first, same)))
    with pytest.raises(pt.ClusterError) as error:
        run_selftest(cluster)
    assert str(error.value).startswith(
        f"The self-test of 2 engines failed on rank 0: Ranks 0 and 1 hold the same device, {first.identity}, and"
    )
    assert str(error.value).endswith(SAME_GPU)
    assert "\n" not in str(error.value)


@pytest.fixture
def stopped(cluster: pt.Cluster) -> Iterator[int]:
    """The process of rank 1, which does nothing until it is told to go on."""
    process: int = cluster.status()[1]["pid"]
    os.kill(process, signal.SIGSTOP)
    yield process
    os.kill(process, signal.SIGCONT)


@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    ("timeout", "margin", "words"),
    [
        (0.5, 1.5, "The engine of rank 1 did not answer within 2 s"),
        # Given up while rank 0 still looks for rank 1 in the group's store.
        (2.0, -1.0, "The engine of rank 0 did not answer within 1 s"),
    ],
)
def test_an_engine_that_does_not_come_is_named_and_the_next_test_is_not_disturbed(
    cluster: pt.Cluster, monkeypatch: pytest.MonkeyPatch, stopped: int, timeout: float, margin: float, words: str
) -> None:
    monkeypatch.setattr(selftest, "MARGIN", margin)
    with pytest.raises(pt.ClusterError, match=words):
        run_selftest(cluster, timeout)
    os.kill(stopped, signal.SIGCONT)
    monkeypatch.undo()
    assert run_selftest(cluster).world == 2


def test_beside_a_reconstruction_it_is_refused(cluster: pt.Cluster) -> None:
    with (
        pt.Reconstruction(pt.simulate(patterns=64, window=32), pt.Settings(), cluster),
        pytest.raises(pt.ClusterError, match=r"failed on rank 0: .*A reconstruction is open on this engine"),
    ):
        run_selftest(cluster)


def test_a_note_of_several_engines_is_told_once_with_their_ranks() -> None:
    assert selftest._notes({}) == ()
    assert selftest._notes({0: "Triton is missing.", 2: "No compiler.", 3: "Triton is missing."}) == (
        "Triton is missing. (rank 0, 3)",
        "No compiler. (rank 2)",
    )


ECHO = (
    "RuntimeError: [pair.cc:598] Connection closed by peer [127.0.0.1]:30872\nTraceback (most recent call last):\n  x"
)
NCCL = (
    "DistBackendError: NCCL error in: NCCLUtils.hpp:275, unhandled cuda error\n{}\nTraceback (most recent call last):\n"
)
PEERS = NCCL.format("Last error:\nCuda failure 217 'peer access is not supported between these two devices'")


@pytest.mark.parametrize(
    ("answers", "log", "start", "end"),
    [
        ([ECHO, PEERS], "", "failed on rank 1: DistBackendError: NCCL error in: NCCLUtils.hpp:275,", PEER_TO_PEER),
        ([PEERS, ECHO], "", "failed on rank 0: DistBackendError: NCCL error in: NCCLUtils.hpp:275,", PEER_TO_PEER),
        (
            [ECHO, NCCL.format("Last error:\n")],
            "transport.cc:1 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-pZafXL (size 7340384)",
            "failed on rank 1: DistBackendError: NCCL error in",
            SHARED_MEMORY,
        ),
        (
            [ECHO, "ValueError: something else\nTraceback (most recent call last):\n"],
            "an old line about /dev/shm: Error while creating shared memory segment",
            "failed on rank 1: ValueError: something else",
            "something else",
        ),
    ],
)
def test_of_several_failures_the_cause_is_told(answers: list[str], log: str, start: str, end: str) -> None:
    told = selftest._failed(dict(enumerate(answers)), 2, log)
    assert told.startswith(f"The self-test of 2 engines {start}")
    assert told.endswith(end)
    assert "Traceback" not in told


def test_the_engines_logs_are_read(cluster: pt.Cluster) -> None:
    assert cluster.folder is not None
    log = next((cluster.folder / "log").glob("*rank1*.log"))
    with log.open("a") as writing:
        writing.write("NCCL WARN something\n")
    assert "NCCL WARN something" in selftest.last_words(cluster).splitlines()
