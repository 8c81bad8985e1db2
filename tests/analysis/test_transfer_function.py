import math

import numpy as np
import pytest

from ptynb.analysis import object_transfer_function, phase_retrieval_transfer_function
from tests.parametrization import each
from tests.raising import raises

SHAPE = (32, 38)
RADIUS = np.hypot(np.fft.fftfreq(32)[:, None], np.fft.fftfreq(38)[None, :])


def some_waves(patterns=5, seed=0):
    random = np.random.default_rng(seed)
    shape = (patterns, *SHAPE)
    return 5 * np.exp(-4 * RADIUS) * (random.standard_normal(shape) + 1j * random.standard_normal(shape))


def with_random_phases(waves, count, beyond, seed=1):
    phases = np.random.default_rng(seed).uniform(0, 2 * np.pi, (count, *waves.shape))
    return waves * np.exp(1j * np.where(beyond < RADIUS, phases, 0))


@each("centred", [False, True])
def test_perfect_waves_give_one_whatever_can_not_be_known(centred):
    """A phase for each pattern, and a shift of object and probe by fractions of a pixel, for each reconstruction."""
    waves = some_waves()
    random = np.random.default_rng(2)
    several = []
    for shift in ((0, 0), (2.4, -3.7), (-0.3, 5.5)):
        ramp = np.exp(-2j * np.pi * (shift[0] * np.fft.fftfreq(32)[:, None] + shift[1] * np.fft.fftfreq(38)[None, :]))
        several.append(waves * ramp * np.exp(1j * random.uniform(0, 2 * np.pi, (5, 1, 1))))
    measured, several = np.abs(waves) ** 2, np.array(several)
    if centred:
        measured, several = (np.fft.fftshift(values, axes=(-2, -1)) for values in (measured, several))
    result = phase_retrieval_transfer_function(measured, several, centred=centred)
    np.testing.assert_allclose(result.transfer, 1, atol=1e-3)
    assert result.crossing() is None


def test_random_phases_are_not_retrieved():
    """The mean of n unit phasors has the expected size sqrt(π / 4n), as for a random walk of many steps."""
    phases = np.random.default_rng(4).uniform(0, 2 * np.pi, (25, 3, 80, 90))
    result = phase_retrieval_transfer_function(np.full((3, 80, 90), 9.0), 3 * np.exp(1j * phases))
    assert np.average(result.transfer, weights=result.counts) == pytest.approx(math.sqrt(math.pi / 100), rel=0.02)
    assert result.transfer.max() < 0.3
    assert result.crossing() == result.frequencies[0]


def test_the_crossing_is_where_the_phases_are_lost():
    waves = some_waves()
    several = with_random_phases(waves, 10, 0.3)
    result = phase_retrieval_transfer_function(np.abs(waves) ** 2, several, pixel_size=5e-9, centred=False)
    step = 1 / (32 * 5e-9)
    assert result.frequencies[0] == pytest.approx(step)
    assert result.crossing() == pytest.approx(0.3 / 5e-9, abs=step)
    np.testing.assert_allclose(result.transfer[result.frequencies < 0.28 / 5e-9], 1, atol=0.01)
    assert result.transfer[result.frequencies > 0.33 / 5e-9].max() < 0.4


def test_missing_amplitude_is_missing_transfer_and_the_mask_hides_pixels():
    waves = some_waves()
    measured = np.abs(waves) ** 2
    result = phase_retrieval_transfer_function(measured, 0.5 * waves[None], centred=False)
    np.testing.assert_allclose(result.transfer, 0.5)
    mask = np.random.default_rng(5).random(SHAPE) > 0.3
    mask[RADIUS > 0.41] = False
    spoiled = np.where(mask, waves, 1e6)
    hidden = phase_retrieval_transfer_function(measured, np.stack([waves, spoiled]), mask=mask, centred=False)
    seen = hidden.counts > 0
    np.testing.assert_allclose(hidden.transfer[seen], 1, atol=1e-9)
    assert np.isnan(hidden.transfer[~seen]).all()
    assert 0 < (~seen).sum() < len(seen)
    assert hidden.counts[0] == mask[[0, 0, 1, 1, 1, -1, -1, -1], [1, -1, 0, 1, -1, 0, 1, -1]].sum()


def test_objects_that_agree_up_to_a_frequency():
    """Beyond it, n independent complex Gaussian values give sqrt(π)/2 Γ(n) / Γ(n + 1/2)."""
    side, limit, count = 128, 0.2, 6
    k = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.fftfreq(side)[None, :])
    random = np.random.default_rng(0)

    def drawn(keep):
        field = random.standard_normal((side, side)) + 1j * random.standard_normal((side, side))
        return np.fft.ifft2(np.fft.fft2(field) * keep)

    common = 3 + 0.5 * drawn(k < limit)
    shifts = [(0, 0), (1.5, -2.2), (0.3, 0.1), (-2, 1), (3.3, 0), (0, -1.4)]
    objects = []
    for number, shift in enumerate(shifts):
        # What differs is put on where the common part lies, so that moving back does not mix rings.
        field = common + 0.3 * drawn(k >= limit)
        move = np.exp(-2j * np.pi * (shift[0] * np.fft.fftfreq(side)[:, None] + shift[1] * np.fft.fftfreq(side)))
        objects.append(np.fft.ifft2(np.fft.fft2(field) * move) * np.exp(1j * number) * (1 + 0.0 * number))
    area = (slice(16, 112), slice(16, 112))
    result = object_transfer_function(objects, 2e-9, area=area)
    low, high = result.frequencies < (limit - 0.02) / 2e-9, result.frequencies > (limit + 0.03) / 2e-9
    np.testing.assert_allclose(result.transfer[low], 1, atol=0.02)
    expected = math.sqrt(math.pi) / 2 * math.gamma(count) / math.gamma(count + 0.5)
    assert result.transfer[high].mean() == pytest.approx(expected, rel=0.03)
    assert result.crossing(0.7) == pytest.approx(limit / 2e-9, abs=2 / (96 * 2e-9))


GOOD = np.ones((2, 8, 8), complex)
REFUSED = {
    "intensities for waves": (
        (np.ones((8, 8)), np.ones((2, 8, 8))),
        {},
        "argument.invalid-type",
        "float64",
    ),
    "no axis of reconstructions": ((np.ones((2, 8, 8)), GOOD), {}, "array.shape-mismatch", (2, 8, 8)),
    "other patterns": ((np.ones((8, 9)), GOOD), {}, "array.shape-mismatch", (8, 9)),
    "another mask": (
        (np.ones((8, 8)), GOOD),
        {"mask": np.ones((8, 9))},
        "array.shape-mismatch",
        "mask",
        (8, 9),
        (8, 8),
    ),
}


@each("case", REFUSED)
def test_what_does_not_fit_is_refused(case):
    arguments, options, *expected = REFUSED[case]
    with raises(*expected):
        phase_retrieval_transfer_function(*arguments, **options)


def test_one_object_is_not_enough():
    with raises("argument.invalid-value", "1 object"):
        object_transfer_function([np.ones((20, 20), complex)])
