"""The history of a reconstruction: its checkpoints and branches as a list, with buttons to restore them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import ipywidgets

from ptynb.data.engine_records import Branch, Checkpoint
from ptynb.exceptions import InvalidValueError
from ptynb.widgets.actions import Action, Actions, repeat
from ptynb.widgets.choice import Choice
from ptynb.widgets.number_text import number
from ptynb.widgets.shared_widgets import Whole, complaint, note, put

REFRESH_SECONDS = 1.0
NOW = "now"
SPACE = "\u00a0"
"""A space that HTML does not collapse."""
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
    def save_checkpoint(self) -> Path: ...  # noqa: D102
    def restore(self, checkpoint: Any) -> None: ...  # noqa: D102
    def branch(self, name: str | None = None, checkpoint: Any = None) -> str: ...  # noqa: D102
    def switch_branch(self, name: str) -> None: ...  # noqa: D102


class History(Whole):
    """Checkpoints, newest last, and branches, with buttons to restore, save, branch and switch; see `history`.

    tell: called with the line of Python equivalent to a click.
    resting: whether the list is out of sight, so that nothing is read to follow it.
    """

    tell: Callable[[str], None] | None = None
    resting = False

    def __init__(self, recon: SupportsCheckpoints) -> None:
        self._recon = recon
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._checkpoints: dict[str, Checkpoint] = {}
        self._message = ipywidgets.HTML()
        head = "".join(title.ljust(width) for title, width in COLUMNS)
        self.list = Choice("Checkpoints", rows=8, head=head, width="640px")
        self.restore = self._button("Restore", "undo", "Restores the selected checkpoint", self._to_restore)
        self.keep = self._button("Save now", "save", "Writes a checkpoint now", lambda: self._keep)
        self.name = ipywidgets.Text(
            description="Branch name",
            placeholder="optional",
            style={"description_width": "initial"},
            layout=ipywidgets.Layout(width="280px"),
        )
        self.branch = self._button(
            "Branch", "code-fork", "Creates a branch at the selected checkpoint and switches to it", self._to_branch
        )
        self.branches = Choice("Branch")
        self.switch_branch = self._button(
            "Switch", "random", "Restores the latest checkpoint of this branch", self._to_switch
        )
        self._refreshing = False
        for chooser in (self.list, self.branches):
            chooser.observe(lambda _: self._selected(), "chosen")
        rows = [
            ipywidgets.HBox(row, layout=ipywidgets.Layout(flex_flow="row wrap", overflow="visible"))
            for row in ([self.restore, self.keep], [self.name, self.branch], [self.branches, self.switch_branch])
        ]
        controls = ipywidgets.HBox(rows, layout=ipywidgets.Layout(flex_flow="row wrap", overflow="visible"))
        super().__init__([self.list, controls, self._message])
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
            options = [(NOW, f"current state, branch {present}"), *rows]
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

    def _to_switch(self) -> Action:
        if self.branches.value is None:
            raise InvalidValueError("No branch is selected; select one in the list.", code="widget.nothing-selected")
        return partial(self._switch, self.branches.value)

    def _selection(self) -> Checkpoint | None:
        """Return the selected checkpoint; None: the current state. Raises ValueError if it was deleted."""
        with self._lock:
            key = self.list.value
            if key == NOW:
                return None
            if key in self._checkpoints:
                return self._checkpoints[key]
        if key is None:
            raise InvalidValueError(
                "No checkpoint is selected; select one in the list.", code="widget.nothing-selected"
            )
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
    ) -> ipywidgets.Button:
        button = ipywidgets.Button(
            description=text, icon=icon, tooltip=tooltip, layout=ipywidgets.Layout(width="110px")
        )

        def clicked(_: ipywidgets.Button) -> None:
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
        usable = not self._recon.closed
        self.restore.disabled = not usable or self.list.value in (None, NOW)
        self.keep.disabled, self.branch.disabled = not usable, not usable or self.list.value is None
        self.switch_branch.disabled = not usable or self.branches.value in (None, self._present)

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
        put(self._message, note(text))
        if self.tell is not None:
            self.tell(line)

    def complain(self, error: Exception | None) -> None:
        """Show an error; None: removes it."""
        put(self._message, complaint(error))


def history(recon: Any) -> History:
    """Return a list of the checkpoints and branches of a reconstruction, with buttons to restore, save and switch.

    It is displayed if it is the last expression of a notebook cell. Checkpoints are written as set in `Checkpointing`,
    and by a button.

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


def _row(checkpoint: Checkpoint) -> str:
    epoch = f"{checkpoint.epoch} + {checkpoint.update}" if checkpoint.update else str(checkpoint.epoch)
    loss = "" if checkpoint.loss is None else number(checkpoint.loss, 5)
    branch = checkpoint.branch if len(checkpoint.branch) < 17 else f"{checkpoint.branch[:15]}…"
    written = time.strftime("%H:%M:%S", time.localtime(checkpoint.written))
    size, permanent = f"{checkpoint.size / 1e6:.3g} MB", "permanent" if checkpoint.stays else ""
    texts = (epoch, loss, branch, written, size, permanent)
    return "".join(text.ljust(width) for text, (_, width) in zip(texts, COLUMNS, strict=True)).replace(" ", SPACE)
