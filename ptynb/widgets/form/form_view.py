"""The form of the settings: what is entered, its problems, and what waits for a run, as a store that a browser draws.

Commands validate the draft, queue slow actions (listeners, engines, files), and show the draft. In the form of a
running reconstruction a thread shows changes that are made elsewhere (by code or another form).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import traitlets

from ptynb.exceptions import InvalidValueError, SettingsError
from ptynb.settings import Settings
from ptynb.settings.ranges import value_of
from ptynb.settings.schema import Setting, nested, python_of, structure
from ptynb.widgets.actions import Actions, repeat
from ptynb.widgets.element_tree import Element, command, shown
from ptynb.widgets.form import form_contents as contents
from ptynb.widgets.form.field_words import MISSING, label_of, read
from ptynb.widgets.form.settings_sources import Source, Sources, read_file, write_file
from ptynb.widgets.form.tuning_range import Range, TuningRange
from ptynb.widgets.form.unsaved_settings import Draft, Entry, is_of_entry

FOLLOW_SECONDS = 0.25
"""Interval of checks for changes that are made elsewhere."""
Listener = Callable[[Settings], Any]
Method = TypeVar("Method", bound=Callable[..., None])


class LiveReconstruction(Protocol):
    """The interface of a reconstruction that a live form uses; `ptynb.Reconstruction` has it."""

    settings: Settings

    @property
    def closed(self) -> bool: ...  # noqa: D102
    def reconfigure_error(self, settings: Settings) -> str | None: ...  # noqa: D102
    def reconfigure(self, settings: Settings) -> None: ...  # noqa: D102


def edit(method: Method) -> Method:
    """Make a method a command that edits the draft, which is validated, shown and applied then."""

    @functools.wraps(method)
    def edited(form: SettingsForm, *values: Any, **named: Any) -> None:
        with form._lock:
            method(form, *values, **named)
            form._draft.check()
            form._edited()

    return command(edited)  # type: ignore[return-value]  # as `method`


class SettingsForm(Element):
    """A form of settings; `settings` are the last valid ones.

    live: the form of a running reconstruction, `recon`: live settings are applied immediately, on all engines at the
    same update; others wait for Apply, which reconfigures it. Changes that are made elsewhere are
    shown. ticks: each number and choice can be ticked and has a range in which it is tuned, see `ranges`. scan: used by
    presets; may be set later. tell: called with the line of Python equivalent to an edit. Changes are marked against
    the source of the settings: the defaults, a preset, or what was taken with `take`.

    Attributes for the browser
    --------------------------
    values: by dotted name: a key, a switch, text, or the texts in all units with the one that fits. marks: of a field
    the value of the source, if it was changed, and its problem. revisions: counts of what was entered, by which a field
    shows its value again: the text may have been read as the value that it had. entries: of each list. groups: what
    their lines say. tuned: the ranges of ticked fields. waiting: changes for which engines have to be restarted, and
    why they cannot be applied. frozen: of learning rates, whether it is 0, and the rate that Freeze sets.
    """

    component = "settingsForm"
    schema: traitlets.Dict[str, Any] = shown(traitlets.Dict(contents.schema()))
    mode = shown(traitlets.Enum(("plain", "live", "ranges"), "plain"))
    values: traitlets.Dict[str, Any] = shown(traitlets.Dict())
    marks: traitlets.Dict[str, Any] = shown(traitlets.Dict())
    revisions: traitlets.Dict[str, int] = shown(traitlets.Dict())
    entries: traitlets.Dict[str, Any] = shown(traitlets.Dict())
    groups: traitlets.Dict[str, Any] = shown(traitlets.Dict())
    sources: traitlets.List[str] = shown(traitlets.List())
    source: traitlets.Dict[str, Any] = shown(traitlets.Dict())
    tuned: traitlets.Dict[str, Any] = shown(traitlets.Dict())
    waiting: traitlets.Dict[str, Any] = shown(traitlets.Dict({"changes": [], "problem": ""}))
    frozen: traitlets.Dict[str, Any] = shown(traitlets.Dict())
    invalid = shown(traitlets.Unicode())
    message = shown(traitlets.Unicode())
    file = traitlets.Unicode("settings.yaml").tag(sync=True)

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        live: bool = False,
        recon: LiveReconstruction | None = None,
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
        self.tell, self._recon, self._scan = tell, recon, scan
        self._applied = recon.settings if recon is not None else settings or Settings()
        self._draft, self._lock = Draft(self._applied), threading.RLock()
        self._waiting: dict[str, Any] = {}
        self._sources = Sources(scan)
        self._switched_off: dict[str, dict[str, Any]] = {}
        self._rates: dict[str, tuple[float, float]] = {}
        self._ranges: dict[str, TuningRange] = {}
        self._listeners: list[Listener] = []
        self._range_listeners: list[Callable[[], Any]] = []
        self._actions = Actions("ptynb settings form", self.complain)
        super().__init__(mode="live" if live else "ranges" if ticks else "plain")
        if recon is None:
            self._sources.find(self._applied)
        self._show()
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
    def problems(self) -> dict[str, str]:
        """The problems of what was entered, by dotted name; empty if `settings` contain all of it."""
        return {**self._draft.problems}

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
        found: dict[str, Range] = {}
        for name, tuning in self._ranges.items():
            if tuning.on:
                problem, found[name] = tuning.read(self._check_of(name))
                if problem:
                    raise SettingsError(f"{label_of(tuning.setting)}: {problem}.", code="tuning.invalid-range")
        return found

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
        with self._lock:
            self.message = "" if error is None else str(error)

    def settle(self, seconds: float = 30.0) -> None:
        """Wait until all edits are applied and listeners called. Raises TimeoutError."""
        self._actions.settle(seconds)

    def close(self) -> None:
        """Close the form and end its threads; a reconstruction continues."""
        self._actions.close()
        super().close()

    # Commands on fields and entries of lists

    def receive_command(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Call the command of this name, unless its entry was removed meanwhile."""
        if self._draft.has(str(arguments.get("entry", arguments.get("name", "")))):
            super().receive_command(name, arguments)

    @edit
    def enter(self, name: str, value: Any, unit: str = "") -> None:
        """Enter what was typed or chosen for a field; unit: of a number."""
        found = read(self._draft.setting(name), value, unit)
        if found is MISSING:
            self._reset(name)
        else:
            self._draft.put(name, found)
        self.revisions = {**self.revisions, name: self.revisions.get(name, 0) + 1}

    @edit
    def reset(self, name: str) -> None:
        """Restore the value of the source, or of an entry's field its default."""
        self._reset(name)

    @edit
    def switch(self, part: str, on: bool) -> None:
        """Switch a part of the model on, with the values it had or those for a start, or off."""
        switch = contents.SWITCHES[part]
        if on:
            values = self._switched_off.pop(part, dict(switch.on))
        else:
            values = {**switch.off, **switch.unused}
            self._switched_off[part] = {name: self._draft.value(name) for name in values}
        self._draft.put_all(values)

    @edit
    def freeze(self, name: str) -> None:
        """Set a learning rate to 0, or back to the last one, or to the default if there is none."""
        self._draft.put(name, self.frozen[name]["rate"])

    @edit
    def add(self, list_name: str, kind: str) -> None:
        """Add an entry of this kind to a list."""
        self._draft.entries[list_name].append(Entry(list_name, kind))

    @edit
    def switch_entry(self, entry: str, on: bool) -> None:
        """Make an entry a part of the settings, or keep it in the form only."""
        self._draft.entry(entry).on = on

    @edit
    def move_up(self, entry: str) -> None:
        """Move an entry before the previous one."""
        one = self._draft.entry(entry)
        entries = self._draft.entries[one.list]
        if at := entries.index(one):
            entries[at - 1], entries[at] = one, entries[at - 1]

    @edit
    def remove(self, entry: str) -> None:
        """Remove an entry."""
        one = self._draft.entry(entry)
        self._draft.entries[one.list].remove(one)

    # Commands on all settings

    @command
    def choose(self, source: str) -> None:
        """Show the settings of a source: the defaults, a preset, or one that was taken."""
        chosen = self._sources.offered[source]
        self._actions.put(lambda: self.take(chosen))

    @command
    def load(self) -> None:
        """Show the settings in the file."""
        path = Path(self.file.strip()).expanduser()

        def take() -> None:
            line = f"pt.Settings.from_yaml(Path({str(path)!r}))"
            self.take(Source(f"file {path.name}", f"file {path.name}", read_file(path), line))

        self._actions.put(take)

    @command
    def save(self) -> None:
        """Write the settings to the file."""
        path, settings = Path(self.file.strip()).expanduser(), self.settings
        source = "settings" if self._recon is None else "recon.settings"

        def write() -> None:
            write_file(path, settings)
            self._say(f"Path({str(path)!r}).write_text({source}.to_yaml())")

        self._actions.put(write)

    @command
    def apply(self) -> None:
        """Restart the engines from their state with the changes that wait."""
        recon, waiting = self._recon, dict(self._waiting)

        def reconfigure() -> None:
            assert recon is not None
            recon.reconfigure(recon.settings.replace(**nested(waiting)))
            with self._lock:
                self._applied, self._waiting = recon.settings, {}
                self._draft.take(self._applied)
                self._show_waiting()
                self._show()
            self._say(f"recon.reconfigure(recon.settings.replace({python_of(waiting)}))")
            self._call_back(recon.settings)

        self._actions.put(reconfigure)

    @command
    def discard(self) -> None:
        """Show the current settings of the run again."""
        with self._lock:
            self._waiting = {}
            self._draft.replace(self._applied)
            self._show_waiting()
            self._show()

    # Commands on ranges

    @command
    def tune(self, name: str, on: bool = True) -> None:
        """Tick a field, or not: whether it is tuned; a range is suggested at first."""
        with self._lock:
            tuning = self._range(name)
            tuning.on = on
            if on:
                tuning.suggest(self._draft.value(name))
            self._ranges_changed()

    @command
    def set_range(
        self,
        name: str,
        low: str | None = None,
        high: str | None = None,
        unit: str = "",
        logarithmic: bool | None = None,
        chosen: Sequence[Any] | None = None,
    ) -> None:
        """Enter the ends of a range in a unit, whether its logarithm is sampled, or the choices to try.

        What is None stays.
        """
        with self._lock:
            tuning = self._range(name)
            for end, text in (("low", low), ("high", high)):
                if text is not None:
                    tuning.ends[end] = text, unit or tuning.setting.unit
            tuning.logarithmic = tuning.logarithmic if logarithmic is None else logarithmic
            tuning.chosen = tuning.chosen if chosen is None else tuple(chosen)
            self._ranges_changed()

    # Showing

    def _show(self) -> None:
        """Show the draft."""
        draft, held = self._draft, self._sources.held
        with self._lock, self.hold_sync():
            fields = dict(draft.fields)
            self.values = {name: contents.shown(one, draft.value(name)) for name, one in fields.items()}
            self.marks = {name: mark for name, one in fields.items() if (mark := self._mark(name, one))}
            self.entries = {
                name: [
                    {"name": one.name, "kind": one.kind.kind, "on": one.on, "problem": draft.problems.get(one.name, "")}
                    for one in entries
                ]
                for name, entries in draft.entries.items()
            }
            self.invalid = contents.problem_words(draft)
            ranges = {name: tuning for name, tuning in self._ranges.items() if tuning.on}
            self.tuned = {name: tuning.plain(self._check_of(name)) for name, tuning in ranges.items()}
            changed = [name for name, mark in self.marks.items() if "was" in mark]
            self.groups = contents.group_states(draft, changed, ranges)
            self.sources = [*self._sources.offered]
            edited = bool(draft.problems) or draft.settings != held.settings
            told = {"name": held.name, "title": held.title, "about": held.about, "reasons": {**held.reasons}}
            self.source = told | {"changed": edited}
            if self._recon is not None:
                defaults = Settings(optimiser=self._applied.optimiser)
                rates = [name for name in fields if name.endswith(".learning_rate")]
                self.frozen = {name: self._freezing(name, value_of(defaults, name)) for name in rates}

    def _mark(self, name: str, setting: Setting) -> dict[str, Any]:
        """Return the value of the source if a field has another one, and its problem.

        Of the defaults, which may depend on other values, only what was chosen counts as changed.
        """
        draft, mark = self._draft, dict[str, Any]()
        if self._is_from_defaults(name):
            if name in draft.values and not setting.required:
                mark["was"] = contents.shown(setting, draft.default(name))
        elif draft.value(name) != (value := value_of(self._sources.held.settings, name)):
            mark["was"] = contents.shown(setting, value)
        if problem := draft.problems.get(name):
            mark["problem"] = problem
        return mark

    def _is_from_defaults(self, name: str) -> bool:
        return self._sources.from_defaults or is_of_entry(name)

    def _freezing(self, name: str, default: float) -> dict[str, Any]:
        """Return whether a learning rate is 0, and the one that Freeze sets: 0, or the last one, or the default."""
        rate = self._draft.value(name)
        if isinstance(rate, int | float) and rate > 0:
            self._rates[name] = default, rate
            return {"on": False, "rate": 0.0}
        of, last = self._rates.get(name, (default, default))
        return {"on": True, "rate": last if of == default else default}  # another optimiser has rates in other units

    def _show_waiting(self) -> None:
        """Show the changes that wait for Apply, and queue the check whether they can be applied."""
        recon, wanted, checked = self._recon, self._draft.settings, self._waiting
        differences = self._applied.differences(wanted) if checked else {}
        changes = [contents.change_words(name, *pair) for name, pair in differences.items() if name in checked]
        self.waiting = {"changes": changes, "problem": ""}

        def check() -> None:
            assert recon is not None
            problem = recon.reconfigure_error(wanted) or ""
            with self._lock:
                if self._waiting is checked:  # otherwise they have been applied, discarded or edited
                    self.waiting = {"changes": changes, "problem": problem}

        if changes:
            self._actions.put(check, instead_of="check")

    # Edits

    def _reset(self, name: str) -> None:
        if self._is_from_defaults(name):
            self._draft.reset(name)
        else:
            self._draft.put_all({name: value_of(self._sources.held.settings, name)})

    def _range(self, name: str) -> TuningRange:
        return self._ranges.setdefault(name, TuningRange(structure().setting(name)))

    def _check_of(self, name: str) -> Callable[[Any], str]:
        return lambda values: self._draft.wrong_with(name, values)

    def _ranges_changed(self) -> None:
        self._show()
        for listener in self._range_listeners:
            self._actions.put(listener)

    def _edited(self, line: str = "") -> None:
        """Queue the changes of a valid draft and show it; line: of Python, if it is not a `replace`."""
        with self._lock:
            before, now = self._applied, self._draft.settings
            if not self._draft.problems:
                changes = before.changes_to(now)
                if self._recon is None:
                    self._sources.find(now)
                else:
                    changes = self._without_waiting(before, changes)
                    now = before.replace(**nested(changes))
                self._applied = now
                line = "" if self._waiting else line
                if changes:  # in the queue before `refresh` compares: this is not a change made elsewhere
                    self._actions.put(lambda: self._carry_out(now, changes, line))
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
                self.discard()
            raise
        self._say(line or f"recon.settings = recon.settings.replace({python_of(changes)})")
        self._call_back(now)

    def _call_back(self, settings: Settings) -> None:
        for listener in self._listeners:
            listener(settings)
