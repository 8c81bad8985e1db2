"""How long a run will take to its last epoch, from the rate of its last epochs, and that of patterns that come."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from ptynb.data.engine_records import Epoch, Status
from ptynb.settings.recipe import StagePlan

LAST_EPOCHS = 5
"""Number of epochs whose rate is taken: the last ones of their stage."""


def recent_rate(status: Status, epochs: Sequence[Epoch]) -> float | None:
    """Return patterns per second over the last epochs of one stage; None before the first epoch is completed."""
    if not epochs:
        return None
    at = _stage_of(epochs[-1].number, _ends(status))
    last = [one for one in epochs[-LAST_EPOCHS:] if _stage_of(one.number, _ends(status)) == at]
    times = [1 / one.patterns_per_second for one in last if one.patterns_per_second > 0]
    return len(times) / sum(times) if times else None


def seconds_left(
    status: Status, epochs: Sequence[Epoch], patterns: int, shape: Sequence[int], measured: float | None = None
) -> float | None:
    """Return the time to the last epoch of a run [s]; None: no run is active, or its rate is not known yet.

    patterns: number of patterns of an epoch. shape: of whole patterns (y, x) [pixels]. measured: patterns per second of
    all engines, for the first epoch. In stages with patterns of another size, a pattern's time is taken as proportional
    to its pixels. Of a scan that is being measured, the run continues to its end with what has come, and then does its
    epochs.
    """
    coming = status.arrivals if status.arrivals is not None and status.arrivals.ended is None else None
    done = status.epoch + status.update / max(status.updates_per_epoch, 1)
    rate = recent_rate(status, epochs) or measured
    if done >= status.target or not rate or (coming and not coming.rate):
        return None
    scan = (coming.planned - coming.arrived - coming.missing) / coming.rate if coming else 0.0
    sizes = [math.prod(stage.pattern_size or shape) for stage in StagePlan.of(status.stages, status.stage).stages]
    sizes, ends, pixels = sizes or [math.prod(shape)], _ends(status), 0.0
    at = _stage_of(epochs[-1].number, ends) if epochs else status.stage
    for size, end in zip(sizes[status.stage :], ends[status.stage :], strict=True):
        pixels += max(min(end, status.target) - done, 0.0) * size
        done = max(done, min(end, status.target))
    return scan + pixels / sizes[at] * patterns / rate


def _ends(status: Status) -> list[float]:
    """Return the number of epochs after which each stage ends; the last one has no end."""
    ends = itertools.accumulate(float(stage["epochs"]) for stage in status.stages[:-1])
    return [*(status.live_epochs + end for end in ends), math.inf]


def _stage_of(epoch: int, ends: Sequence[float]) -> int:
    return next(number for number, end in enumerate(ends) if epoch <= end)


def rough_duration(seconds: float) -> str:
    """Return a time [s] in one or two units: '40 s', '3 min', '2 h 10 min', '1 d 4 h'."""
    if seconds < 99.5:
        return f"{max(round(seconds), 1)} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    days, rest = divmod(round(seconds / 3600), 24)
    return f"{days} d {rest} h" if rest else f"{days} d"
