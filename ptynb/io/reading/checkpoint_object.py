"""The object in the files of a checkpoint, some rows after the other: no reader needs more of it than it wants.

Each file has the whole object, or the pixels of one engine (`tile`), as arrays (state, slice, y, x, …) or (y, x):
parameters, and arrays of the optimiser like them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np

from ptynb.exceptions import FileError
from ptynb.io.checkpoint_file import (
    Array,
    ReconstructionState,
    companion,
    naming_the_one_before,
    of_object,
    packed,
    shape_of,
    unpacked,
)
from ptynb.io.hdf5_file import check_chunks, check_columns, open_for_reading
from ptynb.io.reading.reading_errors import reading
from ptynb.io.reading.safe_reading import Checked

ROWS_BYTES = 2**24
"""Size of the rows that are read or sent at once."""
Area = tuple[int, int, int, int]
"""Pixels [top, bottom) x [left, right) of the whole object."""


class Rows(NamedTuple):
    """Some rows of an array of the object.

    shape: of the array of the whole object. first: index (state, slice, y, x) or (y, x) of the first pixel in it.
    values: (y, x, …).
    """

    name: str
    shape: tuple[int, ...]
    first: tuple[int, ...]
    values: Array

    @property
    def place(self) -> tuple[int | slice, ...]:
        """Index of the rows in the array of the whole object."""
        *plane, top, left = self.first
        height, width = self.values.shape[:2]
        return (*plane, slice(top, top + height), slice(left, left + width))


class ObjectArrays:
    """The arrays of the object for some of its pixels, to be filled."""

    def __init__(self, wanted: Area | None) -> None:
        """wanted: the pixels; None: all."""
        self._wanted = wanted
        self._arrays = dict[str, Array]()

    def put(self, rows: Rows) -> None:
        """Copy the values of the pixels that are wanted."""
        *plane, top, left = rows.first
        corner = (0, 0) if self._wanted is None else (self._wanted[0], self._wanted[2])
        if rows.name not in self._arrays:
            self._arrays[rows.name] = np.empty(_part_of(rows.shape, self._wanted), rows.values.dtype)
        target = self._arrays[rows.name][(*plane,)]
        here, there = list[slice](), list[slice]()
        for start, own, side, length in zip((top, left), corner, rows.values.shape, target.shape, strict=False):
            low, high = max(start, own), min(start + side, own + length)
            if high <= low:
                return
            here.append(slice(low - start, high - start))
            there.append(slice(low - own, high - own))
        target[(*there,)] = rows.values[(*here,)]

    def in_state(self, state: ReconstructionState) -> ReconstructionState:
        """Return the state with these arrays."""
        record, arrays = packed(state)
        return dataclasses.replace(unpacked(record, arrays | self._arrays), tile=state.tile[:0])


def load_object(path: Path, state: ReconstructionState, wanted: Area | None = None) -> ReconstructionState:
    """Return the state with the arrays of the object for these pixels of it, from the files of all engines.

    state: of this file, with or without arrays of the object. wanted: None: all pixels.
    """
    found = ObjectArrays(wanted)
    for rows in all_rows(path, state, wanted):
        found.put(rows)
    return found.in_state(state)


def all_rows(path: Path, state: ReconstructionState, wanted: Area | None = None) -> Iterator[Rows]:
    """Yield the rows of the object in the files of all engines. state: of this file. wanted: see `stored_rows`."""
    with naming_the_one_before(path):
        for rank in range(state.parts if state.tile.size else 1):
            yield from stored_rows(companion(path, rank), wanted)


def stored_rows(path: Path, wanted: Area | None = None, names: Sequence[str] = ()) -> Iterator[Rows]:
    """Yield the rows of the object in one file.

    wanted: pixels of which rows have some, None: all; an array with none of them yields empty rows, which tell its
    shape. names: of arrays; empty: all of them.
    """
    with reading(path), open_for_reading(path) as file:
        source, found = Checked(file, path), [*names]

        def note(name: str, item: h5py.Dataset | h5py.Group) -> None:
            if isinstance(item, h5py.Dataset) and of_object(name):
                found.append(name)

        if not names:
            file.visititems(note)
        tile = source.read("tile", source.dataset("tile")).tolist() if source.has("tile") else []
        if len(tile) not in (0, 6):
            raise FileError(f"{path} is damaged: its tile has {len(tile)} numbers; expected 6.", code="file.damaged")
        corner = (tile[0], tile[2]) if tile else (0, 0)
        for name in found:
            stored = source.dataset(name)
            check_columns(stored)
            check_chunks(stored, path)
            shape = shape_of(source, name, stored)
            if of_object(name, len(shape)):
                whole = _part_of(shape, (0, tile[4], 0, tile[5]) if tile else None)
                yield from _rows(name, stored, shape, whole, corner, wanted)


def rows_of(state: ReconstructionState) -> Iterator[Rows]:
    """Yield the rows of the object in a state that has all of it."""
    for name, values in packed(state)[1].items():
        if of_object(name, values.ndim):
            yield from _rows(name, values.reshape(-1), values.shape, values.shape, (0, 0), None)


def _rows(
    name: str,
    values: Array | h5py.Dataset,
    shape: tuple[int, ...],
    whole: tuple[int, ...],
    corner: tuple[int, int],
    wanted: Area | None,
) -> Iterator[Rows]:
    """Yield rows of an array. values: flattened. corner: index (y, x) of its first pixel in the whole object."""
    axis, (top, left) = _axis_of_y(shape), corner
    height, width = shape[axis : axis + 2]
    low, high = 0, height
    if wanted is not None:
        low, high = max(low, wanted[0] - top), min(high, wanted[1] - top)
        if min(left + width, wanted[3]) <= max(left, wanted[2]):
            high = low
    row, further = math.prod(shape[axis + 1 :]), shape[axis + 1 :]
    if row == 0 or high <= low:
        yield Rows(name, whole, (*[0] * axis, top, left), np.empty((0, *further), values.dtype))
        return
    step = max(1, ROWS_BYTES // (row * values.dtype.itemsize))
    for number, plane in enumerate(np.ndindex(shape[:axis])):
        for first in range(low, high, step):
            last = min(first + step, high)
            begin = number * height
            some = values[(begin + first) * row : (begin + last) * row].reshape(last - first, *further)
            yield Rows(name, whole, (*plane, top + first, left), some)


def _part_of(shape: tuple[int, ...], area: Area | None) -> tuple[int, ...]:
    """Return the shape of an array with these pixels only."""
    if area is None:
        return shape
    axis = _axis_of_y(shape)
    return *shape[:axis], area[1] - area[0], area[3] - area[2], *shape[axis + 2 :]


def _axis_of_y(shape: tuple[int, ...]) -> int:
    """Return the axis of y of an array (state, slice, y, x, …) or (y, x)."""
    return 0 if len(shape) < 4 else 2
