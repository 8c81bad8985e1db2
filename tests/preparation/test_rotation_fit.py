import dataclasses
import math

import numpy as np
import pytest
from scipy import ndimage

import ptynb as pt
from ptynb import analysis
from ptynb import preparation as prepare
from ptynb.analysis.scan_survey import Surveyor
from ptynb.data.geometry import Geometry
from ptynb.data.patterns import ArrayFrames
from ptynb.data.scan import Scan
from ptynb.preparation.rotation_fit import local_gradients, neighbours, rotation_if_known, rotation_of_field
from tests.parametrization import each
from tests.preparation.scans import NEAR, modelled, smooth_scan
from tests.raising import raises
from tests.tuning.recommend_scans import drifting

DEGREE = math.pi / 180


def apart(one, other):
    """Difference of two angles that are the same modulo π."""
    return abs((one - other + math.pi / 2) % math.pi - math.pi / 2)


def potential_gradient(places, seed=0):
    """∇V (point, yx) of a sum of waves, in closed form."""
    random = np.random.default_rng(seed)
    directions = random.uniform(0, 2 * math.pi, 60)
    waves = np.stack([np.cos(directions), np.sin(directions)], axis=1) * random.uniform(0.3, 0.7, (60, 1))
    phases = places @ waves.T + random.uniform(0, 2 * math.pi, 60)
    return -np.sin(phases) @ waves


def spiral(count):
    index = np.arange(count) + 0.5
    radius, angle = 0.6 * np.sqrt(index), index * math.pi * (3 - math.sqrt(5))
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


GRIDS = {
    "raster": np.stack(np.meshgrid(np.arange(30.0), np.arange(30.0), indexing="ij"), -1).reshape(-1, 2),
    "oblong raster": np.stack(np.meshgrid(np.arange(30.0), 0.25 * np.arange(120.0), indexing="ij"), -1).reshape(-1, 2),
    "spiral": 1.5 * spiral(900),
    "random": np.random.default_rng(1).uniform(0, 30, (1500, 2)),
}


@each("grid", GRIDS)
@each("angle", [-80, -30, 0, 12.3, 30, 90])
@each("transposed", [False, True])
def test_the_angle_of_a_gradient_field_is_found(grid, angle, transposed):
    """True places are those of the stage, transposed or not, then turned from x towards y."""
    stage = GRIDS[grid]
    turn = prepare.affine_matrix(rotation=angle * DEGREE)
    true = (stage[:, ::-1] if transposed else stage) @ turn.T
    field = potential_gradient(true)
    noise = 0.1 * field.std() * np.random.default_rng(2).standard_normal(field.shape)
    found = rotation_of_field(stage, field)
    assert found.transposed is transposed
    assert apart(found.angle, angle * DEGREE) < 0.5 * DEGREE
    assert -math.pi / 2 < found.angle <= math.pi / 2
    noisy = rotation_of_field(stage, field + noise)
    assert noisy.transposed is transposed
    assert apart(noisy.angle, angle * DEGREE) < 1 * DEGREE
    assert noisy.curl_after > found.curl_after


def test_close_pairs_of_positions_do_not_spoil_the_angle():
    """0.97 degrees rms at 30% noise; gradients that all count the same give 1.96."""
    errors = []
    for seed in range(20):
        field = potential_gradient(GRIDS["random"], seed)
        noise = 0.3 * field.std() * np.random.default_rng(seed).standard_normal(field.shape)
        errors.append(apart(rotation_of_field(GRIDS["random"], field + noise).angle, 0))
    assert np.sqrt(np.mean(np.square(errors))) < 1.3 * DEGREE


@each("grid", GRIDS)
def test_gradients_of_a_plane_are_exact(grid):
    slopes = np.array([[0.3, -1.2], [2.0, 0.7]])
    found, weights = local_gradients(GRIDS[grid], GRIDS[grid] @ slopes.T + 5, neighbours(GRIDS[grid]))
    assert (weights > 0).all()
    np.testing.assert_allclose(found, np.broadcast_to(slopes, found.shape), atol=1e-9)


