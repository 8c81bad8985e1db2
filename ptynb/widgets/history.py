"""The history of a reconstruction: its checkpoints and branches, which can be restored, compared and continued."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import traitlets

from ptynb.data.engine_records import Checkpoint
from ptynb.exceptions import InvalidValueError
from ptynb.io.checkpoint_result import name_of_checkpoint, progress_text
from ptynb.widgets.actions import Actions, repeat
from ptynb.widgets.compare.compare_view import Compare, compare
from ptynb.widgets.element_tree import Element, command, shown
from ptynb.widgets.quantities import number

REFRESH_SECONDS = 1.0
NOW = "now"
"""Key of the current state among those of the checkpoints, which are their paths."""
NOW_NAME = "current state"


class History(Element):
    """Checkpoints, newest last, and branches; see `history`.

    checkpoints: the texts of each and its "key", the path of its file: commands get keys, as the list may have changed
    between what a user saw and clicked. present: the current branch. over: whether the reconstruction was closed.

    recon: a `ptynb.Reconstruction`. tell: called with the line of Python equivalent to a click.
    open_comparison: called with the checkpoints to compare, and with whether the current state is compared too, in
    place of showing them beneath the list; it returns at once.
    resting: whether the list is out of sight, so that nothing is read to follow it.
    """

    component = "history"
    checkpoints: traitlets.List[dict[str, Any]] = shown(traitlets.List())
    branches: traitlets.List[str] = shown(traitlets.List())
    present = shown(traitlets.Unicode(""))
    over = shown(traitlets.Bool(False))
    message = shown(traitlets.Unicode(""))
    notice = shown(traitlets.Unicode(""))
    comparison = shown(traitlets.Instance(Compare, allow_none=True))

    open_comparison: Callable[[Sequence[Checkpoint], bool], None] | None = None
    resting = False

    def __init__(self, recon: Any) -> None:
        super().__init__()
        self._recon, self._lock = recon, threading.Lock()
        self._known: dict[str, Checkpoint] = {}
        self._actions = Actions("ptynb history actions", self.complain, self.refresh)
        self.refresh()
        work, over = History._follow, lambda view: view._recon.closed
        self._soon = repeat(self, "ptynb history view", REFRESH_SECONDS, work, History.complain, over=over)

    def close(self) -> None:
        """Close the view and end its threads; the reconstruction continues."""
        with self._lock:
            super().close()
        self._soon.set()
        self._actions.close()
        if self.comparison is not None:
            self.comparison.close()

    def refresh(self) -> None:
        """Show the current checkpoints and branches."""
        checkpoints, branches, present = self._recon.checkpoints, self._recon.branches, self._recon.branch_name
        with self._lock:
            if self.closed:
                return
            self._known = {str(one.path): one for one in checkpoints}
            self.checkpoints = [_row(checkpoint) for checkpoint in checkpoints]
            self.branches = [*dict.fromkeys((*(branch.name for branch in branches), present))]
            self.present, self.over = present, self._recon.closed

    def rest(self, resting: bool) -> None:
        """Stop to follow the checkpoints while the list is out of sight, or show the present ones and follow again."""
        self.resting = resting
        self._soon.set()

    def settle(self, seconds: float = 30.0) -> None:
        """Wait until all commands are carried out. Raises TimeoutError."""
        self._actions.settle(seconds)

    def complain(self, error: Exception | None) -> None:
        """Show an error; None: removes what is shown."""
        self.message, self.notice = "" if error is None else str(error), ""

    @command
    def restore(self, checkpoint: str) -> None:
        """Restore a checkpoint, given by its key."""

        def act() -> None:
            found = self._checkpoint(checkpoint)
            line = f"recon.restore({self._argument(found)})"  # before the call, as it depends on the branch
            self.notice = f"Restoring epoch {found.epoch} ..."
            self._recon.restore(found)
            self._done(line, f"Restored epoch {found.epoch}.")

        self._actions.put(act)

    @command
    def compare(self, checkpoints: Sequence[str]) -> None:
        """Show checkpoints, given by their keys, and the current state if "now" is among them, side by side."""

        def act() -> None:
            found = [self._checkpoint(key) for key in checkpoints if key != NOW]
            if self.open_comparison is not None:
                self.open_comparison(found, NOW in checkpoints)
                return
            self.notice = "Reading the checkpoints ..."
            given: list[Any] = [*found]
            arguments = [repr(str(one.path)) for one in found]
            if NOW in checkpoints:
                given.append({NOW_NAME: self._recon.result})
                arguments.append(f"{{{NOW_NAME!r}: recon.result}}")
            before, shown = self.comparison, compare(*given)
            self.comparison, shown.tell = shown, self.tell
            if before is not None:
                before.close()
            self._done(f"view = pt.compare({', '.join(arguments)})", "")

        self._actions.put(act)

    @command
    def save(self) -> None:
        """Write a checkpoint now."""
        self._actions.put(
            lambda: self._done("recon.save_checkpoint()", f"Checkpoint written: {self._recon.save_checkpoint().name}.")
        )

    @command
    def branch(self, checkpoint: str, name: str = "") -> None:
        """Create a branch at a checkpoint, given by its key, or at the current state, and switch to it."""

        def act() -> None:
            found = None if checkpoint == NOW else self._checkpoint(checkpoint)
            at = [] if found is None else [self._argument(found)]
            self.notice = "Creating a branch ..."
            branch = self._recon.branch(name.strip() or None, found)
            self._done(f"recon.branch({', '.join([repr(branch), *at])})", f"Now on branch {branch}.")

        self._actions.put(act)

    @command
    def switch(self, name: str) -> None:
        """Restore the latest checkpoint of a branch."""

        def act() -> None:
            self.notice = f"Switching to branch {name} ..."
            self._recon.switch_branch(name)
            self._done(f"recon.switch_branch({name!r})", f"Now on branch {name}.")

        self._actions.put(act)

    def _follow(self) -> None:
        if not self.resting:
            self.refresh()

    def _checkpoint(self, key: str) -> Checkpoint:
        with self._lock:
            if key in self._known:
                return self._known[key]
        raise InvalidValueError(
            f"The checkpoint {Path(key).name} was deleted to limit their number; select another one.",
            code="widget.selection-gone",
        )

    def _argument(self, checkpoint: Checkpoint) -> str:
        """Return a checkpoint in a line of Python: its epoch if that is unique, else its file."""
        with self._lock:
            alike = [(one.epoch, one.branch) for one in self._known.values()].count(
                (checkpoint.epoch, checkpoint.branch)
            )
        unique = checkpoint.branch == self.present and not checkpoint.update and alike == 1
        return str(checkpoint.epoch) if unique else repr(str(checkpoint.path))

    def _done(self, line: str, text: str) -> None:
        self.notice = text
        self._say(line)


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


def _row(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "key": str(checkpoint.path),
        "name": name_of_checkpoint(checkpoint.path, checkpoint.epoch, checkpoint.update),
        "epoch": progress_text(checkpoint.epoch, checkpoint.update),
        "loss": "" if checkpoint.loss is None else number(checkpoint.loss, 5),
        "branch": checkpoint.branch,
        "written": time.strftime("%H:%M:%S", time.localtime(checkpoint.written)),
        "size": f"{checkpoint.size / 1e6:.3g} MB",
        "stays": checkpoint.stays,
    }
