import importlib
import json
import struct

import h5py
import numpy as np
import pytest

from ptynb.data.electrons import electron_wavelength
from ptynb.io.load import find, load
from ptynb.io.reading import reading_errors
from ptynb.settings.load_options import LoadOptions
from tests.io.cases import of_case, refused
from tests.io.rectangular_scan import ANGLE, COLUMNS, ROWS, VOLTAGE, agrees, oblong
from tests.raising import raises

RECIPROCAL = ANGLE / electron_wavelength(VOLTAGE)
"""A detector pixel [1/m]."""


@pytest.fixture(scope="module")
def original():
    """Of few electrons, which fit into eight bits."""
    found = oblong(32, photons=2e3)
    assert found.patterns.max() < 256
    return found


def mib(path, original, kind="U16", side=32):
    """Merlin's layout: 384 bytes of text and a pattern from its last row to its first, big-endian."""
    with path.open("wb") as file:
        for number, pattern in enumerate(original.stack):
            time = "2024-01-01T00:00:00.000000Z"
            words = f"MQ1,{number + 1:06d},00384,01,{side:04d},{side:04d},{kind},   1x1,01,{time},0.001,0,0,0,"
            file.write((words + f"MQ1A,{time},1000000ns,12,").encode().ljust(384))
            file.write(pattern[::-1].astype({"U08": ">u1", "U16": ">u2", "U32": ">u4"}.get(kind, ">u2")).tobytes())


def axes(original):
    steps = [size * 1e9 for size in original.step] + [RECIPROCAL * 1e-9] * 2
    return [
        {
            "index_in_array": i,
            "name": name,
            "size": size,
            "scale": step,
            "offset": 0.0,
            "units": unit,
            "navigate": i < 2,
        }
        for i, (name, size, step, unit) in enumerate(
            zip(("y", "x", "ky", "kx"), original.patterns.shape, steps, ("nm", "nm", "1/nm", "1/nm"), strict=True)
        )
    ]


def signal(original):
    metadata = {"Acquisition_instrument": {"TEM": {"beam_energy": 300.0, "camera_length": 200.0}}}
    return {
        "data": original.patterns.astype(np.uint8),
        "axes": axes(original),
        "metadata": metadata | {"General": {}, "Signal": {"signal_type": "diffraction"}},
        "original_metadata": {"blockfile_header": {"Beam_energy": int(VOLTAGE), "Camera_length": 2000, "Note": ""}},
        "attributes": {"_lazy": False},
    }


def blo(path, original):
    """By RosettaSciIO's own writer, which takes detector axes in centimetres."""
    said = signal(original)
    for axis in said["axes"][2:]:
        axis.update(scale=ANGLE * 0.2 * 100, units="cm")
    importlib.import_module("rsciio.blockfile").file_writer(
        str(path), said, intensity_scaling=None, navigator=None, show_progressbar=False
    )


def tvips(path, original):
    """By RosettaSciIO's own writer."""
    importlib.import_module("rsciio.tvips").file_writer(str(path), signal(original), show_progressbar=False)


def mrc(path, original):
    """MRC2014: 1024 bytes, then the sections."""
    header = bytearray(1024)
    count = ROWS * COLUMNS
    struct.pack_into("<4i", header, 0, 32, 32, count, 6)
    struct.pack_into("<3i", header, 28, 32, 32, count)
    struct.pack_into("<3f", header, 40, 32.0, 32.0, float(count))
    struct.pack_into("<3i", header, 64, 1, 2, 3)
    header[208:216] = b"MAP \x44\x44\0\0"
    path.write_bytes(bytes(header) + original.stack.astype("<u2").tobytes())


