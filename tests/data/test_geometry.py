import numpy as np
import pytest

from ptynb.data.geometry import Geometry, energy_from_wavelength, metres_to_pixels, wavelength_from_energy
from tests.parametrization import each
from tests.raising import raises

# h c as CODATA 2018 prints it, in keV Å: apart from the constants in the package.
KEV_ANGSTROM = 12.398419843320026


@each("energy", [280.0, 8047.8, 12398.419843320026, 300e3])
def test_wavelength_agrees_with_the_tabulated_constant(energy):
    assert wavelength_from_energy(energy) == pytest.approx(KEV_ANGSTROM / (energy / 1e3) * 1e-10, rel=1e-15)


@each("wavelength", [1e-12, 1.5e-10, 13.5e-9])
def test_energy_and_back_is_the_wavelength(wavelength):
    assert wavelength_from_energy(energy_from_wavelength(wavelength)) == pytest.approx(wavelength, rel=1e-15)


def test_object_pixel_is_wavelength_times_distance_over_detector_width():
    geometry = Geometry(wavelength=1e-10, distance=2.0, detector_pixel=(50e-6, 100e-6))
    # 2e-10 m² over 100 x 50 µm = 5 mm, and over 250 x 100 µm = 25 mm
    assert geometry.object_pixel((100, 250)) == pytest.approx((40e-9, 8e-9), rel=1e-14)


def test_metres_become_pixels_along_each_axis():
    pixels = metres_to_pixels(np.array([[40e-9, 80e-9], [-20e-9, 0.0]]), (40e-9, 8e-9))
    np.testing.assert_allclose(pixels, [[1, 10], [-0.5, 0]], rtol=1e-15)


@each("value", [0.0, -1.0, float("nan"), float("inf")])
@each(
    ("name", "unit", "make"),
    [
        ("photon energy", "eV", wavelength_from_energy),
        ("wavelength", "m", energy_from_wavelength),
        ("wavelength", "m", lambda v: Geometry(wavelength=v, distance=1.0, detector_pixel=(1e-5, 1e-5))),
        ("distance", "m", lambda v: Geometry(wavelength=1e-10, distance=v, detector_pixel=(1e-5, 1e-5))),
        ("detector pixel size", "m", lambda v: Geometry(wavelength=1e-10, distance=1.0, detector_pixel=(1e-5, v))),
    ],
)
def test_a_value_that_is_not_positive_and_finite_is_refused(value, name, unit, make):
    with raises("argument.invalid-value", f"{name} is {value!r} {unit}"):
        make(value)
