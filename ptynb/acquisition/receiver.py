"""The receiver: a process that takes a scan from its sources and writes it to the spool.

    python -m ptynb.acquisition.receiver < order

`ptynb.listen` starts it and gives it an `Order` as JSON. It answers with lines of JSON on its standard output:
{"began": true} once the scan's file is there, or {"code", "message"} of an error before; {"notice"}, before either, is
for whoever waits. It belongs to no notebook: it ends with the scan, or when the file `stop` appears in the folder.
Where the process that started it ends before, it ends too as long as the scan's file is not there, and some time later
if no pattern has come by then. Nothing is unpickled, and only the addresses of the order are connected to.
"""

from __future__ import annotations

import collections
import json
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from ptynb.acquisition.arrival_log import LOG_NAME, ArrivalLog
from ptynb.acquisition.complete_plan import completed, plan_from_json, plan_to_json
from ptynb.acquisition.compression import is_exported
from ptynb.acquisition.intake import Intake, sentence
from ptynb.acquisition.join import Join
from ptynb.acquisition.messages import Damaged, Frame, Message, SeriesStarted, Stray
from ptynb.acquisition.plan import Plan
from ptynb.acquisition.protocols import connect
from ptynb.acquisition.spool import Spool
from ptynb.data.arrivals import STOP_NAME, Counter
from ptynb.data.source_address import Address
from ptynb.exceptions import PtynbError
from ptynb.text import counted

