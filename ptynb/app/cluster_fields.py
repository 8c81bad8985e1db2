"""Fields for the cluster of the next run: a launcher and its options, and the line of Python; news of its start."""

from __future__ import annotations

import html
import threading

from ptynb.app.cluster_choice import (
    EXISTING,
    LAUNCHER,
    LOCAL,
    SECTIONS,
    TITLES,
    Chosen,
    ClusterOption,
    Existing,
    existing_clusters,
    lines_of,
    options_of,
    section_of,
)
from ptynb.app.plan_fields import Asked
from ptynb.app.session_state import FIELDS
from ptynb.cluster.cluster import Cluster
from ptynb.cluster.devices import plan_for
from ptynb.exceptions import ClusterError, InvalidValueError, PtynbError, SettingsError
from ptynb.settings.base_models import told_by_field
from ptynb.settings.cluster_options import NoCluster
from ptynb.widgets import elements
from ptynb.widgets.actions import Actions
from ptynb.widgets.shared_widgets import free, put, row

GIVEN = "given"
"""Launcher of the cluster with which the workbench was opened."""
OWN_WIDTH = {"description_width": "initial"}
"""A label as wide as its text."""
NONE_EXISTS = "No cluster runs that this notebook could use; choose another launcher."


class ClusterFields(elements.VBox):
    """What a new run has as its cluster. An invalid value is told below its field.

    given: cluster with which the workbench was opened, which is not exchanged. beside: the options of this machine that
    are always in sight, for the bar of the tab, or the name of the other launcher. fields: those of the options by
    launcher, made when it is chosen first; an empty one is not set.
    """

    def __init__(self, actions: Actions, given: Cluster | None) -> None:
        self._actions = actions
        self.engines = elements.BoundedIntText(
            len(given) if given is not None else _default_engines(), min=0, max=64, description="Engines",
            tooltip="Number of engines; 0: runs in the process of the notebook",
            disabled=given is not None, style=OWN_WIDTH, layout=elements.Layout(width="112px"),
        )  # fmt: skip
        self.device = elements.Dropdown(
            options=options_of(LOCAL)["device"].choices, description="Device", disabled=given is not None,
            style=OWN_WIDTH, layout=elements.Layout(width="128px"),
        )  # fmt: skip
        self._elsewhere = elements.HTML(layout=elements.Layout(display="none"))
        self.beside = (self.engines, self.device, self._elsewhere)
        self.launcher = elements.Dropdown(
            options=[(title, name) for name, title in TITLES.items()],
            description="Launcher", tooltip="What starts the engines of a new run",
            style=OWN_WIDTH, layout=elements.Layout(width="230px"),
        )  # fmt: skip
        if given is not None:
            self.launcher.options, self.launcher.disabled = [("that of this workbench", GIVEN)], True
        self.fields: dict[str, dict[str, elements.Control]] = {LOCAL: {}, GIVEN: {}}
        self._asked = {LAUNCHER: {LAUNCHER: Asked(self.launcher)}, GIVEN: {}}
        self._pages: dict[str, elements.Box] = {}
        self._page, self._line = elements.VBox(layout=free()), elements.HTML()
        super().__init__([self._asked[LAUNCHER][LAUNCHER], self._page, self._line], layout=free())
        self._show_launcher()
        self._follow()
        self.launcher.observe(lambda _: self._show_launcher(), "value")
        for widget in (self.launcher, self.engines, self.device):
            widget.observe(lambda _: self._put_follow(), "value")

    def chosen(self) -> Chosen:
        """Return what was entered. Raises an error that `complain` shows."""
        launcher = self.launcher.value
        self._forget_problems()
        if launcher == EXISTING:
            name = self.fields[EXISTING][EXISTING].value
            if name is None:
                raise InvalidValueError(NONE_EXISTS, code="cluster.not-found", fields=(EXISTING,))
            return Existing(name)
        if launcher == GIVEN or (launcher == LOCAL and self.engines.value == 0):
            return NoCluster()
        texts = {name: str(field.value) for name, field in self.fields[launcher].items()}
        if launcher == LOCAL:
            texts |= {"engines": str(self.engines.value), "device": self.device.value}
        return section_of(launcher, texts)

    def complain(self, error: PtynbError) -> bool:
        """Show an error below the field that it is about; return whether there is one."""
        launcher = self.launcher.value
        asked = self._asked[LAUNCHER] | self._asked[launcher]
        told = {name: str(error) for name in error.fields[:1]}
        if isinstance(error, SettingsError) and error.problems:
            told = told_by_field(error, {name: one.title for name, one in options_of(launcher).items()})
        shown = {name: sentence for name, sentence in told.items() if name in asked}
        for name, sentence in shown.items():
            asked[name].complain(sentence)
        return bool(shown)

    @property
    def problems(self) -> dict[str, str]:
        """What is shown as wrong (HTML), by field."""
        asked = self._asked[LAUNCHER] | self._asked[self.launcher.value]
        return {name: one.problem for name, one in asked.items() if one.problem}

    @property
    def existing(self) -> str | None:
        """Name of the existing cluster that is chosen; None with another launcher."""
        return self.fields[EXISTING][EXISTING].value if self.launcher.value == EXISTING else None

    def show_existing(self, name: str) -> None:
        """Choose an existing cluster."""
        self.show_launcher(EXISTING)
        self.refresh()
        self.fields[EXISTING][EXISTING].value = name

    def show_launcher(self, launcher: str) -> None:
        """Choose a launcher, which may also replace the cluster with which the workbench was opened."""
        if self.launcher.disabled:
            self.launcher.options, self.launcher.disabled = [(title, name) for name, title in TITLES.items()], False
            self.engines.disabled = self.device.disabled = False
        self.launcher.value = launcher

    def refresh(self) -> None:
        """Offer the clusters that exist now, if they are to be chosen from."""
        if EXISTING not in self.fields:
            return
        field, offered = self.fields[EXISTING][EXISTING], existing_clusters()
        options = [(text, name) for name, text in offered.items()]
        if [*field.options] != options:
            before, field.options = field.value, options
            field.value = before if before in offered else next(iter(offered), None)

    def _show_launcher(self) -> None:
        launcher = self.launcher.value
        if launcher not in self._pages:
            self._pages[launcher] = self._make_page(launcher)
        self._page.children = [self._pages[launcher]]
        here = launcher in (LOCAL, GIVEN)
        for widget in (self.engines, self.device):
            widget.layout.display = None if here else "none"
        self._elsewhere.layout.display = "none" if here else None
        put(self._elsewhere, "" if here else f"Engines: <b>{html.escape(TITLES[launcher])}</b>")

    def _make_page(self, launcher: str) -> elements.Box:
        if launcher == EXISTING:
            fields = {
                EXISTING: _field(ClusterOption("Cluster", "A cluster in 'ptynb ps'", "", "", ("",)), width="520px")
            }
        else:
            options = options_of(launcher) if launcher in SECTIONS else {}
            in_bar = ("engines", "device") if launcher == LOCAL else ()
            fields = {name: _field(option) for name, option in options.items() if name not in in_bar}
        self.fields[launcher], self._asked[launcher] = fields, {name: Asked(field) for name, field in fields.items()}
        for name, field in fields.items():
            self._asked[launcher][name].layout.width = "auto" if name == EXISTING else "330px"
            field.observe(lambda _: self._put_follow(), "value")
        if launcher == EXISTING:
            self.refresh()
        wrapped = elements.Layout(flex_flow="row wrap", align_items="flex-start", overflow="visible")
        return elements.HBox([*self._asked[launcher].values()], layout=wrapped)

    def look(self) -> None:
        """Have the list of clusters brought up to date."""
        self._actions.put(self.refresh, instead_of="clusters", lane=FIELDS)

    def _put_follow(self) -> None:
        self._actions.put(self._follow, instead_of="cluster", lane=FIELDS)

    def _follow(self) -> None:
        """Show the line of Python, or what is wrong."""
        line = ""
        try:
            line = "; ".join(lines_of(self.chosen()))
        except PtynbError as error:
            self.complain(error)
        put(self._line, f'<code style="overflow-wrap:anywhere">{html.escape(line)}</code>' if line else "")

    def _forget_problems(self) -> None:
        for asked in (self._asked[LAUNCHER] | self._asked[self.launcher.value]).values():
            asked.complain(None)


