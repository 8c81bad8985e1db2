import io
import itertools
import struct
import zipfile

import numpy as np
import pytest

from ptynb.data.patterns import ArrayFrames, PlacedFrames
from ptynb.io.load import find, load
from ptynb.settings.load_options import LoadOptions
from tests.io.cases import of_case, refused
from tests.io.rectangular_scan import ANGLE, COLUMNS, ROWS, STEP, VOLTAGE, agrees
from tests.raising import raises

BEAM = {"voltage": VOLTAGE, "angular_pixel": (ANGLE, ANGLE)}


def named(original, metres):
    return {"patterns": original.patterns, "positions": metres, "voltage": 300.0, "angular_pixel_mrad": ANGLE * 1e3}


def test_patterns_of_a_npy_stay_in_the_file(tmp_path, original):
    for shape, dtype in itertools.product([(-1,), (ROWS, COLUMNS)], ["<f4", ">f4", "<u2", ">i4"]):
        with of_case((shape, dtype), tmp_path) as home:
            np.save(home / "scan.npy", original.patterns.reshape(*shape, 32, 32).astype(dtype))
            raster = (ROWS, COLUMNS) if len(shape) == 1 else None
            scan = load(home / "scan.npy", raster=raster, step=original.step, **BEAM)
            agrees(scan, original.scan)
            assert scan.frames.in_file
            assert scan.frames.dtype.isnative


def test_arrays_of_an_npz_are_found_by_their_names(tmp_path, original, metres):
    for save, kind in [(np.savez, PlacedFrames), (np.savez_compressed, ArrayFrames)]:
        with of_case((save, kind), tmp_path) as home:
            mask = np.ones((32, 32), np.uint8)
            mask[3, 5] = 0
            probe = np.ones((1, 1, 2, 32, 32), np.complex64)
            save(home / "scan.npz", notes=np.array(["by hand"]), mask=mask, probe=probe, **named(original, metres))
            scan = load(home / "scan.npz")
            assert isinstance(scan.frames, kind)
            np.testing.assert_array_equal(scan.mask, mask == 1)
            np.testing.assert_array_equal(scan.counts(0, 24), original.stack * mask)
            assert scan.probe.shape == (2, 32, 32)
            assert scan.geometry.wavelength == pytest.approx(original.scan.geometry.wavelength)
            places = find(home / "scan.npz", LoadOptions()).places
            assert {
                "patterns": "patterns",
                "positions": "positions",
                "angular_pixel": "angular_pixel_mrad",
            }.items() <= (places.items())


def test_a_motion_has_units_and_rotation_of_the_positions(tmp_path, original, metres):
    """Each position moves to the next one during its exposure."""
    ways = np.roll(metres, -1, axis=0) - metres
    np.save(tmp_path / "ways.npy", ways)
    np.savez(tmp_path / "scan.npz", ways=ways, **named(original, metres))
    pixel = original.scan.pixel_size
    for units, motion in [
        ("metres", ways),
        ("metres", "ways"),
        ("metres", tmp_path / "ways.npy"),
        ("pixels", ways / pixel),
    ]:
        with of_case((units, type(motion)), tmp_path):
            given = metres if units == "metres" else metres / pixel
            scan = load(tmp_path / "scan.npz", positions=given, motion=motion, units=units, rotation=0.3)
            np.testing.assert_allclose(scan.motion, np.roll(scan.positions, -1, axis=0) - scan.positions, atol=1e-9)
            assert scan.loaded.arrays == (("motion", "positions") if isinstance(motion, np.ndarray) else ("positions",))
    with raises("array.shape-mismatch", "motion", "(3, 2)"):
        load(tmp_path / "scan.npz", motion=ways[:3])


def test_an_archive_that_does_not_begin_at_its_start_keeps_its_places(tmp_path, original, metres):
    np.savez(tmp_path / "scan.npz", **named(original, metres))
    with zipfile.ZipFile(tmp_path / "scan.npz") as old, zipfile.ZipFile(tmp_path / "new.npz", "w") as new:
        for name in old.namelist():
            member = zipfile.ZipInfo(name)
            member.extra = struct.pack("<2H6s", 0x7075, 6, b"padded")
            new.writestr(member, old.read(name))
    agrees(load(tmp_path / "new.npz"), original.scan)


