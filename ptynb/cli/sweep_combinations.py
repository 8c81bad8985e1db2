"""Combinations of values for `ptynb sweep`, each with a separate folder, and their outcomes."""

from __future__ import annotations

import ast
import difflib
import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptynb.exceptions import InvalidValueError
from ptynb.text import quoted

MOST = 1000
"""Largest number of combinations: more is a typing error, or better done by `ptynb.tune`."""
RECORD = "combination.json"
FIELDS: dict[str, Any] = {"values": dict, "notebook": str, "error": str, "seconds": int | float, "result": str}
"""Fields of the file and their types."""
MOST_BYTES = 2**20
NOTEBOOK = "notebook.ipynb"
RESERVED = ("sweep", "folder")
"""Names of the notebook's parameters for dotted values and for its folder."""


@dataclass(frozen=True)
class Done:
    """Outcome of a combination.

    error: of the notebook, in one line; empty if it succeeded. seconds: duration [s].
    result: the saved file, relative to the combination's folder; empty if none was saved.
    """

    error: str
    seconds: float
    result: str = ""


@dataclass(frozen=True)
class Combination:
    """One run of the notebook: its number from 1, its values by name, its folder."""

    number: int
    values: dict[str, Any]
    folder: Path

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the notebook: plain names unchanged, dotted ones as `sweep`, and `folder`."""
        dotted = {name: value for name, value in self.values.items() if "." in name}
        plain = {name: value for name, value in self.values.items() if "." not in name}
        return {**plain, "folder": str(self.folder), **({"sweep": dotted} if dotted else {})}

    def write(self, source: str, done: Done) -> None:
        """Write its outcome. source: `identity` of the notebook."""
        record = {"values": self.values, "notebook": source, **vars(done)}
        part = self.folder / f"{RECORD}.part"
        part.write_text(json.dumps(record, indent=1))
        part.replace(self.folder / RECORD)

    def done(self) -> Done | None:
        """Return its outcome; None if it has not been completed, or has failed."""
        record = _record(self.folder / RECORD)
        if record is None or record["error"]:
            return None
        return Done(record["error"], record["seconds"], record["result"])


def parse(options: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Return name -> values of options such as 'probe.modes=1,2,4'. Raises ValueError for invalid or repeated ones."""
    parsed: dict[str, tuple[Any, ...]] = {}
    for option in options:
        name, equals, text = option.partition("=")
        name = name.strip()
        if not equals or not all(part.isidentifier() for part in name.split(".")):
            raise InvalidValueError(
                f"-p {quoted(option)} is no name with values; expected such as -p probe.modes=1,2,4.",
                code="argument.invalid-value",
            )
        if name in parsed:
            raise InvalidValueError(
                f"{name} is given twice; give all its values at once, as -p {name}=1,2,4.", code="argument.conflict"
            )
        if name in RESERVED:
            raise InvalidValueError(
                f"The name {name!r} is what a sweep itself gives the notebook; use another one.",
                code="argument.invalid-value",
            )
        parsed[name] = _parsed(name, text)
    return parsed


def _parsed(name: str, text: str) -> tuple[Any, ...]:
    """Return the values of a text such as '1,2,4'. Raises ValueError."""
    from ptynb.settings.yaml_reader import read_yaml

    try:
        values = read_yaml(f"[{text}]", f"-p {name}")
    except ValueError as error:
        raise InvalidValueError(
            f"{str(error).removesuffix('.')}; expected values with commas between.", code="argument.invalid-value"
        ) from None
    if not values:
        raise InvalidValueError(
            f"{name} has no values; expected at least one, as -p {name}=1,2,4.", code="argument.missing"
        )
    if len({json.dumps(value) for value in values}) < len(values):
        raise InvalidValueError(
            f"The values of {name} are {quoted(text)}; expected each of them once.", code="argument.invalid-value"
        )
    return tuple(values)


def check(values: Mapping[str, tuple[Any, ...]], parameters: Sequence[str], notebook: Path) -> None:
    """Raise ValueError, with similar names, if notebook or settings do not have one of the names or values.

    parameters: names in the notebook's cell of parameters. Values of settings are checked one by one; combinations of
    them, and with other settings in the notebook, are checked when it runs.
    """
    from ptynb.settings import Settings
    from ptynb.settings.base_models import flat
    from ptynb.settings.ranges import checked_ranges

    plain = [name for name in values if "." not in name]
    dotted = {name: choices for name, choices in values.items() if "." in name}
    if not parameters:
        raise InvalidValueError(
            f"{notebook} has no cell of parameters; tag the cell that sets them 'parameters' (in JupyterLab by the "
            "property inspector at the right).",
            code="sweep.no-parameters",
        )
    for name in plain:
        if name not in parameters:
            known = [*parameters, *(full for full, _ in flat(Settings().model_dump()))]
            raise InvalidValueError(
                f"{notebook} has no parameter {name!r}{_near(name, known)}.", code="argument.invalid-value"
            )
    known = [name for name, _ in flat(Settings().model_dump())]
    for name in dotted:
        if name not in known:
            raise InvalidValueError(f"There is no setting {name!r}{_near(name, known)}.", code="argument.invalid-value")
    if dotted:
        checked_ranges(Settings(), dotted)
    for name in RESERVED if dotted else RESERVED[1:]:
        if name not in parameters:
            line = (
                "sweep = {} and use settings.with_values(sweep)" if name == "sweep" else 'folder = "." and save there'
            )
            raise InvalidValueError(
                f"{notebook} does not take {name!r} as a parameter; in the cell of parameters set {line}.",
                code="sweep.no-parameters",
            )


