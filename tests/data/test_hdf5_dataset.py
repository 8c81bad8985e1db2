"""Grids of patterns, chunks across them, several files, compressed ones: read where they lie, nothing twice."""

import pickle
import sys

import h5py
import hdf5plugin
import numpy as np
import pytest

from ptynb.data.patterns import ArrayFrames, HDF5Frames, PlacedFrames, StackedFrames
from ptynb.exceptions import PtynbWarning
from ptynb.io.load import load
from ptynb.io.reading.hdf5_reading import array
from tests.data.test_patterns import taken
from tests.parametrization import each
from tests.raising import raises

GRID, WINDOW = (5, 7), (6, 8)
PATTERNS = np.random.default_rng(0).integers(0, 60000, (35, *WINDOW)).astype(np.uint16)
INDICES = np.array([3, 33, 1, 20, 21, 22, 1, 9, 0, 34, 14])

# how a grid is stored -> (whether each pattern lies whole at a place of its own, patterns that are read together)
STORED = {
    "contiguous": ({}, True, 1),
    "a chunk each": ({"chunks": (1, 1, *WINDOW)}, True, 1),
    "chunks of part of a row": ({"chunks": (1, 3, *WINDOW)}, True, 3),
    "chunks across rows": ({"chunks": (2, 3, *WINDOW), "compression": "gzip"}, False, 14),
    "chunks across rows and patterns": ({"chunks": (2, 4, 3, 8)}, False, 14),
    "bitshuffle": ({"chunks": (1, 1, *WINDOW), **hdf5plugin.Bitshuffle()}, False, 1),
    "LZ4": ({"chunks": (5, 7, *WINDOW), **hdf5plugin.LZ4()}, False, 35),
}


def test_patterns_are_read_while_another_thread_has_their_dataset_open(tmp_path):
    """Two loads of one file in a notebook; HDF5 refuses another prefix of raw files for an open dataset."""
    path = tmp_path / "open.h5"
    with h5py.File(path, "w") as file:
        frames = HDF5Frames.of(file.create_dataset("frames", data=PATTERNS, chunks=(5, *WINDOW), compression="gzip"))
    with h5py.File(path, "r") as file:
        held = file["frames"]
        np.testing.assert_array_equal(frames.read(0, 35), PATTERNS)
        assert held.shape == PATTERNS.shape


@each("how", STORED)
def test_a_grid_of_patterns_is_counted_row_by_row_however_it_is_stored(tmp_path, how):
    choices, placed, together = STORED[how]
    with h5py.File(tmp_path / "grid.h5", "w") as file:
        frames = HDF5Frames.of(file.create_dataset("frames", data=PATTERNS.reshape(*GRID, *WINDOW), **choices))
    assert frames.shape == PATTERNS.shape
    assert frames.stored_together == together
    local = pickle.loads(pickle.dumps(frames)).local()
    assert isinstance(local, PlacedFrames) == placed
    for one in (frames, local):
        for indices in (INDICES, INDICES[:1], INDICES[:0], np.arange(35)):
            np.testing.assert_array_equal(taken(one, indices), PATTERNS[indices])
        for start, stop in ((0, 35), (4, 9), (6, 8), (7, 21), (13, 30), (34, 35), (5, 5)):
            np.testing.assert_array_equal(one.read(start, stop), PATTERNS[start:stop])


def test_a_grid_of_three_axes_is_counted_too(tmp_path):
    with h5py.File(tmp_path / "grid.h5", "w") as file:
        made = file.create_dataset("frames", data=PATTERNS[:30].reshape(2, 3, 5, *WINDOW), chunks=(1, 2, 2, *WINDOW))
        frames = HDF5Frames.of(made)
    np.testing.assert_array_equal(frames.read(3, 28), PATTERNS[3:28])
    np.testing.assert_array_equal(frames.local().read(3, 28), PATTERNS[3:28])


def test_a_sequence_of_patterns_decompresses_no_chunk_twice(tmp_path, monkeypatch):
    with h5py.File(tmp_path / "grid.h5", "w") as file:
        grid = PATTERNS.reshape(*GRID, *WINDOW)
        frames = HDF5Frames.of(file.create_dataset("frames", data=grid, chunks=(2, 7, *WINDOW), compression="gzip"))
    read, original = [], h5py.Dataset.read_direct

    def noted(dataset, target, place):
        read.append(place)
        return original(dataset, target, place)

    monkeypatch.setattr(h5py.Dataset, "read_direct", noted)
    for start in range(0, 35, frames.stored_together):
        frames.take(
            np.arange(start, min(35, start + frames.stored_together)), np.empty((14, *WINDOW), np.uint16)[: 35 - start]
        )
    assert read == [(slice(0, 2),), (slice(2, 4),), (slice(4, 5),)]


