"""Units as files spell them, as factors to metres, radians, electron volts and volts."""

from __future__ import annotations

import math

from ptynb.io.hdf5 import FileError

LENGTHS = {"m": 1.0, "cm": 1e-2, "mm": 1e-3, "um": 1e-6, "nm": 1e-9, "a": 1e-10, "pm": 1e-12}
ANGLES = {"rad": 1.0, "mrad": 1e-3, "urad": 1e-6, "deg": math.pi / 180}
ENERGIES = {"ev": 1.0, "kev": 1e3}
VOLTAGES = {"v": 1.0, "kv": 1e3}
SPELLINGS = {
    "angstrom": "a",
    "angstroms": "a",
    "å": "a",
    "ang": "a",
    "micron": "um",
    "microns": "um",
    "µm": "um",
    "meter": "m",
    "metre": "m",
    "meters": "m",
    "metres": "m",
    "nanometer": "nm",
    "nanometers": "nm",
    "degree": "deg",
    "degrees": "deg",
    "°": "deg",
    "radians": "rad",
    "milliradians": "mrad",
    "µrad": "urad",
}


def length(unit: str) -> float | None:
    """Metres in one of this unit; None where it is no length. "A" is an angstrom, "um" and "µm" a micrometre."""
    return LENGTHS.get(_plain(unit))


def angle(unit: str) -> float | None:
    """Radians in one of this unit; None where it is no angle."""
    return ANGLES.get(_plain(unit))


def energy(unit: str) -> float | None:
    """Electron volts in one of this unit; None where it is no energy."""
    return ENERGIES.get(_plain(unit))


def voltage(unit: str) -> float | None:
    """Volts in one of this unit; None where it is no voltage."""
    return VOLTAGES.get(_plain(unit))


def reciprocal(unit: str) -> float | None:
    """1/m in one of this unit ("1/nm", "nm^-1", "A^-1", "nm⁻¹", "1/Å"); None where it is no reciprocal length."""
    text = unit.strip().replace("⁻¹", "^-1").replace("**-1", "^-1").replace(" ", "")
    inner = text[2:] if text.startswith("1/") else text.removesuffix("^-1") if text.endswith("^-1") else None
    metres = None if inner is None else length(inner.strip("()"))
    return None if metres is None else 1 / metres


def angular_pixel(scale: float, unit: str, wavelength: float | None) -> float | None:
    """A detector pixel as seen from the sample [rad], from a scale in an angle or a reciprocal length k = angle / λ.

    None where the unit is neither, or where it is a reciprocal length and the wavelength [m] is not known.
    """
    factor = angle(unit)
    if factor is not None:
        return scale * factor
    factor = reciprocal(unit)
    return None if factor is None or wavelength is None else scale * factor * wavelength


def volts(number: float, where: str) -> float:
    """An acceleration voltage [V] that a file gives in V or kV: up to 3000 it is kV.

    No electron ptychography is done with less than 3 kV, and none with more than 3 MV. Raises FileError for what is
    neither.
    """
    found = number * 1e3 if number <= 3000 else number
    if not (math.isfinite(found) and 3e3 <= found <= 3e6):
        raise FileError(
            f"{where} says an acceleration voltage of {number:g}; expected 3 to 3000 kV, or the same in V: give "
            "voltage=300e3 [V]."
        )
    return found


def _plain(unit: str) -> str:
    text = unit.strip().replace("μ", "µ")
    # M and m differ in front of a unit, and in nothing else here.
    low = text.lower()
    return SPELLINGS.get(low, low)
