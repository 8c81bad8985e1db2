"""How a reconstruction gets to another state of it: restructured, back in time, or on another branch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from ptynb.data.snapshot import Branch, Checkpoint, Result
from ptynb.session.branching import BranchManager, Which
from ptynb.settings import Settings

Answer = TypeVar("Answer")


class CheckpointMixin(ABC):
    """What of a `Reconstruction` moves it between its states."""

    _lines: BranchManager
    settings: Settings

    @abstractmethod
    def _move(self, work: Callable[[], Answer], stops: bool = False) -> Answer:
        """Does this work, after which it is in another state. stops: whether it does not go on by itself."""

    def reconfigure_error(self, settings: Settings) -> str | None:
        """A sentence that says why `reconfigure` can't go on with these settings; None where it can."""
        return self._lines.why_not(settings)

    def reconfigure(self, settings: Settings) -> None:
        """Goes on with settings that can't change while it runs: more modes or slices, another batch, optimiser, loss.

        Holds all engines before the same update, keeps the state, opens them again from that state mapped onto the new
        settings, and goes on where it was: new probe modes are faint and orthogonal to those there are, slices
        multiply to the object before, the optimiser's moments stay with what stays. `changes` records it; the state
        before is kept as a branch of its own. Takes about as long as opening did.

        Raises ReconstructionError with the sentence of `reconfigure_error`; it goes on as before then.
        """
        if all(Settings.is_live(name) for name in self.settings.differences(settings)):
            self.settings = settings
        else:
            self._move(lambda: self._lines.reconfigure(settings))

    # Going back

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """The states kept so far on all branches, in the order in which they were written: `restore` leads to each."""
        return self._lines.checkpoints()

    @property
    def branches(self) -> tuple[Branch, ...]:
        """The branches, "main" first: lines of states, each of which can be gone on with."""
        return self._lines.branches()

    @property
    def branch_name(self) -> str:
        """The branch it is on."""
        return self._lines.name

    def restore(self, checkpoint: Which) -> None:
        """Returns to a kept state, and stops there: all is as it was then, settings too.

        checkpoint: one of `checkpoints`, its epoch, or its file. The record of epochs ends with it; `changes` says
        from where it went back. What came after stays on disk as a branch of its own, and so does the present moment.
        After a failure, such as an object that is not finite any more, it leads back to work too.
        """
        self._move(lambda: self._lines.restore(checkpoint), stops=True)

    def branch(self, name: str | None = None, checkpoint: Which | None = None) -> str:
        """Begins a branch here, or at a kept state, and is on it from now on; returns its name.

        checkpoint: as for `restore`, and an epoch may be one on the branches that the present one came from. From here
        a run goes on; from a state it stops there, as after `restore`. The branch that it was on keeps its states, and
        `switch_branch` returns to it.
        """
        return self._move(lambda: self._lines.branch(name, checkpoint), stops=checkpoint is not None)

    def switch_branch(self, name: str) -> None:
        """Goes to the newest state of another branch, and stops there; the present moment is kept on its own."""
        self._move(lambda: self._lines.switch_branch(name), stops=True)

    def branch_result(self, name: str) -> Result:
        """The result that the newest state of a branch stands for; its R-factor is not a number.

        Of the branch it is on, `result` is newer, and has one.
        """
        return self._lines.result(name)

    def remove_branch(self, name: str) -> None:
        """Removes a branch that it is not on, with its states; never "main"."""
        self._lines.drop(name)
