import warnings

import h5py
import numpy as np
import pytest
import torch

from ptynb.data.engine_records import Result
from ptynb.io.load import load
from ptynb.io.result_file import save_result
from ptynb.simulation.simulated_scan import simulate
from tests.io.cases import of_case, refused
from tests.raising import raises

with warnings.catch_warnings():
    # CDTools uses what matplotlib has deprecated
    warnings.simplefilter("ignore")
    from cdtools.tools import data as cdtools_data
    from cdtools.tools.initializers import exit_wave_geometry
    from cdtools.tools.interactions import translations_to_pixel

SOURCE = "entry_1/instrument_1/source_1"
DETECTOR = "entry_1/instrument_1/detector_1"
GEOMETRY = "entry_1/sample_1/geometry_1"
PIXEL = (75e-6, 50e-6)
SHAPE = (12, 16, 14)
# Rows down (-y), columns towards -x: CDTools' own choice where a file gives pixel sizes only.
UPRIGHT = np.array([[0, -PIXEL[1]], [-PIXEL[0], 0], [0, 0]])
# Wavelength and distance are stored as float32: half a unit in the last place each.
FLOAT32 = 2**-23


@pytest.fixture(scope="module")
def simulated():
    return simulate(SHAPE[0], window=SHAPE[1], seed=3)


def rotation(angle):
    return np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])


def write(path, simulated, basis=UPRIGHT):
    """A CXI file by CDTools' own writers: the simulated patterns, cut so that the axes can't be mistaken."""
    wavelength, distance = simulated.geometry.wavelength, simulated.geometry.distance
    pixels = np.linalg.norm(basis, axis=0)
    object_basis = basis / pixels * (wavelength * distance / (np.array(SHAPE[1:]) * pixels))
    mask = np.ones(SHAPE[1:])
    mask[2, 5] = 0
    with cdtools_data.create_cxi(str(path)) as file:
        cdtools_data.add_source(file, wavelength)
        cdtools_data.add_detector(file, distance, basis)
        cdtools_data.add_mask(file, mask)
        cdtools_data.add_data(file, simulated.counts(0, SHAPE[0])[:, :, : SHAPE[2]])
        cdtools_data.add_ptycho_translations(file, simulated.positions @ object_basis.T)
    return path


@pytest.fixture
def cxi(tmp_path, simulated):
    return write(tmp_path / "scan.cxi", simulated)


def change(path, removed=(), **written):
    """Takes datasets out of the file and puts others in ("group/name" with slashes as __)."""
    with h5py.File(path, "r+") as file:
        for name in removed:
            del file[name]
        for name, values in written.items():
            folder = {"source": SOURCE, "detector": DETECTOR, "geometry": GEOMETRY}[name.split("__")[0]]
            full = f"{folder}/{name.split('__')[1]}"
            if full in file:
                del file[full]
            file[full] = values
    return path


def agrees(scan, simulated):
    moved = scan.positions - scan.positions[0]
    np.testing.assert_allclose(moved, simulated.positions - simulated.positions[0], rtol=3 * FLOAT32, atol=1e-12)
    assert scan.geometry.wavelength == pytest.approx(simulated.geometry.wavelength, rel=FLOAT32)
    assert scan.geometry.distance == pytest.approx(simulated.geometry.distance, rel=FLOAT32)
    assert scan.geometry.detector_pixel == pytest.approx(PIXEL, rel=1e-14)


def test_a_file_of_cdtools_holds_the_same_scan(cxi, simulated):
    scan = load(cxi)
    agrees(scan, simulated)
    mask = np.ones(SHAPE[1:], bool)
    mask[2, 5] = False
    np.testing.assert_array_equal(scan.mask, mask)
    np.testing.assert_array_equal(scan.counts(0, 12), simulated.counts(0, 12)[:, :, :14] * mask)
    assert scan.centred
    assert scan.name == "scan"


