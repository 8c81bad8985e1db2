"""The queue of what was clicked."""

from __future__ import annotations

import gc
import threading
import time

import pytest

from ptynb.widgets.actions import Actions


class Widget:
    def __init__(self) -> None:
        self.seen: list[str] = []
        lanes = ("", "scan", "run", "comparison")
        self.actions = Actions("a test's actions", self.complain, self.done, self.say, lanes)

    def complain(self, error: Exception | None) -> None:
        self.seen.append("clear" if error is None else str(error))

    def say(self, line: str) -> None:
        self.seen.append(line)

    def done(self) -> None:
        self.seen.append("done")


def threads() -> int:
    return sum(thread.name.startswith("a test's actions") for thread in threading.enumerate())


def test_actions_are_carried_out_in_order_and_complaints_are_shown() -> None:
    widget = Widget()
    widget.actions.put(lambda: widget.seen.append("first"), line="first()")
    widget.actions.put(lambda: {}["missing"], line="not said")
    widget.actions.put(lambda: widget.seen.append("last"))
    widget.actions.settle()
    assert widget.seen == ["clear", "first", "first()", "done", "clear", "'missing'", "done", "clear", "last", "done"]
    widget.actions.close()


def test_of_actions_of_one_kind_that_wait_only_the_newest_is_carried_out() -> None:
    widget, held = Widget(), threading.Event()
    moved: list[int] = []
    widget.actions.put(held.wait)
    for position in range(5):
        widget.actions.put(lambda position=position: moved.append(position), instead_of="slider")
    widget.actions.put(lambda: moved.append(-1), instead_of="another")
    held.set()
    widget.actions.settle()
    assert moved == [4, -1]
    widget.actions.close()


def test_a_widget_that_can_not_say_how_it_went_still_carries_out_the_next_action(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Widget):
        def complain(self, error: Exception | None) -> None:
            super().complain(error)
            if error is not None:
                raise RuntimeError("no place to say so")

        def done(self) -> None:
            raise KeyError("done")

    widget = Broken()
    widget.actions.put(lambda: {}["missing"])
    widget.actions.put(lambda: widget.seen.append("last"))
    widget.actions.settle(5)
    assert widget.seen == ["clear", "'missing'", "'done'", "clear", "last", "'done'"]
    assert "no place to say so" in caplog.text
    widget.actions.close()


def test_lanes_wait_for_nothing_but_what_they_follow() -> None:
    widget, held, seen = Widget(), threading.Event(), list[str]()
    widget.actions.put(lambda: (held.wait(), seen.append("slow")), lane="run")
    widget.actions.put(lambda: seen.append("slow, second"), lane="run")
    quick = threading.Event()
    widget.actions.put(lambda: (seen.append("quick"), quick.set()), lane="scan")
    widget.actions.put(lambda: seen.append("follows"), lane="comparison", after=("run",))
    widget.actions.put(lambda: seen.append("follows, second"), lane="comparison")
    assert quick.wait(10)
    with pytest.raises(TimeoutError):
        widget.actions.settle(0.2)
    assert seen == ["quick"]
    assert widget.actions.busy
    held.set()
    widget.actions.settle()
    assert seen[1] == "slow"
    assert seen.index("follows") > seen.index("slow, second")
    assert seen.index("follows, second") > seen.index("follows")
    widget.actions.close()


def test_a_complaint_is_removed_by_what_is_clicked_after_it_only() -> None:
    widget, held, begun = Widget(), threading.Event(), threading.Event()
    widget.actions.put(lambda: (begun.set(), held.wait()), lane="scan")
    widget.actions.put(lambda: None, lane="scan")  # clicked before the next complaint, and carried out after it
    assert begun.wait(10)
    widget.actions.put(lambda: {}["engines"], lane="run")
    while "done" not in widget.seen:
        time.sleep(0.01)
    held.set()
    widget.actions.settle()
    assert widget.seen == ["clear", "clear", "'engines'", "done", "done", "'engines'", "done"]
    widget.actions.put(lambda: None, lane="scan")
    widget.actions.settle()
    assert widget.seen[-2:] == ["clear", "done"]
    widget.actions.close()


@pytest.mark.parametrize("how", ["close", "forget"])
def test_the_thread_ends_with_its_widget(how: str) -> None:
    before = threads()
    widget = Widget()
    assert threads() == before + 4
    if how == "close":
        widget.actions.close()
    del widget
    gc.collect()
    until = time.monotonic() + 5
    while threads() > before and time.monotonic() < until:
        time.sleep(0.01)
    assert threads() == before
