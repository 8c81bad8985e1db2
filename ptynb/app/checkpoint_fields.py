"""Fields for where and how often a new run writes checkpoints, with the line of Python."""

from __future__ import annotations

from dataclasses import replace

import traitlets

from ptynb.app.session_state import CHECKPOINTING, FIELDS, check_folder, python_of_checkpointing
from ptynb.exceptions import PtynbError
from ptynb.io.checkpoint_dir import default_folder
from ptynb.settings.checkpointing import Checkpointing
from ptynb.widgets.actions import Actions
from ptynb.widgets.option_fields import OptionField, OptionFields, option_of

WANTED = OptionField(
    "wanted",
    "Write checkpoints",
    "Without them a run that was interrupted cannot be continued, nor go back",
    initial=True,
)
TITLES = {
    "folder": ("Checkpoint folder", "a new folder for each run"),
    "epochs": ("One every [epochs]", "independent of epochs"),
    "seconds": ("One every [s]", "independent of time"),
    "max_to_keep": ("Newest to keep", "number"),
}
"""Titles of the options, and what their fields contain while they are empty."""


def _option(name: str) -> OptionField:
    title, usual = TITLES[name]
    default = getattr(CHECKPOINTING, name)
    option = option_of(name, Checkpointing.model_fields[name], placeholder=usual)
    return replace(option, title=title, initial="" if default is None else f"{default:g}")


class CheckpointFields(OptionFields):
    """What a new run is given as `checkpointing`. An invalid value is told below its field; an empty one is None.

    usual: what happens by default.
    """

    component = "checkpointFields"
    usual = traitlets.Unicode("").tag(sync=True, settable=False)

    def __init__(self, actions: Actions) -> None:
        super().__init__(
            [WANTED, *map(_option, TITLES)],
            lambda: actions.put(self._follow, instead_of="checkpointing", lane=FIELDS),
        )
        self.usual = (
            f"By default {default_folder()} has a folder for each run, with the newest {CHECKPOINTING.max_to_keep} "
            f"checkpoints, one every {CHECKPOINTING.seconds:g} s. Presets and recommendations do not change this."
        )
        self._follow()

    def checkpointing(self) -> Checkpointing | None:
        """Return what was entered; None for no checkpoints. Raises an error that `mark` shows."""
        self.mark(None)
        if not self.values["wanted"]:
            return None
        texts = {name: self.text(name) or None for name in TITLES}
        chosen = Checkpointing(**texts)  # type: ignore[arg-type]  # numbers are made and checked there
        check_folder(chosen)
        return chosen

    def _follow(self) -> None:
        """Show the line of Python, or what is wrong."""
        self.disabled = [] if self.values["wanted"] else [*TITLES]
        try:
            self.line = python_of_checkpointing(self.checkpointing())
        except PtynbError as error:
            self.line = ""
            self.mark(error)
