"""The list of checkpoints and its commands; what a browser shows of it, in one."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect

import ptynb as pt
from ptynb.data.engine_records import Branch, Checkpoint
from ptynb.io.result_file import save_result
from ptynb.polling import wait_until
from ptynb.widgets.history import History
from tests.analysis.test_result_comparison import result
from tests.widgets.browser_model import BrowserModel, violations

RESULT = result()


def a_state(epoch: int, branch: str = "main", **more: Any) -> Checkpoint:
    path = Path("/kept") / ("" if branch == "main" else f"branches/{branch}") / f"state-{epoch:05d}.h5"
    return Checkpoint(path, branch, epoch, more.pop("update", 0), 1 / (1 + epoch), 1e9 + epoch, 2_500_000, **more)


class Recon:
    """Keeps what it was asked for."""

    def __init__(self) -> None:
        self.checkpoints: tuple[Checkpoint, ...] = (a_state(2), a_state(4, stays=True))
        self.names, self.branch_name, self.epoch, self.closed = ["main"], "main", 7, False
        self.asked, self.result = list[Any](), RESULT
        self.error: Exception | None = None

    @property
    def branches(self) -> tuple[Branch, ...]:
        return tuple(Branch(name, Path("/kept"), self.checkpoints[-1], 1, 10) for name in self.names)

    def save_checkpoint(self) -> Path:
        if self.error is not None:
            raise self.error
        self.asked.append("save")
        return Path("/kept/state-00007.h5")

    def restore(self, checkpoint: Any) -> None:
        self.asked.append(("restore", checkpoint))

    def branch(self, name: str | None = None, checkpoint: Any = None) -> str:
        self.asked.append(("branch", name, checkpoint))
        self.branch_name = name or "branch"
        self.names.append(self.branch_name)
        return self.branch_name

    def switch_branch(self, name: str) -> None:
        self.asked.append(("switch", name))
        self.branch_name = name


@pytest.fixture
def recon() -> Recon:
    return Recon()


@pytest.fixture
def view(recon: Recon, lines: list[str]) -> Iterator[History]:
    made = History(recon)
    made.tell = lines.append
    yield made
    if made.comparison is not None:
        made.comparison.settle()
    made.close()


@pytest.fixture
def lines() -> list[str]:
    return []


def carried_out(view: History, name: str, *given: Any) -> None:
    """A command, as a browser sends it, and the end of its action."""
    getattr(view, name)(*given)
    view.settle()


def key(checkpoint: Checkpoint) -> str:
    return str(checkpoint.path)


def test_checkpoints_are_listed_newest_last_and_followed(recon: Recon, view: History) -> None:
    stamp = time.strftime("%H:%M:%S", time.localtime(1e9 + 4))
    assert [one["epoch"] for one in view.checkpoints] == ["2", "4"]
    assert view.checkpoints[1] == {
        "key": "/kept/state-00004.h5", "name": "epoch 4 (main)", "epoch": "4", "loss": "0.2", "branch": "main",
        "written": stamp, "size": "2.5 MB", "stays": True,
    }  # fmt: skip
    recon.checkpoints += (a_state(6, update=3),)
    assert wait_until(lambda: len(view.checkpoints) == 3, 10)
    assert view.checkpoints[2]["epoch"] == "6 + 3"
    recon.closed = True
    assert wait_until(lambda: view.over, 10)


def test_out_of_sight_nothing_is_read_and_in_sight_the_list_is_the_present_one(recon: Recon, view: History) -> None:
    view.rest(True)
    time.sleep(0.1)
    recon.checkpoints += (a_state(6),)
    time.sleep(1.2)
    assert len(view.checkpoints) == 2
    view.rest(False)
    assert wait_until(lambda: len(view.checkpoints) == 3, 0.8), "at once, not with the next turn of a second"


def test_commands_do_what_the_lines_say(recon: Recon, view: History, lines: list[str]) -> None:
    first = key(recon.checkpoints[0])
    carried_out(view, "restore", first)
    assert view.notice == "Restored epoch 2."
    carried_out(view, "save")
    assert view.notice == "Checkpoint written: state-00007.h5."
    carried_out(view, "branch", first, " trial ")
    assert (view.branches, view.present) == (["main", "trial"], "trial")
    carried_out(view, "switch", "main")
    carried_out(view, "branch", "now")
    assert recon.asked == [
        ("restore", a_state(2)), "save", ("branch", "trial", a_state(2)), ("switch", "main"), ("branch", None, None),
    ]  # fmt: skip
    assert lines == [
        "recon.restore(2)", "recon.save_checkpoint()", "recon.branch('trial', 2)",
        "recon.switch_branch('main')", "recon.branch('branch')",
    ]  # fmt: skip


def test_a_checkpoint_that_no_epoch_names_is_told_by_its_file(recon: Recon, view: History, lines: list[str]) -> None:
    recon.checkpoints = (a_state(2, "trial"), a_state(4, update=3))
    view.refresh()
    for state in recon.checkpoints:
        carried_out(view, "restore", key(state))
    assert lines == ["recon.restore('/kept/branches/trial/state-00002.h5')", "recon.restore('/kept/state-00004.h5')"]


def test_a_checkpoint_that_was_deleted_meanwhile_is_no_other_one(recon: Recon, view: History) -> None:
    first = key(recon.checkpoints[0])
    recon.checkpoints = (recon.checkpoints[1], a_state(6))
    view.refresh()
    for name, given in (("restore", first), ("branch", first), ("compare", ["now", first])):
        carried_out(view, name, given)
        assert "state-00002.h5 was deleted" in view.message
    assert recon.asked == []


def test_an_error_is_shown_until_the_next_command_and_nothing_is_told(
    recon: Recon, view: History, lines: list[str]
) -> None:
    recon.error = RuntimeError("The disk is full.\nhere")
    carried_out(view, "save")
    assert (view.message, view.notice, lines) == ("The disk is full.\nhere", "", [])
    recon.error = None
    carried_out(view, "save")
    assert (view.message, lines) == ("", ["recon.save_checkpoint()"])


def test_several_are_compared(recon: Recon, view: History, lines: list[str], tmp_path: Path) -> None:
    kept = []
    for number, strength in enumerate((0.1, 0.3)):
        kept.append(dataclasses.replace(recon.checkpoints[number], path=tmp_path / f"state-{number}.result.h5"))
        save_result(dataclasses.replace(RESULT, object=RESULT.object * np.exp(1j * strength)), kept[-1].path)
    recon.checkpoints = (*kept,)
    view.refresh()
    first, second = map(key, kept)
    carried_out(view, "compare", ["now", first, second])
    assert view.message == view.notice == ""
    before = view.comparison
    assert before is not None
    before.settle()
    assert [*before.results] == ["epoch 2 (main)", "epoch 4 (main)", "current state"]
    assert lines == [f"view = pt.compare({first!r}, {second!r}, {{'current state': recon.result}})"]
    names = {"pt": pt, "recon": recon}
    exec(lines[0], names)
    assert len(names["view"].results) == 3
    names["view"].settle()
    names["view"].close()
    carried_out(view, "compare", [first, second])
    assert view.comparison is not None
    assert [*view.comparison.results] == ["epoch 2 (main)", "epoch 4 (main)"]
    assert before.closed, "the one before is closed"
    asked: list[Any] = []
    view.open_comparison = lambda checkpoints, with_now: asked.append((checkpoints, with_now))
    carried_out(view, "compare", ["now", second])
    assert asked == [([kept[1]], True)]


def test_several_are_selected_by_keys_while_the_list_changes(recon: Recon, view: History, page: Page) -> None:
    model = BrowserModel(page, view)
    states = page.get_by_label("Checkpoints")
    states.press("End")
    states.press("Shift+ArrowUp")
    selected = page.get_by_text("Selected: epoch 2 (main), epoch 4 (main). Restore and Branch")
    expect(selected).to_be_visible()
    recon.checkpoints = (recon.checkpoints[1], a_state(6))
    view.refresh()
    expect(page.get_by_text("Selected: epoch 4 (main).")).to_be_visible()
    expect(states).to_be_focused()
    expect(states).to_have_values(["/kept/state-00004.h5"])
    view.message, view.notice = "The disk is full.\nhere", "Restoring epoch 4 ..."
    assert violations(page, name="history") == []
    page.get_by_role("button", name="Restore").press("Enter")
    model.collect()
    view.settle()
    assert recon.asked == [("restore", a_state(4, stays=True))]
    model.close()
