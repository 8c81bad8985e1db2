import numpy as np
import pytest

from ptynb.data.electrons import electron_wavelength
from ptynb.io.load import find, load
from ptynb.settings.load_options import LoadOptions
from tests.io.cases import of_case, refused
from tests.io.rectangular_scan import ANGLE, COLUMNS, ROWS, VOLTAGE, agrees, oblong
from tests.raising import raises

COUNT = ROWS * COLUMNS
FACTOR = 0.72
"""Between the field of view in the file and the real one, as in real files."""


@pytest.fixture(scope="module")
def original():
    return oblong(128)


def fields(original):
    """The fields of version 1.2, with what version 0.5 says of the detector."""
    view = original.step[0] * COLUMNS * FACTOR
    calibrated = ANGLE / electron_wavelength(VOLTAGE) / 1e18
    return {
        "raw": '<raw_file filename="C:\\data\\scan_x6_y4.raw"/>',
        "size": f"<pix_x>{COLUMNS}</pix_x><pix_y>{ROWS}</pix_y>",
        "iom": "<iom_measurements>{}</iom_measurements>",
        "voltage": f"<high_voltage>{VOLTAGE}</high_voltage>",
        "view": f"<full_scan_field_of_view><x>{view!r}</x><y>{view!r}</y><scale_factor>{FACTOR}</scale_factor>"
        "</full_scan_field_of_view>",
        "calibrated": f"<calibrated_pixelsize>{calibrated!r}</calibrated_pixelsize>",
        "camera": "<nominal_camera_length>0.2</nominal_camera_length>",
    }


def xml(original, **changed):
    given = fields(original) | changed
    inner = "".join(given[name] for name in ("voltage", "view", "calibrated", "camera"))
    return f'<?xml version="1.0"?>\n<root name="a">{given["raw"]}{given["size"]}{given["iom"].format(inner)}</root>'


def write(folder, original, **changed):
    words = np.full((COUNT, 130, 128), np.nan, "<f4")
    words[:, :128] = original.stack
    words.tofile(folder / "scan_x6_y4.raw")
    (folder / "scan.xml").write_text(xml(original, **changed))
    return folder / "scan.xml"


@pytest.fixture
def square(original):
    """Equal steps, which is all that the newer field of view can say."""
    step = original.step[0]
    rows, columns = np.indices((ROWS, COLUMNS)).reshape(2, -1)
    pixel = original.scan.pixel_size[0]
    positions = np.column_stack([rows, columns]) * step / pixel
    return type(original.scan).from_arrays(original.stack, positions, geometry=original.scan.geometry)


def test_either_file_gives_the_scan(tmp_path, original, square):
    for named in ["scan.xml", "scan_x6_y4.raw"]:
        with of_case(named, tmp_path) as home:
            write(home, original)
            scan = load(home / named)
            agrees(scan, square)
            assert scan.frames.in_file
            assert scan.geometry.wavelength == pytest.approx(electron_wavelength(300e3))


def test_a_field_of_view_of_two_sides_gives_two_steps(tmp_path, original):
    sides = f"[{original.step[0] * ROWS!r}, {original.step[1] * COLUMNS!r}]"
    view = f"<optics.get_full_scan_field_of_view>{sides}</optics.get_full_scan_field_of_view>"
    agrees(load(write(tmp_path, original, view=view)), original.scan)


SIZES = {
    "at acquisition": '<scan_parameters mode="search"><scan_resolution_x>9</scan_resolution_x><scan_resolution_y>9'
    '</scan_resolution_y></scan_parameters><scan_parameters mode="acquire"><scan_resolution_x>6</scan_resolution_x>'
    "<scan_resolution_y>4</scan_resolution_y></scan_parameters>",
    "in the name": "",
}


def test_the_raster_is_found_in_each_place(tmp_path, original, square):
    for case in SIZES:
        with of_case(case, tmp_path) as home:
            agrees(load(write(home, original, size=SIZES[case])), square)


def test_a_raw_file_alone_takes_what_is_given(tmp_path, original):
    write(tmp_path, original).unlink()
    with raises("scan.missing-metadata", "the scan's step, the wavelength, the distance"):
        load(tmp_path / "scan_x6_y4.raw")
    (tmp_path / "scan_x6_y4.raw").rename(tmp_path / "other.raw")
    given = {"raster": (ROWS, COLUMNS), "step": original.step, "voltage": VOLTAGE, "angular_pixel": (ANGLE, ANGLE)}
    agrees(load(tmp_path / "other.raw", **given), original.scan)


