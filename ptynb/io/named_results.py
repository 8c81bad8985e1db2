"""Named results, from the arguments of `compare` and `report`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ptynb.data.engine_records import Checkpoint, Result
from ptynb.exceptions import InvalidTypeError, InvalidValueError
from ptynb.io.checkpoint_branches import described
from ptynb.io.checkpoint_result import is_checkpoint, name_of_checkpoint
from ptynb.io.result_file import load_result

Source = Result | Checkpoint | str | Path
Given = Source | Mapping[str, Source]
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def named(given: tuple[Given, ...]) -> dict[str, Result]:
    """Return the results by name, see `sources`.

    Raise InvalidValueError for fewer than two, InvalidTypeError for other types, FileError for other files.
    """
    found: dict[str, Result] = {}
    for name, source in sources(given):
        if not isinstance(source, Source):
            raise InvalidTypeError(
                f"A {type(source).__name__} is no result; expected a Result (recon.result), the path of a result file, "
                "or a checkpoint (one of recon.checkpoints, or its path).",
                code="argument.invalid-type",
            )
        found[name] = result_in(source)
    if len(found) < 2:
        raise InvalidValueError(
            f"There is {len(found)} result to compare; expected two or more: results, paths of result files, "
            "checkpoints, or a mapping of names to these.",
            code="argument.invalid-value",
        )
    return found


def result_in(source: Source) -> Result:
    """Return a result itself, or that in a file. Raise FileError for other files."""
    if isinstance(source, Result):
        return source
    return load_result(source.path if isinstance(source, Checkpoint) else source)


def sources(given: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Yield (name, source) with unique names: those of files, checkpoints or of a mapping, else letters."""
    taken: set[str] = set()
    for name, source in _with_names(given):
        numbered = (name, *(f"{name} ({number})" for number in range(2, 1000)))
        unique = next(one for one in numbered if one not in taken)
        taken.add(unique)
        yield unique, source


def _with_names(given: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    letters = iter(LETTERS)
    for number, item in enumerate(given, start=1):
        if isinstance(item, Mapping):
            for name, source in item.items():
                yield str(name), source
        elif isinstance(item, Checkpoint):
            yield name_of_checkpoint(item.path, item.epoch, item.update), item
        elif isinstance(item, str | Path):
            yield _name_of_file(Path(item).expanduser()), item
        else:
            yield next(letters, f"result {number}"), item


def _name_of_file(path: Path) -> str:
    if is_checkpoint(path):
        found = described(path)
        return name_of_checkpoint(path, found.epoch, found.update)
    return path.name.removesuffix(".h5").removesuffix(".result")
