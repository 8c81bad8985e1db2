"""Progress of a run: where it ends, thumbnails at a few epochs, the changes in each, and what still changes at its end.

Rank 0 takes thumbnails and compares states between two epochs; the time for it counts for neither. A run ends by the
rule in `Settings.stop` once it makes no more progress, and says at its end if it still does. Changes are computed on
the device, so that the host waits for a GPU only once, when it reads the record of the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, assert_never

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import avg_pool2d

from ptynb.data.commands import AdvanceRun, PauseRun, ResumeRun, RunCommand, RunTo, SetTarget, StartRun, StopRun
from ptynb.data.engine_records import Thumbnail
from ptynb.data.record import Array, Change, Epoch, late_progress
from ptynb.physics.model import Model
from ptynb.physics.torch_steps import product_of_slices
from ptynb.settings import PARTS, Settings
from ptynb.settings.settings import PROJECTIONS

SIDE = 256
"""Longest side [pixels]."""
MOST = 8
"""Maximum number, so that those of object and probe take 8 MB at most (`driver.memory` counts them)."""
FEWEST_EPOCHS = 10
"""Epochs, all with the same settings, from which a run is judged at its end."""

MOST_PIXELS = 2**20
"""Largest number of pixels, of all slices and modes together, that are compared; of larger arrays every n-th row is.

