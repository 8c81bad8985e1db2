"""Results as NXcxi_ptycho: valid by nexusformat's definitions, read by it, by silx and by ptynb."""

import dataclasses
import logging
import warnings

import h5py
import numpy as np
import pytest

import ptynb as pt
from ptynb.cli.main import main
from ptynb.data.electrons import electron_wavelength
from ptynb.data.patterns.in_memory import ArrayFrames
from ptynb.io.export import nexus_export
from ptynb.io.scan_identity import identity_of
from tests.io.results import FULL, complex_array
from tests.raising import raises

GEOMETRY = pt.Geometry(wavelength=1.5e-10, distance=2.0, detector_pixel=(75e-6, 55e-6))
RANDOM = np.random.default_rng(3)
OF_THE_DEFINITION = {"The field value is not a valid NX_FLOAT"}
"""Its slip: the words for the source's type and probe are to be numbers."""
NO_FIT = "ignore:.*It fits the patterns with an R-factor:ptynb.InitialGuessWarning"
"""These results are random numbers."""


@pytest.fixture
def scan():
    counts = RANDOM.poisson(5, (9, 8, 10)).astype(np.uint16)
    mask = np.ones((8, 10), bool)
    mask[2, 3] = False
    positions = np.indices((3, 3)).reshape(2, -1).T * 4.0 + RANDOM.uniform(0, 1, (9, 2))
    return pt.Scan.from_arrays(counts, positions, geometry=GEOMETRY, mask=mask, name="a scan")


def result_of(scan, **changes):
    refined = scan.positions + RANDOM.uniform(-0.3, 0.3, scan.positions.shape) - FULL.origin
    changes = {
        "positions": refined,
        "parameters": {},
        "pixel_size": scan.pixel_size,
        "scan": identity_of(scan),
        **changes,
    }
    return dataclasses.replace(FULL, **changes)


def test_a_result_is_valid_by_the_definition(tmp_path, scan, caplog):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from nexusformat.nexus.validate import logger, validate_application
    path = pt.export(result_of(scan), tmp_path / "a.nxs", scan=scan)
    logger.setLevel(logging.INFO)
    logger.addHandler(caplog.handler)
    try:
        assert validate_application(str(path))[1] == 0
    finally:
        logger.removeHandler(caplog.handler)
    told = {record.message.strip() for record in caplog.records if record.levelno in (logging.WARNING, logging.ERROR)}
    assert told <= OF_THE_DEFINITION
    assert len(caplog.records) > 50  # what it has looked at


def test_viewers_show_the_object_first(tmp_path, scan):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import silx.io
        from nexusformat.nexus import nxload
        from silx.io.nxdata import NXdata, get_default
    result = result_of(scan)
    path = str(pt.export(result, tmp_path / "a.nxs", scan=scan))
    with silx.io.open(path) as file:
        shown = get_default(file)
        assert (shown.group.name, shown.interpretation) == ("/entry_1/process_1/phase", "image")
        for name in ("result_1", "result_2", "data", "process_1/probe", "process_1/loss"):
            assert NXdata(file[f"entry_1/{name}"]).is_valid, name
    entry = nxload(path)["entry_1"]
    np.testing.assert_array_equal(entry["object/data"].nxvalue, result.object[None])
    np.testing.assert_array_equal(entry["probe/data"].nxvalue, result.probe)
    assert [axis.nxname for axis in entry["result_2"].nxaxes][1:] == ["y", "x"]
    np.testing.assert_array_equal(entry["data"].nxsignal.nxvalue, scan.frames.read(0, 9))
    assert entry["sample_1/transformations/x"].nxvalue.shape == (9,)


@pytest.mark.filterwarnings(NO_FIT)
def test_ptynb_reads_scan_and_guess_again(tmp_path, scan, monkeypatch):
    monkeypatch.setattr(nexus_export, "PORTION", 250)
    result = result_of(scan)
    path = pt.export(result, tmp_path / "a.nxs", scan=scan)
    again = pt.load(path)
    np.testing.assert_array_equal(again.frames.read(0, 9), scan.frames.read(0, 9))
    np.testing.assert_array_equal(again.mask, scan.mask)
    np.testing.assert_allclose(
        again.positions - again.positions[0], result.positions - result.positions[0], atol=1e-9
    )  # refined ones
    assert again.geometry.wavelength == pytest.approx(1.5e-10, rel=1e-12)
    assert (again.geometry.distance, again.geometry.detector_pixel) == (2.0, (75e-6, 55e-6))
    mine, theirs = (pt.load_initial_guess(scan, source) for source in (result, path))
    for name in ("object", "probe", "positions"):
        np.testing.assert_allclose(getattr(theirs, name), getattr(mine, name), rtol=1e-6, atol=1e-9)


