"""Simulated scans on which only one piece of the physics recovers the truth: with it, and without it.

The patterns are `simulate_diffraction`'s, in plain numpy and finer steps, apart from the reconstruction's own model.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import ndimage

import ptynb as pt
from ptynb.analysis import compare
from ptynb.data.geometry import NearField
from ptynb.data.scan import Scan
from ptynb.physics.components.fly_scan import motion_between
from tests.parametrization import each

ONE_THREAD = 1


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Small problems are fastest so, and the same on every machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(ONE_THREAD)
    yield
    torch.set_num_threads(before)


def reconstructed(scan: Scan, epochs: int, **settings: Any) -> pt.Result:
    """With a constant rate of 0.01 and the amplitude loss where nothing else is given, for which limits were chosen."""
    chosen = pt.Settings(**{"loss": "amplitude", "schedule": {"kind": "constant"}, **settings})
    parts = {name: chosen.part(name) for name in ("object", "probe")}
    slow = {name: {"learning_rate": 0.01} for name, part in parts.items() if part.learning_rate == 0.1}
    with pt.Reconstruction(scan, chosen.replace(**slow), device="cpu") as recon:
        recon.start(epochs)
        recon.wait(250)
        return recon.result


def area_of(scan: Scan) -> tuple[slice, slice]:
    """The part of the truth between the outermost probe centres."""
    window = np.array(scan.pattern_shape)
    low = np.ceil(scan.positions.min(0) + window / 2).astype(int)
    high = np.floor(scan.positions.max(0) + window / 2).astype(int)
    return slice(int(low[0]), int(high[0])), slice(int(low[1]), int(high[1]))


def error(result: pt.Result, scan: Scan, truth: NDArray[Any] | None = None) -> float:
    assert scan.ground_truth is not None
    true = scan.ground_truth.object if truth is None else truth
    return compare(result.projection, true, area_of(scan), result.origin).error


def base(patterns: int = 196, **choices: Any) -> Scan:
    return pt.simulate(patterns=patterns, window=64, seed=1, **choices)


def mottled(shape: tuple[int, ...], seed: int, sigma: float = 2.0) -> NDArray[np.complex128]:
    field = ndimage.gaussian_filter(np.random.default_rng(seed).standard_normal(shape), sigma)
    field = (field - field.min()) / np.ptp(field)
    return np.exp((0.8j - 0.1) * field)


# Thick objects


@each("count", [2, 4, 8])
def test_a_thick_object_is_recovered_slice_by_slice_where_one_slice_fails(count: int) -> None:
    scan = base(256, step=4, photons=1e7, noise=False)
    assert scan.ground_truth is not None
    assert scan.pixel_size is not None
    slices = np.array([mottled(scan.ground_truth.object.shape, seed) for seed in range(count)])
    thickness = 120 * scan.pixel_size[0] ** 2 / 1.5e-10
    thick = pt.simulate_diffraction(
        slices, scan.ground_truth.probe, scan.positions, geometry=scan.geometry, thickness=thickness, guess=scan.probe
    )
    thin = reconstructed(thick, 60)
    resolved = reconstructed(thick, 80, slices=pt.Slices(count=count, thickness=thickness))
    errors = [
        compare(found, true, area_of(scan), resolved.origin).error
        for found, true in zip(resolved.object, slices, strict=True)
    ]
    print(f"{count} slices: errors {np.round(errors, 4)}, R {resolved.r_factor:.4f}; one slice: R {thin.r_factor:.4f}")
    assert max(errors) < 0.03
    assert resolved.r_factor < thin.r_factor / 1.5
    assert error(resolved, thick, slices.prod(0)) < error(thin, thick, slices.prod(0)) / 2


def test_an_unknown_thickness_is_found() -> None:
    scan = base(196, step=4, photons=1e7, noise=False)
    assert scan.ground_truth is not None
    assert scan.pixel_size is not None
    slices = np.array([mottled(scan.ground_truth.object.shape, seed) for seed in range(2)])
    thickness = 150 * scan.pixel_size[0] ** 2 / 1.5e-10
    thick = pt.simulate_diffraction(
        slices, scan.ground_truth.probe, scan.positions, geometry=scan.geometry, thickness=thickness
    )
    wrong = pt.Slices(count=2, thickness=0.8 * thickness)
    kept = reconstructed(thick, 120, slices=wrong)
    found = reconstructed(thick, 120, slices=wrong.model_copy(update={"learning_rate": 0.005, "start_epoch": 10}))
    ratio = float(found.parameters["slices/thickness"]) / thickness
    print(f"thickness found {ratio:.4f} of the true one; R {kept.r_factor:.4f} -> {found.r_factor:.4f}")
    assert ratio == pytest.approx(1, abs=0.02)
    assert found.r_factor < kept.r_factor


def test_the_tilt_of_each_pattern_is_found() -> None:
    """One common tilt would only displace the slices; tilts that differ blur them unless they are known."""
    scan = base(196, step=4, photons=1e7, noise=False)
    assert scan.ground_truth is not None
    assert scan.pixel_size is not None
    slices = np.array([mottled(scan.ground_truth.object.shape, seed) for seed in range(2)])
    thickness = 150 * scan.pixel_size[0] ** 2 / 1.5e-10
    tilts = np.random.default_rng(2).uniform(-2, 2, (len(scan), 2)) * scan.pixel_size[0] / thickness
    thick = pt.simulate_diffraction(
        slices, scan.ground_truth.probe, scan.positions, geometry=scan.geometry, thickness=thickness, tilt=tilts
    )
    plan = pt.Slices(count=2, thickness=thickness)
    ignored = reconstructed(thick, 60, slices=plan)
    fading = pt.Schedule(kind="cosine", epochs=80, end_factor=0.05)
    found = reconstructed(
        thick, 80, slices=plan, tilt=pt.Tilt(per_position=True, learning_rate=0.1, start_epoch=5), schedule=fading
    )
    angles = found.parameters["tilt/angles"]
    miss = (angles - angles.mean(0)) - (tilts - tilts.mean(0))
    ratio = np.sqrt((miss**2).sum() / (tilts**2).sum())
    print(f"tilts: rms error {ratio:.4f} of their size; R {ignored.r_factor:.4f} -> {found.r_factor:.4f}")
    assert ratio < 0.2
    assert found.r_factor < ignored.r_factor / 2


# Positions


def test_positions_wrong_by_three_pixels_are_found() -> None:
    scan = base()
    wrong = np.random.default_rng(0).normal(0, 3 / math.sqrt(2), scan.positions.shape)
    start = dataclasses.replace(scan, positions=scan.positions + wrong, ground_truth=None)
    found = reconstructed(
        start,
        200,
        batch=8,
        positions=pt.Positions(learning_rate=0.1, start_epoch=3, max_shift=12),
        schedule=pt.Schedule(kind="cosine", epochs=200, end_factor=0.05),
    )
    miss = found.positions + found.origin - scan.positions
    miss -= miss.mean(0)
    rms = math.sqrt((miss**2).sum(1).mean())
    print(f"positions: {math.sqrt((wrong**2).sum(1).mean()):.2f} px rms before, {rms:.4f} after")
    assert rms < 0.1
    assert reconstructed(start, 60).r_factor > 1.5 * found.r_factor


def test_positions_wrong_by_seven_pixels_are_found_by_a_search() -> None:
    """With the probe of an earlier scan, which is refined once the positions are found."""
    scan = base(100, step=5)
    assert scan.ground_truth is not None
    wrong = np.random.default_rng(7).normal(0, 7 / math.sqrt(2), scan.positions.shape)
    start = dataclasses.replace(
        scan, positions=scan.positions + wrong, probe=scan.ground_truth.probe, ground_truth=None
    )
    gradients = pt.Positions(learning_rate=0.1, start_epoch=10, max_shift=16)
    search = gradients.model_copy(update={"search_trials": 12, "search_radius": 12.0})
    left = []
    for epochs, positions in ((70, gradients), (140, search)):
        found = reconstructed(start, epochs, batch=8, positions=positions, probe=pt.Probe(start_epoch=120))
        miss = found.positions + found.origin - scan.positions
        miss -= np.median(miss, 0)
        left.append(math.sqrt((miss**2).sum(1).mean()))
    before = math.sqrt((wrong**2).sum(1).mean())
    print(f"positions: {before:.2f} px rms before, {left[0]:.3f} after gradients alone, {left[1]:.3f} after the search")
    assert before > 6
    assert left[0] > 4
    assert left[1] < 0.5


def test_an_affine_error_of_the_positions_is_found() -> None:
    scan = base(photons=1e7)
    angle = math.radians(2)
    error = 1.02 * np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    centre = scan.positions.mean(0)
    start = dataclasses.replace(scan, positions=(scan.positions - centre) @ error.T + centre, ground_truth=None)
    found = reconstructed(
        start,
        200,
        batch=8,
        affine=pt.Affine(learning_rate=0.3, start_epoch=3),
        positions=pt.Positions(max_shift=12),
        schedule=pt.Schedule(kind="cosine", epochs=200, end_factor=0.1),
    )
    left = found.parameters["affine/matrix"] @ error
    scale = math.sqrt(abs(np.linalg.det(left))) - 1
    rotation = math.degrees(math.atan2(left[1, 0] - left[0, 1], left[0, 0] + left[1, 1]))
    print(f"affine: scale off by {100 * scale:.4f} %, rotation by {rotation:.4f} degrees")
    assert abs(scale) < 0.0005
    assert abs(rotation) < 0.05


# Several scans


def test_two_scans_with_one_probe_give_better_objects_than_each_alone() -> None:
    """16 patterns of each hardly determine object and probe."""
    scans = []
    for seed in (1, 2):
        grid = pt.simulate(patterns=16, window=48, seed=seed, step=12)
        assert grid.ground_truth is not None
        object = mottled(grid.ground_truth.object.shape, seed)
        probe = grid.ground_truth.probe
        scans.append(
            pt.simulate_diffraction(
                object, probe, grid.positions, geometry=grid.geometry, guess=grid.probe, seed=seed, name=f"scan {seed}"
            )
        )
    together = reconstructed(pt.preparation.combine(scans, share="probe"), 200, batch=8)
    alone = [reconstructed(scan, 200, batch=4) for scan in scans]
    errors = [error(one, scan) for one, scan in zip((*alone, *together.split()), (*scans, *scans), strict=True)]
    print(f"one probe: object errors {np.round(errors[:2], 4)} alone, {np.round(errors[2:], 4)} together")
    assert max(errors[2:]) < 0.85 * min(errors[:2])


@each("optimiser", ["adam", "lsqml"])
def test_one_object_with_a_probe_for_each_scan_is_recovered_with_both_probes(optimiser: str) -> None:
    grid = pt.simulate(patterns=100, window=48, seed=1, step=8)
    assert grid.ground_truth is not None
    first = grid.ground_truth.probe
    frequency = np.fft.fftfreq(48)
    defocus = np.exp(-150j * (frequency[:, None] ** 2 + frequency[None] ** 2))
    probes = [first, 1.5 * np.fft.ifft2(np.fft.fft2(first) * defocus)]
    object = mottled(grid.ground_truth.object.shape, 1)
    shift = np.array([20.0, -35.0])
    scans = [
        pt.simulate_diffraction(
            object, probe, grid.positions[number::2], geometry=grid.geometry, guess=grid.probe, seed=number
        )
        for number, probe in enumerate(probes)
    ]
    elsewhere = dataclasses.replace(scans[1], positions=scans[1].positions - shift)
    both = pt.preparation.combine([scans[0], elsewhere], share="object", shifts=[(0, 0), shift])
    together = reconstructed(both, 80, batch=8, optimiser=optimiser)
    one_probe = reconstructed(
        dataclasses.replace(both, combination=None, probe=grid.probe), 80, batch=8, optimiser=optimiser
    )
    alone = [reconstructed(scan, 80, batch=8, optimiser=optimiser) for scan in scans]
    errors = [error(one, grid, object) for one in (together, one_probe, *alone)]
    misses = []
    for result, probe in zip(together.split(), probes, strict=True):
        found = result.probe * np.vdot(result.probe, probe) / np.vdot(result.probe, result.probe)
        misses.append(np.linalg.norm(found - probe) / np.linalg.norm(probe))
    print(f"one object: errors {errors[0]:.4f} together, {np.round(errors[1:], 4)} with one probe and alone")
    print(f"probes: errors {np.round(misses, 4)}")
    assert errors[0] < 0.1 * errors[1]
    assert errors[0] < 0.6 * min(errors[2:])
    assert max(misses) < 0.2
    assert np.linalg.norm(probes[0] - probes[1] / 1.5) > 0.6 * np.linalg.norm(probes[0])


# The beam


def drifting(scan: Scan) -> NDArray[np.complex128]:
    """Probes (pattern, 1, y, x) that lean and swing in two ways while the scan goes on."""
    assert scan.ground_truth is not None
    probe = scan.ground_truth.probe[0].astype(complex)
    side = probe.shape[0]
    y, x = np.meshgrid(*[(np.arange(side) - side // 2) / side] * 2, indexing="ij")
    time = np.linspace(-1, 1, len(scan))[:, None, None]
    probes = probe * (1 + 3.6j * time * x + 2.4 * np.cos(5 * time) * y)
    return probes[:, None] * math.sqrt(1e6 / (np.abs(probes) ** 2).sum((1, 2)).mean())


def test_a_drifting_probe_is_followed() -> None:
    scan = base()
    assert scan.ground_truth is not None
    moving = pt.simulate_diffraction(
        scan.ground_truth.object, drifting(scan), scan.positions, geometry=scan.geometry, guess=scan.probe
    )
    fixed = reconstructed(moving, 50, batch=8)
    followed = reconstructed(moving, 50, batch=8, opr=pt.OPR(modes=2))
    loss_ratio = fixed.losses[-1] / followed.losses[-1]
    errors = error(fixed, moving), error(followed, moving)
    print(f"OPR: loss lower by {loss_ratio:.1f}, object error {errors[0]:.4f} -> {errors[1]:.4f}")
    assert loss_ratio > 8
    assert errors[1] < 0.03
    assert errors[0] > 5 * errors[1]
    assert followed.parameters["variations/ways"].shape == (2, 64, 64)


def test_four_modes_of_a_partly_coherent_beam_are_recovered() -> None:
    scan = base(324, modes=4)
    one = reconstructed(scan, 60)
    four = reconstructed(scan, 60, probe=pt.Probe(modes=4))
    print(f"modes: error {error(one, scan):.4f} with one, {error(four, scan):.4f} with four")
    assert error(four, scan) < 0.05
    assert error(one, scan) > 2 * error(four, scan)


def test_the_brightness_of_each_pattern_is_found() -> None:
    scan = base()
    assert scan.ground_truth is not None
    weights = np.random.default_rng(0).uniform(0.5, 1.5, len(scan))
    weights /= weights.mean()
    flickering = pt.simulate_diffraction(
        scan.ground_truth.object,
        scan.ground_truth.probe,
        scan.positions,
        geometry=scan.geometry,
        guess=scan.probe,
        weights=weights,
    )
    plain = reconstructed(flickering, 60)
    weighted = reconstructed(flickering, 60, pattern_intensities=pt.PatternIntensities(learning_rate=0.03))
    found = weighted.parameters["weights/weights"]
    print(
        f"weights: rms error {np.std(found / weights):.4f}; "
        f"object {error(plain, scan):.4f} -> {error(weighted, scan):.4f}"
    )
    assert np.std(found / weights) < 0.02
    assert error(weighted, scan) < error(plain, scan) / 2


def test_a_sample_that_moves_during_the_exposure_is_resolved_where_a_still_one_is_blurred() -> None:
    """Lines to and fro without a pause between patterns; simulated in 32 steps, reconstructed in 4."""
    scan = base(photons=1e7)
    assert scan.ground_truth is not None
    rows = np.stack(np.meshgrid(np.arange(14.0), np.arange(14.0), indexing="ij"), -1)
    rows[1::2] = rows[1::2, ::-1]
    positions = 4 + 4 * rows.reshape(-1, 2)
    motion = motion_between(positions, 1.0)
    moving = pt.simulate_diffraction(
        scan.ground_truth.object,
        scan.ground_truth.probe,
        positions,
        geometry=scan.geometry,
        guess=scan.probe,
        motion=motion,
        motion_steps=32,
    )
    unknown = dataclasses.replace(moving, motion=None)
    still, known, derived = (
        reconstructed(one, 60, fly_scan=pt.FlyScan(steps=steps))
        for one, steps in ((moving, 1), (moving, 4), (unknown, 4))
    )
    errors = [error(result, moving) for result in (still, known)]
    print(f"fly scan: object error {errors[0]:.4f} -> {errors[1]:.4f}, R {still.r_factor:.4f} -> {known.r_factor:.4f}")
    assert errors[1] < errors[0] / 1.4
    assert known.r_factor < still.r_factor / 1.5
    np.testing.assert_allclose(known.parameters["fly_scan/motion"], motion, atol=1e-6)
    np.testing.assert_array_equal(derived.object, known.object)


# The detector


@each("thickness", [None, 3e-5])
def test_patterns_that_wander_over_the_detector_are_put_back(thickness: float | None) -> None:
    """A slope over the scan and a random walk, up to four detector pixels."""
    scan, random = base(), np.random.default_rng(5)
    assert scan.ground_truth is not None
    away = (scan.positions - scan.positions.mean(0)) / np.ptp(scan.positions, axis=0).max()
    shifts = away @ np.array([[5.0, -2.0], [1.0, 3.0]]) + np.cumsum(random.normal(0, 0.25, (len(scan), 2)), axis=0)
    shifts -= shifts.mean(0)
    object: Any = scan.ground_truth.object
    thick = {} if thickness is None else {"slices": pt.Slices(count=2, thickness=thickness)}
    wandering = pt.simulate_diffraction(
        object if thickness is None else np.stack([np.sqrt(np.abs(object)) * np.exp(0.5j * np.angle(object))] * 2),
        scan.ground_truth.probe,
        scan.positions,
        geometry=scan.geometry,
        guess=scan.probe,
        descan=shifts,
        thickness=thickness,
    )
    fading = pt.Schedule(kind="cosine", epochs=80, end_factor=0.05)
    ignored = reconstructed(wandering, 80, schedule=fading, **thick)
    found = reconstructed(wandering, 80, schedule=fading, descan=pt.Descan(start="plane", learning_rate=0.2), **thick)
    recovered = found.parameters["descan/shifts"]
    assert np.abs(recovered.mean(0)).max() < 1e-4
    rms = math.sqrt(((recovered - shifts) ** 2).sum(1).mean())
    errors = error(ignored, scan), error(found, scan)
    print(
        f"descan: {math.sqrt((shifts**2).sum(1).mean()):.2f} pixels rms, {rms:.3f} off; object {errors[0]:.4f} -> "
        f"{errors[1]:.4f}, R {ignored.r_factor:.4f} -> {found.r_factor:.4f}"
    )
    assert rms < 0.1
    assert errors[1] < errors[0] / 4
    assert found.r_factor < ignored.r_factor / 2


def test_a_background_is_found() -> None:
    scan = base()
    assert scan.ground_truth is not None
    y, x = np.mgrid[:64, :64]
    background = 60 * np.exp(-((y - 30) ** 2 + (x - 40) ** 2) / 400) + 10
    bright = pt.simulate_diffraction(
        scan.ground_truth.object,
        scan.ground_truth.probe,
        scan.positions,
        geometry=scan.geometry,
        guess=scan.probe,
        background=background,
    )
    plain = reconstructed(bright, 60)
    cleaned = reconstructed(bright, 60, background=pt.Background(learning_rate=0.03))
    found = cleaned.parameters["background/background"]
    print(
        f"background: {np.abs(found - background).mean() / background.mean():.3f} off; "
        f"object {error(plain, scan):.4f} -> {error(cleaned, scan):.4f}"
    )
    assert np.abs(found - background).mean() < 0.15 * background.mean()
    assert error(cleaned, scan) < error(plain, scan) / 2


@pytest.mark.parametrize("field", ["far", "near"])
def test_one_rate_serves_strong_backgrounds_and_does_no_harm_where_there_is_none(field: str) -> None:
    """Few updates in an epoch of the near field, many in the far field; the rate is that of object and probe."""
    plain = pt.simulate(patterns=100, window=64, seed=1, step=4) if field == "far" else structured_shadows()
    truth, epochs, mean = plain.ground_truth, 30 if field == "far" else 80, 1e6 / 64**2
    assert truth is not None
    y, x = np.mgrid[:64, :64]
    shape = 3 * np.exp(-((y - 30) ** 2 + (x - 40) ** 2) / 400) + 0.2
    for level in (0.0, 0.003, 0.3):
        scan = pt.simulate_diffraction(
            truth.object,
            truth.probe,
            plain.positions,
            geometry=plain.geometry,
            guess=plain.probe,
            background=level * mean * shape / shape.mean(),
        )
        plainly = reconstructed(scan, epochs, batch=4)
        refined = reconstructed(scan, epochs, batch=4, background=pt.Background(learning_rate=0.01))
        off = refined.parameters["background/background"] / mean - level * shape / shape.mean()
        errors, rms = (error(plainly, scan), error(refined, scan)), float(np.sqrt(np.mean(off**2)))
        print(f"{field} field, background {level} of the mean count: {rms:.4f} off, object {errors}")
        assert errors[1] < 1.03 * errors[0]
        if field == "far":  # in the near field the probe explains a smooth background, too
            assert rms < 0.006 or level > 0.1
            assert errors[1] < 0.6 * errors[0] or level < 0.1


def structured_shadows() -> Scan:
    """25 shadows in a parallel, structured beam."""
    random = np.random.default_rng(5)
    raster = 5.0 * np.stack(np.meshgrid(np.arange(5), np.arange(5), indexing="ij"), -1).reshape(-1, 2)
    amplitude, phase = (np.angle(mottled((64, 64), seed, 3)) for seed in (1, 2))
    probe = (0.6 + amplitude) * np.exp(3j * phase)
    probe *= np.sqrt(1e6 / np.sum(np.abs(probe) ** 2))
    geometry = NearField(
        wavelength=1.5e-10, focus_to_sample=math.inf, sample_to_detector=0.1, detector_pixel=(1e-6, 1e-6)
    )
    positions = raster + random.uniform(0, 3, raster.shape)
    return pt.simulate_diffraction(mottled((100, 100), 3), probe[None], positions, geometry=geometry)


def test_large_pixels_need_an_oversampled_detector() -> None:
    """A probe twice as wide as the window that the patterns' pixels allow."""
    scan = base(256, photons=1e7, noise=False)
    assert scan.ground_truth is not None
    coarse = pt.simulate_diffraction(
        scan.ground_truth.object, scan.ground_truth.probe, scan.positions, oversampling=2, noise=False
    )
    wide = reconstructed(coarse, 60, detector=pt.Detector(oversampling=2))
    narrow = reconstructed(coarse, 60)
    area = area_of(scan)
    errors = [compare(result.object, scan.ground_truth.object, area, result.origin).error for result in (wide, narrow)]
    print(f"oversampling: error {errors[1]:.4f} without, {errors[0]:.4f} with")
    assert wide.probe.shape == (1, 64, 64)
    assert errors[0] < 0.06
    assert errors[1] > 2 * errors[0]


