"""The history of a reconstruction: its checkpoints and branches as a list, with buttons to restore and compare them."""

from __future__ import annotations

import html
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ptynb.data.engine_records import Branch, Checkpoint, Result
from ptynb.exceptions import InvalidValueError
from ptynb.io.checkpoint_result import name_of_checkpoint, progress_text
from ptynb.widgets import elements
from ptynb.widgets.actions import Action, Actions, repeat
from ptynb.widgets.choice import Choice
from ptynb.widgets.compare.compare_view import Compare, compare
from ptynb.widgets.number_text import number
from ptynb.widgets.shared_widgets import complaint, free, note, put

REFRESH_SECONDS = 1.0
NOW = "now"
SPACE = "\u00a0"
"""A space that HTML does not collapse."""
NOW_NAME = "current state"
COLUMNS = (("epoch", 11), ("loss", 11), ("branch", 18), ("written", 9), ("size", 9), ("", 9))
"""Titles of the list's columns, and their widths [characters]."""


class SupportsCheckpoints(Protocol):
    """The interface of a reconstruction that the history uses; `ptynb.Reconstruction` has it."""

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]: ...  # noqa: D102
    @property
    def branches(self) -> tuple[Branch, ...]: ...  # noqa: D102
    @property
    def branch_name(self) -> str: ...  # noqa: D102
    @property
    def epoch(self) -> int: ...  # noqa: D102
    @property
    def closed(self) -> bool: ...  # noqa: D102
    @property
    def result(self) -> Result: ...  # noqa: D102
    def save_checkpoint(self) -> Path: ...  # noqa: D102
    def restore(self, checkpoint: Any) -> None: ...  # noqa: D102
    def branch(self, name: str | None = None, checkpoint: Any = None) -> str: ...  # noqa: D102
    def switch_branch(self, name: str) -> None: ...  # noqa: D102


