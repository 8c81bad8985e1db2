"""Loading a checkpoint: rank 0 reads and broadcasts what all share, each engine reads its own tile and rows."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ptynb.distributed.group import Group
from ptynb.exceptions import FileError, SettingsError
from ptynb.io.checkpoint_file import ReconstructionState, load_rows, load_state, load_tile, of_object, packed, unpacked
from ptynb.settings import PROJECTIONS, Settings
from ptynb.settings.recipe import StagePlan

FREE = ("pattern_storage", "gradient_accumulation")
"""Settings that are not live and may still change on resuming: the result does not depend on them."""


def read_start(start: Path | None, rank: int) -> ReconstructionState | FileError | None:
    """Read the state to continue from, on rank 0, or return the error; call it before joining the group.

    In this order the other ranks do not wait in the group for a slow disk.
    """
    if start is None or rank > 0:
        return None
    try:
        return load_state(start)
    except FileError as error:
        return error


def shared(loaded: ReconstructionState | FileError | None, group: Group) -> ReconstructionState | None:
    """Return rank 0's state without rows, on every rank. Raises rank 0's FileError on all of them."""
    if isinstance(loaded, FileError):
        group.broadcast_object([str(loaded), loaded.code, loaded.fields])
        raise loaded
    record: Any = {}
    arrays: dict[str, Any] = {}
    if loaded is not None:
        # Thumbnails and the start of the epoch stay on rank 0.
        own: dict[str, Any] = {"history": (), "epoch_start": {}}
        record, arrays = packed(dataclasses.replace(loaded, rows={}, patterns=loaded.patterns[:0], **own))
        if loaded.tile.size:  # each rank reads its own, `with_tile`
            arrays = {name: one for name, one in arrays.items() if not of_object(name)}
    layouts = [[name, values.dtype.str, list(values.shape)] for name, values in arrays.items()]
    message: Any = group.broadcast_object(None if loaded is None else [record, layouts])
    if message is None:
        return None
    if isinstance(message[0], str):
        raise FileError(message[0], code=message[1], fields=tuple(message[2]))
    for name, dtype, shape in message[1]:
        values = np.ascontiguousarray(arrays[name]) if name in arrays else np.empty(shape, dtype)
        if values.nbytes:
            raw = group.broadcast(torch.from_numpy(values.reshape(-1).view(np.uint8)))
            arrays[name] = raw.numpy().view(dtype).reshape(shape)
        else:
            arrays[name] = values
    state = unpacked(message[0], arrays)
    if loaded is None:
        return state
    return dataclasses.replace(state, history=loaded.history, epoch_start=loaded.epoch_start)


def with_tile(state: ReconstructionState, start: Path, wanted: tuple[int, int, int, int] | None) -> ReconstructionState:
    """Return the state with the arrays of the object for an engine's tile, read from the files of all ranks.

    wanted: (top, bottom, left, right) of what the engine holds; None: the whole object.
    """
    if state.tile.size:
        stored = load_tile(start, load_state(start), wanted)
        arrays = {name: one for name, one in packed(stored)[1].items() if of_object(name)}
    elif wanted is None:
        return state
    else:
        arrays = packed(load_tile(start, state, wanted))[1]
    record, own = packed(state)
    return dataclasses.replace(unpacked(record, own | arrays), tile=state.tile[:0])


def with_rows(state: ReconstructionState, start: Path, patterns: NDArray[np.int64]) -> ReconstructionState:
    """Return the state with the rows of this engine's patterns, read from the files of all ranks."""
    if state.begun.get("optimiser") not in PROJECTIONS:
        return state
    stored = load_state(start)
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
