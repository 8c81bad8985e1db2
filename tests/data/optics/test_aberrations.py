"""The aberration function against its polar and its complex form, written out."""

import math

import numpy as np
import pytest

from ptynb.data.optics.aberrations import aberration_phase, krivanek_aberrations
from tests.parametrization import each
from tests.raising import raises

WAVELENGTH = 1.9687e-12
FACTORS = {
    "C10": ("C1", 1),
    "C12": ("A1", 1),
    "C21": ("B2", 3),
    "C23": ("A2", 1),
    "C30": ("C3", 1),
    "C32": ("S3", 4),
    "C34": ("A3", 1),
    "C41": ("B4", 5),
    "C43": ("D4", 5),
    "C45": ("A4", 1),
    "C50": ("C5", 1),
    "C52": ("S5", 6),
    "C54": ("R5", 6),
    "C56": ("A5", 1),
}
NAMES = [*FACTORS]

# Haider's terms as coefficient -> (weight, power of ω, power of ω̄): Uhlemann and Haider (1998).
TERMS = {
    "C1": (1 / 2, 1, 1),
    "A1": (1 / 2, 0, 2),
    "B2": (1, 2, 1),
    "A2": (1 / 3, 0, 3),
    "C3": (1 / 4, 2, 2),
    "S3": (1, 3, 1),
    "A3": (1 / 4, 0, 4),
    "B4": (1, 3, 2),
    "D4": (1, 4, 1),
    "A4": (1 / 5, 0, 5),
    "C5": (1 / 6, 3, 3),
    "S5": (1, 4, 2),
    "R5": (1, 5, 1),
    "A5": (1 / 6, 0, 6),
}


@pytest.fixture
def angles():
    return np.random.default_rng(5).uniform(-0.03, 0.03, (2, 40))


def magnitude_of(name):
    """A coefficient [m] whose phase at 30 mrad is some radians."""
    return 2e-12 / 0.03 ** (int(name[1]) + 1)


def polar_phase(y, x, name, magnitude, azimuth):
    order, fold = int(name[1]), int(name[2])
    radius, angle = np.hypot(y, x), np.arctan2(y, x)
    return 2 * np.pi / WAVELENGTH * magnitude * radius ** (order + 1) / (order + 1) * np.cos(fold * (angle - azimuth))


@each("name", NAMES)
def test_each_krivanek_coefficient_gives_its_term(angles, name):
    azimuth = 0.0 if name.endswith("0") else 0.7
    found = aberration_phase(*angles, WAVELENGTH, {name: (magnitude_of(name), azimuth)})
    np.testing.assert_allclose(found, polar_phase(*angles, name, magnitude_of(name), azimuth), atol=1e-11)
    assert np.abs(found).max() > 0.5


@each("name", TERMS)
def test_each_haider_coefficient_gives_its_term(angles, name):
    weight, power, conjugate = TERMS[name]
    fold = abs(power - conjugate)
    azimuth = 0.4 if fold else 0.0
    magnitude = 1e-12 / 0.03 ** (power + conjugate)
    argument = fold * azimuth * (1 if conjugate > power else -1)
    wave = angles[1] + 1j * angles[0]
    complex_coefficient = magnitude * np.exp(1j * argument)
    expected = 2 * np.pi / WAVELENGTH * (weight * wave**power * wave.conj() ** conjugate * complex_coefficient).real
    found = aberration_phase(*angles, WAVELENGTH, {name: (magnitude, azimuth)})
    np.testing.assert_allclose(found, expected, atol=1e-11)
    assert np.abs(found).max() > 0.1


def test_aberrations_add_up_and_angles_broadcast():
    y, x = np.linspace(-0.02, 0.02, 5)[:, None], np.linspace(-0.03, 0.03, 7)[None, :]
    both = {"C10": -5e-9, "C23": (40e-9, 0.3)}
    found = aberration_phase(y, x, WAVELENGTH, both)
    assert found.shape == (5, 7)
    expected = sum(aberration_phase(y, x, WAVELENGTH, {name: value}) for name, value in both.items())
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert not aberration_phase(y, x, WAVELENGTH, {}).any()


@each("krivanek", NAMES)
def test_both_names_have_the_factor_between_them(krivanek):
    haider, factor = FACTORS[krivanek]
    azimuth = 0.0 if krivanek.endswith("0") else -0.6
    assert krivanek_aberrations({haider: (2e-9, azimuth)}) == {krivanek: (pytest.approx(factor * 2e-9), azimuth)}
    assert krivanek_aberrations({krivanek: 3e-9}) == {krivanek: (3e-9, 0.0)}
    assert krivanek_aberrations({"D5": (1e-3, 0.1)}) == krivanek_aberrations({"R5": (1e-3, 0.1)})


@each(
    ("wavelength", "aberrations", "code", "facts"),
    [
        (WAVELENGTH, {"defocus": 1e-8}, "argument.invalid-value", ["'defocus'", "C10 (C1), C12 (A1), C21 (B2)", "C56"]),
        (WAVELENGTH, {"C21": 1e-8, "B2": (1e-8, 0.2)}, "argument.conflict", ["C21 (B2)"]),
        (WAVELENGTH, {"C12": (math.nan, 0.1)}, "argument.invalid-value", ["C12", "nan", "0.1"]),
        (WAVELENGTH, {"C12": (1e-9, 0.1, 0.2)}, "argument.invalid-value", ["C12", "0.2", "magnitude [m]"]),
        (WAVELENGTH, {"C30": (1e-3, 0.2)}, "argument.invalid-value", ["C30", "0.2 rad"]),
        (0.0, {"C30": 1e-3}, "argument.invalid-value", ["wavelength is 0.0 m"]),
    ],
)
def test_what_makes_no_sense_is_an_error(wavelength, aberrations, code, facts):
    with raises(code, *facts):
        aberration_phase(0.0, 0.01, wavelength, aberrations)
