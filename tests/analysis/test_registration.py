import numpy as np
import pytest
import scipy.optimize

from ptynb.analysis import compare, register, registration
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


def test_of_large_arrays_what_is_around_the_area_is_enough(monkeypatch):
    reference, moved = (blobs((700, 720), shift, extent=730.0) for shift in ((0.0, 0.0), (1.3, -2.6)))
    object = 0.3 * np.exp(2.5j) * (moved * ramp(moved.shape, (0.03, -0.02)))[9:, 12:690]
    area, offset = (slice(320, 370), slice(170, 230)), (9, 12)
    whole = register(object, reference, area, offset)
    shapes, of = [], _Fit.of
    monkeypatch.setattr(_Fit, "of", lambda one, *rest: shapes.append(one.shape) or of(one, *rest))
    monkeypatch.setattr(registration, "LARGE", 1000)
    found = register(object, reference, area, offset)
    # 256 pixels on each side; on the left there are 170 - 12
    assert shapes == [(50 + 2 * 256, 60 + 256 + 170 - 12)]
    np.testing.assert_array_equal(found.reference, reference[area])
    assert found.shift == pytest.approx(whole.shift, abs=1e-4)
    assert found.ramp == pytest.approx(whole.ramp, abs=1e-5)
    np.testing.assert_allclose(found.aligned, whole.aligned, atol=1e-3)
    with raises("comparison.area-outside"):
        register(object, reference, (slice(680, 710), slice(170, 230)), offset)


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


FULL = blobs((64, 64))
REFUSED = {
    "an area that begins before": (
        (FULL, FULL, (slice(-4, 20), slice(0, 20))),
        "comparison.area-outside",
    ),
    "an area that ends behind": ((FULL, FULL, (slice(0, 20), slice(50, 65))), "comparison.area-outside"),
    "no shared area": ((FULL, FULL, None, (70, 0)), "comparison.area-outside"),
    "an area that ends behind the reference": (
        (FULL, FULL, (slice(12, 80), slice(14, 56)), (-20, 0)),
        "comparison.area-outside",
    ),
    "an empty area": ((FULL, FULL, (slice(30, 20), slice(14, 56))), "comparison.area-outside"),
    "an object of zeros": ((0 * FULL, FULL), "comparison.nothing-to-fit", "object"),
    "a reference of zeros": ((FULL, 0 * FULL), "comparison.nothing-to-fit", "reference"),
    "not finite": ((np.full_like(FULL, np.nan), FULL), "comparison.nothing-to-fit"),
    "a shift out of the other side": (
        (blobs((64, 64), (0, -12)), FULL, (slice(8, 56), slice(4, 60))),
        "comparison.registration-failed",
        "pixels",
    ),
}


@each("case", REFUSED)
def test_what_cannot_be_registered_is_refused(case):
    arguments, *expected = REFUSED[case]
    with raises(*expected):
        register(*arguments)


# Comparison with the ground truth


def band_limited(shape, limit=0.2, seed=0):
    """A random complex field (y, x) without frequencies above `limit` [1/pixel], near 1 as objects are."""
    random = np.random.default_rng(seed)
    spectrum = np.fft.fft2(random.standard_normal(shape) + 1j * random.standard_normal(shape))
    squared = np.fft.fftfreq(shape[0])[:, None] ** 2 + np.fft.fftfreq(shape[1])[None, :] ** 2
    field = np.fft.ifft2(spectrum * (squared < limit**2))
    return 1 + 0.5 * field / np.abs(field).max()


def translated(field, shift):
    """The field moved by `shift` (y, x) pixels, periodically, each axis by its matrix of a discrete Fourier sum."""
    for axis, distance in enumerate(shift):
        side = field.shape[axis]
        frequency = np.fft.fftfreq(side)
        place = np.arange(side)
        matrix = np.exp(2j * np.pi * (place[:, None, None] - place[None, :, None] - distance) * frequency).mean(2)
        field = np.moveaxis(np.tensordot(matrix, field, (1, axis)), 0, axis)
    return field


def whole_ramp(shape, cycles):
    y, x = (
        np.arange(side)[:, None] / side if axis == 0 else np.arange(side)[None, :] / side
        for axis, side in enumerate(shape)
    )
    return np.exp(2j * np.pi * (cycles[0] * y + cycles[1] * x))


@each("noise", [0.02, 0.2, 0.6])
def test_noise_of_known_size_gives_the_error_it_should(noise):
    """The best factor on truth + noise is 1 / (1 + noise²), which leaves noise / sqrt(1 + noise²)."""
    truth = band_limited((96, 96))
    random = np.random.default_rng(1)
    added = (random.standard_normal(truth.shape) + 1j * random.standard_normal(truth.shape)) / np.sqrt(2)
    area = (slice(8, 88), slice(8, 88))
    object = truth + noise * np.sqrt((np.abs(truth[area]) ** 2).mean()) * added
    assert compare(object, truth, area).error == pytest.approx(noise / np.sqrt(1 + noise**2), rel=0.04)


def test_the_error_agrees_with_an_independent_fit():
    """All six unknowns at once by least squares, with shifts as Fourier sums: another optimiser, other code."""
    truth = band_limited((28, 30))
    random = np.random.default_rng(5)
    object = 0.7j * translated(truth, (0.3, -0.2)) * whole_ramp(truth.shape, (1, 0))
    object = object + 0.05 * (random.standard_normal(truth.shape) + 1j * random.standard_normal(truth.shape))
    area = (slice(6, 22), slice(5, 25))
    y, x = np.mgrid[:16, :20] / 20.0

    def residual(p):
        moved = translated(object, p[:2])[area] * np.exp(1j * (p[2] * y + p[3] * x)) * (p[4] + 1j * p[5])
        difference = (moved - truth[area]).ravel()
        return np.concatenate([difference.real, difference.imag])

    start = [-0.3, 0.2, -2 * np.pi * 20 / 28, 0.0, 0.0, -1 / 0.7]
    fit = scipy.optimize.least_squares(residual, start, xtol=1e-12, ftol=1e-12)
    independent = np.sqrt((fit.fun**2).sum() / (np.abs(truth[area]) ** 2).sum())
    assert compare(object, truth, area).error == pytest.approx(independent, rel=1e-4)
