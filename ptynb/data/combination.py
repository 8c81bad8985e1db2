"""Combination: how one scan is made of several."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ptynb.data.scan import Scan

Share = Literal["probe", "object"]


@dataclass(frozen=True, eq=False)
class Combination:
    """How a scan is made of several, from `ptynb.preparation.combine`.

    share: "probe": the objects lie side by side in one array. "object": each scan has a probe of its own.
    scans: the scans, in the order of their patterns, without patterns.
    offsets: (scan, yx) float64: position in this scan minus that in the original one [object pixels].
    frames: (scan, 2, yx) int64: first pixel, and the one behind the last, of the windows (or of the object guess) of
        each scan, in the coordinates of this scan, without a margin.
    gap: free pixels between the objects, if the probe is shared.
    """

    share: Share
    scans: tuple[Scan, ...]
    offsets: NDArray[np.float64]
    frames: NDArray[np.int64]
    gap: int = 0

    @property
    def spans(self) -> tuple[slice, ...]:
        """The patterns of each scan."""
        edges = np.cumsum([0, *(len(scan) for scan in self.scans)]).tolist()
        return tuple(slice(first, last) for first, last in itertools.pairwise(edges))
