"""The log of a scan that is received: what was unusual, a line each, in the scan's folder."""

from __future__ import annotations

import collections
import contextlib
import time
from pathlib import Path

from ptynb.text import in_one_line

LOG_NAME = "arrivals.log"
MOST_LINES = 50
"""Most lines of one kind; more are only counted."""


class ArrivalLog:
    """Lines with the time in UTC; of each kind the first ones, and at the end the number of all."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / LOG_NAME).open("a", encoding="utf-8", buffering=1)
        self._counts: collections.Counter[str] = collections.Counter()

    def note(self, kind: str, text: str) -> None:
        """Note something; its kind is counted."""
        self._counts[kind] += 1
        if self._counts[kind] <= MOST_LINES:
            self._write(text)

    def count(self, kind: str, number: int) -> None:
        """Count more of a kind that has its lines already."""
        self._counts[kind] += number

    def close(self) -> None:
        """Write how many lines were left out, and close."""
        for kind, count in self._counts.items():
            if count > MOST_LINES:
                self._write(f"{kind}: {count - MOST_LINES} more like this")
        with contextlib.suppress(OSError):
            self._file.close()

    def _write(self, text: str) -> None:
        # On a full disk a scan goes on: the space of its patterns may be taken already.
        with contextlib.suppress(OSError):
            self._file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {in_one_line(text, 500)}\n")
