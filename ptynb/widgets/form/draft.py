"""What a form holds: values as they were typed, right or wrong, and the last settings that they made.

Nothing here is a widget. A value that can't be used stays where it was typed, with what is wrong about it, until
another makes it right; the settings stay the last ones that were.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ptynb.exceptions import SettingsError
from ptynb.settings import Settings
from ptynb.settings.ranges import value_of
from ptynb.settings.schema import given, nested, structure

LISTS = tuple(entries.name for entries in structure().lists)


@dataclass(eq=False)
class Entry:
    """An entry of a list, such as a constraint: its kind, the values given, and whether it is switched on."""

    kind: str
    values: dict[str, Any] = field(default_factory=dict)
    on: bool = True

    @property
    def plain(self) -> dict[str, Any]:
        """As the settings take it."""
        return {"kind": self.kind, **self.values}


class Draft:
    """Values by dotted name, entries of lists, the last settings they made, and what is wrong with them now.

    problems: sentences by dotted name; those of an entry's field under (entry, field); what concerns several fields
    under "".
    """

    def __init__(self, settings: Settings) -> None:
        self.values: dict[str, Any] = {}
        self.entries: dict[str, list[Entry]] = {name: [] for name in LISTS}
        self.problems: dict[Any, str] = {}
        self.settings = Settings()
        self.take(settings)

    def take(self, settings: Settings, keep: Iterable[str] = ()) -> None:
        """Takes settings over. What can't be used stays as it was typed, and so do the fields named in `keep`.

        Entries switched off stay too.
        """
        kept = {name: self.values[name] for name in (*self.problems, *keep) if name in self.values}
        found = given(settings)
        for name in LISTS:
            found.pop(name, None)
            if getattr(settings, name) != getattr(self.settings, name):
                off = [entry for entry in self.entries[name] if not entry.on]
                self.entries[name] = [*_entries(getattr(settings, name)), *off]
        self.values, self.settings = found, settings
        self.problems = {}
        if kept:
            self.values |= kept
            self.check()

    def replace(self, settings: Settings) -> None:
        """Takes settings over, whatever was typed before; only entries switched off stay."""
        for name in LISTS:
            off = [entry for entry in self.entries[name] if not entry.on]
            self.entries[name] = [*_entries(getattr(settings, name)), *off]
        self.settings, self.problems = settings, {}
        self.take(settings)

    def put(self, name: str, value: Any) -> None:
        """Sets one value."""
        self.values[name] = value
        self.check()

    def reset(self, name: str) -> None:
        """Gives one value back to its default."""
        self.values.pop(name, None)
        self.check()

    def value(self, name: str) -> Any:
        """What the form shows for a field: what was typed, or what follows from the rest."""
        return self.values[name] if name in self.values else value_of(self.settings, name)

    def default(self, name: str) -> Any:
        """What the field would be if nobody had given it a value."""
        rest = {other: value for other, value in self.values.items() if other != name}
        try:
            return value_of(Settings(**nested(rest)), name)
        except SettingsError:
            return value_of(Settings(), name)

    def check(self) -> bool:
        """Makes settings of the values; whether they could be used. `problems` says what is wrong."""
        try:
            settings = Settings(**self._asked())
        except SettingsError as error:
            self.problems = self._located(error)
            return False
        self.settings, self.problems = settings, {}
        return True

    def wrong_with(self, name: str, values: Iterable[Any]) -> str:
        """What would be wrong if this field had one of these values; nothing where all could be used."""
        for value in values:
            trial = Draft.__new__(Draft)
            trial.values, trial.entries = {**self.values, name: value}, self.entries
            trial.problems, trial.settings = {}, self.settings
            if not trial.check():
                return f"{value!r}: {trial.problems.get(name) or next(iter(trial.problems.values()))}"
        return ""

    def _asked(self) -> dict[str, Any]:
        lists = {name: [entry.plain for entry in self._on(name)] for name in LISTS}
        return nested(self.values) | {name: entries for name, entries in lists.items() if entries}

    def _on(self, name: str) -> list[Entry]:
        return [entry for entry in self.entries[name] if entry.on]

    def _located(self, error: SettingsError) -> dict[Any, str]:
        """The problems at the fields they belong to; the rest together."""
        found: dict[Any, str] = {}
        for problem in error.problems:
            location, sentence = problem["loc"], _sentence(problem["msg"])
            known = {setting.name: setting for setting in structure().settings}
            name = ".".join(str(part) for part in location)
            if name in known:
                unit = known[name].unit
                found[name] = f"{sentence} {unit}" if unit and re.search(r"\d$", sentence) else sentence
            elif len(location) > 2 and location[0] in LISTS and isinstance(location[1], int):
                entry = self._on(str(location[0]))[location[1]]
                last = str(location[-1]) if len(location) > 3 else ""
                found[entry, last] = sentence
            else:
                about = f"{name}: {sentence}" if name else sentence
                found[""] = f"{found['']} {about}." if "" in found else f"{about}."
        return found


def _entries(models: Iterable[Any]) -> list[Entry]:
    return [Entry(model.kind, model.model_dump(mode="json", exclude_defaults=True)) for model in models]


def _sentence(message: str) -> str:
    message = message.removeprefix("Value error, ").replace("Input should be", "expected")
    return "a value is needed" if message == "Field required" else message.rstrip(".")
