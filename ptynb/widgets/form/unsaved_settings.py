"""The contents of a form: values as entered, valid or not, and the last valid settings.

An invalid value is kept with its problem until it is corrected; the settings stay the last valid ones.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ptynb.exceptions import SettingsError
from ptynb.settings import Settings
from ptynb.settings.base_models import fields_of, message_of
from ptynb.settings.ranges import value_of
from ptynb.settings.schema import Setting, given, nested, structure
from ptynb.settings.settings import changed_defaults
from ptynb.widgets.form.field_words import MISSING

NEEDED = "a value is needed"
LISTS = {entries.name: entries for entries in structure().lists}
_numbers = itertools.count(1)


class Entry:
    """An entry of a list, such as a constraint: its kind, and whether it is enabled.

    name: that of the list, and a number: "constraints.3"; those of its fields begin with it: "constraints.3.sigma".
    """

    def __init__(self, list_name: str, kind: str, on: bool = True) -> None:
        self.list, self.kind, self.on = list_name, LISTS[list_name].kind(kind), on
        self.name = f"{list_name}.{next(_numbers)}"
        self.fields = {f"{self.name}.{setting.name}": setting for setting in self.kind.settings}


class Draft:
    """Values by dotted name, those of entries too, the entries of lists, the last valid settings, and problems.

    problems: messages by dotted name, of a field or an entry; of several fields by "". What edits it does not `check`.
    """

    def __init__(self, settings: Settings) -> None:
        self.values: dict[str, Any] = {}
        self.entries: dict[str, list[Entry]] = {name: [] for name in LISTS}
        self.problems: dict[str, str] = {}
        self.settings = Settings()
        self.take(settings)

    def take(self, settings: Settings, keep: Iterable[str] = ()) -> None:
        """Replace the values, except invalid ones, the fields named in `keep`, and entries that are off."""
        edited = {name: self.values[name] for name in (*self.problems, *keep) if name in self._own}
        self._take(settings, [name for name in LISTS if getattr(settings, name) != getattr(self.settings, name)])
        if edited:
            self.values |= edited
            self.check()

    def replace(self, settings: Settings) -> None:
        """Replace all values, except entries that are off."""
        self._take(settings, LISTS)

    def _take(self, settings: Settings, lists: Iterable[str]) -> None:
        """Take the values of settings, and the entries of these lists."""
        entered = {name: value for name, value in self.values.items() if is_of_entry(name)}
        own = {name: value for name, value in given(settings).items() if name not in LISTS}
        self.values, self.settings, self.problems = own | entered, settings, {}
        for name in lists:
            off = [entry for entry in self.entries[name] if not entry.on]
            self.entries[name] = [*(self._taken(name, model) for model in getattr(settings, name)), *off]
        self.values = {name: value for name, value in self.values.items() if self.has(name)}

    def _taken(self, list_name: str, model: Any) -> Entry:
        entry = Entry(list_name, model.kind)
        values = model.model_dump(mode="json", exclude_defaults=True)
        self.values |= {f"{entry.name}.{name}": value for name, value in values.items()}
        return entry

    @property
    def _own(self) -> dict[str, Any]:
        """The values that are not those of entries."""
        return {name: value for name, value in self.values.items() if not is_of_entry(name)}

    @property
    def fields(self) -> Iterator[tuple[str, Setting]]:
        """All fields with their dotted names, those of entries too."""
        yield from ((setting.name, setting) for setting in structure().settings)
        yield from (one for entries in self.entries.values() for entry in entries for one in entry.fields.items())

    def has(self, name: str) -> bool:
        """Whether there is the entry of this name, or with the field of this name; other fields are always there."""
        return not is_of_entry(name) or any(f"{name}.".startswith(f"{one.name}.") for one in self._list_of(name))

    def entry(self, name: str) -> Entry:
        """Return the entry of this name, or with the field of this name."""
        return next(one for one in self._list_of(name) if f"{name}.".startswith(f"{one.name}."))

    def _list_of(self, name: str) -> list[Entry]:
        return self.entries[name.partition(".")[0]]

    def setting(self, name: str) -> Setting:
        """Return the field of this name."""
        return self.entry(name).fields[name] if is_of_entry(name) else structure().setting(name)

    def put(self, name: str, value: Any) -> None:
        """Set one value; with another optimiser, fields become its defaults as in `Settings.replace`."""
        if name == "optimiser":
            for follower in changed_defaults(self.value(name), value):
                if self.value(follower) != 0:
                    self.values.pop(follower, None)
        self.values[name] = value

    def reset(self, name: str) -> None:
        """Restore the default of one value."""
        self.values.pop(name, None)

    def put_all(self, values: Mapping[str, Any]) -> None:
        """Set several values; those that are the default then are not entered."""
        for name in values:
            self.values.pop(name, None)
        self.values |= {name: value for name, value in values.items() if self.default(name) != value}

    def value(self, name: str) -> Any:
        """Return the value that the form shows for a field: the entered one, or that of the settings."""
        if name in self.values:
            return self.values[name]
        return self.default(name) if is_of_entry(name) else value_of(self.settings, name)

    def default(self, name: str) -> Any:
        """Return the value of the field if nothing is entered for it."""
        if is_of_entry(name):
            setting = self.setting(name)
            return MISSING if setting.required else setting.default
        others = {other: value for other, value in self._own.items() if other != name}
        try:
            return value_of(Settings(**nested(others)), name)
        except SettingsError:
            return value_of(Settings(), name)

    def check(self) -> bool:
        """Validate the values; set `settings` if they are valid, else `problems`. Return whether they are valid."""
        try:
            lists = {name: [self._plain(entry) for entry in self._on(name)] for name in LISTS}
            entries = {name: plain for name, plain in lists.items() if plain}
            settings = Settings(**(nested(self._own) | entries))
        except SettingsError as error:
            self.problems = self._located(error)
            return False
        self.settings, self.problems = settings, {}
        return True

    def wrong_with(self, name: str, values: Iterable[Any]) -> str:
        """Return the problem of the first of these values that is invalid for a field; "" if all are valid."""
        for value in values:
            trial = copy.copy(self)
            trial.values = {**self.values, name: value}
            if not trial.check():
                told = [trial.problems.get(key, "") for key in ("", name)]
                return f"{value!r}: {next(filter(None, (*told, *trial.problems.values())))}"
        return ""

    def _plain(self, entry: Entry) -> dict[str, Any]:
        """Return an entry in the form that `Settings` accepts."""
        given = {one.name: self.values[name] for name, one in entry.fields.items() if name in self.values}
        return {"kind": entry.kind.kind, **given}

    def _on(self, name: str) -> list[Entry]:
        return [entry for entry in self.entries[name] if entry.on]

    def _located(self, error: SettingsError) -> dict[str, str]:
        """Return the messages by field; those that concern several fields are joined."""
        found: dict[str, str] = {}
        for problem in error.problems:
            location, message = problem["loc"], NEEDED if problem["type"] == "missing" else message_of(problem)
            name = ".".join(str(part) for part in location)
            if structure().has(name):
                unit = structure().setting(name).unit
                found[name] = f"{message} [{unit}]" if unit else message
            elif len(location) > 2 and location[0] in LISTS and isinstance(location[1], int):
                entry = self._on(str(location[0]))[location[1]]
                found[f"{entry.name}.{location[-1]}" if len(location) > 3 else entry.name] = message
            else:
                text = f"{name}: {message}" if name else message
                for one in fields_of(problem):
                    if structure().has(one):
                        found[one] = NEEDED if self.value(one) is None else "see the message above"
                found[""] = f"{found['']} {text}." if "" in found else f"{text}."
        return found


def is_of_entry(name: str) -> bool:
    """Whether a field is that of an entry of a list."""
    return name.partition(".")[0] in LISTS
