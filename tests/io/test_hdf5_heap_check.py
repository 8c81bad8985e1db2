"""Damaged texts are met with a sentence before libhdf5, which goes round in them for ever, has read any."""

import itertools
import struct

import h5py
import numpy as np
import pytest

from ptynb.io import hdf5_file
from ptynb.io.hdf5_file import open_for_reading
from tests.io.cases import of_case
from tests.raising import raises

FREE, TEXT = 0, 3
"""Numbers of objects in a heap: its free space, and one of its texts."""


@pytest.fixture(autouse=True)
def _looked_at_anew():
    """Damage within the same tick of the clock, and of the same length, is seen as well."""
    hdf5_file._damaged_heap.cache_clear()


def with_texts(path, **options):
    with h5py.File(path, "w", **options) as file:
        file["numbers"] = np.arange(5000.0)
        file["texts"] = [f"text {number}" for number in range(12)]
        file.attrs["unit"] = "m"
    return path


def lengths(path):
    """Number of each object -> where in the file its length stands, by the format's own description."""
    whole = path.read_bytes()
    at = whole.index(b"GCOL")
    end, found = at + struct.unpack_from("<Q", whole, at + 8)[0], {}
    at += 16
    while at + 16 <= end:
        number, length = struct.unpack_from("<H6xQ", whole, at)
        found[number] = at + 8
        at += 16 + (length + 7) // 8 * 8 if number else length
    return found


def damage(path, number, length):
    whole = bytearray(path.read_bytes())
    struct.pack_into("<Q", whole, lengths(path)[number], length)
    path.write_bytes(whole)
    return bytes(whole).index(b"GCOL")


def test_a_damaged_heap_is_a_sentence(tmp_path):
    for (number, length), options in itertools.product(
        [(FREE, 0), (FREE, 8), (FREE, 2**40), (TEXT, 2**13), (TEXT, 2**63), (TEXT, 2**64 - 17)],
        [{}, {"userblock_size": 512}, {"libver": "latest"}],
    ):
        with of_case((number, length, options), tmp_path) as home:
            path = with_texts(home / "damaged.h5", **options)
            place = damage(path, number, length)
            assert hdf5_file.damaged_heap(path) == place
            with (
                raises("file.damaged", path, place),
                open_for_reading(path),
            ):
                pass


def test_what_h5py_writes_is_sound(tmp_path):
    for version, count in itertools.product(["earliest", "v108", "v110", "v112", "v114", "latest"], [1, 100, 5000]):
        with of_case((version, count), tmp_path) as home:
            path = home / "sound.h5"
            with h5py.File(path, "w", libver=version) as file:
                for number in range(3):
                    file[f"texts {number}"] = ["word " * (place % 97) for place in range(count)]
                    file.attrs[f"unit {number}"] = "x" * (7 * number)
                file["texts 1"][:] = ["another"] * count
                file["long"] = "y" * 70_000
            assert path.read_bytes().count(b"GCOL") > 1
            assert hdf5_file.damaged_heap(path) is None


def test_lengths_of_4_bytes_are_left_to_libhdf5(tmp_path):
    path = tmp_path / "short.h5"
    plist = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    plist.set_sizes(8, 4)
    with h5py.File(h5py.h5f.create(bytes(path), h5py.h5f.ACC_TRUNC, plist)) as file:
        file["texts"] = ["one", "two"]
    assert b"GCOL" in path.read_bytes()
    assert hdf5_file.damaged_heap(path) is None


def test_texts_at_both_ends_of_a_long_file_are_looked_at(tmp_path, monkeypatch):
    path = tmp_path / "long.h5"
    with h5py.File(path, "w") as file:
        file["numbers"] = np.zeros(10**6)
        file["texts"] = ["one", "two", "three"]
    assert path.read_bytes().index(b"GCOL") > 8 * 10**6
    damage(path, FREE, 0)
    monkeypatch.setattr(hdf5_file, "CHECKED_BYTES", 10**5)
    assert hdf5_file.damaged_heap(path) is not None


def test_a_heap_is_found_wherever_a_piece_ends(tmp_path, monkeypatch):
    for shift in range(8):
        with of_case(shift, tmp_path) as home, monkeypatch.context() as patched:
            path = with_texts(home / "damaged.h5")
            place = damage(path, FREE, 0)
            patched.setattr(hdf5_file, "PIECE", place + shift)
            assert hdf5_file.damaged_heap(path) == place


def test_a_file_that_was_mended_is_looked_at_again(tmp_path):
    path = with_texts(tmp_path / "file.h5")
    sound = path.read_bytes()
    damage(path, FREE, 0)
    assert hdf5_file.damaged_heap(path) is not None
    path.write_bytes(sound + b"\0")
    assert hdf5_file.damaged_heap(path) is None
