"""The record of a run: epochs, changes, R-factors, thumbnails, settings, and the user's title and comments.

`late_progress` says from it whether a run has converged.

`RunRecord` is the base of a `Result`, of a checkpoint's state and of an engine's `Status`. A field is declared once,
with its path in files (`at`); `ptynb.io.record_mapper` writes and reads the declared fields.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ptynb.data.admissions import Admissions
from ptynb.data.images import phase_growth
from ptynb.data.stored_field import at as at
from ptynb.plugins import Plugin

Array = NDArray[Any]


@dataclass(frozen=True)
class Epoch:
    """One pass over all patterns.

    Parameters
    ----------
    number : int
        Number of the epoch, 1 for the first.
    loss : float
        Over all patterns of all engines, as computed during the epoch; 0 is a perfect fit. Amplitude and Poisson losses
        are divided by the total counts, the intensity loss by the sum of squared counts.
    seconds : float
        Wall time [s] without pauses.
    patterns_per_second : float
        Over all engines together [1/s].
    ended : float, optional
        When it ended, by the clock of rank 0 [s since 1970, UTC]; None: unknown.
    object_change : float, optional
        Relative root-mean-square change of the object O from the end of the epoch before: min over c of
        ‖O - c O'‖ / ‖O‖, summed over the illuminated area, all slices and modes. The complex factor c removes the
        global phase and scale, which patterns do not determine. Of more than 2²⁰ pixels every n-th row is compared.
        None: unknown, as after an interrupted epoch of earlier versions.
    probe_change : float, optional
        The same of the probe, over its window and all modes.
    position_change : float, optional
        Root mean square over all patterns of the distance that their positions moved [object pixels]; None: positions
        are not refined.
    """

    number: int
    loss: float
    seconds: float = field(metadata=at(unit="s"))
    patterns_per_second: float = field(metadata=at(unit="1/s"))
    ended: float | None = field(default=None, metadata=at(unit="s since 1970"))
    object_change: float | None = None
    probe_change: float | None = None
    position_change: float | None = field(default=None, metadata=at(unit="pixel"))

    def __str__(self) -> str:
        speed = f"{self.seconds:.3g} s ({self.patterns_per_second:.0f} patterns/s)"
        changed = "" if self.object_change is None else f"object change {self.object_change:.2g}, "
        return f"epoch {self.number}: loss {self.loss:.5g}, {changed}{speed}"


@dataclass(frozen=True, kw_only=True)
class Annotation:
    """Title and comments of a reconstruction by the user. title: one line; comments: text in Markdown."""

    title: str = field(default="", metadata=at("entry/title", required=True))
    comments: str = field(default="", metadata=at("entry/comments/data", required=True))

    @classmethod
    def of(cls, record: Annotation) -> Self:
        """Create an instance from a record that may have more fields."""
        return cls(**fields_of(cls, record))


@dataclass(frozen=True)
class Change:
    """A change of a setting during a run, or another event.

    Two changes that differ only in `when` are equal.

    Parameters
    ----------
    epoch : int
        Epochs completed before it.
    update : int
        Updates of the running epoch completed before it.
    name : str
        Dotted name of the setting ("probe.learning_rate"); or "target" (the last epoch was changed), "went back" (an
        earlier checkpoint was restored), "branch" (the branch was switched), "engines" (engines were lost, and the run
        continued from its last checkpoint), "stage" and "pattern_size" (the next stage began), "stopped"
        (`Settings.stop` ended the run).
    old : object
        Value before it, a plain one; of "stopped": the epoch at which the run would have ended.
    new : object
        Value after it, a plain one; of "stopped": the reason.
    when : float, optional
        Time [s since 1970, UTC]; None: unknown.
    """

    epoch: int
    update: int
    name: str
    old: Any
    new: Any
    when: float | None = field(default=None, compare=False, metadata=at(unit="s since 1970"))


@dataclass(frozen=True)
class RunSpan:
    """The epochs of a run, from its beginning or from a change of its last epoch.

    Two that differ only in `when` are equal. epoch, update: epochs, and updates of the running one, completed then.
    first: epochs completed at the beginning of the run. last: its last epoch. when: time [s since 1970, UTC].
    """

    epoch: int
    update: int
    first: int
    last: int
    when: float = field(compare=False, metadata=at(unit="s since 1970"))


@dataclass(frozen=True, eq=False)
class Thumbnail:
    """Object and probe after an epoch, reduced in size.

    Parameters
    ----------
    epoch : int
        Epochs completed.
    object : ndarray
        complex64 (y, x), the product of the slices of the first object mode in the illuminated area, averaged over
        `reduction` x `reduction` pixels.
    probe : ndarray
        complex64 (y, x), the first mode, averaged over `probe_reduction` x `probe_reduction` pixels.
    reduction : int, optional
        Pixels of the object along each side of a pixel of the thumbnail.
    probe_reduction : int, optional
        The same of the probe.
    corner : tuple of int, optional
        (y, x) of the first pixel in the object's array at that time [object pixels].
    """

    epoch: int
    object: Array
    probe: Array
    reduction: int = field(default=1, metadata=at("object@reduction", required=True))
    probe_reduction: int = field(default=1, metadata=at("probe@reduction", required=True))
    corner: tuple[int, int] = field(default=(0, 0), metadata=at("object@corner", required=True))


@dataclass(frozen=True, eq=False, kw_only=True)
class RunRecord(Annotation):
    """Record of a run, as stored in a result, in a checkpoint, or in the status of an engine.

    epochs, changes: the earliest first. r_factors: (epochs completed, amplitude R-factor), if measured.
    settings: current ones, as plain values. stages: as plain values, if there are several; stage: index of the present
    one. update: completed updates of an epoch that is not complete. runs: each run, and each change of its last epoch.
    started: when it was first opened, ISO 8601 in UTC; empty: unknown.
    history: thumbnails of some epochs, the earliest first. metadata: facts as texts, by name.
    admissions: which patterns came when, if they came during the run.
    plugins: of other packages that were used, with their versions.
    """

    epochs: tuple[Epoch, ...] = field(default=(), metadata=at("epochs", required=True))
    update: int = field(default=0, metadata=at("epochs@update", required=True))
    r_factors: tuple[tuple[int, float], ...] = field(
        default=(), metadata=at("r_factors", required=True, columns=("epoch", "r_factor"))
    )
    changes: tuple[Change, ...] = field(default=(), metadata=at("changes", required=True))
    runs: tuple[RunSpan, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict, metadata=at("settings/at_end", required=True))
    stages: tuple[Any, ...] = field(default=(), metadata=at("settings/stages"))
    stage: int = field(default=0, metadata=at("settings/stage"))
    metadata: dict[str, str] = field(default_factory=dict, metadata=at("about", required=True, checkpoint="about"))
    started: str = field(default="", metadata=at("entry/start_time", required=True))
    history: tuple[Thumbnail, ...] = field(default=(), metadata=at("moments", required=True, checkpoint="moments"))
    admissions: Admissions | None = None
    plugins: tuple[Plugin, ...] = ()


STOPPED = "stopped"
"""Name of the change that records the end of a run by `Settings.stop`."""


def stop_reason(changes: Sequence[Change], epoch: int) -> str:
    """Return why `Settings.stop` ended the run after `epoch` epochs, if that was the last event; else an empty text."""
    last = changes[-1] if changes else None
    return str(last.new) if last is not None and (last.name, last.epoch) == (STOPPED, epoch) else ""


CONVERGED = 0.04
"""Largest `late_progress` of a run that has converged; `tests/benchmarks/RESULTS.md` lists runs on both sides."""


class LateProgress(NamedTuple):
    """What still changed at the end of a run [part of the value].

    loss: decrease of the loss in the last tenth of the epochs. phase: growth of the phase in the last quarter, which
    the loss of a weak object does not show where the noise of few counts outweighs it.
    """

    loss: float
    phase: float

    def text(self, epochs: int) -> str:
        """Return what changed more than in a run that has converged, in words; `epochs`: number that was judged."""
        changes = (
            f"the loss fell by {self.loss:.0%} in the last {last_tenth(epochs)} epochs",
            f"the phase grew by {self.phase:.0%} in the last {last_quarter(epochs)} epochs",
        )
        return " and ".join(text for text, value in zip(changes, self, strict=True) if value > CONVERGED)


def last_tenth(epochs: int) -> int:
    """Return the number of epochs at the end of a run from which it is judged."""
    return max(3, epochs // 10)


def last_quarter(epochs: int) -> int:
    """Return the number of epochs at the end of a run in which the growth of the phase is judged."""
    return max(1, epochs // 4)


def late_progress(
    epochs: Sequence[Epoch], history: Sequence[Thumbnail], late_object: Callable[[Thumbnail], Array | None]
) -> LateProgress:
    """Return what still changed at the end of these epochs, at least 3, whose losses are positive.

    history: thumbnails; the phase grew since the last of the first three quarters of the epochs. late_object: returns
    the object at the end in the pixels of a thumbnail; None: it has others. How much of the growth is in the last
    quarter of the epochs is estimated by the object's changes, which become small as learning rates fall. A phase that
    grows while the loss rises is that of steps too long.
    """
    first, since, growth = epochs[0].number, 0, 0.0
    latest = first - 1 + 0.75 * len(epochs)
    early = next((one for one in reversed(history) if max(first - 1, 1) <= one.epoch <= latest), None)
    if early is not None and (end := late_object(early)) is not None:
        since, growth = early.epoch, phase_growth(early.object, end)
    last = last_tenth(len(epochs))
    losses = [math.log(epoch.loss) for epoch in epochs[-last:]]
    decrease = 1 - math.exp(float(np.polyfit(np.arange(last), losses, 1)[0]) * last)
    moves = [epoch.object_change for epoch in epochs if epoch.number > since]
    known = [move for move in moves if move is not None]
    if len(known) < len(moves) or not sum(known) > 0:
        known = [1.0] * len(moves)
    late = sum(known[-last_quarter(len(epochs)) :]) / max(sum(known), 1e-300)
    return LateProgress(max(decrease, 0.0), max(late * growth, 0.0) if decrease > -CONVERGED else 0.0)


def fields_of(kind: type[Any], record: Any) -> dict[str, Any]:
    """Return the fields of this class from a record that may have more, by name."""
    return {one.name: getattr(record, one.name) for one in dataclasses.fields(kind)}


def utc(seconds: float | None) -> str:
    """Return a time [s since 1970] as ISO 8601 in UTC, to the millisecond; empty for None."""
    if seconds is None:
        return ""
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def seconds_of(text: str) -> float | None:
    """Return the time [s since 1970] of a text from `utc`; None for an empty text."""
    return datetime.fromisoformat(text).timestamp() if text else None