def dm4(path, original, turned=False):
    """Gatan's tags of version 4, as few as there can be; `turned`: the scan's axes are the fast ones."""
    patterns = original.patterns.transpose(2, 3, 0, 1) if turned else original.patterns
    sides = list(
        zip(patterns.shape, axes(original)[2:] + axes(original)[:2] if turned else axes(original), strict=True)
    )
    q = struct.Struct(">Q").pack

    def tag(kind, name, content):
        return bytes([kind]) + struct.pack(">H", len(name)) + name.encode() + q(len(content)) + content

    def value(name, code, packed):
        return tag(21, name, b"%%%%" + q(1) + q(code) + packed)

    def array(name, code, count, packed):
        return tag(21, name, b"%%%%" + q(3) + q(20) + q(code) + q(count) + packed)

    def text(name, words):
        return array(name, 4, len(words), words.encode("utf-16-le"))

    def group(name, *tags):
        return tag(20, name, b"\0\0" + q(len(tags)) + b"".join(tags))

    def number(name, size):
        return value(name, 6, struct.pack("<f", size))

    def calibration(axis):
        return group("", number("Origin", 0), number("Scale", axis["scale"]), text("Units", axis["units"]))

    counts = patterns.astype("<u2")
    data = group(
        "ImageData",
        group(
            "Calibrations",
            group("Brightness", number("Origin", 0), number("Scale", 1), text("Units", "")),
            group("Dimension", *(calibration(axis) for _, axis in reversed(sides))),
            value("DisplayCalibratedUnits", 8, b"\1"),
        ),
        array("Data", 4, counts.size, counts.tobytes()),
        value("DataType", 5, struct.pack("<I", 10)),
        group("Dimensions", *(value("", 5, struct.pack("<I", size)) for size, _ in reversed(sides))),
        value("PixelDepth", 5, struct.pack("<I", 2)),
    )
    tags = group("ImageTags", group("Microscope Info", number("Voltage", VOLTAGE)))
    image = group("", data, tags, text("Name", "scan"))
    root = b"\0\0" + q(2) + group("ImageList", image) + value("InImageMode", 8, b"\1")
    path.write_bytes(struct.pack(">IQI", 4, len(root) + 16, 1) + root + bytes(8))


def velox(path, original):
    """A stack of camera frames (y, x, frame), with the JSON that describes it."""
    said = {
        "Core": {"MetadataDefinitionVersion": "7.9", "MetadataSchemaVersion": "v1"},
        "BinaryResult": {
            "PixelSize": {"width": str(RECIPROCAL), "height": str(RECIPROCAL)},
            "Offset": {"x": "0", "y": "0"},
            "PixelUnitX": "1/m",
            "PixelUnitY": "1/m",
            "Detector": "Ceta",
            "DetectorIndex": "0",
        },
        "Scan": {"FrameTime": "0.01"},
        "Detectors": {"Detector-0": {"DetectorName": "Ceta", "ExposureTime": "0.01"}},
        "Optics": {"AccelerationVoltage": "300000", "CameraLength": "0.2"},
        "Instrument": {"InstrumentModel": "x", "InstrumentId": "1"},
        "Acquisition": {"AcquisitionStartDatetime": {"DateTime": "1700000000"}},
    }
    octets = np.frombuffer(json.dumps(said).encode(), np.uint8)
    with h5py.File(path, "w") as file:
        file["Version"] = [json.dumps({"format": "Velox", "version": "11"})]
        image = file.create_group("Data/Image/0123")
        counts = original.stack.astype(np.uint16).transpose(1, 2, 0)
        image.create_dataset("Data", data=counts, chunks=(32, 32, 1))
        image["Metadata"] = np.repeat(octets[:, None], len(original.stack), 1)


FILES = {
    "MIB": ("scan.mib", mib, ()),
    "MIB of 8 bits": ("scan.mib", lambda path, original: mib(path, original, "U08"), ()),
    "MIB of 32 bits": ("scan.mib", lambda path, original: mib(path, original, "U32"), ()),
    "BLO": ("scan.blo", blo, ("raster", "step", "voltage", "angular_pixel")),
    "TVIPS": ("scan_000.tvips", tvips, ("voltage",)),
    "MRC": ("scan.mrc", mrc, ()),
    "DM4": ("scan.dm4", dm4, ("raster", "step", "voltage", "angular_pixel")),
    "DM4 with the scan's axes last": (
        "scan.dm4",
        lambda path, original: dm4(path, original, True),
        ("raster", "step", "voltage", "angular_pixel"),
    ),
    "EMD of Velox": ("scan.emd", velox, ("voltage", "angular_pixel")),
}  # fmt: skip


def test_a_file_holds_the_original(tmp_path, original, given):
    for case, (name, writer, known) in FILES.items():
        with of_case(case, tmp_path) as home:
            writer(home / name, original)
            scan = load(home / name, **{key: value for key, value in given.items() if key not in known})
            # Some formats have scales of 32 bits.
            agrees(scan, original.scan, rtol=1e-6)
            assert scan.frames.in_file


def half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def start(path):
    path.write_bytes(path.read_bytes()[:300])


