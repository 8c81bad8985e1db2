"""Arrivals: which patterns of a scan that is still being measured have come, in a file that all processes share.

The receiver of a scan (`ptynb.acquisition`) writes the index, engines and the notebook read it. All of them, on one
machine, map it into memory: a change is seen at once, and looking takes microseconds. There is one writer.

For each planned pattern the index has a state, the time of its arrival, the time from which it can be used, and its
position. Values are written before the state that declares them, and the bytes of a pattern before both, so that
whoever sees a pattern as placed reads all of it. (Processors of the x86 family keep the order of stores; on others
thousands of instructions of the interpreter lie in between.)
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ptynb.distributed.timeouts import RunningTime
from ptynb.exceptions import AcquisitionError, FileError, InvalidValueError
from ptynb.polling import wait_until
from ptynb.table import duration
from ptynb.text import counted

INDEX_NAME = "arrivals.index"
"""Name of the index in the folder of a scan."""
SCAN_NAME = "scan.h5"
"""Name of the file of the scan in its folder, which has the patterns."""
STOP_NAME = "stop"
"""Name of the file in the folder that asks the receiver to end the scan."""
STOP_SECONDS = 20.0
"""Time in which a receiver that was asked to end does so; it may have to write patterns first [s]."""
SILENCE_SECONDS = 8.0
"""Silence of a receiver after which it is considered lost [s]."""
NEXT_BEAT_SECONDS = 2.0
"""Time in which a receiver gives another sign of life, of which it gives several in a second [s]."""

Counter = Literal["duplicates", "differing", "outside", "damaged", "stray", "refused"]
COUNTERS: tuple[Counter, ...] = ("duplicates", "differing", "outside", "damaged", "stray", "refused")
"""What is counted beside the patterns themselves, in the order of the file; described at `Arrivals`."""
COUNT_MEANINGS = {
    "missing": "patterns that later ones overtook, or that had not come at the end",
    "late": "patterns that have come, and whose position is not known yet",
    "duplicates": "patterns that came again; the first is kept",
    "differing": "of these with other counts",
    "outside": "patterns with a number outside of the plan",
    "refused": "positions outside of the object, or not valid",
    "damaged": "messages that could not be read",
    "stray": "messages of another series",
}
"""Numbers of `Arrivals` that are shown if they are not 0, and their meaning."""
RATE_SPAN = 5.0
"""Time over which the present rate is determined [s]."""
LAG_PATTERNS = 64
"""Number of the latest patterns over which the present lag is determined."""
FEWEST_TO_BEGIN, MOST_TO_BEGIN = 32, 300
"""Limits of the number of patterns after which a reconstruction begins, unless two lines are more."""

MAGIC, VERSION, HEADER_BYTES = b"ptynbarr", 1, 4096
HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("version", "<u4"),
        ("ended", "<u4"),
        ("count", "<u8"),
        ("receiver", "<u8"),
        ("first", "<f8"),
        ("last", "<f8"),
        ("heartbeat", "<f8"),
        ("counters", "<u8", (16,)),
        ("series", "S64"),
        ("reason", "S1024"),
    ]
)
FRAME, POSITION = 1, 2
"""Bits of the state of a pattern: its frame has come, its position is known. It is placed if both are set."""
PLACED = FRAME | POSITION


@dataclass(frozen=True, kw_only=True)
class Arrivals:
    """What has come of a scan that is, or was, measured while it is reconstructed.

    Parameters
    ----------
    planned : int
        Number of patterns of the plan.
    arrived : int
        Patterns that have come.
    placed : int
        Patterns that have come and whose position is known, which can be used.
    missing : int
        Patterns with a smaller number than one that has come, which have not come themselves; after the end: all that
        have not come.
    late : int
        Patterns that wait for their position; after the end: those that never got one.
    duplicates : int
        Patterns that came again; the first is kept.
    differing : int
        Duplicates with other counts.
    outside : int
        Patterns with a number outside of the plan.
    refused : int
        Positions that are not finite, outside of the plan's extent, or others than came before for the same pattern.
    damaged : int
        Messages that could not be read.
    stray : int
        Messages of another series.
    rate : float
        Patterns that come, over the latest seconds; after the end: over the whole scan [1/s].
    lag : float
        Median time from the arrival of a pattern until it can be used, of the latest ones [s].
    silence : float
        Time for which no sign of life of the receiver was seen, of which it gives several in a second [s].
    series : str
        Identity of the series, as the detector states it.
    ended : str or None
        Why the scan has ended, as a sentence; None while it is going on.
    admitted : int, optional
        Patterns that the reconstruction uses; None if there is none.
    """

    planned: int
    arrived: int
    placed: int
    missing: int
    late: int
    duplicates: int
    differing: int
    outside: int
    refused: int
    damaged: int
    stray: int
    rate: float
    lag: float
    silence: float
    series: str
    ended: str | None
    admitted: int | None = None

    def remarks(self) -> list[tuple[str, str]]:
        """Return the counts that are not 0 beside those of patterns that came.

        Returns
        -------
        list of (str, str)
            Each as text, such as "3 missing", and its meaning.
        """
        found: list[tuple[str, str]] = []
        for name, meaning in COUNT_MEANINGS.items():
            if count := getattr(self, name):
                found.append((counted(count, "duplicate") if name == "duplicates" else f"{count:,} {name}", meaning))
        return found

    def __str__(self) -> str:
        used = "" if self.admitted is None else f", {self.admitted:,} used"
        counts = [text for text, _ in self.remarks()]
        rate = f"{self.rate:,.3g} patterns/s{'' if self.ended is None else ' on average'}" if self.rate else ""
        lag = f"lag {duration(self.lag)}" if self.lag and self.ended is None else ""
        parts = [f"{self.arrived:,} of {self.planned:,} patterns came{used}", ", ".join(counts), rate, lag, self.ended]
        return "; ".join(part for part in parts if part)


class ArrivalIndex:
    """The index of a scan's arrivals: `create` and the methods that change it are the receiver's.

    Positions are in object pixels, as those of the scan; times in seconds since 1970.
    """

    def __init__(self, path: Path, memory: NDArray[np.uint8], count: int) -> None:
        self.path = path
        self.count = count
        memory = memory.view(np.ndarray)  # a memmap's own methods take several times as long
        self._header = memory[: HEADER.itemsize].view(HEADER)
        places = np.cumsum([HEADER_BYTES, 16 * count, 8 * count, 8 * count, count]).tolist()
        position, arrival, usable, state = (memory[a:b] for a, b in itertools.pairwise(places))
        self._position = position.view("<f8").reshape(count, 2)
        self._arrival, self._usable, self._state = arrival.view("<f8"), usable.view("<f8"), state
        self._latest_beat, self._silence = self.heartbeat, RunningTime()

    @staticmethod
    def size(count: int) -> int:
        """Return the size of the file for a number of planned patterns [bytes]."""
        return HEADER_BYTES + 33 * count

    @classmethod
    def create(cls, path: Path, count: int, *, series: str = "", positions: NDArray[np.float64] | None = None) -> Self:
        """Create the index of a scan of `count` planned patterns; an existing file is an error.

        positions: (pattern, yx), where they are known before the scan [object pixels].
        """
        if count < 1:
            raise InvalidValueError(
                f"The plan has {count} patterns; expected at least 1.", code="argument.invalid-value"
            )
        # Whoever finds the file finds a whole one: it gets its name when its header is there.
        unnamed = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            # Zeros are written, too: memory without space on the disk ends the process that writes to it.
            memory = np.zeros(cls.size(count), np.uint8)
            index = cls(path, memory, count)
            header = index._header[0]
            header["magic"], header["version"], header["count"], header["receiver"] = MAGIC, VERSION, count, os.getpid()
            header["series"] = _encoded(series, 64)
            index.beat()
            if positions is not None:
                index._position[:] = positions
                index._state[:] = POSITION
            memory.tofile(unnamed)
            os.link(unnamed, path)
            index = cls(path, np.memmap(path, np.uint8, "r+", shape=memory.shape), count)
        except FileExistsError:
            raise FileError(
                f"{path} exists already, of an earlier scan; choose another folder.",
                code="file.not-writable",
                fields=("folder",),
            ) from None
        except OSError as error:
            raise FileError(
                f"{path} cannot be written ({error.strerror or error}).", code="file.not-writable", fields=("folder",)
            ) from None
        finally:
            unnamed.unlink(missing_ok=True)
        return index

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open an index for reading."""
        try:
            size = path.stat().st_size
            memory = np.memmap(path, np.uint8, "r") if size >= HEADER_BYTES else np.zeros(HEADER_BYTES, np.uint8)
        except OSError as error:
            raise FileError(
                f"{path} cannot be read: {error.strerror}. It belongs to a scan that ptynb.listen receives.",
                code="file.not-found",
            ) from None
        header = memory[: HEADER.itemsize].view(HEADER)[0]
        count = int(header["count"])
        if header["magic"] != MAGIC or header["version"] != VERSION or count < 1 or size != cls.size(count):
            raise FileError(
                f"{path} is not an index of arrivals of version {VERSION}, or is cut short ({size} bytes).",
                code="file.damaged",
            )
        return cls(path, memory, count)

    # The receiver's methods. Numbers are those of planned patterns, from 0; whoever calls checks them.

    def has_frame(self, number: int) -> bool:
        """Return whether the frame of a pattern has come."""
        return bool(self._state[number] & FRAME)

    def frame(self, number: int, arrival: float) -> bool:
        """Note that a pattern has come, after its counts were written; False if it had before."""
        assert 0 <= number < self.count, "a pattern outside of the plan"
        if self.has_frame(number):
            return False
        header = self._header[0]
        self._arrival[number] = arrival
        header["first"] = min(header["first"], arrival) if header["first"] else arrival
        header["last"] = max(header["last"], arrival)
        self._usable[number] = time.time()
        self._state[number] |= FRAME
        return True

    def place(self, number: int, position: Sequence[float] | NDArray[np.float64]) -> bool:
        """Note the position of a pattern [object pixels]; False if it had one, which stays."""
        assert 0 <= number < self.count, "a pattern outside of the plan"
        if self._state[number] & POSITION:
            return False
        self._position[number] = position
        self._usable[number] = time.time()
        self._state[number] |= POSITION
        return True

    def add(self, counter: Counter, number: int = 1) -> None:
        """Count something that `Arrivals` describes."""
        self._header[0]["counters"][COUNTERS.index(counter)] += number

    def beat(self) -> None:
        """Give a sign of life."""
        self._header[0]["heartbeat"] = time.time()

    def end(self, reason: str) -> None:
        """Note that the scan has ended, and why; the first reason stays."""
        header = self._header[0]
        if not header["ended"]:
            header["reason"] = _encoded(reason, 1024)
            header["ended"] = 1

    # What everybody reads.

    @property
    def ended(self) -> str | None:
        """Why the scan has ended; None while it is going on."""
        header = self._header[0]
        return _decoded(header["reason"]) if header["ended"] else None

    @property
    def heartbeat(self) -> float:
        """Time of the receiver's last sign of life, by its own clock [s since 1970]."""
        return float(self._header[0]["heartbeat"])

    @property
    def silence(self) -> float:
        """Time for which this object has seen no new sign of life [s], by a clock that nobody sets.

        The receiver's clock may be set meanwhile, or be that of another machine: its heartbeat is only compared with
        the one that was seen before. To be read several times in `SILENCE_SECONDS`.
        """
        if (latest := self.heartbeat) != self._latest_beat:
            self._latest_beat = latest
            self._silence.restart()
        return self._silence.seconds

    def is_alive(self) -> bool:
        """Return whether the receiver gives signs of life: the last one is recent, or another one comes."""
        if abs(time.time() - self.heartbeat) < SILENCE_SECONDS:
            return True
        seen = self.heartbeat
        return wait_until(lambda: self.heartbeat != seen, NEXT_BEAT_SECONDS)

    @property
    def receiver(self) -> int:
        """Process id of the receiver."""
        return int(self._header[0]["receiver"])

    @property
    def series(self) -> str:
        """Identity of the series, as the detector states it."""
        return _decoded(self._header[0]["series"])

    def states(self) -> NDArray[np.uint8]:
        """Return the state (pattern,) of each planned pattern: bits `FRAME` and `POSITION`."""
        return np.array(self._state)

    def placed(self) -> NDArray[np.bool_]:
        """Return (pattern,): whether frame and position of a pattern are there, so that it can be used."""
        return self._state == PLACED

    def positions(self) -> NDArray[np.float64]:
        """Return the positions (pattern, yx) [object pixels]; NaN where none is known."""
        known = self._state & POSITION != 0
        return np.where(known[:, None], self._position, np.nan)

    def position(self, number: int) -> NDArray[np.float64]:
        """Return the position (yx) of a pattern that has one [object pixels]."""
        return np.array(self._position[number])

    def arrival_times(self) -> NDArray[np.float64]:
        """Return the time (pattern,) at which each pattern came [s since 1970]; NaN if it has not."""
        came = self._state & FRAME != 0
        return np.where(came, self._arrival, np.nan)

    def usable_times(self) -> NDArray[np.float64]:
        """Return the time (pattern,) from which each pattern could be used [s since 1970]; NaN if it cannot."""
        placed = self.placed()
        return np.where(placed, self._usable, np.nan)

    def summary(self, now: float | None = None) -> Arrivals:
        """Return the present numbers, at a time [s since 1970], by default this one."""
        now = time.time() if now is None else now
        header, ended, state = self._header[0], self.ended, self.states()
        came = np.flatnonzero(state & FRAME)
        counters: dict[Counter, int] = {name: int(header["counters"][i]) for i, name in enumerate(COUNTERS)}
        expected = self.count if ended is not None else int(came.max(initial=-1)) + 1
        return Arrivals(
            planned=self.count,
            arrived=len(came),
            placed=int((state == PLACED).sum()),
            missing=expected - len(came),
            late=int((state == FRAME).sum()),
            **counters,
            rate=self._rate(came, now, over=ended is not None),
            lag=self._lag(np.flatnonzero(state == PLACED)),
            silence=self.silence,
            series=self.series,
            ended=ended,
        )

    def _rate(self, came: NDArray[np.int64], now: float, *, over: bool) -> float:
        times = self._arrival[came]
        if over:
            span = float(np.ptp(times)) if len(times) > 1 else 0.0
            return (len(times) - 1) / span if span > 0 else 0.0
        recent = times[times > now - RATE_SPAN]
        if len(recent) < 2:
            return 0.0
        # Until the first pattern is older than the span, the time since then counts.
        return len(recent) / min(RATE_SPAN, max(now - float(times.min()), 1e-3))

    def _lag(self, placed: NDArray[np.int64]) -> float:
        if not len(placed):
            return 0.0
        usable = self._usable[placed]
        latest = np.argpartition(usable, -min(LAG_PATTERNS, len(usable)))[-LAG_PATTERNS:]
        return float(np.median(usable[latest] - self._arrival[placed[latest]]))


