"""What the stages find: a line for each check as it is made, and the table at the end."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch

Verdict = Literal["pass", "FAIL", "left out"]
PLACES = 3
"""Innermost lines of the package that a failure names."""


@dataclass(frozen=True)
class Outcome:
    """One check of a stage."""

    stage: str
    name: str
    verdict: Verdict
    text: str

    def __str__(self) -> str:
        return f"{self.verdict:8s} {self.stage:10s} {self.name:36s} {self.text}"


@dataclass
class Report:
    """All checks on one device until now. deadline: `time.monotonic` after which nothing else is begun."""

    device: torch.device
    deadline: float
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU of CUDA."""
        return self.device.type == "cuda"

    @property
    def out_of_time(self) -> bool:
        """Whether the budget is spent."""
        return time.monotonic() > self.deadline

    @property
    def failures(self) -> list[Outcome]:
        """The checks that failed."""
        return [one for one in self.outcomes if one.verdict == "FAIL"]

    def check(self, stage: str, name: str, good: bool, text: str = "") -> None:
        """Add the outcome of a check."""
        self._add(Outcome(stage, name, "pass" if good else "FAIL", text))

    def left_out(self, stage: str, name: str, why: str) -> None:
        """Add a check that was not made, which is no failure."""
        self._add(Outcome(stage, name, "left out", why))

    def _add(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        print(outcome, flush=True)

    @contextlib.contextmanager
    def attempt(self, stage: str, name: str) -> Iterator[None]:
        """Count an exception in this context as a failure, with the lines of the package that it passed.

        All lines go to stderr. A package that this machine lacks is no failure.
        """
        try:
            yield
        except ModuleNotFoundError as error:
            self.left_out(stage, name, f"{error.name} is not installed here")
        except Exception as error:  # noqa: BLE001 - the other checks are made all the same
            traceback.print_exc()
            self.check(stage, name, False, f"{type(error).__name__}: {str(error)[:200]} at {_places(error)}")

    def table(self) -> str:
        """Return the numbers of checks by stage, as a table of Markdown."""
        lines = ["| stage | pass | FAIL | left out |", "| --- | --- | --- | --- |"]
        for stage in dict.fromkeys(one.stage for one in self.outcomes):
            found = [one.verdict for one in self.outcomes if one.stage == stage]
            lines.append(
                f"| {stage} | {found.count('pass')} | {found.count('FAIL')} | {found.count('left out')} |",
            )
        return "\n".join(lines)


def _places(error: BaseException) -> str:
    frames = [
        f"{Path(frame.filename).name}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if "/ptynb/" in frame.filename
    ]
    return " < ".join(reversed(frames[-PLACES:])) or "the stage itself"
