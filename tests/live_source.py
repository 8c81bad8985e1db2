"""A scan that is written to a spool while it is reconstructed: patterns come at a rate, in any order, with faults."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.data.admissions import Admission, Admissions, admissions_of
from ptynb.data.arrivals import INDEX_NAME, SCAN_NAME, Acquisition, ArrivalIndex
from ptynb.data.scan import Scan
from ptynb.io.load import load
from ptynb.io.scan_file import as_planned, write_acquired_scan

CALL = "go"


def call(folder: Path) -> None:
    """Let the source of this folder begin."""
    (folder / CALL).touch()


@dataclasses.dataclass
class Source:
    """What a receiver does: writes patterns into the file of the scan, and then into the index."""

    scan: Scan
    folder: Path
    start_after: int = 0
    positions: NDArray[np.float64] | None = None
    """Measured ones, if they differ from those of the plan, which the scan has."""
    positions_planned: bool = True

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        path, count = self.folder / SCAN_NAME, len(self.scan)
        acquisition = Acquisition(self.folder, count, self.start_after, self.positions_planned)
        self._places = write_acquired_scan(path, self.scan, acquisition, source="a test", series="1")
        self._file = os.open(path, os.O_RDWR)
        self.index = ArrivalIndex.create(self.folder / INDEX_NAME, count)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._beating = threading.Event()
        self._beat = threading.Thread(target=self._live, name="heartbeat", daemon=True)
        self._beat.start()

    def _live(self) -> None:
        while not self._beating.wait(0.1):
            self.index.beat()

    def die(self) -> None:
        """Give no sign of life any more."""
        self._beating.set()
        self._beat.join()

    @property
    def live(self) -> Scan:
        """The scan as `listen` returns it."""
        return as_planned(self.folder / SCAN_NAME)

    @property
    def complete(self) -> Scan:
        """The scan as `load` returns it after the end."""
        return load(self.folder / SCAN_NAME)

    def frame(self, number: int) -> None:
        pattern = self.scan.frames.read(number, number + 1)
        if self.index.has_frame(number):
            self.index.add("duplicates")
            return
        os.pwrite(self._file, pattern.tobytes(), self._places["patterns"] + number * pattern.nbytes)
        self.index.frame(number, time.time())

    def place(self, number: int) -> None:
        self.index.place(number, (self.scan.positions if self.positions is None else self.positions)[number])

    def give(self, numbers: Sequence[int] | NDArray[np.int64]) -> None:
        """Patterns and positions of these, at once."""
        for number in np.asarray(numbers).tolist():
            self.frame(number)
            self.place(number)

    def end(self, reason: str = "end of series") -> None:
        for name, values in (
            ("arrived", self.index.states()),
            ("positions", self.index.positions()),
            ("times", self.index.arrival_times()),
            ("ended", np.array(reason.encode())),
        ):
            os.pwrite(self._file, values.tobytes(), self._places[name])
        self.index.end(reason)

    def start(
        self,
        rate: float,
        order: Sequence[int] | NDArray[np.int64] | None = None,
        late: float = 0.0,
        ends: bool = True,
        before_call: int | None = None,
    ) -> threading.Thread:
        """Give all patterns in this order, so many a second, in a thread; positions `late` seconds after them.

        before_call: number of patterns that are given at once; the others wait for `call`, by any process.
        """
        numbers = [*(range(len(self.scan)) if order is None else order)]
        self._thread = threading.Thread(
            target=self._run, args=(rate, numbers, late, ends, before_call), name="source", daemon=True
        )
        self._thread.start()
        return self._thread

    def _run(self, rate: float, numbers: list[int], late: float, ends: bool, before_call: int | None) -> None:
        self.give(numbers[: before_call or 0])
        numbers = numbers[before_call or 0 :]
        while before_call is not None and not (self.folder / CALL).exists():
            if self._stop.wait(0.005):
                return
        began, waiting = time.monotonic(), list[tuple[float, int]]()
        for count, number in enumerate(numbers):
            due = began + count / rate
            while (now := time.monotonic()) < due:
                if self._stop.wait(min(due - now, 0.2)):
                    return
            self.frame(number)
            waiting.append((time.monotonic() + late, number))
            while waiting and waiting[0][0] <= time.monotonic():
                self.place(waiting.pop(0)[1])
        for due, number in waiting:
            while time.monotonic() < due:
                if self._stop.wait(0.01):
                    return
            self.place(number)
        if ends:
            self.end()

    def join(self) -> None:
        assert self._thread is not None
        self._thread.join(120)
        assert not self._thread.is_alive()

    def close(self) -> None:
        self._stop.set()
        self.die()
        if self._thread is not None:
            self._thread.join(10)
        os.close(self._file)


def equal(one: Any, other: Any) -> bool:
    """Whether two results have the same bits."""
    names = "object", "probe", "positions"
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names) and [
        epoch.loss for epoch in one.epochs
    ] == [epoch.loss for epoch in other.epochs]


def log_of(scan: Scan, order: NDArray[np.int64], first: int, together: int, every: int) -> Admissions:
    """A record in which patterns come in this order, `together` of them after every so many updates."""
    parts = [order[:first], *(order[at : at + together] for at in range(first, len(order), together))]
    admissions = [
        Admission(part := np.sort(numbers), scan.positions[part], np.arange(len(part), dtype=float))
        for numbers in parts
    ]
    admissions[-1] = dataclasses.replace(admissions[-1], ended="the end of the table")
    return admissions_of(scan.positions, admissions, [every * number for number in range(len(parts))])
