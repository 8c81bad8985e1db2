"""Damaged texts are met with a sentence before libhdf5, which goes round in them for ever, decodes them."""

import itertools
import struct
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np

import ptynb as pt
from ptynb.io.hdf5_file import Linked, check_texts, open_for_reading
from tests.io.cases import of_case
from tests.parametrization import each
from tests.raising import raises

FREE, TEXT = 0, 3
"""Numbers of objects in a heap: its free space, and one of its texts."""


def with_texts(path, sizes=(8, 8), **options):
    plist = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    plist.set_sizes(*sizes)
    plist.set_userblock(options.pop("userblock_size", 0))
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    if options:
        access.set_libver_bounds(h5py.h5f.LIBVER_LATEST, h5py.h5f.LIBVER_LATEST)
    with h5py.File(h5py.h5f.create(bytes(path), h5py.h5f.ACC_TRUNC, plist, access)) as file:
        file["numbers"] = np.arange(5000.0)
        file["texts"] = [f"text {number}" for number in range(12)]
        file.attrs["unit"] = "m"
    return path


def lengths(path, octets=8):
    """Number of each object -> where in the file its length stands, by the format's own description."""
    whole = path.read_bytes()
    at, kind = whole.index(b"GCOL"), "<Q" if octets == 8 else "<I"
    end, found = at + struct.unpack_from(kind, whole, at + 8)[0], {}
    at += 16
    while at + 16 <= end:
        number, length = *struct.unpack_from("<H", whole, at), *struct.unpack_from(kind, whole, at + 8)
        found[number] = at + 8
        at += 16 + (length + 7) // 8 * 8 if number else length
    return found


def damage(path, number, length, octets=8):
    whole = bytearray(path.read_bytes())
    struct.pack_into("<Q" if octets == 8 else "<I", whole, lengths(path, octets)[number], length)
    path.write_bytes(whole)
    return bytes(whole).index(b"GCOL")


def texts_of(path):
    with open_for_reading(path) as file:
        return file.attrs["unit"], [*file["texts"].asstr()]


def test_a_damaged_heap_is_a_sentence(tmp_path):
    for (number, length), options in itertools.product(
        [(FREE, 0), (FREE, 2**40), (TEXT, 2**13), (TEXT, 2**64 - 17)],
        [{}, {"userblock_size": 512}, {"libver": "latest"}],
    ):
        with of_case((number, length, options), tmp_path) as home:
            path = with_texts(home / "damaged.h5", **options)
            place = damage(path, number, length)
            for read in (lambda file: file.attrs["unit"], lambda file: file["texts"][()], check_texts):
                with raises("file.damaged", path, place), open_for_reading(path) as file:
                    assert file["numbers"][7] == 7
                    read(file)


@each("length", [0, 8, 2**31])
def test_a_heap_with_lengths_of_4_bytes_is_checked_as_well(tmp_path, length):
    path = with_texts(tmp_path / "short.h5", sizes=(8, 4))
    assert texts_of(path) == ("m", [f"text {number}" for number in range(12)])
    place = damage(path, FREE, length, 4)
    with raises("file.damaged", path, place):
        texts_of(path)


def test_what_is_not_part_of_the_signature_may_have_any_value(tmp_path):
    path = with_texts(tmp_path / "damaged.h5")
    place, whole = damage(path, FREE, 0), bytearray(path.read_bytes())
    whole[place + 5 : place + 8] = b"abc"  # reserved bytes, which HDF5 ignores
    path.write_bytes(whole)
    with raises("file.damaged", path, place):
        texts_of(path)


def test_what_h5py_writes_is_sound(tmp_path):
    for version, count in itertools.product(["earliest", "v110", "latest"], [1, 1000]):
        with of_case((version, count), tmp_path) as home:
            path = home / "sound.h5"
            texts = ["word " * (place % 97) for place in range(count)]
            with h5py.File(path, "w", libver=version) as file:
                for number in range(3):
                    file[f"texts {number}"] = texts
                    file.attrs[f"unit {number}"] = "x" * (7 * number)
                file["texts 1"][:] = ["another"] * count
                file["long"] = "y" * 70_000
            assert path.read_bytes().count(b"GCOL") > 1
            with open_for_reading(path) as file:
                check_texts(file)
                assert [*file["texts 2"].asstr()] == texts
                assert [*file["texts 1"].asstr()] == ["another"] * count
                assert (len(file["long"][()]), file.attrs["unit 2"]) == (70_000, "x" * 14)


