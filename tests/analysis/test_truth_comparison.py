import numpy as np
import pytest
from scipy.optimize import least_squares

from ptynb.analysis import compare
from tests.parametrization import each
from tests.raising import raises

AREA = (slice(12, 52), slice(14, 56))


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


@each("shift", [(0.0, 0.0), (0.37, -0.21), (-0.5, 0.45)])
@each("factor", [1.0, 0.3 * np.exp(2.5j)])
@each("cycles", [(0, 0), (1, -2)])
def test_shift_factor_and_ramp_cost_nothing(shift, factor, cycles):
    truth = band_limited((64, 70))
    object = factor * translated(truth, shift) * whole_ramp(truth.shape, cycles)
    comparison = compare(object, truth, AREA)
    assert comparison.error < 5e-5
    np.testing.assert_allclose(comparison.aligned, truth[AREA], atol=1e-3)
    np.testing.assert_array_equal(comparison.ground_truth, truth[AREA])


def test_the_object_may_begin_elsewhere():
    truth = band_limited((64, 70))
    assert compare(truth[7:, 3:], truth, AREA, (7, 3)).error < 1e-9
    padded = np.pad(truth, ((5, 5), (4, 4)), mode="wrap")
    assert compare(padded, truth, AREA, (-5, -4)).error < 1e-9


@each("noise", [0.02, 0.2, 0.6])
def test_noise_of_known_size_gives_the_error_it_should(noise):
    """The best factor on truth + noise is 1 / (1 + noise²), which leaves noise / sqrt(1 + noise²)."""
    truth = band_limited((96, 96))
    random = np.random.default_rng(1)
    added = (random.standard_normal(truth.shape) + 1j * random.standard_normal(truth.shape)) / np.sqrt(2)
    area = (slice(8, 88), slice(8, 88))
    object = truth + noise * np.sqrt((np.abs(truth[area]) ** 2).mean()) * added
    assert compare(object, truth, area).error == pytest.approx(noise / np.sqrt(1 + noise**2), rel=0.04)


def test_something_else_has_a_large_error():
    assert compare(band_limited((64, 70), seed=4), band_limited((64, 70)), AREA).error > 0.1


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
    fit = least_squares(residual, start, xtol=1e-12, ftol=1e-12)
    independent = np.sqrt((fit.fun**2).sum() / (np.abs(truth[area]) ** 2).sum())
    assert compare(object, truth, area).error == pytest.approx(independent, rel=1e-4)


@each(
    ("area", "offset"),
    [
        ((slice(12, 52), slice(14, 56)), (13, 0)),  # begins before the object
        ((slice(12, 52), slice(14, 56)), (0, -20)),  # ends behind the object
        ((slice(12, 80), slice(14, 56)), (0, 0)),  # ends behind object and truth alike
        ((slice(12, 80), slice(14, 56)), (-20, 0)),  # ends behind the truth
        ((slice(20, 20), slice(14, 56)), (0, 0)),  # holds nothing
        ((slice(30, 20), slice(14, 56)), (0, 0)),
    ],
)
def test_an_area_that_is_not_inside_both_is_refused(area, offset):
    truth = band_limited((64, 70))
    with raises("comparison.area-outside", area):
        compare(truth, truth, area, offset)