def _near(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(near)}?"[:-1] if near else f"; known are {', '.join(known)}"


def combinations(values: Mapping[str, tuple[Any, ...]], folder: Path, source: str) -> list[Combination]:
    """Return all combinations, the last name's values changing fastest; those in `folder` keep their numbers.

    source: `identity` of the notebook. Raises ValueError if there are too many, or the folder is another notebook's.
    """
    count = 1
    for choices in values.values():
        count *= len(choices)
    if count > MOST:
        raise InvalidValueError(
            f"These are {count} combinations; expected at most {MOST}. Leave some values out.",
            code="argument.invalid-value",
        )
    there = dict(_there(folder, source))
    free = itertools.count(1 + max((number for number, _ in there.values()), default=0))
    parsed = []
    for chosen in itertools.product(*values.values()):
        own = dict(zip(values, chosen, strict=True))
        if (key := _key(own)) in there:
            number, place = there[key]
        else:
            number = next(free)
            place = folder / f"{number:03d}-{_file_name(own)}"
        parsed.append(Combination(number, own, place))
    return parsed


def _there(folder: Path, source: str) -> Iterator[tuple[str, tuple[int, Path]]]:
    for path in sorted(folder.glob(f"*/{RECORD}")):
        record = _record(path)
        if record is None or not path.parent.name[:3].isdecimal():
            continue
        if record["notebook"] != source:
            raise InvalidValueError(
                f"{folder} has a sweep of another notebook, or of this one before it was changed; name another folder "
                "with --folder, or remove that one.",
                code="argument.invalid-value",
            )
        yield _key(record["values"]), (int(path.parent.name.partition("-")[0]), path.parent)


def _record(path: Path) -> dict[str, Any] | None:
    """Return the content of the file; None if it is missing or incomplete. The folder may be from another machine."""
    try:
        with path.open("rb") as file:
            record = json.loads(file.read(MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not all(isinstance(record.get(name), kind) for name, kind in FIELDS.items()):
        return None
    result = Path(record["result"])
    return None if result.is_absolute() or ".." in result.parts else record


def _key(values: Mapping[str, Any]) -> str:
    return json.dumps(values, sort_keys=True)


def _file_name(values: Mapping[str, Any]) -> str:
    """Return for example 'probe.modes=2,epochs=50', shortened to a valid file name."""
    text = ",".join(f"{name}={value}" for name, value in values.items())
    return re.sub(r"[^A-Za-z0-9._=,+-]+", "_", text)[:100]


def identity(notebook: Path) -> str:
    """Return a hash of a notebook's cells without outputs."""
    sources = [(kind, source) for kind, source, _ in _cells(notebook)]
    return hashlib.sha256(json.dumps(sources).encode()).hexdigest()[:16]


def parameters_of(notebook: Path) -> tuple[str, ...]:
    """Return the names that the cell tagged 'parameters' sets. Raises ValueError if the file is not a notebook."""
    source = next((source for _, source, tags in _cells(notebook) if "parameters" in tags), "")
    try:
        body = ast.parse(source).body
    except SyntaxError as error:
        raise InvalidValueError(
            f"The cell of parameters of {notebook} is no Python in line {error.lineno}.", code="sweep.no-parameters"
        ) from None
    targets = [
        target
        for line in body
        if isinstance(line, ast.Assign | ast.AnnAssign)
        for target in (line.targets if isinstance(line, ast.Assign) else [line.target])
    ]
    return tuple(target.id for target in targets if isinstance(target, ast.Name))


def _cells(notebook: Path) -> list[tuple[str, str, list[str]]]:
    """Return (kind, source, tags) of each cell. Raises ValueError if the file is not a notebook."""
    try:
        cells = json.loads(notebook.read_text())["cells"]
        return [
            (cell["cell_type"], "".join(cell["source"]), list(cell.get("metadata", {}).get("tags", [])))
            for cell in cells
        ]
    except FileNotFoundError:
        raise InvalidValueError(
            f"There is no notebook {notebook}; name one that is there.", code="file.not-found"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InvalidValueError(
            f"{notebook} is no notebook; expected an .ipynb file that Jupyter can open.", code="file.unknown-format"
        ) from None
