import contextlib
import errno
import json
from unittest.mock import Mock

import h5py
import numpy as np
import pytest

import ptynb
from ptynb.cli import main
from ptynb.data.engine_records import Result
from ptynb.io.file_info import info
from ptynb.io.formats.cxi import _number
from ptynb.io.load import load
from ptynb.io.mask_file import save_mask
from ptynb.io.reading.reader_interface import Format
from ptynb.io.result_file import save_result
from ptynb.io.scan_file import save_scan
from ptynb.settings.load_options import LoadOptions
from ptynb.simulation.simulated_scan import simulate
from tests.io import layouts
from tests.preparation.test_rotation_fit import electron_scan
from tests.raising import raises


@pytest.fixture(scope="module")
def simulated():
    return simulate(16, window=16, seed=2)


def test_what_was_found_is_told_with_its_unit_and_its_place(tmp_path, simulated):
    path = layouts.plain(tmp_path / "scan.h5", simulated)
    found = info(path)
    facts = {fact.name: fact for fact in found.facts}
    assert (found.format, found.missing, found.problem) == ("HDF5", (), None)
    assert (facts["patterns"].value, facts["patterns"].place) == ("16 of 16 x 16, float32", "measurement/frames")
    assert (facts["distance"].value, facts["distance"].unit, facts["distance"].place) == (
        "2",
        "m",
        "setup@detector_distance",
    )
    assert facts["object pixel"].value == " x ".join(f"{side:.6g}" for side in simulated.pixel_size)
    assert any("y and x of the probe" in remark for remark in found.notes)
    assert json.loads(json.dumps(found.to_plain()))["facts"][0]["name"] == "patterns"
    text = str(found)
    assert f"Open it: scan = ptynb.load({str(path)!r})" in text
    assert "setup/photon_energy" in text
    page = found._repr_html_()
    assert page.index("<p ") < page.index("<table>")
    assert page.count("<p ") == 2 + len(found.notes), "its name, each remark and how to open it on lines of their own"


def test_what_is_missing_is_asked_for_and_the_words_that_give_it_open_the_file(tmp_path, simulated):
    path = layouts.eiger(tmp_path / "scan_master.h5", simulated)
    with h5py.File(path, "r+") as file:
        del file["entry/instrument/beam/incident_wavelength"]
    found = info(path)
    assert [lack.name for lack in found.missing] == ["the positions", "the wavelength"]
    assert found.open == f"scan = ptynb.load({str(path)!r}, positions=..., wavelength=...)"
    words = {"wavelength": simulated.geometry.wavelength, "raster": (4, 4), "step": (1e-7, 2e-7)}
    whole = info(path, **words)
    assert whole.missing == ()
    assert {fact.name: fact.place for fact in whole.facts}["step"] == "given"
    scan = eval(whole.open.removeprefix("scan = "), {"ptynb": ptynb})
    np.testing.assert_array_equal(scan.positions, load(path, **words).positions)


def test_one_number_stands_for_both_sides(tmp_path, simulated):
    path = layouts.eiger(tmp_path / "scan_master.h5", simulated)
    one, two = (
        load(path, raster=(4, 4), step=s, detector_pixel=p) for s, p in [(1e-7, 5e-5), ((1e-7,) * 2, [5e-5] * 2)]
    )
    assert one.geometry == two.geometry
    np.testing.assert_array_equal(one.positions, two.positions)
    assert "step=(1e-07, 1e-07)" in info(path, raster=(4, 4), step=1e-7).open
    options = LoadOptions(step=1e-7, detector_pixel=5e-5)
    assert options.arguments == {"step": (1e-7, 1e-7), "detector_pixel": (5e-5, 5e-5)}


def test_patterns_without_a_count_are_told_where_other_things_are_missing(tmp_path):
    with h5py.File(tmp_path / "dark.h5", "w") as file:
        file["entry/data/data"] = np.zeros((20, 16, 16), np.uint16)
    found = info(tmp_path / "dark.h5")
    assert "the positions" in [lack.name for lack in found.missing]
    assert [remark for remark in found.notes if remark.startswith("All counts are zero in the patterns that were")]


def test_why_a_file_cannot_be_opened_is_told_beside_what_it_holds(tmp_path, simulated):
    path = layouts.cxidb(tmp_path / "scan.cxi", simulated)
    with h5py.File(path, "r+") as file:
        file["entry_1/instrument_1/detector_1/distance"][()] = 2000e9
    found = info(path)
    assert "a distance to the detector of 2e+12 m" in found.problem
    assert {fact.name for fact in found.facts} >= {"patterns", "positions", "wavelength"}
    assert info(path, distance=2.0).problem is None