class History(elements.VBox):
    """Checkpoints, newest last, and branches, with buttons to restore, compare, save, branch and switch; see `history`.

    tell: called with the line of Python equivalent to a click.
    open_comparison: called with the checkpoints to compare, and with whether the current state is compared too, in
    place of showing them beneath the list; it returns at once.
    resting: whether the list is out of sight, so that nothing is read to follow it.
    """

    tell: Callable[[str], None] | None = None
    open_comparison: Callable[[Sequence[Checkpoint], bool], None] | None = None
    resting = False

    def __init__(self, recon: SupportsCheckpoints) -> None:
        self._recon = recon
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._checkpoints: dict[str, Checkpoint] = {}
        self._message = elements.HTML()
        head = "".join(title.ljust(width) for title, width in COLUMNS)
        self.list = Choice("Checkpoints", rows=6, several=True, head=head, width="600px")
        self.list.tooltip = "Ctrl and click, or Shift and an arrow key, selects several to compare"
        self._selected_text = elements.HTML()
        self.restore = self._button("Restore", "undo", "Restores the selected checkpoint", self._to_restore)
        self.compare = self._button(
            "Compare", "columns", "Shows the selected checkpoints (two or more) side by side", self._to_compare
        )
        self.keep = self._button("Save now", "save", "Writes a checkpoint now", lambda: self._keep)
        self.name = elements.Text(
            description="Branch name",
            placeholder="optional",
            style={"description_width": "initial"},
            layout=elements.Layout(width="230px"),
        )
        self.branch = self._button(
            "Branch", "git-branch", "Creates a branch at the selected checkpoint and switches to it", self._to_branch
        )
        self.branches = Choice("Branch")
        self.switch_branch = self._button(
            "Switch", "shuffle", "Restores the latest checkpoint of this branch", self._to_switch
        )
        self._refreshing = False
        for chooser in (self.list, self.branches):
            chooser.observe(lambda _: self._selected(), "chosen")
        rows = [
            elements.HBox(row, layout=elements.Layout(flex_flow="row wrap", overflow="visible"))
            for row in (
                [self.restore, self.compare, self.keep],
                [self.name, self.branch],
                [self.branches, self.switch_branch],
            )
        ]
        controls = elements.VBox(
            [self._selected_text, *rows, self._message],
            layout=elements.Layout(flex="1 1 300px", overflow="visible"),
        )
        # Beside the list where there is room: a page of a drawer should not need scrolling.
        beside = elements.HBox([self.list, controls], layout=elements.Layout(flex_flow="row wrap", overflow="visible"))
        self._comparison: Compare | None = None
        self._place = elements.VBox(layout=free())
        super().__init__([beside, self._place])
        self.layout.overflow = "visible"
        self.add_class("ptynb-history")
        self._present = ""
        self._actions = Actions("ptynb history actions", self.complain, self.refresh)
        self.refresh()
        self._soon = repeat(
            self,
            "ptynb history view",
            REFRESH_SECONDS,
            History._follow,
            History.complain,
            over=lambda view: view._recon.closed,
        )

    def close(self) -> None:
        """Close the view and end its threads; the reconstruction continues."""
        self._ended.set()
        self._soon.set()
        self._actions.close()
        with self._lock:
            super().close()

    @property
    def closed(self) -> bool:
        """Whether the view was closed."""
        return self._ended.is_set()

    def refresh(self) -> None:
        """Show the current checkpoints and branches; the selection in the list stays."""
        checkpoints, branches, present = self._recon.checkpoints, self._recon.branches, self._recon.branch_name
        with self._lock:
            if self.closed:
                return
            self._refreshing = True
            self._checkpoints = {str(one.path): one for one in checkpoints}
            rows = [(path, _row(checkpoint)) for path, checkpoint in self._checkpoints.items()]
            options = [(NOW, f"{NOW_NAME}, branch {present}"), *rows]
            if options != self.list.options:
                self.list.offer(options, None if self.list.options else [NOW])
            names = [branch.name for branch in branches]
            names += [] if present in names else [present]
            if names != self.branches.offered or present != self._present:
                chosen = None if present == self._present and self.branches.value in names else [present]
                self.branches.offer(((name, name) for name in names), chosen)
                self._present = present
            self._refreshing = False
            self._enable()

    def rest(self, resting: bool) -> None:
        """Stop to follow the checkpoints while the list is out of sight, or show the present ones and follow again."""
        self.resting = resting
        self._soon.set()

    def _follow(self) -> None:
        if not self.resting:
            self.refresh()

    # At a click: queue the action for the present selection, which may have changed when the action is executed

    def _to_restore(self) -> Action | None:
        checkpoint = self._selection()
        return None if checkpoint is None else partial(self._restore, checkpoint)

    def _to_branch(self) -> Action:
        return partial(self._branch, self._selection(), self.name.value.strip() or None)

    def _to_compare(self) -> Action:
        chosen = self.list.chosen
        if len(chosen) < 2:
            raise InvalidValueError(
                f"{len(chosen)} of the list is selected; select two or more with Ctrl and click, or with Shift and an "
                "arrow key.",
                code="widget.nothing-selected",
            )
        checkpoints = [self._checkpoint(key) for key in self.list.offered if key in chosen and key != NOW]
        checkpoints += [self._checkpoint(key) for key in chosen if key not in self.list.offered]  # raises an error
        return partial(self._compare_checkpoints, checkpoints, NOW in chosen)

    def _to_switch(self) -> Action:
        if self.branches.value is None:
            raise InvalidValueError("No branch is selected; select one in the list.", code="widget.nothing-selected")
        return partial(self._switch, self.branches.value)

    def _selection(self) -> Checkpoint | None:
        """Return the selected checkpoint; None: the current state. Raises ValueError if there is not one of them."""
        chosen = self.list.chosen
        if not chosen:
            raise InvalidValueError(
                "No checkpoint is selected; select one in the list.", code="widget.nothing-selected"
            )
        if len(chosen) > 1:
            raise InvalidValueError(
                f"{len(chosen)} of the list are selected, but Restore and Branch use one; select it alone.",
                code="widget.several-selected",
            )
        return None if chosen[0] == NOW else self._checkpoint(chosen[0])

    def _checkpoint(self, key: str) -> Checkpoint:
        with self._lock:
            if key in self._checkpoints:
                return self._checkpoints[key]
        raise InvalidValueError(
            f"The checkpoint {Path(key).name} was deleted to limit their number; select another one.",
            code="widget.selection-gone",
        )

    # In the thread of the actions

    def _restore(self, checkpoint: Checkpoint) -> None:
        line = f"recon.restore({self._argument(checkpoint)})"  # before the call, as it depends on the branch
        put(self._message, note(f"Restoring epoch {checkpoint.epoch} ..."))
        self._recon.restore(checkpoint)
        self._done(line, f"Restored epoch {checkpoint.epoch}.")

    def _compare_checkpoints(self, checkpoints: Sequence[Checkpoint], with_now: bool) -> None:
        if self.open_comparison is not None:
            self.open_comparison(checkpoints, with_now)
            put(self._message, "")
            return
        put(self._message, note("Reading the checkpoints ..."))
        given: list[Any] = [*checkpoints]
        arguments = [repr(str(checkpoint.path)) for checkpoint in checkpoints]
        if with_now:
            given.append({NOW_NAME: self._recon.result})
            arguments.append(f"{{{NOW_NAME!r}: recon.result}}")
        before, self._comparison = self._comparison, compare(*given)
        self._comparison.tell = self.tell
        self._place.children = [self._comparison]
        if before is not None:
            before.close()
        self._done(f"view = pt.compare({', '.join(arguments)})", "")

    def _keep(self) -> None:
        path = self._recon.save_checkpoint()
        self._done("recon.save_checkpoint()", f"Checkpoint written: {path.name}.")

    def _branch(self, checkpoint: Checkpoint | None, name: str | None) -> None:
        at = [] if checkpoint is None else [self._argument(checkpoint)]
        put(self._message, note("Creating a branch ..."))
        branch = self._recon.branch(name, checkpoint)
        self.name.value = ""
        self._done(f"recon.branch({', '.join([repr(branch), *at])})", f"Now on branch {branch}.")

    def _switch(self, name: str) -> None:
        put(self._message, note(f"Switching to branch {name} ..."))
        self._recon.switch_branch(name)
        self._done(f"recon.switch_branch({name!r})", f"Now on branch {name}.")

    # Helpers

    def _button(
        self, text: str, icon: str, tooltip: str, action_of_click: Callable[[], Action | None]
    ) -> elements.Button:
        button = elements.Button(description=text, icon=icon, tooltip=tooltip, layout=elements.Layout(width="110px"))

        def clicked(_: elements.Button) -> None:
            try:
                action = action_of_click()
            except ValueError as error:
                self.complain(error)
                return
            if action is not None:
                self._actions.put(action)

        button.on_click(clicked)
        return button

    def _selected(self) -> None:
        # New options change the selection for a moment: a button that is disabled then would lose a click.
        if not self._refreshing:
            self._enable()

    def _enable(self) -> None:
        usable, chosen = not self._recon.closed, self.list.chosen
        self.restore.disabled = not usable or len(chosen) != 1 or chosen == [NOW]
        self.keep.disabled, self.branch.disabled = not usable, not usable or len(chosen) != 1
        self.compare.disabled = len(chosen) < 2
        put(self._selected_text, self._said_of(chosen))
        self.switch_branch.disabled = not usable or self.branches.value in (None, self._present)

    def _said_of(self, chosen: Sequence[str]) -> str:
        """Return HTML of what is selected, and of what the buttons would do with it."""
        names = [
            NOW_NAME if key == NOW else _name(self._checkpoints[key]) for key in self.list.offered if key in chosen
        ]
        if not names:
            text = "Nothing is selected."
        elif len(names) == 1:
            text = f"Selected: {names[0]}. Select a second one (Ctrl and click, or Shift and an arrow key) to compare."
        else:
            text = f"Selected: {', '.join(names)}. Restore and Branch use one: select it alone."
        return f'<div role="status" class="ptynb-history-selected">{html.escape(text)}</div>'

    def _argument(self, checkpoint: Checkpoint) -> str:
        """Return a checkpoint in a line of Python: its epoch if that is unique, else its file."""
        same = [
            one
            for one in self._checkpoints.values()
            if (one.epoch, one.branch) == (checkpoint.epoch, checkpoint.branch)
        ]
        unique = checkpoint.branch == self._present and not checkpoint.update and same == [checkpoint]
        return str(checkpoint.epoch) if unique else repr(str(checkpoint.path))

    def _done(self, line: str, text: str) -> None:
        put(self._message, note(text) if text else "")
        if self.tell is not None:
            self.tell(line)

    def complain(self, error: Exception | None) -> None:
        """Show an error; None: removes it."""
        put(self._message, complaint(error))


