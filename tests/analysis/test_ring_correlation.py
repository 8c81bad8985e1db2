import numpy as np
import pytest

from ptynb.analysis import RingCorrelation, fourier_ring_correlation, spectral_snr
from ptynb.analysis.ring_correlation import Rings, independent_counts, information_threshold, soft_window
from tests.parametrization import each
from tests.raising import raises


def noise(shape, seed, real=False):
    random = np.random.default_rng(seed)
    return random.standard_normal(shape) + (0 if real else 1j * random.standard_normal(shape))


def frequencies(shape, pixel=(1.0, 1.0)):
    return np.hypot(*np.meshgrid(*(np.fft.fftfreq(n, p) for n, p in zip(shape, pixel, strict=True)), indexing="ij"))


def filtered(field, gain):
    result = np.fft.ifft2(np.fft.fft2(field) * gain)
    return result if np.iscomplexobj(field) else result.real


@each("real", [False, True])
@each("align", [False, True])
def test_equal_images_correlate_fully_whatever_their_factor(real, align):
    image = 2 + filtered(noise((60, 75), 0, real), np.exp(-20 * frequencies((60, 75)) ** 2))
    result = fourier_ring_correlation(-1.7 * image if align else 1.7 * image, image, align=align)
    np.testing.assert_allclose(result.correlation, 1, atol=1e-6)
    assert result.crossing("one-seventh") is None
    assert result.resolution == pytest.approx(60 / 30)


@each("real", [False, True])
def test_independent_noise_scatters_around_zero_as_its_independent_coefficients_say(real):
    results = [
        fourier_ring_correlation(noise((64, 80), 2 * seed, real), noise((64, 80), 2 * seed + 1, real), align=False)
        for seed in range(60)
    ]
    values = np.array([result.correlation for result in results])[:, 2:]
    sigma = 1 / np.sqrt(2 * results[0].independent[2:])
    # 60 draws of 30 rings, neighbouring rings correlated by the window: about 800 independent ones
    assert abs((values / sigma).mean()) < 4 / np.sqrt(800)
    assert (values / sigma).std() == pytest.approx(1, rel=0.06)


def test_independent_noise_stays_near_zero_after_alignment():
    # All whole shifts that the search may come up with stay inside.
    area = (slice(56, 104), slice(56, 104))
    result = fourier_ring_correlation(noise((160, 160), 1), noise((160, 160), 2), area=area)
    # The best of 96² shifts and 48² ramps: with n independent coefficients chance gives sqrt(ln(96² 48²) / n).
    chance = np.sqrt(np.log(96**2 * 48**2) / result.independent.sum())
    assert np.average(result.correlation, weights=result.counts) < chance < 0.2
    assert result.crossing("half-bit") < 0.1


def test_real_images_have_half_as_many_independent_coefficients():
    one, other = noise((40, 44), 1, real=True), noise((40, 44), 2, real=True)
    area = (slice(4, 36), slice(4, 40))
    complex_ones = fourier_ring_correlation(1j * one, 1j * other, area=area, align=False).independent
    for align in (False, True):
        real_ones = fourier_ring_correlation(one, one + 0.1 * other, area=area, align=align)
        np.testing.assert_allclose(real_ones.independent, complex_ones / 2)


@each("real", [False, True])
def test_two_noisy_images_correlate_as_their_signal_to_noise_ratio(real):
    """FRC = SNR / (1 + SNR) where both have signal S and independent noise of equal strength; 2 SNR is the SSNR."""
    shape = (128, 144)
    ratio = 6 * np.exp(-frequencies(shape) / 0.15)
    together = []
    for seed in range(12):
        signal = filtered(noise(shape, 3 * seed, real), np.sqrt(ratio))
        one, other = (signal + noise(shape, 3 * seed + part, real) for part in (1, 2))
        result = fourier_ring_correlation(one, other, align=False)
        together.append(result.correlation)
    measured = np.mean(together, axis=0)[2:]
    expected = 6 * np.exp(-result.frequencies[2:] / 0.15)
    sigma = (1 - (expected / (1 + expected)) ** 2) / np.sqrt(2 * result.independent[2:] * 12)
    deviation = (measured - expected / (1 + expected)) / sigma
    assert np.abs(deviation).max() < 4.5
    assert deviation.std() < 1.3
    np.testing.assert_allclose(spectral_snr(measured), 2 * expected, rtol=0.4)
    assert np.mean(spectral_snr(measured) / (2 * expected)) == pytest.approx(1, abs=0.04)


