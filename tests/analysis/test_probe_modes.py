import numpy as np
import pytest

from ptynb.analysis import caustic, focus_distance, mode_powers, orthogonal_modes
from tests.parametrization import each
from tests.raising import raises

WAVELENGTH, PIXEL, WINDOW = 1e-10, (20e-9, 25e-9), (192, 100)
WAIST = 0.2e-6
RAYLEIGH = np.pi * WAIST**2 / WAVELENGTH


def places(window=WINDOW, pixel=PIXEL):
    y, x = ((np.arange(n) - n // 2) * p for n, p in zip(window, pixel, strict=True))
    return y[:, None], x[None, :]


def gaussian_beam(distance):
    """The field at this distance behind the waist, by the complex beam parameter q = z - i z_R; phases as exp(ikz)."""
    y, x = places()
    q = distance - 1j * RAYLEIGH
    return -1j * RAYLEIGH / q * np.exp(1j * np.pi * (x**2 + y**2) / (WAVELENGTH * q))


def some_modes(modes=3, shape=(9, 11), seed=0):
    random = np.random.default_rng(seed)
    strengths = np.array([0.3, 2.0, 1.0, 0.1])[:modes, None, None]
    return strengths * (random.standard_normal((modes, *shape)) + 1j * random.standard_normal((modes, *shape)))


def test_powers_of_known_modes():
    mode = np.exp(1j * np.arange(12.0)).reshape(3, 4)
    np.testing.assert_allclose(mode_powers(np.stack([mode, 2 * mode, 0 * mode])), [0.2, 0.8, 0])
    both = mode_powers(np.stack([np.stack([mode, 3j * mode]), np.stack([mode, mode])]))
    np.testing.assert_allclose(both, [[0.1, 0.9], [0.5, 0.5]])


@each("modes", [1, 3, 4])
def test_orthogonal_modes_give_the_same_intensities(modes):
    probe = some_modes(modes)
    result = orthogonal_modes(probe)
    flat = result.reshape(modes, -1)
    powers = np.linalg.eigvalsh(np.einsum("iyx,jyx->ij", probe, probe.conj()))[::-1]
    np.testing.assert_allclose(flat @ flat.conj().T, np.diag(powers), atol=1e-10 * powers[0])
    object = some_modes(1, seed=5)[0]
    before, after = ((np.abs(np.fft.fft2(behind * object)) ** 2).sum(0) for behind in (probe, result))
    np.testing.assert_allclose(after, before, rtol=1e-10)


@each("seed", [0, 1, 2])
def test_modes_that_are_orthogonal_keep_their_phases(seed):
    columns = np.linalg.qr(some_modes(3, (5, 6), seed).reshape(3, 30).T)[0]
    probe = (columns * [2 * np.exp(1j * seed), 5j, -1]).T.reshape(3, 5, 6)
    np.testing.assert_allclose(orthogonal_modes(probe), probe[[1, 0, 2]], atol=1e-12)


def test_orthogonal_modes_of_a_stack_of_few_pixels_keep_shape_and_precision():
    stack = np.stack([some_modes(4, (1, 3), seed) for seed in (1, 2)]).astype(np.complex64)
    result = orthogonal_modes(stack)
    assert result.dtype == np.complex64
    assert result.shape == stack.shape
    np.testing.assert_allclose((np.abs(result) ** 2).sum(1), (np.abs(stack) ** 2).sum(1), rtol=1e-5)
    assert not result[:, 3].any()


@each("start", [0.0, -1.5, 0.8])
def test_a_gaussian_beam_follows_its_closed_form(start):
    """Waist, Rayleigh length, curvature and phase, from `start` Rayleigh lengths behind the waist on."""
    distances = np.array([-2.0, -1, 0, 0.5, 1, 2]) * RAYLEIGH
    begin = gaussian_beam(start * RAYLEIGH)
    # Beyond two Rayleigh lengths the beam is cut by the window.
    distances = distances[np.abs(distances + start * RAYLEIGH) < 2.1 * RAYLEIGH]
    stack = caustic(begin, PIXEL, WAVELENGTH, distances)
    x = places()[1]
    for distance, intensity in zip(distances, stack, strict=True):
        expected = gaussian_beam(start * RAYLEIGH + distance)
        np.testing.assert_allclose(intensity, np.abs(expected) ** 2, atol=2e-4)
        # The intensity's standard deviation is half the waist.
        width = 2 * np.sqrt((intensity * x**2).sum() / intensity.sum())
        behind = start + distance / RAYLEIGH
        assert width == pytest.approx(WAIST * np.sqrt(1 + behind**2), rel=6e-3)
    np.testing.assert_allclose(stack[:, 96, 50], 1 / (1 + (start + distances / RAYLEIGH) ** 2), rtol=2e-3)


def test_steep_waves_by_the_angular_spectrum_summed_up_directly():
    """Pixels of 0.8 wavelengths, a beam inclined by 20 degrees: sums over a fine grid of its known plane waves."""
    wavelength, pixel, window = 1e-9, (0.8e-9, 0.8e-9), (40, 48)
    waist, carrier, distance = 4e-9, np.sin(np.radians(20)) / 1e-9, 12e-9
    y, x = places(window, pixel)
    field = np.exp(-(y**2 + x**2) / waist**2 + 2j * np.pi * carrier * x)
    k = np.linspace(-0.35e9, 0.35e9, 241)
    ky, kx = k[:, None], k[None, :] + carrier
    spectrum = np.pi * waist**2 * np.exp(-(np.pi**2) * waist**2 * (ky**2 + (kx - carrier) ** 2))
    spectrum = spectrum * np.exp(2j * np.pi * distance * (np.sqrt(1 / wavelength**2 - ky**2 - kx**2) - 1 / wavelength))
    down, across = np.exp(2j * np.pi * y * k), np.exp(2j * np.pi * (k + carrier)[:, None] * x)
    expected = down @ spectrum @ across * (k[1] - k[0]) ** 2
    np.testing.assert_allclose(caustic(field, pixel, wavelength, [distance])[0], np.abs(expected) ** 2, atol=2e-3)


def test_light_that_leaves_the_window_does_not_come_back():
    y, x = places()
    beam = np.exp(-((y / 0.3e-6) ** 2) - (x / 0.3e-6) ** 2 + 2j * np.pi * 8e6 * x)
    # It moves by 0.8 mm for 1 m, so by the window's 2.5 um in 3.1 mm.
    distances = np.array([0.0, 1.0, 3.125, 4.7, 6.25, 8, 12.5]) * 1e-3
    power = caustic(beam, PIXEL, WAVELENGTH, distances).sum((1, 2))
    assert power[1] > 0.9 * power[0]
    assert (power[2:] < 2e-3 * power[0]).all()


def test_evanescent_waves_do_not_grow_backwards():
    random = np.random.default_rng(0)
    field = random.standard_normal((96, 96)) + 1j * random.standard_normal((96, 96))
    stack = caustic(field, (1e-9, 1e-9), 4e-9, [-50e-9, 0.0, 50e-9])
    assert (stack.sum((1, 2)) < (np.abs(field) ** 2).sum()).all()
    # A quarter wavelength as pixel: a disc of radius 1/4 out of a square of side 1 travels.
    assert stack[1].sum() == pytest.approx(np.pi / 16 * (np.abs(field) ** 2).sum(), rel=0.1)


def test_modes_add_their_intensities():
    probe = np.stack([gaussian_beam(0.0), 0.5j * gaussian_beam(0.3 * RAYLEIGH)])
    distances = [1e-4, 3e-4]
    apart = [caustic(mode, PIXEL, WAVELENGTH, distances) for mode in probe]
    np.testing.assert_allclose(caustic(probe, PIXEL, WAVELENGTH, distances), apart[0] + apart[1], rtol=1e-12)


@each("focus", [0.33, -0.81])
@each("spacing", ["even", "uneven"])
def test_the_focus_is_found_between_the_distances(focus, spacing):
    """A beam that converges by its closed form has its waist downstream: a positive distance."""
    distances = np.array([-2.0, -1.6, -1.2, -0.8, -0.4, 0, 0.4, 0.8, 1.2]) * RAYLEIGH
    if spacing == "uneven":
        distances = distances[[0, 1, 3, 4, 5, 7, 8]]
    stack = caustic(gaussian_beam(-focus * RAYLEIGH), PIXEL, WAVELENGTH, distances)
    assert focus_distance(stack, distances) == pytest.approx(focus * RAYLEIGH, abs=2e-3 * RAYLEIGH)


def test_a_focus_beyond_the_stack_is_found_with_distances_further_out():
    beam, near = gaussian_beam(-0.5 * RAYLEIGH), np.linspace(-1, 0.25, 6) * RAYLEIGH
    with raises("probe.focus-outside", "Extend the distances"):
        focus_distance(caustic(beam, PIXEL, WAVELENGTH, near), near)
    further = np.append(near, [0.5 * RAYLEIGH, 0.75 * RAYLEIGH])
    found = focus_distance(caustic(beam, PIXEL, WAVELENGTH, further), further)
    assert found == pytest.approx(0.5 * RAYLEIGH, abs=5e-3 * RAYLEIGH)


PROBE, STACK = np.ones((1, 4, 4), complex), np.ones((3, 4, 4))
REFUSED = {
    "one axis": (lambda: mode_powers(PROBE[0, 0]), "array.shape-mismatch", (4,)),
    "not finite": (lambda: orthogonal_modes(PROBE * np.nan), "array.shape-mismatch", "finite"),
    "no light": (lambda: mode_powers(0 * PROBE), "argument.invalid-value", "0 everywhere"),
    "no pixel": (lambda: caustic(PROBE, (0.0, 1e-9), 1e-10, [0]), "argument.invalid-value", "pixel size is 0.0 m"),
    "no wavelength": (lambda: caustic(PROBE, PIXEL, -1e-10, [0]), "argument.invalid-value", "wavelength"),
    "no distances": (lambda: caustic(PROBE, PIXEL, 1e-10, []), "argument.invalid-value", "distances"),
    "infinite distances": (
        lambda: caustic(PROBE, PIXEL, 1e-10, [np.inf]),
        "argument.invalid-value",
        "distances",
        "inf",
    ),
    "too few distances": (
        lambda: focus_distance(STACK[:2], [0, 1]),
        "array.shape-mismatch",
        "2 distances",
        "at least 3",
    ),
    "as many as the stack": (lambda: focus_distance(STACK, [0, 1]), "array.shape-mismatch", "2 distances"),
    "out of order": (lambda: focus_distance(STACK, [0, 2, 1]), "array.shape-mismatch", "increasing"),
    "a focus beyond": (
        lambda: focus_distance(STACK * np.array([1, 2, 3])[:, None, None], [0, 1, 2]),
        "probe.focus-outside",
        "2 m",
    ),
}


@each("case", REFUSED)
def test_what_makes_no_sense_is_refused(case):
    call, *expected = REFUSED[case]
    with raises(*expected):
        call()
