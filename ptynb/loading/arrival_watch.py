"""Rank 0 looks which patterns of a scan have come, between its updates; all engines then begin to use them together."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ptynb.data.admissions import Admission, Admissions, RecordedArrivals
from ptynb.data.arrivals import SILENCE_SECONDS, Acquisition, Arrivals, patterns_to_begin
from ptynb.data.scan import Scan
from ptynb.physics.model_builder import model_window, object_frame, window_positions
from ptynb.settings import Settings

LOOK_SECONDS = 0.002
"""Shortest time between two looks: one takes some microseconds, and in a plan of a million patterns 0.2 ms."""
ADMITTED_BYTES = 2**25
"""Largest size of the patterns that are admitted before one update, which waits until they are read."""


@final
class ScanArrivals:
    """Which patterns of a scan are to be admitted when: as they come, or as they came in the run that is repeated."""

    def __init__(self, scan: Scan, admitted: Admissions | None, settings: Settings, rank: int) -> None:
        """admitted: what a run that is continued has."""
        acquisition = scan.acquisition
        self.will_end = isinstance(acquisition, Acquisition) or bool(acquisition and acquisition.admissions.ended)
        """Whether the scan is being measured, or was in an earlier run, so that its end will come."""
        self._watch: ArrivalWatch | None = None
        self._repeated: list[tuple[int, Admission]] = []
        """Admissions of an earlier run, each after so many updates."""
        if isinstance(acquisition, RecordedArrivals):
            recorded = [*zip(acquisition.admissions.updates.tolist(), acquisition.admissions.all(), strict=True)]
            self._repeated = recorded[max(0 if admitted is None else len(admitted), 1) :]
        elif acquisition is not None and rank == 0:
            self._watch = ArrivalWatch(acquisition, scan, settings)
            if admitted is not None:
                self._watch.note(admitted.patterns, admitted.ended)

    @property
    def expected(self) -> bool:
        """Whether further patterns may come; on rank 0."""
        return self._watch is not None and not self._watch.over

    def come(self, begun: bool = True) -> Admission | None:
        """Return what has come and is to be admitted now, on rank 0, as `ArrivalWatch.look`."""
        return None if self._watch is None else self._watch.look(begun)

    def repeated(self, updates: int) -> Iterator[Admission]:
        """Yield what was admitted in an earlier run after at most so many updates, once."""
        while self._repeated and self._repeated[0][0] <= updates:
            yield self._repeated.pop(0)[1]

    def summary(self) -> Arrivals | None:
        """Return the present numbers; None for a scan that is not being measured, and on other ranks than 0."""
        return None if self._watch is None else self._watch.summary()


def missing_at_end(admission: Admission, admitted: int) -> tuple[str, ...]:
    """Return a notice if the scan has ended without all of its patterns. admitted: number of those in use."""
    planned = admission.summary.get("planned", admitted)
    if admission.ended is None or admitted >= planned:
        return ()
    return (f"The scan ended, with {admitted} of {planned} patterns in use: {admission.ended}.",)


@final
class ArrivalWatch:
    """What has come of a scan, and what of it the engines use."""

    def __init__(self, acquisition: Acquisition, scan: Scan, settings: Settings) -> None:
        self._index = acquisition.index()
        self._first = acquisition.start_after or patterns_to_begin(len(scan))
        frame, window = object_frame(scan, settings), model_window(scan, settings)
        self._room = np.array(frame.shape) - window
        """Largest corner (yx) of a window inside of the object [object pixels]."""
        self._shift = scan.positions[0] - window_positions(scan, settings)[0]
        self._at_once = max(1, ADMITTED_BYTES // (math.prod(scan.pattern_shape) * scan.frames.dtype.itemsize))
        self._done = np.zeros(len(scan), dtype=bool)
        """The patterns (pattern,) that were admitted, or refused."""
        self._admitted = self._refused = 0
        self._ended: str | None = None
        self._looked = float("-inf")

    @property
    def over(self) -> bool:
        """Whether the end of the scan was found."""
        return self._ended is not None

    def note(self, admissions: NDArray[np.int64], ended: str) -> None:
        """Take into account what the engines use already. ended: why no more come; empty: some may."""
        self._done[admissions] = True
        self._admitted, self._ended = int(self._done.sum()), ended or None

    def look(self, begun: bool) -> Admission | None:
        """Return the patterns that have come, to be admitted now; None: nothing new.

        begun: whether engines use patterns already; the first ones wait for each other.
        """
        now = time.monotonic()
        if self.over or now - self._looked < LOOK_SECONDS:
            return None
        self._looked = now
        ended = self._present_end()  # before the patterns: those that came before the end are not missed
        new = np.flatnonzero(self._index.placed() & ~self._done)
        if ended is None and len(new) < (1 if begun else self._first):
            return None
        new, rest = new[: self._at_once], new[self._at_once :]
        positions = self._index.positions()[new] if len(new) else np.zeros((0, 2))
        corners = np.rint(positions - self._shift)
        inside = ((corners >= 0) & (corners <= self._room)).all(1)
        self._done[new] = True
        self._admitted += int(inside.sum())
        self._refused += int((~inside).sum())
        if ended is None and self._done.all():
            ended = self._index.ended or f"all {len(self._done)} patterns have come"
        if len(rest):
            ended = None
        elif not inside.any() and ended is None:
            return None
        self._ended = ended
        patterns = new[inside]
        summary: dict[str, Any] = {}
        if ended is not None:
            summary = dataclasses.asdict(dataclasses.replace(self.summary(), ended=ended, silence=0.0))
        times = self._index.arrival_times()[patterns] if len(patterns) else np.zeros(0)
        return Admission(patterns, positions[inside], times, ended, summary)

    def _present_end(self) -> str | None:
        """Return why no more patterns will come, if that is so."""
        if (ended := self._index.ended) is not None:
            return ended
        silence = self._index.silence
        if silence < SILENCE_SECONDS:
            return None
        came = int(self._index.placed().sum())
        return (
            f"the receiver (process {self._index.receiver}) has given no sign of life for {silence:.0f} s, after "
            f"{came} of {len(self._done)} patterns"
        )

    def summary(self) -> Arrivals:
        """Return the present numbers."""
        found = self._index.summary()
        ended = found.ended if self._ended is None else self._ended
        return dataclasses.replace(found, admitted=self._admitted, refused=found.refused + self._refused, ended=ended)
