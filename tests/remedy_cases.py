"""Test cases of errors that name a remedy, together with the remedy, for the tables of `test_remedies.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import pytest


@dataclass(frozen=True)
class Case:
    """wrong: raises an error with `told` in it. right: does what it says, given the sentence, and returns."""

    wrong: Callable[[Path], Any]
    told: str
    right: Callable[[Path, str], Any]


def follow(case: Case, folder: Path) -> Any:
    """Goes wrong, reads the sentence, and does what it says; returns what that gives."""
    with pytest.raises((ValueError, RuntimeError)) as caught:
        case.wrong(folder)
    sentence, _, where = str(caught.value).partition("\n")
    assert case.told in sentence, sentence
    assert not where or isinstance(caught.value, RuntimeError), "an engine says where it was, a user reads one sentence"
    return case.right(folder, sentence)


def hdf5(folder: Path, **values: Any) -> Path:
    """A file scan.h5 with these datasets; `__` in a name stands for `/`."""
    with h5py.File(folder / "scan.h5", "w") as file:
        for name, value in values.items():
            file[name.replace("__", "/")] = value
    return folder / "scan.h5"
