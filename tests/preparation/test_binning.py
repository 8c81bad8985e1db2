import dataclasses
import math

import numpy as np
import pytest

from ptynb import preparation as prepare
from ptynb.data.patterns import ArrayFrames
from tests.parametrization import each
from tests.preparation.scans import FAR, NEAR, guess_misfit, misfit, modelled, smooth_scan
from tests.raising import raises


def autocorrelation(patterns):
    """Of the exit waves, from centred patterns; lag 0 at index 0."""
    return np.fft.ifft2(np.fft.ifftshift(patterns, axes=(-2, -1)))


def pixel_transfer(side, factor):
    """What a sum over `factor` samples does to the autocorrelation: sin(π f l / n) / (f sin(π l / n)) at lag l."""
    lag = np.fft.fftfreq(side // factor) * (side // factor) * math.pi / side
    with np.errstate(invalid="ignore"):
        return np.where(lag == 0, 1, np.sin(factor * lag) / (factor * np.sin(lag)))


@each(("window", "factor"), [((64, 96), (2, 3)), ((96, 64), (3, 2)), ((66, 99), (2, 3)), ((128, 64), (4, 1))])
@each("centred", [True, False])
def test_a_binned_scan_fits_its_truth_once_the_pixels_size_is_allowed_for(window, factor, centred):
    """Exact: the new model samples the far field, and the sum over a block multiplies the autocorrelation."""
    scan = smooth_scan(window, sigma=2.0, centred=centred)
    made = prepare.bin(scan, factor)
    assert made.pattern_shape == (window[0] // factor[0], window[1] // factor[1])
    measured = autocorrelation(made.counts(0, 8))
    transfer = [pixel_transfer(side, f) for side, f in zip(window, factor, strict=True)]
    for object, probe in ((made.ground_truth.object, made.ground_truth.probe), (made.object, made.probe)):
        sampled = autocorrelation(modelled(object, probe, made.positions, made.geometry))
        expected = sampled * transfer[0][:, None] * transfer[1][None, :]
        np.testing.assert_allclose(measured, expected, atol=2e-6 * np.abs(measured).max())
    np.testing.assert_allclose(made.pixel_size, scan.pixel_size)


@each("dtype", [np.uint8, np.int16, np.uint32, np.float32])
def test_binned_counts_are_sums_that_do_not_overflow(dtype):
    patterns = np.random.default_rng(1).integers(100, 127, (8, 12, 18)).astype(dtype)
    scan = dataclasses.replace(
        smooth_scan(), frames=ArrayFrames.of(patterns), probe=None, object=None, ground_truth=None, geometry=None
    )
    made = prepare.bin(scan, (2, 3))
    total = sum(patterns[:, y::2, x::3].astype(np.int64) for y in range(2) for x in range(3))
    np.testing.assert_array_equal(made.counts(0, 8), total)
    assert made.frames.dtype.kind == np.dtype(dtype).kind


def test_a_block_with_a_bad_pixel_is_bad():
    scan = smooth_scan((48, 45), bad=True)
    made = prepare.bin(scan, (2, 3))
    bad = {(0, 0), (3 // 2, 5 // 3), (20 // 2, 11 // 3)}
    assert {(int(y), int(x)) for y, x in np.argwhere(~made.mask)} == bad
    whole = smooth_scan((48, 45)).counts(0, 8).reshape(8, 24, 2, 15, 3).sum((2, 4))
    np.testing.assert_allclose(made.counts(0, 8)[:, made.mask], whole[:, made.mask], rtol=1e-12)


def test_near_field_bins_make_larger_object_pixels():
    scan = smooth_scan((96, 90), geometry=NEAR, sigma=13.0, object_sigma=10.0, bad=True)
    scan = dataclasses.replace(scan, object=scan.object[:, :-1])
    made = prepare.bin(scan, (2, 3))
    assert made.pixel_size == pytest.approx((2 * scan.pixel_size[0], 3 * scan.pixel_size[1]))
    assert misfit(made) < 0.02
    assert guess_misfit(made) < 0.02


@each(("window", "factor"), [((64, 63), 1.5), ((64, 63), 1.13), ((63, 64), 2), ((96, 99), 0.7)])
@each("centred", [True, False])
def test_a_resampled_scan_fits_its_truth(window, factor, centred):
    """Up to linear interpolation of a pattern about 8 pixels wide, or a mean over pixels of it."""
    scan = smooth_scan(window, sigma=2.0 if factor > 1 else 1.5, centred=centred)
    made = prepare.resample(scan, factor)
    assert made.pattern_shape == (round(window[0] * factor), round(window[1] * factor))
    np.testing.assert_allclose(made.pixel_size, scan.pixel_size)
    assert misfit(made) < 0.02
    assert guess_misfit(made) < 0.02
    np.testing.assert_allclose(made.counts(0, 8).sum((1, 2)), scan.counts(0, 8).sum((1, 2)), rtol=2e-3)


@each("factor", [1.5, 0.75])
def test_a_near_field_pattern_is_resampled_with_its_object(factor):
    scan = smooth_scan((64, 72), geometry=NEAR, sigma=7.0, object_sigma=7.0)
    made = prepare.resample(scan, factor)
    assert made.pixel_size == pytest.approx(np.array(scan.pixel_size) / factor)
    assert misfit(made) < 0.02
    assert guess_misfit(made) < 0.02


def test_larger_pixels_share_out_the_old_ones():
    scan = smooth_scan((48, 45))
    made = prepare.resample(scan, 0.5)
    counts = scan.counts(0, 8)
    # The pixel of zero frequency covers one old pixel and half of each beside it; 45 pixels become 22 of 45/22.
    rows = counts[:, 24] + counts[:, 23] / 2 + counts[:, 25] / 2
    half = 45 / 22 / 2 - 0.5
    expected = rows[:, 22] + half * (rows[:, 21] + rows[:, 23])
    np.testing.assert_allclose(made.counts(0, 8)[:, 12, 11], expected, rtol=1e-12)


def test_smaller_pixels_lie_on_the_line_between_old_ones():
    scan = smooth_scan((48, 45))
    made = prepare.resample(scan, 2)
    counts = scan.counts(0, 8)
    np.testing.assert_allclose(made.counts(0, 8)[:, 48, 45], counts[:, 24, 22] / 4, rtol=1e-12)
    np.testing.assert_allclose(made.counts(0, 8)[:, 49, 45], (counts[:, 24, 22] + counts[:, 25, 22]) / 8, rtol=1e-12)


@each(("factor", "rows_lost"), [(0.5, 0), (0.6, 0), (0.7, 0), (2, 0), (1.02, 1)])
def test_even_light_stays_even_up_to_the_edges_of_the_detector(factor, rows_lost):
    """48 pixels as 49: the last one has its middle beyond the edge and is bad; half covered ones count in full."""
    scan = dataclasses.replace(smooth_scan((48, 45)), frames=ArrayFrames.of(np.ones((8, 48, 45))))
    made = prepare.resample(scan, factor)
    mask = np.ones(made.pattern_shape, bool) if made.mask is None else made.mask
    assert mask[: made.pattern_shape[0] - rows_lost].all()
    assert not mask[made.pattern_shape[0] - rows_lost :].any()
    np.testing.assert_allclose(
        made.counts(0, 8)[:, mask], 48 * 45 / made.pattern_shape[0] / made.pattern_shape[1], rtol=1e-12
    )


@each("factor", [2, 0.6])
def test_what_a_bad_pixel_adds_to_is_bad(factor):
    bad, clean = (prepare.resample(smooth_scan((48, 45), bad=bad), factor) for bad in (True, False))
    lost = ~bad.mask if clean.mask is None else clean.mask & ~bad.mask
    assert 2 <= lost.sum() <= 30
    assert np.isfinite(bad.frames.read(0, 8)).all()
    same = bad.mask if clean.mask is None else bad.mask & clean.mask
    np.testing.assert_allclose(bad.counts(0, 8)[:, same], clean.counts(0, 8)[:, same], rtol=1e-12)


REFUSED = {
    "no divisor": (lambda scan: prepare.bin(scan, 2), "48 x 45", "2 x 2"),
    "too few left": (lambda scan: prepare.bin(scan, (16, 1)), "16 x 1"),
    "a fraction": (lambda scan: prepare.bin(scan, 1.5), "factor is 1.5"),
    "not a number": (lambda scan: prepare.resample(scan, math.nan), "factor is nan"),
    "too small": (lambda scan: prepare.resample(scan, 0.05), "48 x 45", "2 x 2", "4 x 4"),
}


@each("name", REFUSED)
def test_other_factors_are_refused(name):
    change, *facts = REFUSED[name]
    with raises("argument.invalid-value", *facts):
        change(smooth_scan((48, 45), geometry=FAR))
