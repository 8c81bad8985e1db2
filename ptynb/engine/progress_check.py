"""Whether a run makes no more progress, by the rule in `Settings.stop`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ptynb.data.record import Change, Epoch
from ptynb.settings import PARTS, Settings


def reason_to_stop(settings: Settings, epochs: Sequence[Epoch], changes: Sequence[Change]) -> str:
    """Return why the run ends after the last of these epochs, or an empty text.

    With the criterion "loss" it ends if the lowest loss of the last `patience` epochs is not lower, by a fraction of
    `tolerance`, than the lowest before them; with "changes" if in each of these epochs object, probe and positions
    changed by at most `tolerance`. Epochs before the last change of settings, or before the last part or constraint
    began, do not count.
    """
    stop, completed = settings.stop, len(epochs)
    if stop.patience == 0 or completed < stop.min_epochs:
        return ""
    judged = epochs[min(max(_events(settings, changes), default=0), completed) :]
    recent, before = judged[-stop.patience :], judged[: -stop.patience]
    span = f"over {stop.patience} epochs" if stop.patience > 1 else "in an epoch"
    if stop.criterion == "changes":
        largest = max((change for epoch in recent for change in _changes_of(epoch)), default=0.0)
        if len(recent) < stop.patience or not largest <= stop.tolerance:
            return ""
        return f"object, probe and positions changed by at most {largest:.2g} {span} (tolerance {stop.tolerance:g})"
    if not before:
        return ""
    lowest = min(epoch.loss for epoch in before)
    gain = lowest - min(epoch.loss for epoch in recent)
    if gain > stop.tolerance * lowest:
        return ""
    decrease = f"decreased by {gain / lowest:.2g}" if gain > 0 else "did not decrease"
    return f"the loss {decrease} {span} (tolerance {stop.tolerance:g})"


def _events(settings: Settings, changes: Sequence[Change]) -> Iterator[int]:
    """Yield the numbers of epochs completed before changes, and before parts and constraints began."""
    yield from (change.epoch for change in changes if change.name != "target")
    yield from (part.start_epoch - 1 for part in map(settings.part, PARTS) if part.learning_rate > 0)
    yield from (constraint.start_epoch - 1 for constraint in settings.constraints)


def _changes_of(epoch: Epoch) -> Iterator[float]:
    """Yield the changes of an epoch; one of object or probe that is not known is infinite."""
    for change in (epoch.object_change, epoch.probe_change):
        yield float("inf") if change is None else change
    if epoch.position_change is not None:
        yield epoch.position_change
