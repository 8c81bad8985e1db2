"""Metadata of the fields of records, which describe how files store them."""

from __future__ import annotations

from typing import Any


def at(
    path: str = "",
    *,
    unit: str = "",
    required: bool = False,
    checkpoint: str = "",
    columns: tuple[str, ...] = (),
    axes: int = 2,
) -> dict[str, Any]:
    """Return the metadata of a field, which describe its storage in files.

    path: in a result file, relative to the group of its record; "dataset@name" for an attribute; by default the field's
    name. unit: of the number or the column. required: whether a result file without it is incomplete. checkpoint: name
    in the JSON record of a checkpoint, by default the field's. columns: names for tuples of pairs. axes: number of axes
    of an array.
    """
    return {
        "path": path,
        "unit": unit,
        "required": required,
        "checkpoint": checkpoint,
        "columns": columns,
        "axes": axes,
    }