def says(place, packed):
    def spoil(path):
        content = bytearray(path.read_bytes())
        at = content.index(place) if isinstance(place, bytes) else place
        content[at : at + len(packed)] = packed
        path.write_bytes(content)

    return spoil


def dm4_sides(size):
    """The two sides of a pattern, as the file announces them."""

    def spoil(path):
        content = path.read_bytes()
        old, new = (struct.pack("<I", one) for one in (32, size))
        at = content.index(b"Dimensions")
        path.write_bytes(content[:at] + content[at:].replace(old, new))

    return spoil


def elsewhere(path):
    with h5py.File(path, "r+") as file:
        path.with_name("other.h5").write_bytes(b"")
        file.move("Data/Image/0123/Data", "kept")
        file["Data/Image/0123/Data"] = h5py.ExternalLink("other.h5", "/kept")


BROKEN = {
    "Velox, elsewhere": ("EMD of Velox", elsewhere, "file.damaged", "Data/Image/0123/Data"),
    "MIB, first header": ("MIB", start, "file.unexpected-content"),
    "MIB, half": ("MIB", half, "scan.raster-mismatch", "12", "4 x 6"),
    "MIB, raw, of another layout": ("MIB", says(b"U16,   1x1", b"R64,   2x1"), "file.unsupported-content", "R64"),
    "MIB, raw, sides of words": ("MIB", says(b"0032,0032,U16", b"wide,high,R64"), "file.damaged"),
    "MIB, sides of 0": ("MIB", says(b"0032,0032", b"0000,0000"), "file.damaged"),
    "BLO, half": ("BLO", half, "file.damaged", "24576"),
    "BLO, 65535": ("BLO", says(20, b"\xff" * 8), "file.damaged"),
    "MRC, half": ("MRC", half, "file.damaged"),
    "MRC, 2**40": ("MRC", says(0, struct.pack("<3i", 2**20, 2**20, 2**20)), "file.damaged"),
    "DM4, half": ("DM4", half, "file.damaged"),
    "DM4, endless tags": ("DM4", says(18, struct.pack(">Q", 2**62)), "file.damaged"),
    "DM4, 2**62": ("DM4", dm4_sides(2**31 - 1), "file.too-large"),
    "DM4, no pixels": ("DM4", dm4_sides(0), "file.unexpected-content"),
}


def test_a_damaged_file_is_an_error_of_one_line(tmp_path, original, given):
    for case, (format_, spoil, *expected) in BROKEN.items():
        with of_case(case, tmp_path) as home:
            name, writer, _ = FILES[format_]
            writer(home / name, original)
            spoil(home / name)
            refused(home / name, *expected, **given)


