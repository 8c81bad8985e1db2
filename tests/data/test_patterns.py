"""Patterns in files are read where they lie, in any order, nothing twice."""

import dataclasses
import pickle

import h5py
import numpy as np
import pytest

from ptynb.data.patterns import (
    ArrayFrames,
    Frames,
    HDF5Frames,
    PlacedFrames,
    SelectedFrames,
    TransformedFrames,
    frames_of,
)
from ptynb.data.scan import Scan
from tests.parametrization import each

COUNT, WINDOW = 23, (6, 8)
PATTERNS = np.random.default_rng(0).integers(0, 60000, (COUNT, *WINDOW)).astype(np.uint16)
INDICES = np.array([3, 1, 20, 21, 22, 1, 9, 0])

# how it is stored -> whether each pattern lies whole and as it is at a place of its own
STORED = {
    "contiguous": ({}, True),
    "big-endian": ({"dtype": ">u2"}, True),
    "a chunk each": ({"chunks": (1, *WINDOW)}, True),
    "chunks of 5": ({"chunks": (5, *WINDOW)}, True),
    "compressed": ({"chunks": (5, *WINDOW), "compression": "gzip"}, False),
    "checksums": ({"chunks": (1, *WINDOW), "fletcher32": True}, False),
    "tiles": ({"chunks": (1, 3, 8)}, False),
    "compact": ({"compact": True}, False),
    "elsewhere": ({"external": True}, False),
}


def stored(folder, how, userblock=0):
    choices = dict(STORED[how][0])
    with h5py.File(folder / "patterns.h5", "w", userblock_size=userblock) as file:
        if choices.pop("external", False):
            choices["external"] = [(str(folder / "raw"), 0, h5py.h5f.UNLIMITED)]
        if choices.pop("compact", False):
            layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            layout.set_layout(h5py.h5d.COMPACT)
            space = h5py.h5s.create_simple(PATTERNS.shape)
            made = h5py.Dataset(h5py.h5d.create(file.id, b"frames", h5py.h5t.py_create(PATTERNS.dtype), space, layout))
            made[...] = PATTERNS
            return HDF5Frames.of(made)
        return HDF5Frames.of(
            file.create_dataset("frames", **{"shape": PATTERNS.shape, "data": PATTERNS, "dtype": "<u2", **choices})
        )


def taken(frames, indices):
    out = np.empty((len(indices), *frames.shape[1:]), frames.dtype)
    frames.take(np.asarray(indices, dtype=np.int64), out)
    return out


@each(("how", "userblock"), [*((how, 0) for how in STORED), ("contiguous", 512), ("a chunk each", 512)])
def test_patterns_come_in_the_order_asked_for_however_stored(tmp_path, how, userblock):
    frames = stored(tmp_path, how, userblock)
    local = frames.local()
    assert isinstance(local, PlacedFrames) == (STORED[how][1] and not userblock)
    for one in (frames, local, SelectedFrames.of(frames, np.arange(COUNT)).local()):
        assert one.in_file
        assert (one.shape, one.dtype) == (frames.shape, frames.dtype)
        for indices in (INDICES, INDICES[:1], INDICES[:0], np.arange(COUNT)):
            np.testing.assert_array_equal(taken(one, indices), PATTERNS[indices])
        np.testing.assert_array_equal(one.read(4, 9), PATTERNS[4:9])
        np.testing.assert_array_equal(one.part(np.arange(4, 9)).read(5, 6), PATTERNS[5:6])


def test_chunks_never_written_are_read_as_zeros(tmp_path):
    with h5py.File(tmp_path / "patterns.h5", "w") as file:
        dataset = file.create_dataset("frames", (COUNT, *WINDOW), "<u2", chunks=(1, *WINDOW))
        dataset[3] = PATTERNS[3]
        frames = HDF5Frames.of(dataset)
    assert frames.local() is frames
    np.testing.assert_array_equal(taken(frames.local(), [3, 4]), [PATTERNS[3], np.zeros(WINDOW)])