@each(
    ("shape", "pixel", "limit"),
    [
        ((128, 128), None, 0.31),
        ((128, 128), 10e-9, 2.4e7),
        ((96, 200), (20e-9, 12e-9), 1.9e7),  # as fine as 0.38 / pixel in y, 0.23 / pixel in x
        ((131, 77), (9e-9, 16e-9), 2.2e7),
    ],
)
def test_a_band_limited_object_is_resolved_to_its_limit(shape, pixel, limit):
    sizes = (1.0, 1.0) if pixel is None else np.broadcast_to(pixel, 2)
    signal = filtered(noise(shape, 0), frequencies(shape, sizes) < limit)
    halves = [1 + signal + 0.3 * noise(shape, seed) for seed in (1, 2)]
    result = fourier_ring_correlation(*halves, pixel, align=False)
    step = result.frequencies[1] - result.frequencies[0]
    for threshold in ("half-bit", "one-bit", "one-seventh"):
        # The window spreads the limit by more than a ring.
        assert result.crossing(threshold) == pytest.approx(limit, abs=2 * step)
    assert 1 / result.resolution == pytest.approx(limit, abs=2 * step)
    inside = result.frequencies < limit - 2 * step
    assert np.average(result.correlation[inside], weights=result.counts[inside]) == pytest.approx(1 / 1.09, abs=0.01)
    assert np.abs(result.correlation[result.frequencies > limit + 3 * step]).max() < 0.2
    assert result.frequencies[-1] <= min(0.5 / size for size in sizes) * (1 + 1e-9)
    assert (result.counts > 0).all()


@each("seed", [0, 1])
def test_alignment_gives_back_what_shift_ramp_and_factor_take(seed):
    shape, limit = (150, 160), 0.2
    k = frequencies(shape)
    signal = 1 + 0.3 * filtered(noise(shape, seed), (k < limit) / limit)
    shift = np.exp(-2j * np.pi * (3.3 * np.fft.fftfreq(150)[:, None] - 2.6 * np.fft.fftfreq(160)[None, :]))
    ramp = np.exp(1j * (0.2 * np.arange(150)[:, None] + 0.31 * np.arange(160)[None, :]))
    one = 2j * filtered(signal, shift) * ramp + 0.1 * noise(shape, 11)
    other = signal + 0.05 * noise(shape, 12)
    area = (slice(20, 130), slice(20, 140))
    aligned = fourier_ring_correlation(one, other, area=area)
    already = fourier_ring_correlation(signal + 0.05 * noise(shape, 13), other, area=area, align=False)
    inside = aligned.frequencies < limit - 0.02
    np.testing.assert_allclose(aligned.correlation[inside], already.correlation[inside], atol=0.03)
    assert 1 / aligned.resolution == pytest.approx(limit, abs=2.5 / 110)
    astray = fourier_ring_correlation(one, other, area=area, align=False)
    assert np.abs(astray.correlation[inside]).mean() < 0.2


def test_a_common_mean_makes_nothing_correlate():
    one, other = noise((64, 64), 1), noise((64, 64), 2)
    apart = fourier_ring_correlation(one, other, align=False)
    lifted = fourier_ring_correlation(one + 1000, other + 1000, align=False)
    np.testing.assert_allclose(lifted.correlation, apart.correlation, atol=1e-9)


def test_thresholds_are_those_of_the_paper():
    n = np.array([4.0, 25.0, 400.0, 1e12])
    half = (0.2071 + 1.9102 / np.sqrt(n)) / (1.2071 + 0.9102 / np.sqrt(n))
    one = (0.5 + 2.4142 / np.sqrt(n)) / (1.5 + 1.4142 / np.sqrt(n))
    np.testing.assert_allclose(information_threshold(0.5, n), half, rtol=2e-4)
    np.testing.assert_allclose(information_threshold(1.0, n), one, rtol=2e-4)
    assert information_threshold(0.5, n)[-1] == pytest.approx(0.17157, abs=1e-5)
    assert information_threshold(1.0, n)[-1] == pytest.approx(1 / 3, abs=1e-5)
    assert information_threshold(0.5, np.array([0.2])) == 1


