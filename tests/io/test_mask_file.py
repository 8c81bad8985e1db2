import numpy as np

from ptynb.io.mask_file import load_mask, save_mask
from tests.io.cases import of_case
from tests.raising import raises

MASK = np.random.default_rng(0).uniform(size=(12, 9)) > 0.2


def test_a_mask_comes_back_and_replaces_an_older_one(tmp_path):
    for name in ["mask.npy", "mask.h5", "mask.hdf5"]:
        with of_case(name, tmp_path) as home:
            save_mask(~MASK, home / name)
            path = save_mask(MASK.astype(int), home / name)
            found = load_mask(path)
            assert found.dtype == bool
            np.testing.assert_array_equal(found, MASK)
            assert [file.name for file in home.iterdir()] == [name]


def test_other_places_are_refused(tmp_path):
    for name, code, fact in [
        ("mask.tif", "file.unknown-format", ".npy, .h5"),
        ("nowhere/mask.npy", "file.not-writable", tmp_path / "nowhere"),
        ("nowhere/mask.h5", "file.not-writable", tmp_path / "nowhere"),
    ]:
        with of_case(name), raises(code, fact):
            save_mask(MASK, tmp_path / name)


def test_what_is_no_mask_is_refused(tmp_path):
    with raises("argument.invalid-value", (12,)):
        save_mask(MASK[:, 0], tmp_path / "mask.npy")
    np.save(tmp_path / "other.npy", np.arange(12.0).reshape(3, 4))
    with raises("file.unexpected-content", tmp_path / "other.npy", (3, 4), "float64"):
        load_mask(tmp_path / "other.npy")
    np.save(tmp_path / "pickled.npy", np.array([{}], dtype=object), allow_pickle=True)
    with raises("file.damaged", tmp_path / "pickled.npy"):
        load_mask(tmp_path / "pickled.npy")
    with raises("file.not-found", tmp_path / "none.h5"):
        load_mask(tmp_path / "none.h5")
    with raises("file.unknown-format", "mask.png", ".npy"):
        load_mask(tmp_path / "mask.png")
