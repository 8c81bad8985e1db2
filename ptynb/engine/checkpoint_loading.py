"""Engines continue from a checkpoint: rank 0 reads the file and broadcasts it, except for the tiles of an object.

The object can be larger than the memory of any engine. An engine that holds a tile of it reads the tile itself; where
one cannot read the files, rank 0 broadcasts the object, some rows at a time, and each engine keeps those that it holds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from ptynb.distributed.group import Group
from ptynb.exceptions import FileError, SettingsError
from ptynb.io.checkpoint_file import (
    ReconstructionState,
    check_parts,
    header_of,
    load_rows,
    load_state,
    of_object,
    packed,
    unpacked,
)
from ptynb.io.reading.checkpoint_object import Area, ObjectArrays, Rows, all_rows, load_object, rows_of
from ptynb.settings import PROJECTIONS, Settings
from ptynb.settings.recipe import StagePlan

FREE = ("pattern_storage", "gradient_accumulation")
"""Settings that are not live and may still change on resuming: the result does not depend on them."""
ALIVE_SECONDS = 0.25
"""Period in which ranks that work alone tell each other that they are alive [s]: less than any time limit."""
Value = TypeVar("Value")


def read_start(start: Path | None, rank: int) -> ReconstructionState | FileError | None:
    """Read the state to continue from, without the object, on rank 0, or return the error; call it before joining.

    In this order the other ranks do not wait in the group for a slow disk.
    """
    if start is None or rank > 0:
        return None
    try:
        return load_state(start, with_object=False)
    except FileError as error:
        return error


def shared(loaded: ReconstructionState | FileError | None, group: Group) -> ReconstructionState | None:
    """Return rank 0's state without rows, on every rank. Raises rank 0's FileError on all of them.

    If it has the object, that remains on rank 0 (see `with_object`), as thumbnails and the start of the epoch do.
    """
    record: Any = {}
    arrays: dict[str, Any] = {}
    if isinstance(loaded, ReconstructionState):
        own: dict[str, Any] = {"history": (), "epoch_start": {}}
        record, arrays = packed(dataclasses.replace(loaded, rows={}, patterns=loaded.patterns[:0], **own))
    layouts = [[name, one.dtype.str, one.shape] for name, one in arrays.items() if not of_object(name, one.ndim)]

    def description() -> Any:
        if isinstance(loaded, FileError):
            raise loaded
        return loaded and [record, layouts]

    message = _of_rank_0(description, group)
    if message is None:
        return None
    for name, dtype, shape in message[1]:
        values = np.ascontiguousarray(arrays[name]) if name in arrays else np.empty(shape, dtype)
        if values.nbytes:
            raw = group.broadcast(torch.from_numpy(values.reshape(-1).view(np.uint8)))
            arrays[name] = raw.numpy().view(dtype).reshape(shape)
        else:
            arrays[name] = values
    state = unpacked(message[0], arrays)
    if not isinstance(loaded, ReconstructionState):
        return state
    return dataclasses.replace(state, history=loaded.history, epoch_start=loaded.epoch_start)


def with_object(
    state: ReconstructionState, wanted: Area | None, group: Group, start: Path | None = None
) -> ReconstructionState:
    """Return the state with the arrays of the object for the pixels that an engine holds; call it on all ranks.

    wanted: (top, bottom, left, right); None: the whole object. start: the checkpoint; None: rank 0's state has them.
    """
    if wanted is not None and start is not None:
        found = untimed(lambda: _own_part(state, wanted, start), group)
        if int(group.sum(torch.tensor([int(found is not None)]))) == group.world:
            assert found is not None
            return found
    if start is None and group.world == 1:
        return state
    rows = rows_of(state) if start is None else all_rows(start, state)
    return _broadcast_object(rows, wanted, group).in_state(state)


def _own_part(state: ReconstructionState, wanted: Area, start: Path) -> ReconstructionState | None:
    """Return the state with an engine's part of the object; None if it cannot read the files of this checkpoint."""
    try:
        header = header_of(start)
        if header is None or header.token != state.token:  # a file of another machine that has the same name
            return None
        check_parts(start, state)
        return load_object(start, state, wanted)
    except (FileError, OSError):
        return None