UNITS = {
    "wavelength_nm": (0.15, "wavelength", 1.5e-10),
    "lambda": (1.5e-10, "wavelength", 1.5e-10),
    "energy": (8265.613228880018, "wavelength", 1.5e-10),
    "photon_energy_keV": (8.265613228880018, "wavelength", 1.5e-10),
    "voltage_kV": (300, "wavelength", 1.9687e-12),
    "distance_mm": (200, "distance", 0.2),
    "detector_pixel_um": ([55, 75], "detector_pixel", (55e-6, 75e-6)),
    "step_angstrom": ([0.4, 0.3], "step", (4e-11, 3e-11)),
    "rotation_deg": (90, "rotation", np.pi / 2),
    "raster": ([4, 6], "raster", (4, 6)),
}


def test_a_name_may_end_with_its_unit(tmp_path, original):
    for name, (value, attribute, expected) in UNITS.items():
        with of_case(name, tmp_path) as home:
            np.savez(home / "scan.npz", patterns=original.stack, **{name: value})
            assert getattr(find(home / "scan.npz", LoadOptions()), attribute) == pytest.approx(expected, rel=1e-4)


def test_positions_in_pixels_are_said_by_their_name_or_by_the_user(tmp_path, original):
    pixels = np.indices((ROWS, COLUMNS)).reshape(2, -1).T * np.array(STEP)
    np.savez(tmp_path / "px.npz", patterns=original.stack, positions_px=pixels)
    np.savez(tmp_path / "scan.npz", data=original.stack[None], scan=pixels[None])
    with raises("scan.implausible-metadata", "15", "units='pixels' if they are object pixels, or positions=array [m]"):
        load(tmp_path / "scan.npz")
    for scan in (load(tmp_path / "px.npz"), load(tmp_path / "scan.npz", units="pixels")):
        np.testing.assert_allclose(scan.positions - scan.positions[0], original.scan.positions)


def test_an_array_is_given_by_its_name(tmp_path, original, metres):
    np.savez(tmp_path / "scan.npz", a=original.stack, b=original.stack + 1, places=metres, good=np.ones((32, 32)))
    with raises("file.several-choices", "a (24, 32, 32), b (24, 32, 32)", "patterns='a'"):
        load(tmp_path / "scan.npz", positions="places", **BEAM)
    agrees(load(tmp_path / "scan.npz", patterns="a", positions="places", mask="good", **BEAM), original.scan)
    with raises("file.incomplete", "'c'", "patterns="):
        load(tmp_path / "scan.npz", patterns="c")


def test_patterns_in_fortrans_order_are_saved_again_as_the_message_says(tmp_path, original):
    patterns = np.asfortranarray(original.patterns)
    np.save(tmp_path / "scan.npy", patterns)
    with raises("file.unsupported-content", "numpy.save(path, numpy.ascontiguousarray(patterns))"):
        load(tmp_path / "scan.npy", step=original.step, **BEAM)
    np.save(tmp_path / "scan.npy", np.ascontiguousarray(patterns))
    agrees(load(tmp_path / "scan.npy", step=original.step, **BEAM), original.scan)


def header(shape, descr="<f4", order=False, data=b""):
    text = repr({"descr": descr, "fortran_order": order, "shape": shape}).ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + data


def npy(value):
    return lambda path, original: np.save(path, value(original.patterns), allow_pickle=True)


def octets(made):
    return lambda path, original: path.write_bytes(made)


def cut(path, original):
    np.save(path, original.patterns)
    path.write_bytes(path.read_bytes()[:-5])


BROKEN = {
    "cut short": (cut, "file.damaged"),
    "a header of garbage": (octets(b"\x93NUMPY\x01\x00\x20\x00" + b"(" * 32), "file.damaged"),
    "a header without an end": (octets(b"\x93NUMPY\x02\x00\xff\xff\xff\x7f"), "file.damaged"),
    "text": (octets(b"theta, counts\n1, 2\n"), "file.unknown-format"),
    "a header of 2**40": (octets(header((2**20, 2**10, 2**10))), "file.damaged"),
    "a header of 2**400": (octets(header((2**400, 64, 64))), "file.too-large", "2582", "64 x 64"),
    "a negative shape": (octets(header((-1, 64, 64))), "file.unexpected-content", "(-1, 64, 64)"),
    "words": (npy(lambda patterns: np.full((3, 8, 8), "a")), "file.unexpected-content", "<U1"),
    "records": (npy(lambda patterns: np.zeros((3, 8, 8), "f4, i4")), "file.unexpected-content", "f0"),
    "Python's objects": (npy(lambda patterns: np.full((3, 8, 8), None)), "file.unexpected-content", "object"),
    "swapped axes": (npy(lambda patterns: patterns.transpose(2, 3, 0, 1).copy()), "scan.raster-mismatch"),
}