def phase_scan(geometry, turn, transposed):
    """A phase object under a small probe; the stage reports positions that are turned against the truth."""
    random = np.random.default_rng(7)
    window = (24, 20)
    phase = ndimage.gaussian_filter(random.standard_normal((130, 150)), 4.0)
    object = np.exp(1.2j * phase / np.abs(phase).max())
    y, x = np.meshgrid(*(np.arange(side) - side // 2 for side in window), indexing="ij")
    probe = 100 * np.exp(-(y**2 + x**2) / (2 * 2.0**2))[None].astype(complex)
    pixel = np.array([1 / side for side in window] if geometry is None else geometry.object_pixel(window))
    pixel = pixel / pixel.mean()
    steps = np.arange(-26.0, 26.1, 3.0)
    stage = np.stack(np.meshgrid(steps, steps, indexing="ij"), -1).reshape(-1, 2)
    stage = stage[np.hypot(*stage.T) < 30]
    true = (stage[:, ::-1] if transposed else stage) @ prepare.affine_matrix(rotation=turn).T / pixel + (53, 65)
    return Scan(
        frames=ArrayFrames.of(modelled(object, probe, true, geometry)),
        positions=stage / pixel,
        geometry=geometry,
    ), true


@each("geometry", [None, Geometry(wavelength=2e-12, distance=1.0, detector_pixel=(1e-3, 1.5e-3))])
@each("transposed", [False, True])
def test_a_turned_scan_of_a_phase_object_is_put_right(geometry, transposed):
    scan, true = phase_scan(geometry, 30 * DEGREE, transposed)
    found = prepare.estimate_rotation(scan)
    assert found.transposed is transposed
    assert found.needed
    assert abs(found.degrees - 30) < 1  # to first order only: the probe is not small against the object
    assert found.curl_after < found.curl_before / 2
    moved = found.apply(scan).positions - true
    assert np.abs(moved - moved.mean(0)).max() < 0.02 * 60
    assert not prepare.estimate_rotation(found.apply(scan)).needed
    by_steps = scan
    for step in found.steps:
        by_steps = getattr(prepare, step.function)(by_steps, **step.arguments)
    np.testing.assert_array_equal(by_steps.positions, found.apply(scan).positions)


def test_a_mirrored_detector_is_found_and_turned_round():
    scan, _ = phase_scan(None, 0.0, False)
    wrong = prepare.flip(scan, "y")
    found = prepare.estimate_rotation(wrong)
    assert found.transposed
    assert apart(found.angle, math.pi / 2) < 1 * DEGREE
    found = prepare.estimate_rotation(prepare.flip_positions(wrong, "y"))
    assert not found.transposed
    assert apart(found.angle, 0) < 1 * DEGREE


ELECTRONS = Geometry(wavelength=1.97e-12, distance=1.0, detector_pixel=(3.08e-3, 3.08e-3))
"""Object pixels of 0.2 angstrom at 300 keV for a window of 32 pixels."""


def atoms(shape, phase, absorption=0.0):
    """Transmission of atoms at random places, with this largest phase shift [rad]."""
    random = np.random.default_rng(4)
    count = shape[0] * shape[1] // 60
    density = np.zeros(shape)
    density[random.integers(0, shape[0], count), random.integers(0, shape[1], count)] = random.uniform(0.5, 1, count)
    density = ndimage.gaussian_filter(density, 1.5)
    return np.exp((1j - absorption) * phase * density / density.max())


def aperture_probe(counts, defocus=0.0, astigmatism=0.0):
    """Probe of a round aperture of 20 mrad; defocus and astigmatism [m]."""
    frequency = np.fft.fftfreq(32, 2e-11)
    y, x = frequency[:, None], frequency[None, :]
    inside = 1 / (1 + np.exp((np.hypot(y, x) * ELECTRONS.wavelength - 0.02) / 6e-4))
    phase = np.pi * ELECTRONS.wavelength * (defocus * (y**2 + x**2) + astigmatism * (y**2 - x**2))
    probe = np.fft.fftshift(np.fft.ifft2(inside * np.exp(1j * phase)))
    return probe[None] * math.sqrt(counts / (np.abs(probe) ** 2).sum())


def electron_scan(degrees=0.0, transposed=False, phase=1.0, grid=(24, 24), counts=1e3, absorption=0.0, **aberrations):
    """4D-STEM: the stage reports places that are turned against the truth by this angle, and transposed."""
    stage = 2.0 * np.stack(np.meshgrid(*map(np.arange, grid), indexing="ij"), -1).reshape(-1, 2)
    true = (stage[:, ::-1] if transposed else stage) @ prepare.affine_matrix(rotation=degrees * DEGREE).T
    true = true - true.min(0) + 2
    sides = np.ceil(true.max(0)).astype(int) + 35
    probe = aperture_probe(counts, **aberrations)
    scan = pt.simulate_diffraction(atoms(tuple(sides), phase, absorption), probe, true, geometry=ELECTRONS)
    return dataclasses.replace(scan, positions=stage + 2, ground_truth=None)


DETECTORS = {
    "right": (0.0, False, False),
    "rotated": (30.05, False, False),
    "a quarter turn": (90.0, False, False),
    "transposed": (0.0, True, False),
    "transposed and rotated": (-40.0, True, False),
    "mirrored": (0.0, False, True),
}
OBJECTS = {
    "weak": {"phase": 0.1, "counts": 1e5},
    "strong, few counts": {"phase": 3.0, "counts": 100, "grid": (24, 24)},
    "strong, oblong": {"counts": 1e3, "grid": (12, 48)},
    "out of focus": {"counts": 1e5, "defocus": 5e-9},
    "absorbing": {"counts": 1e4, "absorption": 0.05},
}


@each("detector", DETECTORS)
@each("kind", OBJECTS)
def test_the_orientation_of_electron_detectors_is_found(kind, detector):
    degrees, transposed, mirrored = DETECTORS[detector]
    scan = electron_scan(degrees, transposed, **OBJECTS[kind])
    if mirrored:
        scan, degrees, transposed = prepare.flip(scan, "y"), 90.0, True
    found = prepare.estimate_rotation(scan)
    assert found.transposed is transposed
    off = apart(found.angle, degrees * DEGREE)
    assert off < 5 * DEGREE
    assert off < 1 * DEGREE + 3 * found.error
    assert found.needed is (detector != "right")


def absorbing(wavefront):
    """An X-ray scan of absorption alone, in a beam whose wavefront is curved; wavefront: its phase of (y, x)."""
    scan = pt.simulate(patterns=324, window=48, seed=1, photons=1e5)
    y, x = np.meshgrid(*[np.arange(48.0) - 24] * 2, indexing="ij")
    probe = np.exp(-(y**2 + x**2) / 72 + 1j * wavefront(y, x))[None]
    probe *= math.sqrt(1e5 / (np.abs(probe) ** 2).sum())
    return pt.simulate_diffraction(np.abs(scan.ground_truth.object), probe, scan.positions, geometry=scan.geometry)


PLAIN = {
    **{
        f"X-rays {seed}": lambda seed=seed: pt.simulate(
            patterns=144 + 60 * seed,
            window=(32, 48)[seed % 2],
            photons=(1e3, 1e4, 1e6)[seed % 3],
            modes=1 + seed % 2,
            step=(None, 4.0)[seed // 2 % 2],
            seed=seed,
        )
        for seed in range(8)
    },
    "defocused": lambda: absorbing(lambda y, x: 0.03 * (y**2 + x**2)),
    "astigmatic": lambda: absorbing(lambda y, x: 0.04 * (y**2 - x**2)),
    "astigmatic, oblique": lambda: absorbing(lambda y, x: 0.06 * y * x),
    "a vortex": lambda: absorbing(lambda y, x: np.arctan2(y, x) + 0.03 * (y**2 + x**2)),
    "a drift of the beam": drifting,
    "noise": lambda: electron_scan(30.0, phase=0.0),
    "electrons": electron_scan,
    "electrons, absorbed": lambda: electron_scan(absorption=1.0, counts=1e4, astigmatism=2e-8),
}


@each("kind", PLAIN)
def test_no_rotation_is_told_that_is_not_there(kind):
    """The smallest curl alone told 7 of these to be rotated by more than 2 degrees, or transposed."""
    found = rotation_if_known(PLAIN[kind](), 1000)
    assert found is None or not found.needed, found


def test_noise_has_no_orientation():
    """Neither has a random field whose values are alike at neighbouring positions."""
    for seed in range(40):
        field = np.random.default_rng(seed).standard_normal((2, 30, 30))
        if seed % 2:
            field = ndimage.gaussian_filter(field, (0, 1, 1))
        with raises("scan.no-rotation"):
            rotation_of_field(GRIDS["raster"], field.reshape(2, -1).T)


def test_the_probability_of_a_false_alarm_is_what_it_says(monkeypatch):
    """Of 300 fields of noise about a tenth has a probability below 0.1; the criteria of size are taken away."""
    for name, value in {"FALSE_ALARM": 1.0, "MOST_CURL": 1.0, "LEAST_DIFFERENCE": -1.0}.items():
        monkeypatch.setattr(f"ptynb.preparation.rotation_fit.{name}", value)
    random = np.random.default_rng(0)
    small = GRIDS["raster"].reshape(30, 30, 2)[:14, :14].reshape(-1, 2)
    chances = [rotation_of_field(small, random.standard_normal((196, 2))).false_alarm for _ in range(300)]
    assert 0.05 < np.mean(np.array(chances) < 0.1) < 0.15
    assert np.mean(np.array(chances) < 0.01) < 0.03


def test_scans_without_orientation_are_refused():
    with raises("scan.near-field"):
        prepare.estimate_rotation(smooth_scan(geometry=NEAR))
    with raises("scan.too-few-patterns", 8):
        prepare.estimate_rotation(smooth_scan())
    line = np.stack([np.arange(100.0), 2 * np.arange(100.0)], axis=1)
    with raises("scan.too-few-patterns", 100):
        rotation_of_field(line, potential_gradient(line))
    with raises("scan.no-rotation", "0 pixels"):
        rotation_of_field(GRIDS["raster"], np.zeros((900, 2)))
    along = np.sin(GRIDS["raster"][:, :1]) * [[0.8, 0.6]]
    with raises("scan.no-rotation", "one direction"):
        rotation_of_field(GRIDS["raster"], along)


def test_empty_patterns_are_left_out():
    scan, _ = phase_scan(None, 30 * DEGREE, False)
    patterns = scan.frames.array.copy()
    patterns[::9] = 0
    found = prepare.estimate_rotation(dataclasses.replace(scan, frames=ArrayFrames.of(patterns)))
    assert not found.transposed
    assert abs(found.degrees - 30) < 1.5


def test_a_survey_gives_the_same_in_any_order_of_pixels():
    scan, _ = phase_scan(None, 25 * DEGREE, False)
    found = prepare.estimate_rotation(scan)
    assert prepare.estimate_rotation(scan, analysis.survey(scan)).angle == pytest.approx(found.angle, abs=1e-9)
    shifted = np.fft.ifftshift(scan.frames.array, axes=(1, 2))
    other = dataclasses.replace(scan, frames=ArrayFrames.of(shifted), centred=False)
    for seen in (None, analysis.survey(other)):
        assert prepare.estimate_rotation(other, seen).angle == pytest.approx(found.angle, abs=1e-9)


def test_the_middle_of_a_large_scan_is_enough():
    """As much of it is read."""
    scan, _ = phase_scan(None, 12 * DEGREE, False)
    beyond = np.hypot(*(scan.positions - np.median(scan.positions, 0)).T) > 23
    patterns = scan.frames.array.copy()
    patterns[beyond] = np.nan
    found = prepare.estimate_rotation(dataclasses.replace(scan, frames=ArrayFrames.of(patterns)), patterns=150)
    assert abs(found.degrees - 12) < 2


def test_too_small_a_sample_and_another_survey_are_refused():
    scan = pt.simulate(patterns=400, window=32)
    surveyor = Surveyor(scan, sample=30)
    surveyor.advance()
    with raises("scan.survey-incomplete", "30 of 400"):
        prepare.estimate_rotation(scan, surveyor.survey())
    with raises("scan.wrong-survey", 400):
        prepare.estimate_rotation(prepare.select(scan, slice(0, 200)), surveyor.survey())
