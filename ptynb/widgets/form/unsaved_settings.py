"""The contents of a form: values as entered, valid or not, and the last valid settings.

An invalid value is kept with its problem until it is corrected; the settings stay the last valid ones.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ptynb.exceptions import SettingsError
from ptynb.settings import Settings
from ptynb.settings.base_models import fields_of, message_of
from ptynb.settings.ranges import value_of
from ptynb.settings.schema import EntryKind, Setting, given, nested, structure
from ptynb.settings.settings import changed_defaults
from ptynb.widgets.form.field_words import MISSING

NEEDED = "a value is needed"
LISTS = {entries.name: entries for entries in structure().lists}
_numbers = itertools.count(1)


@dataclass(eq=False)
class Entry:
    """An entry of a list, such as a constraint: its kind, its values as entered, and whether it is enabled.

    name: that of the list, and a number: "constraints.3"; those of its fields begin with it: "constraints.3.sigma".
    """

    list: str
    kind: EntryKind
    values: dict[str, Any] = field(default_factory=dict)
    on: bool = True
    name: str = ""

    def __post_init__(self) -> None:
        self.name = f"{self.list}.{next(_numbers)}"

    @property
    def fields(self) -> dict[str, Setting]:
        """The fields by their dotted names."""
        return {f"{self.name}.{setting.name}": setting for setting in self.kind.settings}

    @property
    def plain(self) -> dict[str, Any]:
        """Kind and values in the form that `Settings` accepts."""
        return {"kind": self.kind.kind, **self.values}


class Draft:
    """Values by dotted name, entries of lists, the last valid settings, and problems.

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
        edited = {name: self.values[name] for name in (*self.problems, *keep) if name in self.values}
        for name in LISTS:
            if getattr(settings, name) != getattr(self.settings, name):
                self._take_list(name, settings)
        self.values = {name: value for name, value in given(settings).items() if name not in LISTS}
        self.settings, self.problems = settings, {}
        if edited:
            self.values |= edited
            self.check()

    def replace(self, settings: Settings) -> None:
        """Replace all values, except entries that are off."""
        for name in LISTS:
            self._take_list(name, settings)
        self.settings, self.problems = settings, {}
        self.take(settings)

    def _take_list(self, name: str, settings: Settings) -> None:
        off = [entry for entry in self.entries[name] if not entry.on]
        models, kind = getattr(settings, name), LISTS[name].kind
        made = [Entry(name, kind(one.kind), one.model_dump(mode="json", exclude_defaults=True)) for one in models]
        self.entries[name] = [*made, *off]

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
        values, key = self._place(name)
        values[key] = value

    def reset(self, name: str) -> None:
        """Restore the default of one value."""
        values, key = self._place(name)
        values.pop(key, None)

    def put_all(self, values: Mapping[str, Any]) -> None:
        """Set several values; those that are the default then are not entered."""
        for name in values:
            self.values.pop(name, None)
        self.values |= {name: value for name, value in values.items() if self.default(name) != value}

    def entered(self, name: str) -> bool:
        """Whether a value was entered for a field, or is that of the settings and not the default."""
        values, key = self._place(name)
        return key in values

    def value(self, name: str) -> Any:
        """Return the value that the form shows for a field: the entered one, or that of the settings."""
        values, key = self._place(name)
        if key in values:
            return values[key]
        return self.default(name) if is_of_entry(name) else value_of(self.settings, name)

    def default(self, name: str) -> Any:
        """Return the value of the field if nothing is entered for it."""
        if is_of_entry(name):
            setting = self.setting(name)
            return MISSING if setting.required else setting.default
        others = {other: value for other, value in self.values.items() if other != name}
        try:
            return value_of(Settings(**nested(others)), name)
        except SettingsError:
            return value_of(Settings(), name)

    def _place(self, name: str) -> tuple[dict[str, Any], str]:
        """Return the dictionary with the value of a field if it was entered, and its key there."""
        return (self.entry(name).values, name.rpartition(".")[2]) if is_of_entry(name) else (self.values, name)

    def check(self) -> bool:
        """Validate the values; set `settings` if they are valid, else `problems`. Return whether they are valid."""
        try:
            lists = {name: [entry.plain for entry in self._on(name)] for name in LISTS}
            entries = {name: plain for name, plain in lists.items() if plain}
            settings = Settings(**(nested(self.values) | entries))
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
