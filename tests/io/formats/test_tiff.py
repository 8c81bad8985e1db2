import struct

import numpy as np
import pytest
import tifffile

import ptynb.io.reading.safe_reading
from ptynb.data.patterns import PlacedFrames
from ptynb.exceptions import PtynbError
from ptynb.io.formats.tiff import FolderFrames, TiffFrames
from ptynb.io.load import load
from tests.io.cases import of_case, one_line, refused
from tests.io.rectangular_scan import agrees
from tests.raising import raises


def pages(path, original, **options):
    """A page at a time, so that the file does not say how many there are."""
    with tifffile.TiffWriter(path) as file:
        for pattern in original.stack:
            file.write(pattern.astype(np.uint16), contiguous=False, metadata=None, **options)


WRITERS = {
    "contiguous": (lambda path, original: tifffile.imwrite(path, original.stack), PlacedFrames),
    "page by page": (pages, PlacedFrames),
    "in strips": (lambda path, original: pages(path, original, rowsperstrip=8), PlacedFrames),
    "compressed": (lambda path, original: pages(path, original, compression="zlib"), TiffFrames),
    "in tiles": (lambda path, original: pages(path, original, tile=(16, 16)), TiffFrames),
    "ImageJ": (lambda path, original: tifffile.imwrite(path, original.stack, imagej=True), None),
    "big TIFF": (lambda path, original: tifffile.imwrite(path, original.stack, bigtiff=True), PlacedFrames),
    "big-endian": (lambda path, original: tifffile.imwrite(path, original.stack, byteorder=">"), None),
    "compressed, big-endian": (
        lambda path, original: tifffile.imwrite(path, original.stack, byteorder=">", compression="zlib"),
        TiffFrames,
    ),
    "OME": (lambda path, original: tifffile.imwrite(path, original.stack, ome=True), PlacedFrames),
}


def test_pages_are_the_patterns(tmp_path, original, given):
    for case, (writer, kind) in WRITERS.items():
        with of_case(case, tmp_path) as home:
            writer(home / "scan.tif", original)
            scan = load(home / "scan.tif", **given)
            agrees(scan, original.scan)
            assert scan.frames.in_file
            assert scan.frames.dtype.isnative
            assert kind is None or isinstance(scan.frames, kind)


def test_four_axes_are_a_raster(tmp_path, original, given):
    del given["raster"]
    tifffile.imwrite(tmp_path / "scan.tif", original.patterns)
    agrees(load(tmp_path / "scan.tif", **given), original.scan)


def folder(path, original, names="f{}.tif", **options):
    path.mkdir()
    for index, pattern in enumerate(original.stack):
        tifffile.imwrite(path / names.format(index), pattern, **options)
    (path / "notes.txt").write_text("a scan")


def test_files_of_a_folder_are_patterns_in_the_order_of_their_numbers(tmp_path, original, given):
    for options in [{}, {"compression": "zlib"}, {"byteorder": ">"}]:
        with of_case(options, tmp_path) as home:
            folder(home / "scan", original, **options)
            scan = load(home / "scan", **given)
            agrees(scan, original.scan)
            assert scan.frames.in_file
            assert scan.name == "scan"


def written(value, **options):
    return lambda path: tifffile.imwrite(path, value, **options)


def cut(fraction, **options):
    def spoil(path):
        tifffile.imwrite(path, np.ones((24, 32, 32), np.float32), **options)
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * fraction)])

    return spoil


def header(width=32, height=32, count=4096, offset=8, next_page=0):
    """One page of 32-bit floats, by hand."""
    tags = [
        (256, width),
        (257, height),
        (258, 32),
        (259, 1),
        (262, 1),
        (273, 200),
        (277, 1),
        (278, height),
        (279, count),
    ]
    tags.append((339, 3))
    page = struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    return b"II*\0" + struct.pack("<I", offset) + page + struct.pack("<I", next_page) + bytes(5000)


def octets(made):
    return lambda path: path.write_bytes(made)


