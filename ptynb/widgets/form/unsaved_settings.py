"""The contents of a form, without widgets: values as entered, valid or not, and the last valid settings.

An invalid value is kept with its problem until it is corrected; the settings stay the last valid ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ptynb.exceptions import SettingsError
from ptynb.settings import Settings
from ptynb.settings.base_models import fields_of, message_of
from ptynb.settings.ranges import value_of
from ptynb.settings.schema import given, nested, structure
from ptynb.settings.settings import changed_defaults

NEEDED = "a value is needed"
_numbers = itertools.count(1)
LISTS = tuple(entries.name for entries in structure().lists)


@dataclass(eq=False)
class Entry:
    """An entry of a list, such as a constraint: its kind, its values as entered, and whether it is enabled.

    number: by which the browser names it.
    """

    kind: str
    values: dict[str, Any] = field(default_factory=dict)
    on: bool = True
    number: int = field(default_factory=lambda: next(_numbers))

    @property
    def plain(self) -> dict[str, Any]:
        """Kind and values in the form that `Settings` accepts."""
        return {"kind": self.kind, **self.values}


class Draft:
    """Values by dotted name, entries of lists, the last valid settings, and problems.

    problems: messages by dotted name; of an entry's field by (entry, field); of several fields by "".
    """

    def __init__(self, settings: Settings) -> None:
        self.values: dict[str, Any] = {}
        self.entries: dict[str, list[Entry]] = {name: [] for name in LISTS}
        self.problems: dict[Any, str] = {}
        self.settings = Settings()
        self.take(settings)

    def take(self, settings: Settings, keep: Iterable[str] = ()) -> None:
        """Replace the values, except invalid ones, the fields named in `keep`, and entries that are off."""
        edited = {name: self.values[name] for name in (*self.problems, *keep) if name in self.values}
        values = given(settings)
        for name in LISTS:
            values.pop(name, None)
            if getattr(settings, name) != getattr(self.settings, name):
                off = [entry for entry in self.entries[name] if not entry.on]
                self.entries[name] = [*_entries(getattr(settings, name)), *off]
        self.values, self.settings = values, settings
        self.problems = {}
        if edited:
            self.values |= edited
            self.check()

    def replace(self, settings: Settings) -> None:
        """Replace all values, except entries that are off."""
        for name in LISTS:
            off = [entry for entry in self.entries[name] if not entry.on]
            self.entries[name] = [*_entries(getattr(settings, name)), *off]
        self.settings, self.problems = settings, {}
        self.take(settings)

    def put(self, name: str, value: Any) -> None:
        """Set one value; with another optimiser, fields become its defaults as in `Settings.replace`."""
        if name == "optimiser":
            for follower in changed_defaults(self.value(name), value):
                if self.value(follower) != 0:
                    self.values.pop(follower, None)
        self.values[name] = value
        self.check()

    def reset(self, name: str) -> None:
        """Restore the default of one value."""
        self.values.pop(name, None)
        self.check()

    def put_all(self, values: Mapping[str, Any]) -> None:
        """Set several values; those that are the default then are not entered."""
        for name in values:
            self.values.pop(name, None)
        self.values |= {name: value for name, value in values.items() if self.default(name) != value}
        self.check()

    def value(self, name: str) -> Any:
        """Return the value that the form shows for a field: the entered one, or that of the settings."""
        return self.values[name] if name in self.values else value_of(self.settings, name)

    def default(self, name: str) -> Any:
        """Return the value of the field if nothing is entered for it."""
        others = {other: value for other, value in self.values.items() if other != name}
        try:
            return value_of(Settings(**nested(others)), name)
        except SettingsError:
            return value_of(Settings(), name)

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
            trial = Draft.__new__(Draft)
            trial.values, trial.entries = {**self.values, name: value}, self.entries
            trial.problems, trial.settings = {}, self.settings
            if not trial.check():
                told = [trial.problems.get(key, "") for key in ("", name)]
                return f"{value!r}: {next(filter(None, (*told, *trial.problems.values())))}"
        return ""

    def _on(self, name: str) -> list[Entry]:
        return [entry for entry in self.entries[name] if entry.on]

    def _located(self, error: SettingsError) -> dict[Any, str]:
        """Return the messages by field; those that concern several fields are joined."""
        found: dict[Any, str] = {}
        for problem in error.problems:
            location, message = problem["loc"], NEEDED if problem["type"] == "missing" else message_of(problem)
            known = {setting.name: setting for setting in structure().settings}
            name = ".".join(str(part) for part in location)
            if name in known:
                found[name] = f"{message} [{known[name].unit}]" if known[name].unit else message
            elif len(location) > 2 and location[0] in LISTS and isinstance(location[1], int):
                entry = self._on(str(location[0]))[location[1]]
                last = str(location[-1]) if len(location) > 3 else ""
                found[entry, last] = message
            else:
                text = f"{name}: {message}" if name else message
                for field in fields_of(problem):
                    if field in known:
                        found[field] = NEEDED if self.value(field) is None else "see the message above"
                found[""] = f"{found['']} {text}." if "" in found else f"{text}."
        return found


def _entries(models: Iterable[Any]) -> list[Entry]:
    return [Entry(model.kind, model.model_dump(mode="json", exclude_defaults=True)) for model in models]
