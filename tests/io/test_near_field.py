"""Near-field scans from files: geometry and units, what is refused, and what `info` says of them."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import ndimage

import ptynb as pt
from ptynb.cli import main
from ptynb.data.scan import Scan
from ptynb.exceptions import FileError
from ptynb.io.file_info import FileInfo
from ptynb.io.reading.shadow_motion import shadow_motion
from tests.io import layouts
from tests.io.cases import of_case
from tests.raising import raises

FOCUS, DISTANCE, PIXEL, WAVELENGTH = 0.01, 0.99, 50e-6, 1e-10
MAGNIFIED: dict[str, Any] = {"geometry": "near field", "focus_to_sample": FOCUS}
LAYOUTS = {
    "CXI": layouts.cxidb,
    "CXI with units": layouts.cxi_with_units,
    "NXcxi_ptycho": layouts.nxcxi,
    "NeXus, motors": layouts.nexus_motors,
    "plain HDF5": layouts.plain,
    "ptyd": layouts.ptyd,
}


def mottled(shape: tuple[int, int], seed: int, sigma: float, phase: float) -> NDArray[np.complex128]:
    field = ndimage.gaussian_filter(np.random.default_rng(seed).standard_normal(shape), sigma)
    return np.asarray(np.exp((1j * phase - 0.1) * (field - field.min()) / np.ptp(field)))


def shadows(focus: float = FOCUS, counts: float = 1e4, window: int = 64) -> Scan:
    """Sixteen shadows of a mottled sample in a beam that fills the detector."""
    geometry = pt.NearField(
        wavelength=WAVELENGTH,
        focus_to_sample=focus,
        sample_to_detector=DISTANCE if math.isfinite(focus) else 0.1,
        detector_pixel=(PIXEL, PIXEL) if math.isfinite(focus) else (1e-6, 1e-6),
    )
    index = np.arange(16)
    jitter = np.random.default_rng(3).uniform(-2, 2, (16, 2))
    positions = np.stack([index // 4, index % 4], 1) * 10.0 + jitter + 4
    room = (window + 45, window + 45)
    probe = math.sqrt(counts) * mottled((window, window), 7, 4.0, 2.0)
    return pt.simulate_diffraction(mottled(room, 1, 2.0, 1.0), probe[None], positions, geometry=geometry, seed=1)


@pytest.fixture(scope="module")
def simulated() -> Scan:
    return shadows()


def facts(found: FileInfo) -> dict[str, str]:
    return {fact.name: fact.value for fact in found.facts}


def test_metres_in_every_layout_become_effective_pixels(tmp_path: Path, simulated: Scan) -> None:
    for name, write in LAYOUTS.items():
        with of_case(name, tmp_path) as home:
            scan = pt.load(write(home / "scan.h5", simulated), **MAGNIFIED)
            assert isinstance(scan.geometry, pt.NearField)
            assert scan.geometry.magnification == pytest.approx(100)
            assert scan.geometry.effective_distance == pytest.approx(DISTANCE / 100)
            assert scan.pixel_size == pytest.approx((PIXEL / 100, PIXEL / 100))
            np.testing.assert_allclose(np.diff(scan.positions, axis=0), np.diff(simulated.positions, axis=0), atol=1e-6)


def test_a_file_without_a_focus_is_of_a_parallel_beam(tmp_path: Path) -> None:
    parallel = shadows(math.inf)
    scan = pt.load(layouts.cxidb(tmp_path / "scan.cxi", parallel), geometry="near field")
    assert isinstance(scan.geometry, pt.NearField)
    assert (scan.geometry.focus_to_sample, scan.geometry.magnification) == (math.inf, 1.0)
    assert scan.pixel_size == pytest.approx((1e-6, 1e-6))
    assert isinstance(pt.load(tmp_path / "scan.cxi").geometry, pt.Geometry), "the default is the far field"


def test_a_focus_that_the_file_names_is_used_and_an_option_replaces_it(tmp_path: Path, simulated: Scan) -> None:
    for name, write in (("plain", layouts.plain), ("NeXus", layouts.nexus_motors)):
        with of_case(name, tmp_path) as home:
            path = write(home / "scan.h5", simulated)
            with h5py.File(path, "r+") as file:
                group = "setup" if name == "plain" else "scan/instrument"
                layouts.put(file, f"{group}/focus_to_sample", FOCUS * 1e3, "mm")
            scan = pt.load(path, geometry="near field")
            assert scan.geometry == pt.load(path, **MAGNIFIED).geometry
            assert scan.geometry is not None
            other = pt.load(path, geometry="near field", focus_to_sample=0.011).geometry
            assert isinstance(other, pt.NearField)
            assert other.magnification == pytest.approx(91)


def test_what_the_near_field_needs_is_named_also_with_positions_in_pixels(tmp_path: Path, simulated: Scan) -> None:
    path = tmp_path / "scan.npz"
    np.savez(path, patterns=simulated.counts(0, 16))
    pixels = {"positions": simulated.positions, "units": "pixels"}
    assert pt.load(path, **pixels).geometry is None, "in the far field pixels suffice"
    with raises("scan.missing-metadata", "energy=", "distance=", "detector_pixel=") as caught:
        pt.load(path, **pixels, **MAGNIFIED)
    assert "angular_pixel" not in str(caught.value)
    lengths = {"wavelength": WAVELENGTH, "distance": DISTANCE, "detector_pixel": PIXEL}
    scan = pt.load(path, **pixels, **lengths, **MAGNIFIED)
    assert scan.geometry == simulated.geometry
    np.testing.assert_allclose(scan.positions, simulated.positions)


def test_lengths_of_a_file_in_a_wrong_unit_are_refused(tmp_path: Path, simulated: Scan) -> None:
    path = layouts.cxidb(tmp_path / "scan.cxi", simulated)
    with h5py.File(path, "r+") as file:
        file["entry_1/instrument_1/detector_1/distance"][()] = DISTANCE * 1e3
    with raises("scan.implausible-metadata", "990 m", "millimetres", "give distance"):
        pt.load(path, **MAGNIFIED)
    assert pt.load(path, distance=DISTANCE, **MAGNIFIED).pixel_size == pytest.approx(simulated.pixel_size)
    with raises("scan.implausible-metadata", "neighbouring positions", "object pixels apart"):
        pt.load(path, distance=DISTANCE, geometry="near field", focus_to_sample=1e-5)


def test_scan_files_of_ptynb_contain_their_geometry(tmp_path: Path, simulated: Scan) -> None:
    scan = pt.load(layouts.cxidb(tmp_path / "scan.cxi", simulated), **MAGNIFIED)
    pt.save_scan(scan, tmp_path / "scan.h5")
    assert pt.load(tmp_path / "scan.h5").geometry == scan.geometry
    assert facts(pt.info(tmp_path / "scan.h5"))["magnification"] == "100, beam from a focus"
    with raises("argument.conflict", "leave out geometry, focus_to_sample"):
        pt.load(tmp_path / "scan.h5", **MAGNIFIED)


def test_a_file_that_states_the_near_field_is_not_read_as_far_field(tmp_path: Path) -> None:
    parallel = shadows(math.inf)
    path = layouts.ptyd(tmp_path / "scan.ptyd", parallel)
    with h5py.File(path, "r+") as file:
        layouts.put(file, "info/propagation", "nearfield").attrs["type"] = "string"
    with raises("scan.near-field", "info/propagation", "give geometry='near field'"):
        pt.load(path)
    found = pt.info(path)
    assert found.problem is not None
    assert found.open == f"scan = ptynb.load({str(path)!r}, geometry='near field')"
    assert facts(found)["geometry"] == "near field"
    scan = eval(found.open.removeprefix("scan = "), {"ptynb": pt})
    assert scan.geometry.effective_distance == pytest.approx(0.1)
    np.testing.assert_allclose(scan.positions, parallel.positions, atol=1e-9)


def test_info_shows_the_effective_geometry(tmp_path: Path, simulated: Scan, capsys: pytest.CaptureFixture[str]) -> None:
    path = layouts.cxidb(tmp_path / "scan.cxi", simulated)
    found = pt.info(path, **MAGNIFIED)
    shown = facts(found)
    assert (found.missing, found.problem) == ((), None)
    assert shown["geometry"] == "near field"
    assert shown["focus to sample"] == "0.01"
    assert shown["magnification"] == "100, beam from a focus"
    assert shown["effective distance"] == "0.0099"
    assert shown["object pixel"] == "5e-07 x 5e-07"
    # (0.5 µm)² / (0.1 nm 9.9 mm), and 64² times that.
    pixel = 0.25e-12 / 0.99e-12
    assert (
        shown["Fresnel number"]
        == f"{pixel:.6g} x {pixel:.6g} of a pixel, {4096 * pixel:.6g} x {4096 * pixel:.6g} of the window"
    )
    assert "geometry='near field', focus_to_sample=0.01)" in found.open
    arguments = ["info", str(path), "--geometry", "near field", "--focus-to-sample", "0.01"]
    assert main.main(arguments) == 0
    assert "effective distance" in capsys.readouterr().out


def far_field(seed: int, background: float = 0.0) -> Scan:
    """A far-field scan whose speckles fill the detector: the hardest to tell from shadows."""
    y, x = np.indices((64, 64)) - 32
    rng = np.random.default_rng(seed)
    probe = 30 * np.exp(-(y**2 + x**2) / 128 + 2j * np.pi * rng.random((64, 64)))
    index = np.arange(25)
    positions = np.stack([index // 5, index % 5], 1) * 5.0 + rng.uniform(-1, 1, (25, 2)) + 2
    geometry = pt.Geometry(wavelength=1.5e-10, distance=2.0, detector_pixel=(5e-5, 5e-5))
    sample = mottled((96, 96), seed, 2.0, 1.0)
    return pt.simulate_diffraction(sample, probe[None], positions, geometry=geometry, background=background, seed=seed)


def motion_of(scan: Scan) -> float | None:
    assert scan.pixel_size is not None
    return shadow_motion(scan.frames, scan.positions * np.asarray(scan.pixel_size))


def test_shadows_are_told_from_far_field_patterns() -> None:
    """Pixels of motion for a metre are the inverse of the effective pixel; patterns of the far field do not move."""
    for focus, counts in ((math.inf, 1e4), (math.inf, 100.0), (FOCUS, 1e4), (FOCUS, 1e3)):
        scan = shadows(focus, counts)
        motion = motion_of(scan)
        assert motion is not None, (focus, counts)
        assert scan.pixel_size is not None
        assert motion * scan.pixel_size[0] == pytest.approx(1, abs=0.05)
    far = [far_field(seed, background) for seed in range(4) for background in (0.0, 5.0)]
    far += [pt.simulate(patterns=64, window=48, modes=3, seed=1), pt.simulate(patterns=64, window=48, photons=2e3)]
    scan = shadows()
    order = np.random.default_rng(0).permutation(16)
    far += [dataclasses.replace(scan, positions=scan.positions[other]) for other in (order, np.arange(16)[::-1])]
    assert [motion_of(scan) for scan in far] == [None] * len(far), "the last two move, but not as the positions do"


def test_shadows_in_the_cone_of_a_defocused_probe_are_no_near_field() -> None:
    wavelength = pt.electrons.electron_wavelength(200e3)
    geometry = pt.Geometry(wavelength=wavelength, distance=1.0, detector_pixel=(0.08 / 64,) * 2)
    pixel = geometry.object_pixel((64, 64))
    probe = 500 * pt.illumination.electron_probe((64, 64), pixel, wavelength, 0.02, {"C10": 20e-9})
    index = np.arange(36)
    positions = np.stack([index // 6, index % 6], 1) * 4.0 + 2
    scan = pt.simulate_diffraction(mottled((96, 96), 1, 1.5, 0.5), probe[None], positions, geometry=geometry)
    assert motion_of(scan) is None


def test_info_says_that_patterns_look_like_shadows_and_how_to_open_them(tmp_path: Path, simulated: Scan) -> None:
    path = layouts.cxidb(tmp_path / "scan.cxi", simulated)
    found = pt.info(path)
    (remark,) = [note for note in found.notes if note.startswith("The patterns look like shadows")]
    focus = float(remark.partition("focus_to_sample=")[2].split(",")[0])
    assert focus == pytest.approx(FOCUS, rel=0.05)
    assert found.suggested == {"geometry": "near field", "focus_to_sample": focus}
    assert pt.info(path, **found.suggested).problem is None
    assert "give geometry='near field', focus_to_sample=" in remark
    assert not [note for note in pt.info(path, **MAGNIFIED).notes if "shadows" in note]
    path = layouts.cxidb(tmp_path / "parallel.cxi", shadows(math.inf))
    (remark,) = [note for note in pt.info(path).notes if "shadows" in note]
    assert "give geometry='near field', with" in remark, "no distance of a focus"
    assert pt.info(path).suggested == {"geometry": "near field"}
    path = layouts.cxidb(tmp_path / "far.cxi", far_field(1))
    assert not [note for note in pt.info(path).notes if "shadows" in note]


def test_positions_that_form_no_scan_are_a_problem_of_their_own(tmp_path: Path, simulated: Scan) -> None:
    for name, change in {
        "fewer": lambda values: values[:15],
        "one is not finite": lambda values: np.where(np.arange(16)[:, None] == 3, np.nan, values),
        "all the same": lambda values: 0 * values,
    }.items():
        with of_case(name, tmp_path) as home:
            path = layouts.cxidb(home / "scan.cxi", simulated)
            with h5py.File(path, "r+") as file:
                place = "entry_1/sample_1/geometry_1/translation"
                values = change(file[place][...])
                del file[place]
                file[place] = values
            found = pt.info(path)
            assert not [note for note in found.notes if "shadows" in note]
            assert (found.problem is None) == (name == "all the same")


def test_patterns_that_are_packed_together_are_not_unpacked_for_a_remark(
    simulated: Scan, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert motion_of(simulated) is not None
    monkeypatch.setattr("ptynb.io.reading.shadow_motion.MOST_BYTES", 5 * 64 * 64 * 4)
    assert motion_of(simulated) is None


def test_a_run_is_repeated_and_resumed_from_the_file_as_it_was_opened(tmp_path: Path, simulated: Scan) -> None:
    path = layouts.cxidb(tmp_path / "scan.cxi", simulated)
    scan = pt.load(path, **MAGNIFIED)
    keep = pt.Checkpointing(folder=tmp_path / "states")
    with pt.Reconstruction(scan, pt.preset("near field", scan), device="cpu", checkpointing=keep) as recon:
        recon.start(2)
        recon.wait()
        state = recon.save_checkpoint()
        recon.start(1)
        recon.wait()
        losses = recon.result.losses
        recon.save(tmp_path / "result.h5")
    assert pt.reproduce(tmp_path / "result.h5", device="cpu").equal
    with pt.resume(state, device="cpu", checkpointing=pt.Checkpointing(folder=tmp_path / "again")) as recon:
        assert recon.scan.geometry == scan.geometry
        recon.start(1)
        recon.wait()
        np.testing.assert_array_equal(recon.result.losses, losses)
    given = dataclasses.replace(scan, geometry=None)
    with pytest.raises(pt.ReconstructionError, match=r"geometry \(near or far field\)"), pt.resume(state, given):
        pass


def test_a_checkpoint_of_a_scan_with_an_array_asks_for_it(tmp_path: Path, simulated: Scan) -> None:
    path = layouts.cxidb(tmp_path / "scan.cxi", simulated)
    mask = np.ones((64, 64), bool)
    scan = pt.load(path, mask=mask, **MAGNIFIED)
    keep = pt.Checkpointing(folder=tmp_path / "states")
    with pt.Reconstruction(scan, device="cpu", checkpointing=keep) as recon:
        recon.start(1)
        recon.wait()
        state = recon.save_checkpoint()
    with pytest.raises(FileError, match="opened with mask as arrays; make that scan, and pass it"):
        pt.resume(state)
    with pt.resume(state, scan, device="cpu", checkpointing=None) as recon:
        assert recon.epoch == 1


def test_a_run_file_opens_the_near_field(tmp_path: Path, simulated: Scan) -> None:
    layouts.cxidb(tmp_path / "scan.cxi", simulated)
    (tmp_path / "run.yaml").write_text(
        "scan: scan.cxi\nepochs: 1\nresult: result.h5\nload:\n  geometry: near field\n  focus_to_sample: 0.01\n"
        "cluster:\n  kind: none\n  device: cpu\n"
    )
    assert main.main(["run", str(tmp_path / "run.yaml")]) == 0
    result = pt.load_result(tmp_path / "result.h5")
    assert result.scan.geometry["kind"] == "NearField"
    assert result.scan.given == MAGNIFIED
    assert not result.scan.is_far_field
