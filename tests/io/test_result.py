import dataclasses

import h5py
import numpy as np
import pytest

from ptynb.io.hdf5 import FileError
from ptynb.io.result import load_result, save_result
from ptynb.physics.simulate import simulate
from ptynb.settings import Settings
from ptynb.snapshot import Change, Epoch, Result

RANDOM = np.random.default_rng(0)
ARRAYS = ("object", "probe", "positions")


def complex_array(*shape):
    return (RANDOM.standard_normal(shape) + 1j * RANDOM.standard_normal(shape)).astype(np.complex64)


FULL = Result(
    object=complex_array(30, 33),
    probe=complex_array(3, 8, 10),
    positions=RANDOM.uniform(0, 20, (9, 2)),
    origin=(-4, 7),
    epochs=(Epoch(1, 0.5, 0.25, 36.5), Epoch(2, 0.1 + 0.2, 1 / 3, 27.0)),
    r_factor=0.1 + 0.02,
    settings=Settings(batch=5).model_dump(mode="json"),
    changes=(Change(1, 3, "probe.rate", 0.01, 1e-5), Change(1, 4, "note", None, "β")),
    pixel_size=(1.25e-8, 2.5e-8),
    about={"scan": "a name with ü", "backend": "gloo"},
)
BARE = dataclasses.replace(FULL, epochs=(), changes=(), pixel_size=None, about={}, settings={})


@pytest.mark.parametrize("result", [FULL, BARE], ids=["full", "bare"])
def test_a_result_comes_back(tmp_path, result):
    again = load_result(save_result(result, tmp_path / "result.h5"))
    for name in ARRAYS:
        assert getattr(again, name).dtype == getattr(result, name).dtype
        np.testing.assert_array_equal(getattr(again, name), getattr(result, name))
    for field in dataclasses.fields(Result):
        if field.name not in ARRAYS:
            assert getattr(again, field.name) == getattr(result, field.name), field.name


def test_what_comes_back_has_plain_types(tmp_path):
    again = load_result(save_result(FULL, tmp_path / "result.h5"))
    values = [*again.origin, *again.pixel_size, again.r_factor, *dataclasses.astuple(again.epochs[0])]
    assert [type(value) for value in values] == [int, int, float, float, float, int, float, float, float, type(None)]


def test_settings_come_back_as_settings(tmp_path):
    again = load_result(save_result(FULL, tmp_path / "result.h5"))
    assert Settings(**again.settings) == Settings(batch=5)


def test_an_existing_result_is_replaced(tmp_path):
    path = tmp_path / "result.h5"
    save_result(FULL, path)
    save_result(BARE, path)
    assert load_result(path).epochs == ()


UNWRITABLE = {
    "positions": dataclasses.replace(FULL, positions=np.array([object()])),
    "settings": dataclasses.replace(FULL, settings={"batch": object()}),
    "changes": dataclasses.replace(FULL, changes=(Change(1, 1, "batch", 1, object()),)),
}


@pytest.mark.parametrize("part", UNWRITABLE)
def test_a_crash_while_writing_leaves_the_old_file(tmp_path, part):
    path = tmp_path / "result.h5"
    save_result(FULL, path)
    before = path.read_bytes()
    with pytest.raises(TypeError):
        save_result(UNWRITABLE[part], path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("part", UNWRITABLE)
def test_a_crash_while_writing_leaves_no_file(tmp_path, part):
    with pytest.raises(TypeError):
        save_result(UNWRITABLE[part], tmp_path / "result.h5")
    assert list(tmp_path.iterdir()) == []


def test_a_scan_is_no_result(tmp_path):
    simulate(4, window=16, path=tmp_path / "scan.h5")
    with pytest.raises(FileError, match=r"scan\.h5 is not a result of ptynb; scans are opened with load"):
        load_result(tmp_path / "scan.h5")


def test_a_foreign_file_is_no_result(tmp_path):
    with h5py.File(tmp_path / "foreign.h5", "w") as file:
        file["object"] = np.ones((3, 3))
    with pytest.raises(FileError, match="is not a result of ptynb"):
        load_result(tmp_path / "foreign.h5")


def test_text_is_no_result(tmp_path):
    (tmp_path / "text.h5").write_text("object")
    with pytest.raises(FileError, match="is not a readable HDF5 file"):
        load_result(tmp_path / "text.h5")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileError, match=r"There is no file .*nowhere\.h5"):
        load_result(tmp_path / "nowhere.h5")


def test_a_newer_result_is_refused(tmp_path):
    path = save_result(FULL, tmp_path / "result.h5")
    with h5py.File(path, "r+") as file:
        file.attrs["version"] = 3
    with pytest.raises(FileError, match=r"of version 3; this ptynb reads versions 1 to 2\. Update ptynb"):
        load_result(path)


@pytest.mark.parametrize("name", ["object", "probe", "positions", "epochs", "changes"])
def test_a_result_without_a_dataset_is_refused(tmp_path, name):
    path = save_result(FULL, tmp_path / "result.h5")
    with h5py.File(path, "r+") as file:
        del file[name]
    with pytest.raises(FileError, match=f"has no dataset {name}; the file is incomplete"):
        load_result(path)


def test_other_programs_find_the_pixel_size_in_metres(tmp_path):
    with h5py.File(save_result(FULL, tmp_path / "result.h5"), "r") as file:
        assert file["object"].attrs["pixel_size"].tolist() == [1.25e-8, 2.5e-8]
        assert file["object"].attrs["pixel_size_unit"] == "m"
        assert file["epochs"]["loss"].tolist() == FULL.losses.tolist()


def test_what_else_was_found_comes_back_by_part_and_name(tmp_path):
    found = {
        "weights/weights": np.arange(3.0),
        "slices/thickness": np.array(2e-9),
        "variations/ways": np.ones((1, 2, 2)) * 1j,
    }
    whole = dataclasses.replace(FULL, object=np.stack([FULL.object] * 3), optimised=found)
    back = load_result(save_result(whole, tmp_path / "thick.h5"))
    assert back.object.shape == whole.object.shape
    assert back.optimised.keys() == found.keys()
    for name, values in found.items():
        np.testing.assert_array_equal(back.optimised[name], values)
