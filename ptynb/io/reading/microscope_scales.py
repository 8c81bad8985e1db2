"""Units in files of microscopes: reciprocal lengths, angles of a detector pixel, voltages in V or kV."""

from __future__ import annotations

from ptynb.exceptions import FileError
from ptynb.io.reading.hdf5_reading import factor
from ptynb.settings.claimed_values import impossible, is_set


def reciprocal(unit: str) -> float | None:
    """Return the factor that converts a unit to 1/m ("1/nm", "nm^-1", "A^-1", "nm⁻¹", "1/Å"); None for others."""
    text = unit.strip().replace("⁻¹", "^-1").replace("**-1", "^-1").replace(" ", "")
    if text.startswith("1/"):
        inner = text[2:].strip("()")
    elif text.endswith("^-1"):
        inner = text.removesuffix("^-1")
    else:
        return None
    metres = factor(inner, "length")
    return None if metres is None else 1 / metres


def angular_pixel(scale: float, unit: str, wavelength: float | None) -> float | None:
    """Return the angle of a detector pixel seen from the sample [rad], from an angle or a k = angle / λ.

    Return None for other units, or for a reciprocal length without a wavelength [m].
    """
    radians = factor(unit, "angle")
    if radians is not None:
        return scale * radians
    per_metre = reciprocal(unit)
    return None if per_metre is None or wavelength is None else scale * per_metre * wavelength


def kilovolts(number: float) -> float:
    """Return an acceleration voltage [V] from a number in V or kV; numbers up to 3000 are taken as kV."""
    return number * 1e3 if number <= 3000 else number


def volts(number: float, where: str) -> float | None:
    """Return an acceleration voltage [V] from a number in V or kV; None for one that is not set.

    Raise FileError for voltages that no microscope has.
    """
    if not is_set(number):
        return None
    problem = impossible("voltage", found := kilovolts(number))
    if problem:
        raise problem.retold(FileError, f"{where} has {problem}")
    return found
