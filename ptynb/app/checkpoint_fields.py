"""Fields for where and how often a new run writes checkpoints, with the line of Python."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from ptynb.app.plan_fields import Asked
from ptynb.app.session_state import FIELDS
from ptynb.exceptions import InvalidValueError, PtynbError, SettingsError
from ptynb.io.checkpoint_dir import default_folder
from ptynb.io.checkpoint_file import states
from ptynb.settings.base_models import told_by_field
from ptynb.settings.checkpointing import Checkpointing
from ptynb.widgets import elements
from ptynb.widgets.actions import Actions
from ptynb.widgets.shared_widgets import checkbox, free, marking, put

DEFAULT = Checkpointing()
TITLES = {
    "folder": "Checkpoint folder",
    "epochs": "One every [epochs]",
    "seconds": "One every [s]",
    "max_to_keep": "Newest to keep",
}
PLACEHOLDERS = {
    "folder": "a new folder for each run",
    "epochs": "independent of epochs",
    "seconds": "independent of time",
    "max_to_keep": "number",
}
WIDTHS = {"folder": "560px"}


class CheckpointFields(elements.VBox):
    """What a new run is given as `checkpointing`. An invalid value is told below its field.

    fields: by the name in `Checkpointing`; an empty one is None. wanted: whether checkpoints are written at all.
    """

    def __init__(self, actions: Actions) -> None:
        self.wanted = checkbox(
            "Write checkpoints", True, "Without them a run that was interrupted cannot be continued, nor go back"
        )
        self.fields = {
            name: elements.Text(
                "" if getattr(DEFAULT, name) is None else f"{getattr(DEFAULT, name):g}",
                description=title, placeholder=PLACEHOLDERS[name],
                tooltip=Checkpointing.model_fields[name].description, continuous_update=False,
                style={"description_width": "130px"},
                layout=elements.Layout(width=WIDTHS.get(name, "310px"), max_width="100%"),
            )
            for name, title in TITLES.items()
        }  # fmt: skip
        self._asked = {name: Asked(field) for name, field in self.fields.items()}
        self._line = elements.HTML()
        usual = (
            f"By default {default_folder()} has a folder for each run, with the newest {DEFAULT.max_to_keep} "
            f"checkpoints, one every {DEFAULT.seconds:g} s. Presets and recommendations do not change this."
        )
        about = elements.HTML(f'<div style="font-size:90%;line-height:1.4">{html.escape(usual)}</div>')
        numbers = elements.HBox(
            [self._asked[name] for name in ("epochs", "seconds", "max_to_keep")],
            layout=elements.Layout(flex_flow="row wrap", overflow="visible"),
        )
        for asked in numbers.children:  # below which a message has as many lines as it needs: fields stay in place
            asked.layout.width = "320px"
        super().__init__([self.wanted, self._asked["folder"], numbers, self._line, about], layout=free())
        for widget in (self.wanted, *self.fields.values()):
            widget.observe(lambda _: actions.put(self._follow, instead_of="checkpointing", lane=FIELDS), "value")
        self._follow()

    def checkpointing(self) -> Checkpointing | None:
        """Return what was entered; None for no checkpoints. Raises an error that is shown at its field."""
        self.mark(None)
        if not self.wanted.value:
            return None
        values: dict[str, Any] = {name: field.value.strip() or None for name, field in self.fields.items()}
        with marking(self):
            chosen = Checkpointing(**values)
            self._check_folder(chosen)
        return chosen

    def mark(self, error: PtynbError | None) -> None:
        """Show an error at the fields that it is about; None: nothing any more."""
        told: dict[str, Exception | str] = {} if error is None else dict.fromkeys(error.fields, error)
        if isinstance(error, SettingsError):  # of each field its own
            told |= told_by_field(error, TITLES)
        for name, asked in self._asked.items():
            asked.complain(told.get(name) or told.get(f"checkpointing.{name}"))

    @property
    def problems(self) -> dict[str, str]:
        """What is shown as wrong (HTML), by field."""
        return {name: asked.problem for name, asked in self._asked.items() if asked.problem}

    @property
    def argument(self) -> str:
        """The argument of `ptynb.Reconstruction`, as Python; "" for the default."""
        chosen = self.checkpointing()
        if chosen is None:
            return "checkpointing=None"
        values = {name: getattr(chosen, name) for name in TITLES}
        given = [
            f"{name}={(str(value) if isinstance(value, Path) else value)!r}"
            for name, value in values.items()
            if value != getattr(DEFAULT, name)
        ]
        return f"checkpointing=pt.Checkpointing({', '.join(given)})" if given else ""

    def _check_folder(self, chosen: Checkpointing) -> None:
        """Refuse what engines would refuse, before anything is closed."""
        if chosen.folder is None:
            return
        folder = chosen.folder.expanduser()
        problem = ""
        if folder.exists() and not folder.is_dir():
            problem = f"{folder} is a file; enter a folder, which need not exist."
        elif folder.is_dir() and (found := list(states(folder))):
            problem = (
                f"{folder} already contains checkpoints of another run ({found[0].name}); enter another folder, or "
                "resume from that checkpoint."
            )
        if problem:
            raise InvalidValueError(problem, code="checkpoint.exists", fields=("folder",))

    def _follow(self) -> None:
        """Show the line of Python, or what is wrong."""
        for field in self.fields.values():
            field.disabled = not self.wanted.value
        try:
            argument = self.argument or "checkpointing=pt.Checkpointing()"
        except PtynbError:
            argument = ""
        put(self._line, f'<code style="overflow-wrap:anywhere">{html.escape(argument)}</code>' if argument else "")
