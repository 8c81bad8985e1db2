"""Scans whose patterns are made when they are read, so that they take no room, and that count what is read."""

from dataclasses import dataclass, field

import numpy as np

from ptynb.data.patterns import Frames
from ptynb.data.scan import Scan


@dataclass(frozen=True, eq=False)
class MadeFrames(Frames):
    """Pattern i is one block of light whose place and brightness are known from i."""

    count: int
    window: int = 32
    reads: list[int] = field(default_factory=list)

    @property
    def shape(self):
        return (self.count, self.window, self.window)

    @property
    def dtype(self):
        return np.dtype(np.uint16)

    def read(self, start, stop):
        self.reads.append(stop - start)
        patterns = np.zeros((stop - start, self.window, self.window), np.uint16)
        middle = self.window // 2
        for pattern, index in enumerate(range(start, stop)):
            y = middle - 2 + index % 3
            patterns[pattern, y : y + 4, middle - 2 : middle + 2] = 10 + index % 7
        return patterns


def raster(count, step=2.0):
    side = int(np.ceil(np.sqrt(count)))
    return np.stack(np.divmod(np.arange(float(count)), side), axis=1) * step


def made(count, window=32):
    return Scan(frames=MadeFrames(count, window), positions=raster(count))
