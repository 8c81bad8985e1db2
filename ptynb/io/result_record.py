"""The record in a result file, both ways: epochs, changes, R-factors, thumbnails, and where it comes from."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any, TypeVar

import h5py
import numpy as np

from ptynb.data.provenance import Machines, ScanIdentity, Software
from ptynb.data.record import Change, Epoch, Thumbnail
from ptynb.exceptions import FileError
from ptynb.io.reading.safe_reading import Checked

TEXT = h5py.string_dtype()
EPOCHS = {"number": "i8", "loss": "f8", "seconds": "f8", "patterns_per_second": "f8", "ended": "f8"}
EPOCH_UNITS = ("", "", "s", "1/s", "s since 1970")
CHANGES = {"epoch": "i8", "update": "i8", "when": "f8", "name": TEXT, "old": TEXT, "new": TEXT}
CHANGE_UNITS = ("", "", "s since 1970", "", "JSON", "JSON")
R_FACTORS = {"epoch": "i8", "r_factor": "f8"}
UNITS = {"size": "byte", "modified": "s since 1970", "wavelength": "m", "distance": "m", "detector_pixel": "m"}
JSON = ("given", "geometry")
"""Fields that are texts in JSON."""
STORED_NAMES = {"pattern_shape": "window", "is_far_field": "fourier"}
"""Fields that have another name in files, which those of earlier versions have too."""

Record = TypeVar("Record", ScanIdentity, Software, Machines)
NAN = float("nan")


def write_text(place: h5py.Group, name: str, text: str) -> h5py.Dataset:
    """A text that every viewer shows. What HDF5 can't hold (a NUL, half a surrogate pair) is written visibly."""
    return place.create_dataset(name, data=visible(text), dtype=TEXT)


def visible(text: str) -> str:
    """A text without what files can't hold."""
    return text.replace("\0", "\N{SYMBOL FOR NULL}").encode("utf-8", "backslashreplace").decode()


def write_json(place: h5py.Group, name: str, value: Any) -> None:
    """Plain values as a text. Raises TypeError for others."""
    write_text(place, name, as_json(value))