BEAT = 0.25
"""Time between signs of life [s]."""
AT_ONCE, BYTES_AT_ONCE = 64, 2**22
"""Most messages that are taken before signs of life and requests to stop are looked at, and bytes after which no more
are: large patterns may have to wait for the disk."""
MOST_EARLY = 100_000
"""Most messages with positions that are held until the first pattern tells their scan."""
STRAY_SECONDS = 3.0
"""Time after a pattern of a series whose header did not come, until whoever waits is told [s]; after the rest of an
aborted series the header of the next one may come at once."""
ALONE = 600.0
"""Time for which a scan without a pattern is kept open for nobody: a notebook may be started again [s]."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What to receive, and where to write it.

    positions: None: the planned ones, or those of the source's file. parent: the process that waits for the scan. name:
    of the source, for the file.
    """

    patterns: Address
    positions: Address | None
    plan: Plan
    folder: Path
    parent: int
    name: str

    def to_json(self) -> str:
        """Return the order as one line of JSON."""
        return json.dumps({**vars(self), "plan": plan_to_json(self.plan), "folder": str(self.folder)}, default=vars)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return an order from `to_json`."""
        plain = json.loads(text)
        sources = {name: plain[name] and Address(**plain[name]) for name in ("patterns", "positions")}
        return cls(**plain | sources | {"plan": plan_from_json(plain["plan"]), "folder": Path(plain["folder"])})


class Receiver:
    """A scan from its first message to its end. `run` returns when it has ended."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._log = ArrivalLog(order.folder)
        self._arrived = threading.Event()
        self._intakes: list[Intake] = []
        self._started: SeriesStarted | None = None
        self._early: list[Message] = []
        self._before: collections.Counter[Counter] = collections.Counter()
        self._spool: Spool | None = None
        self._join: Join | None = None
        self._stopped = False
        self._beat = float("-inf")
        self._alone: float | None = None
        self._stray: tuple[float, str] | None = None
        self._stray_series = ""

    def run(self) -> None:
        """Receive the scan. Raise an error if it ended before its file was created."""
        signal.signal(signal.SIGTERM, lambda *_: self._request_stop())
        is_exported()  # now, and not when the first pattern comes
        reason = "the receiver failed"
        try:
            order = self._order
            self._intakes.append(Intake(connect(order.patterns), "patterns", self._arrived))
            if order.positions is not None:
                self._intakes.append(Intake(connect(order.positions), "positions", self._arrived))
            reason = self._receive()
        except BaseException as error:
            reason = sentence(error) if self._join is None else self._join.sentence(sentence(error))
            self._log.note("failed", reason)
            if self._spool is None or not isinstance(error, PtynbError):
                raise
        finally:
            for intake in self._intakes:
                intake.close()
            reason += self._about_next()
            try:
                if self._spool is not None:
                    self._note_missing(self._spool)
                    self._spool.finish(reason)
            finally:
                (self._order.folder / STOP_NAME).unlink(missing_ok=True)
                if self._spool is not None:
                    self._spool.close()
                self._log.close()

    def _receive(self) -> str:
        """Take messages until the scan has ended; return why."""
        while True:
            self._arrived.wait(BEAT)
            self._arrived.clear()
            taken = 1
            while taken:
                taken = sum(self._take(number, intake) for number, intake in enumerate(self._intakes))
                reason = self._look()
                if reason is not None:
                    return reason

    def _take(self, number: int, intake: Intake) -> int:
        """Take some messages of the source of patterns (0) or positions (1); return how many."""
        messages = intake.take(AT_ONCE, BYTES_AT_ONCE)
        for message in messages:
            if self._join is None:
                self._begin(message, number)
            elif number == 0:
                self._join.take(message)
            else:
                self._join.place(message)
        if intake.is_over:
            assert intake.failed is not None
            if number == 0 or self._join is None:
                raise intake.failed
            self._join.end_positions(sentence(intake.failed))
        return len(messages)

    def _begin(self, message: Message, number: int) -> None:
        """Take a message before the scan's file is there; create it once shape and type of patterns are known."""
        if number == 1:
            if len(self._early) < MOST_EARLY:
                self._early.append(message)
            else:
                self._log.note("early", f"positions before the scan began, and too many to hold: {message!r:.200}")
            return
        if isinstance(message, SeriesStarted):
            self._started, first = message, None
        elif isinstance(message, Frame) and self._started is not None:
            first = message
        else:
            what: Counter = "damaged" if isinstance(message, Damaged) else "stray"
            self._before[what] += 1
            if isinstance(message, Stray) and message.is_pattern and message.what != self._stray_series:
                self._stray_series = message.what
                self._stray = time.monotonic(), message.what
            self._log.note(what, f"before the scan began: {message!r:.200}")
            return
        started = self._started
        shape = started.shape or (None if first is None else first.packed.shape)
        dtype = started.dtype or (None if first is None else first.packed.dtype)
        if shape is None or dtype is None:
            return
        order = self._order
        measured = order.positions is not None or "positions" in order.patterns.options
        complete = completed(order.plan, started, shape, measured=measured)
        dtype = dtype.newbyteorder("<")
        self._spool = Spool(order.folder, order.plan, complete, np.dtype(dtype.str), order.name)
        self._join = Join(order.plan, complete, dtype, self._spool, self._log)
        self._log.note(
            "began", f"series {complete.series}: {complete.count} patterns of {shape[0]} x {shape[1]}, {dtype}"
        )
        for counter, count in self._before.items():
            self._spool.index.add(counter, count)
        _answer({"began": True})
        if first is not None:
            self._join.take(first)
        for early in self._early:
            self._join.place(early)
        self._early.clear()

    def _look(self) -> str | None:
        """Give a sign of life, and return why the scan has ended, if it has."""
        now = time.monotonic()
        if now - self._beat > BEAT:
            self._beat = now
            self._tell_stray(now)
            if self._spool is not None:
                self._spool.index.beat()
            if self._stopped or (self._order.folder / STOP_NAME).exists():
                return "stopped" if self._join is None else self._join.sentence("stopped on request")
            if (self._join is None or not self._join.has_begun) and os.getppid() != self._order.parent:
                self._alone = self._alone or now
                reason = "the process that waited for the scan has ended"
                if self._join is None:
                    return reason
                if now - self._alone > ALONE:
                    return self._join.sentence(reason)
        return None if self._join is None else self._join.reason_to_end()

    def _tell_stray(self, now: float) -> None:
        """Tell who waits for the scan, once for each series, that its header will not come."""
        if self._stray is None or self._started is not None:
            return
        since, what = self._stray
        if now - since > STRAY_SECONDS:
            self._stray = None
            notice = (
                f"A {what} came, whose header was sent before this receiver listened: that series is not received. "
                "Start it again while it listens."
            )
            self._log.note("headless", notice)
            _answer({"notice": notice})

    def _about_next(self) -> str:
        """Return what to say at the end if messages of the next series were taken, too."""
        if self._join is None:
            return ""
        for message in self._intakes[0].rest():
            if isinstance(message, SeriesStarted):
                self._join.take(message)
        if self._join.next_series is None:
            return ""
        return (
            f"; the start of series {self._join.next_series} was taken with it, and is sent only once: listen again, "
            "then start that series again"
        )

    def _request_stop(self) -> None:
        self._stopped = True
        self._arrived.set()

    def _note_missing(self, spool: Spool) -> None:
        missing = np.flatnonzero(spool.index.states() & 1 == 0)
        if len(missing):
            self._log.note("missing", f"{counted(len(missing), 'pattern')} never came: {_spans(missing)}")


def _spans(numbers: np.ndarray[Any, np.dtype[np.int64]], most: int = 40) -> str:
    """Return numbers as text, consecutive ones as a span."""
    spans = np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
    texts = [f"{span[0]}" if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans[:most]]
    return ", ".join([*texts, *(["..."] if len(spans) > most else [])])


def _answer(content: dict[str, Any]) -> None:
    # Whoever started this may have ended.
    try:
        print(json.dumps(content), flush=True)  # noqa: T201
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def main() -> int:
    """Receive one scan; return the exit status."""
    os.umask(os.umask(0o022) | 0o022)  # where others can enter the folder of the spool, they cannot write to its files
    order = Order.from_json(sys.stdin.readline())
    try:
        Receiver(order).run()
    except PtynbError as error:
        _answer({"code": error.code, "message": str(error), "fields": error.fields})
        return 1
    except Exception as error:  # told to whoever waits
        _answer({"code": "acquisition.failed", "message": f"The receiver failed ({sentence(error)}); see {LOG_NAME}."})
        raise
    return 0