def test_positions_are_those_that_cdtools_computes(tmp_path, simulated):
    for angle in [0.0, 0.7, np.pi / 2, 2.5]:
        with of_case(angle, tmp_path) as home:
            path = write(home / "scan.cxi", simulated, rotation(angle) @ UPRIGHT)
            with h5py.File(path, "r") as file:
                distance, basis, _ = cdtools_data.get_detector_geometry(file)
                wavelength = cdtools_data.get_wavelength(file)
                translations = cdtools_data.get_ptycho_translations(file)
            object_basis = exit_wave_geometry(torch.as_tensor(basis), SHAPE[1:], float(wavelength), float(distance))
            theirs = translations_to_pixel(object_basis, torch.as_tensor(translations)).numpy()
            # CDTools reads translations as float32.
            np.testing.assert_allclose(load(path).positions, theirs, rtol=0, atol=2 * FLOAT32 * np.abs(theirs).max())


def test_corner_of_a_tilted_detector_gives_the_distance_along_its_normal(cxi):
    tilt = np.array([[1, 0, 0], [0, 0.8, -0.6], [0, 0.6, 0.8]])
    corner = tilt @ np.array([0.3, 0.2, 1.7])
    change(
        cxi, [f"{DETECTOR}/distance"], detector__basis_vectors=tilt @ UPRIGHT, detector__corner_position=corner[None]
    )
    assert load(cxi).geometry.distance == pytest.approx(1.7, rel=1e-12)


def test_one_pixel_size_means_square_pixels(tmp_path, simulated):
    for kept, size in [("x", PIXEL[1]), ("y", PIXEL[0])]:
        with of_case((kept, size), tmp_path) as home:
            cxi = write(home / "scan.cxi", simulated)
            other = {"x": "y", "y": "x"}[kept]
            change(cxi, [f"{DETECTOR}/basis_vectors", f"{DETECTOR}/{other}_pixel_size"])
            assert load(cxi).geometry.detector_pixel == pytest.approx((size, size))


def test_what_a_file_lacks_follows_from_the_rest(tmp_path, simulated):
    corner = np.array([7 * PIXEL[1], 8 * PIXEL[0], simulated.geometry.distance])
    for removed, written in (
        ([f"{SOURCE}/wavelength"], {}),
        ([f"{DETECTOR}/distance"], {"detector__corner_position": corner}),
        ([f"{DETECTOR}/basis_vectors"], {}),
        ([], {"detector__basis_vectors": UPRIGHT.T}),
        (["entry_1/data_1/data", "cxi_version"], {}),
    ):
        with of_case((removed, written), tmp_path) as home:
            agrees(load(change(write(home / "scan.cxi", simulated), removed, **written)), simulated)


def test_translations_are_found_in_each_place(simulated, tmp_path):
    for left in ["entry_1/data_1", DETECTOR, GEOMETRY]:
        with of_case(left, tmp_path) as home:
            cxi = write(home / "scan.cxi", simulated)
            with h5py.File(cxi, "r+") as file:
                translations = file[f"{GEOMETRY}/translation"][()]
                for place in ("entry_1/data_1", DETECTOR, GEOMETRY):
                    del file[f"{place}/translation"]
                file[f"{left}/translation"] = translations[:, :2] if left == GEOMETRY else translations
            agrees(load(cxi), simulated)


def test_names_of_other_programs_are_no_numbers_of_groups(tmp_path, simulated):
    """A digit at the end of a group's name, one that Python does not read, and thousands of digits in other names."""
    for name in ("entry_1/detector1/frames", "entry_1/run²/frames", "frames"):
        with of_case(name, tmp_path) as home:
            path = write(home / "scan.cxi", simulated)
            with h5py.File(path, "r+") as file:
                file[name] = h5py.SoftLink("/entry_1/data_1/data")
                file["entry_" + "8" * 5000 + "/data_1/data"] = np.ones((3, 8, 8))
                file["entry_1/instrument_1/detector_" + "8" * 5000 + "/data"] = np.ones((3, 8, 8))
            agrees(load(path, patterns=name), simulated)


