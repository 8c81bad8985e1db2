"""Scans whose patterns are empty are told; counts that cannot be, and axes that could be anything, are refused."""

import itertools

import h5py
import numpy as np
import pytest
import scipy.io
import tifffile
import zarr

import ptynb as pt
from ptynb.data.patterns import HDF5Frames
from ptynb.exceptions import PtynbWarning
from ptynb.io import load as load_module
from ptynb.io.file_info import info
from ptynb.io.load import load
from tests.io.cases import of_case, refused
from tests.raising import raises

COUNT = 40
POSITIONS = np.indices((5, 8)).reshape(2, -1).T * 3.0
GIVEN = {"positions": POSITIONS, "units": "pixels", "energy": 8e3, "distance": 2.0, "detector_pixel": (5e-5, 5e-5)}
EMPTY = np.zeros((COUNT, 16, 16), np.uint16)
LOOKED_AT = "0, 1, 5, 11, 16, 19, 22, 27, 33, 38, 39"


def hdf5(folder, patterns):
    with h5py.File(folder / "scan.h5", "w") as file:
        file["data"] = patterns
    return folder / "scan.h5"


def nexus(folder, patterns):
    with h5py.File(folder / "scan.nxs", "w") as file:
        group = file.create_group("entry/data")
        file["entry"].attrs["NX_class"] = "NXentry"
        group.attrs.update(NX_class="NXdata", signal="data")
        group["data"] = patterns
    return folder / "scan.nxs"


def cxi(folder, patterns):
    with h5py.File(folder / "scan.cxi", "w") as file:
        file["cxi_version"], file["entry_1/data_1/data"] = 160, patterns
    return folder / "scan.cxi"


def ptyd(folder, patterns):
    with h5py.File(folder / "scan.ptyd", "w") as file:
        file["meta/energy"], file["chunks/0/data"] = 8.0, patterns
    return folder / "scan.ptyd"


def emd(folder, patterns):
    with h5py.File(folder / "scan.emd", "w") as file:
        group = file.create_group("root/datacube")
        group.attrs["emd_group_type"] = "array"
        group["data"] = patterns
    return folder / "scan.emd"


def npy(folder, patterns):
    np.save(folder / "scan.npy", patterns)
    return folder / "scan.npy"


def mat(folder, patterns):
    scipy.io.savemat(folder / "scan.mat", {"dp": np.moveaxis(patterns, (-2, -1), (0, 1))})
    return folder / "scan.mat"


def mat73(folder, patterns):
    with h5py.File(folder / "scan.mat", "w") as file:
        file["dp"] = np.moveaxis(patterns, (-2, -1), (0, 1)).T
    return folder / "scan.mat"


def zarr_store(folder, patterns):
    made = zarr.create_array(
        folder / "scan.zarr", shape=patterns.shape, dtype=patterns.dtype, config={"write_empty_chunks": True}
    )
    made[...] = patterns
    return folder / "scan.zarr"


def tiff(folder, patterns):
    tifffile.imwrite(folder / "scan.tif", patterns, photometric="minisblack")
    return folder / "scan.tif"


FORMATS = {
    "HDF5": hdf5,
    "NeXus": nexus,
    "CXI": cxi,
    "ptyd": ptyd,
    "EMD": emd,
    "npy": npy,
    "mat 5": mat,
    "mat 7.3": mat73,
    "zarr": zarr_store,
    "TIFF": tiff,
}


def test_an_empty_scan_is_told(tmp_path):
    for form in ["HDF5", "npy", "mat 5", "zarr", "TIFF"]:
        with of_case(form, tmp_path) as home:
            path = FORMATS[form](home, EMPTY)
            with pytest.warns(PtynbWarning, match=rf"\({LOOKED_AT} of 40\)") as told:
                load(path, **GIVEN)
            assert len(told) == 1
            assert told[0].filename == __file__
            assert any(f"({LOOKED_AT} of 40)" in remark for remark in info(path, **GIVEN).notes)


def test_an_empty_scan_of_ptynb_is_told(tmp_path):
    with pytest.warns(PtynbWarning, match=r"All counts of the scan \(40 patterns\) are zero") as told:
        scan = pt.Scan.from_arrays(EMPTY, POSITIONS)
    assert told[0].filename == __file__
    pt.save_scan(scan, tmp_path / "scan.h5")
    with pytest.warns(PtynbWarning, match="All counts are zero"):
        load(tmp_path / "scan.h5")
    assert any("All counts are zero" in remark for remark in info(tmp_path / "scan.h5").notes)


def test_a_native_scan_with_counts_that_can_t_be_is_a_problem(tmp_path):
    scan = pt.Scan.from_arrays(np.where(np.eye(16) == 1, 5.0, -1.0)[None], POSITIONS[:1], clip_negative=True)
    pt.save_scan(scan, tmp_path / "scan.h5")
    with h5py.File(tmp_path / "scan.h5", "r+") as file:
        file.attrs["clip_negative"] = False
    assert "Pattern 0 has the count -1.0" in info(tmp_path / "scan.h5").problem


def test_one_pattern_with_counts_among_those_looked_at_is_enough(tmp_path):
    for number in [0, 19, 39]:
        with of_case(number, tmp_path) as home:
            patterns = EMPTY.copy()
            patterns[number, 3, 4] = 1
            assert len(load(hdf5(home, patterns), **GIVEN)) == COUNT
            assert not any("zero" in remark for remark in info(home / "scan.h5", **GIVEN).notes)


