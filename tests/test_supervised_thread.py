"""An error in a background thread is reported, and what the thread is for goes on."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

import ptynb as pt
from ptynb import supervised_thread
from ptynb.cluster.cluster import Cluster
from ptynb.data.commands import StartRun
from ptynb.data.engine_records import Health
from ptynb.distributed import group
from ptynb.distributed.group import Membership
from ptynb.distributed.timeouts import CollectiveTimeout
from ptynb.engine import keepalive
from ptynb.engine.worker import Worker
from ptynb.kernels.runtime import thread_pool
from ptynb.kernels.runtime.thread_pool import in_shares
from ptynb.serial_executor import SerialExecutor
from ptynb.session.engine_client import EngineClient
from ptynb.session.engines import Engines
from ptynb.session.run_spec import RunSpec
from ptynb.supervised_thread import SupervisedThread, problems
from ptynb.widgets.actions import Actions, repeat
from tests.cases import a_scan
from tests.engine.work import loaded
from tests.waiting import until

ALONE = Membership(rank=0, world=1, store="", backend="none", device="cpu", identity="CPU")


@pytest.fixture(autouse=True)
def _own_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised_thread, "_problems", {})
    monkeypatch.setattr(supervised_thread, "RESTART_SECONDS", 0.01)


class Failing:
    """Raises the first time that it is called, and does its work after that."""

    def __init__(self, work: Callable[..., Any], error: BaseException | None = None) -> None:
        self._work, self._error = work, error or LookupError("says the test")
        self.calls = 0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.calls += 1
        if self.calls == 1:
            raise self._error
        return self._work(*arguments, **named)


@pytest.mark.parametrize("error", [LookupError("why"), SystemExit("why")])
@pytest.mark.parametrize("restarts", [True, False])
def test_an_error_is_reported_once_and_work_that_has_to_go_on_begins_again(
    error: BaseException, restarts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    work = Failing(lambda name: None, error)
    thread = SupervisedThread("a test's", work, "argument", restarts=restarts)
    thread.start()
    thread.join(20)
    assert work.calls == 1 + restarts
    outcome = "failed and was started again" if restarts else "ended by an error"
    assert problems() == (f'The background thread "a test\'s" {outcome} ({type(error).__name__}: why).',)
    assert "in __call__" in caplog.text, "the traceback is in the log"


def test_work_of_an_executor_that_fails_when_nobody_waits_any_more_is_reported() -> None:
    executor, go = SerialExecutor("a test's work"), threading.Event()

    def fails() -> None:
        go.wait(20)
        raise LookupError("late")

    with pytest.raises(TimeoutError):
        executor.run(fails, patience=0.01)
    go.set()
    executor.wait()
    assert ["LookupError: late" in problem for problem in problems()] == [True]
    with pytest.raises(LookupError):
        executor.run(fails)
    assert len(problems()) == 1, "an error that is raised is not reported besides"


def test_a_training_thread_that_ends_by_itself_is_a_failure_of_the_run() -> None:
    worker = Worker(a_scan(), pt.Settings(batch=8), ALONE)
    loaded(worker).step = Failing(lambda: None, SystemExit("of a component"))  # type: ignore[method-assign]
    worker.command(StartRun(1))
    worker._thread.join(20)
    status = worker.status()
    assert status.state == "failed"
    assert status.failure is not None
    assert "SystemExit: of a component" in status.failure.message


def test_the_record_is_complete_though_one_status_could_not_be_received_and_the_user_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recon = pt.Reconstruction(a_scan(), pt.Settings(batch=8), checkpointing=None)
    until(lambda: recon.state == "ready")
    failing = Failing(EngineClient._receive)
    monkeypatch.setattr(EngineClient, "_receive", lambda *arguments: failing(*arguments))
    recon._client.command(StartRun(2))
    until(lambda: len(recon._client.epochs) == 2)
    assert failing.calls > 1
    assert ["could not be delivered" in notice for notice in recon.notices] == [True]
    recon.close()


def test_problems_of_the_other_engines_are_notices_too() -> None:
    recon = pt.Reconstruction(a_scan(), pt.Settings(batch=8), checkpointing=None)
    [own] = recon.health()
    recon._health = (own, Health(rank=1, host="", device="", state="running", problems=("It failed.",)))
    assert recon.notices == ("Rank 1: It failed.",)
    recon.close()


def test_a_lease_ends_its_engine_though_a_look_for_the_holder_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr(keepalive, "os", SimpleNamespace(_exit=killed.append))
    monkeypatch.setattr(keepalive, "terminate_self", lambda: killed.append(os.getpid()))
    monkeypatch.setattr(keepalive, "LEAVE_SECONDS", 0.0)
    expired = Failing(lambda: True)
    monkeypatch.setattr(keepalive.Lease, "expired", lambda self: expired())
    keepalive.Lease()
    until(lambda: killed == [os.getpid(), 1])


def test_a_lease_is_renewed_though_a_renewal_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptynb.cluster.cluster.RENEW_SECONDS", 0.01)
    ended, renew = threading.Event(), Failing(lambda: None)
    cluster = cast(Cluster, SimpleNamespace(_renew_lease=renew))
    thread = SupervisedThread("ptynb lease renewal", Cluster._keep_renewing, cluster, ended, restarts=True)
    thread.start()
    until(lambda: renew.calls > 2)
    ended.set()
    thread.join(20)


def test_a_time_limit_holds_though_an_abort_failed() -> None:
    aborted = threading.Event()
    limit = CollectiveTimeout(0.2, Failing(aborted.set))
    with pytest.raises(pt.ClusterError, match="did not answer"), limit.waiting():
        assert aborted.wait(20)
    limit.close()


def test_a_wait_for_a_collective_ends_by_any_error() -> None:
    done, wake = threading.Event(), threading.Event()
    with pytest.raises(LookupError):
        group._wait(cast(torch.distributed.Work, SimpleNamespace(wait=Failing(lambda: None))), done, wake)
    assert done.is_set()
    assert wake.is_set()


@in_shares
def _filled(numbers: Any, share: int, shares: int) -> None:
    numbers[share] = 1


@pytest.fixture
def _three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_three_threads")
def test_a_helper_does_its_share_though_it_could_not_move(monkeypatch: pytest.MonkeyPatch) -> None:
    _filled(np.zeros(3))
    monkeypatch.setattr(thread_pool, "_move_off", move := Failing(lambda taken: None))
    for _ in range(3):
        numbers = np.zeros(3)
        time.sleep(0.1)  # the helpers fall asleep
        _filled(numbers)
        assert numbers.tolist() == [1, 1, 1]
    until(lambda: len(problems()) == 1)
    assert move.calls > 1


def test_who_reopens_a_reconstruction_gets_errors_of_all_kinds() -> None:
    calls = {"follow": lambda *_: None, "unfollow": lambda: None, "close": lambda: None, "lost": str}
    engines = cast(Engines, SimpleNamespace(world=1, reachable=True, **calls))
    client = EngineClient(engines, RunSpec(a_scan(), pt.Settings(), b"", None, 60.0, "pause", 0.0))
    with pytest.raises(SystemExit, match="of a library"):
        client.apart(Failing(lambda: None, SystemExit("of a library")))
    assert not client.recovering
    client.close()


def test_a_click_that_ends_its_thread_is_shown_and_the_next_one_is_done() -> None:
    seen: list[str] = []

    class Widget:
        def complain(self, error: Exception | None) -> None:
            seen.append(repr(error))

    widget = Widget()
    actions = Actions("ptynb test", widget.complain)
    actions.put(Failing(lambda: None, SystemExit(3)))
    actions.put(lambda: seen.append("next"))
    actions.settle(20)
    actions.close()
    assert seen == ["None", "SystemExit(3)", "None", "next"]


def test_a_view_that_could_not_say_what_failed_is_updated_again() -> None:
    class View:
        closed = False

    view, work = View(), Failing(lambda view: None)
    soon = repeat(view, "ptynb test", 0.01, work, Failing(lambda view, error: None))
    until(lambda: work.calls > 2)
    view.closed = True
    soon.set()
    assert len(problems()) == 1
