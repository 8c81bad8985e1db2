"""What is written down while a reconstruction runs: epochs, changes, and small pictures of it at a few of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Epoch:
    """One pass over every pattern.

    number: 1 for the first.
    loss: over all patterns of all engines, as they were met during the epoch; 0 is a perfect fit. Amplitude and Poisson
        losses are divided by the total counts, the intensity loss by the sum of squared counts.
    seconds: wall time of the epoch [s], pauses left out.
    patterns_per_second: over all engines together [1/s].
    ended: when, by the clock of rank 0 [s since 1970, UTC]; None: not known.
    """

    number: int
    loss: float
    seconds: float
    patterns_per_second: float
    ended: float | None = None

    def __str__(self) -> str:
        speed = f"{self.seconds:.3g} s ({self.patterns_per_second:.0f} patterns/s)"
        return f"epoch {self.number}: loss {self.loss:.5g}, {speed}"


@dataclass(frozen=True)
class Words:
    """What the user says of a reconstruction. title: one line; comments: text in Markdown."""

    title: str = ""
    comments: str = ""


@dataclass(frozen=True)
class Change:
    """A setting that was changed while the reconstruction ran, or something else that befell it.

    epoch: epochs completed before it; update: updates of the running epoch completed before it.
    name: of the setting, dotted ("probe.learning_rate"); or "target" (the epoch at which the run ends), "went
        back" (to a kept state), "branch" (to another line of states), "engines" (one was lost, and it went on from the
        last kept state).
    old, new: its values, plain ones. when: [s since 1970, UTC]; None: not known. Two changes that differ only in `when`
        are equal.
    """

    epoch: int
    update: int
    name: str
    old: Any
    new: Any
    when: float | None = field(default=None, compare=False)


@dataclass(frozen=True, eq=False)
class Thumbnail:
    """How object and probe looked after an epoch, small: for looking back at how it went.

    epoch: epochs completed.
    object: complex64 (y, x), what a thin object in its place would be (the product of the slices of the first state),
        where a probe has been, every `reduction`-th pixel by averaging. corner: (y, x) of its first pixel in the
        object's array then [object pixels].
    probe: complex64 (y, x), the first mode, every `probe_reduction`-th pixel by averaging.
    """

    epoch: int
    object: Array
    probe: Array
    reduction: int = 1
    probe_reduction: int = 1
    corner: tuple[int, int] = (0, 0)


def utc(seconds: float | None) -> str:
    """A moment [s since 1970] as ISO 8601 in UTC, to the millisecond; empty for None."""
    if seconds is None:
        return ""
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