This limits the memory to 8 MB for each of object and probe (16 MB in double precision), and twice that for a moment.
"""

Area = tuple[slice, slice]


@dataclass(eq=False)
class RunTarget:
    """The state of a run, and where it ends; commands change it in the same way on all ranks.

    epoch: the epoch with which it ends. reach: it ends after so many epochs, and updates of the next one, instead.
    last: the last epoch of the run that this is a part of. from_end: whether `epoch` and `last` count from the end of
    a scan that is being measured. span: epochs completed at the beginning of the run that this is a part of (None: as
    `Loop.begin_run`), and its last epoch; both are those of schedules. None: no run has begun.
    """

    state: Literal["ready", "running", "paused"] = "ready"
    epoch: int = 0
    reach: tuple[int, int] | None = None
    last: int = 0
    from_end: bool = True
    span: tuple[int | None, int] | None = None

    def direct(self, command: RunCommand, epoch: int, live: int, first: int) -> bool:
        """Apply a command after so many epochs; return whether a run begins or gets another end, with another `span`.

        live: epochs in which further patterns could come. first: epochs completed at the beginning of the present run.
        """
        match command:
            case PauseRun():
                self.state = "paused" if self.state == "running" else self.state
                return False
            case ResumeRun():
                self.state = "running" if self.state == "paused" else self.state
                return False
            case StopRun():
                self.end(epoch)
                self.span = None
                return False
            case StartRun(epochs):
                self.epoch = self.last = epoch + epochs
                self.reach, self.from_end, self.span = None, True, (None, self.last - live)
            case AdvanceRun(last):
                self.epoch, self.last = epoch + 1, last
                self.reach, self.from_end, self.span = None, False, (None, last - live)
            case RunTo(end, update, run):
                self.epoch, self.reach, self.from_end = end + (update > 0), (end, update), False
                self.span = (run[0], run[1]) if run else (None, self.epoch - live)
            case SetTarget(end):
                self.epoch = self.last = end
                self.reach, self.span = None, (first, end - live)
                if self.state == "paused":
                    return True
            case _:
                assert_never(command)
        self.state = "running"
        return True

    def reached(self, epoch: int, update: int) -> bool:
        """Return whether the run ends after so many epochs, and updates of the next one."""
        return self.state == "running" and (epoch >= self.epoch or (epoch, update) == self.reach)

    def end(self, epoch: int) -> None:
        """End the run after so many epochs."""
        self.epoch, self.reach = epoch, None
        self.state = "ready"  # last: who reads it from another thread then has the epoch


def thumbnail_due(epoch: int) -> bool:
    """Return whether this epoch is one of 1, 2, 5, 10, 20, 50, 100 ..."""
    while epoch % 10 == 0 and epoch > 0:
        epoch //= 10
    return epoch in (1, 2, 5)


def bytes_of(object: tuple[int, int], probe: tuple[int, int]) -> int:
    """Return the maximum memory of all thumbnails [bytes]. object, probe: their shapes (y, x)."""
    pixels = 0
    for height, width in (object, probe):
        reduction = _reduction(height, width)
        pixels += (height // reduction) * (width // reduction)
    return MOST * np.dtype(np.complex64).itemsize * pixels


def first_and_newest(moments: tuple[Thumbnail, ...]) -> tuple[Thumbnail, ...]:
    """Return the first and the newest thumbnails, `MOST` in total."""
    return moments if len(moments) <= MOST else (moments[0], *moments[-(MOST - 1) :])


@torch.no_grad()
def take_thumbnail(model: Model, area: Area, epoch: int) -> Thumbnail:
    """Take a thumbnail of the present state; of an object in tiles on all ranks. area: the illuminated area."""
    reduction = _reduction(area[0].stop - area[0].start, area[1].stop - area[1].start)

    def seen(here: Area) -> Tensor:
        return product_of_slices(whole.covered(0, here)).to(torch.complex64)

    whole = model.whole_object
    small = model.part.reduced(seen, area, reduction).cpu().numpy().copy()
    probe, probe_reduction = _reduced(model.probe.values[0])
    corner = area[0].indices(2**62)[0], area[1].indices(2**62)[0]
    return Thumbnail(epoch, small, probe, reduction, probe_reduction, corner)


def _reduced(values: Tensor) -> tuple[NDArray[np.complex64], int]:
    """Return block averages such that no side is longer than `SIDE`, and the block size; incomplete blocks are cut."""
    reduction = _reduction(*values.shape)
    planes = torch.view_as_real(values.resolve_conj().to(torch.complex64)).movedim(-1, 0)[None]
    if reduction > 1:
        planes = avg_pool2d(planes, reduction)
    small = torch.view_as_complex(planes[0].movedim(0, -1).contiguous())
    return small.cpu().numpy().copy(), reduction


def _reduction(*sides: int) -> int:
    return max(1, -(-max(sides) // SIDE))


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


class StateChanges:
    """Compare object, probe and positions with those at the end of the previous epoch, which are kept for that."""

    def __init__(self, model: Model, area: tuple[slice, slice]) -> None:
        """area: slices (y, x) of the illuminated area of the whole object."""
        self._model, self._area = model, area
        self._before = self._now()

    @torch.no_grad()
    def take(self) -> Tensor:
        """Return `object_change`, `probe_change` and `position_change` of `Epoch`; NaN where one is not known.

        (3,), float64, on the device.
        """
        before, self._before = self._before, self._now()
        object = relative_change(before.get("object"), self._before["object"], self._model.part.total)
        probe = relative_change(before.get("probe"), self._before["probe"])
        start, end = before.get("positions"), self._before["positions"]
        positions = _unknown(end)
        if start is not None and self._model.movers:
            positions = (end - start).square().sum(1).mean().sqrt()
        return torch.stack([object.to(probe.device), probe, positions])

    def arrays(self) -> dict[str, Array]:
        """Return copies of the arrays at the beginning of the present epoch, for a checkpoint within it.

        Without the object, if it is in tiles: its change in an epoch that is resumed is not known.
        """
        names = self._before.keys() - (set() if self._model.part.is_whole else {"object"})
        return {name: self._before[name].cpu().numpy().copy() for name in names}

    def restore(self, arrays: Mapping[str, Array], update: int) -> None:
        """Continue after `update` updates of an epoch that began with these arrays; without them it is not known."""
        now = self._now()
        if not self._model.part.is_whole:  # either all engines compare their tiles, or none
            arrays = {name: values for name, values in arrays.items() if name != "object"}
        stored = {name: torch.from_numpy(values).to(now[name]) for name, values in arrays.items() if name in now}
        self._before = now
        if update > 0:
            # After a reconfiguration the arrays have other shapes.
            self._before = {name: values for name, values in stored.items() if values.shape == now[name].shape}

    @torch.no_grad()
    def _now(self) -> dict[str, Tensor]:
        """Return copies of the compared rows of object (state, slice, y, x) and probe (mode, y, x), and positions."""
        model, (rows, columns) = self._model, self._area
        object, probe = model.whole_object, torch.view_as_complex(model.probe.parts)
        states, slices = next(object.parameters()).shape[:2]
        pixels = states * slices * (rows.stop - rows.start) * (columns.stop - columns.start)
        step = _step(pixels)
        own, columns = model.part.within(self._area)
        first = rows.start - model.part.origin[0]  # rows are the same for any tiles
        area = slice(own.start + (first - own.start) % step, own.stop, step), columns
        return {
            "object": torch.stack([object.covered(state, area) for state in range(states)]),
            "probe": probe[:, :: _step(probe.numel())].clone(),
            "positions": model.positions_of(model.all_patterns()).double(),
        }


def _step(pixels: int) -> int:
    """Return the distance of the rows that are compared."""
    return -(-pixels // MOST_PIXELS)


def relative_change(
    before: Tensor | None, now: Tensor, total: Callable[[Tensor], Tensor] = lambda tensor: tensor
) -> Tensor:
    """Return min over c of ‖now - c before‖ / ‖now‖, c complex, a scalar; NaN if there is nothing to compare with.

    With d = now - before, c - 1 is ⟨before, d⟩ / ‖before‖²: small differences lose no digits. total: sums a tensor over
    the engines that have parts of the arrays.
    """
    if before is None:
        return _unknown(now)
    moved = now - before
    product = torch.view_as_real(torch.vdot(before.flatten(), moved.flatten())).double()
    scale, size, real, imaginary = total(torch.cat([torch.stack([_square(before), _square(now)]), product]))
    along = torch.complex(real, imaginary) / scale
    rest = total(_square(moved.addcmul_(before, along.to(moved.dtype), value=-1)))
    return torch.where((scale > 0) & (size > 0), (rest / size).sqrt(), torch.nan)


def _unknown(like: Tensor) -> Tensor:
    return torch.full((), torch.nan, dtype=torch.float64, device=like.device)


def _square(values: Tensor) -> Tensor:
    """Return ‖values‖², float64; of the parts, since torch computes absolute values of complex numbers slowly."""
    return torch.linalg.vector_norm(torch.view_as_real(values)).double().square()
