"""Files that a reader could not bear once, each made again from what was wrong with it."""

import struct
import zipfile

import h5py
import numpy as np
import pytest

from ptynb.exceptions import PtynbError
from tests.fuzz.seeds import SEEDS
from tests.fuzz.worker import READERS
from tests.io.cases import of_case
from tests.raising import raises

RECORD = np.zeros(3, [("real", "f8"), ("imag", "S3")])


def put(name, value):
    def spoil(path):
        with h5py.File(path, "r+") as file:
            shape = file[name].shape
            del file[name]
            file[name] = np.broadcast_to(value[:1], shape) if value is RECORD else value

    return spoil


def claimed(name, *sides):
    def spoil(path):
        with h5py.File(path, "r+") as file:
            dtype = file[name].dtype
            del file[name]
            file.create_dataset(name, sides, dtype, chunks=(8,) * len(sides))

    return spoil


def says(name, value, place="/"):
    def spoil(path):
        with h5py.File(path, "r+") as file:
            file[place].attrs[name] = value

    return spoil


def text(words):
    return lambda path: path.write_bytes(words)


def long_name(path):
    """The second half of the file is the first member's name, as its header says it."""
    whole = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        place = archive.infolist()[0].header_offset
    struct.pack_into("<H", whole, place + 26, min(60_000, len(whole) // 2))
    path.write_bytes(whole)


DETECTOR = "entry_1/instrument_1/detector_1"
SAMPLING = "root/ptychographic_reconstruction/metadatabundle/preprocess_metadata/sampling"
# file -> how it is spoiled, code of the error (empty: any), facts that its message states
FOUND = {
    "a scan's object of 8 TiB": ("ptynb's own", claimed("object", 2**20, 2**20), "file.damaged", "8.8e+12 bytes"),
    "a scan's mask of records": ("ptynb's own", put("mask", RECORD), "file.unexpected-content", "mask", "(16, 16)"),
    "a scan's one pixel size": (
        "ptynb's own",
        says("detector_pixel", True, "geometry"),
        "file.unexpected-content",
        "detector_pixel",
        "/geometry",
    ),
    "a mask whose header is no Python": (
        "a mask, npy",
        lambda path: path.write_bytes(path.read_bytes().replace(b"{'descr'", b"{'\x04escr", 1)),
        "file.damaged",
        ".npy",
    ),
    "a run file with a name that is none": (
        "a run file",
        text(b"scan: a\nepochs: 1\nresult: b\nsettings: {yes: 3}"),
        "settings.invalid-name",
        "True",
        "'settings'",
    ),
    "a CXI pixel of nothing": (
        "CXI of CXIDB",
        put(f"{DETECTOR}/x_pixel_size", 1e-320),
        "file.unexpected-content",
        "1e-320",
    ),
    "an object of ptypy's without a mode": (
        "a guess of ptypy",
        put("content/obj/SMFG00/data", np.ones((0, 40, 40), np.complex64)),
        "file.incomplete",
        "(0, 40, 40)",
    ),
    "a CXI with a million basis vectors": (
        "CXI",
        put(f"{DETECTOR}/basis_vectors", np.zeros((2**20, 2))),
        "file.unexpected-content",
        "(1048576, 2)",
    ),
    "weights of a .ptyd that are records": (
        "ptyd",
        put("chunks/0/weights", RECORD),
        "file.unexpected-content",
        "weights",
    ),
    "a sampling of py4DSTEM of a thousand numbers": (
        "a guess of py4DSTEM",
        put(SAMPLING, np.full(1000, np.nan)),
        "file.unexpected-content",
        "(1000,)",
    ),
    "an npz with a name of 60,000 letters": ("npz", long_name, "file.damaged", ".npz"),
    "a .mat whose numbers are text": (
        "mat 7.3",
        put("angular_pixel_mrad", RECORD[:1]),
        "file.unexpected-content",
        "angular_pixel_mrad",
    ),
}


def test_it_is_refused_with_one_sentence(tmp_path):
    for case, (seed, spoil, code, *facts) in FOUND.items():
        with of_case(case, tmp_path) as home:
            path = SEEDS[seed].write(home)
            spoil(path)
            with pytest.raises(PtynbError) as caught:
                READERS[SEEDS[seed].reader](path, SEEDS[seed].given)
            message = str(caught.value)
            assert "\n" not in message
            assert len(message) < 1000
            assert not code or caught.value.code == code, message
            assert [fact for fact in facts if fact not in message] == [], message


def test_a_definition_that_is_a_group_is_none(tmp_path):
    path = SEEDS["NXcxi_ptycho"].write(tmp_path)
    with h5py.File(path, "r+") as file:
        del file["entry_1/definition"]
        file.create_group("entry_1/definition")
    with raises("scan.missing-metadata", "(CXI)", "the wavelength"):  # which CXI has elsewhere
        READERS["load"](path, {})
