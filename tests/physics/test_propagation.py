"""Free space, far field and many slices, against closed forms and plain numpy."""

import math

import numpy as np
import pytest
import torch

from ptynb.physics.hotpath import exit_waves
from ptynb.physics.propagation import (
    angular_spectrum_kernel,
    far_field,
    fresnel_scaling,
    largest_distance,
    propagate,
)
from ptynb.physics.torch_steps import shift_ramps
from tests.parametrization import each
from tests.raising import raises

WINDOWS = [(16, 16), (15, 12), (8, 13), (9, 7)]
WAVELENGTH = 2e-9
PIXEL = (10e-9, 14e-9)


def complex_normal(generator, *shape):
    return torch.complex(*torch.randn(2, *shape, dtype=torch.float64, generator=generator))


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(3)


def gaussian_beam(across, along, waist, wavelength):
    """A Gaussian beam's field at `across`² = y² + x² [m²], without the carrier exp(ikz); its waist is at 0."""
    parameter = 1 + 1j * along * wavelength / (math.pi * waist**2)
    return np.exp(-across / (waist**2 * parameter)) / parameter


def squared_radius(window, pixel, centre=(0.0, 0.0)):
    y, x = ((np.arange(n) - n // 2) * p - c for n, p, c in zip(window, pixel, centre, strict=True))
    return y[:, None] ** 2 + x[None, :] ** 2


@each("window", [(128, 128), (129, 100)])
@each("distance", [-3e-6, 1.5e-6, 4e-6])
def test_a_gaussian_beam_spreads_as_its_closed_form(window, distance):
    radius = squared_radius(window, PIXEL)
    begin, expected = (gaussian_beam(radius, z, 70e-9, WAVELENGTH) for z in (0.0, distance))
    found = propagate(torch.from_numpy(begin + 0j), angular_spectrum_kernel(window, PIXEL, WAVELENGTH, distance))
    np.testing.assert_allclose(found.numpy(), expected, atol=2e-3)
    assert np.abs(expected - begin).max() > 0.15


@each("window", WINDOWS)
def test_the_kernel_is_that_of_longer_numbers(window):
    """The textbook's formula loses the phase of a metre of hard X-rays in double precision; the kernel does not."""
    distance, wavelength = 1.0, 1e-10
    kernel = angular_spectrum_kernel(window, (1e-8, 2e-8), wavelength, distance)
    y, x = (np.fft.fftfreq(n, p).astype(np.longdouble) for n, p in zip(window, (1e-8, 2e-8), strict=True))
    wave_number = 1 / np.longdouble(wavelength)
    axial = np.sqrt(wave_number**2 - y[:, None] ** 2 - x[None, :] ** 2)
    turns = np.longdouble(distance) * (axial - wave_number)
    expected = np.exp(2j * np.pi * (turns % 1).astype(float))
    np.testing.assert_allclose(kernel.numpy(), expected, atol=1e-8)


@pytest.mark.parametrize("window", WINDOWS)
def test_free_space_keeps_the_power_and_can_be_gone_back(generator, window):
    field = complex_normal(generator, 2, 3, *window)
    there, further, back = (angular_spectrum_kernel(window, PIXEL, WAVELENGTH, z) for z in (2e-7, 3e-7, -5e-7))
    moved = propagate(propagate(field, there), further)
    assert moved.abs().square().sum().item() == pytest.approx(field.abs().square().sum().item(), rel=1e-12)
    assert (moved - field).abs().max() > 0.5
    torch.testing.assert_close(propagate(moved, back), field)
    torch.testing.assert_close(moved, propagate(field, angular_spectrum_kernel(window, PIXEL, WAVELENGTH, 5e-7)))


def test_evanescent_waves_are_removed():
    kernel = angular_spectrum_kernel((8, 9), (3e-10, 4e-10), 1e-9, 1e-9)
    y, x = np.fft.fftfreq(8, 3e-10)[:, None], np.fft.fftfreq(9, 4e-10)[None, :]
    np.testing.assert_allclose(kernel.abs().numpy(), (np.hypot(y, x) < 1e9).astype(float), atol=1e-15)
    assert 0 < kernel.abs().sum() < 72


@each("axis", [0, 1])
def test_a_tilted_beam_moves_by_distance_times_tangent(axis):
    window, distance = (64, 65), 3e-7
    tilt = torch.tensor([0.0, 0.0], dtype=torch.float64)
    tilt[axis] = 0.2
    radius = squared_radius(window, PIXEL)
    field = torch.from_numpy(gaussian_beam(radius, 0.0, 60e-9, WAVELENGTH) + 0j)
    found = propagate(field, angular_spectrum_kernel(window, PIXEL, WAVELENGTH, distance, tilt=tilt)).numpy()
    centre = [0.0, 0.0]
    centre[axis] = distance * math.tan(0.2)
    assert centre[axis] > 4 * PIXEL[axis]
    expected = gaussian_beam(squared_radius(window, PIXEL, centre), distance, 60e-9, WAVELENGTH)
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_tilts_and_distances_of_every_pattern_are_made_at_once():
    tilts = torch.tensor([[0.1, -0.3], [0.0, 0.2], [0.05, 0.0]], dtype=torch.float64)
    distances = torch.tensor([1e-7, 2e-7, 4e-7], dtype=torch.float64)
    kernels = angular_spectrum_kernel((9, 11), PIXEL, WAVELENGTH, distances, tilt=tilts)
    assert kernels.shape == (3, 9, 11)
    for kernel, distance, tilt in zip(kernels, distances, tilts, strict=True):
        shift = distance * tilt.tan() / torch.tensor(PIXEL)
        expected = angular_spectrum_kernel((9, 11), PIXEL, WAVELENGTH, float(distance)) * shift_ramps(
            shift[None], (9, 11)
        )
        torch.testing.assert_close(kernel, expected[0])
    assert angular_spectrum_kernel((9, 11), PIXEL, WAVELENGTH, 1e-7, tilt=tilts).shape == (3, 9, 11)
    assert angular_spectrum_kernel((9, 11), PIXEL, WAVELENGTH, distances).shape == (3, 9, 11)


@pytest.mark.parametrize("band_limited", [False, True])
def test_gradients_of_distance_and_tilt(generator, band_limited):
    field = complex_normal(generator, 3, 6, 7)

    def carried(distance, tilt):
        kernel = angular_spectrum_kernel(
            (6, 7), PIXEL, WAVELENGTH, 1e-6 * distance, tilt=tilt, band_limited=band_limited
        )
        return propagate(field, kernel)

    distance = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    tilt = 0.1 * torch.randn(3, 2, dtype=torch.float64, generator=generator)
    assert torch.autograd.gradcheck(carried, (distance, tilt.requires_grad_()))


@each(("window", "pixel"), [((64, 64), (1e-8, 1e-8)), ((48, 64), (2e-9, 5e-9)), ((64, 30), (3e-9, 9e-9))])
def test_at_the_largest_distance_the_phase_turns_by_half_a_turn_a_sample(window, pixel):
    distance = largest_distance(window, pixel, WAVELENGTH)
    fine = 50
    y, x = (np.linspace(0, 1 / (2 * p), fine * (n // 2) + 1) for n, p in zip(window, pixel, strict=True))
    turns = distance * (np.sqrt(WAVELENGTH**-2 - y[:, None] ** 2 - x[None, :] ** 2) - 1 / WAVELENGTH)
    # Slopes at the corner, per step from sample to sample.
    steepest = max(np.abs(np.diff(turns, axis=axis)).max() for axis in (0, 1)) * fine
    assert steepest == pytest.approx(0.5, rel=5e-3)


def test_the_largest_distance_is_about_that_of_fresnel_and_none_for_evanescent_waves():
    assert largest_distance((100, 200), (5e-7, 5e-7), 1e-10) == pytest.approx(100 * 25e-14 / 1e-10, rel=1e-6)
    assert largest_distance((100, 100), (1e-9, 1e-9), 2e-9) == 0


def test_up_to_the_largest_distance_the_band_is_not_limited():
    window = (32, 40)
    distance = 0.999 * largest_distance(window, PIXEL, WAVELENGTH)
    kernels = [angular_spectrum_kernel(window, PIXEL, WAVELENGTH, distance, band_limited=b) for b in (False, True)]
    torch.testing.assert_close(*kernels)
    farther = angular_spectrum_kernel(window, PIXEL, WAVELENGTH, 1.3 * distance, band_limited=True)
    assert 0 < (farther == 0).sum() < farther.numel()


@each("distance", [4e-5, -9e-5])
def test_the_limited_band_is_matsushimas_on_the_axes(distance):
    kernel = angular_spectrum_kernel((1, 256), PIXEL, WAVELENGTH, distance, band_limited=True)[0]
    frequency = np.fft.fftfreq(256, PIXEL[1])
    limit = 1 / (WAVELENGTH * math.sqrt((2 * distance / (256 * PIXEL[1])) ** 2 + 1))
    assert limit < 0.9 * np.abs(frequency).max()
    np.testing.assert_allclose(kernel.abs().numpy(), (np.abs(frequency) <= limit).astype(float), atol=1e-15)


def test_a_limited_band_keeps_out_what_comes_in_over_the_edge():
    window, large = (64, 64), (512, 512)
    distance = 5 * largest_distance(window, PIXEL, WAVELENGTH)
    begin = gaussian_beam(squared_radius(large, PIXEL), 0.0, 12e-9, WAVELENGTH) + 0j
    middle = (slice(224, 288), slice(224, 288))
    kernel = angular_spectrum_kernel(large, PIXEL, WAVELENGTH, distance)
    truth = propagate(torch.from_numpy(begin), kernel)[middle]
    errors = []
    for band_limited in (False, True):
        kernel = angular_spectrum_kernel(window, PIXEL, WAVELENGTH, distance, band_limited=band_limited)
        errors.append(float((propagate(torch.from_numpy(begin[middle]), kernel) - truth).norm() / truth.norm()))
    assert errors[1] < 0.35 * errors[0]


def test_a_plane_wave_meets_the_far_field_at_its_frequency():
    y, x = np.arange(7)[:, None], np.arange(8)[None, :]
    wave = torch.from_numpy(np.exp(2j * np.pi * (2 * y / 7 - 3 * x / 8)))
    found = far_field(torch.stack([wave, 1j * wave]))
    assert found[0, 2, 5].item() == pytest.approx(math.sqrt(56))
    assert found[1, 2, 5].item() == pytest.approx(1j * math.sqrt(56))
    assert found.abs().square().sum().item() == pytest.approx(112)


@each("magnified", [2, 3])
def test_a_diverging_beams_shadow_is_a_parallel_beams_at_the_effective_distance_magnified(magnified):
    window, pixel, wavelength = (512, 512), (4e-8, 4e-8), 1e-9
    first = 6e-4
    second = (magnified - 1) * first
    magnification, effective = fresnel_scaling(first, second)
    assert magnification == pytest.approx(magnified)
    radius = squared_radius(window, pixel)
    shape = np.exp(-radius / (5e-7) ** 2) * (1 + 0.5j * np.cos(4e6 * np.sqrt(radius)))
    spherical = np.exp(1j * np.pi * radius / (wavelength * first))
    found = propagate(torch.from_numpy(shape * spherical), angular_spectrum_kernel(window, pixel, wavelength, second))
    expected = propagate(torch.from_numpy(shape), angular_spectrum_kernel(window, pixel, wavelength, effective))
    reach = 40
    near = expected[256 - reach : 256 + reach, 256 - reach : 256 + reach].abs().numpy() / magnified
    far = slice(256 - magnified * reach, 256 + magnified * reach, magnified)
    np.testing.assert_allclose(found[far, far].abs().numpy(), near, atol=5e-4)
    assert np.abs(near - np.abs(shape)[216:296, 216:296] / magnified).max() > 0.02


def test_fresnel_scaling_of_parallel_and_converging_beams():
    assert fresnel_scaling(math.inf, 2.0) == (1.0, 2.0)
    assert fresnel_scaling(-4.0, 1.0) == pytest.approx((0.75, 4 / 3))


def multislice(probes, slices, kernel):
    """Exit waves (pattern, mode, y, x) through slices (pattern, slice, y, x)."""
    patterns, _, _, width = slices.shape
    beside = torch.cat(slices.unbind(0), dim=-1)
    corners = torch.tensor([[0, pattern * width] for pattern in range(patterns)])
    return exit_waves(beside[None], corners, probes, kernel)[:, 0]


def numpy_multislice(probes, slices, thickness, tilts):
    """One wave at a time, the kernel written as in a textbook."""
    window = probes.shape[-2:]
    y, x = (np.fft.fftfreq(n, p) for n, p in zip(window, PIXEL, strict=True))
    angle = np.sqrt(WAVELENGTH**-2 - y[:, None] ** 2 - x[None, :] ** 2) - 1 / WAVELENGTH
    result = np.zeros((len(slices), *probes.shape[1:]), complex)
    for j, layers in enumerate(slices):
        lean = y[:, None] * np.tan(tilts[j][0]) + x[None, :] * np.tan(tilts[j][1])
        for m, wave in enumerate(probes[j]):
            for index, layer in enumerate(layers):
                if index > 0:
                    wave = np.fft.ifft2(np.exp(2j * np.pi * thickness * (angle - lean)) * np.fft.fft2(wave))
                wave = wave * layer
            result[j, m] = wave
    return result


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("count", [1, 2, 5])
def test_multislice_is_that_of_plain_numpy(generator, window, count):
    probes, slices = complex_normal(generator, 3, 2, *window), complex_normal(generator, 3, count, *window)
    tilts = 0.2 * torch.randn(3, 2, dtype=torch.float64, generator=generator)
    kernel = angular_spectrum_kernel(window, PIXEL, WAVELENGTH, 2e-7, tilt=tilts)
    found = multislice(probes, slices, kernel)
    expected = numpy_multislice(probes.numpy(), slices.numpy(), 2e-7, tilts.numpy())
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-9)


def test_transparent_slices_are_free_space_between_the_first_and_the_last(generator):
    probes = complex_normal(generator, 1, 2, 9, 10)
    kernel = angular_spectrum_kernel((9, 10), PIXEL, WAVELENGTH, 1e-7)
    found = multislice(probes, torch.ones(3, 4, 9, 10, dtype=torch.complex128), kernel)
    expected = propagate(probes, angular_spectrum_kernel((9, 10), PIXEL, WAVELENGTH, 3e-7))
    torch.testing.assert_close(found, expected.expand(3, -1, -1, -1))


def test_phase_slices_keep_the_power_and_one_slice_is_a_product(generator):
    probes, phases = complex_normal(generator, 3, 2, 9, 10), torch.randn(3, 6, 9, 10, generator=generator)
    slices = torch.exp(1j * phases.double())
    kernel = angular_spectrum_kernel((9, 10), PIXEL, WAVELENGTH, 1e-7)
    power = multislice(probes, slices, kernel).abs().square().sum((1, 2, 3))
    torch.testing.assert_close(power, probes.abs().square().sum((1, 2, 3)))
    torch.testing.assert_close(multislice(probes, slices[:, :1], kernel), probes * slices[:, :1])


@pytest.mark.parametrize("which", range(4), ids=["probes", "slices", "thickness", "tilt"])
def test_gradients_of_multislice_in_all_it_is_given(generator, which):
    given = [
        complex_normal(generator, 2, 2, 4, 5),
        complex_normal(generator, 2, 4, 4, 5),
        torch.tensor(1.3, dtype=torch.float64),
        0.2 * torch.randn(2, 2, dtype=torch.float64, generator=generator),
    ]
    weights = complex_normal(generator, 2, 2, 4, 5)

    def value(*moved):
        probes, slices, thickness, tilt = (*given[:which], *moved, *given[which + 1 :])
        kernel = angular_spectrum_kernel((4, 5), PIXEL, WAVELENGTH, 1e-7 * thickness, tilt=tilt)
        return (multislice(probes * 1.0, slices * 1.0, kernel) * weights).real.sum()

    leaf = given[which].clone().requires_grad_()
    value(leaf).backward()
    direction = complex_normal(generator, *leaf.shape) if leaf.is_complex() else torch.ones_like(leaf)
    slope = torch.vdot(leaf.grad.flatten(), direction.flatten()).real.item()
    with torch.no_grad():
        near, far = (
            (value(leaf + step * direction) - value(leaf - step * direction)).item() / (2 * step)
            for step in (1e-4, 2e-4)
        )
    assert (4 * near - far) / 3 == pytest.approx(slope, rel=1e-8)


def test_single_precision_stays_single(generator):
    probes, slices = complex_normal(generator, 2, 1, 8, 9), complex_normal(generator, 2, 3, 8, 9)
    kernel = angular_spectrum_kernel((8, 9), PIXEL, WAVELENGTH, 1e-7)
    exact = multislice(probes, slices, kernel)
    single = multislice(*(tensor.to(torch.complex64) for tensor in (probes, slices, kernel)))
    assert single.dtype == torch.complex64
    torch.testing.assert_close(single.to(torch.complex128), exact, rtol=1e-5, atol=1e-5)


def ones(*shape):
    return torch.ones(shape, dtype=torch.complex128)


@each(
    ("call", "facts"),
    [
        (lambda: angular_spectrum_kernel((0, 8), PIXEL, 1e-9, 1.0), ["0 x 8"]),
        (lambda: angular_spectrum_kernel((8, 8), (1e-9, -1.0), 1e-9, 1.0), ["pixel size", -1.0]),
        (lambda: angular_spectrum_kernel((8, 8), PIXEL, 0.0, 1.0), ["wavelength", 0.0]),
        (lambda: largest_distance((8, 8), (math.inf, 1.0), 1e-9), ["pixel size", math.inf]),
        (lambda: fresnel_scaling(1.0, 0.0), ["from sample to detector is 0.0"]),
        (lambda: fresnel_scaling(0.0, 1.0), ["from focus to sample is 0.0", 1.0]),
        (lambda: fresnel_scaling(-1.0, 1.0), ["from focus to sample is -1.0", 1.0]),
        (lambda: fresnel_scaling(math.nan, 1.0), ["from focus to sample is nan"]),
    ],
)
def test_lengths_out_of_range_are_an_error(call, facts):
    with raises("argument.invalid-value", *facts):
        call()
