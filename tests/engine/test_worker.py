"""Commands act on all ranks before the same update; an exception anywhere ends everybody."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
import subprocess
import sys
import weakref
from typing import Any

import numpy as np
import pytest
import torch

import ptynb as pt
from ptynb.data.commands import ChangeSettings, PauseRun, ResumeRun, StartRun, StopRun
from ptynb.data.scan import Scan
from ptynb.distributed.group import Membership
from ptynb.engine import worker as worker_module
from ptynb.engine.loop import Loop
from ptynb.engine.run_progress import RunTarget
from ptynb.engine.worker import GPU_LOST, RESTART, Worker
from ptynb.kernels.runtime.thread_count import torch_alone
from ptynb.settings.recipe import WITHOUT_STAGES, StagePlan
from tests.engine import work
from tests.engine.ranks import Ranks
from tests.waiting import until

EPOCHS = 40


@pytest.fixture(scope="module")
def scan() -> Scan:
    return pt.simulate(patterns=100, window=64, seed=5)


@pytest.mark.parametrize("world", [1, 3])
def test_stopped_and_resumed_equals_uninterrupted_to_the_bit(ranks: Ranks, scan: Scan, world: int) -> None:
    straight = ranks.run(world, work.command, scan, pt.Settings(), [(0.0, StartRun(EPOCHS))])[0]
    script: work.Script = [(0.0, StartRun(EPOCHS))]
    for moment in np.random.default_rng(world).uniform(0.02, 0.08, 3):
        script += [(float(moment), PauseRun()), (0.02, ResumeRun())]
    script += [(0.03, StopRun())]
    answers = ranks.run(world, work.stop_and_go_on, scan, pt.Settings(), script, EPOCHS)
    assert len({answer["stopped"] for answer in answers}) == 1
    epoch, update = answers[0]["stopped"]
    assert (0, 0) < (epoch, update) < (EPOCHS, 0)
    for answer in answers:
        assert answer["losses"] == straight["losses"]
        np.testing.assert_array_equal(answer["object"], straight["object"])
        np.testing.assert_array_equal(answer["probe"], straight["probe"])


def test_a_change_of_rates_is_taken_over_by_all_ranks_before_the_same_update(ranks: Ranks, scan: Scan) -> None:
    settings = pt.Settings(schedule={"kind": "constant"})
    slower = settings.replace(probe={"learning_rate": 0.003}).model_dump(mode="json")
    answers = ranks.run(3, work.command, scan, settings, [(0.0, StartRun(EPOCHS)), (0.1, ChangeSettings(slower))])
    [change] = answers[0]["status"].changes
    assert (change.name, change.old, change.new) == ("probe.learning_rate", 0.1, 0.003)
    assert (change.epoch, change.update) > (0, 0)
    for answer in answers:
        assert answer["status"].changes == (change,)
        assert answer["status"].rates == {"object": 0.1, "probe": 0.003}
        np.testing.assert_array_equal(answer["probe"], answers[0]["probe"])
    unchanged = ranks.run(3, work.command, scan, settings, [(0.0, StartRun(EPOCHS))])
    assert np.abs(unchanged[0]["probe"] - answers[0]["probe"]).max() > 0


def test_an_exception_on_one_rank_ends_all_in_seconds_and_names_it(ranks: Ranks, scan: Scan) -> None:
    answers = ranks.run(3, work.failing, scan, pt.Settings(), 5)
    message, lost_group, _ = answers[1]
    assert "out of memory, says the test" in message
    assert not lost_group
    for rank, (_, blames_another, seconds) in enumerate(answers):
        assert blames_another == (rank != 1)
        assert seconds < 5


@pytest.mark.parametrize("where", ["update", "request"])
def test_a_process_whose_gpu_is_lost_is_ended_and_the_others_notice_at_once(
    ranks: Ranks, scan: Scan, where: str
) -> None:
    (other, kept, seconds), (failure, ended, _) = ranks.run(2, work.losing_gpu, scan, pt.Settings(), where, True)
    assert failure.message.startswith("AcceleratorError: CUDA error: unspecified launch failure")
    assert failure.ends_engine
    assert not failure.lost_group
    (message,) = ended
    assert "Traceback" in message
    *_, cause, words = message.splitlines()
    assert cause == "Rank 1: AcceleratorError: CUDA error: unspecified launch failure"
    assert words == GPU_LOST
    assert other.lost_group
    assert not other.ends_engine
    assert kept == []
    assert seconds < 5


def test_the_users_own_process_stays_and_has_to_be_restarted(ranks: Ranks, scan: Scan) -> None:
    _, (failure, ended, _) = ranks.run(2, work.losing_gpu, scan, pt.Settings(), "update", False)
    assert failure.message.endswith(RESTART)
    assert not failure.ends_engine
    assert not failure.lost_group
    assert ended == []


@pytest.mark.parametrize(("backend", "readable"), [("nccl", False), ("gloo", True)])
def test_after_an_abort_of_nccl_the_present_state_is_not_offered(scan: Scan, backend: str, readable: bool) -> None:
    """The sums that were aborted have reached it, while gloo raises before anything is computed from them."""
    membership = Membership(rank=0, world=1, store="", backend=backend, device="cpu", identity="CPU")
    worker = Worker(scan, pt.Settings(), membership)
    loop = work.loaded(worker)

    def aborted(*_: Any, **__: Any) -> Any:
        raise torch.distributed.DistBackendError("NCCL communicator was aborted on rank 0.")

    loop.shard.batch = aborted  # type: ignore[method-assign]
    worker.command(StartRun(1))
    worker._thread.join(20)
    failure = worker.status().failure
    assert failure is not None
    assert failure.lost_group
    assert (worker.result() is not None) is readable


def test_a_rate_of_zero_freezes_a_part_exactly(ranks: Ranks, scan: Scan) -> None:
    frozen = pt.Settings(probe=pt.Probe(learning_rate=0))
    after = ranks.run(2, work.train, scan, frozen, 20)[0]
    np.testing.assert_array_equal(after["start"]["probe"], after["probe"])
    assert np.abs(after["start"]["object"] - after["object"]).max() > 0.01


def test_a_loss_that_is_not_finite_stops_all_ranks_with_advice(ranks: Ranks, scan: Scan) -> None:
    wild = pt.Settings(
        optimiser="sgd", object=pt.Object(learning_rate=10), probe=pt.Probe(learning_rate=10), loss="intensity"
    )
    for answer in ranks.run(2, work.diverging, scan, wild):
        assert "Start again with lower ones" in answer


def test_a_worker_that_begins_while_another_is_at_work_has_all_threads(scan: Scan) -> None:
    """torch gives a new thread the number of the moment, and one at work keeps torch's own threads asleep."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with torch_alone(), pt.Reconstruction(scan, pt.Settings(), device="cpu") as recon:
            recon.step()
            assert recon.status()[0].threads == 3
    finally:
        torch.set_num_threads(before)


