"""Many cases in one test: each has a folder of its own, and one that fails is named."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ptynb.exceptions import FileError, ScanError
from ptynb.io.load import load
from tests.pairs import case


@contextmanager
def of_case(name: object, below: Path | None = None) -> Iterator[Path]:
    """A new folder below this one; what fails within says which case it was."""
    with case(str(name)[:200]):
        yield below if below is None else _new(below)


def _new(below: Path) -> Path:
    number = sum(1 for _ in below.glob("case-*"))
    (below / f"case-{number}").mkdir()
    return below / f"case-{number}"


def refused(path: Path, words: str, **given: Any) -> None:
    """Loading the file is refused with one sentence that has these words."""
    with pytest.raises((FileError, ScanError), match=words) as caught:
        load(path, **given)
    assert "\n" not in str(caught.value)


def turns(number: int, kinds: Sequence[str], count: int = 2) -> list[str]:
    """Two of the kinds in turn for case after case: each kind meets many of the cases, not all of them."""
    return [kinds[(number * count + one) % len(kinds)] for one in range(count)]
