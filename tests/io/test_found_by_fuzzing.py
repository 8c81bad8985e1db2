"""Files that a reader could not bear once, each made again from what was wrong with it."""

import struct
import zipfile

import h5py
import numpy as np
import pytest

from ptynb.exceptions import SettingsError
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
IMAGE = "Data/Image/0123/Data"
SAMPLING = "root/ptychographic_reconstruction/metadatabundle/preprocess_metadata/sampling"
FOUND = {
    "a scan's object of 8 TiB": ("ptynb's own", claimed("object", 2**20, 2**20), "claims 8.8e.12 bytes for object"),
    "a scan's mask of records": ("ptynb's own", put("mask", RECORD), "expected true or false along 2 axes"),
    "a scan's patterns with nothing in them": ("ptynb's own", put("patterns", h5py.Empty("f4")), "with nothing in it"),
    "a scan's patterns of two axes": ("ptynb's own", put("patterns", np.ones((6, 9))), r"patterns of shape \(6, 9\)"),
    "a scan's one pixel size": ("ptynb's own", says("detector_pixel", True, "geometry"), "expected 2 finite numbers"),
    "a scan's version in words": (
        "ptynb's own",
        says("version", "one"),
        "as attribute version at /; expected a number",
    ),
    "a mask of 128 GiB": ("a mask", claimed("mask", 2**33, 16), "claims .* bytes for mask"),
    "a mask whose header is no Python": (
        "a mask, npy",
        lambda path: path.write_bytes(path.read_bytes().replace(b"{'descr'", b"{'\x04escr", 1)),
        "not a readable .npy file",
    ),
    "a mask that announces 1 TiB": (
        "a mask, npy",
        lambda path: path.write_bytes(path.read_bytes().replace(b"(16, 16), }    ", b"(1099511627776,)}", 1)[:256]),
        "not a readable .npy file",
    ),
    "a state of 64 GiB": ("a state", claimed("loss_sums", 2**33), "claims .* bytes for loss_sums"),
    "settings in no UTF-8": ("settings", text(b"batch: \xff"), r"is not UTF-8 \(byte 7\)"),
    "settings with a name that is none": (
        "settings",
        text(b"probe: {null: 3}"),
        "None is used as a name below 'probe'",
    ),
    "settings on a day that is none": ("settings", text(b"batch: 2001-99-99"), "batch is '2001-99-99': "),
    "settings without a bottom": ("settings", text(b"[" * 1500), "not valid YAML"),
    "a run file with a name that is none": (
        "a run file",
        text(b"scan: a\nepochs: 1\nresult: b\nsettings: {yes: 3}"),
        "True is used as a name below 'settings'",
    ),
    "a CXI pixel without an end": ("CXI of CXIDB", put(f"{DETECTOR}/x_pixel_size", np.inf), "positive, finite lengths"),
    "a CXI pixel of nothing": ("CXI of CXIDB", put(f"{DETECTOR}/x_pixel_size", 1e-320), "positive, finite lengths"),
    "a CXI mask of records": ("CXI of CXIDB", put(f"{DETECTOR}/mask", RECORD), "a mask of type .*expected numbers"),
    "an object of ptypy's without a mode": (
        "a start of ptypy",
        put("content/obj/SMFG00/data", np.ones((0, 40, 40), np.complex64)),
        r"the object of shape \(0, 40, 40\), with nothing in it",
    ),
    "an object of PtyRAD's without a state": (
        "a start of PtyRAD",
        lambda path: [put(f"optimizable_tensors/{name}", np.ones((0, 1, 40, 40)))(path) for name in ("obja", "objp")],
        r"obja of shape \(0, 1, 40, 40\), with nothing in it",
    ),
    "a pixel of ptypy's of nothing": (
        "a start of ptypy",
        put("content/obj/SMFG00/_psize", h5py.Empty("f8")),
        "_psize with nothing in it",
    ),
    "a CXI with a million basis vectors": (
        "CXI",
        put(f"{DETECTOR}/basis_vectors", np.zeros((2**20, 2))),
        r"basis vectors of shape \(1048576, 2\)",
    ),
    "CXI translations of nothing": (
        "CXI",
        put("entry_1/sample_1/geometry_1/translation", h5py.Empty("f8")),
        "translations at .* with nothing in it",
    ),
    "weights of a .ptyd that are records": (
        "ptyd",
        put("chunks/0/weights", RECORD),
        "weights of type .*expected real numbers",
    ),
    "a sampling of py4DSTEM of a thousand numbers": (
        "a start of py4DSTEM",
        put(SAMPLING, np.full(1000, np.nan)),
        r"of shape \(1000,\); expected finite real numbers",
    ),
    "an npz with a name of 60,000 letters": ("npz", long_name, r"is not a whole \.npz \(.{1,200}\); write it again"),
    "an image of Velox of 1.6 GB": (
        "EMD of Velox",
        claimed(IMAGE, 2**20, 32, 24),
        f"claims more for {IMAGE} than a file of its size can hold",
    ),
    "a .mat whose numbers are text": ("mat 7.3", put("angular_pixel_mrad", RECORD[:1]), "expected numbers"),
}


def test_it_is_refused_with_one_sentence(tmp_path):
    for case, (seed, spoil, words) in FOUND.items():
        with of_case(case, tmp_path) as home:
            path = SEEDS[seed].write(home)
            spoil(path)
            with pytest.raises((ValueError, SettingsError), match=words) as caught:
                READERS[SEEDS[seed].reader](path, SEEDS[seed].given)
            assert "\n" not in str(caught.value)


def test_a_definition_that_is_a_group_is_none(tmp_path):
    path = SEEDS["NXcxi_ptycho"].write(tmp_path)
    with h5py.File(path, "r+") as file:
        del file["entry_1/definition"]
        file.create_group("entry_1/definition")
    with raises("scan.missing-metadata", "(CXI)", "the wavelength"):  # which CXI has elsewhere
        READERS["load"](path, {})


def test_damage_that_is_met_on_the_way_is_told_as_such(tmp_path):
    path = SEEDS["CXI of CXIDB"].write(tmp_path)
    whole = path.read_bytes()
    assert b"SNOD" in whole
    path.write_bytes(whole.replace(b"SNOD", b"SNOX"))
    with raises("file.damaged", path) as caught:
        READERS["load"](path, {})
    assert "\n" not in str(caught.value)
