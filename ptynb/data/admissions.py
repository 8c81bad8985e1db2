"""Admissions: when a reconstruction began to use which patterns of a scan that came while it ran.

Together with the settings and the seed they determine the result, so that such a run can be repeated offline.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ptynb.data.stored_field import at
from ptynb.exceptions import InvalidValueError


@dataclass(frozen=True, eq=False)
class Admission:
    """Patterns that all engines begin to use before the same update.

    patterns: numbers (pattern,), ascending. positions: (pattern, yx) [object pixels]. times: of their arrival
    (pattern,) [s since 1970]. ended: why no further pattern will come; None: some may.
    summary: plain values of `Arrivals` at that moment, if it is the last admission.
    """

    patterns: NDArray[np.int64]
    positions: NDArray[np.float64]
    times: NDArray[np.float64]
    ended: str | None = None
    summary: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.patterns)

    def plain(self) -> dict[str, Any]:
        """Return it as plain values, which JSON represents exactly."""
        return {
            "patterns": self.patterns.tolist(),
            "positions": self.positions.tolist(),
            "times": self.times.tolist(),
            "ended": self.ended,
            "summary": self.summary,
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Self:
        """Return the admission of `plain`."""
        return cls(
            np.array(plain["patterns"], dtype=np.int64),
            np.array(plain["positions"], dtype=np.float64).reshape(-1, 2),
            np.array(plain["times"], dtype=np.float64),
            plain["ended"],
            plain["summary"],
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Admissions:
    """The patterns of a scan that came while it was reconstructed, in the order in which the run began to use them.

    Parameters
    ----------
    planned : ndarray of float64
        Positions (planned pattern, yx) that were planned before the scan [object pixels].
    patterns : ndarray of int64
        Numbers (pattern,) of the planned patterns that were admitted.
    positions : ndarray of float64
        Their positions (pattern, yx) [object pixels].
    times : ndarray of float64
        When they had come (pattern,) [s since 1970].
    sizes : ndarray of int64
        Number of patterns (admission,) that were admitted together; the last one may have none, but the end.
    updates : ndarray of int64
        Updates (admission,) of the whole run completed before.
    epochs : int
        Number of completed epochs that had begun before the end of the scan was known. The schedule of learning rates,
        stages, and the number of epochs of the run count from there.
    ended : str
        Why no further pattern was expected after the last admission; empty: the scan was going on.
    summary : dict
        Numbers of patterns that were planned, had arrived, were missing, late, duplicates ... at the end (`Arrivals`).

    Raises
    ------
    InvalidValueError
        If arrays have other lengths than belong together, or numbers are not below that of planned patterns.
    """

    planned: NDArray[np.float64] = field(metadata=at(unit="pixel"))
    patterns: NDArray[np.int64] = field(metadata=at(axes=1))
    positions: NDArray[np.float64] = field(metadata=at(unit="pixel"))
    times: NDArray[np.float64] = field(metadata=at(axes=1, unit="s since 1970"))
    sizes: NDArray[np.int64] = field(metadata=at(axes=1))
    updates: NDArray[np.int64] = field(metadata=at(axes=1))
    epochs: int = 0
    ended: str = ""
    summary: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count, lengths = len(self.patterns), {len(self.positions), len(self.times), int(self.sizes.sum())}
        inside = count == 0 or 0 <= self.patterns.min() <= self.patterns.max() < len(self.planned)
        if lengths != {count} or len(self.sizes) != len(self.updates) or not inside:
            raise InvalidValueError(
                f"The admissions have {count} patterns of {len(self.planned)} planned, and values of "
                f"{sorted(lengths)}; expected values for each pattern, and numbers below that of the plan.",
                code="array.shape-mismatch",
            )

    def __len__(self) -> int:
        return len(self.sizes)

    def __repr__(self) -> str:
        end = f"ended: {self.ended}" if self.ended else "going on"
        return f"<Admissions: {len(self.patterns)} of {len(self.planned)} patterns in {len(self)} steps, {end}>"

    def all(self) -> list[Admission]:
        """Return the admissions, the earliest first.

        Returns
        -------
        list of Admission
            Patterns that were admitted together, with `patterns`, `positions`, `times` and `ended`.
        """
        ends = np.cumsum(self.sizes).tolist()
        found = []
        for number, (size, end) in enumerate(zip(self.sizes.tolist(), ends, strict=True)):
            rows, last = slice(end - size, end), number == len(self) - 1
            ended = (self.ended or None) if last else None
            summary = self.summary if last else {}
            found.append(Admission(self.patterns[rows], self.positions[rows], self.times[rows], ended, summary))
        return found


def admissions_of(
    planned: NDArray[np.float64], admissions: Sequence[Admission], updates: Sequence[int], epochs: int = 0
) -> Admissions:
    """Return the record of admissions, at least one, before each of which so many updates were completed.

    planned: positions (planned pattern, yx). epochs: completed ones that had begun before the end was known.
    """
    last = admissions[-1]
    return Admissions(
        planned=planned,
        patterns=np.concatenate([one.patterns for one in admissions]),
        positions=np.concatenate([one.positions for one in admissions]),
        times=np.concatenate([one.times for one in admissions]),
        sizes=np.array([len(one) for one in admissions], dtype=np.int64),
        updates=np.array(updates, dtype=np.int64),
        epochs=epochs,
        ended=last.ended or "",
        summary=last.summary,
    )


def with_another(record: Admissions, admission: Admission, update: int) -> Admissions:
    """Return the record with another admission, before which so many updates were completed."""
    present = [dataclasses.replace(one, ended=None) for one in record.all()]
    return admissions_of(record.planned, [*present, admission], [*record.updates.tolist(), update], record.epochs)


@dataclass(frozen=True, eq=False)
class RecordedArrivals:
    """A scan whose patterns are all there, and are admitted as in an earlier run: see `Reconstruction`."""

    admissions: Admissions

    @property
    def count(self) -> int:
        """Number of planned patterns."""
        return len(self.admissions.planned)