def several(tmp_path):
    parts = []
    for number, (start, stop) in enumerate(((0, 5), (5, 6), (6, 20))):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            parts.append(HDF5Frames.of(file.create_dataset("frames", data=PATTERNS[start:stop])))
    return StackedFrames.of([*parts, ArrayFrames.of(PATTERNS[20:])])


def test_patterns_of_several_files_are_read_from_those_that_have_them(tmp_path):
    frames = several(tmp_path)
    for one in (frames, frames.local(), pickle.loads(pickle.dumps(frames.part(np.arange(4, 22))))):
        assert (one.shape, one.dtype, one.in_file) == (PATTERNS.shape, PATTERNS.dtype, True)
        np.testing.assert_array_equal(one.read(4, 22), PATTERNS[4:22])
        np.testing.assert_array_equal(taken(one, [21, 4, 5, 6, 4, 19]), PATTERNS[[21, 4, 5, 6, 4, 19]])
    assert len(pickle.dumps(frames.part(np.arange(5)))) < len(pickle.dumps(frames)) - PATTERNS[20:].nbytes / 2
    (tmp_path / "1.h5").unlink()
    np.testing.assert_array_equal(taken(frames, [0, 8]), PATTERNS[[0, 8]])
    with raises("scan.patterns-unreadable", "Patterns 0 to 0", "1.h5"):
        frames.read(4, 7)


def test_parts_of_other_sizes_or_types_are_refused():
    with raises("array.shape-mismatch", "6 x 8", "8 x 6", "uint16"):
        StackedFrames.of([ArrayFrames.of(PATTERNS), ArrayFrames.of(PATTERNS.reshape(35, 8, 6))])
    assert StackedFrames.of([one := ArrayFrames.of(PATTERNS)]) is one


def test_chunks_begin_where_they_do_in_all_files_or_are_not_counted_through(tmp_path):
    parts = []
    for name, count in (("a", 6), ("b", 4), ("c", 5)):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            made = file.create_dataset("frames", data=PATTERNS[:count], chunks=(2, *WINDOW), compression="gzip")
            parts.append(HDF5Frames.of(made))
    assert StackedFrames.of(parts).stored_together == 2
    assert StackedFrames.of(parts[::-1]).stored_together == 1


def test_a_filter_that_is_not_there_is_named_with_what_to_install(tmp_path, monkeypatch):
    with h5py.File(tmp_path / "packed.h5", "w") as file:
        frames = HDF5Frames.of(file.create_dataset("frames", data=PATTERNS, **hdf5plugin.Bitshuffle()))
    monkeypatch.setattr(h5py.h5z, "filter_avail", lambda number: False)
    monkeypatch.setitem(sys.modules, "hdf5plugin", None)
    with raises("package.not-installed", "packed.h5", "bitshuffle", 32008, "pip install hdf5plugin"):
        frames.read(0, 1)
    with h5py.File(tmp_path / "packed.h5", "r") as file, raises("package.not-installed", "pip install hdf5plugin"):
        array(file["frames"], "positions")


def test_a_scan_larger_than_memory_is_opened_by_two_patterns(tmp_path, monkeypatch):
    """200,000 patterns of 256 x 256, 26 GB as they are announced: two are read, the first and the last."""
    count = 200_000
    path = tmp_path / "large.cxi"
    with h5py.File(path, "w") as file:
        file["cxi_version"] = 160
        made = file.create_dataset("entry_1/data_1/data", (count, 256, 256), np.uint16, chunks=(4, 256, 256))
        made[0] = 1
        rows, columns = np.divmod(np.arange(count), 500)
        file["entry_1/data_1/translation"] = np.column_stack([columns, rows, 0 * rows]) * 1e-7
        detector = file.create_group("entry_1/instrument_1/detector_1")
        detector["distance"], detector["x_pixel_size"], detector["y_pixel_size"] = 2.0, 75e-6, 75e-6
        file["entry_1/instrument_1/source_1/energy"] = 1.3e-15
    read = []
    original = HDF5Frames.read
    monkeypatch.setattr(
        HDF5Frames, "read", lambda frames, start, stop: (read.append((start, stop)), original(frames, start, stop))[1]
    )
    with pytest.warns(PtynbWarning, match=r"take 26\.2 GB in memory and only 524 kB in the file"):
        scan = load(path)
    assert len(scan) == count
    assert sorted(read) == [(0, 1), (count - 1, count)]
    assert len(pickle.dumps(scan.frames)) < 2000