def test_only_the_bit_for_signal_leaves_a_pixel_good(cxi):
    bits = np.zeros(SHAPE[1:], np.uint32)
    bits[0, :4] = (0x1000, 0x1001, 0x1, 0x80000000)
    mask = load(change(cxi, detector__mask=bits)).mask
    np.testing.assert_array_equal(mask[0, :5], [True, False, False, False, True])


MISSING = {
    "energy": (
        [f"{SOURCE}/wavelength", f"{SOURCE}/energy"],
        {"energy": 8265.613228880018},
        "energy=10e3 (photons, [eV])",
    ),
    "distance": ([f"{DETECTOR}/distance"], {"distance": 2.0}, "distance=2.0 [m]"),
    "pixel": (
        [f"{DETECTOR}/{name}" for name in ("basis_vectors", "x_pixel_size", "y_pixel_size")],
        {"detector_pixel": PIXEL},
        "detector_pixel=(55e-6, 55e-6) (y, x) [m]",
    ),
}


def test_missing_metadata_is_asked_for_and_can_be_given(simulated, tmp_path):
    for case, (removed, given, *facts) in MISSING.items():
        with of_case(case, tmp_path) as home:
            cxi = write(home / "scan.cxi", simulated)
            change(cxi, removed)
            with raises("scan.missing-metadata", *facts):
                load(cxi)
            agrees(load(cxi, **given), simulated)


def test_given_metadata_takes_the_place_of_the_files(cxi):
    geometry = load(cxi, wavelength=2e-10, distance=3.0, detector_pixel=(1e-5, 2e-5)).geometry
    assert (geometry.wavelength, geometry.distance) == (2e-10, 3.0)
    assert geometry.detector_pixel == pytest.approx((1e-5, 2e-5))


def a_result(path):
    arrays = {"object": np.ones((4, 4), complex), "probe": np.ones((1, 4, 4), complex), "positions": np.zeros((1, 2))}
    save_result(Result(**arrays, origin=(0, 0), epochs=(), r_factor=0.0, settings={}), path)


def changed(removed=(), **written):
    return lambda path: change(path, removed, **written)


BROKEN = {
    "gone": (lambda path: path.unlink(), "file.not-found"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "file.unknown-format"),
    "a result": (a_result, "file.unknown-format"),
    "no patterns": (changed([f"{DETECTOR}/data"]), "file.incomplete", "entry_1/data_1/data"),
    "flat translations": (changed(geometry__translation=np.zeros(36)), "file.unexpected-content", "(36,)"),
    "translations in words": (
        changed(geometry__translation=np.full((12, 3), b"left")),
        "file.unexpected-content",
        "S4",
    ),
    "mask of another shape": (changed(detector__mask=np.zeros((14, 16))), "", "(14, 16)"),
    "parallel basis": (changed(detector__basis_vectors=np.ones((3, 2))), "file.unexpected-content", "basis"),
    "NaN basis": (changed(detector__basis_vectors=UPRIGHT * np.nan), "file.unexpected-content", "nan"),
    "zero energy": (changed([f"{SOURCE}/wavelength"], source__energy=0.0), "scan.missing-metadata"),
}


def test_a_damaged_file_is_an_error_of_one_line(tmp_path, simulated):
    for case, (spoil, *expected) in BROKEN.items():
        with of_case(case, tmp_path) as home:
            cxi = write(home / "scan.cxi", simulated)
            spoil(cxi)
            refused(cxi, *expected)


def test_nothing_stays_open_after_loading(cxi):
    load(cxi)
    with h5py.File(cxi, "r+") as file:  # refused by HDF5 where the file is still open for reading
        file["entry_1/data_1/data"][0, 0, 0] = 1