def test_a_broken_npy_is_an_error_of_one_line(tmp_path, original):
    for case, (spoil, *expected) in BROKEN.items():
        with of_case(case, tmp_path) as home:
            spoil(home / "scan.npy", original)
            refused(home / "scan.npy", *expected, raster=(ROWS, COLUMNS), step=original.step, **BEAM)


def archive(path, members, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as made:
        for name, content in members.items():
            made.writestr(f"{name}.npy", content)


def announces(old, new):
    """A member whose header in the archive's directory says another size."""

    def spoil(path, arrays):
        archive(path, {"patterns": header((100, 64, 64), data=bytes(100 * 64 * 64 * 4))})
        path.write_bytes(path.read_bytes().replace(struct.pack("<I", old), struct.pack("<I", new)))

    return spoil


def bomb(path, arrays):
    """Four petabytes announced by both headers."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        with made.open("patterns.npy", "w", force_zip64=True) as member:
            member.write(header((2**24, 2**13, 2**13)))
        made.infolist()[0].file_size = 128 + 2**52


def damaged(path, arrays):
    np.savez_compressed(path, **arrays)
    content = bytearray(path.read_bytes())
    content[2000:2100] = bytes(100)
    path.write_bytes(content)


def saved(**changed):
    return lambda path, arrays: np.savez(path, allow_pickle=True, **{**arrays, **changed})


def pickled(path, arrays):
    saved = io.BytesIO()
    np.save(saved, np.array([print], dtype=object), allow_pickle=True)
    archive(path, {"patterns": saved.getvalue()})


NPZ_BROKEN = {
    "cut short": (
        lambda path, arrays: (np.savez(path, **arrays), path.write_bytes(path.read_bytes()[:5000])),
        "file.damaged",
    ),
    "damaged": (damaged, "file.damaged", "patterns.npy"),
    "a bomb": (bomb, "file.too-large", "4.5e+06"),
    "a size that is not the header's": (announces(100 * 64 * 64 * 4 + 128, 2**31), "file.damaged", "2147483648"),
    "a pickle": (pickled, "file.unsupported-content", "patterns.npy"),
    "not numpy's": (lambda path, arrays: archive(path, {"patterns": "hello"}), "file.damaged"),
    "no arrays": (lambda path, arrays: np.savez(path, step=1e-9), "scan.missing-metadata"),
    "positions of another length": (saved(positions=np.zeros((23, 2))), "", "(23, 2)", "(24, 2)"),
    "transposed positions": (saved(positions=np.zeros((2, 24))), "", "They look transposed"),
    "flat positions": (saved(positions=np.zeros(48)), "file.unexpected-content", "(48,)"),
    "complex positions": (saved(positions=np.zeros((24, 2), complex)), "file.unexpected-content", "complex128"),
    "NaN position": (saved(positions=np.full((24, 2), np.nan)), "file.unexpected-content", "position 0"),
    "energy in keV": (saved(energy=8.3), "scan.implausible-metadata", "8.3", "energy=8300"),
    "two wavelengths": (saved(wavelength=[1e-10, 2e-10]), "file.unexpected-content", "(2,)"),
    "a wavelength of words": (saved(wavelength="short"), "file.unexpected-content", "wavelength"),
    "a mask of another shape": (saved(mask=np.ones((31, 32))), "", "(31, 32)"),
    "a mask of words": (saved(mask=np.full((32, 32), "a")), "file.unexpected-content", "mask"),
    "half a raster": (saved(raster=[4.5, 6], patterns=np.ones((24, 32, 32))), "file.unexpected-content", "4.5 x 6"),
}


def test_a_broken_npz_is_an_error_of_one_line(tmp_path, original, metres):
    for case, (spoil, *expected) in NPZ_BROKEN.items():
        with of_case(case, tmp_path) as home:
            spoil(home / "scan.npz", named(original, metres))
            refused(home / "scan.npz", *expected)


def test_a_guess_of_another_shape_is_left_out_and_said(tmp_path, original, metres):
    np.savez(tmp_path / "scan.npz", probe=np.ones((16, 16), complex), **named(original, metres))
    assert load(tmp_path / "scan.npz").probe is None
    assert "probe of shape (16, 16) is ignored" in find(tmp_path / "scan.npz", LoadOptions()).notes[0]
