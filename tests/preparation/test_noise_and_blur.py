import dataclasses
import math

import numpy as np
import pytest

from ptynb import preparation as prepare
from ptynb.data.patterns import ArrayFrames
from tests.parametrization import each
from tests.preparation.scans import guess_misfit, smooth_scan
from tests.raising import raises

WINDOW = (48, 45)


def constant_scan(value, count=40):
    patterns = np.full((count, *WINDOW), value, np.float32)
    return dataclasses.replace(
        smooth_scan(WINDOW, guesses=False),
        frames=ArrayFrames.of(patterns),
        positions=np.random.default_rng(0).uniform(0, 9, (count, 2)),
        ground_truth=None,
    )


def test_noise_has_poissons_mean_and_variance():
    counts = prepare.add_poisson_noise(constant_scan(3.7), seed=2).counts(0, 40)
    pixels = counts.size
    assert abs(counts.mean() - 3.7) < 4 * math.sqrt(3.7 / pixels)
    # The variance of Poisson's sample variance is (λ + 2 λ²) / N.
    assert abs(counts.var() - 3.7) < 4 * math.sqrt((3.7 + 2 * 3.7**2) / pixels)
    np.testing.assert_array_equal(counts, np.rint(counts))


def test_each_pattern_has_numbers_of_its_own_that_stay():
    scan = prepare.add_poisson_noise(constant_scan(3.7), seed=2)
    all_at_once = scan.counts(0, 40)
    np.testing.assert_array_equal(np.concatenate([scan.counts(j, j + 1) for j in range(40)]), all_at_once)
    flat = all_at_once.reshape(40, -1) - 3.7
    correlation = np.corrcoef(flat)[~np.eye(40, dtype=bool)]
    assert np.abs(correlation).max() < 6 / math.sqrt(flat.shape[1])
    other = prepare.add_poisson_noise(constant_scan(3.7), seed=3).counts(0, 40)
    assert (other != all_at_once).mean() > 0.5


def test_a_dose_scales_patterns_and_probes():
    scan = smooth_scan(WINDOW, bad=True)
    made = prepare.add_poisson_noise(scan, dose=1e6)
    assert made.counts(0, 8).sum() / 8 == pytest.approx(1e6, rel=4 / math.sqrt(8e6))
    assert guess_misfit(made) < 0.02
    assert guess_misfit(prepare.add_poisson_noise(scan)) > 0.05


def test_bad_counts_are_not_hidden_by_noise():
    scan = constant_scan(3.7)
    scan.frames.array[4, 5, 6] = -2
    with raises("scan.invalid-count", "Pattern 4", -2.0, "(5, 6)"):
        prepare.add_poisson_noise(scan).counts(0, 40)
    scan.frames.array[4, 5, 6] = math.nan
    with raises("scan.invalid-count", "Pattern 4", "nan", "(5, 6)"):
        prepare.add_poisson_noise(scan).counts(0, 40)


@each("sigma", [0.7, 1.5])
def test_a_blur_is_a_sum_over_a_gaussian(sigma):
    scan = constant_scan(0.0, 1)
    scan.frames.array[0, 20, 2] = 1000
    counts = prepare.blur(scan, sigma).counts(0, 1)[0]
    y, x = np.mgrid[: WINDOW[0], : WINDOW[1]]
    away = np.stack([np.abs(y - 20), np.minimum(np.abs(x - 2), 45 - np.abs(x - 2))])
    expected = np.exp(-(away**2).sum(0) / (2 * sigma**2))
    np.testing.assert_allclose(counts, 1000 * expected / expected.sum(), atol=0.05)
    assert counts.sum() == pytest.approx(1000, rel=1e-5)


def test_a_blur_takes_nothing_from_bad_pixels():
    scan = constant_scan(5.0, 1)
    mask = np.ones(WINDOW, bool)
    mask[10:13, 20] = False
    scan.frames.array[0, ~mask] = (math.nan, 1e30, -math.inf)
    made = prepare.blur(prepare.mask_pixels(scan, mask), 1.2)
    np.testing.assert_allclose(made.counts(0, 1)[0][mask], 5, rtol=1e-5)
    assert not made.counts(0, 1)[0][~mask].any()


REFUSED = {
    "no dose": (lambda scan: prepare.add_poisson_noise(scan, 0), "argument.invalid-value", "counts is 0"),
    "negative seed": (lambda scan: prepare.add_poisson_noise(scan, seed=-1), "argument.invalid-value", "seed is -1"),
    "no blur": (lambda scan: prepare.blur(scan, 0), "argument.invalid-value", "sigma is 0"),
}


@each("name", REFUSED)
def test_other_input_is_refused(name):
    change, *expected = REFUSED[name]
    with raises(*expected):
        change(smooth_scan(WINDOW))
