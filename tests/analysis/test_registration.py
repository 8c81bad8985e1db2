import numpy as np
import pytest
import scipy.optimize

from ptynb.analysis import register
from ptynb.analysis.registration import _Fit
from tests.parametrization import each
from tests.raising import raises


def blobs(shape, shift=(0.0, 0.0), seed=0, extent=160.0):
    """Smooth spots of random places and complex heights on a transparent ground, moved by `shift`."""
    random = np.random.default_rng(seed)
    places = random.uniform(-30, extent, (400, 2))
    heights = 0.2 * random.standard_normal(400) + 0.2j * random.standard_normal(400)
    y, x = np.arange(shape[0]) - shift[0], np.arange(shape[1]) - shift[1]
    down = np.exp(-((y - places[:, :1]) ** 2) / (2 * 2.0**2))
    across = np.exp(-((x - places[:, 1:]) ** 2) / (2 * 2.0**2))
    return 1 + np.einsum("i,iy,ix->yx", heights, down, across)


def ramp(shape, steps):
    return np.exp(1j * (steps[0] * np.arange(shape[0])[:, None] + steps[1] * np.arange(shape[1])[None, :]))


@each("shape", [(100, 120), (101, 97)])
@each("shift", [(3.3, -2.6), (0.4, 0.0), (-14.25, 9.5)])
@each("steps", [(0.0, 0.0), (0.21, -0.35), (-1.3, 2.0)])
def test_shift_ramp_and_factor_are_recovered(shape, shift, steps):
    reference = blobs(shape)
    area = (slice(24, 78), slice(22, 76))
    factor = 0.3 * np.exp(2.5j)
    object = factor * blobs(shape, shift) * ramp(shape, steps)
    found = register(object, reference, area)
    assert found.shift == pytest.approx(tuple(-np.array(shift)), abs=2e-3)
    assert found.ramp == pytest.approx(tuple(-np.array(steps)), abs=2e-4)
    # The factor holds in the middle of the area, where the object had this phase.
    middle = np.array([50.5, 48.5]) + shift
    assert found.factor == pytest.approx(1 / (factor * np.exp(1j * middle @ steps)), rel=2e-2)
    assert found.error < 5e-3
    np.testing.assert_allclose(found.aligned, reference[area], atol=0.03)
    np.testing.assert_array_equal(found.reference, reference[area])


def test_a_pure_phase_object_is_found():
    shape, shift = (96, 96), (5.3, -7.7)
    reference = np.exp(2j * (blobs(shape).real - 1))
    object = np.exp(2j * (blobs(shape, shift).real - 1)) * ramp(shape, (0.4, 0.1))
    found = register(object, reference, (slice(20, 76), slice(20, 76)))
    assert found.shift == pytest.approx((-5.3, 7.7), abs=0.01)
    assert found.ramp == pytest.approx((-0.4, -0.1), abs=1e-3)


@each("noise", [0.03, 0.1])
def test_noise_moves_the_shift_as_little_as_it_can(noise):
    """Cramér and Rao: the variance is at least noise² over twice the summed squared slope along the axis."""
    shape, shift = (100, 100), (3.3, -1.6)
    reference = blobs(shape)
    area = (slice(15, 85), slice(15, 85))
    slope = np.gradient(reference, axis=0)[area]
    bound = noise / np.sqrt(2 * (np.abs(slope) ** 2).sum())
    errors = []
    for seed in range(8):
        random = np.random.default_rng(seed)
        added = noise * (random.standard_normal(shape) + 1j * random.standard_normal(shape)) / np.sqrt(2)
        object = (blobs(shape, shift) + added) * ramp(shape, (0.2, 0.1))
        errors.append(register(object, reference, area).shift[0] + shift[0])
    assert np.sqrt(np.mean(np.square(errors))) < 2 * bound


def noisy_pair(noise, shape=(100, 104), shift=(3.3, -1.6)):
    random = np.random.default_rng(5)
    one, other = (
        noise * (random.standard_normal(shape) + 1j * random.standard_normal(shape)) / np.sqrt(2) for _ in range(2)
    )
    return (blobs(shape, shift) + one) * ramp(shape, (0.2, 0.1)), blobs(shape) + other


@pytest.mark.parametrize("noise", [0.1, 0.3, 0.5])
def test_noisy_objects_are_at_the_minimum_after_few_steps(noise, monkeypatch):
    """Nelder and Mead's method, which knows no slopes, finds nothing better."""
    steps = []
    gradient = _Fit._gradient
    monkeypatch.setattr(_Fit, "_gradient", lambda fit, *given: steps.append(given) or gradient(fit, *given))
    area = (slice(15, 85), slice(15, 85))
    object, reference = noisy_pair(noise)
    found = register(object, reference, area)
    assert len(steps) <= 15
    fit = _Fit.of(object * ramp(object.shape, found.ramp), reference, area, (0, 0))
    scale = np.array([1, 1, 1 / 70, 1 / 70])
    simplex = np.concatenate([np.zeros((1, 4)), 0.05 * np.eye(4)])
    start = np.array([*found.shift, 0, 0])
    best = scipy.optimize.minimize(
        lambda by: fit.error(start + scale * by),
        np.zeros(4),
        method="Nelder-Mead",
        options={"initial_simplex": simplex},
    )
    assert found.error <= best.fun + 1e-6
    assert np.abs(best.x).max() < 1e-2  # pixels, of some tenths that the noise moves it by


