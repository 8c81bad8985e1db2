"""Nothing grows: not with runs, reconstructions and clusters begun and ended, not with epochs, not with engines.

PTYNB_LEAK_CYCLES (60 unless set) says how often runs are begun and ended; reconstructions a third as often.
"""

from __future__ import annotations

import gc
import mmap
import os
import pickle
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from pathlib import Path

import pytest

import ptynb as pt
from ptynb.cluster.launchers.launcher import is_alive
from ptynb.data.scan import Scan
from ptynb.io.checkpoint_file import load_state, newest_state
from tests.faults import figures
from tests.faults.figures import MEGABYTE, Figures
from tests.faults.test_notebook import processes_of
from tests.waiting import until

CYCLES = int(os.environ.get("PTYNB_LEAK_CYCLES", "60"))
WARM = 10
"""Cycles before anything is compared: memory is taken for the first time, modules are loaded."""
SETTLED = 40
"""Runs that are begun and ended first: in them the engines' allocators take 4 MB, in the next 60 less than 2 MB."""
GROWTH_BYTES, GROWTH_BYTES_A_CYCLE = 4 * MEGABYTE, 20_000
"""Allocators keep some; a cycle that leaks the answers to its questions (as once) leaves 200 kB in the kernel."""
TREND_BYTES = 60_000
"""Of a cycle in which a reconstruction is opened and closed; its answers, once kept, were 200 kB in the kernel."""
MORE = 2
"""Files and threads, of which a moment may have one more than another."""
EPOCHS = 10_000
EPOCH_BYTES = 600
"""Of one epoch's record in a process, with what the allocator adds: 380 measured."""
START_SECONDS, STOP_SECONDS = 120.0, 10.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[pt.Cluster]:
    with pt.Cluster(2, device="cpu", threads=1) as started:
        yield started


@pytest.fixture(scope="module")
def scan(tmp_path_factory: pytest.TempPathFactory) -> Scan:
    path: Path = tmp_path_factory.mktemp("scan") / "scan.h5"
    return pt.save_scan(pt.simulate(patterns=16, window=16, seed=5), path)


def assert_not_grown(
    before: dict[str, Figures], after: dict[str, Figures], cycles: int, bytes_a_cycle: int = GROWTH_BYTES_A_CYCLE
) -> None:
    for name in before:
        grown = after[name].grown(before[name])
        print(f"{name}: {after[name]}; in {cycles} cycles {grown}")
        assert grown.memory < GROWTH_BYTES + cycles * bytes_a_cycle, name
        assert grown.files <= MORE, name
        assert grown.threads <= MORE, name
        assert grown.processes <= 0, name


def test_runs_that_are_begun_and_ended_leave_nothing(cluster: pt.Cluster, scan: Scan, tmp_path: Path) -> None:
    keep = pt.Checkpointing(folder=tmp_path, epochs=10, seconds=None)
    before: dict[str, Figures] = {}
    with pt.Reconstruction(scan, pt.Settings(batch=8), cluster, checkpointing=keep) as recon:
        for cycle in range(SETTLED + CYCLES):
            if cycle == SETTLED:
                before = figures.taken(cluster)
            recon.start(2)
            recon.wait()
            recon.start(100_000)
            recon.pause()
            recon.resume()
            recon.stop()
        assert_not_grown(before, figures.taken(cluster), CYCLES)
        assert cluster._launcher is not None
        assert cluster._caller is not None
        client = cluster._caller._client
        tables = client._output_futures, client.results, client.history
        until(lambda: not any(map(len, tables)), 10, "no answer is kept")
        assert not client._futures, "statuses come through the engine's own socket"


def least(taken: Sequence[Figures]) -> Figures:
    """The least of each, of figures of different times."""
    return Figures(*map(min, zip(*map(astuple, taken), strict=True)))


def assert_no_trend(taken: list[dict[str, Figures]]) -> None:
    """Of figures after each of some cycles.

    The least of each half is compared: ipykernel closes the pipe of a thread that has published, as that of a
    reconstruction's statuses does, within 10 s of its end.
    """
    half = len(taken) // 2
    for name in taken[0]:
        growth = figures.trend([one[name].memory for one in taken])
        grown = least([one[name] for one in taken[half:]]).grown(least([one[name] for one in taken[:half]]))
        print(f"{name}: {taken[-1][name]}; in {half} cycles {grown}; {growth / 1000:.1f} kB a cycle")
        assert growth < TREND_BYTES, name
        assert grown.files <= MORE, name
        assert grown.threads <= MORE, name
        assert grown.processes <= 0, name


