import itertools
import struct

from ptynb.io.load import find, load
from ptynb.settings.load_options import LoadOptions
from tests.io.cases import of_case, refused
from tests.io.rectangular_scan import COLUMNS, ROWS, agrees, oblong


def write(path, original, version=5, bits=16, gap=96, **changed):
    """By the published layout: a header, and after each picture the time and what fills it up."""
    said = {
        "width": 32,
        "height": 32,
        "bits": bits,
        "format": 100,
        "frames": ROWS * COLUMNS,
        "compression": 0,
    } | changed
    octets = 32 * 32 * bits // 8
    header = bytearray(8192 if version >= 5 else 1024)
    header[:24] = struct.pack("<I", 0xFEED) + "Norpix seq".encode("utf-16-le")
    struct.pack_into("<2i", header, 28, version, 1024)
    fields = (
        said["width"],
        said["height"],
        said["bits"],
        bits,
        octets,
        said["format"],
        said["frames"],
        0,
        octets + gap,
    )
    struct.pack_into("<9I", header, 548, *fields)
    struct.pack_into("<I", header, 620, said["compression"])
    pictures = (pattern.astype(f"<u{bits // 8}").tobytes() + b"\xff" * gap for pattern in original.stack)
    path.write_bytes(bytes(header) + b"".join(pictures))
    return path


def test_pictures_are_the_patterns(tmp_path, original, given):
    for version, bits in itertools.product([3, 5], [16, 32]):
        with of_case((version, bits), tmp_path) as home:
            scan = load(write(home / "scan.seq", original, version, bits), **given)
            agrees(scan, original.scan)
            assert scan.frames.in_file


def test_the_time_behind_the_last_picture_may_be_missing(tmp_path, original, given):
    path = write(tmp_path / "scan.seq", original)
    path.write_bytes(path.read_bytes()[:-96])
    agrees(load(path, **given), original.scan)


def test_images_that_were_not_taken_are_noted(tmp_path, original, given):
    path = write(tmp_path / "scan.seq", original, frames=1000)
    agrees(load(path, **given), original.scan)
    assert "announces 1000 images and contains 24" in find(path, LoadOptions()).notes[0]


def cut(size):
    return lambda path: path.write_bytes(path.read_bytes()[:size])


def says(**changed):
    return lambda path: write(path, oblong(32), **changed)


BROKEN = {
    "cut short": (cut(20000), "scan.raster-mismatch", "5", "4 x 6"),
    "only a header": (cut(8192), "file.unexpected-content", "length 0"),
    "half a header": (cut(700), "file.damaged"),
    "colours": (says(format=200), "file.unsupported-content", "200"),
    "12 packed bits": (says(bits=16, format=112), "file.unsupported-content", "112"),
    "compressed": (says(compression=1), "file.unsupported-content", "1"),
    "sides of 2**32": (says(width=2**32 - 1, height=2**32 - 1), "file.damaged"),
}


def test_a_damaged_file_is_an_error_of_one_line(tmp_path, original, given):
    for case, (spoil, *expected) in BROKEN.items():
        with of_case(case, tmp_path) as home:
            path = write(home / "scan.seq", original)
            spoil(path)
            refused(path, *expected, **given)