def test_counts_where_the_mask_is_false_are_none(tmp_path):
    """As of a mask that is inverted."""
    patterns = EMPTY.copy()
    patterns[:, 3, 4] = 7
    mask = np.ones((16, 16), bool)
    mask[3, 4] = False
    with pytest.warns(PtynbWarning, match="where the mask is True; invert"):
        load(hdf5(tmp_path, patterns), mask=mask, **GIVEN)
    load(tmp_path / "scan.h5", mask=~mask, **GIVEN)
    load(tmp_path / "scan.h5", **GIVEN)
    with pytest.warns(PtynbWarning, match="where the mask is True; is it inverted"):
        pt.Scan.from_arrays(patterns, POSITIONS, mask=mask)
    pt.Scan.from_arrays(patterns, POSITIONS, mask=~mask)


def reads(monkeypatch):
    """The patterns that are read from HDF5 from now on."""
    seen, original = [], HDF5Frames.read
    monkeypatch.setattr(
        HDF5Frames, "read", lambda frames, start, stop: (seen.append(start), original(frames, start, stop))[1]
    )
    return seen


def test_few_patterns_are_looked_at_of_many_and_fewer_where_chunks_are_large(tmp_path, monkeypatch):
    count = 200_000
    with h5py.File(tmp_path / "scan.h5", "w") as file:
        file.create_dataset("data", (count, 16, 16), np.uint16, chunks=(1000, 16, 16))[0, 0, 0] = 0
    given = {**GIVEN, "positions": np.indices((400, 500)).reshape(2, -1).T}
    seen = reads(monkeypatch)
    with pytest.warns(PtynbWarning, match="All counts are zero"):
        load(tmp_path / "scan.h5", **given)
    assert sorted(set(seen)) == [0, 1, 28571, 57142, 85713, 99999, 114285, 142856, 171427, 199998, 199999]
    seen.clear()
    monkeypatch.setattr(load_module, "MOST_BYTES", 3 * 1000 * 512)  # of three chunks
    with pytest.warns(PtynbWarning, match=r"\(0, 99999, 199999 of 200000\)"):
        load(tmp_path / "scan.h5", **given)
    assert sorted(set(seen)) == [0, 99999, 199999]


# Counts


def spoilt(pattern, value):
    patterns = np.ones((COUNT, 16, 16), np.result_type(np.float32, type(value)))
    patterns[pattern, 3, 4] = value
    return patterns


COUNTS = {
    "NaN in the first": (spoilt(0, np.nan), "scan.invalid-count", "Pattern 0", "nan", "(3, 4)"),
    "negative in the first": (spoilt(0, -1.0), "scan.invalid-count", "Pattern 0", "-1.0", "clip_negative"),
    "complex": (spoilt(0, 1j), "file.unexpected-content", "complex"),
}
ELSEWHERE = {
    "HDF5": "file.incomplete",
    "NeXus": "file.incomplete",
    "CXI": "argument.invalid-type",
    "ptyd": "argument.invalid-type",
    "zarr": "scan.missing-metadata",
}
"""Where complex patterns are refused by the scan, or, found by type and shape, are none."""


def test_counts_that_cannot_be_are_an_error_of_one_line(tmp_path):
    for form, case in itertools.product(["HDF5", "ptyd", "npy", "zarr"], COUNTS):
        with of_case((form, case), tmp_path) as home:
            patterns, code, *facts = COUNTS[case]
            if case == "complex" and form in ELSEWHERE:
                code, facts = ELSEWHERE[form], []
            refused(FORMATS[form](home, patterns), code, *facts, **GIVEN)


# Axes

FULL = np.arange(1, COUNT * 256 + 1).reshape(COUNT, 16, 16).astype(np.uint16)


def test_axes_that_could_be_anything_are_refused(tmp_path):
    """(a, b, c, y, x): which of them are the scan's, and what the third one is, would be guessed."""
    for form in FORMATS:
        with of_case(form, tmp_path) as home:
            path = FORMATS[form](home, FULL.reshape(2, 4, 5, 16, 16))
            shape = (16, 16, 2, 4, 5) if form.startswith("mat") else (2, 4, 5, 16, 16)
            with raises("file.unexpected-content", shape, "(pattern, y, x)", "Scan.from_arrays"):
                load(path, **GIVEN)
            scan = pt.Scan.from_arrays(FULL.reshape(2, 4, 5, 16, 16).sum(1).reshape(-1, 16, 16), POSITIONS[:10])
            assert len(scan) == 10


SINGLES = {
    (5, 8, 1, 16, 16): (5, 8),
    (1, 5, 8, 16, 16): (5, 8),
    (1, 1, 5, 8, 16, 16): (5, 8),
    (COUNT, 1, 1, 16, 16): None,
    (1, 1, COUNT, 16, 16): None,
}


def test_axes_of_length_one_count_for_nothing_in_hdf5(tmp_path):
    for form, shape in itertools.product(["HDF5", "NeXus", "ptyd"], SINGLES):
        with of_case((form, shape), tmp_path) as home:
            path = FORMATS[form](home, FULL.reshape(shape))
            np.testing.assert_array_equal(load(path, **GIVEN).counts(0, COUNT), FULL)
            raster = SINGLES[shape]
            if raster and form != "ptyd":
                given = {name: value for name, value in GIVEN.items() if name not in ("positions", "units")}
                placed = load(path, step=(2e-6, 1e-6), **given).positions
                steps = placed[[1, raster[1]]] - placed[0]
                assert steps[0, 0] == 0 != steps[0, 1]
                assert steps[1, 1] == 0 != steps[1, 0]
