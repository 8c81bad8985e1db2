"""Fields of what a new run is given: its cluster, and where and how often it writes checkpoints."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import traitlets

from ptynb.app.cluster_choice import (
    EXISTING,
    LAUNCHER,
    LOCAL,
    Chosen,
    Existing,
    existing_clusters,
    lines_of,
    section_of,
)
from ptynb.app.session_state import CHECKPOINTING, FIELDS, check_folder, python_of_checkpointing
from ptynb.cluster.cluster import Cluster
from ptynb.cluster.devices import plan_for
from ptynb.exceptions import ClusterError, InvalidValueError, PtynbError
from ptynb.io.checkpoint_dir import default_folder
from ptynb.settings.checkpointing import Checkpointing
from ptynb.settings.cluster_options import LOCAL_DEVICES, NONE, OFFERED_DEVICES, SECTIONS, NoCluster, all_sections
from ptynb.widgets.actions import Actions
from ptynb.widgets.element_tree import Element, shown
from ptynb.widgets.option_fields import OptionField, OptionFields, option_of

GIVEN = "given"
"""Launcher of the cluster with which the workbench was opened."""
NOTHING = ("", "none")
NONE_EXISTS = "No cluster runs that this notebook could use; choose another launcher."


def options_of(launcher: str) -> list[OptionField]:
    """Return the options of a launcher, in their order."""
    found = []
    for name, field in all_sections()[launcher].model_fields.items():
        if name == "kind":
            continue
        meaning = (field.json_schema_extra or {}).get(NONE, "") if isinstance(field.json_schema_extra, dict) else ""
        usual = str(meaning) or "".join(f"such as {example}" for example in field.examples or ())
        option = option_of(name, field, placeholder=usual)
        if isinstance(field.default, float):
            option = replace(option, initial=f"{field.default:g}")
        if name == "device":
            names = [one for one in OFFERED_DEVICES if launcher == LOCAL or one not in LOCAL_DEVICES]
            option = replace(option, choices=tuple((one, one) for one in names))
        found.append(option)
    return found


class ClusterFields(Element):
    """What a new run has as its cluster. An invalid value is told below its field.

    given: cluster with which the workbench was opened, which is not exchanged. launcher: what starts the engines, or
    `EXISTING` or `GIVEN`. others: launchers of plug-ins. fields: its options. problem: what is
    wrong with the launcher itself.
    """

    component = "clusterFields"
    launcher = traitlets.Enum((*(name for name in all_sections() if name != "none"), EXISTING, GIVEN), LOCAL).tag(
        sync=True
    )
    others: traitlets.List[str] = shown(traitlets.List([name for name in all_sections() if name not in SECTIONS]))
    fields: Any = shown(traitlets.Instance(OptionFields))
    problem = shown(traitlets.Unicode(""))
    line = shown(traitlets.Unicode(""))

    def __init__(self, actions: Actions, given: Cluster | None) -> None:
        self._actions, self._given = actions, given
        self._made: dict[str, OptionFields] = {}
        launcher = LOCAL if given is None else GIVEN
        super().__init__(launcher=launcher, fields=self._fields_of(launcher))
        self._follow()

    def chosen(self) -> Chosen:
        """Return what was entered. Raises an error that `mark` shows."""
        self.fields.mark(None)
        self.problem = ""
        texts = {name: self.fields.text(name) for name in self.fields.options}
        if self.launcher == EXISTING:
            if not texts[EXISTING]:
                raise InvalidValueError(NONE_EXISTS, code="cluster.not-found", fields=(EXISTING,))
            return Existing(texts[EXISTING])
        if self.launcher == GIVEN or texts.get("engines") == "0":
            return NoCluster()
        return section_of(self.launcher, texts)

    def mark(self, error: PtynbError) -> bool:
        """Tell an error below the field that it is about; return whether there is one."""
        self.problem = str(error) if LAUNCHER in error.fields else ""
        return bool(self.problem) or self.fields.mark(error)

    def show_existing(self, name: str) -> None:
        """Choose an existing cluster."""
        self.launcher = EXISTING
        self.fields.values = {EXISTING: name}
        self._offer_existing()
        self._follow()

    def look(self) -> None:
        """Bring the list of clusters up to date."""
        self._actions.put(self._offer_existing, instead_of="clusters", lane=FIELDS)

    @traitlets.observe("launcher")
    def _show_launcher(self, _: Any) -> None:
        if self._made:
            self.fields = self._fields_of(self.launcher)
            self.look()
            self._edited()

    def _edited(self) -> None:
        self._actions.put(self._follow, instead_of="cluster", lane=FIELDS)

    def _fields_of(self, launcher: str) -> OptionFields:
        if launcher not in self._made:
            if launcher == EXISTING:
                options = [OptionField(EXISTING, "Cluster", "A cluster in 'ptynb ps'", choices=(NOTHING,))]
            else:
                options = options_of(LOCAL if launcher == GIVEN else launcher)
            if launcher in (LOCAL, GIVEN):
                engines = _default_engines() if self._given is None else len(self._given)
                options[0] = replace(options[0], initial=str(engines))
            self._made[launcher] = OptionFields(options, self._edited)
            if launcher == GIVEN:
                self._made[launcher].disabled = [option.name for option in options]
        return self._made[launcher]

    def _offer_existing(self) -> None:
        if self.launcher == EXISTING:
            offered = existing_clusters()
            self.fields.change(EXISTING, choices=tuple(offered.items()) or (NOTHING,))
            if self.fields.text(EXISTING) not in offered:
                self.fields.values = {EXISTING: next(iter(offered), "")}
                self._follow()

    def _follow(self) -> None:
        """Show the line of Python, or what is wrong."""
        line = ""
        try:
            line = "; ".join(lines_of(self.chosen()))
        except PtynbError as error:
            self.mark(error)
        self.line = line


def _default_engines() -> int:
    """Return the number of engines of `Cluster()`; 1 if it would fail, which a new run reports."""
    try:
        return len(plan_for(None, "auto").engines)
    except ClusterError:
        return 1


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
    usual = shown(traitlets.Unicode(""))

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
