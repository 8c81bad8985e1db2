import io
import re
import sys
import threading
import time

import pytest
from rich.console import Console

from ptynb import progress
from ptynb.data.arrivals import Arrivals
from ptynb.data.engine_records import Epoch
from tests.parametrization import each


def epoch(number):
    return Epoch(number, 0.5 / number, 0.05, 1230 + number)


class Run:
    """As much of a reconstruction as `follow` needs: another epoch each time it is asked."""

    def __init__(self, done=0, fails_at=None, stops_at=None):
        self.started = []
        self.done, self.fails_at, self.stops_at = done, fails_at, stops_at
        self.state = "ready"

    def start(self, epochs):
        self.started.append(epochs)
        self.state, self.target = "running", self.done + epochs

    def wait(self, timeout):
        time.sleep(timeout)
        if self.state == "running":
            raise TimeoutError

    @property
    def epochs(self):
        if self.state == "running" and self.done != self.fails_at:
            self.done += 1
            if self.done in (self.target, self.stops_at):
                self.state = "ready"
        return tuple(epoch(number) for number in range(1, self.done + 1))

    @property
    def failure(self):
        return RuntimeError("rank 1 failed") if self.done == self.fails_at else None


def terminal():
    return Console(file=io.StringIO(), force_terminal=True, width=120)


def log():
    return Console(file=io.StringIO(), force_terminal=False, width=60)


def test_the_bar_tells_epoch_loss_speed_and_time_left():
    run, console = Run(), terminal()
    progress.follow(run, 16, console)
    assert run.started == [16]
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue())
    assert "epoch 0/16" in shown
    assert "loss -" in shown
    seen = re.findall(r"epoch (\d+)/16 \S+ loss ([\d.]+) +(\d+) patterns/s (\S+)", shown)
    assert len(seen) >= 3
    for number, loss, speed, left in seen:
        assert (loss, speed) == (f"{0.5 / int(number):.5f}", f"{1230 + int(number)}")
        assert re.fullmatch(r"0:00:0\d|-:--:--", left)
    assert "0:00:01" in [left for *_, left in seen]
    assert re.search(r"epoch 16/16 \S+ loss 0\.03125 +1246 patterns/s 0:00:00\s*$", shown)


@pytest.fixture
def threads_take_turns_often():
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("threads_take_turns_often")
def test_an_epochs_number_is_never_beside_another_epochs_loss():
    console = terminal()
    with progress.Bar(console, 10**9, 0) as bar:
        end, number = time.monotonic() + 1, 0
        while time.monotonic() < end:  # far faster than the bar is drawn, by a thread of its own
            number += 1
            bar.show(epoch(number))
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue())
    seen = re.findall(r"epoch (\d+)/\d+ \S+ loss [\d.]+ +(\d+) patterns/s", shown)
    assert len(seen) >= 3
    assert [int(speed) - int(number) for number, speed in seen] == [1230] * len(seen)


@each("console", [terminal(), log()])
def test_a_failure_ends_it(console):
    with pytest.raises(RuntimeError, match="rank 1 failed"):
        progress.follow(Run(fails_at=3), 16, console)


@each("console", [terminal(), log()])
def test_a_run_that_is_stopped_from_elsewhere_ends_it(console):
    run = Run(stops_at=5)
    thread = threading.Thread(target=progress.follow, args=(run, 10**6, console), daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert "epoch 5/1000000" in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue())


def test_only_what_is_left_is_run():
    run = Run(done=3)
    progress.follow(run, 5, log())
    progress.follow(run, 5, log())
    assert (run.started, run.done) == ([2], 5)


def test_lines_have_the_time_are_never_wrapped_and_come_now_and_then(monkeypatch):
    console = log()
    lines = progress.LogProgress(console, target=40)
    clock = iter([10.0, 10.0, 11.0, 12.9, 13.0, 13.0, 14.0, 99.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(progress.time, "strftime", time.strftime)
    with lines:
        for number in (1, 2, 3, 4, 5):  # at 10, 11, 12.9, 13 and 14 s
            lines.show(epoch(number))
    said = console.file.getvalue().splitlines()
    assert [re.sub(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d ", "", line) for line in said] == [
        "epoch 1/40 loss 0.5 0.05 s (1231 patterns/s)",
        "epoch 4/40 loss 0.125 0.05 s (1234 patterns/s)",
        "epoch 5/40 loss 0.1 0.05 s (1235 patterns/s)",
    ]
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d ", line) for line in said)


def test_the_last_epoch_has_its_line_at_once():
    console = log()
    lines = progress.LogProgress(console, target=2)
    lines.show(epoch(1))
    lines.show(epoch(2))
    assert [line.split()[2] for line in console.file.getvalue().splitlines()] == ["1/2", "2/2"]


class LiveRun(Run):
    """A pattern each time it is asked, and an epoch; the last of five comes twice, and is used one look later."""

    def __init__(self):
        super().__init__()
        self.arrived = 0

    @property
    def epochs(self):
        if self.arrived < 5 and self.state == "running":
            self.target += 1  # this epoch is none of the run's
        return super().epochs

    @property
    def arrivals(self):
        self.arrived += 1
        came = min(self.arrived, 5)
        counted = dict.fromkeys(("missing", "late", "differing", "outside", "refused", "damaged", "stray"), 0)
        return Arrivals(
            **counted,
            planned=5,
            arrived=came,
            placed=came,
            duplicates=came // 5,
            rate=123.4,
            lag=0.0,
            silence=0.0,
            series="1",
            ended="complete: 5 of 5" if came == 5 else None,
            admitted=min(self.arrived - 1, 5),
        )


@each("console", [terminal(), log()])
def test_a_scan_that_is_measured_has_its_counts_and_then_the_epochs_after_its_end(console):
    run = LiveRun()
    progress.follow_live(run, 3, console)
    assert run.started == [3]
    said = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue())
    assert re.search(r"[1-4] of 5 patterns came, \d used, 123 patterns/s", said)
    assert said.count("5 of 5 patterns came, 5 used, 1 duplicate, 123 patterns/s; complete: 5 of 5.") == 1
    assert f"epoch {run.target}/{run.target} " in said.split("complete")[1]
    assert run.target > 6