@each(
    ("fault", "settings"),
    [
        ({"blur": 0.8}, {"detector": pt.Detector(psf_sigma=0.8)}),
        ({"saturation": 1500.0}, {"detector": pt.Detector(saturation=1500.0)}),
    ],
)
def test_a_detectors_fault_is_undone_by_its_model(fault: dict[str, Any], settings: dict[str, Any]) -> None:
    scan = base(photons=1e6)
    assert scan.ground_truth is not None
    spoilt = pt.simulate_diffraction(
        scan.ground_truth.object,
        scan.ground_truth.probe,
        scan.positions,
        geometry=scan.geometry,
        guess=scan.probe,
        **fault,
    )
    plain, modelled = reconstructed(spoilt, 60), reconstructed(spoilt, 60, **settings)
    print(f"{fault}: object {error(plain, scan):.4f} -> {error(modelled, scan):.4f}")
    assert error(modelled, scan) < error(plain, scan) / 1.5
    assert modelled.r_factor < plain.r_factor


# The object


def test_two_states_of_an_object_explain_what_one_cannot() -> None:
    scan = base(256, photons=1e7)
    assert scan.ground_truth is not None
    states = np.array(
        [scan.ground_truth.object, np.roll(scan.ground_truth.object, 5, axis=1)]
    )  # a sample that jumps to and fro
    flickering = pt.simulate_diffraction(
        states[:, None], scan.ground_truth.probe, scan.positions, geometry=scan.geometry
    )
    one = reconstructed(flickering, 60)
    two = reconstructed(flickering, 60, object=pt.Object(modes=2))
    print(f"states: loss {one.losses[-1]:.6f} -> {two.losses[-1]:.6f}")
    assert two.object.shape[0] == 2
    assert two.losses[-1] < one.losses[-1] / 1.5