def test_the_curvature_of_noisy_objects_is_a_finite_difference():
    object, reference = noisy_pair(0.4, shift=(0.3, -0.4))
    area = (slice(15, 85), slice(15, 85))
    found = register(object, reference, area)
    fit = _Fit.of(object * ramp(object.shape, found.ramp), reference, area, (0, 0))
    place, scale = np.array([*found.shift, 0.0, 0.0]), np.array([1e-3, 1e-3, 1e-4, 1e-4])
    power = np.linalg.norm(fit.reference) ** 2 / 2

    def value(*steps):
        return power * fit.error(place + scale * sum((np.asarray(step) for step in steps), np.zeros(4))) ** 2

    axes = np.eye(4)
    second = np.array(
        [[(value(a, b) - value(a, -b) - value(-a, b) + value(-a, -b)) / 4 for b in axes] for a in axes]
    ) / np.outer(scale, scale)
    moved, slopes = fit._moved(place)
    factor = fit._factor(moved)
    curvature = fit._curvature(place, moved, slopes, factor)
    gauss_newton = abs(factor) ** 2 * np.linalg.norm(slopes[0]) ** 2
    size = np.sqrt(np.outer(np.diag(second), np.diag(second)))
    # What crosses the border of the area is left out; what an object has with itself is far too much.
    assert np.abs((curvature - second) / size).max() < 0.3
    assert gauss_newton > 10 * second[0, 0]


def test_real_images_have_no_ramp_and_stay_real():
    shape, shift = (97, 102), (2.7, -4.4)
    found = register(-3 * blobs(shape, shift).imag, blobs(shape).imag, (slice(20, 76), slice(20, 76)))
    assert found.shift == pytest.approx((-2.7, 4.4), abs=0.01)
    assert found.ramp == (0.0, 0.0)
    assert found.factor == pytest.approx(-1 / 3, rel=0.01)


def test_the_offset_counts_and_the_area_is_what_both_cover():
    reference = blobs((100, 120))
    found = register(reference[9:90, 12:105], reference, offset=(9, 12))
    assert found.error < 1e-9
    assert found.shift == pytest.approx((0, 0), abs=1e-6)
    # an eighth of 81 and of 93 is 10 and 11
    np.testing.assert_array_equal(found.reference, reference[19:80, 23:94])
    moved = register(reference[9:90, 12:105], reference, offset=(6, 14))
    assert moved.shift == pytest.approx((3, -2), abs=0.01)


def test_of_a_lattice_the_nearest_match_is_taken():
    y, x = np.mgrid[:96, :96]

    def lattice(shift):
        return 1 + 0.4 * np.cos(2 * np.pi * (y - shift) / 12) + 0.3j * np.cos(2 * np.pi * (x + shift) / 8)

    found = register(lattice(1.5), lattice(0.0), (slice(20, 76), slice(20, 76)))
    assert found.shift == pytest.approx((-1.5, 1.5), abs=0.02)


def test_it_is_never_worse_than_not_moving():
    random = np.random.default_rng(3)
    one, other = (random.standard_normal((40, 40)) + 1j * random.standard_normal((40, 40)) for _ in range(2))
    area = (slice(12, 28), slice(12, 28))
    overlap = abs(np.vdot(one[area], other[area])) ** 2 / (np.linalg.norm(one[area]) * np.linalg.norm(other[area])) ** 2
    assert register(one, other, area).error < np.sqrt(1 - overlap)


@each("real", [False, True])
@each("shape", [(20, 23), (21, 22)])
def test_the_slopes_are_finite_differences(shape, real):
    random = np.random.default_rng(1)
    object = random.standard_normal(shape) + (0 if real else 1j) * random.standard_normal(shape)
    object = object.real if real else object
    area = (slice(4, 15), slice(3, 17))
    fit = _Fit.of(object, np.ones(shape), area, (0, 0))
    place = np.array([0.3, -0.7, 0.0, 0.0]) if real else np.array([0.3, -0.7, 0.05, -0.02])
    slopes = fit._moved(place)[1]
    assert len(slopes) == (2 if real else 4)
    for direction, slope in enumerate(slopes):
        step = 1e-6 * np.eye(4)[direction]
        difference = (fit._moved(place + step)[0] - fit._moved(place - step)[0]) / 2e-6
        np.testing.assert_allclose(slope, difference, atol=1e-7 * np.abs(slope).max())


FULL = blobs((64, 64))
REFUSED = {
    "an area that begins before": (
        (FULL, FULL, (slice(-4, 20), slice(0, 20))),
        "comparison.area-outside",
    ),
    "an area that ends behind": ((FULL, FULL, (slice(0, 20), slice(50, 65))), "comparison.area-outside"),
    "no shared area": ((FULL, FULL, None, (70, 0)), "comparison.area-outside"),
    "an object of zeros": ((0 * FULL, FULL), "comparison.nothing-to-fit", "object"),
    "a reference of zeros": ((FULL, 0 * FULL), "comparison.nothing-to-fit", "reference"),
    "not finite": ((np.full_like(FULL, np.nan), FULL), "comparison.nothing-to-fit"),
    "a shift out of the other side": (
        (blobs((64, 64), (0, -12)), FULL, (slice(8, 56), slice(4, 60))),
        "comparison.registration-failed",
        "pixels",
    ),
    "a shift out of the object": (
        (blobs((64, 64), (12, 0)), FULL, (slice(4, 60), slice(8, 56))),
        "comparison.registration-failed",
        "choose a smaller area",
    ),
}


@each("case", REFUSED)
def test_what_cannot_be_registered_is_refused(case):
    arguments, *expected = REFUSED[case]
    with raises(*expected):
        register(*arguments)
