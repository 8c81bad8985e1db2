import pytest
import torch

from ptynb.physics.model_builder import add_modes, probe_from_mean_pattern, scale_to_counts
from tests.parametrization import each
from tests.raising import raises

WINDOW = (24, 30)


def complex_normal(seed, *shape, dtype=torch.float64):
    return torch.complex(*torch.randn(2, *shape, dtype=dtype, generator=torch.Generator().manual_seed(seed)))


def a_beam(dtype=torch.float64):
    """A defocused Gaussian (1, y, x), not in the middle and not round."""
    y, x = torch.meshgrid(*(torch.arange(side, dtype=dtype) for side in WINDOW), indexing="ij")
    y, x = y - 11.3, x - 16.1
    return torch.exp(-(y**2 / 18 + x**2 / 30) + 0.04j * (y**2 + x**2))[None] * 30


def gram(modes):
    flat = modes.flatten(1)
    return flat.conj() @ flat.T


def power(probe):
    return probe.abs().square().sum((1, 2))


@each(("modes", "dtype", "most"), [*((n, torch.float64, 1e-12) for n in (1, 2, 3, 6, 10)), (10, torch.float32, 1e-5)])
def test_modes_are_orthogonal(modes, dtype, most):
    found = gram(add_modes(a_beam(dtype), modes))
    off = found - torch.diag(found.diagonal())
    scale = found.diagonal().real.sqrt()
    assert found.shape == (modes, modes)
    assert (off.abs() / (scale[:, None] * scale)).max() < most


def test_a_new_mode_is_orthogonal_to_guesses_that_are_not():
    guess = torch.cat([a_beam(), 0.5 * a_beam() + complex_normal(1, 1, *WINDOW)])
    modes = add_modes(guess, 3)
    overlap = (modes[:2].conj() * modes[2]).sum((1, 2)).abs() / (power(modes[:2]) * power(modes)[2]).sqrt()
    assert overlap.max() < 1e-12


def test_a_mode_that_is_there_already_is_passed_over():
    given = add_modes(a_beam(), 3)
    for guess in (given[:2], given, given.to(torch.complex64)):
        modes = add_modes(guess, 5).to(torch.complex128)
        plain = add_modes(a_beam(), 5)
        overlaps = gram(torch.cat([plain, modes[len(guess) :]]))[:5, 5:].abs()
        unit = power(plain)[:, None].sqrt() * power(modes[len(guess) :]).sqrt()
        expected = torch.eye(5, dtype=torch.float64)[:, len(guess) :]
        torch.testing.assert_close(overlaps / unit, expected, rtol=0, atol=1e-4)


def test_modes_that_a_point_can_not_have_are_refused():
    point = torch.zeros(1, 8, 8, dtype=torch.complex128)
    point[0, 3, 4] = 1
    with raises("probe.too-few-pixels", "2 independent modes"):
        add_modes(point, 2)


@each("fraction", [0.05, 0.1])
@each("modes", [1, 2, 4])
def test_each_new_mode_gets_its_fraction(modes, fraction):
    powers = power(add_modes(a_beam(), modes, fraction))
    expected = [1 - (modes - 1) * fraction] + [fraction] * (modes - 1)
    torch.testing.assert_close(powers / powers.sum(), torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=0)
    torch.testing.assert_close(powers.sum(), power(a_beam()).sum(), rtol=1e-12, atol=0)


def test_the_first_new_mode_changes_sign_along_x_and_the_next_along_y():
    modes = add_modes(a_beam(), 3)
    ratio = modes[1:] / modes[0]
    torch.testing.assert_close(ratio[0], ratio[0, :1].expand(WINDOW), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(ratio[1], ratio[1, :, :1].expand(WINDOW), rtol=1e-9, atol=1e-9)
    assert ratio[0, 0, 0].real * ratio[0, 0, -1].real < 0
    assert ratio[1, 0, 0].real * ratio[1, -1, 0].real < 0


def test_given_modes_keep_their_shapes_and_their_ratio():
    guess = torch.cat([a_beam(), 0.3 * complex_normal(1, 1, *WINDOW)])
    before = guess.clone()
    modes = add_modes(guess, 3)
    torch.testing.assert_close(modes[:2], guess * 0.95**0.5, rtol=1e-12, atol=0)
    assert torch.equal(guess, before)


def test_too_many_modes_are_cut():
    guess = complex_normal(3, 3, *WINDOW)
    torch.testing.assert_close(
        add_modes(guess, 2), guess[:2] * (power(guess).sum() / power(guess[:2]).sum()).sqrt(), rtol=1e-12, atol=0
    )


@each("window", [(8, 12), (9, 7)])
def test_the_probe_from_the_mean_pattern_has_it_as_its_far_field(window):
    pattern = 50 * torch.rand(window, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    probe = probe_from_mean_pattern(pattern, torch.complex128)
    assert probe.shape == (1, *window)
    torch.testing.assert_close(torch.fft.fft2(probe[0], norm="ortho").abs().square(), pattern, rtol=1e-11, atol=1e-11)


@each("window", [(8, 12), (9, 7)])
def test_the_probe_from_the_mean_pattern_is_focused_in_the_middle(window):
    frequencies = (torch.fft.fftfreq(side, dtype=torch.float64) for side in window)
    y, x = torch.meshgrid(*frequencies, indexing="ij")
    probe = probe_from_mean_pattern(torch.exp(-30 * (y**2 + x**2)), torch.complex128)[0]
    assert divmod(probe.abs().argmax().item(), window[1]) == (window[0] // 2, window[1] // 2)


@each("counts", [1.0, 12345.0])
def test_scaling_gives_the_counts_of_a_transparent_object(counts):
    probe = scale_to_counts(complex_normal(5, 2, *WINDOW), counts)
    assert torch.fft.fft2(probe, norm="ortho").abs().square().sum().item() == pytest.approx(counts, rel=1e-12)
    ratio = probe / complex_normal(5, 2, *WINDOW)
    torch.testing.assert_close(ratio, ratio[0, 0, 0].expand_as(ratio), rtol=1e-12, atol=1e-12)
