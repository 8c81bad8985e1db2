import numpy as np
import pytest

from ptynb.io.hdf5 import FileError
from ptynb.io.mask import load_mask, save_mask

MASK = np.random.default_rng(0).uniform(size=(12, 9)) > 0.2


@pytest.mark.parametrize("name", ["mask.npy", "mask.h5", "mask.hdf5"])
def test_a_mask_comes_back_and_replaces_an_older_one(tmp_path, name):
    save_mask(~MASK, tmp_path / name)
    path = save_mask(MASK.astype(int), tmp_path / name)
    found = load_mask(path)
    assert found.dtype == bool
    np.testing.assert_array_equal(found, MASK)
    assert [file.name for file in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["mask.tif", "nowhere/mask.npy", "nowhere/mask.h5"])
def test_other_places_are_refused(tmp_path, name):
    with pytest.raises(FileError, match=r"ends with \.npy, \.h5|There is no folder"):
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