def raw(path, stack, bits, layout="1x1"):
    """Merlin's raw data, word by word: the first pixel in the lowest bits, rows from the last to the first."""
    each = {1: 1, 6: 8, 12: 16, 24: 16}[bits]
    with path.open("wb") as file:
        for number, pattern in enumerate(stack):
            rows = pattern[::-1].astype(object)
            if layout == "2x2":
                half = len(rows) // 2
                upper, lower = rows[:half], rows[half:][::-1, ::-1]
                # upside down, 4 is left of 3 in what was the lower half
                rows = np.hstack([lower[:, :half], lower[:, half:], upper[:, half:], upper[:, :half]])
            parts = [rows // 4096, rows % 4096] if bits == 24 else [rows]
            height, width = rows.shape[0], rows.shape[1] * len(parts)
            words = f"MQ1,{number + 1:06d},00384,{'04' if layout == '2x2' else '01'},{width:04d},{height:04d},R64,"
            file.write(
                (words + f"  {layout},0F,2024-01-01 00:00:00,0.001,0,0,0,MQ1A,x,1000000ns,{bits},").encode().ljust(384)
            )
            for part in parts:
                groups = part.reshape(-1, 64 // each)
                file.write(
                    b"".join(sum(int(n) << each * i for i, n in enumerate(g)).to_bytes(8, "big") for g in groups)
                )


RAW = [
    (1, "1x1", 64),
    (6, "1x1", 32),
    (12, "1x1", 32),
    (24, "1x1", 32),
    (1, "2x2", 128),
    (6, "2x2", 32),
    (12, "2x2", 32),
]


def test_raw_data_are_the_counts_of_all_depths_and_layouts(tmp_path):
    for bits, layout, side in RAW:
        with of_case((bits, layout), tmp_path) as home:
            counts = np.random.default_rng(bits).integers(0, 2**bits, (6, side, side))
            raw(home / "scan.mib", counts, bits, layout)
            record = find(home / "scan.mib", LoadOptions())
            assert record.raster is None
            np.testing.assert_array_equal(record.frames.read(0, 6), counts)
            np.testing.assert_array_equal(record.frames.read(2, 3), counts[2:3])
            (home / "scan.hdr").write_text(
                "HDR,\nFrames in Acquisition (Number):\t6\nFrames per Trigger (Number):\t3\n"
            )
            assert find(home / "scan.mib", LoadOptions()).raster == (2, 3)


def test_raw_data_are_a_scan(tmp_path, original, given):
    raw(tmp_path / "raw.mib", original.stack, 12)
    agrees(load(tmp_path / "raw.mib", **given), original.scan, rtol=1e-6)


def test_without_rosettasciio_the_line_that_installs_it_is_said(tmp_path, original, given, monkeypatch):
    mib(tmp_path / "scan.mib", original)
    monkeypatch.setattr(reading_errors.importlib.util, "find_spec", lambda name: None)
    with raises("package.not-installed", "RosettaSciIO", "pip install 'ptynb[formats]'"):
        load(tmp_path / "scan.mib", **given)


def test_a_voltage_that_is_given_takes_the_place_of_an_absurd_one(tmp_path, original):
    dm4(tmp_path / "scan.dm4", original)
    says(struct.pack("<f", VOLTAGE), struct.pack("<f", 1e12))(tmp_path / "scan.dm4")
    with raises("scan.implausible-metadata", "3 to 3000 kV", "voltage=300e3 [V]"):
        load(tmp_path / "scan.dm4")
    agrees(load(tmp_path / "scan.dm4", voltage=300e3), original.scan, rtol=1e-6)


def test_a_file_that_vanishes_after_loading_is_named(tmp_path, original, given):
    mib(tmp_path / "scan.mib", original)
    scan = load(tmp_path / "scan.mib", **given)
    (tmp_path / "scan.mib").unlink()
    with raises("file.damaged", "scan.mib", "RosettaSciIO"):
        scan.counts(3, 5)


def test_a_movie_that_is_no_raster_has_the_coordinates_beside_it(tmp_path, original):
    """Of Direct Electron's cameras: x, y of each pattern in steps, in any order, also if a raster is not whole."""
    movie, order = tmp_path / "20240101_00001_movie.mrc", np.random.default_rng(3).permutation(ROWS * COLUMNS)
    mrc(movie, original)
    info = {
        "Scan - Enable": "Enable",
        "Scan - Type": "Random",
        "Specimen Pixel Size X (nanometers)": original.step[1] * 1e9,
        "Specimen Pixel Size Y (nanometers)": original.step[0] * 1e9,
        "Diffraction Pixel Size X": RECIPROCAL * 1e-9,
        "Diffraction Pixel Size Y": RECIPROCAL * 1e-9,
        "Instrument Accelerating Voltage (V)": int(VOLTAGE),
        "Instrument Project Camera Length (centimeters)": -1,
    }
    (tmp_path / "20240101_00001_info.txt").write_text("".join(f"{name} = {value}\n" for name, value in info.items()))
    points = np.stack(np.divmod(3 * order, 7), 1)
    np.savetxt(tmp_path / "20240101_00001_scan_coordinates.csv", points[:, ::-1], fmt="%d", delimiter=",")
    scan = load(movie)
    assert scan.geometry.wavelength == pytest.approx(electron_wavelength(VOLTAGE))
    np.testing.assert_allclose(scan.geometry.detector_pixel, ANGLE)
    np.testing.assert_array_equal(scan.frames.read(0, len(order)), original.stack)
    np.testing.assert_allclose(scan.positions * scan.pixel_size, points * original.step)
    other = load(movie, voltage=VOLTAGE, angular_pixel=ANGLE, step=1e-10)
    np.testing.assert_allclose(other.positions * other.pixel_size, points * 1e-10)
    (tmp_path / "20240101_00001_scan_coordinates.csv").write_text("0, 0\n" * 7)
    with raises("file.count-mismatch", "(7, 2)", "24 patterns", "positions="):
        load(movie, voltage=VOLTAGE, angular_pixel=ANGLE)
