import math

import pytest

from ptynb.data.electrons import electron_speed, electron_wavelength, interaction_parameter, lorentz_factor
from tests.parametrization import each
from tests.raising import raises

# Kirkland, Advanced Computing in Electron Microscopy: λ [pm] and σ [rad/(kV Å)].
TABLE = [(100e3, 3.7014, 0.9244), (200e3, 2.5079, 0.7288), (300e3, 1.9687, 0.6526)]
FUNCTIONS = [electron_wavelength, lorentz_factor, electron_speed, interaction_parameter]

# Apart from the package's constants: Compton wavelength [m] and rest energy [eV] as CODATA 2022 prints them.
COMPTON_WAVELENGTH = 2.42631023538e-12
REST_ENERGY = 510998.95069


@each(("voltage", "wavelength", "interaction"), TABLE)
def test_the_values_of_the_textbook(voltage, wavelength, interaction):
    assert electron_wavelength(voltage) * 1e12 == pytest.approx(wavelength, abs=6e-5)
    assert interaction_parameter(voltage) * 1e-7 == pytest.approx(interaction, abs=6e-5)


@each("voltage", [1.0, 20e3, 80e3, 300e3, 1.2e6])
def test_the_wavelength_is_the_compton_wavelength_over_the_momentum_in_units_of_mc(voltage):
    momentum = math.sqrt((1 + voltage / REST_ENERGY) ** 2 - 1)
    assert electron_wavelength(voltage) == pytest.approx(COMPTON_WAVELENGTH / momentum, rel=1e-9)


@each("voltage", [60e3, 300e3])
def test_speed_and_lorentz_factor_belong_together(voltage):
    beta = electron_speed(voltage) / 299792458.0
    assert lorentz_factor(voltage) == pytest.approx(1 / math.sqrt(1 - beta**2), rel=1e-12)
    assert lorentz_factor(voltage) == pytest.approx(1 + voltage / REST_ENERGY, rel=1e-9)


@each("voltage", [60e3, 300e3])
def test_the_interaction_parameter_is_how_the_wave_number_grows_with_the_voltage(voltage):
    """σ = d(2π/λ)/dV: what a small potential adds to the voltage, it adds to the phase of each metre."""
    step = voltage * 1e-4
    slope = (1 / electron_wavelength(voltage + step) - 1 / electron_wavelength(voltage - step)) * math.pi / step
    assert interaction_parameter(voltage) == pytest.approx(slope, rel=1e-7)


@each("voltage", [0.0, -1.0, float("nan"), float("inf")])
@each("function", FUNCTIONS)
def test_a_voltage_that_is_not_positive_and_finite_is_refused(function, voltage):
    with raises("argument.invalid-value", f"voltage is {voltage!r} V"):
        function(voltage)