def test_files_of_ptynb_are_named_with_the_line_that_opens_them(tmp_path, simulated):
    arrays = {"object": np.ones((4, 4), complex), "probe": np.ones((1, 4, 4), complex), "positions": np.zeros((1, 2))}
    result = save_result(Result(**arrays, origin=(0, 0), epochs=(), r_factor=0.0, settings={}), tmp_path / "result.h5")
    assert info(result).format == "a result of ptynb"
    assert eval(info(result).open.removeprefix("result = "), {"ptynb": ptynb}).object.shape == (4, 4)
    save_scan(simulated, tmp_path / "scan.h5")
    assert info(tmp_path / "scan.h5").format == "a scan of ptynb"
    assert len(eval(info(tmp_path / "scan.h5").open.removeprefix("scan = "), {"ptynb": ptynb})) == 16
    for name in ("mask.h5", "mask.npy"):
        shown = info(save_mask(np.eye(16) < 1, tmp_path / name))
        assert shown.format == "a mask"
        np.savez(tmp_path / "px.npz", data=np.ones((16, 16, 16), int), scan=np.indices((4, 4)).reshape(2, -1).T)
        line = shown.open.removeprefix("scan = ").replace("...", f"{str(tmp_path / 'px.npz')!r}, **GIVEN")
        given = {"units": "pixels", "energy": 8000, "distance": 1.0, "detector_pixel": (1e-4, 1e-4)}
        np.testing.assert_array_equal(eval(line, {"ptynb": ptynb, "GIVEN": given}).mask, np.eye(16) < 1)
    with h5py.File(tmp_path / "state.h5", "w") as file:
        file.attrs["format"] = "ptynb state"
    assert info(tmp_path / "state.h5").open == f"recon = ptynb.resume({str(tmp_path / 'state.h5')!r})"


def test_a_rotated_detector_is_told_with_the_lines_that_correct_it(tmp_path, monkeypatch):
    turned = electron_scan(-40.0, transposed=True, counts=1e4)
    save_scan(turned, tmp_path / "ours.h5")
    for path in (layouts.plain(tmp_path / "turned.h5", turned), tmp_path / "ours.h5"):
        found = info(path)
        remark = next(remark for remark in found.notes if "transpose_positions" in remark)
        fact = next(fact for fact in found.facts if fact.name == "orientation")
        assert "y and x of the positions are exchanged" in fact.value
        assert fact.value in remark
        namespace = {"pt": ptynb, "scan": load(path)}
        exec("\n".join(remark.split("): ")[1].split(". A further")[0].split("; ")), namespace)
        assert not ptynb.preparation.estimate_rotation(namespace["scan"]).needed
        assert ptynb.preparation.estimate_rotation(load(path)).needed
    right = info(layouts.plain(tmp_path / "right.h5", electron_scan(counts=1e4)))
    assert "positions agree with the detector" in {fact.value for fact in right.facts}
    assert not any("rotate_positions" in remark for remark in right.notes)
    monkeypatch.setattr("ptynb.io.file_info.GLANCE", 90 * 32 * 32 * 4)
    assert all(fact.name != "orientation" for fact in info(path).facts), "96 patterns would be needed"


def test_a_convergence_angle_that_the_bright_field_disc_contradicts_is_told(tmp_path):
    path = layouts.plain(tmp_path / "scan.h5", electron_scan(phase=0.1, counts=1e5, grid=(8, 8)))
    [remark] = [note for note in info(path, convergence_angle=0.023).notes if "bright-field disc" in note]
    assert "23 mrad" in remark
    scan = load(path, convergence_angle=0.023)
    line = remark.split("if the angle is right, ")[1].split(" corrects")[0]
    mended = eval(line, {"pt": ptynb, "scan": scan})
    assert mended.geometry.detector_pixel[0] == pytest.approx(scan.geometry.detector_pixel[0] * 1.15, rel=0.03)
    assert not any("bright-field disc" in note for note in info(path, convergence_angle=0.02).notes)


def test_the_command_prints_it_and_its_status_tells_whether_the_file_opens(tmp_path, simulated, capsys):
    path = layouts.eiger(tmp_path / "scan_master.h5", simulated)
    assert main.main(["info", str(path)]) == 65
    assert "MISSING: the positions; give positions=array" in capsys.readouterr().out
    assert main.main(["estimate", str(path)]) == 65
    assert "does not contain the positions" in capsys.readouterr().err
    assert main.main(["estimate", str(path), "--raster", "4", "5", "--step", "1e-7"]) == 65
    assert "4 x 5" in capsys.readouterr().err
    assert main.main(["info", str(path), "--json", "--raster", "4", "4", "--step", "1e-7"]) == 0
    assert json.loads(capsys.readouterr().out)["missing"] == []
    assert main.main(["info", str(path), "--step", "1", "2", "3"]) == 64
    assert "step is (1.0, 2.0, 3.0)" in capsys.readouterr().err
    assert main.main(["info", str(tmp_path / "gone.h5")]) == 66
    assert "There is no file" in capsys.readouterr().err