# Electrons, near field, low dose


def lattice(shape: tuple[int, int], pixel: float, spacing: float, angle: float, phase: float) -> NDArray[np.complex128]:
    y, x = np.mgrid[: shape[0], : shape[1]] * pixel
    u = (math.cos(angle) * y + math.sin(angle) * x) / spacing
    v = (-math.sin(angle) * y + math.cos(angle) * x) / spacing
    squared = ((u - np.rint(u)) ** 2 + (v - np.rint(v)) ** 2) * spacing**2
    return np.exp(1j * phase * np.exp(-squared / (2 * 0.35e-10**2)))


def test_both_layers_of_a_crystal_are_resolved_by_electrons() -> None:
    """300 kV, 20 mrad, defocused by 10 nm, layers 10 nm apart, 1e4 electrons per square angstrom."""
    wavelength, window, pixel, angle = 1.9687e-12, 64, 0.2e-10, 20e-3
    frequency = np.fft.fftfreq(window, pixel)
    squared = frequency[:, None] ** 2 + frequency[None, :] ** 2
    aperture = 1 / (1 + np.exp((np.sqrt(squared) - angle / wavelength) / (0.02 * angle / wavelength)))
    probe = np.fft.fftshift(np.fft.ifft2(aperture * np.exp(-1j * np.pi * wavelength * 100e-10 * squared)))
    step, side = 4.0, 20
    grid = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), -1).reshape(-1, 2) * step
    positions = grid + np.random.default_rng(0).uniform(-1.2, 1.2, grid.shape) + 6
    electrons = 1e4 * (step * pixel * 1e10) ** 2
    probe *= math.sqrt(electrons / (np.abs(probe) ** 2).sum())
    shape = (int(positions.max()) + window + 8,) * 2
    layers = np.array([lattice(shape, pixel, 2.8e-10, turn, 0.5) for turn in (0.0, math.radians(30))])
    geometry = pt.Geometry(wavelength=wavelength, distance=1.0, detector_pixel=(wavelength / (window * pixel),) * 2)
    scan = pt.simulate_diffraction(layers, probe[None], positions, geometry=geometry, thickness=100e-10)
    result = reconstructed(
        scan,
        40,
        slices=pt.Slices(count=2, thickness=100e-10),
        object=pt.Object(parametrization="amplitude_phase", amplitude_learning_rate=0),
        probe=pt.Probe(learning_rate=0.002),
    )
    rows, columns = area_of(scan)
    off = result.origin
    found = np.angle(
        result.object[:, rows.start - off[0] : rows.stop - off[0], columns.start - off[1] : columns.stop - off[1]]
    )
    true = np.angle(layers[:, rows, columns])
    table = np.corrcoef(found.reshape(2, -1), true.reshape(2, -1))[:2, 2:]
    print(f"layers found against true ones:\n{table.round(3)}")
    assert table.diagonal().min() > 0.85
    assert np.abs(table - np.diag(table.diagonal())).max() < 0.2
    np.testing.assert_allclose(np.abs(result.object), 1, atol=1e-6)


