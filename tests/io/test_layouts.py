"""Each layout of the HDF5 family holds the scan that was written."""

import dataclasses

import h5py
import hdf5plugin
import numpy as np
import pytest

from ptynb.io.file_info import info
from ptynb.io.load import find, load
from ptynb.settings.load_options import LoadOptions
from ptynb.simulation.simulated_scan import simulate
from tests.io import layouts
from tests.io.cases import of_case
from tests.raising import raises

RASTER = (6, 6)
LAYOUTS = {
    "CXI, data at the detector": (layouts.cxidb, {}, {}),
    "CXI, second detector": (layouts.cxidb, {"detector": 2}, {}),
    "CXI with units, second entry": (layouts.cxi_with_units, {}, {}),
    "NXcxi_ptycho": (layouts.nxcxi, {}, {}),
    "NXcxi_ptycho, raster and virtual list": (layouts.nxcxi, {"raster": RASTER}, {}),
    "NeXus, motors": (layouts.nexus_motors, {}, {}),
    "plain": (layouts.plain, {}, {}),
    "plain, raster": (layouts.plain, {"raster": RASTER}, {}),
    "ptyd": (layouts.ptyd, {}, {}),
    "ptyd in many files": (layouts.ptyd, {"link": True}, {}),
    "Eiger, links": (layouts.eiger, {}, {"positions": True}),
    "Eiger, virtual": (layouts.eiger, {"virtual": True}, {"positions": True}),
    "Eiger, virtual, Zstandard": (layouts.eiger, {"virtual": True, "how": hdf5plugin.Zstd()}, {"positions": True}),
}


@pytest.fixture(scope="module")
def simulated():
    return simulate(36, window=32, seed=5)


def written(folder, simulated, case):
    write, how, given = LAYOUTS[case]
    given = dict(given)
    if given.pop("positions", False):
        given["positions"] = layouts.truth(simulated)[1]
    return write(folder / "scan_master.h5", simulated, **how), given


def test_a_layout_holds_the_scan_that_was_written(tmp_path, simulated):
    for case in LAYOUTS:
        with of_case(case, tmp_path) as home:
            path, given = written(home, simulated, case)
            scan = load(path, **given)
            assert scan.frames.in_file
            np.testing.assert_allclose(scan.positions, simulated.positions, rtol=1e-9, atol=1e-9)
            counts = simulated.counts(0, 36)
            np.testing.assert_array_equal(scan.counts(0, 36), counts if scan.mask is None else counts * scan.mask)
            np.testing.assert_array_equal(scan.counts(11, 14), scan.counts(0, 36)[11:14])
            assert scan.geometry.wavelength == pytest.approx(simulated.geometry.wavelength, rel=1e-6)
            assert scan.geometry.distance == pytest.approx(simulated.geometry.distance)
            assert scan.geometry.detector_pixel == pytest.approx(simulated.geometry.detector_pixel)
            found = find(path, LoadOptions(**given))
            assert {"patterns", "distance"} <= found.places.keys()


def arina(folder, simulated, *, energy=300e3, metadata=None):
    """A master file of an ARINA: the software computes the wavelength of photons, and a distance is never entered."""
    path = layouts.eiger(folder / "scan_master.h5", simulated)
    with h5py.File(path, "r+") as file:
        layouts.put(file, "entry/instrument/detector/description", "Dectris ARINA Si")
        for name, value, units in (
            ("beam/incident_wavelength", 12398.42 / energy, "angstrom"),
            ("detector/detectorSpecific/photon_energy", energy, "eV"),
            ("detector/detector_distance", 0.0, "m"),
        ):
            file.pop(f"entry/instrument/{name}", None)
            layouts.put(file, f"entry/instrument/{name}", value, units)
    if metadata is not None:
        with h5py.File(folder / "scan.h5", "w") as file:
            file.create_group("STEM Metadata").attrs.update(metadata)
    return path


def test_a_detector_of_electrons_has_electrons_a_raster_and_its_metadata_beside_it(tmp_path, simulated):
    path = arina(tmp_path, simulated, metadata={"Pixel Size": [0.05, 0.05], "Pixel Size Unit": "nm"})
    with raises("scan.missing-metadata", "the distance to the detector", "angular_pixel"):
        load(path)
    found = info(path)
    assert any("300000 eV" in note and "electrons" in note for note in found.notes)
    assert any("detector_distance is 0" in note for note in found.notes)
    assert any("6 x 6" in note and "raster=" in note for note in found.notes)
    scan = load(path, angular_pixel=1e-3)
    assert scan.geometry.wavelength == pytest.approx(1.9687e-12, rel=1e-4)
    np.testing.assert_allclose(np.diff(scan.positions[:6, 1]) * scan.pixel_size[1], 0.05e-9)
    np.testing.assert_allclose(np.diff(scan.positions[::6, 0]) * scan.pixel_size[0], 0.05e-9)
    assert load(path, angular_pixel=1e-3, raster=(4, 9)).positions[9, 0] > 0


def test_the_default_energy_of_a_detector_of_electrons_is_no_voltage(tmp_path, simulated):
    path = arina(tmp_path, simulated, energy=8041.0)
    with raises("scan.missing-metadata", "8041 eV", "Dectris ARINA Si", "voltage=300e3 [V]"):
        load(path, angular_pixel=1e-3, step=1e-10)
    scan = load(path, angular_pixel=1e-3, step=1e-10, voltage=200e3)
    assert scan.geometry.wavelength == pytest.approx(2.5079e-12, rel=1e-4)
    path = arina(
        tmp_path, simulated, energy=8041.0, metadata={"Pixel Size": 0.05, "voltage_kV": 200, "Scan Shape": [4, 9]}
    )
    scan = load(path, angular_pixel=1e-3)
    assert scan.geometry.wavelength == pytest.approx(2.5079e-12, rel=1e-4)
    assert scan.positions[8, 0] == 0 < scan.positions[9, 0]


def test_a_probe_that_is_given_is_the_first_guess(tmp_path, simulated):
    path = layouts.cxidb(tmp_path / "scan.cxi", simulated)
    probe = np.random.default_rng(1).standard_normal((32, 32)) + 1j
    np.save(tmp_path / "probe.npy", probe)
    with h5py.File(path, "r+") as file:
        file["mine"] = np.stack([probe, 2j * probe])
    np.testing.assert_array_equal(load(path, probe=probe).probe, probe[None])
    np.testing.assert_array_equal(load(path, probe=tmp_path / "probe.npy").probe, probe[None])
    np.testing.assert_array_equal(load(path, probe="mine").probe, [probe, 2j * probe])
    assert any(fact.name == "probe, first guess" for fact in info(path, probe=probe).facts)
    with raises("scan.invalid-guess", "(1, 8, 8)"):
        load(path, probe=probe[:8, :8])


def test_the_probe_of_a_lens_is_an_option(tmp_path, simulated):
    path = layouts.cxidb(tmp_path / "scan.cxi", simulated)
    lens = {"convergence_angle": 3e-4, "defocus": 1e-3, "aberrations": {"C12": (2e-4, 0.5)}}
    scan, plain = load(path, **lens), load(path)
    np.testing.assert_array_equal(scan.probe, plain.with_probe(**lens).probe)
    assert scan.loaded.given == lens | {"aberrations": {"C12": [2e-4, 0.5]}}
    assert scan.preparation == ()
    found = info(path, **lens)
    assert ("convergence angle", "0.0003", "rad", "given") in [dataclasses.astuple(fact)[:4] for fact in found.facts]
    with raises("probe.pixels-too-large", "use pixels of at most"):
        load(path, convergence_angle=0.5)
