"""Playback: which patterns and positions are sent when, with faults, whatever the protocol."""

from __future__ import annotations

import functools
import time
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from ptynb.acquisition.compression import pack_bslz4
from ptynb.acquisition.emulators.faults import Faults
from ptynb.data.scan import Scan
from ptynb.exceptions import ScanError

CACHED = 256
"""Compressed patterns that are kept, for duplicates."""
POSITIONS_AT_ONCE = 0.05
"""Time whose positions are sent together [s]."""


@dataclass(frozen=True)
class Sending:
    """One sending: the pattern's number, and whether its counts are changed. number -1: garbage."""

    number: int
    changed: bool = False


def order(count: int, faults: Faults) -> list[Sending]:
    """Return what is sent of `count` patterns, in order: the same for the same faults."""
    random = np.random.default_rng(faults.seed)
    kept = [number for number in range(count) if random.random() >= faults.drop]
    places = np.arange(len(kept)) + random.uniform(0, faults.shuffle, len(kept)) * (faults.shuffle > 0)
    steps = []
    for place in np.argsort(places, kind="stable").tolist():
        number = kept[place]
        steps.append(Sending(number))
        if random.random() < faults.duplicate:
            steps.append(Sending(number))
        if random.random() < faults.differ:
            steps.append(Sending(number, changed=True))
        if random.random() < faults.garbage:
            steps.append(Sending(-1))
    return steps if faults.abort is None else steps[: int(faults.abort * len(steps))]


class Recording:
    """A scan as emulators need it: counts by number, compressed or not, and positions in metres."""

    def __init__(self, scan: Scan) -> None:
        if scan.pixel_size is None:
            raise ScanError(
                f"'{scan.name}' has no geometry, which converts its positions to metres; load it with one.",
                code="scan.no-geometry",
            )
        self.scan = scan
        self.positions: NDArray[np.float64] = scan.positions * np.asarray(scan.pixel_size)
        self.window = scan.pattern_shape
        self.dtype = scan.frames.dtype
        self.packed = functools.lru_cache(maxsize=CACHED)(self._packed)

    def __len__(self) -> int:
        return len(self.scan)

    def counts(self, number: int, changed: bool = False) -> NDArray[Any]:
        """Return the counts (y, x) of a pattern."""
        counts = self.scan.frames.read(number, number + 1)[0]
        return np.ascontiguousarray(counts[::-1] if changed else counts)

    def _packed(self, number: int, changed: bool = False) -> bytes:
        return pack_bslz4(self.counts(number, changed))


class Player(ABC):
    """Sends a recording by one protocol. `address` is what `ptynb.listen` is given.

    late_positions: time after which positions follow their patterns, of what sends both [s].
    """

    address: str
    late_positions: float = 0.0

    @abstractmethod
    def start(self) -> None:
        """Announce the series."""

    @abstractmethod
    def frame(self, step: Sending) -> None:
        """Send a pattern, or garbage."""

    @abstractmethod
    def stray(self, number: int) -> None:
        """Send a pattern of the previous series."""

    @abstractmethod
    def end(self) -> None:
        """Announce the end of the series."""

    @abstractmethod
    def close(self) -> None:
        """Close connections and files."""


class PositionPlayer(ABC):
    """Sends the positions of a recording. `address` is what `ptynb.listen` is given as positions."""

    address: str

    @abstractmethod
    def start(self) -> None:
        """Wait for who listens, and announce positions."""

    @abstractmethod
    def positions(self, first: int, last: int) -> None:
        """Send positions first to last - 1."""

    @abstractmethod
    def end(self, sent: int) -> None:
        """Announce the end."""

    @abstractmethod
    def close(self) -> None:
        """Close connections."""


def play(player: Player, count: int, rate: float, faults: Faults, positions: PositionPlayer | None = None) -> None:
    """Send `count` patterns at `rate` [1/s], or as fast as they are taken (0), and their positions beside them."""
    steps, player.late_positions = order(count, faults), faults.late_positions
    follower, beside = None, ThreadPoolExecutor(1, "ptynb-positions")
    try:
        for number in range(faults.stray):
            player.stray(number % count)
        player.start()
        begin = time.perf_counter()
        if positions is not None:
            follower = beside.submit(_send_positions, positions, count, len(steps), rate, faults)
        for sent, step in enumerate(steps):
            if faults.stall and sent == len(steps) // 2:
                time.sleep(faults.stall)
                begin += faults.stall
            if faults.kill is not None and sent >= faults.kill * len(steps):
                psutil.Process().kill()
            if rate:
                time.sleep(max(0.0, begin + sent / rate - time.perf_counter()))
            player.frame(step)
        if not faults.endless:
            player.end()
        if follower is not None:
            follower.result()
        while faults.endless:
            time.sleep(1)
    finally:
        player.close()
        if positions is not None:
            positions.close()
        beside.shutdown(wait=False)


def _send_positions(positions: PositionPlayer, count: int, steps: int, rate: float, faults: Faults) -> None:
    """Send positions at the pace of the patterns, some together, and late."""
    positions.start()
    time.sleep(faults.late_positions)
    begin, sent, last = time.perf_counter(), 0, count if faults.abort is None else int(faults.abort * count)
    per_second = rate * count / max(steps, 1)
    while sent < last:
        due = last if not rate else min(last, int((time.perf_counter() - begin) * per_second) + 1)
        if due > sent:
            positions.positions(sent, due)
            sent = due
        time.sleep(POSITIONS_AT_ONCE)
    if not faults.endless:
        positions.end(sent)