def history(recon: Any) -> History:
    """Return a list of the checkpoints and branches of a reconstruction, with buttons to restore, compare and switch.

    It is displayed if it is the last expression of a notebook cell. Checkpoints are written as set in `Checkpointing`,
    and by a button. Two or more that are selected are shown side by side beneath the list, as by `compare`.

    Parameters
    ----------
    recon : Reconstruction
        The reconstruction.

    Returns
    -------
    History
        The widget. `close` ends it and its threads; the reconstruction continues.
    """
    return History(recon)


def _name(checkpoint: Checkpoint) -> str:
    return name_of_checkpoint(checkpoint.path, checkpoint.epoch, checkpoint.update)


def _row(checkpoint: Checkpoint) -> str:
    epoch = progress_text(checkpoint.epoch, checkpoint.update)
    loss = "" if checkpoint.loss is None else number(checkpoint.loss, 5)
    branch = checkpoint.branch if len(checkpoint.branch) < 17 else f"{checkpoint.branch[:15]}…"
    written = time.strftime("%H:%M:%S", time.localtime(checkpoint.written))
    size, permanent = f"{checkpoint.size / 1e6:.3g} MB", "permanent" if checkpoint.stays else ""
    texts = (epoch, loss, branch, written, size, permanent)
    return "".join(text.ljust(width) for text, (_, width) in zip(texts, COLUMNS, strict=True)).replace(" ", SPACE)
