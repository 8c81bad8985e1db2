import dataclasses
import math

import numpy as np
from scipy import ndimage

from ptynb import preparation as prepare
from ptynb.data.geometry import Geometry
from ptynb.data.patterns import ArrayFrames
from ptynb.data.scan import Scan
from ptynb.preparation.rotation_fit import local_gradients, rotation_of_field
from tests.parametrization import each
from tests.preparation.scans import NEAR, modelled, smooth_scan
from tests.raising import raises

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
    found, exchanged = rotation_of_field(stage, field)
    assert exchanged is transposed
    assert apart(found, angle * DEGREE) < 0.5 * DEGREE
    assert -math.pi / 2 < found <= math.pi / 2
    found, exchanged = rotation_of_field(stage, field + noise)
    assert exchanged is transposed
    assert apart(found, angle * DEGREE) < 1 * DEGREE


def test_close_pairs_of_positions_do_not_spoil_the_angle():
    """0.97 degrees rms at 30% noise; gradients that all count the same give 1.96."""
    errors = []
    for seed in range(20):
        field = potential_gradient(GRIDS["random"], seed)
        noise = 0.3 * field.std() * np.random.default_rng(seed).standard_normal(field.shape)
        errors.append(apart(rotation_of_field(GRIDS["random"], field + noise)[0], 0))
    assert np.sqrt(np.mean(np.square(errors))) < 1.3 * DEGREE


@each("grid", GRIDS)
def test_gradients_of_a_plane_are_exact(grid):
    slopes = np.array([[0.3, -1.2], [2.0, 0.7]])
    found, weights = local_gradients(GRIDS[grid], GRIDS[grid] @ slopes.T + 5)
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
    angle, exchanged = prepare.estimate_rotation(scan)
    assert exchanged is transposed
    assert abs(angle - 30 * DEGREE) < 1 * DEGREE
    right = prepare.rotate_positions(prepare.transpose_positions(scan) if exchanged else scan, angle)
    moved = right.positions - true
    assert np.abs(moved - moved.mean(0)).max() < 0.02 * 60


def test_a_mirrored_detector_is_found_and_turned_round():
    scan, _ = phase_scan(None, 0.0, False)
    wrong = prepare.flip(scan, "y")
    angle, exchanged = prepare.estimate_rotation(wrong)
    assert exchanged
    assert apart(angle, math.pi / 2) < 1 * DEGREE
    angle, exchanged = prepare.estimate_rotation(prepare.flip_positions(wrong, "y"))
    assert not exchanged
    assert apart(angle, 0) < 1 * DEGREE


def test_noise_has_no_orientation():
    for seed in range(10):
        field = np.random.default_rng(seed).standard_normal((900, 2))
        with raises("scan.no-rotation"):
            rotation_of_field(GRIDS["raster"], field)


def test_scans_without_orientation_are_refused():
    with raises("scan.near-field"):
        prepare.estimate_rotation(smooth_scan(geometry=NEAR))
    with raises("scan.too-few-patterns", 8):
        prepare.estimate_rotation(smooth_scan())
    line = np.stack([np.arange(50.0), 2 * np.arange(50.0)], axis=1)
    with raises("scan.too-few-patterns", 50):
        rotation_of_field(line, potential_gradient(line))
    with raises("scan.no-rotation", "0 pixels"):
        rotation_of_field(GRIDS["raster"], np.zeros((900, 2)))


def test_empty_patterns_are_left_out():
    scan, _ = phase_scan(None, 30 * DEGREE, False)
    patterns = scan.frames.array.copy()
    patterns[::9] = 0
    angle, exchanged = prepare.estimate_rotation(dataclasses.replace(scan, frames=ArrayFrames.of(patterns)))
    assert not exchanged
    assert abs(angle - 30 * DEGREE) < 1.5 * DEGREE