class StartRow(elements.VBox):
    """What a start waits for, with a button that cancels it if it may take long."""

    def __init__(self) -> None:
        self.text = elements.HTML()
        self._cancel = elements.Button(
            description="Cancel", icon="x", tooltip="Ends the wait, and cancels the job",
            layout=elements.Layout(width="auto", display="none"),
        )  # fmt: skip
        self._cancel.on_click(lambda _: self.cancelled.set())
        self.begin(may_be_cancelled=False)
        super().__init__([row(self.text, self._cancel)], layout=free())

    def begin(self, *, may_be_cancelled: bool) -> None:
        """Prepare for a start. `cancelled` is set when the button is pressed or the row is closed before `end`."""
        self.cancelled, self._may_be_cancelled = threading.Event(), may_be_cancelled

    def say(self, text: str) -> None:
        """Show what it waits for now."""
        self._cancel.layout.display = None if text and self._may_be_cancelled else "none"
        put(self.text, f'<span role="status">{html.escape(text)}</span>' if text else "")

    def end(self, text: str = "") -> None:
        """Show how it ended, or nothing."""
        self.begin(may_be_cancelled=False)
        self.say(text)

    def close(self) -> None:
        """Cancel what is waited for."""
        self.cancelled.set()
        super().close()


def _field(option: ClusterOption, width: str = "320px") -> elements.Control:
    shown = {
        "description": option.title,
        "tooltip": option.description,
        "style": {"description_width": "145px"},
        "layout": elements.Layout(width=width, max_width="100%"),
    }
    if option.choices:
        return elements.Dropdown(options=option.choices, **shown)
    return elements.Text(option.initial, placeholder=option.usual, continuous_update=False, **shown)


def _default_engines() -> int:
    """Return the number of engines of `Cluster()`; 1 if it would fail, which a new run reports."""
    try:
        return len(plan_for(None, "auto").engines)
    except ClusterError:
        return 1
