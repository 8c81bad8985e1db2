"""Tilted planes, against sums over point sources in space, and against a Gaussian beam's closed form."""

import dataclasses
import math

import numpy as np
import pytest
import torch

import ptynb as pt
from ptynb.data.tilted_geometry import Tilted, conjugate_basis, mirror_normal, positions_on_sample
from ptynb.physics.hotpath import moved_probes
from ptynb.physics.propagation import angular_spectrum_kernel, far_field, propagate
from ptynb.physics.tilted_detector import (
    far_field_resampling,
    probe_on_sample,
    probe_resampling,
    tilted_far_field,
    tilted_kernel,
)
from tests.parametrization import each
from tests.raising import raises

WAVELENGTH = 1e-9
Y, X, Z = np.eye(3)[1], np.eye(3)[0], np.eye(3)[2]
FACING = np.stack([Y, X], 1)
WINDOWS = [(16, 16), (15, 18)]


def rotation(axis, angle):
    """Rotation matrix about a unit vector (Rodrigues)."""
    across = np.cross(np.eye(3), axis)
    return np.eye(3) - math.sin(angle) * across + (1 - math.cos(angle)) * across @ across


def turned(axis, degrees):
    return rotation(axis, math.radians(degrees))


def setup(window, name, distance=4.0, aperture=0.06):
    """A detector that spans `aperture` [rad] to each side, and a sample at some angle."""
    pixel = 2 * aperture * distance / max(window)
    beam, outgoing = Z, None
    if name == "facing":
        normal, detector, centre = Z, FACING, Z
    elif name == "sample tilted":
        normal, detector, centre = turned(X, 35) @ Z, FACING, Z
    elif name == "detector tilted":
        normal, detector, centre = Z, turned(Y, -25) @ FACING, Z
    elif name == "mirror":
        turn = turned(Y, 70)
        detector, centre = turn @ FACING, turn @ Z
        normal = mirror_normal(beam, centre)
    else:
        turn = turned(X, -50) @ turned(Y, 20)
        detector, centre = turn @ turned(X, 10) @ FACING, turn @ Z
        normal, beam = turned(Y, 15) @ mirror_normal(Z, centre), Z
        outgoing = turned(X, 0.6) @ centre
    basis = conjugate_basis(window, WAVELENGTH, pixel * detector, distance * centre, normal)
    return Tilted(
        wavelength=WAVELENGTH,
        sample_basis=basis,
        detector_basis=pixel * detector,
        detector_centre=distance * centre,
        beam=beam,
        outgoing=outgoing,
    )


NAMES = ["facing", "sample tilted", "detector tilted", "mirror", "asymmetric"]


def random_waves(window, *batch):
    random = np.random.default_rng(2)
    waves = random.normal(size=(*batch, *window)) + 1j * random.normal(size=(*batch, *window))
    return waves * np.outer(*(np.hanning(n + 2)[1:-1] for n in window))


