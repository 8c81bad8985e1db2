"""What a file claims: decided before it is unpacked, kept to while it is, and told where it is much."""

import functools
import io
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io
import tifffile
import zarr

import ptynb as pt
from ptynb.data.patterns import ArrayFrames
from ptynb.exceptions import FileError, PtynbWarning
from ptynb.io import file_info as info_module
from ptynb.io import load as load_module
from ptynb.io.file_info import info
from ptynb.io.formats import npy as npy_module
from ptynb.io.load import load
from ptynb.io.reading import packed_patterns, safe_reading
from tests.fuzz.seeds import SEEDS
from tests.fuzz.worker import READERS
from tests.io.cases import of_case
from tests.io.formats.test_npy import header
from tests.raising import raises
from tests.remedy_cases import Case, follow

COUNTS = np.random.default_rng(0).integers(0, 1000, (24, 16, 16)).astype(np.uint16)
POSITIONS = np.indices((4, 6)).reshape(2, -1).T * 3.0
KNOWN = {"energy": 8e3, "distance": 2.0, "detector_pixel": (5e-5, 5e-5)}
GIVEN = {"positions": POSITIONS, "units": "pixels", **KNOWN}


def npz(folder, patterns=COUNTS, **more):
    np.savez_compressed(folder / "scan.npz", patterns=patterns, **more)
    return folder / "scan.npz"


def mat(folder, patterns=COUNTS):
    scipy.io.savemat(folder / "scan.mat", {"dp": patterns.transpose(1, 2, 0)}, do_compression=True)
    return folder / "scan.mat"


def mat73(folder, patterns=COUNTS):
    """(pattern, y, x) as MATLAB counts axes: HDF5 has them in reverse, and the numbers of a pattern lie scattered."""
    with h5py.File(folder / "scan.mat", "w") as file:
        file["dp"] = patterns.T
    return folder / "scan.mat"


PACKED = {"npz": npz, "npz, big-endian": lambda folder: npz(folder, COUNTS.astype(">u2")), "mat": mat, "mat 7.3": mat73}


def test_many_packed_patterns_are_told_before_they_are_unpacked(tmp_path, monkeypatch):
    for kind in PACKED:
        with of_case(kind, tmp_path) as home, monkeypatch.context() as patched:
            patched.setattr(load_module, "LARGE", COUNTS.nbytes)
            with pytest.warns(
                PtynbWarning, match=r"24 patterns of 16 x 16, uint16, are packed in .*12\.3 kB of memory"
            ) as told:
                load(PACKED[kind](home), **GIVEN)
            assert told[0].filename == __file__
            patched.setattr(load_module, "LARGE", COUNTS.nbytes + 1)
            scan = load(PACKED[kind](home), **GIVEN)
            assert isinstance(scan.frames, ArrayFrames)
            assert scan.frames.dtype.isnative
            np.testing.assert_array_equal(scan.counts(0, 24), COUNTS)


def test_what_is_in_a_file_is_told_without_unpacking_many_patterns(tmp_path, monkeypatch):
    for kind in PACKED:
        with of_case(kind, tmp_path) as home, monkeypatch.context() as patched:
            path = PACKED[kind](home)
            patched.setattr(
                packed_patterns.PackedFrames, "unpacked", lambda frames: pytest.fail("patterns are unpacked")
            )
            patched.setattr(info_module, "QUICK", COUNTS.nbytes - 1)
            found = info(path, **GIVEN)
            facts = {fact.name: fact.value for fact in found.facts}
            assert facts["patterns"] == "24 of 16 x 16, uint16"
            assert facts["patterns in memory"] == "0.01229"
            assert facts["object"] == "25 x 31"
            assert found.problem is None
            assert any("None of them was read" in remark for remark in found.notes)


def test_patterns_that_don_t_fit_into_memory_are_a_problem_of_the_file(tmp_path, monkeypatch):
    for given, kind in [(GIVEN, "npz"), (GIVEN, "mat"), (GIVEN, "mat 7.3"), ({}, "npz")]:
        with of_case((given, kind), tmp_path) as home, monkeypatch.context() as patched:
            path = PACKED[kind](home)
            patched.setattr(info_module, "QUICK", 0)
            patched.setattr(safe_reading, "SHARE", 1e-9)
            found = info(path, **given)
            assert "announces" in found.problem
            assert "half of the" in found.problem
            assert {fact.name: fact.value for fact in found.facts}["patterns"] == "24 of 16 x 16, uint16"
            with raises("file.too-large", path, "store the patterns uncompressed"):
                load(path, **given)
            np.save(home / "scan.npy", COUNTS)
            load(home / "scan.npy", **GIVEN)


