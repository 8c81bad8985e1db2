"""Fast electrons: wavelength, speed and interaction parameter at an acceleration voltage, all relativistic.

With E = e V the kinetic and m c² the rest energy: γ = 1 + E / m c² and (p c)² = E (E + 2 m c²). Kirkland, Advanced
Computing in Electron Microscopy (2020), 2.3 and 5.1.
"""

from __future__ import annotations

import math

from ptynb.exceptions import InvalidValueError

PLANCK_CONSTANT = 6.62607015e-34
"""[J s], exact since 2019."""
LIGHT_SPEED = 299792458.0
"""[m/s], exact."""
ELEMENTARY_CHARGE = 1.602176634e-19
"""[C], exact since 2019."""
ELECTRON_MASS = 9.1093837139e-31
"""[kg], the one measured number here: CODATA 2022, known to 3e-10 of it."""
REST_ENERGY = ELECTRON_MASS * LIGHT_SPEED**2 / ELEMENTARY_CHARGE
"""m c² / e [V]: 511 kV."""


def electron_wavelength(voltage: float) -> float:
    """Wavelength [m] of electrons accelerated by this voltage [V]: λ = h c / √(E (E + 2 m c²)), de Broglie's h / p.

    Raises ValueError for a voltage that is not positive and finite.
    """
    _check(voltage)
    return PLANCK_CONSTANT * LIGHT_SPEED / ELEMENTARY_CHARGE / math.sqrt(voltage * (voltage + 2 * REST_ENERGY))


def lorentz_factor(voltage: float) -> float:
    """γ = 1 + E / m c² of electrons accelerated by this voltage [V].

    Raises ValueError for a voltage that is not positive and finite.
    """
    _check(voltage)
    return 1 + voltage / REST_ENERGY


def electron_speed(voltage: float) -> float:
    """Speed [m/s] of electrons accelerated by this voltage [V]: v = p c² / (E + m c²).

    Raises ValueError for a voltage that is not positive and finite.
    """
    _check(voltage)
    return LIGHT_SPEED * math.sqrt(voltage * (voltage + 2 * REST_ENERGY)) / (voltage + REST_ENERGY)


def interaction_parameter(voltage: float) -> float:
    """σ [rad/(V m)]: a potential U [V] along a path of length t [m] turns the phase by +σ U t.

    σ = 2π e / (h v) = (2π / λ V) (E + m c²) / (E + 2 m c²), for electrons accelerated by this voltage [V]. A positive
    potential shortens the wavelength, so atoms have positive phases.

    Raises ValueError for a voltage that is not positive and finite.
    """
    return 2 * math.pi * ELEMENTARY_CHARGE / (PLANCK_CONSTANT * electron_speed(voltage))


def _check(voltage: float) -> None:
    if not (math.isfinite(voltage) and voltage > 0):
        raise InvalidValueError(
            f"The acceleration voltage is {voltage!r} V; it has to be a positive, finite number.",
            code="argument.invalid-value",
        )