def test_a_diverging_beam_through_a_diffuser_shows_the_object_in_its_shadows() -> None:
    """Detector of 100 x 100 pixels of 55 um, 1 m from the focus of a 17 keV beam, sample 2 mm behind it."""
    side, random = 100, np.random.default_rng(0)
    geometry = pt.NearField(
        wavelength=7.3e-11, focus_to_sample=2e-3, sample_to_detector=0.998, detector_pixel=(55e-6, 55e-6)
    )
    rough = ndimage.gaussian_filter(random.standard_normal((side, side)), 3) + 1j * ndimage.gaussian_filter(
        random.standard_normal((side, side)), 3
    )
    y, x = np.mgrid[:side, :side] - side // 2
    edge = 1 / (1 + np.exp((np.maximum(np.abs(y), np.abs(x)) - 40) / 1.5))
    probe = edge * (0.7 + 0.8 * rough / math.sqrt((np.abs(rough) ** 2).mean()))
    probe *= math.sqrt(1e7 / (np.abs(probe) ** 2).sum())
    assert base().ground_truth is not None
    positions = random.uniform(5, 65, (49, 2))
    true = mottled((180, 180), 3, 1.5)
    guess = edge * math.sqrt(1e7 / (edge**2).sum())
    scan = pt.simulate_diffraction(true, probe[None], positions, geometry=geometry, guess=guess.astype(complex))
    result = reconstructed(scan, 200, batch=8, object=pt.Object(learning_rate=0.02), probe=pt.Probe(learning_rate=0.02))
    found = compare(result.object, true, (slice(50, 130), slice(50, 130)), result.origin).error
    print(f"near field: object error {found:.4f}")
    assert found < 0.05


