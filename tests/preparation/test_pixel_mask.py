import dataclasses
import math

import numpy as np
from scipy import ndimage

from ptynb import preparation as prepare
from ptynb.data.patterns import ArrayFrames
from ptynb.simulation.diffraction import simulate_diffraction
from ptynb.simulation.simulated_scan import simulate
from tests.parametrization import each
from tests.preparation.scans import smooth_scan
from tests.raising import raises

FAULTS = {
    "hot": [(10, 40), (30, 31), (0, 20)],
    "hot pair": [(50, 12), (50, 13)],
    "flickering": [(40, 5)],
    "dead": [(33, 30), (27, 36)],
    "dead column": [(y, 32) for y in range(28, 36)],
    "stuck": [(32, 25)],
    "not finite": [(5, 5)],
}


def broken(scan):
    patterns = scan.frames.read(0, len(scan)).astype(np.float64)
    random = np.random.default_rng(8)
    for name, value in (("hot", 9e4), ("hot pair", 9e4), ("dead", 0), ("dead column", 0), ("stuck", 777.77)):
        for y, x in FAULTS[name]:
            patterns[:, y, x] = value
    y, x = FAULTS["flickering"][0]
    patterns[:, y, x] = random.poisson(3e4, len(scan)) * (random.uniform(size=len(scan)) < 0.4)
    patterns[7, *FAULTS["not finite"][0]] = math.nan
    return dataclasses.replace(scan, frames=ArrayFrames.of(patterns))


@each("centred", [True, False])
def test_faults_are_found_and_nothing_else(centred):
    scan = simulate(patterns=100, photons=1e6, seed=1)
    assert prepare.find_bad_pixels(scan).all()
    faulty = broken(scan)
    expected = np.ones(scan.pattern_shape, bool)
    for places in FAULTS.values():
        for place in places:
            expected[place] = False
    if not centred:
        shifted = np.fft.ifftshift(faulty.frames.array, axes=(-2, -1))
        faulty = dataclasses.replace(faulty, frames=ArrayFrames.of(shifted), centred=False)
        expected = np.fft.ifftshift(expected)
    np.testing.assert_array_equal(prepare.find_bad_pixels(faulty), expected)


@each("photons", [30, 1e3, 1e5])
def test_noise_is_no_fault(photons):
    for seed in range(3):
        assert prepare.find_bad_pixels(simulate(patterns=30, photons=photons, seed=seed)).all()


def fringed():
    """Patterns of a rough probe that fills its window: bright and dark fringes, one pixel wide, in all of them."""
    random = np.random.default_rng(4)
    y, x = np.ogrid[-1:1:64j, -1:1:64j]
    probe = (np.hypot(y, x) < 0.95) * np.exp(2j * ndimage.gaussian_filter(random.normal(0, 2, (64, 64)), 1))
    phase = ndimage.gaussian_filter(random.normal(0, 0.4, (100, 100)), 1)
    probe *= math.sqrt(1e7 / (np.abs(probe) ** 2).sum())
    return simulate_diffraction(np.exp(1j * phase), probe[None], random.uniform(0, 36, (100, 2)))


@each("centred", [True, False])
def test_fringes_are_no_faults_and_faults_among_them_are_found(centred):
    scan = fringed()
    patterns = np.array(scan.frames.array)
    patterns[:, 20, 21] = 30 * patterns.mean()
    patterns[:, 40, 30] = 0
    expected = np.ones(scan.pattern_shape, bool)
    expected[20, 21] = expected[40, 30] = False
    for frames, good in ((scan.frames.array, np.ones_like(expected)), (patterns, expected)):
        stored, order = (frames, good) if centred else (np.fft.ifftshift(one, axes=(-2, -1)) for one in (frames, good))
        made = dataclasses.replace(scan, frames=ArrayFrames.of(stored), centred=centred)
        np.testing.assert_array_equal(prepare.find_bad_pixels(made), order)


def test_masked_pixels_stay_bad_and_judge_nobody():
    scan = simulate(patterns=50)
    mask = np.ones(scan.pattern_shape, bool)
    mask[31:34, 31:34] = False
    mask[32, 32] = True
    patterns = scan.frames.array.copy()
    patterns[:, ~mask] = 1e9
    scan = dataclasses.replace(scan, frames=ArrayFrames.of(patterns), mask=mask)
    np.testing.assert_array_equal(prepare.find_bad_pixels(scan), mask)


def test_few_patterns_make_no_pixel_stuck():
    scan = simulate(patterns=100)
    patterns = scan.frames.array[:4].copy()
    patterns[:, 32, 25] = np.rint(patterns[:, 32, 25].mean())
    few = dataclasses.replace(scan, frames=ArrayFrames.of(patterns), positions=scan.positions[:4])
    assert prepare.find_bad_pixels(few).all()


def test_masks_add_up():
    scan = smooth_scan((48, 45), bad=True)
    more = np.ones((48, 45), np.uint8)
    more[7, 7] = 0
    made = prepare.mask_pixels(scan, more)
    assert (~made.mask).sum() == 4
    assert not made.mask[7, 7]
    np.testing.assert_array_equal(prepare.mask_pixels(smooth_scan((48, 45)), more).mask, more == 1)


REFUSED = {
    "another shape": (lambda scan: prepare.mask_pixels(scan, np.ones((45, 48))), "array.shape-mismatch", (45, 48)),
    "low factor": (lambda scan: prepare.find_bad_pixels(scan, factor=0.5), "argument.invalid-value", "factor is 0.5"),
}


@each("name", REFUSED)
def test_other_input_is_refused(name):
    change, *expected = REFUSED[name]
    with raises(*expected):
        change(smooth_scan((48, 45)))