def test_only_hdf5_says_that_a_file_is_damaged(tmp_path, simulated, monkeypatch):
    path = layouts.plain(tmp_path / "scan.h5", simulated)

    def by_hdf5(file):
        return h5py.h5g.open(file.id, b"absent")

    def by_ptynb(file):
        return file.visititems(lambda name, item: _number(name))  # called by h5py

    def by_the_system(file):
        raise PermissionError(errno.EACCES, "in another language")

    for fails, code, facts in (
        (by_hdf5, "file.damaged", ("HDF5: ", "absent", "copy it again")),
        (by_ptynb, "file.reader-failed", ("ValueError: invalid literal", "may be valid", "report")),
        (by_the_system, "file.not-readable", ("Permission denied",)),
    ):
        for place, read in (("ptynb.io.file_info.own", info), ("ptynb.io.load.FORMATS", load)):
            broken = fails if read is info else (Format("any", lambda head: fails(head.file), None, ()),)  # noqa: B023
            with monkeypatch.context() as patched:
                patched.setattr(place, broken)
                with raises(code, path, *facts) as caught:
                    read(path)
            assert code != "file.reader-failed" or isinstance(caught.value.__cause__, ValueError)


def test_a_file_that_may_not_be_read_or_is_locked_is_not_damaged(tmp_path, simulated, monkeypatch):
    path = layouts.plain(tmp_path / "scan.h5", simulated)
    for error, code, fact in (
        (PermissionError(errno.EACCES, "no"), "file.not-readable", "Permission denied"),
        (BlockingIOError(errno.EAGAIN, "unable to lock file"), "file.being-written", "locked"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(h5py, "File", Mock(side_effect=error))
            with raises(code, path, fact):
                load(path)


def test_what_is_unusual_and_what_is_not_set_is_told(tmp_path, simulated):
    """Numbers that few experiments have are remarks with the option that replaces them; fill values are none."""
    path = layouts.cxidb(tmp_path / "scan.cxi", simulated)
    detector = "entry_1/instrument_1/detector_1"
    with h5py.File(path, "r+") as file:
        assert not any("unusual" in note for note in info(path).notes)
        for name, value in (("x_pixel_size", 0.0), ("distance", 100.0)):
            file[f"{detector}/{name}"][...] = value
    found = info(path)
    assert any("100 m" in note and "distance= [m]" in note and f"{detector}/distance" in note for note in found.notes)
    assert any(f"{detector}/x_pixel_size is 0" in note and "missing" in note for note in found.notes)
    assert load(path, distance=2.0).geometry.detector_pixel[1] > 0, "that of the other axis"
    close = info(path, positions=simulated.positions * 1e-3, units="pixels", distance=2.0)
    assert any("object pixels apart" in note and "unusual" in note for note in close.notes)


def test_pixels_with_the_largest_number_of_their_type_are_told(tmp_path):
    for kind, told in (("u2", True), ("u4", True), ("u1", False), ("i4", False)):
        counts = np.random.default_rng(1).integers(1, 9, (4, 8, 8)).astype(kind)
        counts[:, 2, 3] = counts[0, 5, 5] = np.iinfo(kind).max
        path = tmp_path / f"{kind}.npz"
        np.savez(path, patterns=counts, positions_px=np.array([(0, 0), (0, 2), (2, 0), (2, 2)]))
        assert any("1 pixels have" in note and "mask=" in note for note in info(path).notes) == told
        with pytest.warns(ptynb.PtynbWarning, match="1 pixels have") if told else contextlib.nullcontext():
            load(path)
        assert not info(path, mask=np.all(counts != np.iinfo(kind).max, axis=0)).notes


def test_sides_that_are_slow_to_transform_are_told_in_all_formats(tmp_path):
    for window, told in ((83, True), (84, False)):
        scan = simulate(4, window=window)
        save_scan(scan, tmp_path / f"{window}.ptynb.h5")
        for path in (tmp_path / f"{window}.ptynb.h5", layouts.cxidb(tmp_path / f"{window}.cxi", scan)):
            assert any(f"{window} x {window} takes" in note for note in info(path).notes) == told