def test_a_voltage_that_is_given_turns_the_calibration_into_an_angle(tmp_path, original):
    path = write(tmp_path, original, voltage="", camera="")
    with raises("scan.missing-metadata", "wavelength"):
        load(path)
    wavelength = electron_wavelength(200e3)
    expected = ANGLE / electron_wavelength(VOLTAGE) * wavelength
    assert load(path, voltage=200e3).geometry.detector_pixel == pytest.approx((expected, expected))


def test_without_calibration_the_nominal_camera_length_is_used_and_said(tmp_path, original):
    path = write(tmp_path, original, calibrated="")
    geometry = load(path).geometry
    assert (geometry.distance, geometry.detector_pixel) == (0.2, (150e-6, 150e-6))
    assert "nominal camera length" in find(path, LoadOptions()).notes[0]


def test_patterns_after_the_raster_are_left_out_and_said(tmp_path, original):
    path = write(tmp_path, original, size="<pix_x>6</pix_x><pix_y>3</pix_y>")
    assert len(load(path)) == 18
    assert "the 6 after the raster's are left out" in find(path, LoadOptions()).notes[0]


def test_a_series_has_no_raster(tmp_path, original):
    path = write(tmp_path, original, size="<scan_parameters><series_count>24</series_count></scan_parameters>")
    with raises("scan.missing-metadata", "positions"):
        load(path)
    positions = np.indices((ROWS, COLUMNS)).reshape(2, -1).T * np.array(original.step)
    agrees(load(path, positions=positions), original.scan)


def outside(path):
    (path.parent.parent / "secret.raw").write_bytes((path.parent / "scan_x6_y4.raw").read_bytes())
    path.write_text('<root><raw_file filename="../secret.raw"/></root>')


def laughs(path):
    entities = "".join(f'<!ENTITY l{i + 1} "{f"&l{i};" * 10}">' for i in range(12))
    path.write_text(f'<!DOCTYPE root [<!ENTITY l0 "ha">{entities}]><root>&l12;</root>')


def shorter(path):
    raw = path.parent / "scan_x6_y4.raw"
    raw.write_bytes(raw.read_bytes()[:-7])


def fewer(path):
    raw = path.parent / "scan_x6_y4.raw"
    raw.write_bytes(raw.read_bytes()[: 20 * 130 * 128 * 4])


def says(old, new):
    return lambda path: path.write_text(path.read_text().replace(old, new))


def another(path):
    (path.parent / "a.xml").write_text(path.read_text())


BROKEN = {
    "a path that leads outside": (outside, "file.not-found", "secret.raw"),
    "no name": (says("filename", "label"), "file.incomplete"),
    "a name that is a folder": (says("scan_x6_y4.raw", ".."), "file.incomplete"),
    "a billion laughs": (laughs, "file.damaged"),
    "XML cut short": (lambda path: path.write_text(path.read_text()[:90]), "file.damaged"),
    "XML of something else": (lambda path: path.write_text("<svg/>"), "file.incomplete"),
    "an endless XML": (lambda path: path.write_bytes(b"<root>" + bytes(2**24)), "file.damaged"),
    "a raw file cut short": (shorter, "file.damaged", "66560"),
    "fewer patterns": (fewer, "file.damaged", "20", "scan.xml", "24"),
    "empty raw file": (lambda path: (path.parent / "scan_x6_y4.raw").write_bytes(b""), "file.damaged", "0"),
    "a raster of 2**40": (says("<pix_x>6", f"<pix_x>{2**40}"), "file.unexpected-content", "pix_x"),
    "NaN voltage": (says("<high_voltage>300000.0", "<high_voltage>nan"), "file.unexpected-content", "'nan'"),
    "EMPAD-G2": (
        says("<pix_x>", "<sensor><type>EMPAD2</type></sensor><pix_x>"),
        "file.unsupported-content",
        "EMPAD-G2",
    ),
}


def test_a_damaged_file_is_an_error_of_one_line(tmp_path, original):
    for case, (spoil, *expected) in BROKEN.items():
        with of_case(case, tmp_path) as home:
            (home / "in").mkdir()
            path = write(home / "in", original)
            spoil(path)
            refused(path, *expected)


def test_a_voltage_that_is_given_takes_the_place_of_an_absurd_one(tmp_path, original, square):
    path = write(tmp_path, original, voltage="<high_voltage>3e12</high_voltage>")
    with raises("scan.implausible-metadata", "3 to 3000 kV", "voltage=300e3 [V]"):
        load(path)
    agrees(load(path, voltage=300e3), square)


def test_two_files_that_name_the_raw_file_are_asked_about(tmp_path, original):
    another(write(tmp_path, original))
    with raises("file.several-choices", "a.xml, scan.xml", "scan_x6_y4.raw"):
        load(tmp_path / "scan_x6_y4.raw")
    load(tmp_path / "a.xml")
