"""Join: patterns and positions of one series, by number, into the spool; and when a scan has ended.

A pattern is what its series and number say, never what place it has in the order of arrival. The first of several
equal numbers is kept; the others are counted, and one with other counts is noted. A number that does not come is not
waited for. A scan ends when its source says so, when all patterns have come, when another series begins, or after a
silence of `Plan.silence`; then positions have the same time to come.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.acquisition.arrival_log import MOST_LINES, ArrivalLog
from ptynb.acquisition.complete_plan import CompletePlan
from ptynb.acquisition.messages import (
    Damaged,
    Frame,
    Gap,
    MeasuredPositions,
    Message,
    Pace,
    SeriesEnded,
    SeriesStarted,
    Stray,
)
from ptynb.acquisition.plan import Plan
from ptynb.acquisition.spool import Spool
from ptynb.exceptions import AcquisitionError

SILENCE = 5.0
"""Least time without a pattern after which a scan is taken as ended [s]."""
PATTERNS_OF_SILENCE = 20
"""The same, in times between patterns."""
AFTER_END = 0.3
"""Time for which patterns are still taken after the message of the end, which may overtake them [s]."""


class Join:
    """The state of a scan from the first pattern on."""

    def __init__(self, plan: Plan, complete: CompletePlan, dtype: np.dtype[Any], spool: Spool, log: ArrivalLog) -> None:
        self._plan, self._complete, self._dtype, self._spool, self._log = plan, complete, dtype, spool, log
        self._index = spool.index
        self._arrived = 0
        self._begun = False
        self._latest = self._latest_position = time.monotonic()
        self._end: tuple[float, str] | None = None
        self._positions_end: str | None = "" if complete.planned else None
        self._first_time = self._pace = 0.0
        self.next_series: str | None = None
        """The series whose first message was taken, too, so that no other receiver will have it."""

    @property
    def has_begun(self) -> bool:
        """Whether a pattern of the series has come."""
        return self._begun

    def take(self, message: Message) -> None:
        """Take a message of the source of patterns."""
        match message:
            case Frame():
                self._frame(message)
            case MeasuredPositions():
                self.place(message)
            case SeriesStarted(series=series) if series == self._complete.series:
                self._index.add("stray")
                self._log.note("restart", f"series {series} began again")
            case SeriesStarted(series=series):
                self.next_series = self.next_series or series
                self._close(f"series {series} began")
            case SeriesEnded(series=series, reason=reason):
                if series is not None and series != self._complete.series:
                    self._index.add("stray")
                elif self._end is None:
                    self._close(reason or "the source ended the series", AFTER_END)
            case Damaged(reason=reason):
                self._index.add("damaged")
                self._log.note("damaged", reason)
            case Stray(what=what):
                self._index.add("stray")
                self._log.note("stray", f"stray: {what}")
            case Pace(seconds=seconds):
                self._pace = max(self._pace, seconds)
            case Gap(first=first, last=last):
                self._log.note("gap", f"patterns {first} to {last} did not come in their turn")

    def place(self, message: Message) -> None:
        """Take a message of the source of positions."""
        match message:
            case MeasuredPositions(first=first, values=values):
                self._latest_position = time.monotonic()
                self._place(first, values / self._complete.pixel)
            case SeriesEnded(reason=reason):
                self._positions_end = reason or "the source of positions has ended"
            case Damaged() | Stray():
                self.take(message)

    def end_positions(self, reason: str) -> None:
        """Note that no more positions will come."""
        if self._positions_end is None:
            self._positions_end = reason
            self._log.note("positions", reason)

    def reason_to_end(self) -> str | None:
        """Return why the scan has ended, as a sentence; None if it goes on."""
        now, count = time.monotonic(), self._complete.count
        if self._end is None and self._begun and now - self._latest > self._patience():
            self._close(f"no pattern for {now - self._latest:.1f} s")
        if self._arrived < count and (self._end is None or now < self._end[0]):
            return None
        waiting = self._positions_end is None and self._index.summary().late
        if waiting and now - max(self._latest, self._latest_position) <= (self._plan.silence or SILENCE):
            return None
        return self.sentence("" if self._end is None else self._end[1])

    def sentence(self, reason: str) -> str:
        """Return what came, and for what reason the scan ends, as a sentence."""
        count, late = self._complete.count, self._index.summary().late
        without = f"; {late} of them without a position" if late else ""
        if self._arrived == count:
            return f"complete: {count} of {count}{without}"
        return f"ended early: {self._arrived} of {count}{without} ({reason})"

    def _frame(self, frame: Frame) -> None:
        complete, index = self._complete, self._index
        if frame.series != complete.series:
            index.add("stray")
            self._log.note("stray", f"stray: pattern {frame.number} of series {frame.series}")
            return
        self._begun = True
        if not 0 <= frame.number < complete.count:
            index.add("outside")
            self._log.note("outside", f"pattern {frame.number} is outside of the plan of {complete.count}")
            return
        packed = frame.packed
        if packed.shape != complete.shape or packed.dtype.newbyteorder("<") != self._dtype:
            index.add("damaged")
            self._log.note("damaged", f"pattern {frame.number} is {packed.shape} of {packed.dtype}")
            return
        try:
            counts = packed.counts()[complete.crop]
        except AcquisitionError as error:
            index.add("damaged")
            self._log.note("damaged", f"pattern {frame.number}: {error}")
            return
        if index.has_frame(frame.number):
            index.add("duplicates")
            if not self._spool.is_same(frame.number, counts):
                index.add("differing")
                self._log.note("differing", f"pattern {frame.number} came again with other counts; the first is kept")
            return
        self._spool.write(frame.number, counts, frame.arrival)
        # Only what is new counts against a silence: a sender that repeats itself does not keep a scan open.
        self._latest = time.monotonic()
        self._arrived += 1
        self._first_time = self._first_time or self._latest

    def _place(self, first: int, positions: NDArray[np.float64]) -> None:
        """Note positions (pattern, yx) [object pixels] of consecutive patterns, and those that are refused."""
        limits, index = self._complete.limits, self._index
        slack = 1e-9 * np.abs(limits).max()
        numbers = np.arange(first, first + len(positions))
        # NaN is not inside either.
        inside = ((positions >= limits[:, 0] - slack) & (positions <= limits[:, 1] + slack)).all(1)
        inside &= numbers < self._complete.count
        refused = np.flatnonzero(~inside)
        if len(refused):
            index.add("refused", len(refused))
            for number, (y, x) in zip(numbers[refused[:MOST_LINES]], positions[refused], strict=False):
                self._log.note(
                    "refused",
                    f"position {number} at ({y:.6g}, {x:.6g}) object pixels is not finite, or outside of the plan: "
                    f"y from {limits[0, 0]:.6g} to {limits[0, 1]:.6g}, x from {limits[1, 0]:.6g} to "
                    f"{limits[1, 1]:.6g}, {self._complete.count} patterns",
                )
            self._log.count("refused", max(0, len(refused) - MOST_LINES))
        for number, position in zip(numbers[inside].tolist(), positions[inside], strict=True):
            if not index.place(number, position) and not np.array_equal(index.position(number), position):
                index.add("refused")
                self._log.note("refused", f"position {number} came again with other values; the first is kept")

    def _patience(self) -> float:
        if self._plan.silence is not None:
            return self._plan.silence
        interval = (self._latest - self._first_time) / max(self._arrived - 1, 1)
        return max(SILENCE, PATTERNS_OF_SILENCE * interval, self._pace)

    def _close(self, reason: str, grace: float = 0.0) -> None:
        if self._end is None:
            self._end = time.monotonic() + grace if grace else 0.0, reason