@dataclass(frozen=True)
class Acquisition:
    """A scan that is being received, or was: the folder with its patterns and its index, on this machine.

    folder: has `scan.h5`, whose dataset of patterns is filled as they come, and the index.
    count: number of planned patterns.
    start_after: how many patterns have to be placed before a reconstruction begins; 0: not stated by the file.
    positions_planned: whether positions were planned; otherwise those of the scan are a raster over their extent, of
    which nothing may be concluded but the extent.
    """

    folder: Path
    count: int
    start_after: int = 0
    positions_planned: bool = True

    def index(self) -> ArrivalIndex:
        """Open the index of arrivals; raise FileError if the folder is gone, or has the index of another scan."""
        index = ArrivalIndex.open(self.folder / INDEX_NAME)
        if index.count != self.count:
            raise FileError(
                f"{index.path} is of a scan of {index.count} patterns; expected {self.count}.", code="file.damaged"
            )
        return index

    def stop(self) -> Arrivals:
        """Ask the receiver to end the scan, wait until it has, and return what came.

        Raises AcquisitionError if it does not within 20 s, or was killed (code "acquisition.failed").
        """
        index = self.index()
        request = self.folder / STOP_NAME
        if index.ended is None:
            request.touch()
        wait_until(lambda: index.ended is not None or index.silence > SILENCE_SECONDS, STOP_SECONDS)
        request.unlink(missing_ok=True)
        if index.ended is None:
            raise AcquisitionError(
                f"The receiver (process {index.receiver}) has not ended the scan in {self.folder}; it has given no "
                f"sign of life for {index.silence:.0f} s. What came is in {SCAN_NAME}.",
                code="acquisition.failed",
            )
        return index.summary()


def patterns_to_begin(planned: int, line: int | None = None) -> int:
    """Return after how many patterns a reconstruction begins, if the plan does not say it.

    They are two lines of `line` patterns, or a thirtieth of the scan, but at least 32; without lines at most 300.
    """
    part = min(max(planned // 30, FEWEST_TO_BEGIN), MOST_TO_BEGIN)
    return min(planned, max(2 * (line or 0), part))


def _encoded(text: str, size: int) -> bytes:
    return text.encode()[:size].decode(errors="ignore").encode()


def _decoded(text: Any) -> str:
    return bytes(text).decode(errors="replace")
