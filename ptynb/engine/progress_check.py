"""Whether a run makes no more progress, by the rule in `Settings.stop`, and whether it still does at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ptynb.data.record import Array, Change, Epoch, Thumbnail, late_progress
from ptynb.settings import PARTS, Settings
from ptynb.settings.settings import PROJECTIONS

FEWEST_EPOCHS = 10
"""Epochs, all with the same settings, from which a run is judged at its end."""


def reason_to_stop(settings: Settings, epochs: Sequence[Epoch], changes: Sequence[Change], begun: int = 0) -> str:
    """Return why the run ends after the last of these epochs, or an empty text.

    With the criterion "loss" it ends if the lowest loss of the last `patience` epochs is not lower, by a fraction of
    `tolerance`, than the lowest before them; with "changes" if in each of these epochs object, probe and positions
    changed by at most `tolerance`. Epochs before the last change of settings, or before the last part or constraint
    began, do not count, nor do the `begun` ones before the run, which begins with the full learning rates.
    """
    stop, completed = settings.stop, len(epochs)
    if stop.patience == 0 or completed < stop.min_epochs:
        return ""
    judged = _undisturbed(settings, epochs, changes, begun)
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


def still_progressing(
    settings: Settings,
    epochs: Sequence[Epoch],
    changes: Sequence[Change],
    begun: int,
    history: Sequence[Thumbnail],
    present: Callable[[], Thumbnail],
) -> str:
    """Return what still changed at the end of a run of these epochs; an empty text: not much, or it is not known.

    begun: epochs completed before the run; these, and those before the last event, do not count. history: thumbnails;
    present: takes one of the present state. The loss of projections is not that of their object.
    """
    judged = _undisturbed(settings, epochs, changes, begun)
    enough = len(judged) >= FEWEST_EPOCHS and all(epoch.loss > 0 for epoch in judged)
    if not enough or settings.optimiser in PROJECTIONS:
        return ""

    def late_object(early: Thumbnail) -> Array | None:
        late = present()
        same = (early.reduction, early.corner, early.object.shape) == (late.reduction, late.corner, late.object.shape)
        return late.object if same else None

    return late_progress(judged, history, late_object).text(len(judged))


def _undisturbed(
    settings: Settings, epochs: Sequence[Epoch], changes: Sequence[Change], begun: int = 0
) -> Sequence[Epoch]:
    """Return the epochs after the last event, and after the first `begun` ones."""
    return epochs[min(max(begun, *_events(settings, changes), 0), len(epochs)) :]


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
