import dataclasses
import math

import numpy as np
import pytest

from ptynb import preparation as prepare
from ptynb.data.geometry import Geometry
from ptynb.data.patterns import ArrayFrames
from ptynb.data.scan import Scan
from tests.parametrization import each
from tests.preparation.scans import FAR, NEAR, smooth_scan
from tests.raising import raises


def disc_pattern(window, centre, radius, softness=0.0, fine=8):
    """A disc of height 1 over the areas of pixels; `centre` (y, x) from index n // 2."""
    y, x = (
        ((np.arange(side * fine) + 0.5) / fine - 0.5 - side // 2 - at) for side, at in zip(window, centre, strict=True)
    )
    away = np.hypot(y[:, None], x[None, :]) - radius
    heights = (away < 0).astype(float) if softness == 0 else 1 / (1 + np.exp(away / softness))
    return heights.reshape(window[0], fine, window[1], fine).mean((1, 3))


def disc_scan(window=(64, 63), centre=(1.3, -2.6), radius=11.37, *, noise=None, tail=0.0, centred=True, **changes):
    pattern = 200 * disc_pattern(window, centre, radius, **changes)
    y, x = np.meshgrid(*(np.arange(side) - side // 2 for side in window), indexing="ij")
    pattern += 200 * tail * np.exp(-np.hypot(y, x) / 15)
    patterns = np.broadcast_to(pattern, (20, *window)).copy()
    if noise is not None:
        patterns = np.random.default_rng(noise).poisson(patterns).astype(float)
    if not centred:
        patterns = np.fft.ifftshift(patterns, axes=(1, 2))
    return Scan(frames=ArrayFrames.of(patterns), positions=np.zeros((20, 2)), centred=centred)


CASES = {
    "plain": {},
    "small": {"radius": 3.3},
    "large": {"radius": 26.21, "centre": (0.2, 0.45)},
    "odd and even": {"window": (63, 64), "centre": (-3.77, 0.5)},
    "FFT order": {"centred": False},
    "noise": {"noise": 4},
    "soft edge": {"softness": 0.8},
}


@each("name", CASES)
def test_radius_and_centre_are_found_to_a_tenth_of_a_pixel(name):
    case = CASES[name]
    found = prepare.bright_field_disc(disc_scan(**case))
    assert found.radius == pytest.approx(case.get("radius", 11.37), abs=0.1)
    assert found.centre == pytest.approx(case.get("centre", (1.3, -2.6)), abs=0.1)


def test_scattering_around_the_disc_moves_it_little():
    found = prepare.bright_field_disc(disc_scan(tail=0.05, noise=1))
    assert found.radius == pytest.approx(11.37, abs=0.15)


def test_bad_pixels_are_left_out():
    scan = disc_scan()
    patterns = scan.frames.array.copy()
    mask = np.ones(scan.pattern_shape, bool)
    mask[32:, 28:31] = False  # a beam stop on its holder, across the edge
    mask[20:24, 36] = False
    patterns[:, ~mask] = math.nan
    patterns[:, 23, 36] = 1e9
    found = prepare.bright_field_disc(dataclasses.replace(scan, frames=ArrayFrames.of(patterns), mask=mask))
    assert found.radius == pytest.approx(11.37, abs=0.1)
    assert found.centre == pytest.approx((1.3, -2.6), abs=0.1)


def test_a_large_beam_stop_leaves_its_edge():
    y, x = np.mgrid[-32:32, -31:32]
    scan = dataclasses.replace(disc_scan(), mask=np.hypot(y - 1.3, x + 2.6) > 9)
    found = prepare.bright_field_disc(scan)
    assert found.radius == pytest.approx(11.37, abs=0.1)
    assert found.centre == pytest.approx((1.3, -2.6), abs=0.1)


def test_a_dead_line_across_the_edge_counts_little():
    scan = disc_scan()
    patterns = scan.frames.array.copy()
    patterns[:, 36:39, 15:23] = 0
    found = prepare.bright_field_disc(dataclasses.replace(scan, frames=ArrayFrames.of(patterns)))
    assert found.radius == pytest.approx(11.37, abs=0.1)
    assert found.centre == pytest.approx((1.3, -2.6), abs=0.1)


def test_a_calibrated_disc_has_the_convergence_angle():
    scan = disc_scan()
    radius = prepare.bright_field_disc(scan).radius
    made = prepare.calibrate_from_disc(scan, 0.02, wavelength=2e-12)
    assert made.geometry == Geometry(wavelength=2e-12, distance=1.0, detector_pixel=(0.02 / radius, 0.02 / radius))
    np.testing.assert_array_equal(made.positions, scan.positions)
    # Twice the radius lies 2 α / λ from one edge to the other in frequency: so many object pixels make a period.
    assert made.pixel_size[0] == pytest.approx(2e-12 / 0.02 * radius / 64)
    assert made.pixel_size[1] == pytest.approx(2e-12 / 0.02 * radius / 63)


def test_positions_stay_where_they_are_in_metres():
    positions = np.random.default_rng(0).uniform(0, 9, (20, 2))
    scan = dataclasses.replace(disc_scan(), geometry=FAR, positions=positions, motion=positions / 2)
    made = prepare.calibrate_from_disc(scan, 0.0006)
    assert made.geometry.distance == FAR.distance
    assert made.geometry.wavelength == FAR.wavelength
    assert made.geometry.detector_pixel[0] / FAR.distance * 11.37 == pytest.approx(0.0006, rel=0.01)

    def metres(scan):
        return (scan.positions + np.array(scan.pattern_shape) // 2) * scan.pixel_size

    np.testing.assert_allclose(metres(made), metres(scan), rtol=1e-12)
    np.testing.assert_allclose(made.motion * made.pixel_size, scan.motion * scan.pixel_size, rtol=1e-12)
    assert prepare.calibrate_from_disc(scan, 0.0006, wavelength=2e-10).geometry.wavelength == 2e-10


def flat_scan():
    return dataclasses.replace(disc_scan(), frames=ArrayFrames.of(np.ones((20, 64, 63))))


REFUSED = {
    "near field": (lambda: prepare.bright_field_disc(smooth_scan(geometry=NEAR)), "scan.near-field"),
    "flat": (lambda: prepare.bright_field_disc(flat_scan()), "scan.no-bright-field-disc", "4032", "up to its edge"),
    "tiny": (lambda: prepare.bright_field_disc(disc_scan(radius=1.5)), "scan.no-bright-field-disc", "at least 2"),
    "hidden edge": (
        lambda: prepare.bright_field_disc(dataclasses.replace(disc_scan(), mask=ring_mask())),
        "scan.no-bright-field-disc",
        "360 rays",
    ),
    "no wavelength": (lambda: prepare.calibrate_from_disc(disc_scan(), 0.02), "argument.missing", "wavelength=... [m]"),
    "no angle": (
        lambda: prepare.calibrate_from_disc(disc_scan(), 0.0, 2e-12),
        "argument.invalid-value",
        "convergence_angle is 0.0",
    ),
    "milliradians": (lambda: prepare.calibrate_from_disc(disc_scan(), 20, 2e-12), "argument.invalid-value", "is 20"),
    "object guess": (
        lambda: prepare.calibrate_from_disc(
            dataclasses.replace(disc_scan(), geometry=FAR, object=np.ones((70, 70), complex)), 0.02
        ),
        "scan.has-object-guess",
    ),
}


def ring_mask():
    y, x = np.mgrid[-32:32, -31:32]
    away = np.hypot(y - 1.3, x + 2.6)
    return (away < 8) | (away > 15) | (np.arctan2(y, x) > 2.9)


@each("name", REFUSED)
def test_other_scans_are_refused(name):
    change, *expected = REFUSED[name]
    with raises(*expected):
        change()
