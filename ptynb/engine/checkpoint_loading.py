"""Engines continue from a checkpoint: rank 0 reads the file and broadcasts it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ptynb.distributed.group import Group
from ptynb.exceptions import FileError, SettingsError
from ptynb.io.checkpoint_file import ReconstructionState, load_rows, load_state, packed, unpacked
from ptynb.settings import PROJECTIONS, Settings

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


def shared(found: ReconstructionState | FileError | None, group: Group) -> ReconstructionState | None:
    """Return rank 0's state without rows, on every rank. Raises rank 0's FileError on all of them."""
    if isinstance(found, FileError):
        group.tell([str(found), found.code])
        raise found
    record, arrays = ({}, {}) if found is None else packed(_without_rows(found))
    places = [[name, values.dtype.str, list(values.shape)] for name, values in arrays.items()]
    told: Any = group.tell(None if found is None else [record, places])
    if told is None:
        return None
    if isinstance(told[0], str):
        raise FileError(told[0], code=told[1])
    for name, dtype, shape in told[1]:
        values = np.ascontiguousarray(arrays[name]) if name in arrays else np.empty(shape, dtype)
        if values.nbytes:
            octets = group.broadcast(torch.from_numpy(values.reshape(-1).view(np.uint8)))
            arrays[name] = octets.numpy().view(dtype).reshape(shape)
        else:
            arrays[name] = values
    state = unpacked(told[0], arrays)
    return state if found is None else dataclasses.replace(state, history=found.history)


def _without_rows(state: ReconstructionState) -> ReconstructionState:
    """Return the part of the state that all ranks need; thumbnails stay on rank 0."""
    return dataclasses.replace(state, rows={}, patterns=state.patterns[:0], history=())


def with_rows(state: ReconstructionState, start: Path, patterns: NDArray[np.int64]) -> ReconstructionState:
    """Return the state with the rows of this engine's patterns, read from the files of all ranks."""
    if state.begun.get("optimiser") not in PROJECTIONS:
        return state
    kept = load_state(start)
    if not kept.rows:  # `restructured` has dropped them
        return state
    return dataclasses.replace(state, rows=load_rows(start, kept, patterns), patterns=patterns)


def settings_to_begin_with(state: ReconstructionState, settings: Settings) -> Settings:
    """Return the settings to create a loop with, so that the state fits; `settings` are those to continue with.

    Raises SettingsError if a setting differs that cannot change in a reconstruction.
    """
    kept = Settings(**state.settings)
    fixed = [name for name in kept.differences(settings) if not Settings.is_live(name) and name not in FREE]
    if fixed:
        raise SettingsError(
            f"The checkpoint was written with other settings: {', '.join(fixed)} cannot change in a reconstruction "
            "that has begun; resume with the settings of the checkpoint, or make a new Reconstruction.",
            code="checkpoint.other-settings",
        )
    return Settings(**state.begun).replace(**{name: getattr(settings, name) for name in FREE})
