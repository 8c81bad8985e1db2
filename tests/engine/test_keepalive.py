"""Who holds an engine, and how long it goes on when nobody does."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest

from ptynb.engine import keepalive, run_registry
from ptynb.engine.keepalive import Holder, Lease


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Lease:
    """A lease whose thread never looks."""
    monkeypatch.setattr(Lease, "_watch", lambda self: None)
    return Lease()


def later(made: Lease, seconds: float) -> bool:
    """Whether it has expired so many seconds after it was heard of last."""
    made._silence.restart()
    made._silence._seconds = seconds
    return made.expired()


def ended() -> Holder:
    process = subprocess.Popen([sys.executable, "-c", ""])
    start = psutil.Process(process.pid).create_time()
    process.wait()
    return Holder(process.pid, start, keepalive.machine(), 100.0)


def test_a_holder_that_lives_is_no_matter_of_time(made: Lease) -> None:
    made.renew(Holder.this(0.0))
    assert Holder.this(0.0).pid == os.getpid()
    assert not later(made, 1e6)


def test_without_a_holder_an_idle_engine_leaves_soon_and_one_at_work_when_the_lease_is_over(
    made: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.renew(ended())
    assert not later(made, keepalive.IDLE_SECONDS - 1)
    assert later(made, keepalive.IDLE_SECONDS + 1)
    monkeypatch.setattr(run_registry, "at_work", lambda: True)
    assert not later(made, 99)
    assert later(made, 101)


def test_a_holder_on_another_machine_may_be_silent_for_minutes(made: Lease) -> None:
    made.renew(replace(ended(), machine="another one"))
    assert not later(made, keepalive.IDLE_SECONDS_BEYOND - 1)
    assert later(made, keepalive.IDLE_SECONDS_BEYOND + 1)


def test_another_process_with_the_holders_id_is_not_the_holder(made: Lease) -> None:
    made.renew(replace(Holder.this(0.0), start=0.0))
    assert later(made, 1)


def test_one_that_nobody_ever_held_leaves_after_minutes(made: Lease) -> None:
    assert not later(made, keepalive.UNHELD_SECONDS - 1)
    assert later(made, keepalive.UNHELD_SECONDS + 1)