def test_a_defocus_of_the_wrong_sign_and_an_unknown_astigmatism_are_found_at_low_dose() -> None:
    """300 kV, 20 mrad, 3e4 electrons per square angstrom; free pixels of the probe do not leave the wrong focus."""
    wavelength, window, pixel, angle, step = 1.9687e-12, 64, 0.2e-10, 20e-3, 3.0
    true = {"C10": -10e-9, "C12": (2e-9, 0.5)}
    grid = np.stack(np.meshgrid(np.arange(20), np.arange(20), indexing="ij"), -1).reshape(-1, 2) * step
    positions = grid + np.random.default_rng(0).uniform(-0.9, 0.9, grid.shape) + 6
    lens = [
        pt.illumination.electron_probe((window, window), (pixel, pixel), wavelength, angle, aberrations)
        for aberrations in (true, {"C10": 10e-9})
    ]
    power = 3e4 * (step * pixel * 1e10) ** 2
    probe, start = (one * math.sqrt(power / (np.abs(one) ** 2).sum()) for one in lens)
    shape = (int(positions.max()) + window + 8,) * 2
    geometry = pt.Geometry(wavelength=wavelength, distance=1.0, detector_pixel=(wavelength / (window * pixel),) * 2)
    made = pt.simulate_diffraction(mottled(shape, 3), probe[None], positions, geometry=geometry)
    scan = dataclasses.replace(made, probe=start[None])
    of_lens = {
        "probe": pt.Probe(learning_rate=0),
        "aberrations": pt.Aberrations(order=2, learning_rate=0.03),
    }
    common = {"loss": "poisson", "schedule": {}, "object": pt.Object(learning_rate=0.05)}
    refined = reconstructed(scan, 40, **common, **of_lens)
    free = reconstructed(scan, 40, **common, probe=pt.Probe(learning_rate=0.05))
    changed = refined.aberrations
    print(f"errors {error(refined, scan):.3f}, free pixels {error(free, scan):.3f}; {changed}")
    assert isinstance(changed["C10"], float)
    assert changed["C10"] == pytest.approx(-20e-9, abs=0.5e-9)
    np.testing.assert_allclose(changed["C12"], true["C12"], rtol=0.1)
    assert error(refined, scan) < 0.5 * error(free, scan)


