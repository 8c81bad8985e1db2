"""Compressed patterns, against HDF5's own filters, and what is damaged."""

import struct

import h5py
import hdf5plugin
import numpy as np
import pytest

from ptynb.acquisition import compression
from ptynb.acquisition.compression import Packed, pack_bslz4, pack_h5lz4, pack_lz4
from tests.raising import raises

RANDOM = np.random.default_rng(0)
FILTERS = {
    "h5bslz4": hdf5plugin.Bitshuffle(),
    "h5lz4": hdf5plugin.LZ4(),
    "blosc": hdf5plugin.Blosc(cname="zstd", shuffle=hdf5plugin.Blosc.BITSHUFFLE),
}


def counts_of(dtype, shape=(33, 47)):
    """More than one block, numbers left over at the end, and some that do not become smaller."""
    high = 256 if np.dtype(dtype).itemsize == 1 else 60000
    counts = RANDOM.poisson(3, shape).astype(dtype)
    counts[:9] = RANDOM.integers(0, high, (9, shape[1])).astype(dtype)
    return counts


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "i4", "f8"])
@pytest.mark.parametrize("kind", FILTERS)
def test_what_a_filter_of_hdf5_has_stored_is_unpacked(kind, dtype):
    counts = counts_of(dtype)
    with h5py.File("one", "w", driver="core", backing_store=False) as file:
        stored = file.create_dataset("one", data=counts, chunks=counts.shape, **FILTERS[kind])
        _, octets = stored.id.read_direct_chunk((0, 0))
    unpacked = Packed(octets, counts.shape, counts.dtype, kind).counts()
    np.testing.assert_array_equal(unpacked, counts)


@pytest.mark.parametrize("exported", [True, False])
@pytest.mark.parametrize("dtype", ["u1", "u2", ">u2", "u4"])
def test_what_emulators_pack_is_unpacked(monkeypatch, dtype, exported):
    """By the library itself, and where hdf5plugin does not export it."""
    counts = counts_of(dtype)
    packed = {
        "none": counts.tobytes(),
        "lz4": pack_lz4(counts),
        "h5lz4": pack_h5lz4(counts, 1000),
        "bslz4": pack_bslz4(counts)[12:],
        "h5bslz4": pack_bslz4(counts),
    }
    if not exported:
        monkeypatch.setattr(compression, "_library", lambda: None)
    for kind, octets in packed.items():
        unpacked = Packed(memoryview(octets), counts.shape, counts.dtype, kind).counts()
        np.testing.assert_array_equal(unpacked, counts)
        assert unpacked.dtype == counts.dtype


@pytest.mark.parametrize("exported", [True, False])
@pytest.mark.parametrize("kind", ["none", "lz4", "h5lz4", "bslz4", "h5bslz4", "blosc"])
def test_damaged_bytes_cost_their_pattern_only(monkeypatch, kind, exported):
    counts = counts_of("u2")
    pack = {"lz4": pack_lz4, "h5lz4": pack_h5lz4, "bslz4": lambda array: pack_bslz4(array)[12:], "h5bslz4": pack_bslz4}
    octets = pack.get(kind, lambda array: array.tobytes())(counts)
    if not exported:
        monkeypatch.setattr(compression, "_library", lambda: None)
    for broken in (octets[:-1], octets + b"\0", b"", octets[:7], bytes(len(octets))):
        if kind == "none" and len(broken) == len(octets):
            continue  # zeros are counts
        with raises("acquisition.damaged-message"):
            Packed(broken, counts.shape, counts.dtype, kind).counts()
    for shape in ((33, 46), (34, 47), (4096, 4096)):
        with raises("acquisition.damaged-message"):
            Packed(octets, shape, counts.dtype, kind).counts()


def test_sizes_that_are_announced_are_checked_before_anything_is_unpacked():
    counts = counts_of("u2")
    octets = bytearray(pack_bslz4(counts))
    for place, form, value in (
        (0, ">Q", 2**62),
        (8, ">I", 2**31),
        (8, ">I", 2 * 4),
        (12, ">I", 2**32 - 1),
        (12, ">I", 0),
    ):
        broken = bytearray(octets)
        struct.pack_into(form, broken, place, value)
        with raises("acquisition.damaged-message"):
            Packed(bytes(broken), counts.shape, counts.dtype, "h5bslz4").counts()
