"""Records (frozen dataclasses) in files: as groups, tables, texts and numbers of HDF5, and as JSON with arrays.

A field's type defines how it is stored, its metadata (`ptynb.data.record.at`) the name under which it is stored:

int, float, bool, str        a number or a text; None is left out
tuple of int or float, str   an array; texts
dict, Any, tuple of Any      JSON in a text
tuple of records             a table with one row each; None is NaN, numbers come before texts
tuple of records with arrays a group for each, named by its first field
record                       a group
array, dict of arrays        an array; arrays by name in a group
"""

from __future__ import annotations

import dataclasses
import json
import math
import typing
from types import UnionType
from typing import Any, NamedTuple

import h5py
import numpy as np

from ptynb.exceptions import FileError, InvalidTypeError
from ptynb.io.hdf5_file import names_of
from ptynb.io.reading.safe_reading import Checked

TEXT = h5py.string_dtype()
TYPES = {int: "i8", float: "f8", bool: "?"}
KINDS = {int: "iu", float: "f", bool: "b"}
NAN = float("nan")
Record = typing.TypeVar("Record")


class StoredField(NamedTuple):
    """A field of a record: its type without None, and its name in files."""

    name: str
    kind: Any
    path: str
    attribute: str
    unit: str
    required: bool
    checkpoint: str
    columns: tuple[str, ...]
    axes: int = 2

    @property
    def item(self) -> Any:
        """Type of a tuple's items; None for other types."""
        return typing.get_args(self.kind)[0] if typing.get_origin(self.kind) is tuple else None


def fields(kind: Any) -> tuple[StoredField, ...]:
    """Return the stored fields of a dataclass."""
    if kind not in _FIELDS:
        _FIELDS[kind] = _fields(kind)
    return _FIELDS[kind]


_FIELDS: dict[Any, tuple[StoredField, ...]] = {}


def _fields(kind: Any) -> tuple[StoredField, ...]:
    types = typing.get_type_hints(kind)
    found = []
    for field in dataclasses.fields(kind):
        one, data = types[field.name], field.metadata
        if typing.get_origin(one) in (UnionType, typing.Union):
            one = next(part for part in typing.get_args(one) if part is not type(None))
        path, _, attribute = (data.get("path") or field.name).partition("@")
        has_default = not (field.default is field.default_factory is dataclasses.MISSING)
        required = data.get("required", False) or not has_default
        checkpoint = data.get("checkpoint") or field.name
        columns, axes = data.get("columns", ()), data.get("axes", 2)
        unit = data.get("unit", "")
        found.append(StoredField(field.name, one, path, attribute, unit, required, checkpoint, columns, axes))
    return tuple(found)


def is_array(kind: Any) -> bool:
    """Return whether this is the type of an array, or of a dictionary of arrays."""
    origin = typing.get_origin(_without_alias(kind))
    return origin is np.ndarray or (origin is dict and is_array(typing.get_args(kind)[1]))


def _without_alias(kind: Any) -> Any:
    """Return the type for which a generic alias stands: from numpy 2.5 on `NDArray` is a `type` statement."""
    value = getattr(typing.get_origin(kind), "__value__", None)
    return kind if value is None else value[typing.get_args(kind)]


def _has_arrays(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind) and any(is_array(field.kind) for field in fields(typing.cast(Any, kind)))


def write_text(group: h5py.Group, name: str, text: str) -> h5py.Dataset:
    """Write a text that every viewer shows; NUL and halves of surrogate pairs (not storable) are replaced."""
    return group.create_dataset(name, data=visible(text), dtype=TEXT)


def visible(text: str) -> str:
    """Return a text with replacements for characters that files cannot store."""
    return text.replace("\0", "\N{SYMBOL FOR NULL}").encode("utf-8", "backslashreplace").decode()


