"""Axes of stored patterns: (pattern, y, x), or (row, column, y, x) of a raster scan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.data.patterns import Frames, PlacedFrames, TransformedFrames
from ptynb.exceptions import FileError
from ptynb.io.reading.hdf5_reading import check_sides, other_axes


def stacked(shape: tuple[int, ...], path: Path, where: str = "") -> tuple[tuple[int, int, int], tuple[int, int] | None]:
    """Return the shape (pattern, y, x) and the raster (rows, columns) or None. Raise FileError for other axes."""
    at = f" in {where}" if where else ""
    if len(shape) not in (3, 4):
        raise other_axes(shape, path, where)
    if min(shape) < 1:
        raise FileError(
            f"{path} has patterns of shape {tuple(shape)}{at}; expected no axis of length 0.",
            code="file.unexpected-content",
        )
    count = check_sides(shape, path, at)
    raster = None if len(shape) == 3 else (int(shape[0]), int(shape[1]))
    return (count, int(shape[-2]), int(shape[-1])), raster


def placed(
    path: Path, offset: int, shape: tuple[int, int, int], dtype: np.dtype[Any], *, stride: int | None = None
) -> Frames:
    """Return consecutive patterns in a file from `offset` [bytes], with a stride [bytes] (None: the size of one).

    Raise FileError if the file ends before the last of them.
    """
    check_counts(dtype, path)
    own = shape[1] * shape[2] * dtype.itemsize
    step = own if stride is None else stride
    end, length = offset + (shape[0] - 1) * step + own, path.stat().st_size
    if end > length:
        raise FileError(
            f"{path} ends after {length} bytes; expected {end} for {shape[0]} patterns of {shape[1]} x {shape[2]} "
            f"pixels of type {dtype}: it is cut short, copy it again.",
            code="file.damaged",
        )
    places = offset + step * np.arange(shape[0], dtype=np.int64)
    return native(PlacedFrames(path.resolve(), places, shape, dtype.str))


def check_counts(dtype: np.dtype[Any], path: Path, where: str = "") -> None:
    """Raise FileError if the type is not one of real numbers."""
    if dtype.kind not in "iuf" or dtype.itemsize > 8:
        at = f" in {where}" if where else ""
        raise FileError(
            f"{path} has patterns of type {dtype}{at}; expected real counts (integers or floats).",
            code="file.unexpected-content",
        )


def native(frames: Frames) -> Frames:
    """Return the same patterns in native byte order."""
    if frames.dtype.isnative:
        return frames
    dtype = frames.dtype.newbyteorder("=")
    return TransformedFrames(frames, _in_native_order, frames.shape[1:], dtype)


def _in_native_order(patterns: NDArray[Any], first: int) -> NDArray[Any]:
    return patterns.astype(patterns.dtype.newbyteorder("="))


def transposed(frames: Frames) -> Frames:
    """Return the same patterns with rows and columns exchanged."""
    return TransformedFrames(frames, _transposed, (frames.shape[2], frames.shape[1]), frames.dtype)


def _transposed(patterns: NDArray[Any], first: int) -> NDArray[Any]:
    return patterns.transpose(0, 2, 1)