def interrupted_at_the_second(pieces):
    """Instead of `UnpackingProgress.add`: notes the pieces, and is interrupted at the second."""
    original = packed_patterns.UnpackingProgress.add

    def add(progress, octets):
        pieces.append(octets)
        original(progress, octets)
        if len(pieces) == 2:
            raise KeyboardInterrupt

    return add


def test_how_far_the_unpacking_is_is_told_in_a_log_and_it_can_be_interrupted(tmp_path, monkeypatch, capsys):
    for kind in ["npz", "mat"]:
        with of_case(kind, tmp_path) as home, monkeypatch.context() as patched:
            path = PACKED[kind](home)
            capsys.readouterr()
            load(path, **GIVEN)
            assert capsys.readouterr().err == ""
            patched.setattr(packed_patterns, "LINE_SECONDS", 0.0)
            for module in (npy_module, pt.io.formats.mat5):
                patched.setattr(module, "PIECE", 4096)
            load(path, **GIVEN)
            lines = capsys.readouterr().err.splitlines()
            assert len(lines) >= 3
            assert "4.1 kB of 12.3 kB are unpacked" in lines[0]
            assert str(path) in lines[0]
            pieces = []
            patched.setattr(packed_patterns.UnpackingProgress, "add", interrupted_at_the_second(pieces))
            with pytest.raises(KeyboardInterrupt):
                load(path, **GIVEN)
            assert pieces == [4096, 4096]


# Archives


def archive(path, content, claimed=None, checked=None, method=zipfile.ZIP_DEFLATED):
    """An archive with patterns; its directory claims `claimed` bytes, with the checksum of as many."""
    with zipfile.ZipFile(path, "w", method) as made:
        made.writestr("patterns.npy", content)
        member = made.infolist()[0]
        if claimed is not None:
            member.file_size = claimed
            member.CRC = zlib.crc32(content[:claimed] if checked is None else checked)
    # The header in front of the member has to say the same.
    octets = bytearray(path.read_bytes())
    struct.pack_into("<I", octets, 14, member.CRC)
    struct.pack_into("<I", octets, 22, member.file_size)
    path.write_bytes(octets)
    return path


def test_no_more_is_unpacked_than_is_announced(tmp_path):
    """50 MB behind patterns of 12 kB."""
    whole = header(COUNTS.shape, "<u2", data=COUNTS.tobytes())
    path = archive(tmp_path / "scan.npz", whole + bytes(50 * 10**6), claimed=len(whole))
    tracemalloc.start()
    try:
        np.testing.assert_array_equal(load(path, **GIVEN).counts(0, 24), COUNTS)
        assert tracemalloc.get_traced_memory()[1] < 10**7
    finally:
        tracemalloc.stop()


def test_a_member_of_another_content_than_its_directory_says_is_refused(tmp_path):
    whole = header(COUNTS.shape, "<u2", data=COUNTS.tobytes())
    path = archive(tmp_path / "scan.npz", whole + bytes(50 * 10**6), claimed=len(whole), checked=b"")
    with pytest.raises(FileError, match=r"can't be read at patterns\.npy \(Bad CRC"):
        load(path, **GIVEN)


def test_a_header_that_announces_more_than_there_is_is_refused(tmp_path):
    """8 MB announced by both headers, of which 12 kB are there: nothing is made for the rest."""
    content = header((16384, 16, 16), "<u2", data=COUNTS.tobytes())
    path = archive(tmp_path / "scan.npz", content, claimed=128 + 16384 * 512)
    given = {**KNOWN, "raster": (128, 128), "step": (1e-8, 1e-8)}
    with pytest.raises(FileError, match=r"can't be read at patterns\.npy \(.*\); write it again with numpy\.savez"):
        load(path, **given)


def test_what_zipfile_unpacks_in_pieces_of_any_size_is_packed_again_as_the_message_says(tmp_path):
    def packed(method):
        content = io.BytesIO()
        np.save(content, COUNTS)
        return archive(tmp_path / "scan.npz", content.getvalue(), method=method)

    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        case = Case(
            lambda _, method=method: load(packed(method), **GIVEN),
            "expected deflate (8) or none (0): pack the archive again with one of these",
            lambda *_: [
                load(packed(other), **GIVEN).counts(0, 24) for other in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
            ],
        )
        with of_case(method):
            for counts in follow(case, tmp_path):
                np.testing.assert_array_equal(counts, COUNTS)


# Chunks and pages that unpack to more than they are


ZEROS = 2 * 10**8


