import numpy as np
import pytest

from ptynb.analysis.fourier_rings import Rings, crossing, independent_counts, soft_window
from tests.pairs import each


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


def test_the_window_is_soft():
    window = soft_window((64, 81))
    assert window.max() == pytest.approx(1, abs=1e-3)
    assert window[0].max() < 1e-3
    assert window[:, -1].max() < 1e-3
    np.testing.assert_allclose(window, window[::-1, ::-1])


@each(("shape", "pixel"), [((16, 16), None), ((15, 22), (1.0, 2.0))])
def test_independent_coefficients_from_the_correlations_of_all_pairs(shape, pixel):
    rings = Rings.of(shape, pixel)
    correlation = np.fft.fft2(soft_window(shape) ** 2)
    correlation = np.abs(correlation / correlation[0, 0]) ** 2
    for ring, count in enumerate(independent_counts(rings)):
        y, x = np.nonzero(rings.index == ring)
        pairs = correlation[(y[:, None] - y) % shape[0], (x[:, None] - x) % shape[1]].sum()
        assert count == pytest.approx(len(y) ** 2 / pairs, rel=1e-9)


def test_the_first_crossing_is_interpolated():
    frequencies = np.array([1.0, 2.0, 3.0, 4.0])
    assert crossing(frequencies, np.array([1.0, 0.75, 0.25, 1.0]), 0.5) == pytest.approx(2.5)
    assert crossing(frequencies, np.array([1.0, 0.75, 0.25, 1.0]), np.array([0, 0, 0.75, 0])) == pytest.approx(2.6)
    assert crossing(frequencies, np.array([0.4, 1, 1, 0]), 0.5) == 1
    assert crossing(frequencies, np.array([1, 1, 1, 0.5]), 0.5) is None
