"""The list of kept states, and its buttons, without a browser."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptynb as pt
from ptynb.data.engine_records import Branch, Checkpoint
from ptynb.io.result_file import save_result
from ptynb.widgets import elements
from ptynb.widgets.elements import below
from ptynb.widgets.history import History
from tests.analysis.test_result_comparison import result

RESULT = result()


def a_state(epoch: int, branch: str = "main", **more: Any) -> Checkpoint:
    path = Path("/kept") / ("" if branch == "main" else f"branches/{branch}") / f"state-{epoch:05d}.h5"
    return Checkpoint(path, branch, epoch, more.pop("update", 0), 1 / (1 + epoch), 1e9 + epoch, 2_500_000, **more)


class Recon:
    """Keeps what it was asked for."""

    def __init__(self) -> None:
        self.checkpoints: tuple[Checkpoint, ...] = (a_state(2), a_state(4, stays=True))
        self.names, self.branch_name, self.epoch, self.closed = ["main"], "main", 7, False
        self.asked: list[Any] = []
        self.error: Exception | None = None

    @property
    def branches(self) -> tuple[Branch, ...]:
        newest = self.checkpoints[-1]
        return tuple(
            Branch(name, Path("/kept"), newest, 1, 10, present=name == self.branch_name) for name in self.names
        )

    @property
    def result(self) -> pt.Result:
        return RESULT

    def _ask(self, *what: Any) -> None:
        if self.error is not None:
            raise self.error
        self.asked.append(what)

    def save_checkpoint(self) -> Path:
        self._ask("keep")
        self.checkpoints += (a_state(self.epoch),)
        return self.checkpoints[-1].path

    def restore(self, checkpoint: Any) -> None:
        self._ask("go back", checkpoint)
        self.epoch = checkpoint.epoch

    def branch(self, name: str | None = None, checkpoint: Any = None) -> str:
        self._ask("branch", name, checkpoint)
        self.branch_name = name or "branch"
        self.names.append(self.branch_name)
        return self.branch_name

    def switch_branch(self, name: str) -> None:
        self._ask("switch", name)
        self.branch_name = name


@pytest.fixture
def recon() -> Recon:
    return Recon()


@pytest.fixture
def view(recon: Recon) -> Iterator[History]:
    made = History(recon)
    yield made
    made.close()


def labels(view: History) -> list[str]:
    return [" ".join(label.split()) for _, label in view.list.options]


def click(view: History, button: elements.Button) -> None:
    button.click()
    view._actions.settle()


def test_states_are_listed_newest_last_and_refreshed_by_itself(recon: Recon, view: History) -> None:
    stamp = time.strftime("%H:%M:%S", time.localtime(1e9 + 4))
    assert labels(view)[0] == "current state, branch main"
    assert labels(view)[2] == f"4 0.2 main {stamp} 2.5 MB permanent"
    assert labels(view)[1].startswith("2 0.33333 main")
    view.list.value = str(recon.checkpoints[0].path)
    recon.checkpoints += (a_state(6, update=3),)
    until = time.monotonic() + 10
    while len(view.list.options) < 4:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert labels(view)[3].startswith("6 + 3 0.14286")
    assert view.list.value == str(recon.checkpoints[0].path)  # what was chosen stays chosen


def test_a_choice_made_just_as_states_are_removed_means_what_was_seen_or_nothing(recon: Recon, view: History) -> None:
    first, second = (str(state.path) for state in recon.checkpoints)
    recon.checkpoints = (recon.checkpoints[1], a_state(6))
    view.refresh()
    view.list.receive_values({"chosen": [second]})  # as a browser says it
    click(view, view.restore)
    assert recon.asked == [("go back", a_state(4, stays=True))]
    view.list.receive_values({"chosen": [first]})
    for button in (view.restore, view.branch):
        click(view, button)
        assert "state-00002.h5 was deleted" in view._message.value
    assert len(recon.asked) == 1


def test_a_chosen_state_that_is_removed_leaves_nothing_chosen(recon: Recon, view: History) -> None:
    view.list.value = str(recon.checkpoints[0].path)
    recon.checkpoints = recon.checkpoints[1:]
    view.refresh()
    assert view.list.value is None
    assert view.restore.disabled
    assert view.branch.disabled
    view.branch.disabled = False  # a click that was on its way
    click(view, view.branch)
    assert "No checkpoint is selected" in view._message.value
    assert recon.asked == []


def test_what_is_chosen_after_the_click_is_no_part_of_it(recon: Recon, view: History) -> None:
    held = threading.Event()
    view._actions.put(held.wait)
    view.list.value = str(recon.checkpoints[0].path)
    view.restore.click()
    view.name.value = "trial"
    view.branch.click()
    recon.names.append("other")
    view.refresh()
    view.branches.value = "other"
    view.switch_branch.click()
    view.list.value, view.name.value, view.branches.value = str(recon.checkpoints[1].path), "later", "main"
    held.set()
    view._actions.settle()
    assert recon.asked == [("go back", a_state(2)), ("branch", "trial", a_state(2)), ("switch", "other")]


def test_out_of_sight_nothing_is_read_and_in_sight_the_list_is_the_present_one(recon: Recon, view: History) -> None:
    view.rest(True)
    time.sleep(0.1)
    recon.checkpoints += (a_state(6),)
    time.sleep(1.2)
    assert len(view.list.options) == 3
    view.rest(False)
    until = time.monotonic() + 0.8  # at once, not with the next turn of a second
    while len(view.list.options) < 4:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_refresh_never_turns_a_button_off_that_was_on(recon: Recon, view: History) -> None:
    view.list.value = str(recon.checkpoints[0].path)
    seen: list[bool] = []
    view.restore.observe(lambda change: seen.append(change["new"]), "disabled")
    recon.checkpoints += (a_state(6),)
    recon.names.append("trial")
    view.refresh()
    assert len(view.list.options) == 4
    assert seen == []


def test_buttons_do_what_the_lines_say(recon: Recon, view: History) -> None:
    lines: list[str] = []
    view.tell = lines.append
    assert view.restore.disabled
    view.list.value = str(recon.checkpoints[0].path)
    assert not view.restore.disabled
    click(view, view.restore)
    click(view, view.keep)
    view.name.value = "trial"
    click(view, view.branch)
    assert recon.asked == [("go back", a_state(2)), ("keep",), ("branch", "trial", a_state(2))]
    assert view.branches.value == "trial"
    assert view.switch_branch.disabled
    view.branches.value = "main"
    assert not view.switch_branch.disabled
    click(view, view.switch_branch)
    view.list.value = "now"
    click(view, view.branch)
    assert recon.asked[-2:] == [("switch", "main"), ("branch", None, None)]
    assert lines == [
        "recon.restore(2)",
        "recon.save_checkpoint()",
        "recon.branch('trial', 2)",
        "recon.switch_branch('main')",
        "recon.branch('branch')",
    ]
    assert "Now on branch branch" in view._message.value


def test_several_are_compared_and_only_one_is_restored(recon: Recon, view: History, tmp_path: Path) -> None:
    for number, strength in enumerate((0.1, 0.3)):
        kept = dataclasses.replace(recon.checkpoints[number], path=tmp_path / f"state-{number}.result.h5")
        save_result(dataclasses.replace(RESULT, object=RESULT.object * np.exp(1j * strength)), kept.path)
        recon.checkpoints = (*recon.checkpoints[:number], kept, *recon.checkpoints[number + 1 :])
    view.refresh()
    first, second = (str(one.path) for one in recon.checkpoints)
    lines: list[str] = []
    view.tell = lines.append
    assert view.compare.disabled
    view.list.receive_values({"chosen": ["now", second, first]})  # in whatever order a browser names them
    assert view.restore.disabled
    assert view.branch.disabled
    assert not view.compare.disabled
    assert "Selected: current state, epoch 2 (main), epoch 4 (main). Restore and Branch" in view._selected_text.value
    view.restore.disabled = False  # a click that was on its way
    click(view, view.restore)
    assert "3 of the list are selected" in view._message.value
    assert recon.asked == []
    click(view, view.compare)
    assert view._message.value == ""
    assert view._comparison is not None
    assert [*view._comparison.results] == ["epoch 2 (main)", "epoch 4 (main)", "current state"]
    assert lines == [f"view = pt.compare({first!r}, {second!r}, {{'current state': recon.result}})"]
    names = {"pt": pt, "recon": recon}
    exec(lines[0], names)
    assert len(names["view"].results) == 3
    names["view"].close()
    before = view._comparison
    view.list.chosen = [first, second]
    click(view, view.compare)
    assert [*view._comparison.results] == ["epoch 2 (main)", "epoch 4 (main)"]
    assert before.closed, "the one before is closed"
    view.list.receive_values({"chosen": [first, "/kept/gone.h5"]})
    click(view, view.compare)
    assert "gone.h5 was deleted" in view._message.value
    view.list.chosen = [second]
    assert "Selected: epoch 4 (main)." in view._selected_text.value
    click(view, view.restore)
    assert [one[1].epoch for one in recon.asked] == [4]


def test_a_state_that_no_epoch_names_is_told_by_its_file(recon: Recon, view: History) -> None:
    lines: list[str] = []
    view.tell = lines.append
    recon.checkpoints = (a_state(2, "trial"), a_state(4, update=3))
    view.refresh()
    for state in recon.checkpoints:
        view.list.value = str(state.path)
        click(view, view.restore)
    assert lines == ["recon.restore('/kept/branches/trial/state-00002.h5')", "recon.restore('/kept/state-00004.h5')"]


def test_an_error_is_shown_and_nothing_is_told(recon: Recon, view: History) -> None:
    lines: list[str] = []
    view.tell = lines.append
    recon.error = RuntimeError("The disk is full.\nhere")
    click(view, view.keep)
    assert 'role="alert"' in view._message.value
    assert "The disk is full." in view._message.value
    recon.error = None
    click(view, view.keep)
    assert "The disk is full." not in view._message.value
    assert lines == ["recon.save_checkpoint()"]


def test_every_control_has_a_description(view: History) -> None:
    controls = [widget for widget in below(view) if not isinstance(widget, elements.HTML | elements.Box)]
    assert len(controls) == 8
    assert all(widget.description for widget in controls)
    assert all(widget.tooltip for widget in controls if isinstance(widget, elements.Button))


def test_closing_ends_the_threads(recon: Recon) -> None:
    view = History(recon)
    view.close()
    assert view.closed
    until = time.monotonic() + 10
    while any(thread.name.startswith("ptynb history") for thread in threading.enumerate()):
        assert time.monotonic() < until
        time.sleep(0.05)
    view.refresh()


def test_a_real_reconstruction_goes_back_by_a_click(tmp_path: Path) -> None:
    scan = pt.simulate(patterns=36, window=32)
    keep = pt.Checkpointing(folder=tmp_path, seconds=None)
    with pt.Reconstruction(scan, pt.Settings(batch=12), device="cpu", checkpointing=keep) as recon:
        view = pt.history(recon)
        [*recon.run(1)]
        click(view, view.keep)
        [*recon.run(1)]
        view.list.value = view.list.offered[1]
        click(view, view.restore)
        assert (recon.epoch, view._message.value.count("Restored epoch 1")) == (1, 1)
        assert view.branches.offered == ["main", "main-2"]
        view.close()


def test_states_and_branches_are_told_in_a_line() -> None:
    state = a_state(4, update=3, stays=True)
    assert repr(state) == "<Checkpoint on main after epoch 4 and 3 updates, loss 0.2, 2.5 MB, stays>"
    branch = Branch("main-4", Path("/kept"), a_state(9), 2, 10, origin="main", epoch=4, present=True)
    assert repr(branch) == "<Branch main-4: 2 states up to epoch 9, from main at epoch 4, present>"
