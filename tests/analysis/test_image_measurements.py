"""Profiles, statistics and spectra against closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from ptynb.analysis import amplitude_spectrum, line_profile, region_statistics
from tests.raising import raises

Y, X = np.mgrid[:60, :80].astype(np.float64)
PLANE = 3.0 * Y - 2.0 * X + 1.0


def test_the_profile_of_a_plane_is_a_line_of_its_slope():
    profile = line_profile(PLANE, (10, 20), (40.5, 61.25), pixel_size=(2e-9, 1e-9))
    assert profile.length == pytest.approx(np.hypot(30.5 * 2e-9, 41.25e-9))
    parts = profile.distances / profile.length
    np.testing.assert_allclose(profile.values, (1 + 30 - 40) + parts * (3 * 30.5 - 2 * 41.25), atol=1e-9)
    assert len(parts) == int(np.ceil(np.hypot(30.5, 41.25))) + 1


def test_width_averages_across_the_line_and_not_along_it():
    across = line_profile(X**2, (5, 30), (25, 30), width=5).values
    np.testing.assert_allclose(across, 30**2 + np.mean(np.arange(-2, 3) ** 2))
    along = line_profile(X**2, (5, 30), (5, 50), width=5)
    np.testing.assert_allclose(along.values, np.arange(30, 51) ** 2)
    assert along.length == 20


def test_complex_values_are_interpolated_and_outside_there_is_none():
    field = np.exp(1j * 0.01 * X)
    profile = line_profile(field, (3, 0), (3, 10))
    np.testing.assert_allclose(profile.values, field[3, :11])
    assert np.isnan(line_profile(PLANE, (0, 70), (0, 90)).values[-1])


def test_statistics_of_a_rectangle_are_those_of_its_pixels():
    found = region_statistics(PLANE, (20, 40), (10, 30), pixel_size=(2e-9, 1e-9))
    part = PLANE[10:21, 30:41]
    assert (found.mean, found.standard_deviation) == (pytest.approx(part.mean()), pytest.approx(part.std()))
    assert (found.minimum, found.maximum, found.pixels) == (part.min(), part.max(), 121)
    assert found.area == pytest.approx(121 * 2e-18)


def test_statistics_of_an_ellipse_are_those_of_the_continuous_one():
    """Of a plane with slopes a, b over half axes r, s: variance (a² r² + b² s²) / 4, area π r s."""
    found = region_statistics(PLANE, (30 - 24, 40 - 36), (30 + 24, 40 + 36), shape="ellipse")
    assert found.mean == pytest.approx(PLANE[30, 40])
    assert found.standard_deviation == pytest.approx(np.sqrt((3 * 24) ** 2 + (2 * 36) ** 2) / 2, rel=5e-3)
    assert found.area == found.pixels == pytest.approx(np.pi * 24 * 36, rel=5e-3)


def test_a_wave_has_its_peak_at_its_frequency():
    spectrum = amplitude_spectrum(5 + np.cos(2 * np.pi * (6 * Y / 60 + 20 * X / 80)), (2e-9, 1e-9))
    y, x = np.unravel_index(spectrum.amplitude.argmax(), spectrum.amplitude.shape)
    assert abs(spectrum.y[y]) == pytest.approx(6 / 60 / 2e-9)
    assert abs(spectrum.x[x]) == pytest.approx(20 / 80 / 1e-9)
    # Half of the amplitude 1, times the mean 1/4 of the window, times the square root of the number of pixels.
    assert spectrum.amplitude.max() == pytest.approx(np.sqrt(60 * 80) / 8, rel=1e-3)
    assert amplitude_spectrum(np.full((8, 9), 3.0)).amplitude.max() < 1e-12


def test_wrong_arguments_are_named():
    with raises("array.shape-mismatch", "(3,)"):
        line_profile([1, 2, 3], (0, 0), (1, 1))
    with raises("argument.invalid-value", "(4, 5)"):
        line_profile(PLANE, (4, 5), (4, 5))
    with raises("argument.invalid-value", "width", "0.5"):
        line_profile(PLANE, (4, 5), (4, 6), width=0.5)
    with raises("argument.invalid-value", "pixel_size", "-1"):
        line_profile(PLANE, (4, 5), (4, 6), pixel_size=-1)
    with raises("argument.invalid-value", "nan"):
        line_profile(PLANE, (4, float("nan")), (4, 6))
    with raises("array.shape-mismatch", "complex"):
        region_statistics(PLANE * 1j, (0, 0), (1, 1))
    with raises("argument.invalid-value", "'disc'"):
        region_statistics(PLANE, (0, 0), (1, 1), shape="disc")
    with raises("argument.invalid-value", "(100, 100)"):
        region_statistics(PLANE, (100, 100), (120, 120))
