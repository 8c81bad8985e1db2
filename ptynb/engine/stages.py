"""The next stage of a run: its settings and its window of the patterns, at the same epoch on all engines."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from ptynb.data.engine_records import Change
from ptynb.data.scan import Scan
from ptynb.distributed.group import Group
from ptynb.engine.checkpoint_loading import untimed, with_object
from ptynb.engine.loop import Loop
from ptynb.engine.reconfigure import restructured
from ptynb.engine.resampled_state import Units, resampled_state
from ptynb.exceptions import FileError, PtynbError
from ptynb.io.checkpoint_file import ReconstructionState, of_object, packed, unpacked
from ptynb.optimize.object_tiles import ObjectTile
from ptynb.physics.constraints import Extension
from ptynb.preparation.crop_and_pad import in_window
from ptynb.settings import Settings
from ptynb.settings.recipe import StagePlan


@dataclasses.dataclass(frozen=True)
class PreviousStage:
    """What the loop of a stage takes over from the previous one, besides the state."""

    pattern_size: tuple[int, int] | None
    units: Units
    agreed: int

    @classmethod
    def of(cls, loop: Loop) -> PreviousStage:
        """Return it for a loop."""
        return cls(loop.pattern_size, Units.of(loop.model), loop.agreed)


def change_in_place(loop: Loop, plan: StagePlan) -> bool:
    """Begin the next stage of `plan` if the model does not change; return whether it has begun."""
    stage = plan.stages[plan.number]
    settings = stage.applied_to(loop.settings)
    changed = loop.settings.differences(settings)
    live = all(Settings.is_live(name) for name in changed) and not loop.why_not_live(settings)
    if stage.pattern_size != loop.pattern_size or not live:
        return False
    before = len(loop.changes)
    loop.change(settings)
    loop.changes[before:] = _changes(loop, plan, loop.changes[before:])
    loop.plan = plan
    return True


def state_of_next(loop: Loop, plan: StagePlan, scan: Scan, target: int) -> ReconstructionState | FileError | None:
    """Return the present state converted to the settings of the next stage, on rank 0, or the error.

    Call it on all ranks. scan: with whole patterns; they are not read.
    """
    state = loop.state(loop.loss_sums(), target)
    if loop.tile is not None:
        state = with_whole_object(state, loop.tile)
    if loop.group.rank > 0:
        return None
    try:
        settings = plan.stages[plan.number].applied_to(loop.settings)
        new = restructured(state, settings, in_window(scan, loop.pattern_size))
    except PtynbError as error:
        return error.retold(FileError, f"Stage {plan.number + 1} cannot begin: {error}")
    changes = _changes(loop, plan, new.changes[len(state.changes) :])
    return dataclasses.replace(
        new, changes=(*state.changes, *changes), stages=plan.plain, stage=plan.number, target=target
    )


def with_whole_object(state: ReconstructionState, tile: ObjectTile) -> ReconstructionState:
    """Return the state with the whole object on rank 0, which is sent all tiles; call it on all ranks."""
    record, arrays = packed(state)
    for name, values in arrays.items():
        if of_object(name, values.ndim):
            arrays[name] = tile.gathered(torch.from_numpy(values)).numpy()
    return dataclasses.replace(unpacked(record, arrays), tile=state.tile[:0])


def loop_of_next(
    state: ReconstructionState,
    previous: PreviousStage,
    plan: StagePlan,
    scan: Scan,
    group: Group,
    extensions: Sequence[Extension],
) -> Loop:
    """Return the loop of the next stage.

    state: from `state_of_next`, with the object on rank 0 only, which sends the other engines what they hold.
    """
    begun = Settings(**state.begun)
    first = None if state.admissions is None else state.admissions.all()[0]
    loop = Loop(scan, begun, group, extensions, plan, first, find_probe=False)
    if loop.pattern_size != previous.pattern_size:
        windows = in_window(scan, previous.pattern_size), in_window(scan, loop.pattern_size)
        units = previous.units, Units.of(loop.model)
        state = untimed(partial(resampled_state, state, windows, begun, units), group)
    state = with_object(state, None if loop.tile is None else loop.tile.held, group)
    loop.restore(dataclasses.replace(state, scan=loop.scan))
    loop.agreed = previous.agreed
    return loop


def _changes(loop: Loop, plan: StagePlan, of_settings: Sequence[Change]) -> list[Change]:
    """Return the entries of the record for a stage: it and its settings, with one time, by which replay knows them."""
    when = time.time()
    stage: list[Any] = [Change(loop.epoch, loop.update, "stage", plan.number, plan.number + 1, when)]
    sizes = loop.pattern_size, plan.stages[plan.number].pattern_size
    if sizes[0] != sizes[1]:
        old, new = (None if size is None else [*size] for size in sizes)
        stage.append(Change(loop.epoch, loop.update, "pattern_size", old, new, when))
    return [*stage, *(dataclasses.replace(change, when=when) for change in of_settings)]
