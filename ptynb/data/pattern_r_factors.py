"""R-factors of single patterns, as engines measure them while they train."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class PatternRFactors:
    """Amplitude R-factor of each pattern alone, sum |sqrt(I) - sqrt(model)| / sum sqrt(I) over its pixels.

    values: (pattern,), the R-factors; NaN for patterns that were not measured yet, and for those without counts.
    epochs: (pattern,), number of epochs completed when each was measured; -1: not yet. complete: whether all values are
    of one state of the reconstruction, the present one if it is not running. cost: longest time for which the request
    interrupted the updates of an engine at once [s].
    """

    values: NDArray[np.float64]
    epochs: NDArray[np.int64]
    complete: bool
    cost: float = 0.0

    @property
    def measured(self) -> NDArray[np.bool_]:
        """Whether each pattern was measured, bool (pattern,)."""
        return self.epochs >= 0

    @property
    def median(self) -> float:
        """Median of the R-factors; NaN without any."""
        known = self.values[np.isfinite(self.values)]
        return float(np.median(known)) if len(known) else float("nan")

    @property
    def worst(self) -> int | None:
        """Index of the pattern with the largest R-factor; None without any."""
        return None if not np.isfinite(self.values).any() else int(np.nanargmax(self.values))

    def __repr__(self) -> str:
        measured = int(self.measured.sum())
        worst = "" if self.worst is None else f", largest {self.values[self.worst]:.4f} of pattern {self.worst}"
        return f"<PatternRFactors: {measured} of {len(self.values)} patterns, median {self.median:.4f}{worst}>"


@dataclass(frozen=True, eq=False)
class MeasuredRFactors:
    """R-factors that one engine has measured since the last request, by index of the pattern in the scan.

    source: identifies the engine's record; with another one all that is known of this engine is void. total: number of
    measurements of this record up to now. own: number of patterns of this engine. current: whether all of these have
    values of the present state. cost: time for which the request interrupted the updates [s].
    """

    source: str
    total: int
    own: int
    patterns: NDArray[np.int64]
    values: NDArray[np.float64]
    epochs: NDArray[np.int64]
    current: bool
    cost: float


class RFactorRecord:
    """R-factors of the patterns of one engine, measured a few at a time, in a fixed random order.

    Thus a map of them shows the whole scan soon, and each value is renewed in turn.
    """

    def __init__(self, patterns: NDArray[np.int64], bands: NDArray[np.int64] | None = None) -> None:
        """patterns: indices in the scan, ascending; the row of each is its place among them.

        bands: of these patterns, which are measured band by band.
        """
        self._patterns = patterns
        self._order = np.random.default_rng(0).permutation(len(patterns))
        if bands is not None:
            self._order = self._order[np.argsort(bands[self._order], kind="stable")]
        self._values = np.full(len(patterns), np.nan)
        self._epochs = np.full(len(patterns), -1, dtype=np.int64)
        self._source, self._total = secrets.token_hex(8), 0
        self._moment: tuple[int, int, int] | None = None
        self._present = 0
        """Number of values that were measured in the state `_moment`."""

    def begin(self, moment: tuple[int, int, int]) -> None:
        """Set the present state: numbers of epochs, updates and changes."""
        if moment != self._moment:
            self._moment, self._present = moment, 0

    def due(self, count: int) -> NDArray[np.int64]:
        """Return the rows of the next patterns without a value of the present state, `count` at most, ascending."""
        return np.sort(self._rows(self._total, min(count, len(self._patterns) - self._present)))

    def store(self, rows: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Store the R-factors of the rows that were due, in the present state."""
        assert self._moment is not None, "begin was called"
        self._values[rows], self._epochs[rows] = values, self._moment[0]
        self._total += len(rows)
        self._present += len(rows)

    def replace(self, values: NDArray[np.float64], moment: tuple[int, int, int]) -> None:
        """Store the R-factors of all patterns in the present state, in the order of rows."""
        self._moment, self._present = moment, 0
        self.store(np.arange(len(self._patterns)), values)

    def since(self, source: str, total: int, cost: float) -> MeasuredRFactors:
        """Return what was measured after the first `total` measurements of `source`; all if it is another record."""
        count, own = self._total - (total if source == self._source else 0), len(self._patterns)
        rows = self._rows(self._total - min(count, own), min(count, own))
        return MeasuredRFactors(
            source=self._source,
            total=self._total,
            own=own,
            patterns=self._patterns[rows],
            values=self._values[rows],
            epochs=self._epochs[rows],
            current=self._present == own,
            cost=cost,
        )

    def _rows(self, first: int, count: int) -> NDArray[np.int64]:
        return self._order[np.arange(first, first + count) % max(len(self._order), 1)]
