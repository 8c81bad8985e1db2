"""ptynb's own results, in memory and as files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ptynb.data.result import Result
from ptynb.io.initial_guess.imported_guess import Start


def start_of(result: Result, path: Path | None = None) -> Start:
    """A result as a start. Of several states of the object the first is taken. Raises FileError for a broken one."""
    object, remarks = result.object, list[str]()
    if object.ndim == 4:
        if len(object) > 1:
            remarks.append(f"Of {len(object)} states of the object the first was taken.")
        object = object[0]
    if object.ndim == 3 and len(object) == 1:
        object = object[0]
    return Start(
        package="ptynb",
        path=path,
        object=object,
        probe=result.probe,
        positions=np.asarray(result.positions, dtype=np.float64),
        pixel_size=result.pixel_size,
        origin=result.origin,
        thickness=_thickness(result) if object.ndim == 3 else None,
        notes=tuple(remarks),
    )


def _thickness(result: Result) -> float | None:
    found = result.parameters.get("slices/thickness")
    if found is not None and np.size(found) == 1:
        return float(np.reshape(found, -1)[0])
    slices = result.settings.get("slices")
    value = slices.get("thickness") if isinstance(slices, dict) else None
    return float(value) if isinstance(value, int | float) else None