def test_zero_frequency_is_in_the_centre(tmp_path, scan):
    frames = ArrayFrames.of(np.fft.ifftshift(scan.frames.read(0, 9), (1, 2)))
    corner = dataclasses.replace(scan, frames=frames, mask=np.fft.ifftshift(scan.mask), centred=False)
    with h5py.File(pt.export(result_of(corner), tmp_path / "a.nxs", scan=corner)) as file:
        np.testing.assert_array_equal(file["data/data"], scan.frames.read(0, 9))
        np.testing.assert_array_equal(file["entry_1/instrument_1/detector_1/pixel_mask"][()] == 0, scan.mask)


def test_electrons_and_near_fields(tmp_path, scan):
    electrons = dataclasses.replace(scan, geometry=dataclasses.replace(GEOMETRY, wavelength=electron_wavelength(3e5)))
    path = pt.export(result_of(electrons), tmp_path / "a.nxs", scan=electrons)
    with h5py.File(path) as file:
        instrument = file["entry_1/instrument_1"]
        assert instrument["source_1/probe"][()] == b"electron"
        assert instrument["beam_1/energy"][()] == pytest.approx(3e5 * 1.602176634e-19)
    assert pt.load(path).geometry.wavelength == pytest.approx(electron_wavelength(3e5), rel=1e-9)
    shadow = pt.NearField(wavelength=1e-10, focus_to_sample=0.05, sample_to_detector=1.0, detector_pixel=(1e-6, 1e-6))
    near = dataclasses.replace(scan, geometry=shadow)
    again = pt.load(pt.export(result_of(near), tmp_path / "b.nxs", scan=near), geometry="near field").geometry
    for name, value in vars(shadow).items():
        assert getattr(again, name) == pytest.approx(value, rel=1e-9)


@pytest.mark.filterwarnings(NO_FIT)
def test_objects_with_modes_and_slices(tmp_path, scan):
    thick = result_of(scan, object=complex_array(2, 3, 30, 33), parameters={"slices/thickness": np.array(2e-9)})
    path = pt.export(thick, tmp_path / "a.nxs", scan=scan)
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["entry_1/object/data"], thick.object)
        assert file["entry_1/result_1/slice_distance"][()] == 2e-9
    with pytest.warns(pt.InitialGuessWarning, match="Of 2 modes"):
        started, theirs = pt.load_initial_guess(scan, path), pt.load_initial_guess(scan, thick)
    np.testing.assert_allclose(started.object, theirs.object)


def test_the_scan_is_loaded_again_where_it_is(tmp_path, scan, capsys):
    here = pt.save_scan(scan, tmp_path / "scan.h5")
    path = pt.save_result(result_of(here), tmp_path / "scan.result.h5")
    assert main(["export", str(path), str(tmp_path / "a.nxs")]) == 0
    moved = (tmp_path / "scan.h5").rename(tmp_path / "moved.h5")
    with raises("file.not-found", "scan.h5", "--scan"):
        pt.export(path, tmp_path / "b.nxs")
    assert main(["export", str(path), str(tmp_path / "b.nxs"), "--scan", str(moved)]) == 0
    capsys.readouterr()
    for name in ("a.nxs", "b.nxs"):
        np.testing.assert_array_equal(pt.load(tmp_path / name).frames.read(0, 9), scan.frames.read(0, 9))


def test_what_has_no_place_in_the_definition_is_refused(tmp_path, scan):
    unknown = pt.Scan.from_arrays(scan.frames.read(0, 9), scan.positions)
    with raises("file.unsupported-content", "no known geometry", ".cxi"):
        pt.export(result_of(unknown), tmp_path / "a.nxs", scan=unknown)
    other = dataclasses.replace(scan, positions=scan.positions + 1)
    with raises("scan.other", "scan=scan"):
        pt.export(result_of(scan), tmp_path / "a.nxs", scan=other)
    both = pt.preparation.combine([scan, scan], share="probe")
    with raises("file.unsupported-content", "several scans", "split"):
        pt.export(result_of(both, positions=both.positions), tmp_path / "a.nxs", scan=both)
    assert list(tmp_path.iterdir()) == []
