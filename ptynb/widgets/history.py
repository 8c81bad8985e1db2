"""The history of a reconstruction: kept states and branches as a list, and the way back to each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import ipywidgets

from ptynb.data.snapshot import Branch, Checkpoint
from ptynb.exceptions import InvalidValueError
from ptynb.widgets.actions import Action, Actions
from ptynb.widgets.choice import Choice
from ptynb.widgets.elements import Whole, complaint, note, put
from ptynb.widgets.polling import keep_fresh

LOOK_SECONDS = 1.0
NOW = "now"
SPACE = "\u00a0"
"""A space that stays one of several in a list."""
COLUMNS = (("epoch", 11), ("loss", 11), ("branch", 18), ("kept at", 9), ("size", 9), ("", 7))
"""Titles of the list's columns, and their widths [characters]."""


class SupportsCheckpoints(Protocol):
    """What the history needs of a reconstruction; `ptynb.Reconstruction` has it."""

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
    def keep(self) -> Path: ...  # noqa: D102
    def restore(self, checkpoint: Any) -> None: ...  # noqa: D102
    def branch(self, name: str | None = None, checkpoint: Any = None) -> str: ...  # noqa: D102
    def switch_branch(self, name: str) -> None: ...  # noqa: D102


class History(Whole):
    """Kept states, newest last, and branches, with buttons to go back, branch, switch and keep; see `history`.

    tell: is given the line of Python that does what was just done.
    """

    tell: Callable[[str], None] | None = None

    def __init__(self, recon: SupportsCheckpoints) -> None:
        self._recon = recon
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._states: dict[str, Checkpoint] = {}
        self._message = ipywidgets.HTML()
        head = "".join(title.ljust(width) for title, width in COLUMNS)
        self.list = Choice("Kept states", rows=8, head=head, width="640px")
        self.restore = self._button("Go back", "undo", "Returns to the chosen state and stops there", self._to_go_back)
        self.keep = self._button("Keep now", "save", "Keeps the present state", lambda: self._keep)
        self.name = ipywidgets.Text(
            description="Branch name",
            placeholder="a name, or none",
            style={"description_width": "initial"},
            layout=ipywidgets.Layout(width="280px"),
        )
        self.branch = self._button(
            "Branch", "code-fork", "Begins a branch at the chosen state, or here, and goes there", self._to_branch
        )
        self.branches = Choice("On branch")
        self.switch_branch = self._button(
            "Switch", "random", "Goes to the newest state of this branch", self._to_switch
        )
        self._refreshing = False
        for chooser in (self.list, self.branches):
            chooser.observe(lambda _: self._chosen_anew(), "chosen")
        rows = [
            ipywidgets.HBox(row, layout=ipywidgets.Layout(flex_flow="row wrap", overflow="visible"))
            for row in ([self.restore, self.keep], [self.name, self.branch], [self.branches, self.switch_branch])
        ]
        controls = ipywidgets.HBox(rows, layout=ipywidgets.Layout(flex_flow="row wrap", overflow="visible"))
        super().__init__([self.list, controls, self._message])
        self.layout.overflow = "visible"
        self.add_class("ptynb-history")
        self._present = ""
        self._actions = Actions("ptynb history actions", self.complain, self._clear, self.refresh)
        self.refresh()
        # Once the reconstruction is closed, nothing is kept any more.
        self._soon = keep_fresh(self, "ptynb history view", LOOK_SECONDS, over=lambda view: view._recon.closed)

    def close(self) -> None:
        """Ends the view and its threads; the reconstruction goes on."""
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
        """Takes over what was kept meanwhile; the choice in the list stays."""
        states, branches, present = self._recon.checkpoints, self._recon.branches, self._recon.branch_name
        with self._lock:
            if self.closed:
                return
            self._refreshing = True
            self._states = {str(state.path): state for state in states}
            options = [(NOW, f"now, on {present}"), *((path, _row(state)) for path, state in self._states.items())]
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

    # What is wanted, when a button is clicked: what is chosen later is no part of it

    def _to_go_back(self) -> Action | None:
        state = self._chosen()
        return None if state is None else partial(self._go_back, state)

    def _to_branch(self) -> Action:
        return partial(self._branch, self._chosen(), self.name.value.strip() or None)

    def _to_switch(self) -> Action:
        if self.branches.value is None:
            raise InvalidValueError("No branch is chosen; choose one of the list.")
        return partial(self._switch, self.branches.value)

    def _chosen(self) -> Checkpoint | None:
        """The state chosen in the list; None: the present moment. Raises ValueError where it is gone."""
        with self._lock:
            key = self.list.value
            if key == NOW:
                return None
            if key in self._states:
                return self._states[key]
        raise InvalidValueError(
            "No state is chosen; choose one of the list."
            if key is None
            else f"{Path(key).name} was removed meanwhile, to make room for newer ones; choose another one."
        )

    # What buttons do, in the thread of the actions

    def _go_back(self, state: Checkpoint) -> None:
        line = f"recon.restore({self._named(state)})"  # before: then it is another branch's
        put(self._message, note(f"Going back to epoch {state.epoch} ..."))
        self._recon.restore(state)
        self._done(line, f"It is at epoch {state.epoch} again.")

    def _keep(self) -> None:
        path = self._recon.keep()
        self._done("recon.keep()", f"Kept in {path.name}.")

    def _branch(self, state: Checkpoint | None, name: str | None) -> None:
        at = [] if state is None else [self._named(state)]
        put(self._message, note("Branching ..."))
        made = self._recon.branch(name, state)
        self.name.value = ""
        self._done(f"recon.branch({', '.join([repr(made), *at])})", f"It is on the branch {made} now.")

    def _switch(self, name: str) -> None:
        put(self._message, note(f"Switching to {name} ..."))
        self._recon.switch_branch(name)
        self._done(f"recon.switch_branch({name!r})", f"It is on the branch {name} now.")

    # The rest

    def _button(self, text: str, icon: str, tooltip: str, wanted: Callable[[], Action | None]) -> ipywidgets.Button:
        button = ipywidgets.Button(
            description=text, icon=icon, tooltip=tooltip, layout=ipywidgets.Layout(width="110px")
        )

        def clicked(_: ipywidgets.Button) -> None:
            try:
                action = wanted()
            except ValueError as error:
                self.complain(error)
                return
            if action is not None:
                self._actions.put(action)

        button.on_click(clicked)
        return button

    def _chosen_anew(self) -> None:
        # New options pass through other choices: a button that is off for a moment then would swallow a click.
        if not self._refreshing:
            self._enable()

    def _enable(self) -> None:
        usable = not self._recon.closed
        self.restore.disabled = not usable or self.list.value in (None, NOW)
        self.keep.disabled, self.branch.disabled = not usable, not usable or self.list.value is None
        self.switch_branch.disabled = not usable or self.branches.value in (None, self._present)

    def _named(self, state: Checkpoint) -> str:
        """What names this state in a line of Python: its epoch where that is clear, else its file."""
        alike = [one for one in self._states.values() if (one.epoch, one.branch) == (state.epoch, state.branch)]
        clear = state.branch == self._present and not state.update and alike == [state]
        return str(state.epoch) if clear else repr(str(state.path))

    def _done(self, line: str, text: str) -> None:
        put(self._message, note(text))
        if self.tell is not None:
            self.tell(line)

    def _clear(self) -> None:
        put(self._message, "")

    def complain(self, error: Exception) -> None:
        """Shows an error above the list's buttons, until something else is done."""
        put(self._message, complaint(error))


def history(recon: Any) -> History:
    """Kept states and branches of a reconstruction as a list, with buttons to go back, branch, switch and keep.

    As the last line of a cell it appears below it. States are kept as `Checkpointing` says, and when asked for.
    """
    return History(recon)


def _row(state: Checkpoint) -> str:
    epoch = f"{state.epoch} + {state.update}" if state.update else str(state.epoch)
    loss = "" if state.loss is None else f"{state.loss:.5g}"
    branch = state.branch if len(state.branch) < 17 else f"{state.branch[:15]}…"
    written = time.strftime("%H:%M:%S", time.localtime(state.written))
    texts = (epoch, loss, branch, written, f"{state.size / 1e6:.3g} MB", "stays" if state.stays else "")
    return "".join(text.ljust(width) for text, (_, width) in zip(texts, COLUMNS, strict=True)).replace(" ", SPACE)