LOADED = """
import sys
import torch
import ptynb as pt
from ptynb.distributed.group import SingleGroup
from ptynb.engine.loop import Loop
settings = pt.Settings(positions={"learning_rate": 0.1})
Loop(pt.simulate(patterns=9, window=16), settings, SingleGroup(torch.device("cpu"))).step()
print("torch._dynamo" in sys.modules)
"""


def test_one_engine_starts_without_loading_the_compiler_of_torch() -> None:
    answer = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True, timeout=120)
    assert answer.stdout.strip() == "False"


def test_a_closed_worker_leaves_its_record_and_no_model_nor_patterns(
    scan: Scan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also between two stages, whose windows differ: the memory is free before the next model is made.

    Patterns as they were sent are free once those of the last stage are stored.
    """
    loops, alive, made = list[weakref.ref[Loop]](), list[int](), Loop.__init__

    def observed(loop: Loop, *arguments: Any, **options: Any) -> None:
        loops.append(weakref.ref(loop))
        made(loop, *arguments, **options)

    monkeypatch.setattr(Loop, "__init__", observed)
    release = worker_module.release_unused

    def released() -> None:
        release()
        alive.append(sum(known() is not None for known in loops))

    monkeypatch.setattr(worker_module, "release_unused", released)
    membership = Membership(rank=0, world=1, store="", backend="none", device="cpu", identity="CPU")
    stages = pt.Stage(epochs=1, pattern_size=32), pt.Stage(epochs=1)
    received = pickle.loads(pickle.dumps(scan))
    message = weakref.ref(received.frames.array)
    worker = Worker(received, pt.Settings(), membership, plan=StagePlan(stages))
    del received
    worker.command(StartRun(2))
    until(lambda: worker.status().epoch >= 2 or worker.status().failure, 60)
    assert worker.status().failure is None
    assert message() is None
    worker.close()
    before = worker.status()
    worker.release()
    assert alive == [0, 1, 0], "between the stages, at the end of the thread, after the release"
    now = dataclasses.replace(worker.status(), number=before.number)
    assert now == dataclasses.replace(before, updates_per_epoch=0, rates={}, frames="")
    assert worker.health().agreed == 0


def test_a_command_obeyed_while_the_status_is_read_is_not_taken_for_done() -> None:
    class Obeying(Worker):
        """Its thread obeys `start` just after the state was read."""

        def __init__(self) -> None:
            self._membership = Membership(
                rank=0, world=1, store="", backend="none", device="cpu", identity="CPU", timeout=1.0
            )
            self._loop = self._between = self._writer = self._failure = self._arrivals = None
            self._plan, self._notices, self._verdict = WITHOUT_STAGES, (), ()
            self._r_factors, self._numbers = [], itertools.count()
            self._seen, self._applied, self._target, self._threads = "ready", 0, RunTarget(), 1
            self._uncounted_applied = 0

        @property
        def _state(self) -> str:
            read, self._seen, self._applied = self._seen, "running", 1
            return read

    worker = Obeying()
    first, second = worker.status(), worker.status()
    assert (first.state, first.applied) == ("ready", 0)
    assert (second.state, second.applied) == ("running", 1)