def counts_from_point_sources(wave, geometry, outgoing):
    """Rayleigh's and Sommerfeld's first integral at each pixel's place in space, power through the pixel's area."""
    window, basis = wave.shape, geometry.sample_basis
    j = [np.arange(n) - n // 2 for n in window]
    sources = (j[0][:, None, None] * basis[:, 0] + j[1][None, :, None] * basis[:, 1]).reshape(-1, 3)
    area_vector = np.cross(basis[:, 0], basis[:, 1])
    area = np.linalg.norm(area_vector)
    normal = area_vector / area * np.sign(area_vector @ outgoing)
    strength = wave.reshape(-1) * np.exp(2j * np.pi / geometry.wavelength * (sources @ outgoing))
    detector_area = np.cross(geometry.detector_basis[:, 0], geometry.detector_basis[:, 1])
    counts = np.zeros(window)
    for row in range(window[0]):
        for column in range(window[1]):
            place = geometry.detector_centre + geometry.detector_basis @ [j[0][row], j[1][column]]
            way = place - sources
            length = np.linalg.norm(way, axis=1)
            far = np.linalg.norm(place)
            # The common phase goes first: 10¹⁰ radians leave few digits.
            phase = np.exp(2j * np.pi / geometry.wavelength * (length - far))
            wave_there = (strength * phase / length * (way @ normal) / length).sum() * area / geometry.wavelength
            counts[row, column] = abs(wave_there) ** 2 * abs(place @ detector_area) / far
    return np.fft.ifftshift(counts / (area * (normal @ outgoing)))


@each("window", WINDOWS)
@each("name", NAMES)
def test_the_far_field_is_that_of_point_sources_in_space(name, window):
    geometry = setup(window, name)
    wave = random_waves(window)
    points = far_field_resampling(window, geometry, dtype=torch.complex128)
    seen = points.covered.numpy()
    assert seen.mean() > 0.8
    outgoing = geometry.detector_centre / np.linalg.norm(geometry.detector_centre)
    if geometry.outgoing is not None:
        outgoing = geometry.outgoing
    found = tilted_far_field(torch.from_numpy(wave), points).abs().square().numpy()
    expected = counts_from_point_sources(wave, geometry, outgoing)
    assert np.abs(found - expected)[seen].max() < 2e-5 * expected.max()
    assert (found[~seen] == 0).all()
    if name != "facing":
        plain = np.abs(np.fft.fft2(wave, norm="ortho")) ** 2
        assert np.abs(plain - expected)[seen].max() > 0.03 * expected.max()


@each("window", WINDOWS)
@each("name", ["facing", "sample tilted", "mirror", "asymmetric"])
def test_small_angles_on_the_conjugate_basis_are_the_plain_far_field(name, window):
    waves = torch.from_numpy(random_waves(window, 2))
    expected = far_field(waves)
    for curved, aperture in ((False, 0.06), (True, 1e-8)):
        geometry = dataclasses.replace(setup(window, name, aperture=aperture), outgoing=None)
        points = far_field_resampling(window, geometry, curved=curved, dtype=torch.complex128)
        assert points.covered.numpy().mean() > 0.85
        difference = (tilted_far_field(waves, points) - expected)[..., points.covered]
        assert difference.abs().max() < 1e-5 * expected.abs().max()


def test_counts_are_kept_where_the_detector_catches_all():
    window = (32, 32)
    geometry = setup(window, "mirror", aperture=0.05)
    y, x = (np.arange(n) - n // 2 for n in window)
    wave = np.exp(-(y[:, None] ** 2 + x[None, :] ** 2) / 2.5**2)
    points = far_field_resampling(window, geometry, dtype=torch.complex128)
    counts = tilted_far_field(torch.from_numpy(wave + 0j), points).abs().square().sum().item()
    assert counts == pytest.approx((wave**2).sum(), rel=2e-3)


def test_conjugate_bases_of_known_geometries():
    window, pixel, distance = (64, 100), 1e-4, 2.0
    expected = WAVELENGTH * distance / (np.array(window) * pixel)
    facing = conjugate_basis(window, WAVELENGTH, pixel * FACING, distance * Z, Z)
    np.testing.assert_allclose(facing, FACING * expected, atol=1e-18)
    turn = turned(Y, 2 * 15)
    mirror = conjugate_basis(window, WAVELENGTH, pixel * turn @ FACING, distance * turn @ Z, mirror_normal(Z, turn @ Z))
    lengths = np.linalg.norm(mirror, axis=0)
    np.testing.assert_allclose(lengths, expected / np.array([1, math.sin(math.radians(15))]))
    np.testing.assert_allclose(mirror.T @ mirror_normal(Z, turn @ Z), 0, atol=1e-18)


def test_a_mirrors_normal_turns_the_beam_into_the_outgoing_one():
    outgoing = turned(X, 40) @ turned(Y, 13) @ Z
    normal = mirror_normal(Z, outgoing)
    np.testing.assert_allclose(Z - 2 * (Z @ normal) * normal, outgoing, atol=1e-14)
    assert normal @ outgoing > 0


def gaussian_beam(places, beam, waist):
    """A strongly focused Gaussian beam through 0, without its carrier, at places (…, 3): its plane waves, summed."""
    side = np.linspace(-0.4, 0.4, 33) / WAVELENGTH
    across = [np.linalg.svd(beam[None])[2][row] for row in (1, 2)]
    y, x = (grid.reshape(-1) for grid in np.meshgrid(side, side))
    weight = np.exp(-((math.pi * waist) ** 2) * (y**2 + x**2)) * math.pi * (waist * (side[1] - side[0])) ** 2
    lag = np.sqrt(WAVELENGTH**-2 - y**2 - x**2) - 1 / WAVELENGTH
    waves = y[:, None] * across[0] + x[:, None] * across[1] + lag[:, None] * beam
    strong = weight > 1e-8 * weight.max()
    return np.exp(2j * np.pi * places @ waves[strong].T) @ weight[strong]


def sample_places(window, basis):
    y, x = (np.arange(n) - n // 2 for n in window)
    return y[:, None, None] * basis[:, 0] + x[None, :, None] * basis[:, 1]


WAIST = 3 * WAVELENGTH


def inclined(degrees, beam=Z):
    """A sample whose normal leans by so much, with pixels of a wavelength or so."""
    basis = turned(np.array([0.6, 0.8, 0.0]), degrees) @ FACING
    basis = WAVELENGTH * (basis @ np.array([[1.0, 0.1], [0.0, 1.2]]))
    return Tilted(wavelength=WAVELENGTH, sample_basis=basis, detector_basis=1e-4 * FACING, detector_centre=Z, beam=beam)


@each("degrees", [0, 20, 45, 130])
def test_a_focused_beam_on_an_inclined_sample_is_the_sum_of_its_plane_waves(degrees):
    window, geometry, focus = (41, 36), inclined(degrees), -1e-8 * Z
    places = sample_places(window, geometry.sample_basis) - focus
    facing = places - ((places + focus) @ Z)[..., None] * Z
    probe = torch.from_numpy(gaussian_beam(facing, Z, WAIST))
    points = probe_resampling(window, geometry, dtype=torch.complex128)
    kernel = tilted_kernel(window, geometry, torch.tensor([0.0, 1e-8, -2e-8], dtype=torch.float64))
    found = propagate(probe_on_sample(probe, points), kernel).numpy()
    for distance, wave in zip((0.0, 1e-8, -2e-8), found, strict=True):
        np.testing.assert_allclose(wave, gaussian_beam(places + distance * Z, Z, WAIST), atol=5e-4)
    if degrees:
        assert np.abs(found[0] - probe.numpy()).max() > 0.008


def test_a_beam_moved_in_space_is_moved_and_carried_on_along_the_sample():
    window, geometry = (40, 36), inclined(40)
    moves = 1e-9 * np.array([[3.2, -2.5, 0.0], [-4.0, 1.7, 12.0]])
    pixels, distances = positions_on_sample(geometry, moves)
    met = moves + distances[:, None] * geometry.beam
    np.testing.assert_allclose(pixels @ geometry.sample_basis.T, met, atol=1e-20)
    assert np.abs(distances).min() > 1e-9
    places = sample_places(window, geometry.sample_basis)
    probe = probe_on_sample(
        torch.from_numpy(gaussian_beam(places - (places @ Z)[..., None] * Z, Z, WAIST)),
        probe_resampling(window, geometry, dtype=torch.complex128),
    )
    carried = propagate(probe, tilted_kernel(window, geometry, torch.from_numpy(distances)))
    found = moved_probes(carried[:, None], torch.from_numpy(pixels))[:, 0]
    for wave, move in zip(found.numpy(), moves, strict=True):
        np.testing.assert_allclose(wave, gaussian_beam(places - move, Z, WAIST), atol=5e-4)


def test_scans_within_the_sample_need_no_propagation():
    geometry = inclined(25)
    pixels = np.array([[1.5, -2.0], [0.0, 7.25]])
    found, distances = positions_on_sample(geometry, pixels @ geometry.sample_basis.T)
    np.testing.assert_allclose(found, pixels, atol=1e-12)
    np.testing.assert_allclose(distances, 0, atol=1e-22)


def test_on_a_facing_sample_all_is_as_in_free_space():
    basis = FACING * np.array([3e-10, 8e-10])
    geometry = Tilted(
        wavelength=WAVELENGTH, sample_basis=basis, detector_basis=1e-4 * FACING, detector_centre=Z, beam=-Z
    )
    found = tilted_kernel((9, 12), geometry, 2e-8)
    torch.testing.assert_close(found, angular_spectrum_kernel((9, 12), (3e-10, 8e-10), WAVELENGTH, 2e-8))
    assert (found == 0).any()
    waves = torch.from_numpy(random_waves((9, 12)))
    points = probe_resampling((9, 12), geometry, dtype=torch.complex128)
    torch.testing.assert_close(points.covered, found != 0)
    expected = propagate(waves, (found != 0).to(waves))
    torch.testing.assert_close(probe_on_sample(waves, points), expected, rtol=0, atol=3e-5)


def test_gradients():
    geometry, window = inclined(35), (4, 5)
    waves = torch.from_numpy(random_waves(window, 2)).requires_grad_()
    onto, away = (
        points(window, geometry, dtype=torch.complex128) for points in (probe_resampling, far_field_resampling)
    )

    def counts(waves, distances):
        probes = propagate(probe_on_sample(waves, onto), tilted_kernel(window, geometry, 1e-9 * distances))
        return tilted_far_field(probes, away).abs().square() + far_field(probes).real

    distances = torch.tensor([1.3, -2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(counts, (waves, distances), fast_mode=True)


def test_single_precision_is_that_of_double():
    geometry = setup((16, 16), "asymmetric")
    waves = torch.from_numpy(random_waves((16, 16), 2, 3))
    exact = tilted_far_field(waves, far_field_resampling((16, 16), geometry, dtype=torch.complex128))
    single = tilted_far_field(waves.to(torch.complex64), far_field_resampling((16, 16), geometry))
    assert single.dtype == torch.complex64
    assert single.shape == (2, 3, 16, 16)
    torch.testing.assert_close(single.to(torch.complex128), exact, rtol=1e-4, atol=1e-5)


def test_a_detector_that_reaches_behind_the_sample_sees_nothing_there():
    geometry = Tilted(
        wavelength=WAVELENGTH,
        sample_basis=1e-10 * FACING,
        detector_basis=np.stack([0.1 * Z, 0.1 * X], 1),
        detector_centre=np.array([0.0, 1.0, 0.05]),
        beam=Z,
    )
    points = far_field_resampling((8, 8), geometry, dtype=torch.complex128)
    heights = np.fft.fftfreq(8, 1 / 8) * 0.1 + 0.05
    np.testing.assert_array_equal(points.covered.numpy().any(1), heights > 0)
    values = tilted_far_field(torch.from_numpy(random_waves((8, 8))), points)
    assert torch.isfinite(values.abs()).all()
    assert (values[~points.covered] == 0).all()


def test_a_sample_that_is_no_mirror_has_its_own_normal_as_the_message_says():
    steps = (tuple(1e-4 * Y), tuple(1e-4 * X))
    given = {"wavelength": 1e-9, "detector_steps": steps, "detector_centre": (0.0, 0.0, 2.0), "beam": (0.0, 0.0, 1.0)}
    with raises("geometry.degenerate", "give the normal of the sample (sample_normal)"):
        pt.TiltedGeometry(**given)
    facing = pt.TiltedGeometry(**given, sample_normal=(0.0, 0.0, 1.0))
    assert facing.object_pixel((16, 16)) == pytest.approx((1e-9 * 2 / (16 * 1e-4),) * 2)


def tilted_with(**changes):
    given = {
        "wavelength": 1e-9,
        "sample_basis": 1e-8 * FACING,
        "detector_basis": 1e-4 * FACING,
        "detector_centre": Z,
        "beam": Z,
    }
    return Tilted(**(given | changes))


@each(
    ("call", "code", "fact"),
    [
        (lambda: tilted_with(wavelength=0.0), "argument.invalid-value", "0.0 m"),
        (lambda: tilted_with(sample_basis=np.eye(3)), "array.shape-mismatch", "sample_basis has shape (3, 3)"),
        (lambda: tilted_with(detector_basis=np.stack([X, X], 1)), "geometry.degenerate", "detector_basis"),
        (lambda: tilted_with(detector_centre=0 * Z), "geometry.degenerate", "detector_centre is (0, 0, 0)"),
        (lambda: tilted_with(detector_centre=np.ones(2)), "array.shape-mismatch", "detector_centre"),
        (lambda: tilted_with(beam=2 * Z), "argument.invalid-value", "beam is a vector of length 2"),
        (lambda: tilted_with(beam=X), "geometry.degenerate", "beam lies in the sample plane"),
        (lambda: tilted_with(outgoing=Y), "geometry.degenerate", "outgoing lies in the sample plane"),
        (lambda: tilted_with(detector_centre=Y), "geometry.degenerate", "outgoing lies in the sample plane"),
        (lambda: conjugate_basis((8, 8), 1e-9, FACING, Z, X), "geometry.degenerate", "edge on"),
        (lambda: conjugate_basis((8, 8), 1e-9, FACING, X, Z), "geometry.degenerate", "edge on"),
        (lambda: mirror_normal(Z, Z), "geometry.degenerate", "parallel"),
        (lambda: positions_on_sample(tilted_with(), np.zeros((4, 2))), "array.shape-mismatch", (4, 2)),
    ],
)
def test_what_does_not_fit_is_refused(call, code, fact):
    with raises(code, fact):
        call()
