"""How long a run will take to its last epoch, from the rate of its last epochs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ptynb.data.engine_records import Epoch, Status
from ptynb.settings.recipe import StagePlan

LAST_EPOCHS = 5
"""Number of epochs whose rate is taken: the last ones of their stage."""


def seconds_left(
    status: Status, epochs: Sequence[Epoch], patterns: int, shape: Sequence[int], measured: float | None = None
) -> float | None:
    """Return the time to the last epoch of a run [s]; None: no run is active, or its rate is not known yet.

    patterns: number of patterns of an epoch. shape: of whole patterns (y, x) [pixels]. measured: patterns per second of
    all engines, for the first epoch. In stages with patterns of another size, a pattern's time is taken as proportional
    to its pixels.
    """
    left = status.target - status.epoch - status.update / max(status.updates_per_epoch, 1)
    if status.target <= status.epoch or left <= 0:
        return None
    plan = StagePlan.of(status.stages, status.stage)
    sizes = [math.prod(stage.pattern_size or shape) for stage in plan.stages] or [math.prod(shape)]
    ends: list[float] = [sum(stage.epochs for stage in plan.stages[: number + 1]) for number in range(len(sizes))]
    ends[-1] = math.inf

    def stage_of(epoch: int) -> int:
        return next(number for number, end in enumerate(ends) if epoch <= end)

    rate, at = measured, plan.number if plan.stages else 0
    if epochs:
        at = stage_of(epochs[-1].number)
        last = [one for one in epochs[-LAST_EPOCHS:] if stage_of(one.number) == at and one.patterns_per_second > 0]
        rate = len(last) / sum(1 / one.patterns_per_second for one in last) if last else measured
    if not rate:
        return None
    done, pixels = status.target - left, 0.0
    for number in range(plan.number if plan.stages else 0, len(sizes)):
        end = min(ends[number], status.target)
        pixels += max(end - done, 0.0) * sizes[number]
        done = max(done, end)
    return pixels / sizes[at] * patterns / rate


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
