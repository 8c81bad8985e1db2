import itertools
import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import zarr

import ptynb.io.reading.safe_reading
from ptynb.io.formats.zarr_store import ZarrFrames
from ptynb.io.load import load
from ptynb.io.reading import reading_errors
from tests.io.cases import of_case, one_line
from tests.io.rectangular_scan import ANGLE, VOLTAGE, agrees
from tests.raising import raises

BEAM = {"voltage": VOLTAGE, "angular_pixel": (ANGLE, ANGLE)}


def group(path, original, metres, version=3, patterns=None, **options):
    """By zarr's own writer; numbers in attributes."""
    folder = path.with_suffix("") if path.suffix == ".zip" else path
    root = zarr.create_group(folder, zarr_format=version)
    data = original.stack if patterns is None else patterns
    given = {"chunks": (5, *data.shape[1:])} | options
    root.create_array("scan/patterns", shape=data.shape, dtype=data.dtype, **given)[...] = data
    root.create_array("scan/positions", shape=metres.shape, dtype=metres.dtype)[...] = metres
    root["scan"].attrs.update(voltage=300.0, angular_pixel_mrad=[ANGLE * 1e3, ANGLE * 1e3], author="x")
    return path if folder == path else Path(shutil.make_archive(str(folder), "zip", folder))


CASES = {
    "version 3": {},
    "version 2": {"version": 2},
    "version 2, big-endian": {"version": 2, "patterns": ">f4"},
    "version 3 of 16 bits": {"patterns": "u2"},
    "in shards": {"shards": (10, 32, 32), "chunks": (2, 32, 32)},
    "chunks that cut patterns": {"chunks": (7, 16, 32)},
    "uncompressed": {"compressors": None},
}


def test_arrays_and_attributes_are_the_scan(tmp_path, original, metres):
    for suffix, case in itertools.product(["", ".zip"], CASES):
        with of_case((suffix, case), tmp_path) as home:
            options = dict(CASES[case])
            if "patterns" in options:
                options["patterns"] = original.stack.astype(options["patterns"])
            scan = load(group(home / f"scan.zarr{suffix}", original, metres, **options))
            agrees(scan, original.scan)
            assert scan.frames.in_file
            assert scan.frames.dtype.isnative


def test_an_array_without_a_group_is_a_raster(tmp_path, original):
    array = zarr.create_array(tmp_path / "scan.zarr", shape=original.patterns.shape, dtype="f4", chunks=(1, 4, 32, 32))
    array[...] = original.patterns
    scan = load(tmp_path / "scan.zarr", step=original.step, **BEAM)
    agrees(scan, original.scan)
    assert isinstance(scan.frames, ZarrFrames)
    assert scan.frames.path == tmp_path / "scan.zarr"
    np.testing.assert_array_equal(scan.frames.read(4, 15), original.stack[4:15])


def description(path, version=3):
    return path / "scan" / "patterns" / ("zarr.json" if version == 3 else ".zarray")


def says(change, version=3):
    def spoil(path):
        text = description(path, version)
        said = json.loads(text.read_text())
        change(said)
        text.write_text(json.dumps(said))

    return spoil


def put(*names, value):
    def change(said):
        for name in names[:-1]:
            said = said[name]
        said[names[-1]] = value

    return change


def chunk(path):
    return path / "scan" / "patterns" / "c" / "2" / "0" / "0"


