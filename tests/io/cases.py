"""Many cases in one test: each has a folder of its own, and one that fails is named."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ptynb.exceptions import FileError, ScanError
from ptynb.io.load import load
from tests.parametrization import case


@contextmanager
def of_case(name: object, below: Path | None = None) -> Iterator[Path]:
    """A new folder below this one; what fails within says which case it was."""
    with case(str(name)[:200]):
        yield below if below is None else _new(below)


def _new(below: Path) -> Path:
    number = sum(1 for _ in below.glob("case-*"))
    (below / f"case-{number}").mkdir()
    return below / f"case-{number}"


@contextmanager
def one_line(codes: str, *facts: str) -> Iterator[None]:
    """An error of one line with one of these codes (separated by spaces; "": any), whose message states these facts."""
    with pytest.raises((FileError, ScanError)) as caught:
        yield
    message = str(caught.value)
    assert "\n" not in message
    assert not codes or caught.value.code in codes.split(), f"{caught.value.code}: {message}"
    missing = [fact for fact in facts if fact not in message]
    assert not missing, f"the message does not state {missing}: {message}"


def refused(path: Path, codes: str, *facts: str, **given: Any) -> None:
    """Loading the file raises such an error."""
    with one_line(codes, *facts):
        load(path, **given)


def turns(number: int, kinds: Sequence[str], count: int = 2) -> list[str]:
    """Two of the kinds in turn for case after case: each kind meets many of the cases, not all of them."""
    return [kinds[(number * count + one) % len(kinds)] for one in range(count)]
