"""Damaged files, read by a process that may crash, and the outcomes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.fuzz.seeds import SEEDS
from tests.fuzz.spoiling import spoil

PATIENCE = 30.0
"""Seconds for one file of a few kilobytes, on a busy machine."""
FINE = ("read", "refused")


@dataclass(frozen=True)
class Outcome:
    """Outcome of reading a damaged file: the damage, and "read", "refused", or what was wrong."""

    seed: str
    number: int
    spoilt: str
    answer: str

    @property
    def fine(self) -> bool:
        """Whether the reader behaved correctly."""
        return self.answer in FINE

    def __str__(self) -> str:
        return f"{self.seed}, number {self.number} ({self.spoilt}):\n{self.answer}"


class Pool:
    """A process that reads, replaced when it crashes or hangs. Files are below `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._whole: dict[str, Path] = {}
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = self._started()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._end()

    def read(self, seed: str, number: int) -> Outcome:
        """Damage the seed with the random number `number`, and read it."""
        path, told = self.spoilt(seed, number)
        case = {"reader": SEEDS[seed].reader, "path": str(path), "given": SEEDS[seed].given}
        return Outcome(seed, number, told, self._ask(json.dumps(case)))

    def spoilt(self, seed: str, number: int) -> tuple[Path, str]:
        """The damaged file, in a folder of its own, and a description of the damage."""
        if seed not in self._whole:
            home = self._folder / f"whole-{len(self._whole)}"
            home.mkdir(parents=True)
            self._whole[seed] = SEEDS[seed].write(home)
        whole = self._whole[seed]
        home = self._folder / "spoilt"
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(next(one for one in whole.parents if one.parent == self._folder), home)
        path = home / whole.relative_to(next(one for one in whole.parents if one.parent == self._folder))
        others = [path] if path.is_dir() else sorted(home.iterdir())
        chance = random.Random(f"{seed} {number}")
        return path, spoil(chance.choice([path, path, *others]), chance)

    def _ask(self, line: str) -> str:
        process = self._process = self._process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
        answer = _line(process.stdout)
        if answer is None:
            self._end()
            return f"no answer within {PATIENCE:.0f} s"
        if not answer:
            status = process.wait()
            self._end()
            return f"the process died with status {status}"
        found: str = json.loads(answer)
        return found

    def _started(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "MALLOC_ARENA_MAX": "2", "OMP_NUM_THREADS": "1"},
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def _line(stream: IO[str]) -> str | None:
    """The next line; "" at the end, None after the time limit."""
    return stream.readline() if select.select([stream], [], [], PATIENCE)[0] else None