class Counted(ArrayFrames):
    """Frames of which five are stored together, and which note what is read of them."""

    reads: list

    @property
    def stored_together(self):
        return 5

    def read(self, start, stop):
        self.reads.append((start, stop))
        return super().read(start, stop)

    take = Frames.take


def test_what_lies_together_is_read_at_once():
    frames = Counted.of(PATTERNS)
    object.__setattr__(frames, "reads", [])
    np.testing.assert_array_equal(taken(frames, [4, 0, 2, 15, 20, 10]), PATTERNS[[4, 0, 2, 15, 20, 10]])
    assert frames.reads == [(0, 5), (10, 21)]


def brightened(patterns, first):
    """Pattern i times i + 1."""
    return patterns * (1.0 + np.arange(first, first + len(patterns)))[:, None, None]


def test_transformed_patterns_are_told_their_index(tmp_path):
    frames = TransformedFrames(stored(tmp_path, "compressed"), brightened, WINDOW, np.dtype(np.float64))
    expected = brightened(PATTERNS, 0)
    for one in (frames, frames.local(), dataclasses.replace(frames, source=ArrayFrames.of(PATTERNS))):
        np.testing.assert_array_equal(taken(one, INDICES), expected[INDICES])
        assert taken(one, []).shape == (0, *WINDOW)
    assert frames.in_file
    assert frames.stored_together == 5


def test_frames_in_memory_are_in_no_file():
    assert not ArrayFrames.of(PATTERNS).in_file
    selected = SelectedFrames.of(SelectedFrames.of(ArrayFrames.of(PATTERNS), np.arange(COUNT)[::-1]), INDICES)
    assert not selected.in_file
    for start, stop in ((0, len(INDICES)), (2, 4), (3, 3)):
        expected = PATTERNS[::-1][INDICES[start:stop]]
        np.testing.assert_array_equal(selected.read(start, stop), expected)
        np.testing.assert_array_equal(selected.part(np.arange(start, stop)).read(start, stop), expected)
    np.testing.assert_array_equal(taken(ArrayFrames.of(PATTERNS), INDICES), PATTERNS[INDICES])


@each("rows", [[1], [3], [7]])
def test_patterns_of_another_part_are_not_taken(rows):
    for held in ([2, 4, 6], []):
        with pytest.raises(AssertionError, match="another engine's part"):
            taken(ArrayFrames.of(PATTERNS).part(np.array(held, dtype=np.int64)), rows)


@each("part", [slice(None), slice(4, 11)])
def test_a_mapped_array_stays_in_its_file(tmp_path, part):
    np.save(tmp_path / "patterns.npy", PATTERNS)
    mapped = np.load(tmp_path / "patterns.npy", mmap_mode="r")[1:][part]
    scan = Scan.from_arrays(mapped, np.zeros((len(mapped), 2)))
    assert scan.frames.in_file
    sent = pickle.loads(pickle.dumps(scan)).frames
    for frames in (scan.frames, sent):
        np.testing.assert_array_equal(taken(frames, [3, 0, 6]), PATTERNS[1:][part][[3, 0, 6]])
        np.testing.assert_array_equal(frames.read(0, len(mapped)), PATTERNS[1:][part])


def test_mapped_arrays_that_don_t_lie_in_their_file_as_they_are_stay_in_memory(tmp_path):
    np.save(tmp_path / "patterns.npy", PATTERNS)
    changeable = np.load(tmp_path / "patterns.npy", mmap_mode="c")
    changeable[0] = 7
    mapped = np.load(tmp_path / "patterns.npy", mmap_mode="r")
    for array in (changeable, mapped[::2], mapped[:, :, 1:], mapped + 1):
        frames = frames_of(array)
        assert not frames.in_file
        np.testing.assert_array_equal(frames.read(0, len(array)), array)
