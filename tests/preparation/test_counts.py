import dataclasses

import numpy as np
import pytest

from ptynb import preparation as prepare
from ptynb.data.patterns import ArrayFrames
from tests.parametrization import each
from tests.preparation.scans import guess_misfit, misfit, smooth_scan
from tests.raising import raises

RANDOM = np.random.default_rng(11)
WINDOW = (48, 45)
DARK = RANDOM.uniform(0, 3, WINDOW)
FLAT = RANDOM.uniform(0.5, 2, WINDOW)


def with_patterns(scan, patterns):
    return dataclasses.replace(scan, frames=ArrayFrames.of(patterns))


def nan_at_bad(scan, image):
    return np.where(scan.mask, image, np.nan)


@each("centred", [True, False])
def test_dark_and_flat_bring_back_what_the_detector_did(centred):
    scan = smooth_scan(WINDOW, centred=centred, bad=True)
    response = np.where(scan.mask, FLAT, 1) / FLAT[scan.mask].mean()
    read = with_patterns(scan, scan.frames.array * response + DARK)
    dark, flat = nan_at_bad(scan, DARK), nan_at_bad(scan, 7 * FLAT)
    made = prepare.divide_flat(prepare.subtract_dark(read, dark), flat)
    assert misfit(read) > 1e-3
    assert misfit(made) < 1e-9
    np.testing.assert_array_equal(made.mask, scan.mask)


def test_a_dark_number_and_small_integers():
    scan = smooth_scan(WINDOW, guesses=False)
    patterns = RANDOM.integers(0, 9, (8, *WINDOW)).astype(np.uint8)
    made = prepare.subtract_dark(with_patterns(scan, patterns), 3)
    np.testing.assert_array_equal(made.frames.read(0, 8), patterns.astype(float) - 3)
    np.testing.assert_array_equal(made.counts(0, 8), np.maximum(patterns.astype(float) - 3, 0))
    assert made.frames.dtype == np.float32


def test_pixels_without_response_are_masked():
    scan = smooth_scan(WINDOW)
    flat = FLAT.copy()
    flat[4, 5], flat[7, 8] = 0, -1
    made = prepare.divide_flat(scan, flat)
    assert {(int(y), int(x)) for y, x in np.argwhere(~made.mask)} == {(4, 5), (7, 8)}
    assert np.isfinite(made.frames.read(0, 8)).all()
    assert prepare.divide_flat(scan, FLAT).mask is None


@each("dtype", [np.int16, np.float32])
def test_counts_below_the_threshold_become_zero(dtype):
    patterns = np.array([-5, -1, 0, 1, 2, 3] * 6).reshape(1, 6, 6).astype(dtype)
    scan = dataclasses.replace(
        smooth_scan(guesses=False), frames=ArrayFrames.of(patterns), positions=np.zeros((1, 2)), ground_truth=None
    )
    with raises("scan.invalid-count"):
        scan.counts(0, 1)
    np.testing.assert_array_equal(prepare.remove_negatives(scan).counts(0, 1), np.maximum(patterns, 0))
    np.testing.assert_array_equal(prepare.remove_negatives(scan, 2).counts(0, 1)[0, 0], [0, 0, 0, 0, 2, 3])
    assert prepare.remove_negatives(scan).frames.dtype == dtype


@each("bad", [True, False])
def test_normalised_patterns_have_the_mean_asked_for_and_fit_their_truth(bad):
    scan = smooth_scan(WINDOW, bad=bad)
    made = prepare.normalise(scan, counts=123.0)
    assert made.counts(0, 8).sum() / 8 == pytest.approx(123, rel=1e-9)
    assert misfit(made) < 1e-9
    assert guess_misfit(made) < 1e-9


def test_a_monitor_takes_out_what_the_beam_did():
    scan = smooth_scan(WINDOW)
    incident = RANDOM.uniform(0.5, 1.5, 8)
    incident /= incident.mean()
    flickering = with_patterns(scan, scan.frames.array * incident[:, None, None])
    made = prepare.normalise(flickering, monitor=4e9 * incident)
    assert misfit(made) < 1e-9
    both = prepare.normalise(flickering, monitor=incident, counts=50)
    assert both.counts(0, 8).sum() / 8 == pytest.approx(50, rel=1e-9)
    assert misfit(both) < 1e-9


NAN, INF = float("nan"), float("inf")
REFUSED = {
    "dark of another shape": (lambda scan: prepare.subtract_dark(scan, DARK.T), "array.shape-mismatch", "dark image"),
    "dark not finite": (
        lambda scan: prepare.subtract_dark(scan, np.where(np.arange(45) == 7, NAN, DARK)),
        "array.not-finite",
        "dark image is nan",
        (0, 7),
    ),
    "flat without response": (lambda scan: prepare.divide_flat(scan, 0 * FLAT), "argument.invalid-value", "flat field"),
    "negative threshold": (
        lambda scan: prepare.remove_negatives(scan, -1),
        "argument.invalid-value",
        "threshold is -1",
    ),
    "nothing to scale by": (prepare.normalise, "argument.missing", "counts=", "monitor="),
    "no counts": (lambda scan: prepare.normalise(scan, counts=0), "argument.invalid-value", "counts is 0"),
    "dark monitor": (
        lambda scan: prepare.normalise(scan, monitor=[1, 2, 3, 0, NAN, -1, INF, 1]),
        "argument.invalid-value",
        "monitor",
        "4 values",
        8,
    ),
    "empty patterns": (
        lambda scan: prepare.normalise(with_patterns(scan, np.zeros((8, *WINDOW))), counts=1),
        "scan.empty",
    ),
}


@each("name", REFUSED)
def test_other_input_is_refused(name):
    change, *expected = REFUSED[name]
    with raises(*expected):
        change(smooth_scan(WINDOW))
