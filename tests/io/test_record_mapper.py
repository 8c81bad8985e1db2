"""A field that is added to a record passes through every file: nothing else lists the fields of a record."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import h5py
import numpy as np
import pytest
from typing_extensions import TypeAliasType

from ptynb.data.record import Array, RunRecord, at
from ptynb.exceptions import FileError
from ptynb.io.checkpoint_file import load_state, save_state
from ptynb.io.reading.safe_reading import Checked
from ptynb.io.record_mapper import fields, from_json, read_record, to_json, write_record
from tests.io.results import FULL
from tests.io.test_checkpoint_file import a_state
from tests.parametrization import each


@dataclass(frozen=True)
class Shift:
    """A row of a table."""

    number: int
    operator: str
    plan: Any
    hours: float | None = field(default=None, metadata=at(unit="h"))


@dataclass(frozen=True, eq=False)
class Photo:
    """A group with arrays."""

    number: int
    object: Array
    colours: tuple[int, int] = field(default=(0, 0), metadata=at("object@colours"))


Scalar = TypeVar("Scalar", bound=np.generic)
ArrayAlias = TypeAliasType("ArrayAlias", np.ndarray[Any, np.dtype[Scalar]], type_params=(Scalar,))
"""As numpy 2.5 declares NDArray."""


@dataclass(frozen=True, eq=False)
class Aliased:
    """Arrays whose type is an alias by a type statement."""

    image: ArrayAlias[Any]
    mask: ArrayAlias[np.uint8] | None = None
    maps: dict[str, ArrayAlias[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Beamline:
    """A group in a group."""

    name: str = ""
    energy: float | None = field(default=None, metadata=at(unit="eV"))


@dataclass(frozen=True, eq=False, kw_only=True)
class LongerRecord(RunRecord):
    """A run's record with one more field of each type."""

    operator: str = field(default="", metadata=at("entry/operator"))
    visit: int = 0
    dose: float | None = field(default=None, metadata=at("exposure/dose", unit="1/m^2", checkpoint="given dose"))
    finished: bool = False
    names: tuple[str, ...] = ()
    step: tuple[float, float] | None = field(default=None, metadata=at(unit="m"))
    options: dict[str, Any] = field(default_factory=dict)
    level: int = field(default=0, metadata=at("epochs@level"))
    drift: tuple[tuple[int, float], ...] = field(default=(), metadata=at(columns=("epoch", "drift")))
    shifts: tuple[Shift, ...] = ()
    photos: tuple[Photo, ...] = ()
    beamline: Beamline = field(default_factory=Beamline)


COMMON = {one.name: getattr(FULL, one.name) for one in dataclasses.fields(RunRecord)}
PHOTO = np.arange(6, dtype=np.complex64).reshape(2, 3)
LONGER = LongerRecord(
    **COMMON,
    operator="Ada ß",
    visit=7,
    dose=1e24 / 3,
    finished=True,
    names=("α", "b"),
    step=(1e-7, 2e-7),
    options={"a": [1, None]},
    level=3,
    drift=((1, 0.5), (2, 1 / 3)),
    shifts=(Shift(1, "Ada", {"x": [1]}, 0.5), Shift(2, "Grace", None)),
    photos=(Photo(1, PHOTO, (2, 3)), Photo(12, PHOTO * 1j)),
    beamline=Beamline("ID 16", 8000.0),
)


def assert_same(one: Any, other: Any) -> None:
    (record, arrays), (others, theirs) = to_json(one), to_json(other)
    assert repr(record) == repr(others)
    assert arrays.keys() == theirs.keys()
    for name, values in arrays.items():
        assert values.dtype == theirs[name].dtype
        np.testing.assert_array_equal(values, theirs[name])


@each("record", [LONGER, LongerRecord()])
def test_a_field_of_each_type_passes_through_hdf5(record: LongerRecord, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        write_record(file, record)
    with h5py.File(tmp_path / "a.h5", "r") as file:
        assert_same(read_record(Checked(file, tmp_path / "a.h5"), LongerRecord), record)


def test_arrays_may_have_an_alias_as_their_type(tmp_path: Path) -> None:
    record = Aliased(PHOTO, PHOTO.real.astype(np.uint8), {"phase": PHOTO.imag})
    plain, arrays = to_json(record)
    assert_same(from_json(Aliased, json.loads(json.dumps(plain)), arrays), record)
    assert {*arrays} == {"image", "mask", "maps/phase"}
    with h5py.File(tmp_path / "a.h5", "w") as file:
        write_record(file, dataclasses.replace(record, maps={}))
    with h5py.File(tmp_path / "a.h5", "r") as file:
        read = read_record(Checked(file, tmp_path / "a.h5"), Aliased, maps=record.maps)
        assert_same(read, record)


def test_units_and_names_are_those_of_the_field(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        write_record(file, LONGER)
        assert file["exposure/dose"].attrs["units"] == "1/m^2"
        assert file["beamline/energy"].attrs["units"] == "eV"
        assert file["shifts"].dtype.names == ("number", "hours", "operator", "plan")
        assert file["shifts"].attrs["units"].tolist() == ["", "h", "", "JSON"]
        assert file["drift"].dtype == [("epoch", "<i8"), ("drift", "<f8")]
        assert file["epochs"].attrs["level"] == 3
        assert [*file["photos"]] == ["000001", "000012"]


@each("record", [LONGER, LongerRecord()])
def test_a_field_of_each_type_passes_through_json(record: LongerRecord) -> None:
    plain, arrays = to_json(record)
    assert plain["given dose"] == record.dose
    assert_same(from_json(LongerRecord, json.loads(json.dumps(plain)), arrays), record)


def test_a_file_without_a_field_gives_its_default_or_is_incomplete(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        write_record(file, LONGER)
        del file["exposure"], file["epochs"].attrs["level"]
    with h5py.File(path, "r+") as file:
        found = read_record(Checked(file, path), LongerRecord)
        assert (found.dose, found.level, found.operator) == (None, 0, "Ada ß")
        del file["changes"]
        with pytest.raises(FileError, match="changes"):
            read_record(Checked(file, path), LongerRecord)


def test_the_record_in_a_checkpoint_is_that_of_the_run(tmp_path: Path) -> None:
    state = dataclasses.replace(a_state(), **COMMON)
    found = load_state(save_state(state, tmp_path / "state-00003.h5"))
    for one in fields(RunRecord):
        if one.name not in ("history", "admissions"):
            assert getattr(found, one.name) == getattr(FULL, one.name), one.name
    np.testing.assert_equal(vars(found.admissions), vars(FULL.admissions))
    for mine, theirs in zip(found.history, FULL.history, strict=True):
        assert_same(mine, theirs)
