"""Starting probes against closed forms, and against integrals over the pupil without a grid."""

import math
import re

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import j0, j1

from ptynb.simulation.illumination import (
    electron_probe,
    focused_probe,
    pinhole_probe,
    propagate,
    zone_plate_probe,
)
from tests.parametrization import each
from tests.raising import raises

WINDOWS = [(256, 256), (255, 200), (180, 255)]
ELECTRON = 1.9687e-12
XRAY = 1e-10
ANGSTROMS = (20e-12, 25e-12)
NANOMETRES = (20e-9, 25e-9)


def coordinates(window, pixel):
    y, x = ((np.arange(n) - n // 2) * p for n, p in zip(window, pixel, strict=True))
    return y[:, None], x[None, :]


def power(probe):
    return (np.abs(probe) ** 2).sum()


def airy(v):
    """2 J1(v) / v."""
    v = np.where(v == 0, 1e-9, v)
    return 2 * j1(v) / v


def radial_focus(radius, reach, wavelength, defocus, stop=0.0):
    """The field at `radius` [m] of a round pupil: ∫ exp(-iπλzρ²) J0(2πρr) 2πρ dρ from stop to reach, by midpoints."""
    count = 4000
    rho = stop + (np.arange(count) + 0.5) * (reach - stop) / count
    ring = np.exp(-1j * math.pi * wavelength * defocus * rho**2) * 2 * math.pi * rho * (reach - stop) / count
    return j0(2 * math.pi * np.asarray(radius)[..., None] * rho) @ ring


def likeness(one, other):
    """|<a, b>| of fields with power 1."""
    return abs(np.vdot(one, other)) / math.sqrt(power(one) * power(other))


PROBES = [
    lambda window: electron_probe(window, ANGSTROMS, ELECTRON, 20e-3, {"C10": 5e-9, "A2": (50e-9, 0.4)}),
    lambda window: electron_probe(window, ANGSTROMS, ELECTRON, 20e-3, edge=2e-3),
    lambda window: zone_plate_probe(window, NANOMETRES, XRAY, 200e-6, 60e-9, central_stop=80e-6, defocus=3e-4),
    lambda window: focused_probe(window, NANOMETRES, XRAY, (2e-4, 3e-4), (0.2, 0.3), defocus=(1e-4, 3e-4)),
    lambda window: pinhole_probe(window, NANOMETRES, XRAY, 1e-6, distance=1e-3),
    lambda window: pinhole_probe(window, NANOMETRES, XRAY, 1e-6, edge=100e-9),
]


@each("window", WINDOWS)
@each("make", PROBES)
def test_probes_have_power_one_and_lie_in_the_middle(window, make):
    probe = make(window)
    assert probe.shape == window
    assert probe.dtype == np.complex128
    assert power(probe) == pytest.approx(1, rel=1e-12)
    weight = np.abs(probe) ** 2
    for coordinate, size in zip(coordinates(window, (1.0, 1.0)), window, strict=True):
        assert (weight * coordinate).sum() == pytest.approx(0, abs=0.004 * size)


@each("window", WINDOWS)
@each("make", [PROBES[1], lambda w: zone_plate_probe(w, NANOMETRES, XRAY, 200e-6, 60e-9)])
def test_a_focus_is_brightest_at_the_middle_index_and_has_phase_zero(window, make):
    probe = make(window)
    middle = (window[0] // 2, window[1] // 2)
    assert np.unravel_index(np.abs(probe).argmax(), window) == middle
    assert probe[middle].real > 0
    np.testing.assert_allclose(probe.imag, 0, atol=1e-14)


@each("window", [(256, 256), (301, 256)])
def test_an_electron_focus_is_the_airy_pattern(window):
    angle = 20e-3
    probe = electron_probe(window, ANGSTROMS, ELECTRON, angle)
    y, x = coordinates(window, ANGSTROMS)
    expected = airy(2 * math.pi * angle / ELECTRON * np.hypot(y, x))
    middle = (window[0] // 2, window[1] // 2)
    # A sixth of the window is where the copies of a sampled spectrum are still small.
    near = np.hypot(y, x) < 0.8e-9
    np.testing.assert_allclose((probe / probe[middle])[near], expected[near], atol=0.012)


@each("axis", [0, 1])
def test_the_first_dark_ring_is_at_0_61_wavelengths_over_na(axis):
    window, pixel = (512, 500), (10e-9, 12e-9)
    probe = zone_plate_probe(window, pixel, XRAY, 200e-6, 60e-9)
    spectrum = np.fft.fft2(np.fft.ifftshift(probe)).sum(1 - axis)
    frequency = np.fft.fftfreq(window[axis], pixel[axis])
    airy_radius = 0.609835 * XRAY / (XRAY / (2 * 60e-9))

    def between_pixels(place):
        return (spectrum * np.exp(2j * np.pi * frequency * place)).sum().real

    found = brentq(between_pixels, 0.5 * airy_radius, 1.5 * airy_radius)
    assert found == pytest.approx(airy_radius, rel=3e-4)


def test_the_far_field_of_an_electron_probe_is_its_aperture():
    window, angle = (256, 200), 20e-3
    probe = electron_probe(window, ANGSTROMS, ELECTRON, angle, {"C10": -10e-9, "C30": 1e-5})
    pattern = np.abs(np.fft.fft2(probe, norm="ortho")) ** 2
    y, x = (ELECTRON * np.fft.fftfreq(n, p) for n, p in zip(window, ANGSTROMS, strict=True))
    radius = np.hypot(y[:, None], x[None, :])
    step = ELECTRON / min(n * p for n, p in zip(window, ANGSTROMS, strict=True))
    inside, outside = radius < angle - step, radius > angle + step
    assert np.ptp(pattern[inside]) < 1e-12 * pattern.max()
    assert pattern[outside].max() < 1e-25
    area = math.pi * angle**2 / np.prod([ELECTRON / (n * p) for n, p in zip(window, ANGSTROMS, strict=True)])
    assert power(probe) / pattern.max() == pytest.approx(area, rel=0.03)


def test_a_soft_edge_is_as_wide_as_was_asked():
    window, angle, edge = (256, 256), 20e-3, 8e-3
    amplitude = np.abs(np.fft.fft2(electron_probe(window, (20e-12, 20e-12), ELECTRON, angle, edge=edge)))[0]
    radius = np.abs(ELECTRON * np.fft.fftfreq(256, 20e-12))
    expected = np.clip((angle + edge / 2 - radius) / edge, 0, 1)
    np.testing.assert_allclose(amplitude / amplitude[0], expected, atol=1e-12)
    assert np.count_nonzero((expected > 0) & (expected < 1)) > 20


@each("axis", [0, 1])
def test_a_sharp_edge_is_one_step_of_the_grid_wide_along_each_axis(axis):
    window, pixel, angle = (100, 400), (20e-12, 22e-12), 20e-3
    amplitude = np.abs(np.fft.fft2(electron_probe(window, pixel, ELECTRON, angle)))
    line, step = amplitude[:, 0] if axis == 0 else amplitude[0], ELECTRON / (window[axis] * pixel[axis])
    radius = np.abs(ELECTRON * np.fft.fftfreq(window[axis], pixel[axis]))
    np.testing.assert_allclose(line / line[0], np.clip((angle - radius) / step + 0.5, 0, 1), atol=1e-12)


@each("distance", [-12e-9, 15e-9])
def test_c10_is_a_sample_downstream_of_the_focus(distance):
    """Also says the sign: the same probe upstream is its complex conjugate, half as alike."""
    window, angle = (256, 255), 12e-3
    focus = electron_probe(window, ANGSTROMS, ELECTRON, angle, edge=3e-3)
    carried = propagate(focus, ANGSTROMS, ELECTRON, distance)
    defocused = electron_probe(window, ANGSTROMS, ELECTRON, angle, {"C10": distance}, edge=3e-3)
    opposite = electron_probe(window, ANGSTROMS, ELECTRON, angle, {"C10": -distance}, edge=3e-3)
    assert likeness(carried, defocused) > 0.9995
    np.testing.assert_allclose(carried, defocused, atol=0.02 * np.abs(defocused).max())
    assert likeness(carried, opposite) < 0.6


def test_underfocus_balances_spherical_aberration():
    """At Scherzer's defocus Δf = √(1.5 Cs λ), C10 = -Δf, the peak is far higher than without; at -Δf it is lower."""

    def peak(defocus):
        aberrations = {"C30": 1e-3, "C10": defocus}
        return np.abs(electron_probe((400, 400), (25e-12, 25e-12), ELECTRON, 10e-3, aberrations)).max()

    scherzer = math.sqrt(1.5 * 1e-3 * ELECTRON)
    assert peak(-scherzer) > 1.3 * peak(0.0) > 1.3 * peak(scherzer)


@each("azimuth", [0.0, 0.5, -1.1])
def test_astigmatism_makes_a_line_across_its_azimuth(azimuth):
    """C10 = -C12 leaves the direction of the azimuth in focus; x = C10 α across it, y being down."""
    size = 120e-9
    probe = electron_probe(
        (300, 300), (20e-12, 20e-12), ELECTRON, 15e-3, {"C10": -size / 4, "C12": (size / 4, azimuth)}
    )
    weight = np.abs(probe) ** 2
    y, x = coordinates((300, 300), (20e-12, 20e-12))
    along = np.array([[(weight * a * b).sum() for a in (x, y)] for b in (x, y)])
    (short, long), directions = np.linalg.eigh(along)
    angle = math.atan2(directions[1, 1], directions[0, 1])
    assert math.sin(angle - azimuth - math.pi / 2) == pytest.approx(0, abs=0.02)
    assert long > 5 * short
    # Rays of a uniform disc of angles: the mean square of one direction's angle is a quarter of the radius squared.
    assert long - short == pytest.approx((size / 2 * 15e-3) ** 2 / 4, rel=0.05)


@each(("name", "turns"), [("C34", 1), ("C12", 2), ("C32", 2)])
def test_probes_have_the_symmetry_of_their_aberration(name, turns):
    scale = {"C12": 20e-9, "C32": 60e-6, "C34": 60e-6}[name]
    probe = electron_probe((201, 201), (25e-12, 25e-12), ELECTRON, 18e-3, {"C10": 8e-9, name: (scale, 0.3)})
    for quarter in range(1, 4):
        same = np.abs(np.rot90(probe, quarter) - probe).max() < 1e-12
        assert same == (quarter % turns == 0)


def test_threefold_astigmatism_turns_by_a_third():
    """The field at a point is the one at the point turned by 120 degrees: by the Fourier series of the probe there."""
    window, pixel = (201, 201), (25e-12, 25e-12)
    probe = electron_probe(window, pixel, ELECTRON, 18e-3, {"C10": 3e-9, "C23": (400e-9, 0.2)})
    spectrum = np.fft.fft2(np.fft.ifftshift(probe)) / probe.size
    ky, kx = (np.fft.fftfreq(n, p) for n, p in zip(window, pixel, strict=True))

    def at(radius, angle):
        y, x = radius * np.sin(angle), radius * np.cos(angle)
        return np.exp(2j * np.pi * ky * y) @ spectrum @ np.exp(2j * np.pi * kx * x)

    values = np.array([[at(r, 0.5 + k * math.pi / 3) for k in range(6)] for r in (6e-11, 1.1e-10, 2e-10)])
    largest = np.abs(probe).max()
    np.testing.assert_allclose(values[:, ::2], np.repeat(values[:, :1], 3, 1), atol=0.02 * largest)
    np.testing.assert_allclose(values[:, 1::2], np.repeat(values[:, 1:2], 3, 1), atol=0.02 * largest)
    assert np.abs(values[:, 0] - values[:, 1]).max() > 0.1 * largest


@each("stop", [0.0, 0.3, 0.6])
def test_a_zone_plate_with_central_stop_has_the_side_lobes_of_a_ring(stop):
    window, pixel = (500, 512), (12e-9, 10e-9)
    probe = zone_plate_probe(window, pixel, XRAY, 200e-6, 60e-9, central_stop=stop * 200e-6)
    y, x = coordinates(window, pixel)
    v = math.pi / 60e-9 * np.hypot(y, x)
    expected = (airy(v) - stop**2 * airy(stop * v)) / (1 - stop**2)
    near = v < 30
    np.testing.assert_allclose((probe / probe[250, 256])[near], expected[near], atol=0.015)
    lobe = (np.abs(probe[250, 256:]) / np.abs(probe[250, 256])) ** 2
    ring = np.abs(expected[250, 256:]) ** 2
    first = slice(int(4 / (math.pi / 60e-9 * 10e-9)), int(6 / (math.pi / 60e-9 * 10e-9)))
    assert lobe[first].max() == pytest.approx(ring[first].max(), rel=0.05)


@each(("stop", "defocus"), [(0.0, 4e-4), (0.4, -4e-4), (0.4, 1.5e-3)])
def test_a_defocused_zone_plate_is_the_integral_over_its_pupil(stop, defocus):
    window, pixel, reach = (512, 500), (20e-9, 20e-9), 1 / (2 * 60e-9)
    probe = zone_plate_probe(window, pixel, XRAY, 200e-6, 60e-9, central_stop=stop * 200e-6, defocus=defocus)
    line = probe[256, 250:400]
    expected = radial_focus(np.arange(150) * 20e-9, reach, XRAY, defocus, stop * reach)
    # ∫|P|² d²r = π (reach² - stop²) in the pupil, and 1 / pixel area on the grid.
    expected *= 20e-9 / math.sqrt(math.pi * reach**2 * (1 - stop**2))
    np.testing.assert_allclose(line, expected, atol=0.02 * np.abs(expected).max())


def test_the_axis_of_a_ring_is_dark_first_at_8_dr_squared_over_its_area():
    """I(z) = sinc²(z λ ρ² (1 - ε²) / 2): the first zero at 8 Δr² / (λ (1 - ε²))."""
    zone, stop = 60e-9, 0.4
    zero = 8 * zone**2 / (XRAY * (1 - stop**2))

    def axial(defocus):
        probe = zone_plate_probe(
            (512, 512), (20e-9, 20e-9), XRAY, 200e-6, zone, central_stop=stop * 200e-6, defocus=defocus
        )
        return abs(probe[256, 256]) ** 2

    for part in (0.25, 0.5, 0.75, 1.0, 1.5):
        assert axial(part * zero) / axial(0) == pytest.approx(np.sinc(part) ** 2, abs=0.01)


def test_far_from_its_focus_a_zone_plate_with_stop_makes_a_doughnut():
    """Outer and inner diameters are those of zone plate and stop, times z / f."""
    window, pixel = (600, 600), (20e-9, 20e-9)
    diameter, zone, stop, defocus = 100e-6, 50e-9, 40e-6, 4e-3
    focal = diameter * zone / XRAY
    probe = zone_plate_probe(window, pixel, XRAY, diameter, zone, central_stop=stop, defocus=defocus)
    y, x = coordinates(window, pixel)
    radius, weight = np.hypot(y, x), np.abs(probe) ** 2
    outer, inner = (size / 2 * defocus / focal for size in (diameter, stop))
    ring = (radius > inner) & (radius < outer)
    assert weight[ring].sum() > 0.93
    assert weight[radius < 0.8 * inner].sum() < 0.02
    assert weight[radius > 1.15 * outer].sum() < 0.02
    # It opens downstream: phase grows with the radius there, exp(+iπ r² / λz).
    steps = np.angle(probe[300, 301:] * probe[300, 300:-1].conj())
    places = (np.arange(299) + 0.5) * pixel[1]
    bright = (places > 1.3 * inner) & (places < 0.85 * outer)
    np.testing.assert_allclose(
        steps[bright].mean(), (2 * math.pi * places[bright] * pixel[1] / (XRAY * defocus)).mean(), rtol=0.03
    )


def test_mirrors_focus_to_a_product_of_sincs():
    window, pixel, widths, lengths = (512, 500), NANOMETRES, (2e-4, 3e-4), (0.2, 0.25)
    probe = focused_probe(window, pixel, XRAY, widths, lengths)
    y, x = coordinates(window, pixel)
    expected = np.sinc(widths[0] * y / (XRAY * lengths[0])) * np.sinc(widths[1] * x / (XRAY * lengths[1]))
    near = (np.abs(y) < 2e-6) & (np.abs(x) < 2e-6)
    np.testing.assert_allclose((probe / probe[256, 250])[near], expected[near], atol=0.01)
    # Zeros at whole multiples of λ f / a = 100 nm along y: every fifth pixel.
    assert np.abs(probe[256 + np.array([5, 10, 15, 20]), 250]).max() < 0.002 * np.abs(probe).max()


@each("defocus", [(3e-4, 0.0), (-2e-4, 4e-4), 3e-4])
def test_defocused_mirrors_are_the_product_of_two_integrals(defocus):
    window, pixel, widths, lengths = (512, 500), NANOMETRES, (2e-4, 3e-4), (0.2, 0.25)
    probe = focused_probe(window, pixel, XRAY, widths, lengths, defocus=defocus)
    profiles = []
    for place, width, length, z in zip(
        coordinates(window, pixel),
        widths,
        lengths,
        defocus if isinstance(defocus, tuple) else (defocus, defocus),
        strict=True,
    ):
        reach = width / (2 * XRAY * length)
        f = (np.arange(4000) + 0.5) / 2000 * reach - reach
        waves = np.exp(2j * np.pi * place.reshape(-1, 1) * f - 1j * math.pi * XRAY * z * f**2)
        profiles.append(waves.mean(1) * math.sqrt(2 * reach))
    expected = profiles[0][:, None] * profiles[1][None, :] * math.sqrt(pixel[0] * pixel[1])
    near = tuple(slice(n // 2 - 80, n // 2 + 80) for n in window)
    np.testing.assert_allclose(probe[near], expected[near], atol=0.02 * np.abs(expected).max())


@each("number", [0.5, 1.0, 1.5, 2.0, 3.0, 4.0])
def test_the_axis_behind_a_pinhole_follows_its_fresnel_number(number):
    """I / I₀ = 4 sin²(π N / 2) with N = a² / λz: 4 for odd N, dark for even N."""
    window, pixel, radius = (500, 501), (30e-9, 30e-9), 2e-6
    distance = radius**2 / (XRAY * number)
    contact = pinhole_probe(window, pixel, XRAY, 2 * radius)
    carried = propagate(contact, pixel, XRAY, distance)
    found = abs(carried[250, 250] / contact[250, 250]) ** 2
    assert found == pytest.approx(4 * math.sin(math.pi * number / 2) ** 2, abs=0.06)
    probe = pinhole_probe(window, pixel, XRAY, 2 * radius, distance=distance)
    np.testing.assert_allclose(probe * math.sqrt(power(carried)), carried, atol=1e-14)


def test_a_pinhole_in_contact_is_a_disc_of_its_diameter():
    probe = pinhole_probe((128, 101), (20e-9, 30e-9), XRAY, 1.5e-6)
    y, x = coordinates((128, 101), (20e-9, 30e-9))
    radius, area = np.hypot(y, x), math.pi * 0.75e-6**2 / (20e-9 * 30e-9)
    np.testing.assert_allclose(probe[radius < 0.72e-6], area**-0.5, rtol=0.01)
    assert np.abs(probe[radius > 0.78e-6]).max() < 1e-12


def test_a_pinhole_with_a_soft_edge():
    probe = pinhole_probe((128, 128), (20e-9, 20e-9), XRAY, 1.2e-6, edge=400e-9)
    radius = np.abs(np.arange(128) - 64) * 20e-9
    expected = np.clip((0.6e-6 + 0.2e-6 - radius) / 0.4e-6, 0, 1)
    np.testing.assert_allclose(probe[64] / probe[64, 64], expected, atol=1e-12)


def test_far_behind_a_pinhole_is_the_airy_pattern():
    window, pixel, diameter, distance = (520, 520), (60e-9, 60e-9), 1e-6, 0.06
    probe = pinhole_probe(window, pixel, XRAY, diameter, distance=distance)
    y, x = coordinates(window, pixel)
    v = math.pi * diameter * np.hypot(y, x) / (XRAY * distance)
    near = v < 6
    # Fresnel number 0.04; pixels make the pinhole's edge 6% wide.
    np.testing.assert_allclose(np.abs(probe / probe[260, 260])[near], np.abs(airy(v))[near], atol=0.03)


def gaussian(square, along, waist):
    """A Gaussian beam's field at y² + x² [m²], without the carrier exp(ikz)."""
    parameter = 1 + 1j * along * XRAY / (math.pi * waist**2)
    return np.exp(-square / (waist**2 * parameter)) / parameter


@each("window", [(128, 128), (129, 150)])
@each("distance", [-4e-3, 0.0, 6e-3])
def test_propagation_spreads_a_gaussian_beam_as_its_closed_form(window, distance):
    y, x = coordinates(window, NANOMETRES)
    square = y**2 + x**2
    begin = gaussian(square, 0.0, 300e-9)
    found = propagate(np.stack([begin, 2j * begin]), NANOMETRES, XRAY, distance)
    expected = gaussian(square, distance, 300e-9)
    np.testing.assert_allclose(found[0], expected, atol=2e-4)
    np.testing.assert_allclose(found[1], 2j * expected, atol=4e-4)


def test_propagation_there_and_back_and_in_two_steps():
    y, x = coordinates((200, 180), NANOMETRES)
    begin = gaussian((y - 2e-7) ** 2 + x**2, 0.0, 200e-9) * np.exp(2j * np.pi * y * 5e5)
    there = propagate(begin, NANOMETRES, XRAY, 1e-3)
    np.testing.assert_allclose(propagate(there, NANOMETRES, XRAY, -1e-3), begin, atol=1e-4)
    np.testing.assert_allclose(
        propagate(there, NANOMETRES, XRAY, 2e-3), propagate(begin, NANOMETRES, XRAY, 3e-3), atol=1e-4
    )
    weight = np.abs(there) ** 2
    # exp(+2πi f y) goes towards +y: by λ f z = 50 nm.
    assert (weight * y).sum() / weight.sum() == pytest.approx(2e-7 + XRAY * 5e5 * 1e-3, rel=1e-4)


def test_what_leaves_the_window_does_not_come_back():
    """The window is so small that 4% leave it; in the large one nothing does, and the common part is the same."""
    pixel, distance, waist = (20e-9, 20e-9), 25e-3, 0.6e-6
    fields = []
    for window in ((172, 172), (600, 600)):
        y, x = coordinates(window, pixel)
        fields.append(propagate(gaussian(y**2 + x**2, 0.0, waist), pixel, XRAY, distance))
    small, large = fields
    assert 0.95 < power(small) / power(large) < 0.97
    np.testing.assert_allclose(small, large[214:386, 214:386], atol=0.02 * np.abs(large).max())


def test_propagation_is_exact_at_large_angles_and_removes_evanescent_waves():
    """Rays of sine 0.6 turn by cos - 1 = -0.2 of each wavelength, where Fresnel's law has -0.18.

    Around them √(1/λ² - f²) is curved by λ / cos³ along y and λ / cos along x: the middle of a Gaussian beam is known.
    """
    pixel, wavelength, side, waist, distance = (100e-9, 100e-9), 500e-9, 300, 3.5e-6, 4e-6
    y, x = coordinates((side, side), pixel)
    envelope = np.exp(-(y**2 + x**2) / waist**2)
    beam = envelope * np.exp(2j * np.pi * y * 0.6 / wavelength)
    moved = propagate(beam, pixel, wavelength, distance)
    place = 150 + round(distance * 0.75 / 100e-9)
    carrier = np.exp(2j * np.pi * (0.6 * distance * 0.75 + distance * (0.8 - 1)) / wavelength)
    spread = [1 + 1j * distance * wavelength / (math.pi * waist**2 * 0.8**power) for power in (3, 1)]
    expected = carrier / np.sqrt(spread[0]) / np.sqrt(spread[1])
    assert abs(moved[place, 150] - expected) < 2e-3
    dying = beam + 0.5 * envelope * np.exp(2j * np.pi * x * 1.6 / wavelength)
    np.testing.assert_allclose(propagate(dying, pixel, wavelength, distance), moved, atol=1e-6)
    np.testing.assert_allclose(propagate(dying, pixel, wavelength, 0.0), beam, atol=1e-6)


def message_of(make, code, *facts):
    with raises(code, *facts) as caught:
        make()
    return str(caught.value)


MIRROR = {"aperture": (2e-4, 3e-4), "focal_length": (0.2, 0.25)}
BAD = [0.0, -1.0, math.nan, math.inf]


@each("value", BAD)
@each(
    ("name", "unit", "make"),
    [
        ("pixel size", "m", lambda v: electron_probe((64, 64), (2e-11, v), ELECTRON, 0.02)),
        ("wavelength", "m", lambda v: electron_probe((64, 64), ANGSTROMS, v, 0.02)),
        ("convergence angle", "rad", lambda v: electron_probe((64, 64), ANGSTROMS, ELECTRON, v)),
        ("pixel size", "m", lambda v: zone_plate_probe((64, 64), (v, 2e-8), XRAY, 1e-4, 6e-8)),
        ("diameter of the zone plate", "m", lambda v: zone_plate_probe((64, 64), NANOMETRES, XRAY, v, 6e-8)),
        ("width of the outermost zone", "m", lambda v: zone_plate_probe((64, 64), NANOMETRES, XRAY, 1e-4, v)),
        ("wavelength", "m", lambda v: focused_probe((64, 64), NANOMETRES, v, **MIRROR)),
        ("width of the aperture", "m", lambda v: focused_probe((64, 64), NANOMETRES, XRAY, (1e-4, v), (0.2, 0.2))),
        ("focal length", "m", lambda v: focused_probe((64, 64), NANOMETRES, XRAY, (1e-4, 1e-4), (v, 0.2))),
        ("diameter of the pinhole", "m", lambda v: pinhole_probe((64, 64), NANOMETRES, XRAY, v)),
        ("pixel size", "m", lambda v: pinhole_probe((64, 64), (v, v), XRAY, 1e-6)),
        ("wavelength", "m", lambda v: propagate(np.ones((8, 8)), NANOMETRES, v, 1e-3)),
    ],
)
def test_a_value_that_is_not_positive_is_refused(value, name, unit, make):
    message_of(lambda: make(value), "argument.invalid-value", f"{name} is {value!r} {unit}; expected a positive")


@each(
    ("name", "least", "make"),
    [
        ("edge is {} rad", "0", lambda v: electron_probe((64, 64), ANGSTROMS, ELECTRON, 0.02, edge=v)),
        ("edge is {} m", "0", lambda v: pinhole_probe((64, 64), NANOMETRES, XRAY, 1e-6, edge=v)),
        (
            "distance from the pinhole is {} m",
            "0",
            lambda v: pinhole_probe((64, 64), NANOMETRES, XRAY, 1e-6, distance=v),
        ),
        ("defocus is {} m", "", lambda v: zone_plate_probe((64, 64), NANOMETRES, XRAY, 1e-4, 6e-8, defocus=v)),
        ("defocus is {} m", "", lambda v: focused_probe((64, 64), NANOMETRES, XRAY, **MIRROR, defocus=v)),
        ("defocus is {} m", "", lambda v: focused_probe((64, 64), NANOMETRES, XRAY, **MIRROR, defocus=(0.0, v))),
        ("distance is {} m", "", lambda v: propagate(np.ones((8, 8)), NANOMETRES, XRAY, v)),
    ],
)
def test_a_length_that_is_negative_or_not_finite_is_refused(name, least, make):
    for value in (math.nan, math.inf, *((-1e-9,) if least else ())):
        message_of(lambda value=value: make(value), "argument.invalid-value", name.format(repr(value)), "finite")


@each(
    ("make", "code", "facts"),
    [
        (
            lambda: electron_probe((200, 200), (40e-12, 20e-12), ELECTRON, 0.03),
            "probe.pixels-too-large",
            ["0.03 rad along y", "200 pixels of 4e-11 m", "0.0244 rad", "at most 3.24e-11 m"],
        ),
        (
            lambda: electron_probe((200, 200), (20e-12, 20e-12), ELECTRON, 0.045, edge=0.02),
            "probe.pixels-too-large",
            ["0.055 rad along y", "200 pixels of 2e-11 m", "0.0487 rad", "at most 1.77e-11 m"],
        ),
        (
            lambda: zone_plate_probe((200, 200), (1e-11, 1e-11), XRAY, 1e-4, 4e-11),
            "argument.invalid-value",
            ["1.25 along y"],
        ),
        (
            lambda: zone_plate_probe((64, 64), NANOMETRES, XRAY, 1e-4, 6e-8, central_stop=-1e-6),
            "argument.invalid-value",
            ["central stop is -1e-06 m", "zone plate 0.0001 m"],
        ),
        (
            lambda: pinhole_probe((64, 64), NANOMETRES, XRAY, 40e-9),
            "probe.pixels-too-large",
            ["4e-08 m", "2.5e-08 m", "at most 2e-08 m"],
        ),
    ],
)
def test_what_makes_no_sense_is_refused(make, code, facts):
    message_of(make, code, *facts)


@each(
    ("make", "fact"),
    [
        (lambda w: electron_probe(w, (20e-12, 22e-12), ELECTRON, 0.02, {"C10": 100e-9, "C50": 0.1}), "aberrations"),
        (lambda w: zone_plate_probe(w, (20e-9, 20e-9), XRAY, 200e-6, 60e-9, defocus=-3e-3), "defocus"),
        (lambda w: focused_probe(w, NANOMETRES, XRAY, **MIRROR, defocus=(1e-4, 4e-3)), "defocus"),
        (lambda w: pinhole_probe(w, NANOMETRES, XRAY, 1e-6, distance=0.02), "Over 0.02 m, 60%"),
    ],
)
def test_a_window_that_is_too_small_is_refused_and_the_one_advised_does(make, fact):
    message = message_of(lambda: make((64, 60)), "probe.window-too-small", fact, "64 x 60")
    advised = re.search(r"use (?:at least|one of) (\d+) x (\d+)", message)
    assert advised, message
    window = (int(advised[1]), int(advised[2]))
    assert power(make(window)) == pytest.approx(1)
    message_of(lambda: make((window[0] // 2, window[1] // 2)), "probe.window-too-small")


def test_the_window_advised_counts_where_the_light_begins_and_how_far_it_goes():
    """A beam 2 µm wide that walks 1.5 µm along y out of a window of 4 µm."""

    def carried(window):
        y, x = coordinates(window, (20e-9, 20e-9))
        beam = np.exp(-(y**2 + x**2) / (1e-6) ** 2 + 2j * np.pi * y * 3e6)
        return propagate(beam, (20e-9, 20e-9), XRAY, 5e-3)

    message = message_of(lambda: carried((200, 200)), "probe.window-too-small")
    advised = re.search(r"use one of (\d+) x (\d+), or larger", message)
    assert advised, message
    height, width = int(advised[1]), int(advised[2])
    assert (width, height) == (200, pytest.approx(2 * 2.6e-6 / 20e-9, rel=0.1))
    assert power(carried((height, width))) > 0.95 * math.pi / 2 * (1e-6 / 20e-9) ** 2


@each("side", [63, 64, 200])
def test_the_pixel_that_is_advised_does(side):
    def make(size):
        return electron_probe((side, side), (size, size), ELECTRON, 0.0213)

    advised = re.search(r"at most (\S+) m\.", message_of(lambda: make(60e-12), "probe.pixels-too-large"))
    assert advised
    assert power(make(float(advised[1]))) == pytest.approx(1)
    message_of(lambda: make(1.01 * float(advised[1])), "probe.pixels-too-large")