def test_the_crossing_lies_between_the_rings():
    rings = np.array([0.1, 0.2, 0.3, 0.4])
    many = np.full(4, 1e18)
    result = RingCorrelation(rings, np.array([1.0, 0.5 + 1 / 3, 1 / 3 - 0.5, 1.0]), np.full(4, 9), many)
    assert result.crossing("one-bit") == pytest.approx(0.25)
    assert 1 / result.resolution == pytest.approx(0.3 - 0.1 * (0.171573 + 1 / 6))
    assert RingCorrelation(rings, np.zeros(4), np.full(4, 9), many).crossing("one-bit") == 0.1
    few = RingCorrelation(rings, np.array([0.0, 1, 1, 0.5]), np.full(4, 9), np.array([3.0, 6, 9, 1e18]))
    assert few.crossing() is None
    assert few.resolution == 2.5
    fewest = RingCorrelation(rings, np.array([1, 1, 0.5, 0.0]), np.full(4, 9), np.array([1.0, 4, 4, 4]))
    assert 0.2 < fewest.crossing() < 0.3
    with raises("argument.invalid-value", "'2-bit'", "'half-bit', 'one-bit' or 'one-seventh'"):
        result.crossing("2-bit")


def test_spectral_snr_in_closed_form():
    np.testing.assert_allclose(spectral_snr(np.array([-0.2, 0.0, 0.5, 0.8, 1.0])), [0, 0, 2, 8, np.inf])
    result = RingCorrelation(np.array([0.1]), np.array([0.75]), np.array([8]), np.array([2.0]))
    np.testing.assert_allclose(spectral_snr(result), [6])


REFUSED = {
    "too small": ((np.ones((7, 20)), np.ones((7, 20))), "comparison.area-too-small", "7 x 20", "8 x 8"),
    "a pixel size of 0": ((np.ones((9, 9)), np.ones((9, 9)), (1e-9, 0.0)), "argument.invalid-value", "size is 0.0 m"),
}


@each("case", REFUSED)
def test_what_has_no_rings_is_refused(case):
    arguments, *expected = REFUSED[case]
    with raises(*expected):
        fourier_ring_correlation(*arguments, align=False)


def test_rings_of_equal_pixels_are_those_of_whole_frequencies():
    rings = Rings.of((6, 6))
    np.testing.assert_allclose(rings.frequencies, [1 / 6, 2 / 6, 3 / 6])
    # by hand: all 8 around the zero; distances 2 to 2.49; 2.5 to 3.49, where 3 is -3
    np.testing.assert_array_equal(rings.counts, [8, 12, 10])
    assert rings.index[0, 0] == 3
    assert rings.index[0, 1] == rings.index[-1, -1] == 0
    np.testing.assert_allclose(rings.sums(np.ones((2, 6, 6))), 2 * rings.counts)


def test_a_ring_is_round_in_metres():
    shape, pixel = (40, 60), (3e-9, 1e-9)
    rings = Rings.of(shape, pixel)
    k = np.hypot(np.fft.fftfreq(40, 3e-9)[:, None], np.fft.fftfreq(60, 1e-9)[None, :])
    step = 1 / 60e-9
    assert len(rings.frequencies) == 10  # up to 1 / 6 nm, the coarser Nyquist frequency
    np.testing.assert_allclose(rings.frequencies, step * np.arange(1, 11))
    for ring, frequency in enumerate(rings.frequencies):
        assert np.abs(k[rings.index == ring] - frequency).max() <= step / 2 * (1 + 1e-9)
        assert rings.counts[ring] == (rings.index == ring).sum()
    # Wherever it is inside the rings, a coefficient is in one.
    assert (rings.index[(k > 0.51 * step) & (k < 10.4 * step)] < 10).all()


@each(("shape", "pixel"), [((16, 16), None), ((15, 22), (1.0, 2.0))])
def test_independent_coefficients_from_the_correlations_of_all_pairs(shape, pixel):
    rings = Rings.of(shape, pixel)
    correlation = np.fft.fft2(soft_window(shape) ** 2)
    correlation = np.abs(correlation / correlation[0, 0]) ** 2
    for ring, count in enumerate(independent_counts(rings)):
        y, x = np.nonzero(rings.index == ring)
        pairs = correlation[(y[:, None] - y) % shape[0], (x[:, None] - x) % shape[1]].sum()
        assert count == pytest.approx(len(y) ** 2 / pairs, rel=1e-9)
