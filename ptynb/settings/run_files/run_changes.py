"""Changes of a run file by the command line: `--set settings.loss=poisson`, and `--set-json` with several."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptynb.exceptions import SettingsError
from ptynb.settings.base_models import check_names, closest, merge
from ptynb.settings.yaml_reader import MOST_BYTES, read_mapping, read_yaml
from ptynb.text import quoted

STANDARD_INPUT = Path("-")


@dataclass(frozen=True)
class RunChange:
    """A value for a field of a run file. name: its dotted path; source: where it was given, for messages."""

    name: str
    value: Any
    source: str

    @property
    def paths(self) -> Iterator[tuple[str, ...]]:
        """The fields that it sets: a mapping sets those that it has, and leaves the others of its section."""
        return leaves(self.value, tuple(self.name.split(".")))


def leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the paths of the values in a mapping, or that of the value itself."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield from leaves(one, (*path, name))
    else:
        yield path


def changes_of(lines: Iterable[str]) -> tuple[RunChange, ...]:
    """Return the changes in texts such as 'settings.loss=poisson', whose values are YAML. Raises SettingsError."""
    changes = []
    for line in lines:
        name, equals, text = line.partition("=")
        if not equals or not name.strip():
            raise SettingsError(
                f"--set is {quoted(line)}; expected a field of the run file and its value, such as "
                "settings.loss=poisson.",
                code="argument.invalid-value",
            )
        name = name.strip()
        value = read_yaml(text, f"The value of --set {name}")
        check_names(value, name)
        changes.append(RunChange(name, value, f"--set {name}"))
    return tuple(changes)


def read_changes(path: Path) -> tuple[RunChange, ...]:
    """Return the changes of a file with nested mappings or dotted names, of '-' from standard input.

    Raises SettingsError, OSError.
    """
    source = "--set-json -" if path == STANDARD_INPUT else f"--set-json {path}"
    text = sys.stdin.read(MOST_BYTES + 1) if path == STANDARD_INPUT else path.expanduser()
    try:
        values = read_mapping(text, "standard input", '{"epochs": 200}')
        check_names(values)
    except SettingsError as error:
        raise error.retold(SettingsError, f"{source}: {error}") from None
    return tuple(RunChange(name, value, source) for name, value in values.items())


def changed(values: Mapping[str, Any], changes: Sequence[RunChange]) -> dict[str, Any]:
    """Return the values of a run file with these changes, the last one of a field. Raises SettingsError."""
    found: Any = dict(values)
    for change in changes:
        found = _changed(found, change.name.split("."), change, "")
    return dict(found)


def _changed(values: Any, path: Sequence[str], change: RunChange, above: str) -> Any:
    """Return what is at the dotted name `above` with a change below it."""
    if not path:
        both = isinstance(values, Mapping) and isinstance(change.value, Mapping)
        return merge(values, change.value) if both else change.value
    first, rest = path[0], path[1:]
    name = f"{above}.{first}" if above else first
    if isinstance(values, list):
        if not first.isdecimal() or int(first) >= len(values):
            known = [str(number) for number in range(len(values))]
            raise SettingsError(
                f"{change.source}: there is no {name}{closest(first, known)}; {above} is a list of {len(values)}, "
                "whose first entry is 0.",
                code="settings.unknown-name",
            )
        number = int(first)
        return [*values[:number], _changed(values[number], rest, change, name), *values[number + 1 :]]
    if values is not None and not isinstance(values, Mapping):
        raise SettingsError(
            f"{change.source}: {above} is {quoted(values)}, which has no field {first!r}; give {above} itself.",
            code="settings.unknown-name",
        )
    inner = values or {}
    return {**inner, first: _changed(inner.get(first), rest, change, name)}