def as_json(value: Any) -> str:
    """Return plain values as JSON in one line. Raise TypeError for other values."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


# HDF5: writing


def write_record(group: h5py.Group, record: Any, without: str = "") -> None:
    """Write the fields of a record into a group. without: name of a field that is left out."""
    found = [field for field in fields(type(record)) if field.name != without]
    for field in found:
        if not field.attribute:
            _write_field(group, field, getattr(record, field.name))
    for field in found:
        value = getattr(record, field.name)
        if field.attribute and value is not None:
            (group[field.path] if field.path else group).attrs[field.attribute] = value


def _write_field(group: h5py.Group, field: StoredField, value: Any) -> None:
    if value is None:
        return
    if is_array(field.kind):
        arrays = {f"{field.path}/{name}": one for name, one in value.items()} if isinstance(value, dict) else None
        for path, one in ({field.path: value} if arrays is None else arrays).items():
            group[path] = one
    elif dataclasses.is_dataclass(field.kind):
        inner = group.create_group(field.path)
        inner.attrs["NX_class"] = "NXcollection"
        write_record(inner, value)
    elif _has_arrays(field.item):
        inner = group.create_group(field.path)
        key = fields(field.item)[0].name
        for one in value:
            write_record(inner.create_group(f"{getattr(one, key):06d}"), one, without=key)
    elif field.columns or dataclasses.is_dataclass(field.item):
        _write_table(group, field, value)
    elif field.kind is str:
        write_text(group, field.path, value)
    elif field.item is str:
        group.create_dataset(field.path, data=[*value], dtype=TEXT)
    elif field.kind in TYPES or field.item in TYPES:
        group[field.path] = value
    else:
        write_text(group, field.path, as_json(value))
    if field.unit:
        group[field.path].attrs["units"] = field.unit


def _columns(field: StoredField) -> list[StoredField]:
    """Return the columns of a table: numbers, then texts."""
    if field.columns:
        kinds = typing.get_args(field.item)
        return [
            StoredField(name, kind, name, "", "", True, name, ())
            for name, kind in zip(field.columns, kinds, strict=True)
        ]
    return sorted(fields(field.item), key=lambda column: column.kind not in TYPES)


def _write_table(group: h5py.Group, field: StoredField, records: tuple[Any, ...]) -> None:
    columns = _columns(field)
    types = np.dtype([(column.path, TYPES.get(column.kind, TEXT)) for column in columns])
    rows = []
    for record in records:
        values = record if field.columns else [getattr(record, column.name) for column in columns]
        rows.append(tuple(_cell(column, value) for column, value in zip(columns, values, strict=True)))
    group[field.path] = np.array(rows, dtype=types)
    group[field.path].attrs["units"] = ["JSON" if column.kind is Any else column.unit for column in columns]


def _cell(column: StoredField, value: Any) -> Any:
    if column.kind is Any:
        return as_json(value)
    return NAN if value is None else value


# HDF5: reading


def read_record(source: Checked, kind: type[Record], group: str = "", **others: Any) -> Record:
    """Return the record that `write_record` wrote in a group; missing fields have their default.

    others: values of fields that are not read. Raise FileError if a required value is missing or of another type.
    """
    values = {}
    for field in fields(kind):
        path = f"{group}/{field.path}".lstrip("/")
        if field.name not in others and (field.required or _is_stored(source, field, path)):
            values[field.name] = _read_field(source, field, path)
    return kind(**values, **others)


def read_field(source: Checked, kind: type[Any], name: str) -> Any:
    """Return one field of a record at the top of a file."""
    field = next(field for field in fields(kind) if field.name == name)
    return _read_field(source, field, field.path)


def _is_stored(source: Checked, field: StoredField, path: str) -> bool:
    return source.has(path) and (not field.attribute or field.attribute in source.dataset(path).attrs)


def _read_field(source: Checked, field: StoredField, path: str) -> Any:
    if field.attribute:
        return _read_attribute(source, field, path)
    if is_array(field.kind):
        return source.array(path, _letter_of(field.kind), field.axes)
    if dataclasses.is_dataclass(field.kind):
        source.group(path)
        return read_record(source, typing.cast(Any, field.kind), path)
    if _has_arrays(field.item):
        return _read_groups(source, field, path)
    if field.columns or dataclasses.is_dataclass(field.item):
        return _read_table(source, field, path)
    if field.kind is str:
        return source.text(path)
    if field.item is str:
        return tuple(_text(one) for one in source.texts(path))
    if field.kind in TYPES:
        number = source.number(path)
        try:
            return field.kind(number)
        except (ValueError, OverflowError):
            raise FileError(
                f"{source.path} has a {path} that is not finite; expected a whole number.",
                code="file.unexpected-content",
            ) from None
    if field.item in TYPES:
        count = _count(field)
        return tuple(source.array(path, KINDS[field.item], 1, last=count).tolist())
    if field.item is not None:
        return tuple(source.parsed(path, source.text(path), list))
    return source.parsed(path, source.text(path), dict if typing.get_origin(field.kind) is dict else object)


def _letter_of(kind: Any) -> str:
    """Return "f" for the type of an array of real numbers, "iu" of whole ones, "c" of complex ones, or of any."""
    number = typing.get_args(typing.get_args(_without_alias(kind))[1])[0]
    if isinstance(number, type) and issubclass(number, np.integer):
        return "iu"
    return "f" if isinstance(number, type) and issubclass(number, np.floating) else "c"


def _count(field: StoredField) -> int | None:
    """Return the length of a tuple of numbers; None: any."""
    kinds = typing.get_args(field.kind)
    return None if Ellipsis in kinds else len(kinds)


def _read_attribute(source: Checked, field: StoredField, path: str) -> Any:
    stored = source.dataset(path)
    if field.item is None:
        return field.kind(source.numbers(stored, field.attribute, 1)[0])
    return tuple(field.item(one) for one in source.numbers(stored, field.attribute, _count(field) or 0))


def _read_groups(source: Checked, field: StoredField, path: str) -> tuple[Any, ...]:
    """Return records with arrays, in the order of their first field, which names their groups."""
    key = fields(field.item)[0].name
    found = []
    for name in names_of(source.group(path)):
        if not name.isdecimal() or len(name) > 9:
            raise FileError(
                f"{source.path} has a group {name!r:.40} in {path}; expected the number of an {key} as its name.",
                code="file.damaged",
            )
        found.append(read_record(source, field.item, f"{path}/{name}", **{key: int(name)}))
    return tuple(sorted(found, key=lambda one: getattr(one, key)))


def _read_table(source: Checked, field: StoredField, path: str) -> tuple[Any, ...]:
    columns = _columns(field)
    stored = source.dataset(path).dtype.names or ()
    there = [column for column in columns if column.required or column.path in stored]
    rows = source.table(path, {column.path: KINDS.get(column.kind, "O") for column in there})
    found = []
    for row in rows:
        values = {column.name: _value(source, path, column, row[column.path]) for column in there}
        found.append(tuple(values.values()) if field.columns else field.item(**values))
    return tuple(found)


def _value(source: Checked, path: str, column: StoredField, value: Any) -> Any:
    if column.kind is Any:
        return source.parsed(path, value)
    if column.kind is str:
        return _text(value)
    return None if not column.required and math.isnan(value) else column.kind(value)


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


# JSON with arrays beside it


def to_json(record: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the plain values of a record for JSON, and its arrays by name."""
    plain: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    for field in fields(type(record)):
        value, name = getattr(record, field.name), field.checkpoint
        if is_array(field.kind):
            arrays |= {f"{name}/{key}": one for key, one in value.items()} if isinstance(value, dict) else {name: value}
        elif field.item is not None and dataclasses.is_dataclass(field.item):
            parts = [to_json(one) for one in value]
            plain[name] = [part for part, _ in parts]
            for number, (_, inner) in enumerate(parts):
                arrays |= {f"{name}/{number}/{key}": one for key, one in inner.items()}
        elif dataclasses.is_dataclass(field.kind) and value is not None:
            plain[name], inner = to_json(value)
            arrays |= {f"{name}/{key}": one for key, one in inner.items()}
        else:
            plain[name] = value
    return plain, arrays