def test_reconstructions_that_are_opened_and_closed_leave_nothing(cluster: pt.Cluster, scan: Scan) -> None:
    taken: list[dict[str, Figures]] = []
    for _ in range(WARM + CYCLES // 3):
        with pt.Reconstruction(scan, pt.Settings(batch=8), cluster) as recon:
            recon.start(1)
            recon.wait()
        del recon
        time.sleep(0.3)  # the thread that looks after its engines looks four times a second
        taken.append(figures.taken(cluster))
    assert_no_trend(taken[WARM:])


def test_a_leak_is_seen_and_an_allocators_step_is_none() -> None:
    kept = []
    taken = [{"kernel": figures.kernel()}]
    for _ in range(20):
        # Pages of its own: an allocator may have as much left over; more than earlier tests release now (8 MB).
        kept.append(mmap.mmap(-1, 2_000_000))
        kept[-1].write(os.urandom(2_000_000))
        taken.append({"kernel": figures.kernel()})
    with pytest.raises(AssertionError, match="kernel"):
        assert_no_trend(taken)
    for pages in kept:
        pages.close()
    steps = [50.0e6 + 3.0e6 * (cycle > 7) + 1.0e6 * (cycle % 3 == 0) for cycle in range(20)]
    assert abs(figures.trend(steps)) < TREND_BYTES
    assert figures.trend([step + 100_000 * cycle for cycle, step in enumerate(steps)]) > TREND_BYTES


def test_ten_thousand_epochs_cost_their_record_and_no_more(scan: Scan, tmp_path: Path) -> None:
    keep = pt.Checkpointing(folder=tmp_path, epochs=500, seconds=None, pictures=0.5)
    with (
        pt.Cluster(1, device="cpu", threads=1) as cluster,
        pt.Reconstruction(scan, pt.Settings(batch=16), cluster, checkpointing=keep) as recon,
    ):
        recon.start(EPOCHS // 10)
        recon.wait()
        before, first = figures.taken(cluster), pickle.dumps(recon._client.engines.call(0, "status", recon.epoch))
        recon.start(EPOCHS - EPOCHS // 10)
        recon.wait()
        after, last = figures.taken(cluster), pickle.dumps(recon._client.engines.call(0, "status", recon.epoch))
        assert [epoch.number for epoch in recon.epochs] == [*range(1, EPOCHS + 1)]
        one = recon.epochs[-1]
        record = sys.getsizeof(one) + sys.getsizeof(vars(one)) + sum(map(sys.getsizeof, vars(one).values()))
        assert record < EPOCH_BYTES
        assert len(last) < len(first) + 16, "what travels grows with the record"
        assert len(last) < 2000
        assert_not_grown(before, after, EPOCHS, 4 * EPOCH_BYTES)
        assert not recon.notices
    assert len(sorted(tmp_path.glob("state-*.h5"))) == keep.max_to_keep
    assert {one.name for one in tmp_path.glob("*.jpg")} == {"amplitude.jpg", "phase.jpg", "probe.jpg"}
    state = load_state(newest_state(tmp_path))
    assert (state.epoch, len(state.epochs)) == (EPOCHS, EPOCHS)


def test_eight_engines_on_two_cores_give_one_engines_losses_and_leave(scan: Scan) -> None:
    settings = pt.Settings(batch=8, optimiser="sgd")
    with pt.Reconstruction(scan, settings, device="cpu", checkpointing=None) as alone:
        expected = [epoch.loss for epoch in alone.run(3)]
    started = time.monotonic()
    with pt.Cluster(8, device="cpu", threads=1) as cluster:
        assert time.monotonic() - started < START_SECONDS
        name = cluster.name
        with pt.Reconstruction(scan, settings, cluster, checkpointing=None) as recon:
            losses = [epoch.loss for epoch in recon.run(3)]
        stopped = time.monotonic()
    assert time.monotonic() - stopped < STOP_SECONDS
    assert losses == pytest.approx(expected, rel=1e-5)
    assert not [one for one in processes_of(name) if is_alive(one)]


def test_clusters_that_are_started_and_stopped_leave_nothing() -> None:
    before: Figures | None = None
    for cycle in range(3):
        with pt.Cluster(1, device="cpu", threads=1) as cluster:
            name, folder = cluster.name, cluster.folder
        assert folder is not None
        assert not folder.exists()
        assert not [one for one in processes_of(name) if is_alive(one)]
        del cluster
        gc.collect()
        if cycle == 0:
            before = figures.kernel()
    assert before is not None
    assert_not_grown({"kernel": before}, {"kernel": figures.kernel()}, 2)