def _broadcast_object(rows: Iterator[Rows], wanted: Area | None, group: Group) -> ObjectArrays:
    """Return the arrays of the object for the pixels that an engine holds. rows: of all of it, used on rank 0."""
    found = ObjectArrays(wanted)
    own: Rows | None = None

    def following() -> Any:
        nonlocal own
        own = next((one for one in rows if one.values.size), None)
        return own and [own.name, own.shape, own.first, own.values.dtype.str, own.values.shape]

    while (described := _of_rank_0(following, group)) is not None:
        name, shape, first, dtype, size = described
        values = np.empty(size, dtype) if own is None else np.ascontiguousarray(own.values)
        found.put(Rows(name, (*shape,), (*first,), group.broadcast(torch.from_numpy(values)).numpy()))
    return found


def _of_rank_0(described: Callable[[], Any], group: Group) -> Any:
    """Return on all ranks what a function returns on rank 0, plain values; its FileError is raised on all of them."""
    message: Any = None
    if group.rank == 0:
        try:
            message = [described()]
        except FileError as error:
            group.broadcast_object([str(error), error.code, error.fields])
            raise
    message = group.broadcast_object(message)
    if len(message) == 3:
        raise FileError(message[0], code=message[1], fields=tuple(message[2]))
    return message[0]


def untimed(work: Callable[[], Value], group: Group) -> Value:
    """Return what a function returns that takes another time on each rank; the group's time limit does not count it.

    Call it on all ranks. An engine that is lost is noticed after `ALIVE_SECONDS`.
    """
    if group.world == 1:
        return work()
    thread = ThreadPoolExecutor(1, "ptynb reading")
    try:
        found, done = thread.submit(work), 0
        while done < group.world:
            wait([found], ALIVE_SECONDS)
            done = int(group.sum(torch.tensor([int(found.done())])))
        return found.result()
    finally:
        thread.shutdown(wait=False)


def with_rows(state: ReconstructionState, start: Path, patterns: NDArray[np.int64]) -> ReconstructionState:
    """Return the state with the rows of this engine's patterns, read from the files of all ranks."""
    if state.begun.get("optimiser") not in PROJECTIONS:
        return state
    stored = load_state(start, with_object=False)
    if not stored.rows:  # `restructured` has dropped them
        return state
    return dataclasses.replace(state, rows=load_rows(start, stored, patterns), patterns=patterns)


def plan_and_settings(state: ReconstructionState, plan: StagePlan, settings: Settings) -> tuple[StagePlan, Settings]:
    """Return the stages to continue with, at that of the checkpoint, and the settings to continue with.

    plan: the requested stages, and the one that `settings` belong to. The settings of another stage do not apply to the
    checkpoint, which has its own. Raises SettingsError if the checkpoint is in a stage that does not exist.
    """
    if not plan.stages:
        return StagePlan.of(state.stages, state.stage), settings
    if state.stage >= len(plan.stages):
        raise SettingsError(
            f"The checkpoint is in stage {state.stage + 1} of its run, and {len(plan.stages)} are given; resume with "
            "the stages of the run.",
            code="checkpoint.other-settings",
        )
    same = state.stage == plan.number
    return replace(plan, number=state.stage), settings if same else Settings(**state.settings)


def settings_to_begin_with(state: ReconstructionState, settings: Settings) -> Settings:
    """Return the settings to create a loop with, so that the state fits; `settings` are those to continue with.

    Raises SettingsError if a setting differs that cannot change in a reconstruction.
    """
    stored = Settings(**state.settings)
    free = {*FREE, "object.layout"}
    fixed = [name for name in stored.differences(settings) if not Settings.is_live(name) and name not in free]
    if fixed:
        raise SettingsError(
            f"The checkpoint was written with other settings: {', '.join(fixed)} cannot change in a reconstruction "
            "that has begun; resume with the settings of the checkpoint, or make a new Reconstruction.",
            code="checkpoint.other-settings",
        )
    values = {name: getattr(settings, name) for name in FREE}
    return Settings(**state.begun).replace(**values, object={"layout": settings.object.layout})