def test_the_list_of_sources_of_a_virtual_dataset_is_in_a_heap(tmp_path):
    with h5py.File(tmp_path / "source.h5", "w") as file:
        file["numbers"] = np.arange(12.0).reshape(4, 3)
    path = tmp_path / "virtual.h5"
    layout = h5py.VirtualLayout((4, 3), "f8")
    layout[:] = h5py.VirtualSource("source.h5", "numbers", (4, 3))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("numbers", layout).attrs["unit"] = "m"
    with Linked(path) as linked:
        assert linked.dataset("numbers")[()].tolist() == np.arange(12.0).reshape(4, 3).tolist()
        assert linked.dataset("numbers").attrs["unit"] == "m"
    place = damage(path, FREE, 0)
    with raises("file.damaged", path, place), Linked(path) as linked:
        linked.dataset("numbers")


def test_texts_in_a_virtual_dataset_are_refused(tmp_path):
    """HDF5 itself would open their heaps."""
    with_texts(tmp_path / "source.h5")
    path = tmp_path / "virtual.h5"
    layout = h5py.VirtualLayout((12,), h5py.string_dtype())
    layout[:] = h5py.VirtualSource("source.h5", "texts", (12,), h5py.string_dtype())
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("texts", layout)
    with raises("file.unsupported-content", path, "texts"), Linked(path) as linked:
        linked.dataset("texts")


def read_bytes():
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["rchar"])


def test_opening_a_scan_reads_its_metadata_only(tmp_path):
    """Of 400 MB in one file, and of the same in a virtual dataset, which takes one more file."""
    path = tmp_path / "scan.h5"
    with h5py.File(path, "w") as file:
        space, kind = h5py.h5s.create_simple((2000, 320, 320)), h5py.h5t.NATIVE_UINT16
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        h5py.h5d.create(file.id, b"patterns", kind, space, plist)
        file["patterns"][0, 0] = 1  # the rest is a hole in the file
        file["positions"] = np.random.default_rng(0).uniform(0, 1e-5, (2000, 2))
        file["positions"].attrs["units"] = "m"
    assert path.stat().st_size > 400e6
    layout = h5py.VirtualLayout((2000, 320, 320), "u2")
    layout[:] = h5py.VirtualSource("scan.h5", "patterns", (2000, 320, 320))
    with h5py.File(tmp_path / "virtual.h5", "w") as file:
        file.create_virtual_dataset("patterns", layout)
        file["positions"] = h5py.ExternalLink("scan.h5", "positions")
    for name in ("scan.h5", "virtual.h5"):
        before = read_bytes()
        with Linked(tmp_path / name) as linked:
            assert linked.dataset("patterns").shape == (2000, 320, 320)
            assert linked.dataset("positions").attrs["units"] == "m"
        assert read_bytes() - before < 50_000, name
        before = read_bytes()
        pt.info(tmp_path / name)
        assert read_bytes() - before < 3_000_000, name


def test_a_process_may_end_while_a_file_is_open(tmp_path):
    """HDF5 closes it after Python's end, when its driver in Python could not be called any more."""
    path = with_texts(tmp_path / "texts.h5")
    script = (
        "import sys; from pathlib import Path; from ptynb.io.hdf5_file import open_for_reading\n"
        "opened = open_for_reading(Path(sys.argv[1])); print(opened.__enter__().attrs['unit'])"
    )
    ended = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "m\n"), ended.stderr


def test_a_file_that_was_mended_is_looked_at_again(tmp_path):
    path = with_texts(tmp_path / "file.h5")
    sound = path.read_bytes()
    damage(path, FREE, 0)
    with raises("file.damaged"):
        texts_of(path)
    path.write_bytes(sound)
    assert texts_of(path)[0] == "m"
