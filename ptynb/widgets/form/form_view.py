"""The form of the settings: fields, their help and their errors, all made from the settings' own structure.

Callbacks change the draft, which takes a moment, and put the rest (telling others, steering engines, files) in a queue
of actions. With a reconstruction that runs, a thread follows what lines of Python change in its settings meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ipywidgets

from ptynb.exceptions import InvalidValueError, SettingsError
from ptynb.settings import Settings
from ptynb.settings.presets import preset
from ptynb.settings.schema import Entries, Setting, nested, python_of, structure
from ptynb.settings.validation import flat
from ptynb.widgets.actions import Actions
from ptynb.widgets.elements import Whole, close_all, complaint, put
from ptynb.widgets.form.draft import Draft
from ptynb.widgets.form.entries import EntriesEditor
from ptynb.widgets.form.field_search import found_by, label_of
from ptynb.widgets.form.form_sections import More, Page
from ptynb.widgets.form.preset_choice import PresetChoice
from ptynb.widgets.form.range_editor import Range, Tick
from ptynb.widgets.form.row import MISSING, Row
from ptynb.widgets.form.settings_files import Files, read_file, write_file
from ptynb.widgets.form.steering import Freeze, Restructured, Steered, Waiting
from ptynb.widgets.polling import keep_fresh

FIXED, WITH_APPLY = "fixed while it runs", "with Apply"
FOLLOW_SECONDS = 0.25
"""From one look to the next at what is changed elsewhere."""
Listener = Callable[[Settings], Any]


class SettingsForm(Whole):
    """A form of settings; `settings` are the last valid ones.

    live: for a reconstruction that runs, `recon`: what may change while it does is applied at once, on all engines
    before the same update; the rest waits for Apply, which restructures it, or is fixed where it can't do that. The
    form follows what is changed elsewhere. ticks: each number and choice can be ticked and given a range to be tuned
    in, see `ranges`. scan: presets look at it; it may be set later. tell: is given the line of Python that does what
    was just done.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        live: bool = False,
        recon: Steered | None = None,
        ticks: bool = False,
        scan: Any = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        if live != (recon is not None):
            raise InvalidValueError("A form has live=True and recon=..., or neither; give both, or leave both out.")
        self.tell, self._recon, self.scan, self._with_ticks = tell, recon, scan, ticks
        self._told = recon.settings if recon is not None else settings or Settings()
        self._draft, self._lock = Draft(self._told), threading.RLock()
        self._waiting: dict[str, Any] = {}
        self._listeners: list[Listener] = []
        self._range_listeners: list[Callable[[], Any]] = []
        self.rows: dict[str, Row] = {}
        self.ticks: dict[str, Tick] = {}
        self.freezes: dict[str, Freeze] = {}
        self.editors: dict[str, EntriesEditor] = {}
        self._message, self._failure = ipywidgets.HTML(), ipywidgets.HTML()
        self._actions = Actions("ptynb settings form", self.complain, self._clear)
        self._build()
        if recon is not None:
            keep_fresh(self, "ptynb settings follower", FOLLOW_SECONDS, over=lambda form: recon.closed)

    # What others use

    @property
    def settings(self) -> Settings:
        """The last settings that were valid; assigning shows others."""
        return self._draft.settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        with self._lock:
            self._draft.replace(settings)
            self._edited()

    @property
    def problems(self) -> dict[Any, str]:
        """What is wrong with what was typed, by dotted name; empty where all of it is in `settings`."""
        return dict(self._draft.problems)

    def on_change(self, callback: Listener) -> None:
        """Calls back with the settings after each valid change, from a thread of the form's."""
        self._listeners.append(callback)

    def on_ranges(self, callback: Callable[[], Any]) -> None:
        """Calls back, without arguments, after each change of what is ticked or of its range."""
        self._range_listeners.append(callback)

    def ranges(self) -> dict[str, Range]:
        """What is ticked: dotted name -> (lowest, highest, logarithmic) of a number, the values to try of a choice.

        Raises SettingsError where a range can't be used.
        """
        return {name: found for name, tick in self.ticks.items() if (found := tick.range()) is not None}

    def row(self, name: str) -> Row:
        """The row of the field with this dotted name, made when it is first asked for."""
        with self._lock:
            if name not in self.rows:
                self._make_row(structure().setting(name))
                self._show_row(name)
                self.rows[name].fit_unit()
            return self.rows[name]

    def tick(self, name: str) -> Tick:
        """What to try of the field with this dotted name, in a form with ticks."""
        self.row(name)
        return self.ticks[name]

    def editor(self, name: str) -> EntriesEditor:
        """The list of this name ("constraints", "regularizers"), made when it is first asked for."""
        with self._lock:
            if name not in self.editors:
                entries = next(entries for entries in structure().lists if entries.name == name)
                reason = "" if self._recon is None or entries.live else FIXED
                self.editors[name] = EntriesEditor(entries, self._draft, self._edited, reason=reason)
            return self.editors[name]

    def refresh(self) -> None:
        """Takes over what a line of Python changed in the settings of the reconstruction that runs."""
        if self._recon is None:
            return
        with self._lock:
            now = self._recon.settings
            if self._actions.busy or now == self._told:
                return
            self._told = now
            self._draft.take(now, keep=self._waiting)
            self._wait_for_apply()
            self._show()
            self._actions.put(lambda: self._call_back(now))

    def complain(self, error: Exception) -> None:
        """Shows an error above the settings, until something else is done."""
        put(self._failure, complaint(error))

    def settle(self, seconds: float = 30.0) -> None:
        """Waits until all that was done in the form so far is told and applied. Raises TimeoutError."""
        self._actions.settle(seconds)

    @property
    def closed(self) -> bool:
        """Whether the form was closed."""
        return self.comm is None

    @property
    def steered(self) -> Steered | None:
        """The reconstruction that runs, of a live form."""
        return self._recon

    def close(self) -> None:
        """Ends the form and its threads; a reconstruction goes on."""
        self._actions.close()
        super().close()
        # What is on no page just now, such as rows that were looked for.
        close_all(*self.rows.values(), *self.ticks.values(), *self.editors.values(), self._nothing)

    # Building

    def _build(self) -> None:
        simple = [setting.name for setting in structure().settings if setting.simple]
        self.find = ipywidgets.Text(
            description="Find",
            placeholder="a setting: learning rate, blur, thickness ...",
            tooltip="Shows the settings with these words in their name or description",
            style={"description_width": "40px"},
            layout=ipywidgets.Layout(width="300px"),
        )
        self.find.observe(lambda _: self._find(), "value")
        self.files = Files(self._load, self._save)
        self.presets = PresetChoice(self._preset)
        self.presets.layout.display = None if self._recon is None else "none"
        self._simple = ipywidgets.VBox(
            [self._whole(name) for name in simple], layout=ipywidgets.Layout(overflow="visible")
        )
        self.more = More(self._page, lists=not self._with_ticks)
        self._all = ipywidgets.VBox([self._simple, self.more])
        self._nothing = ipywidgets.HTML("No setting has these words in its name or description.")
        self._found = ipywidgets.VBox(layout=ipywidgets.Layout(display="none", overflow="visible"))
        self._all.layout.overflow = "visible"
        top = ipywidgets.HBox(
            [self.find, self.presets, self.files], layout=ipywidgets.Layout(flex_flow="row wrap", overflow="visible")
        )
        self.waiting = Waiting(self._apply, self._discard)
        super().__init__([top, self._message, self._failure, self.waiting, self._all, self._found])
        self.add_class("ptynb-settings-form")
        self._show()

    def _make_row(self, setting: Setting) -> None:
        name, label = setting.name, label_of(setting)
        fixed = self._recon is not None and not setting.live
        restructured = isinstance(self._recon, Restructured)
        beside: list[ipywidgets.Widget] = []
        if self._recon is not None and name.endswith(".learning_rate"):
            beside = [self.freezes.setdefault(name, Freeze(label, setting, lambda rate: self._enter(name, rate)))]
        elif self._recon is not None:
            beside = [ipywidgets.HTML(layout=ipywidgets.Layout(width="76px", flex="0 0 auto"))]  # as wide as Freeze
        self.rows[name] = Row(
            setting,
            label,
            lambda value: self._enter(name, value),
            lambda: self._reset(name),
            reason=FIXED if fixed and not restructured else "",
            note=WITH_APPLY if fixed and restructured else "",
            beside=beside,
        )
        if self._with_ticks:
            self.ticks[name] = Tick(
                self.rows[name], lambda values: self._draft.wrong_with(name, values), self._ranges_changed
            )

    def _whole(self, name: str) -> ipywidgets.Box:
        """A field's row, and what to try of it where that is asked."""
        return self.tick(name) if self._with_ticks else self.row(name)

    def _page(self, part: Page) -> Sequence[ipywidgets.Widget]:
        """What is on the page of a part."""
        if isinstance(part, Entries):
            return (self.editor(part.name),)
        about = ipywidgets.HTML(f"{part.description}.")
        return (about, *(self._whole(setting.name) for setting in part.settings if not setting.simple))

    def _find(self) -> None:
        names, lists = found_by(self.find.value)
        searching = bool(self.find.value.strip())
        if searching:
            editors = [] if self._with_ticks else [self.editor(name) for name in lists]
            found = (*(self._whole(name) for name in names), *editors)
            self._found.children = found or (self._nothing,)
        self._all.layout.display = "none" if searching else None
        self._found.layout.display = None if searching else "none"

    # Showing

    def _show(self) -> None:
        """Shows the draft in all rows that were made."""
        with self._lock:
            for name in self.rows:
                self._show_row(name)
            for editor in self.editors.values():
                editor.refresh()
            problems = self._draft.problems
            put(self._message, complaint(_what_holds_back(problems)) if problems else "")
            self.more.show(self._draft.values, self._draft.entries)

    def _show_row(self, name: str) -> None:
        draft, row = self._draft, self.rows[name]
        changed = name in draft.values
        row.show(
            draft.value(name),
            changed=changed,
            default=draft.default(name) if changed else None,
            problem=draft.problems.get(name, ""),
        )
        if name in self.freezes:
            self.freezes[name].show(row.value)

    # What was done

    def _enter(self, name: str, value: Any) -> None:
        with self._lock:
            if value is MISSING:
                self._draft.reset(name)
            else:
                self._draft.put(name, value)
            self._edited()

    def _reset(self, name: str) -> None:
        with self._lock:
            self._draft.reset(name)
            self._edited()

    def _edited(self, line: str = "") -> None:
        """Shows what the draft has become, and has the rest told; line: of Python, where it is not a `replace`."""
        with self._lock:
            before, now = self._told, self._draft.settings
            self._show()
            if self._draft.problems:
                return
            changes = _changes(before, now)
            if self._recon is not None:
                changes = self._at_once(before, changes)
                self._wait_for_apply()
                now = before.replace(**nested(changes))
            self._told = now
            line = "" if self._waiting else line
            if changes:  # queued before others look: what is about to be applied is no change from elsewhere
                self._actions.put(lambda: self._carry_out(now, changes, line))

    def _at_once(self, before: Settings, changes: dict[str, Any]) -> dict[str, Any]:
        """Those of the changes that engines can take over while they run; the rest waits."""
        live = {name: value for name, value in changes.items() if Settings.is_live(name)}
        try:
            before.replace(**nested(live))
        except SettingsError:  # they need what waits
            live = {}
        self._waiting = {name: value for name, value in changes.items() if name not in live}
        return live

    def _wait_for_apply(self) -> None:
        """Shows what waits, and has it asked whether that can be applied."""
        assert self._recon is not None
        wanted, present, recon = self._draft.settings, self._told, self._recon
        waiting = {name: pair for name, pair in present.differences(wanted).items() if name in self._waiting}
        if not isinstance(recon, Restructured):
            self.waiting.show(waiting, "They can't change while it runs; make a new Reconstruction with them.")
            return
        self.waiting.show(waiting)
        asked = self._waiting

        def ask() -> None:
            answer = recon.reconfigure_error(wanted) or ""
            with self._lock:
                if self._waiting is asked:  # else it was applied, discarded or edited meanwhile
                    self.waiting.show(waiting, answer)

        if waiting:
            self._actions.put(ask, instead_of="can it be")

    def _apply(self) -> None:
        recon, waiting = self._recon, dict(self._waiting)

        def reconfigure() -> None:
            assert isinstance(recon, Restructured)
            recon.reconfigure(recon.settings.replace(**nested(waiting)))
            with self._lock:
                self._told, self._waiting = recon.settings, {}
                self._draft.take(self._told)
                self.waiting.show({})
                self._show()
            self._say(f"recon.reconfigure(recon.settings.replace({python_of(waiting)}))")
            self._call_back(recon.settings)

        self._actions.put(reconfigure)

    def _discard(self) -> None:
        with self._lock:
            self._waiting = {}
            self._draft.replace(self._told)
            self.waiting.show({})
            self._show()

    def _carry_out(self, settings: Settings, changes: dict[str, Any], line: str) -> None:
        if self._recon is None:
            self._say(line or f"settings = settings.replace({python_of(changes)})")
            self._call_back(settings)
            return
        try:
            self._recon.settings = now = self._recon.settings.replace(**nested(changes))
        except Exception:
            with self._lock:
                self._told = self._recon.settings
                self._draft.replace(self._told)
                self._waiting = {}
                self.waiting.show({})
                self._show()
            raise
        self._say(line or f"recon.settings = recon.settings.replace({python_of(changes)})")
        self._call_back(now)

    def _preset(self, name: str) -> None:
        def take() -> None:
            scan = self.scan
            chosen = preset(name, scan)
            with self._lock:
                self._draft.replace(chosen)
                self._edited(f"settings = pt.preset({name!r}{'' if scan is None else ', scan'})")

        self._actions.put(take)

    def _load(self, path: Path) -> None:
        def take() -> None:
            loaded = read_file(path)
            target = "settings" if self._recon is None else "recon.settings"
            with self._lock:
                self._draft.replace(loaded)
                self._edited(f"{target} = pt.Settings.from_yaml(Path({str(path)!r}))")

        self._actions.put(take)

    def _save(self, path: Path) -> None:
        settings = self.settings
        source = "settings" if self._recon is None else "recon.settings"

        def write() -> None:
            write_file(path, settings)
            self._say(f"Path({str(path)!r}).write_text({source}.to_yaml())")

        self._actions.put(write)

    def _ranges_changed(self) -> None:
        for listener in self._range_listeners:
            self._actions.put(listener)

    def _call_back(self, settings: Settings) -> None:
        for listener in self._listeners:
            listener(settings)

    def _say(self, line: str) -> None:
        if self.tell is not None:
            self.tell(line)

    def _clear(self) -> None:
        put(self._failure, "")


def _what_holds_back(problems: Mapping[Any, str]) -> str:
    """Where there is something wrong, which holds all edits back; and what concerns several fields."""
    together = problems.get("", "")
    labels = ", ".join(dict.fromkeys(_label(place) for place in problems if place != ""))
    return f"Nothing is taken over until this is put right: {f'{labels}. {together}'.strip() if labels else together}"


def _label(place: Any) -> str:
    """What a field, or an entry and its field, is called in the form."""
    if isinstance(place, str):
        return label_of(structure().setting(place))
    entry, name = place
    kind = next(kind for entries in structure().lists for kind in entries.kinds if kind.kind == entry.kind)
    title = next((setting.title for setting in kind.settings if setting.name == name), "")
    return f"{kind.title}: {title}" if title else kind.title


def _changes(before: Settings, now: Settings) -> dict[str, Any]:
    """Dotted name -> plain value now, of what differs."""
    plain = dict(flat(now.model_dump(mode="json")))
    return {name: plain[name] for name in before.differences(now)}
