import numpy as np

from ptynb.preparation.field_resampling import cut, cut_spectrum, middle_start, resampled
from tests.parametrization import each


def field_of(shape, seed=0):
    random = np.random.default_rng(seed)
    return random.standard_normal(shape) + 1j * random.standard_normal(shape)


def test_a_cut_may_reach_beyond_the_field():
    field = field_of((2, 5, 6))
    part = cut(field, (-1, 4), (4, 5))
    np.testing.assert_array_equal(part[:, 1:, :2], field[:, :3, 4:])
    assert not part[:, 0].any()
    assert not part[:, :, 2:].any()


@each("old", [(8, 9), (9, 8)])
@each("new", [(5, 6), (6, 5), (11, 12), (12, 11)])
def test_centres_and_far_fields_agree(old, new):
    start = middle_start(old, new)
    point = np.zeros(old)
    point[old[0] // 2, old[1] // 2] = 1
    assert cut(point, start, new)[new[0] // 2, new[1] // 2] == 1

    def far_field(wave):
        return np.fft.fftshift(np.fft.fft2(np.fft.ifftshift(wave), norm="ortho"))

    wave = field_of(old)
    np.testing.assert_allclose(far_field(cut_spectrum(wave, start, new)), cut(far_field(wave), start, new), atol=1e-12)


@each("ratio", [0.5, 0.61, 1.7])
def test_cosines_below_the_new_nyquist_frequency_are_resampled_exactly_and_others_are_left_out(ratio):
    side = 30
    for order in range(side):
        wave = np.cos(np.pi * order * (np.arange(side) + 0.5) / side) * (1 + 2j)
        made = resampled(np.broadcast_to(wave, (2, 4, side)), (1, ratio))
        place = np.arange(made.shape[-1]) / ratio
        kept = order / (2 * side) < ratio / 2
        expected = kept * np.cos(np.pi * order * (place + 0.5) / side) * (1 + 2j)
        np.testing.assert_allclose(made, np.broadcast_to(expected, made.shape), atol=1e-12)
        assert side - 1 <= place[-1] < side - 1 + 1 / ratio + 1e-9


def test_axes_are_resampled_each_by_its_own_ratio():
    field = field_of((6, 10, 12))
    both = resampled(field, (0.5, 1.5))
    assert both.shape == (6, 6, 18)
    np.testing.assert_allclose(both, resampled(resampled(field, (0.5, 1)), (1, 1.5)), atol=1e-12)
    np.testing.assert_allclose(np.swapaxes(both, 1, 2), resampled(np.swapaxes(field, 1, 2), (1.5, 0.5)), atol=1e-12)
    assert resampled(field, (1, 1)) is field
