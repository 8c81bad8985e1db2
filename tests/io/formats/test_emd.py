import itertools
import warnings

import h5py
import numpy as np
import pytest

from ptynb.data.electrons import electron_wavelength
from ptynb.io.load import find, load
from ptynb.settings.load_options import LoadOptions
from tests.io.cases import of_case, refused
from tests.io.rectangular_scan import ANGLE, COLUMNS, ROWS, VOLTAGE, agrees, oblong
from tests.raising import raises

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import emdfile

CALIBRATION = "datacube_root/metadatabundle/calibration"
DATA = "datacube_root/datacube/data"


class DataCube(emdfile.Array):
    """py4DSTEM's class is one of emdfile's arrays under this name."""


@pytest.fixture(scope="module")
def original():
    """Of equal steps, which is all that py4DSTEM's calibration can say."""
    return oblong(32, step=(3, 3))


def write(path, original, patterns=None, axes=None, **calibration):
    """By emdfile's own writer, with the names of py4DSTEM's calibration."""
    root = emdfile.Root("datacube_root")
    data = original.patterns if patterns is None else patterns
    root.tree(DataCube(data, name="datacube", units="pixel intensity", **(axes or {})))
    said = {
        "R_pixel_size": original.step[0] * 1e10,
        "R_pixel_units": "A",
        "Q_pixel_size": ANGLE / electron_wavelength(VOLTAGE) * 1e-10,
        "Q_pixel_units": "A^-1",
        "QR_flip": False,
    } | calibration
    kept = emdfile.Metadata("calibration", {name: value for name, value in said.items() if value is not None})
    root.metadata = kept
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        emdfile.save(str(path), root, mode="o")
    return path


def test_the_datacube_is_the_original(tmp_path, original):
    path = write(tmp_path / "scan.h5", original)
    with raises("scan.missing-metadata", "voltage=300e3 [V]"):
        load(path)
    scan = load(path, voltage=VOLTAGE)
    agrees(scan, original.scan)
    assert scan.frames.in_file


def rotated(angle, vectors):
    """A vector of the detector (row, column) as it lies in the scan, as py4DSTEM turns it."""
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return vectors @ turn.T


TURNS = {"a quarter": np.pi / 2, "half": np.pi, "three quarters": -np.pi / 2}


def test_a_scan_that_is_turned_and_flipped_against_the_detector_is_put_right(tmp_path, original):
    """The patterns are written where they lie in the scan's axes; the loaded scan is the original once more."""
    for flip, case in itertools.product([False, True], TURNS):
        with of_case((flip, case), tmp_path) as home:
            places = np.indices((ROWS, COLUMNS)).reshape(2, -1).T
            turned = np.rint(rotated(TURNS[case], places)).astype(int)
            turned -= turned.min(0)
            cube = np.empty((*(turned.max(0) + 1), 32, 32), np.float32)
            cube[tuple(turned.T)] = original.stack.transpose(0, 2, 1) if flip else original.stack
            # QR_flip exchanges the detector's axes first: what was transposed on the way to the file.
            scan = load(write(home / "scan.h5", original, cube, QR_rotation=TURNS[case], QR_flip=flip), voltage=VOLTAGE)
            order = np.empty(len(places), int)
            order[np.ravel_multi_index(tuple(turned.T), cube.shape[:2])] = np.arange(len(places))
            np.testing.assert_array_equal(scan.counts(0, len(scan)), original.stack[order])
            wanted = original.scan.positions[order]
            np.testing.assert_allclose(scan.positions - scan.positions[0], wanted - wanted[0], atol=1e-8)


UNITS = {
    "nm": ({"R_pixel_units": "nm"}, 0.1),
    "angstrom": ({"R_pixel_units": "Å"}, 1.0),
    "mrad": ({"Q_pixel_units": "mrad", "Q_pixel_size": ANGLE * 1e3}, 1.0),
    "1/nm": ({"Q_pixel_units": "1/nm", "Q_pixel_size": ANGLE / electron_wavelength(VOLTAGE) * 1e-9}, 1.0),
}


def test_units_are_those_of_the_calibration(tmp_path, original):
    for case, (said, factor) in UNITS.items():
        with of_case(case, tmp_path) as home:
            if "R_pixel_units" in said:
                said = said | {"R_pixel_size": original.step[0] * 1e10 * factor}
            agrees(load(write(home / "scan.h5", original, **said), voltage=VOLTAGE), original.scan)


def test_axes_say_what_the_calibration_does_not(tmp_path):
    original = oblong(32)
    sizes = [size * 1e9 for size in original.step] + [ANGLE * 1e3] * 2
    axes = {"dims": sizes, "dim_units": ["nm", "nm", "mrad", "mrad"]}
    none = dict.fromkeys(("R_pixel_size", "R_pixel_units", "Q_pixel_size", "Q_pixel_units"))
    path = write(tmp_path / "scan.h5", original, axes=axes, **none)
    agrees(load(path, voltage=VOLTAGE), original.scan)
    assert find(path, LoadOptions()).places["step"] == "/datacube_root/datacube: axes 0 and 1"