BROKEN = {
    "cut short": (cut(0.5), "file.damaged"),
    "compressed and cut short": (cut(0.6, compression="zlib"), "file.damaged"),
    "cut in the header": (octets(b"II*\0\x08\0\0\0"), "file.incomplete"),
    "pages in a circle": (octets(header(next_page=8)), "file.damaged"),
    "a page beyond the end": (octets(header(offset=2**31)), "file.incomplete"),
    "a header of 2**40": (octets(header(2**20, 2**20, 2**31)), "file.too-large"),
    "colours": (written(np.ones((24, 32, 32, 3), np.uint8), photometric="rgb"), "file.unsupported-content", "3"),
    "swapped axes": (written(np.ones((32, 32, 24), np.float32)), "scan.raster-mismatch", "32", "4 x 6"),
}


def test_a_damaged_file_is_an_error_of_one_line(tmp_path, given):
    for case, (spoil, *expected) in BROKEN.items():
        with of_case(case, tmp_path) as home:
            spoil(home / "scan.tif")
            refused(home / "scan.tif", *expected, **given)


FOLDERS = {
    "another shape": (
        lambda path: tifffile.imwrite(path / "f24.tif", np.ones((16, 16), "f4")),
        "file.unexpected-content",
        "(16, 16)",
    ),
    "another type": (
        lambda path: tifffile.imwrite(path / "f24.tif", np.ones((32, 32), "u2")),
        "file.unexpected-content",
        "uint16",
    ),
    "many pages": (
        lambda path: tifffile.imwrite(path / "f24.tif", np.ones((5, 32, 32))),
        "file.unsupported-content",
        "5",
    ),
    "one missing": (lambda path: (path / "f7.tif").unlink(), "scan.raster-mismatch", "23", "4 x 6"),
    "the last one broken": (lambda path: (path / "f23.tif").write_bytes(b"II*\0"), "file.damaged", "f23.tif"),
}


@pytest.mark.timeout(20)
def test_pages_that_lead_back_to_themselves_are_an_error_of_one_line(tmp_path, original, given):
    pages(tmp_path / "scan.tif", original, compression="zlib")
    with tifffile.TiffFile(tmp_path / "scan.tif") as tiff:
        second = tiff.pages[1].offset
    content = bytearray((tmp_path / "scan.tif").read_bytes())
    (tags,) = struct.unpack_from("<H", content, second)
    struct.pack_into("<I", content, second + 2 + 12 * tags, second)  # the offset of the page that follows
    (tmp_path / "scan.tif").write_bytes(content)
    with pytest.raises(PtynbError) as told:
        load(tmp_path / "scan.tif", **given)
    assert "\n" not in str(told.value)


def test_a_broken_folder_is_an_error_of_one_line(tmp_path, original, given):
    for case, (spoil, *expected) in FOLDERS.items():
        with of_case(case, tmp_path) as home:
            folder(home / "scan", original)
            spoil(home / "scan")
            with one_line(*expected):
                load(home / "scan", **given)


def test_a_file_of_many_pages_is_loaded_itself_as_the_message_says(tmp_path, original, given):
    (tmp_path / "scan").mkdir()
    pages(tmp_path / "scan" / "all.tif", original)
    with raises("file.unsupported-content", "all.tif has 24 pages", "load the file itself"):
        load(tmp_path / "scan", **given)
    agrees(load(tmp_path / "scan" / "all.tif", **given), original.scan)


def test_a_file_in_the_middle_is_named_when_it_is_read(tmp_path, original, given):
    folder(tmp_path / "scan", original)
    scan = load(tmp_path / "scan", **given)
    assert isinstance(scan.frames, FolderFrames)
    tifffile.imwrite(tmp_path / "scan" / "f7.tif", np.ones((16, 16), "f4"))
    with raises("file.unexpected-content", "f7.tif", "(16, 16)"):
        scan.counts(6, 9)


def test_a_page_larger_than_memory_is_refused(tmp_path, original, given, monkeypatch):
    monkeypatch.setattr(ptynb.io.reading.safe_reading, "SHARE", 1e-12)
    pages(tmp_path / "scan.tif", original, compression="zlib")
    with raises("file.too-large", "2.05 kB for one page"):
        load(tmp_path / "scan.tif", **given)
