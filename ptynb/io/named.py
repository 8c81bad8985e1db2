"""Results with a name each: from what a user gives to `compare`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from ptynb.io.result import load_result
from ptynb.snapshot import Result

Source = Result | str | Path
Given = Source | Mapping[str, Source]
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def named(given: tuple[Given, ...]) -> dict[str, Result]:
    """The results by name: files by theirs, others by letters, unless a mapping names them.

    Raises ValueError for fewer than two, TypeError for what is no result, FileError for files that hold none.
    """
    found: dict[str, Result] = {}
    for name, source in _sources(given):
        unique = (
            name if name not in found else next(f"{name} ({n})" for n in range(2, 1000) if f"{name} ({n})" not in found)
        )
        found[unique] = _result(source)
    if len(found) < 2:
        raise ValueError(
            f"There is {len(found)} result to compare; expected two or more: results, paths of result files, or a "
            "mapping of names to these."
        )
    return found


def _sources(given: tuple[Given, ...]) -> Iterator[tuple[str, Source]]:
    letters = iter(LETTERS)
    for number, item in enumerate(given, start=1):
        if isinstance(item, Mapping):
            for name, source in item.items():
                yield str(name), source
        elif isinstance(item, str | Path):
            yield Path(item).name.removesuffix(".h5").removesuffix(".result"), item
        else:
            yield next(letters, f"result {number}"), item


def _result(source: Source) -> Result:
    if isinstance(source, Result):
        return source
    if isinstance(source, str | Path):
        return load_result(source)
    raise TypeError(
        f"A {type(source).__name__} is no result; expected a Result (recon.result), or the path of a result file."
    )