@functools.cache
def zeros(wbits):
    """200 MB of zeros, packed once: 0.2 MB."""
    packer = zlib.compressobj(9, wbits=wbits)
    return b"".join([*(packer.compress(bytes(10**7)) for _ in range(ZEROS // 10**7)), packer.flush()])


def swollen(numbers):
    """A whole stream of zlib's with these numbers and then the zeros, and the checksum (Adler-32) of both."""
    packer, check = zlib.compressobj(9), zlib.adler32(numbers)
    begun = packer.compress(numbers) + packer.flush(zlib.Z_FULL_FLUSH)
    low, high = check & 0xFFFF, check >> 16
    return begun + zeros(-15) + struct.pack(">2H", (high + ZEROS * low) % 65521, low)


def bomb(file, name, values):
    """The dataset again, in one chunk that unpacks to far more."""
    attributes = dict(file[name].attrs) if name in file else {}
    if name in file:
        del file[name]
    values = np.atleast_1d(values)
    made = file.create_dataset(name, values.shape, values.dtype, chunks=values.shape, compression="gzip")
    made.id.write_direct_chunk((0,) * values.ndim, swollen(values.tobytes()))
    made.attrs.update(attributes)


def scan_with(name):
    def write(folder):
        values = {"data": COUNTS, "positions": POSITIONS * 1e-8, "mask": np.ones((16, 16), np.uint8), "energy": [8e3]}
        with h5py.File(folder / "scan.h5", "w") as file:
            file.update(values)
            bomb(file, name, values[name])
        return folder / "scan.h5"

    return write


def seed_with(seed, name):
    def write(folder):
        path = SEEDS[seed].write(folder)
        with h5py.File(path, "r+") as file:
            bomb(file, name, file[name][()])
        return path

    return write


def virtual_positions(folder):
    path = scan_with("positions")(folder)
    layout = h5py.VirtualLayout(POSITIONS.shape, "f8")
    layout[:] = h5py.VirtualSource("scan.h5", "positions", POSITIONS.shape)
    with h5py.File(folder / "master.h5", "w") as file:
        file["data"] = COUNTS
        file.create_virtual_dataset("positions", layout)
    assert path.is_file()
    return folder / "master.h5"


def gzipped_zarr(folder):
    path = folder / "scan.zarr"
    packer = zarr.codecs.GzipCodec()
    zarr.create_array(path, shape=COUNTS.shape, chunks=(8, 16, 16), dtype="u2", compressors=packer)[...] = COUNTS
    (path / "c/0/0/0").write_bytes(zeros(31))
    return path


def zipped_zarr(folder):
    """A chunk that is stored as it is, in a member that unpacks to far more."""
    path = folder / "scan.zarr.zip"
    store = zarr.storage.ZipStore(path, mode="w", compression=zipfile.ZIP_DEFLATED)
    zarr.create_array(store, shape=(24, 16, 16), chunks=(24, 16, 16), dtype="u2", compressors=None)[...] = COUNTS
    store.close()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(folder / "new.zarr.zip", "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, bytes(ZEROS) if name == "c/0/0/0" else old.read(name))
    return folder / "new.zarr.zip"


def packed_tiff(folder):
    tifffile.imwrite(folder / "scan.tif", COUNTS, compression="zlib", photometric="minisblack")
    with tifffile.TiffFile(folder / "scan.tif") as tiff:
        places = [page.tags["StripByteCounts"].valueoffset for page in tiff.pages]
        starts = [page.tags["StripOffsets"].valueoffset for page in tiff.pages]
    octets, packed = bytearray((folder / "scan.tif").read_bytes()), swollen(b"")
    struct.pack_into("<I", octets, places[0], len(packed))
    struct.pack_into("<I", octets, starts[0], len(octets))
    (folder / "scan.tif").write_bytes(octets + packed)
    return folder / "scan.tif"


VELOX = SEEDS["EMD of Velox"].given
BOMBS = {
    "patterns": (scan_with("data"), "load", KNOWN),
    "positions": (scan_with("positions"), "load", KNOWN),
    "weights of a .ptyd": (seed_with("ptyd", "chunks/0/weights"), "load", {}),
    "an image of Velox": (seed_with("EMD of Velox", "Data/Image/0123/Data"), "load", VELOX),
    "positions of a virtual dataset": (virtual_positions, "load", KNOWN),
    "a .mat": (seed_with("mat 7.3", "patterns"), "load", {}),
    "a result": (seed_with("a result", "probe"), "result", {}),
    "zarr": (gzipped_zarr, "load", GIVEN),
    "zarr in an archive": (zipped_zarr, "load", GIVEN),
    "a TIFF": (packed_tiff, "load", GIVEN),
}


def test_what_unpacks_to_far_more_than_its_shape_is_refused_before_it_is_unpacked(tmp_path):
    for case, (write, reader, given) in BOMBS.items():
        with of_case(case, tmp_path) as home:
            path = write(home)
            Path("/proc/self/clear_refs").write_text("5")  # the most memory from now on
            before = memory("VmHWM")
            with pytest.raises(FileError, match="damaged"):
                READERS[reader](path, given)
            assert memory("VmHWM") - before < 100e6


def memory(name):
    """Bytes that this process has, those of HDF5 and zlib among them."""
    return int(Path("/proc/self/status").read_text().partition(f"{name}:")[2].split()[0]) * 1024


# Beside the patterns


SMALL = {
    "positions.npy": lambda path: np.save(path, POSITIONS),
    "positions.txt": lambda path: np.savetxt(path, POSITIONS),
    "mask.npy": lambda path: np.save(path, np.ones((16, 16))),
}


def test_files_of_positions_and_masks_are_as_large_as_these_can_be(tmp_path, monkeypatch):
    for name in SMALL:
        with of_case(name, tmp_path) as home, monkeypatch.context() as patched:
            np.save(home / "scan.npy", COUNTS)
            SMALL[name](home / name)
            given = {**GIVEN, name.partition(".")[0]: home / name}
            load(home / "scan.npy", **given)
            patched.setattr(safe_reading, "SMALL", 100)
            with raises("file.too-large", home / name):
                load(home / "scan.npy", **given)


def test_a_npy_that_announces_a_terabyte_is_refused(tmp_path):
    for what in ["positions", "mask"]:
        with of_case(what, tmp_path) as home:
            np.save(home / "scan.npy", COUNTS)
            (home / "huge.npy").write_bytes(header((10**6, 10**6), "|u1"))
            with raises("file.damaged", home / "huge.npy", what):
                load(home / "scan.npy", **{**GIVEN, what: home / "huge.npy"})


def test_results_that_don_t_fit_into_memory_are_opened_on_a_larger_machine_as_the_message_says(tmp_path, monkeypatch):
    for seed, reader in [("a result", "result"), ("a guess of PtyRAD", "guess"), ("a mask", "mask")]:
        with of_case((seed, reader), tmp_path) as home, monkeypatch.context() as patched:
            path = SEEDS[seed].write(home)
            patched.setattr(safe_reading, "SHARE", 1e-12)
            with raises("file.too-large", path, "open it on a machine with more memory"):
                READERS[reader](path, {})


# What stays in the file


def sparse(folder):
    """24 patterns of 1024 x 1024, of which one was written."""
    with h5py.File(folder / "scan.h5", "w") as file:
        patterns = file.create_dataset("data", (24, 1024, 1024), "u4", chunks=(1, 1024, 1024), compression="gzip")
        patterns[0] = 1
    return folder / "scan.h5"


def sparse_zarr(folder):
    patterns = zarr.create_array(
        folder / "scan.zarr",
        shape=(24, 1024, 1024),
        chunks=(1, 1024, 1024),
        dtype="u4",
        config={"write_empty_chunks": True},
    )
    patterns[...] = 0
    patterns[0] = 1
    return folder / "scan.zarr"


def sparse_tiff(folder):
    patterns = np.zeros((24, 1024, 1024), np.uint32)
    patterns[0] = 1
    packing = {"compression": "zlib", "compressionargs": {"level": 9}}
    tifffile.imwrite(folder / "scan.tif", patterns, photometric="minisblack", **packing)
    return folder / "scan.tif"


def test_patterns_far_larger_than_their_file_are_told(tmp_path, monkeypatch):
    for write in [sparse, sparse_zarr, sparse_tiff]:
        with of_case(write, tmp_path) as home, monkeypatch.context() as patched:
            path = write(home)
            patched.setattr(load_module, "LARGEST_UNNOTICED", 10**8)
            patched.setattr(load_module, "MOST_TIMES", 500)
            words = r"24 patterns of 1024 x 1024, uint32, take 101 MB in memory and only .* kB in the file"
            with pytest.warns(PtynbWarning, match=words) as told:
                scan = load(path, **GIVEN)
            assert told[0].filename == __file__
            assert "24 patterns of 1024 x 1024, uint32, 101 MB in memory" in repr(scan)
            found = info(path, **GIVEN)
            assert any("take 101 MB in memory" in remark for remark in found.notes)
            patched.setattr(load_module, "LARGEST_UNNOTICED", 102 * 10**6)
            load(path, **GIVEN)
