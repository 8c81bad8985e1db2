import numpy as np
import pytest

from ptynb.exceptions import FileError
from ptynb.io.mask_file import load_mask, save_mask
from tests.io.cases import of_case

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
    for name in ["mask.tif", "nowhere/mask.npy", "nowhere/mask.h5"]:
        with of_case(name), pytest.raises(FileError, match=r"ends with \.npy, \.h5|There is no folder"):
            save_mask(MASK, tmp_path / name)


def test_what_is_no_mask_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"mask has shape \(12,\)"):
        save_mask(MASK[:, 0], tmp_path / "mask.npy")
    np.save(tmp_path / "other.npy", np.arange(12.0).reshape(3, 4))
    with pytest.raises(FileError, match=r"of shape .* float64; expected a mask"):
        load_mask(tmp_path / "other.npy")
    np.save(tmp_path / "pickled.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(FileError, match=r"not a readable \.npy"):
        load_mask(tmp_path / "pickled.npy")
    with pytest.raises(FileError, match="There is no file"):
        load_mask(tmp_path / "none.h5")
    with pytest.raises(FileError, match=r"ends with \.npy"):
        load_mask(tmp_path / "mask.png")