def test_poissons_likelihood_beats_amplitudes_at_a_hundred_counts_a_pattern() -> None:
    scan = base(1600, step=2, photons=100)
    assert scan.ground_truth is not None
    known = dataclasses.replace(scan, probe=scan.ground_truth.probe)
    errors = {}
    for loss, rate, epochs in (("amplitude", 0.002, (15, 30)), ("poisson", 0.03, (40,))):
        with pt.Reconstruction(
            known,
            pt.Settings(loss=loss, object=pt.Object(learning_rate=rate), probe=pt.Probe(learning_rate=0), batch=64),
            device="cpu",
        ) as recon:
            found = []
            for until in epochs:
                recon.start(until - recon.epoch)
                recon.wait(250)
                found.append(error(recon.result, scan))
        errors[loss] = min(found)  # amplitudes fit the noise later: their best moment counts
    print(f"100 counts a pattern: {errors}")
    assert errors["poisson"] < 0.95 * errors["amplitude"]


# Bragg and reflection geometry


def test_an_object_is_recovered_from_a_tilted_sample_where_plain_diffraction_fails() -> None:
    """Patterns summed over point sources at true distances in three dimensions: a mirror at 30 degrees to the beam."""
    side, wavelength, distance = 32, 1e-9, 0.05
    grazing = math.radians(30)
    beam = (0.0, -math.sin(grazing), math.cos(grazing))
    outgoing = np.array([0.0, math.sin(grazing), math.cos(grazing)])
    along_y = np.array([0.0, math.cos(grazing), -math.sin(grazing)]) * 7e-4
    geometry = pt.TiltedGeometry(
        wavelength=wavelength,
        detector_steps=(tuple(along_y.tolist()), (7e-4, 0.0, 0.0)),
        detector_centre=tuple((distance * outgoing).tolist()),
        beam=beam,
    )
    basis = geometry.planes((side, side)).sample_basis
    index = np.stack(np.meshgrid(*[np.arange(side) - side // 2] * 2, indexing="ij"), -1).reshape(-1, 2)
    sources = index @ basis.T
    pixels = distance * outgoing + index[:, :1] * along_y + index[:, 1:] * np.array([7e-4, 0.0, 0.0])
    lengths = np.linalg.norm(pixels[:, None] - sources[None], axis=2)
    # The beam's phase on the sample is that of a mirror image of the outgoing direction.
    phases = 2 * np.pi / wavelength * (lengths + sources @ np.array(beam))
    matrix = np.exp(1j * phases) / side
    near = np.exp(-1j * np.pi / wavelength * (sources**2).sum(1) / distance)  # the lens that makes it Fraunhofer's
    random = np.random.default_rng(4)
    true = mottled((72, 72), 9, 1.5)
    y, x = np.mgrid[:side, :side] - side // 2
    probe = np.exp(-(y**2 + x**2) / (2 * 4.5**2)) * np.exp(0.012j * (y**2 + x**2 + 0.5 * x * y)) * 300
    positions = np.rint(random.uniform(2, 38, (150, 2)))
    patterns = []
    for place in positions.astype(int):
        window = true[place[0] : place[0] + side, place[1] : place[1] + side]
        patterns.append(np.abs(matrix @ ((probe * window).ravel() * near)).reshape(side, side) ** 2)
    scan = Scan.from_arrays(np.array(patterns), positions, probe=probe, geometry=geometry)
    plain = dataclasses.replace(scan, geometry=None)
    area = (slice(18, 54), slice(18, 54))
    tilted, flat = (reconstructed(one, 60, probe=pt.Probe(learning_rate=0.003)) for one in (scan, plain))
    errors = [compare(result.object, true, area, result.origin).error for result in (tilted, flat)]
    print(
        f"reflection: object error {errors[1]:.4f} with a plain Fourier transform, {errors[0]:.4f} with tilted planes"
    )
    print(f"R {flat.r_factor:.4f}, {tilted.r_factor:.4f}")
    assert errors[0] < 0.02
    assert errors[1] > 2 * errors[0]
    assert flat.r_factor > 4 * tilted.r_factor


# A single shot


def test_one_pattern_of_a_known_random_probe_gives_a_band_limited_object() -> None:
    """Randomised probe imaging: fewer unknowns than pixels. Levitan et al., Opt. Express 28, 37103 (2020)."""
    side, random = 64, np.random.default_rng(1)
    frequency = np.hypot(*np.meshgrid(*[np.fft.fftfreq(side)] * 2, indexing="ij"))
    true = np.fft.ifft2(np.fft.fft2(mottled((side, side), 2, 1.0)) * (frequency <= 0.125))
    speckle = np.fft.ifft2(np.fft.fft2(random.standard_normal((side, side, 2)) @ [1, 1j]) * (frequency <= 0.3))
    probe = speckle * math.sqrt(1e8 / (np.abs(speckle) ** 2).sum())
    scan = pt.simulate_diffraction(true, probe[None], [[0.0, 0.0]])
    shot = {"batch": 1, "object": pt.Object(learning_rate=0.02, padding=0), "probe": pt.Probe(learning_rate=0)}
    fading = pt.Schedule(kind="cosine", epochs=600, end_factor=0.05)
    found = reconstructed(scan, 600, schedule=fading, constraints=(pt.constraints.LowPass(cutoff=0.25),), **shot)
    free = reconstructed(scan, 600, schedule=fading, **shot)

    def miss(result: pt.Result) -> float:
        object = result.object * np.vdot(result.object, true) / np.vdot(result.object, result.object)
        return float(np.linalg.norm(object - true) / np.linalg.norm(true))

    print(f"single shot: error {miss(free):.4f} without the band limit, {miss(found):.4f} with it")
    assert miss(found) < 0.05
    assert miss(free) > 4 * miss(found)