def as_json(value: Any) -> str:
    """Plain values as JSON in one line."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


# Tables


def write_epochs(file: h5py.File, epochs: tuple[Epoch, ...], update: int) -> None:
    """One row an epoch."""
    rows = [(e.number, e.loss, e.seconds, e.patterns_per_second, NAN if e.ended is None else e.ended) for e in epochs]
    _table(file, "epochs", EPOCHS, rows, EPOCH_UNITS)
    file["epochs"].attrs["update"] = update


def read_epochs(source: Checked) -> tuple[Epoch, ...]:
    """Those of any version: the first one did not know when an epoch ended."""
    rows = source.table("epochs", {"number": "iu", **dict.fromkeys(("loss", "seconds", "patterns_per_second"), "f")})
    timed = "ended" in (rows.dtype.names or ())
    return tuple(
        Epoch(
            int(row["number"]),
            float(row["loss"]),
            float(row["seconds"]),
            float(row["patterns_per_second"]),
            _known(row["ended"]) if timed else None,
        )
        for row in rows
    )


def write_changes(file: h5py.File, changes: tuple[Change, ...]) -> None:
    """One row a change; values in JSON."""
    rows = [
        (c.epoch, c.update, NAN if c.when is None else c.when, c.name, as_json(c.old), as_json(c.new)) for c in changes
    ]
    _table(file, "changes", CHANGES, rows, CHANGE_UNITS)


def read_changes(source: Checked) -> tuple[Change, ...]:
    """Those of version 2."""
    rows = source.table("changes", {"epoch": "iu", "update": "iu", "when": "f", "name": "O", "old": "O", "new": "O"})
    return tuple(
        Change(
            int(row["epoch"]),
            int(row["update"]),
            _text(row["name"]),
            source.parsed("changes", row["old"]),
            source.parsed("changes", row["new"]),
            _known(row["when"]),
        )
        for row in rows
    )


def read_first_changes(source: Checked) -> tuple[Change, ...]:
    """Those of version 1: a list in JSON."""
    try:
        return tuple(Change(**change) for change in source.json("changes", list))
    except TypeError:
        raise FileError(f"{source.path} has changes that are none; it is damaged.") from None


def write_r_factors(file: h5py.File, r_factors: tuple[tuple[int, float], ...]) -> None:
    """One row a measurement."""
    _table(file, "r_factors", R_FACTORS, [*r_factors], ("", ""))


def read_r_factors(source: Checked) -> tuple[tuple[int, float], ...]:
    """Those of version 2."""
    rows = source.table("r_factors", {"epoch": "iu", "r_factor": "f"})
    return tuple((int(row["epoch"]), float(row["r_factor"])) for row in rows)


def _table(file: h5py.File, name: str, fields: dict[str, Any], rows: list[Any], units: tuple[str, ...]) -> None:
    file[name] = np.array(rows, dtype=np.dtype([*fields.items()]))
    file[name].attrs["units"] = [*units]


def _known(value: Any) -> float | None:
    return None if math.isnan(value) else float(value)


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


# Thumbnails


def write_thumbnails(file: h5py.File, thumbnails: tuple[Thumbnail, ...]) -> None:
    """One group per thumbnail, named after its epoch."""
    group = file.create_group("moments")
    for thumbnail in thumbnails:
        one = group.create_group(f"{thumbnail.epoch:06d}")
        one["object"], one["probe"] = thumbnail.object, thumbnail.probe
        one["object"].attrs.update(axes=["y", "x"], reduction=thumbnail.reduction, corner=thumbnail.corner)
        one["probe"].attrs.update(axes=["y", "x"], reduction=thumbnail.probe_reduction)


def read_thumbnails(source: Checked) -> tuple[Thumbnail, ...]:
    """The earliest first."""
    found = []
    for name in source.group("moments"):
        if not name.isdigit():
            raise FileError(f"{source.path} has a moment named {name!r:.40}; expected the number of its epoch.")
        object, probe = (source.dataset(f"moments/{name}/{part}") for part in ("object", "probe"))
        corner = source.numbers(object, "corner", 2)
        found.append(
            Thumbnail(
                epoch=int(name),
                object=source.array(f"moments/{name}/object", "c", 2),
                probe=source.array(f"moments/{name}/probe", "c", 2),
                reduction=int(source.numbers(object, "reduction", 1)[0]),
                probe_reduction=int(source.numbers(probe, "reduction", 1)[0]),
                corner=(int(corner[0]), int(corner[1])),
            )
        )
    return tuple(sorted(found, key=lambda thumbnail: thumbnail.epoch))


# Where it comes from: one dataset a field; what is not known is left out


def write_record(file: h5py.File, name: str, record: ScanIdentity | Software | Machines) -> None:
    """A group with the record's fields."""
    group = file.create_group(name)
    group.attrs["NX_class"] = "NXcollection"
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if value is None:
            continue
        name = STORED_NAMES.get(field.name, field.name)
        if field.name in JSON:
            write_json(group, name, value)
        elif isinstance(value, str):
            write_text(group, name, value)
        elif field.type == "tuple[str, ...]":
            group.create_dataset(name, data=[*value], dtype=TEXT)
        else:
            group[name] = value
        if name in UNITS:
            group[name].attrs["units"] = UNITS[name]


def read_record(source: Checked, name: str, kind: type[Record]) -> Record:
    """What `write_record` wrote; fields that are not there have their default."""
    group = source.group(name)
    values: dict[str, Any] = {"name": ""} if kind is ScanIdentity else {}
    for field in dataclasses.fields(kind):
        stored = STORED_NAMES.get(field.name, field.name)
        if stored in group:
            values[field.name] = _field(source, f"{name}/{stored}", str(field.type))
    return kind(**values)


def _field(source: Checked, name: str, kind: str) -> Any:
    match kind:
        case "str":
            return source.text(name)
        case "dict[str, Any]":
            return source.json(name, dict)
        case "bool":
            return bool(source.number(name))
        case "int" | "int | None":
            return int(source.number(name))
        case "float" | "float | None":
            return source.number(name)
        case "tuple[int, int]" | "tuple[float, float] | None":
            one, other = source.array(name, "iu" if kind == "tuple[int, int]" else "f", 1, last=2).tolist()
            return one, other
        case _:
            return tuple(_text(one) for one in source.texts(name))