def cut(path):
    content = chunk(path).read_bytes()
    chunk(path).write_bytes(content[: len(content) // 2])


def unpickles(path):
    says(put("filters", value=[{"id": "pickle"}]), 2)(path)


def zipped(path):
    """The folder as an archive, cut."""
    shutil.make_archive(str(path), "zip", path)
    shutil.rmtree(path)
    content = path.with_name(path.name + ".zip").read_bytes()
    path.write_bytes(content[: len(content) // 2])


def array(value):
    def spoil(path):
        root = zarr.open_group(path, mode="r+")
        del root["scan/patterns"]
        root.create_array("scan/patterns", shape=value.shape, dtype=value.dtype)[...] = value

    return spoil


VERSION_2 = ("pickle", "a type of objects")
BROKEN = {
    "a description cut short": (lambda path: description(path).write_text('{"shape": [3'), "file.damaged"),
    "a description of another kind": (lambda path: description(path).write_text("[1]"), "file.damaged"),
    "an endless description": (lambda path: description(path).write_text(" " * 2**22 + "1"), "file.damaged"),
    "an archive cut short": (zipped, "file.unknown-format"),
    "a chunk cut short": (cut, "file.damaged"),
    "a missing chunk": (lambda path: chunk(path).unlink(), "file.incomplete", "1", "scan/patterns"),
    "a shape of words": (says(put("shape", value=["a", 3, 3])), "file.unexpected-content"),
    "a negative shape": (says(put("shape", value=[-24, 32, 32])), "file.unexpected-content", "-24"),
    "a shape of 2**40": (says(put("shape", value=[2**40, 32, 32])), "file.too-large", "1099511627776"),
    "chunks of 2**40": (
        says(put("chunk_grid", "configuration", "chunk_shape", value=[2**40, 32, 32])),
        "file.too-large",
        "4.5e+06",
        "scan/patterns",
    ),
    "pickle": (unpickles, "file.unsupported-content", "scan/patterns"),
    "a codec of the user's": (
        says(put("codecs", value=[{"name": "mine"}])),
        "file.unsupported-content",
        "scan/patterns",
    ),
    "a type of objects": (says(put("dtype", value="|O"), 2), "file.unexpected-content", "scan/patterns"),
}


def test_a_broken_store_is_an_error_of_one_line(tmp_path, original, metres):
    for case, (spoil, *expected) in BROKEN.items():
        with of_case(case, tmp_path) as home:
            path = group(home / "scan.zarr", original, metres, version=2 if case in VERSION_2 else 3)
            spoil(path)
            with one_line(*expected):
                load(path).counts(10, 14)


def test_patterns_are_packed_as_the_message_says(tmp_path, original, metres):
    path = group(tmp_path / "scan.zarr", original, metres)
    says(put("codecs", value=[{"name": "mine"}]))(path)
    with raises("file.unsupported-content", "mine", "zstd or blosc"):
        load(path)
    for name, packer in {"zstd": zarr.codecs.ZstdCodec(), "blosc": zarr.codecs.BloscCodec()}.items():
        written = group(tmp_path / f"{name}.zarr", original, metres, compressors=packer)
        assert f'"{name}"' in description(written).read_text()
        agrees(load(written), original.scan)


def test_empty_patterns_are_written_as_the_message_says(tmp_path, original, metres):
    patterns = original.stack.copy()
    patterns[10:15] = 0
    path = group(tmp_path / "scan.zarr", original, metres, patterns=patterns)
    with raises("file.incomplete", "config={'write_empty_chunks': True}"):
        load(path)
    path = group(tmp_path / "a.zarr", original, metres, patterns=patterns, config={"write_empty_chunks": True})
    np.testing.assert_array_equal(load(path).counts(0, 24), patterns)


def test_without_zarr_the_line_that_installs_it_is_said(tmp_path, original, metres, monkeypatch):
    path = group(tmp_path / "scan.zarr", original, metres)
    monkeypatch.setattr(reading_errors.importlib.util, "find_spec", lambda name: None)
    with raises("package.not-installed", "zarr", "pip install 'ptynb[formats]'"):
        load(path)


def test_a_chunk_larger_than_memory_is_refused(tmp_path, original, metres, monkeypatch):
    monkeypatch.setattr(ptynb.io.reading.safe_reading, "SHARE", 1e-12)
    with raises("file.too-large", "20.5 kB for one chunk of scan/patterns"):
        load(group(tmp_path / "scan.zarr", original, metres))


def test_an_archive_with_other_things_is_no_store(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.txt", "theta")
    with raises("file.unknown-format"):
        load(tmp_path / "a.zip")