def test_an_older_file_of_berkeleys_is_read_by_its_axes(tmp_path):
    original = oblong(32)
    with h5py.File(tmp_path / "scan.emd", "w") as file:
        cube = file.create_group("data/scan")
        cube.attrs["emd_group_type"] = 1
        cube["data"] = original.patterns
        for number, (side, step, unit) in enumerate(
            zip(original.patterns.shape, [*original.step, ANGLE, ANGLE], ["[m]", "[m]", "[rad]", "[rad]"], strict=True)
        ):
            cube[f"dim{number + 1}"] = np.arange(side) * step
            cube[f"dim{number + 1}"].attrs["units"] = np.bytes_(unit)
    agrees(load(tmp_path / "scan.emd", voltage=VOLTAGE), original.scan)


def test_a_voltage_in_the_metadata_is_used(tmp_path, original):
    path = write(tmp_path / "scan.h5", original)
    with h5py.File(path, "r+") as file:
        file["datacube_root/metadatabundle/microscope/accelerating_voltage"] = 300.0
    agrees(load(path), original.scan)


def change(name, value):
    def spoil(path):
        with h5py.File(path, "r+") as file:
            if name in file:
                del file[name]
            if value is not None:
                file[name] = value

    return spoil


def twice(path):
    with h5py.File(path, "r+") as file:
        file.copy("datacube_root/datacube", file["datacube_root"], "second")


def huge(path):
    with h5py.File(path, "r+") as file:
        del file[DATA]
        file["datacube_root/datacube"].create_dataset("data", (2**20, 2**20, 64, 64), "f4", chunks=(1, 1, 64, 64))


BROKEN = {
    "no data": (change(DATA, None), "file.incomplete"),
    "a header of 2**40": (huge, "file.too-large", "1099511627776"),
    "two cubes": (twice, "file.several-choices", "patterns='datacube_root/datacube/data'"),
    "a size of 0": (change(f"{CALIBRATION}/R_pixel_size", 0.0), "scan.missing-metadata", "step"),
    "a size of words": (change(f"{CALIBRATION}/Q_pixel_size", "small"), "file.unexpected-content", "Q_pixel_size"),
    "no units": (change(f"{CALIBRATION}/R_pixel_units", "pixels"), "scan.missing-metadata"),
}


def test_a_damaged_file_is_an_error_of_one_line(tmp_path, original):
    for case, (spoil, *expected) in BROKEN.items():
        with of_case(case, tmp_path) as home:
            path = write(home / "scan.h5", original)
            spoil(path)
            refused(path, *expected, voltage=VOLTAGE)


def test_a_voltage_that_is_given_takes_the_place_of_an_absurd_one(tmp_path, original):
    path = write(tmp_path / "scan.h5", original)
    change("datacube_root/metadatabundle/m/voltage", 1e9)(path)
    with raises("scan.implausible-metadata", "3 to 3000 kV", "voltage=300e3 [V]"):
        load(path)
    agrees(load(path, voltage=300e3), original.scan)


def test_a_rotation_that_is_given_takes_the_place_of_a_broken_one(tmp_path, original):
    for broken in (np.nan, "none"):
        with of_case(broken, tmp_path) as home:
            path = write(home / "scan.h5", original)
            change(f"{CALIBRATION}/QR_rotation", broken)(path)
            with raises("file.unexpected-content", "QR_rotation", "rotation=... [rad]"):
                load(path, voltage=VOLTAGE)
            agrees(load(path, voltage=VOLTAGE, rotation=0.0), original.scan)
            turned = load(path, voltage=VOLTAGE, rotation=0.3)
            assert not np.allclose(turned.positions, original.scan.positions, atol=0.1)


def test_a_depth_of_a_simulation_is_chosen_from_those_that_are_named(tmp_path, original):
    """Patterns at several depths in the sample, as Prismatic writes them, beside images that are no patterns."""
    path, places = tmp_path / "scan.h5", [f"4DSTEM_simulation/data/datacubes/CBED_array_depth{n:04d}" for n in range(3)]
    with h5py.File(path, "w") as file:
        for number, place in enumerate([*places, "4DSTEM_simulation/data/realslices/virtual_detector_depth0000"]):
            group = file.create_group(place)
            group.attrs["emd_group_type"] = np.int32(1)
            group["data" if number else "datacube"] = (
                original.patterns * (number + 1) if "CBED" in place else np.zeros((4, 6, 9), np.float32)
            )
            steps = [(step * 1e10, "[Å]") for step in original.step] + [
                (ANGLE / electron_wavelength(VOLTAGE) * 1e-10, "[Å^-1]")
            ] * 2
            for axis, (step, unit) in enumerate(steps, 1):
                group[f"dim{axis}"] = np.arange(original.patterns.shape[axis - 1]) * step
                group[f"dim{axis}"].attrs["units"] = unit
    with raises("file.several-choices", *places, f"patterns='{places[0]}/datacube'") as caught:
        load(path, voltage=VOLTAGE)
    assert "virtual_detector" not in str(caught.value)
    for number, place in enumerate(places):
        scan = load(path, voltage=VOLTAGE, patterns=f"{place}/{'data' if number else 'datacube'}")
        np.testing.assert_array_equal(scan.frames.read(0, 24), original.stack * (number + 1))
        np.testing.assert_allclose(scan.positions, original.scan.positions, atol=1e-6)
