"""Wavelength, speed and interaction parameter of electrons at an acceleration voltage, relativistic.

With the kinetic energy E = e V and the rest energy m c²: γ = 1 + E / m c² and (p c)² = E (E + 2 m c²). Kirkland,
Advanced Computing in Electron Microscopy (2020), 2.3 and 5.1.
"""

from __future__ import annotations

import math

from ptynb.exceptions import check_positive

PLANCK_CONSTANT = 6.62607015e-34
"""[J s], exact since 2019."""
LIGHT_SPEED = 299792458.0
"""[m/s], exact."""
ELEMENTARY_CHARGE = 1.602176634e-19
"""[C], exact since 2019."""
ELECTRON_MASS = 9.1093837139e-31
"""[kg], CODATA 2022, with a relative uncertainty of 3e-10."""
REST_ENERGY = ELECTRON_MASS * LIGHT_SPEED**2 / ELEMENTARY_CHARGE
"""m c² / e [V]: 511 kV."""
LONGEST_ELECTRON = 9e-12
"""Wavelength [m] below which a beam is taken for electrons: 18 kV, and 138 keV of photons."""


def electron_wavelength(voltage: float) -> float:
    """Return the wavelength λ = h / p = h c / √(E (E + 2 m c²)).

    Parameters
    ----------
    voltage : float
        Acceleration voltage [V].

    Returns
    -------
    float
        Wavelength [m].

    Raises
    ------
    InvalidValueError
        If the voltage is not positive and finite.
    """
    check_positive(voltage, "voltage", "V", "voltage")
    return PLANCK_CONSTANT * LIGHT_SPEED / ELEMENTARY_CHARGE / math.sqrt(voltage * (voltage + 2 * REST_ENERGY))


def electron_voltage(wavelength: float) -> float:
    """Return the acceleration voltage [V] of electrons of a wavelength [m]: E = √((h c / λ)² + (m c²)²) - m c².

    Parameters
    ----------
    wavelength : float
        Wavelength [m].

    Returns
    -------
    float
        Acceleration voltage [V].
    """
    momentum = PLANCK_CONSTANT * LIGHT_SPEED / ELEMENTARY_CHARGE / wavelength
    return momentum**2 / (math.hypot(momentum, REST_ENERGY) + REST_ENERGY)


def lorentz_factor(voltage: float) -> float:
    """Return the Lorentz factor γ = 1 + E / m c².

    Parameters
    ----------
    voltage : float
        Acceleration voltage [V].

    Returns
    -------
    float
        Lorentz factor.

    Raises
    ------
    InvalidValueError
        If the voltage is not positive and finite.
    """
    check_positive(voltage, "voltage", "V", "voltage")
    return 1 + voltage / REST_ENERGY


def electron_speed(voltage: float) -> float:
    """Return the speed v = p c² / (E + m c²).

    Parameters
    ----------
    voltage : float
        Acceleration voltage [V].

    Returns
    -------
    float
        Speed [m/s].

    Raises
    ------
    InvalidValueError
        If the voltage is not positive and finite.
    """
    check_positive(voltage, "voltage", "V", "voltage")
    return LIGHT_SPEED * math.sqrt(voltage * (voltage + 2 * REST_ENERGY)) / (voltage + REST_ENERGY)


def interaction_parameter(voltage: float) -> float:
    """Return the interaction parameter σ = 2π e / (h v) = (2π / λ V) (E + m c²) / (E + 2 m c²).

    A potential U [V] along a path of length t [m] changes the phase by +σ U t. A positive potential reduces the
    wavelength, so atoms have positive phases.

    Parameters
    ----------
    voltage : float
        Acceleration voltage [V].

    Returns
    -------
    float
        Interaction parameter [rad/(V m)].

    Raises
    ------
    InvalidValueError
        If the voltage is not positive and finite.
    """
    return 2 * math.pi * ELEMENTARY_CHARGE / (PLANCK_CONSTANT * electron_speed(voltage))
