import dataclasses

import numpy as np
import pytest

from ptynb import preparation as prepare
from ptynb.data.scan import Truth
from tests.parametrization import all_pairs, each
from tests.preparation.scans import FAR, NEAR, guess_misfit, misfit, smooth_scan
from tests.raising import raises

EXACT = 1e-9


@each(
    ("geometry", "window", "axes", "centred"),
    all_pairs([FAR, NEAR, None], [(48, 45), (45, 48)], ["y", "x", "yx"], [True, False]),
)
def test_a_mirrored_experiment_fits_its_mirrored_truth(geometry, window, axes, centred):
    scan = smooth_scan(window, geometry=geometry, centred=centred, bad=True)
    assert misfit(scan) < EXACT
    both = prepare.flip(scan, axes, positions=True)
    assert misfit(both) < EXACT
    assert guess_misfit(both) < EXACT
    assert not np.allclose(both.ground_truth.object, scan.ground_truth.object)


@each("geometry", [FAR, NEAR, None])
@each("guesses", [True, False])
def test_detector_and_positions_can_be_mirrored_in_either_order(geometry, guesses):
    scan = smooth_scan((48, 45), geometry=geometry, guesses=guesses)
    one = prepare.flip_positions(prepare.flip(scan, "y"), "y")
    other = prepare.flip(prepare.flip_positions(scan, "y"), "y")
    for made in (one, other):
        assert misfit(made) < EXACT
    assert misfit(prepare.flip(scan, "y")) > 0.01
    assert misfit(prepare.flip_positions(scan, "y")) > 0.01


@each("object_side", [-3, 0, 4])
def test_a_truth_of_another_size_than_the_guess_is_mirrored_with_it(object_side):
    scan = smooth_scan((48, 45))
    truth = scan.ground_truth.object
    longer = np.pad(truth, ((0, 4), (0, 0)), constant_values=1)[: len(truth) + object_side]
    scan = dataclasses.replace(scan, ground_truth=Truth(longer, scan.ground_truth.probe))
    both = prepare.flip(scan, "y", positions=True)
    assert misfit(both) < EXACT
    assert guess_misfit(both) < EXACT


@each(
    ("geometry", "window", "centred"),
    all_pairs([FAR, NEAR, None], [(48, 45), (36, 48), (40, 40)], [True, False]),
)
def test_a_transposed_experiment_fits_its_transposed_truth(geometry, window, centred):
    scan = smooth_scan(window, geometry=geometry, sigma=3.0, centred=centred, bad=True)
    limit = 1e-6 if min(window) < 40 else EXACT
    both = prepare.transpose(scan, positions=True)
    assert both.pattern_shape == window[::-1]
    assert misfit(both) < limit
    assert guess_misfit(both) < limit
    without = dataclasses.replace(scan, object=None)
    one = prepare.transpose_positions(prepare.transpose(without))
    other = prepare.transpose(prepare.transpose_positions(without))
    for made in (one, other):
        np.testing.assert_allclose(made.positions, both.positions, rtol=1e-12, atol=1e-12)
        assert misfit(made) < limit
    if geometry is not None:
        assert both.pixel_size == pytest.approx(scan.pixel_size[::-1])


def test_transposing_the_detector_leaves_the_probe_where_it_is_in_metres():
    scan = smooth_scan((36, 48), guesses=False)
    made = prepare.transpose(scan)

    def metres(scan):
        return (scan.positions + np.array(scan.pattern_shape) // 2) * scan.pixel_size

    np.testing.assert_allclose(metres(made), metres(scan), rtol=1e-12)
    np.testing.assert_allclose(metres(prepare.transpose_positions(scan)), metres(scan)[:, ::-1], rtol=1e-12)


def test_a_guess_that_no_longer_holds_the_windows_is_refused():
    scan = smooth_scan((48, 45), guesses=True)
    long = np.pad(scan.object, ((0, 40), (0, 0)), constant_values=1)
    scan = dataclasses.replace(scan, object=long, positions=scan.positions + np.array([40, 0]), ground_truth=None)
    with raises("scan.position-outside"):
        prepare.transpose(scan)
    assert prepare.transpose(scan, positions=True).object.shape == long.shape[::-1]


@each("function", [prepare.flip, prepare.flip_positions])
@each("axes", ["z", "", "yy", 0, None])
def test_other_axes_are_refused(function, axes):
    with raises("argument.invalid-value", repr(axes)):
        function(smooth_scan(), axes)
