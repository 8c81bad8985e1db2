"""The form of the settings: fields, descriptions and errors, generated from the structure of the settings.

Callbacks of widgets validate the draft, queue slow actions (listeners, engines, files), and redraw. In the form of a
running reconstruction a thread shows changes that are made elsewhere (by code or another form).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ptynb.exceptions import InvalidValueError, SettingsError
from ptynb.settings import Settings
from ptynb.settings.ranges import value_of
from ptynb.settings.schema import Entries, Setting, nested, python_of, structure
from ptynb.widgets import elements
from ptynb.widgets.actions import Actions, repeat
from ptynb.widgets.form.field_row import MISSING, Row
from ptynb.widgets.form.field_search import found_by, label_of
from ptynb.widgets.form.form_groups import FormGroups
from ptynb.widgets.form.group_summary import Page, state_of
from ptynb.widgets.form.list_editor import EntriesEditor
from ptynb.widgets.form.live_changes import FreezeButton, PendingChanges, SupportsReconfigure, SupportsSettings
from ptynb.widgets.form.part_switches import SWITCHES
from ptynb.widgets.form.range_editor import Range, RangeEditor
from ptynb.widgets.form.settings_sources import (
    SettingsFiles,
    Source,
    SourceChoice,
    Sources,
    read_file,
    write_file,
)
from ptynb.widgets.form.unsaved_settings import Draft
from ptynb.widgets.shared_widgets import complaint, put

FIXED, WITH_APPLY = "fixed during a run", "with Apply"
FOLLOW_SECONDS = 0.25
"""Interval of checks for changes that are made elsewhere."""
Listener = Callable[[Settings], Any]


class SettingsForm(elements.VBox):
    """A form of settings; `settings` are the last valid ones.

    live: the form of a running reconstruction, `recon`: live settings are applied immediately, on all engines at the
    same update; others wait for Apply, which reconfigures it, or are read-only. Changes that are made elsewhere are
    shown. ticks: each number and choice has a checkbox and a range in which it is tuned, see `ranges`. scan: used by
    presets; may be set later. tell: called with the line of Python equivalent to an edit. Changes are marked against
    the source of the settings: the defaults, a preset, or what was taken with `take`.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        live: bool = False,
        recon: SupportsSettings | None = None,
        ticks: bool = False,
        scan: Any = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        if live != (recon is not None):
            raise InvalidValueError(
                f"live is {live}, but recon is {'None' if recon is None else 'given'}; pass both live=True and recon, "
                "or neither.",
                code="argument.conflict",
            )
        self.tell, self._recon, self._scan, self._with_ticks = tell, recon, scan, ticks
        self._applied = recon.settings if recon is not None else settings or Settings()
        self._draft, self._lock = Draft(self._applied), threading.RLock()
        self._waiting: dict[str, Any] = {}
        self._sources = Sources(scan)
        self._switched_off: dict[str, dict[str, Any]] = {}
        self._listeners: list[Listener] = []
        self._range_listeners: list[Callable[[], Any]] = []
        self.rows: dict[str, Row] = {}
        self.ticks: dict[str, RangeEditor] = {}
        self.freezes: dict[str, FreezeButton] = {}
        self.editors: dict[str, EntriesEditor] = {}
        self._message, self._failure = elements.HTML(), elements.HTML()
        self._actions = Actions("ptynb settings form", self.complain)
        self._build()
        if recon is not None:
            repeat(
                self,
                "ptynb settings follower",
                FOLLOW_SECONDS,
                SettingsForm.refresh,
                SettingsForm.complain,
                over=lambda form: recon.closed,
            )

    # For other modules

    @property
    def settings(self) -> Settings:
        """The last valid settings; assignment shows others."""
        return self._draft.settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        with self._lock:
            self._draft.replace(settings)
            self._edited()

    @property
    def scan(self) -> Any:
        """The scan, on which presets depend."""
        return self._scan

    @scan.setter
    def scan(self, scan: Any) -> None:
        with self._lock:
            self._scan = scan
            self._sources.for_scan(scan)
            self._show()

    def take(self, source: Source) -> None:
        """Show the settings of a source, offer it among the presets, and mark later changes against it."""
        with self._lock:
            self._sources.take(source)
            self._draft.replace(source.settings)
            target = "settings" if self._recon is None else "recon.settings"
            self._edited(f"{target} = {source.line}")

    @property
    def problems(self) -> dict[Any, str]:
        """The problems of what was entered, by dotted name; empty if `settings` contain all of it."""
        return dict(self._draft.problems)

    def on_change(self, callback: Listener) -> None:
        """Register a function that is called with the settings after each valid change, in a thread of the form."""
        self._listeners.append(callback)

    def on_ranges(self, callback: Callable[[], Any]) -> None:
        """Register a function that is called after each change of ranges."""
        self._range_listeners.append(callback)

    def ranges(self) -> dict[str, Range]:
        """Return the ranges of ticked fields by dotted name: (lowest, highest, logarithmic), or the values of a choice.

        Raises SettingsError for an invalid range.
        """
        return {name: found for name, tick in self.ticks.items() if (found := tick.range()) is not None}

    def row(self, name: str) -> Row:
        """Return the row of the field with this dotted name, created at the first call."""
        with self._lock:
            if name not in self.rows:
                self._make_row(structure().setting(name))
                self._show_row(name)
                self.rows[name].fit_unit()
            return self.rows[name]

    def tick(self, name: str) -> RangeEditor:
        """Return the range of the field with this dotted name, in a form with ticks."""
        self.row(name)
        return self.ticks[name]

    def editor(self, name: str) -> EntriesEditor:
        """Return the list of this name ("constraints", "regularizers"), created at the first call."""
        with self._lock:
            if name not in self.editors:
                entries = next(entries for entries in structure().lists if entries.name == name)
                reason = "" if self._recon is None or entries.live else FIXED
                self.editors[name] = EntriesEditor(entries, self._draft, self._edited, reason=reason)
            return self.editors[name]

    def refresh(self) -> None:
        """Show changes of the settings of the reconstruction that were made elsewhere."""
        if self._recon is None:
            return
        with self._lock:
            now = self._recon.settings
            if self._actions.busy or now == self._applied:
                return
            self._applied = now
            self._draft.take(now, keep=self._waiting)
            self._show_waiting()
            self._show()
            self._actions.put(lambda: self._call_back(now))

    def complain(self, error: Exception | None) -> None:
        """Show an error above the settings; None: removes it."""
        put(self._failure, complaint(error))

    def settle(self, seconds: float = 30.0) -> None:
        """Wait until all edits are applied and listeners called. Raises TimeoutError."""
        self._actions.settle(seconds)

    def close(self) -> None:
        """Close the form and end its threads; a reconstruction continues."""
        self._actions.close()
        super().close()

    # Building

    def _build(self) -> None:
        self.find = elements.Text(
            description="Find",
            placeholder="learning rate, blur ...",
            tooltip="Shows settings with these words in their name or description",
            style={"description_width": "40px"},
            layout=elements.Layout(width="200px"),
        )
        self.find.observe(lambda _: self._find(), "value")
        self.files = SettingsFiles(self._load, self._save)
        self.presets = SourceChoice(self._take_named)
        self.presets.layout.display = None if self._recon is None else "none"
        self.groups = FormGroups(
            self._boxes, self._switch, self._is_fixed, lists=not self._with_ticks, compact=self._recon is not None
        )
        self._no_match = elements.HTML("No setting has these words in its name or description.")
        self._found = elements.VBox(layout=elements.Layout(display="none", overflow="visible"))
        top = elements.HBox(
            [self.presets, self.find, self.files], layout=elements.Layout(flex_flow="row wrap", overflow="visible")
        )
        self.waiting = PendingChanges(self._apply, self._discard)
        super().__init__(
            [top, self.presets.about, self._message, self._failure, self.waiting, self.groups, self._found]
        )
        self.add_class("ptynb-settings-form")
        if self._recon is None:
            self._sources.find(self._applied)
        self._show()

    def _is_fixed(self, name: str) -> bool:
        """Whether a field cannot be changed, not even with Apply."""
        return self._recon is not None and not self._reconfigurable and not Settings.is_live(name)

    @property
    def _reconfigurable(self) -> bool:
        return isinstance(self._recon, SupportsReconfigure)

    def _make_row(self, setting: Setting) -> None:
        name, label = setting.name, label_of(setting)
        with_apply = self._recon is not None and self._reconfigurable and not setting.live
        beside: list[elements.Element] = []
        if self._recon is not None and name.endswith(".learning_rate"):
            beside = [self.freezes.setdefault(name, FreezeButton(label, lambda rate: self._enter(name, rate)))]
        self.rows[name] = Row(
            setting,
            label,
            lambda value: self._enter(name, value),
            lambda: self._enter(name, MISSING),
            reason=FIXED if self._is_fixed(name) else "",
            note=WITH_APPLY if with_apply else "",
            beside=beside,
        )
        if self._with_ticks:
            self.ticks[name] = RangeEditor(
                self.rows[name], lambda values: self._draft.wrong_with(name, values), self._ranges_changed
            )

    def _box(self, name: str) -> elements.Box:
        """Return the row of a field, with its range in a form with ticks."""
        return self.tick(name) if self._with_ticks else self.row(name)

    def _boxes(self, part: Page, names: Sequence[str]) -> Sequence[elements.Element]:
        """Return the widgets of a group."""
        if isinstance(part, Entries):
            return (self.editor(part.name),)
        return tuple(self._box(name) for name in names)

    def _find(self) -> None:
        names, lists = found_by(self.find.value)
        searching = bool(self.find.value.strip())
        if searching:
            editors = [] if self._with_ticks else [self.editor(name) for name in lists]
            found = (*(self._box(name) for name in names), *editors)
            self._found.children = found or (self._no_match,)
        self.groups.layout.display = "none" if searching else "flex"
        self._found.layout.display = None if searching else "none"

    # Showing

    def _show(self) -> None:
        """Show the draft in all rows."""
        with self._lock:
            for name in self.rows:
                self._show_row(name)
            for editor in self.editors.values():
                editor.refresh()
            problems = self._draft.problems
            put(self._message, complaint(_summary_of(problems)) if problems else "")
            held = self._sources.held
            edited = bool(problems) or self._draft.settings != held.settings
            self.presets.show(self._sources.offered, held, edited)
            changed = {setting.name for setting in structure().settings if self._is_changed(setting.name)}
            ticked = {name for name, tick in self.ticks.items() if tick.tick.value}
            for group in self.groups.groups.values():
                group.show(state_of(group.part, self._draft, changed, ticked))

    def _is_changed(self, name: str) -> bool:
        """Whether a value differs from that of the source; of the defaults, only what was chosen counts."""
        if self._sources.from_defaults:
            return name in self._draft.values
        return bool(self._draft.value(name) != value_of(self._sources.held.settings, name))

    def _show_row(self, name: str) -> None:
        draft, row, held = self._draft, self.rows[name], self._sources.held
        changed, default = self._is_changed(name), value_of(held.settings, name)
        if changed and self._sources.from_defaults:
            default = draft.default(name)  # which may depend on other values
        row.show(
            draft.value(name),
            changed=changed,
            default=default,
            problem=draft.problems.get(name, ""),
            source=held.title,
            reason=held.reasons.get(name, ""),
        )
        if name in self.freezes:
            default = value_of(Settings(optimiser=self._applied.optimiser), name)
            self.freezes[name].show(row.value, default)

    # Edits

    def _enter(self, name: str, value: Any) -> None:
        with self._lock:
            if value is MISSING and self._sources.from_defaults:
                self._draft.reset(name)
            elif value is MISSING:
                self._draft.put_all({name: value_of(self._sources.held.settings, name)})
            else:
                self._draft.put(name, value)
            self._edited()

    def _switch(self, part: str, on: bool) -> None:
        """Switch a part of the model on, with the values it had or those for a start, or off."""
        switch = SWITCHES[part]
        with self._lock:
            if on:
                values = self._switched_off.pop(part, dict(switch.on))
            else:
                values = {**switch.off, **switch.unused}
                self._switched_off[part] = {name: self._draft.value(name) for name in values}
            self._draft.put_all(values)
            self._edited()

    def _edited(self, line: str = "") -> None:
        """Queue the changes of a valid draft and show it; line: of Python, if it is not a `replace`."""
        with self._lock:
            before, now = self._applied, self._draft.settings
            if not self._draft.problems and self._recon is None:
                self._sources.find(now)
            if not self._draft.problems:
                changes = before.changes_to(now)
                if self._recon is not None:
                    changes = self._without_waiting(before, changes)
                    now = before.replace(**nested(changes))
                self._applied = now
                line = "" if self._waiting else line
                if changes:  # in the queue before `refresh` compares: this is not a change made elsewhere
                    self._actions.put(lambda: self._carry_out(now, changes, line))
                if self._recon is not None:
                    self._show_waiting()
            self._show()

    def _without_waiting(self, before: Settings, changes: dict[str, Any]) -> dict[str, Any]:
        """Return the changes that engines can apply during a run; the others wait for Apply."""
        live = {name: value for name, value in changes.items() if Settings.is_live(name)}
        if len(live) < len(changes):
            try:
                before.replace(**nested(live))
            except SettingsError:  # valid only together with changes that wait for Apply
                live = {}
        self._waiting = {name: value for name, value in changes.items() if name not in live}
        return live

    def _show_waiting(self) -> None:
        """Show the changes that wait for Apply, and queue the check whether they can be applied."""
        recon, wanted = self._recon, self._draft.settings
        differences = self._applied.differences(wanted) if self._waiting else {}
        waiting = {name: pair for name, pair in differences.items() if name in self._waiting}
        if not isinstance(recon, SupportsReconfigure):
            self.waiting.show(waiting, "These settings cannot change during a run; create a new Reconstruction.")
            return
        self.waiting.show(waiting)
        checked = self._waiting

        def check() -> None:
            problem = recon.reconfigure_error(wanted) or ""
            with self._lock:
                if self._waiting is checked:  # otherwise they have been applied, discarded or edited
                    self.waiting.show(waiting, problem)

        if waiting:
            self._actions.put(check, instead_of="check")

    def _apply(self) -> None:
        recon, waiting = self._recon, dict(self._waiting)

        def reconfigure() -> None:
            assert isinstance(recon, SupportsReconfigure)
            recon.reconfigure(recon.settings.replace(**nested(waiting)))
            with self._lock:
                self._applied, self._waiting = recon.settings, {}
                self._draft.take(self._applied)
                self.waiting.show({})
                self._show()
            self._say(f"recon.reconfigure(recon.settings.replace({python_of(waiting)}))")
            self._call_back(recon.settings)

        self._actions.put(reconfigure)

    def _discard(self) -> None:
        with self._lock:
            self._waiting = {}
            self._draft.replace(self._applied)
            self.waiting.show({})
            self._show()

    def _carry_out(self, settings: Settings, changes: dict[str, Any], line: str) -> None:
        if self._recon is None:
            self._say(line or f"settings = settings.replace({python_of(changes)})")
            self._call_back(settings)
            return
        try:
            self._recon.settings = now = self._recon.settings.replace(**nested(changes))
        except Exception as error:
            with self._lock:
                self._applied = self._recon.settings
                if isinstance(error, SettingsError) and error.code == "settings.not-live":
                    # Such as positions for which the object has to be enlarged.
                    self._waiting |= changes
                    self._show_waiting()
                    return
                self._discard()
            raise
        self._say(line or f"recon.settings = recon.settings.replace({python_of(changes)})")
        self._call_back(now)

    def _take_named(self, name: str) -> None:
        source = self._sources.named(name)
        self._actions.put(lambda: self.take(source))

    def _load(self, path: Path) -> None:
        def take() -> None:
            line = f"pt.Settings.from_yaml(Path({str(path)!r}))"
            self.take(Source(f"file {path.name}", f"file {path.name}", read_file(path), line))

        self._actions.put(take)

    def _save(self, path: Path) -> None:
        settings = self.settings
        source = "settings" if self._recon is None else "recon.settings"

        def write() -> None:
            write_file(path, settings)
            self._say(f"Path({str(path)!r}).write_text({source}.to_yaml())")

        self._actions.put(write)

    def _ranges_changed(self) -> None:
        self._show()
        for listener in self._range_listeners:
            self._actions.put(listener)

    def _call_back(self, settings: Settings) -> None:
        for listener in self._listeners:
            listener(settings)

    def _say(self, line: str) -> None:
        if self.tell is not None:
            self.tell(line)


def _summary_of(problems: Mapping[Any, str]) -> str:
    """Return the labels of invalid fields, and the problem of several fields."""
    together = problems.get("", "")
    labels = ", ".join(dict.fromkeys(_label(field) for field in problems if field != ""))
    return f"Edits are applied after this is corrected: {f'{labels}. {together}'.strip() if labels else together}"


def _label(field: Any) -> str:
    """Return the label of a field, or of (entry, field)."""
    if isinstance(field, str):
        return label_of(structure().setting(field))
    entry, name = field
    kind = next(kind for entries in structure().lists for kind in entries.kinds if kind.kind == entry.kind)
    title = next((setting.title for setting in kind.settings if setting.name == name), "")
    return f"{kind.title}: {title}" if title else kind.title
