"""Reader of YAML from untrusted files; all YAML of the package is read here.

The events of the parser are converted to values one by one, without recursion, so that size, nesting and anything but
plain data are refused before values are created. Anchors and aliases are refused, too: a few hundred bytes of them can
represent any number of values ("billion laughs"), or a list that contains itself.

Unlike in YAML 1.1, 12:30:00 is text and not 45000, and 1e-3 is a number. JSON is read as well.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import yaml
from yaml.error import MarkedYAMLError
from yaml.reader import ReaderError

from ptynb.exceptions import SettingsError
from ptynb.text import in_one_line, quoted

MOST_BYTES = 2**20
MOST_VALUES = 20_000
"""Largest number of values of a file; a run file with all settings has two hundred."""
DEEPEST = 20
LONGEST_NUMBER = 100
"""Largest number of characters of a number."""
LONGEST_ECHO = 60
"""Largest number of characters of the file in a message."""

INTEGER = re.compile(r"[-+]?[0-9]+")
FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|nan)", re.IGNORECASE)
WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null"), None),
    **dict.fromkeys(("yes", "true", "on"), True),
    **dict.fromkeys(("no", "false", "off"), False),
}
"""Words with a value, in lower case; YAML accepts them capitalised and in upper case, too."""
MISSING = object()


def read_yaml_file(path: Path) -> Any:
    """Return the plain values of a YAML file; None if it is empty. Raises SettingsError, OSError."""
    if not path.is_file():  # opening a pipe might block for ever
        raise SettingsError(f"{path} is not a file; expected a YAML file.", code="file.not-found")
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise SettingsError(
            f"{path} has more than {MOST_BYTES} bytes; expected settings, which have a few thousand.",
            code="settings.too-large",
        )
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise SettingsError(
            f"{path} is not UTF-8 (byte {error.start}); expected YAML as text in UTF-8.", code="settings.invalid-yaml"
        ) from None
    return read_yaml(text, str(path))


def read_yaml(text: str, source: str) -> Any:
    """Return the plain values of a YAML text; None if it is empty.

    source: name of the text in messages. Raises SettingsError with line and column of the problem.
    """
    if len(text) > MOST_BYTES:
        raise SettingsError(
            f"{source} has more than {MOST_BYTES} characters; expected settings, which have a few thousand.",
            code="settings.too-large",
        )
    try:
        return _values(text)
    except _RefusedError as error:
        problem, line, column = str(error), error.line, error.column
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "it cannot be read"
        line, column = (0, 0) if mark is None else (mark.line, mark.column)
    except ReaderError as error:
        problem = f"the character {chr(error.character)!r} is not allowed"
        before = text[: error.position]
        line, column = before.count("\n"), len(before) - before.rfind("\n") - 1
    raise SettingsError(
        f"{source} is not valid YAML: line {line + 1}, column {column + 1}: {in_one_line(problem)}.",
        code="settings.invalid-yaml",
    )


class _RefusedError(ValueError):
    """Valid YAML that is not accepted. line, column: from 0."""

    def __init__(self, event: yaml.Event, problem: str) -> None:
        super().__init__(problem)
        mark = event.start_mark
        self.line, self.column = (0, 0) if mark is None else (mark.line, mark.column)


class _Open:
    """A list or mapping that is being read. key: of a mapping, name of the next value."""

    def __init__(self, values: list[Any] | dict[Any, Any]) -> None:
        self.values = values
        self.key: Any = MISSING

    def add(self, value: Any, event: yaml.NodeEvent) -> None:
        """Append the next value or name."""
        if isinstance(self.values, list):
            self.values.append(value)
        elif self.key is not MISSING:
            self.values[self.key] = value
            self.key = MISSING
        elif isinstance(value, list | dict):
            raise _RefusedError(event, "a list or mapping is used where a name is expected")
        elif value == "<<":
            raise _RefusedError(event, "merge keys (<<) are not allowed; write the values out")
        elif value in self.values:
            raise _RefusedError(event, f"{quoted(value, LONGEST_ECHO)} is given twice; give it once")
        else:
            self.key = value


def _values(text: str) -> Any:
    """Return the values of a text. Raises _RefusedError, yaml.YAMLError."""
    whole = _Open([])
    stack, count = [whole], 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.CollectionEndEvent):
            stack.pop()
            continue
        if not isinstance(event, yaml.NodeEvent):
            continue
        count += 1
        if count > MOST_VALUES:
            raise _RefusedError(event, f"more than {MOST_VALUES} values; expected a few hundred")
        value = _value(event)
        if len(stack) == 1 and whole.values:
            raise _RefusedError(event, "a second document begins; expected one")
        stack[-1].add(value, event)
        if isinstance(event, yaml.CollectionStartEvent):
            stack.append(_Open(value))
            if len(stack) > DEEPEST + 1:
                raise _RefusedError(event, f"values are nested more than {DEEPEST} deep")
    return whole.values[0] if whole.values else None


def _value(event: yaml.NodeEvent) -> Any:
    """Return the value that begins with an event: a scalar, or an empty list or mapping."""
    if event.anchor is not None:  # anchor or alias
        name = in_one_line(event.anchor, LONGEST_ECHO)
        raise _RefusedError(event, f"anchors (&{name}) and aliases (*{name}) are not allowed; write the values out")
    tag = getattr(event, "tag", None)
    if tag is not None:
        raise _RefusedError(event, f"the tag {quoted(tag, LONGEST_ECHO)} is not allowed; leave it out")
    if isinstance(event, yaml.ScalarEvent):
        return _number_or_word(event.value, event) if event.implicit[0] else event.value  # quoted scalars are text
    return [] if isinstance(event, yaml.SequenceStartEvent) else {}


def _number_or_word(text: str, event: yaml.NodeEvent) -> Any:
    if text.lower() in WORDS and text in (text.lower(), text.upper(), text.capitalize()):
        return WORDS[text.lower()]
    match = INTEGER.fullmatch(text) or FLOAT.fullmatch(text)
    if match is None:
        return text
    if len(text) > LONGEST_NUMBER:
        raise _RefusedError(event, f"a number of {len(text)} characters; expected at most {LONGEST_NUMBER}")
    if INTEGER.fullmatch(text):
        return int(text)
    number = math.inf if text[-1].isalpha() else float(text)  # .inf and .nan end with letters
    if not math.isfinite(number):
        raise _RefusedError(event, f"{text} is not a finite number")
    return number


def read_mapping(text_or_path: str | Path, name: str, example: str) -> dict[str, Any]:
    """Return the mapping in a text (str) or a file (Path); an empty one is an empty mapping.

    name: of the content, and example: an expected line, for messages. Raises SettingsError.
    """
    source = f"The text of the {name}" if isinstance(text_or_path, str) else str(text_or_path)
    values = read_yaml(text_or_path, source) if isinstance(text_or_path, str) else read_yaml_file(text_or_path)
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise SettingsError(
            f"{source} contains a {type(values).__name__}; expected a mapping of names to values, as '{example}'.",
            code="settings.not-a-mapping",
        )
    return values
