import dataclasses
import math

import numpy as np
import pytest

from ptynb import preparation as prepare
from tests.parametrization import each
from tests.preparation.scans import FAR, guess_misfit, misfit, smooth_scan
from tests.raising import raises

EYE = np.eye(2)


def test_affine_matrix_is_the_product_it_says():
    np.testing.assert_allclose(prepare.affine_matrix(), EYE)
    np.testing.assert_allclose(prepare.affine_matrix(scale=1.5), 1.5 * EYE)
    np.testing.assert_allclose(prepare.affine_matrix(asymmetry=0.2), np.diag([1.1, 0.9]))
    np.testing.assert_allclose(prepare.affine_matrix(shear=math.atan(0.3)) @ [2, 5], [2, 5.6])
    # x, to the right, turns towards y, down.
    np.testing.assert_allclose(prepare.affine_matrix(rotation=math.pi / 2) @ [0, 1], [1, 0], atol=1e-15)
    np.testing.assert_allclose(prepare.affine_matrix(rotation=math.pi / 2) @ [1, 0], [0, -1], atol=1e-15)
    together = prepare.affine_matrix(2, 0.1, 0.3, 0.2)
    turn, shear = prepare.affine_matrix(rotation=0.3), prepare.affine_matrix(shear=0.2)
    np.testing.assert_allclose(together, 2 * np.diag([1.05, 0.95]) @ turn @ shear)


def test_a_map_acts_in_metres_about_the_mean():
    scan = smooth_scan((48, 45), guesses=False)
    pixel = np.array(scan.pixel_size)
    assert pixel[0] / pixel[1] == pytest.approx(1.5)
    matrix = prepare.affine_matrix(1.02, 0.03, 0.5, 0.1)
    made = prepare.affine_positions(scan, matrix)
    before, after = scan.positions * pixel, made.positions * pixel
    np.testing.assert_allclose(after.mean(0), before.mean(0), rtol=1e-12)
    expected = [matrix @ place for place in before - before.mean(0)]
    np.testing.assert_allclose(after - after.mean(0), expected, rtol=1e-9, atol=1e-15)
    back = prepare.affine_positions(made, np.linalg.inv(matrix))
    np.testing.assert_allclose(back.positions, scan.positions, rtol=1e-12)
    assert made.ground_truth is scan.ground_truth


def test_without_geometry_detector_pixels_are_square():
    scan = smooth_scan((48, 24), geometry=None, guesses=False, sigma=2.0)
    square = dataclasses.replace(scan, geometry=dataclasses.replace(FAR, detector_pixel=(1e-5, 1e-5)))
    for change in (lambda scan: prepare.rotate_positions(scan, 0.4), prepare.transpose_positions):
        np.testing.assert_allclose(change(scan).positions, change(square).positions, rtol=1e-12)


def test_a_guess_grows_with_the_scan_and_stays_under_it():
    scan = smooth_scan((48, 45))
    made = prepare.affine_positions(scan, prepare.affine_matrix(scale=4.0))
    assert made.object.shape > scan.object.shape
    back = prepare.affine_positions(made, prepare.affine_matrix(scale=0.25))
    moved = back.positions - scan.positions
    np.testing.assert_allclose(moved, np.broadcast_to(np.rint(moved[0]), moved.shape), atol=1e-9)
    assert (moved[0] > 0.5).all()
    assert misfit(back) < 1e-9
    assert guess_misfit(back) < 1e-9


def test_positions_without_an_object_are_mirrored_in_their_own_extent():
    scan = dataclasses.replace(smooth_scan(guesses=False), ground_truth=None)
    made = prepare.flip_positions(scan, "x")
    np.testing.assert_array_equal(made.positions[:, 0], scan.positions[:, 0])
    low, high = scan.positions[:, 1].min(), scan.positions[:, 1].max()
    np.testing.assert_allclose(made.positions[:, 1], low + high - scan.positions[:, 1])


NOT_A_MATRIX = {"not 2 x 2": np.eye(3), "singular": [[1, 2], [2, 4]], "not finite": [[1, 0], [0, math.nan]]}


@each("name", NOT_A_MATRIX)
def test_other_matrices_are_refused(name):
    with raises("argument.invalid-value", "matrix is"):
        prepare.affine_positions(smooth_scan(), NOT_A_MATRIX[name])


@each(
    "numbers",
    [{"scale": 0}, {"scale": -1}, {"asymmetry": 2}, {"shear": 1.6}, {"rotation": math.inf}, {"scale": math.nan}],
)
def test_maps_that_leave_no_plane_are_refused(numbers):
    with raises("argument.invalid-value", *(f"{name}={value}" for name, value in numbers.items())):
        prepare.affine_matrix(**numbers)