def from_json(kind: type[Record], plain: dict[str, Any], arrays: dict[str, Any]) -> Record:
    """Return the record of `to_json`. Raise KeyError or TypeError if something is missing or unknown."""
    known = {field.checkpoint: field for field in fields(kind)}
    if unknown := {*plain} - {*known}:
        raise InvalidTypeError(
            f"its record has a field {sorted(unknown)[0]!r:.40}, which no version of ptynb writes; use another file.",
            code="file.damaged",
        )
    values: dict[str, Any] = {}
    for name, field in known.items():
        if is_array(field.kind):
            values[field.name] = _arrays_at(arrays, name) if typing.get_origin(field.kind) is dict else arrays[name]
        elif name in plain:
            values[field.name] = _from_plain(field, plain[name], arrays)
    return kind(**values)


def _arrays_at(arrays: dict[str, Any], name: str) -> dict[str, Any]:
    return {key.removeprefix(f"{name}/"): one for key, one in arrays.items() if key.startswith(f"{name}/")}


def _from_plain(field: StoredField, value: Any, arrays: dict[str, Any]) -> Any:
    if field.columns:
        kinds = typing.get_args(field.item)
        return tuple(tuple(kind(one) for kind, one in zip(kinds, row, strict=True)) for row in value)
    if field.item is not None and dataclasses.is_dataclass(field.item):
        kind = typing.cast(Any, field.item)
        return tuple(
            from_json(kind, one, _arrays_at(arrays, f"{field.checkpoint}/{number}")) for number, one in enumerate(value)
        )
    if dataclasses.is_dataclass(field.kind) and value is not None:
        return from_json(typing.cast(Any, field.kind), value, _arrays_at(arrays, field.checkpoint))
    return tuple(value) if field.item is not None and value is not None else value
