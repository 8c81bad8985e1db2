"""An error that names a remedy, and the remedy: what tables of tests consist of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
