"""Units as files name them, in SI: metres, electron volts, volts."""

from __future__ import annotations

import math
from typing import Any

import h5py
import numpy as np

from ptynb.data.geometry import ELECTRON_VOLT

Names = dict[float, tuple[str, ...]]
LENGTHS: Names = {
    1.0: ("m", "meter", "metre", "meters", "metres"),
    1e-2: ("cm", "centimeter", "centimetre"),
    1e-3: ("mm", "millimeter", "millimetre", "millimeters", "millimetres"),
    1e-6: ("um", "µm", "μm", "micron", "microns", "micrometer", "micrometre", "micrometers", "micrometres"),
    1e-9: ("nm", "nanometer", "nanometre", "nanometers", "nanometres"),
    1e-10: ("angstrom", "angstroms", "ångström", "å", "a", "ang"),
    1e-12: ("pm", "picometer", "picometre"),
}
ENERGIES: Names = {
    1.0: ("ev", "electronvolt", "electronvolts", "electron volt", "electron volts"),
    1e3: ("kev",),
    1e6: ("mev",),
    1 / ELECTRON_VOLT: ("j", "joule", "joules"),
}
VOLTAGES: Names = {1.0: ("v", "volt", "volts"), 1e3: ("kv", "kilovolt", "kilovolts")}
ANGLES: Names = {1.0: ("rad", "radian", "radians"), 1e-3: ("mrad",), math.pi / 180: ("deg", "degree", "degrees", "°")}
KINDS = {"length": LENGTHS, "energy": ENERGIES, "voltage": VOLTAGES, "angle": ANGLES}


def factor(units: str, kind: str) -> float | None:
    """What to multiply by to get metres, electron volts, volts or radians; None for a unit that is not known.

    kind: "length", "energy", "voltage" or "angle".
    """
    word = units.strip().casefold()
    for value, names in KINDS[kind].items():
        if word in names:
            return value
    return None


def units_of(item: h5py.Dataset | h5py.Group) -> str:
    """The attribute `units` (or `unit`) of a dataset; nothing where there is none."""
    for name in ("units", "unit"):
        value = attribute_of(item, name)
        if isinstance(value, str) and value.strip():
            return value.strip()
    return ""


def attribute_of(item: h5py.Dataset | h5py.Group, name: str) -> Any:
    """An attribute of one value, text as text; None where there is none, or one that can't be read or has many."""
    try:
        if name not in item.attrs or item.attrs.get_id(name).get_space().get_simple_extent_npoints() != 1:
            return None
        value = np.asarray(item.attrs[name]).reshape(-1)[0]
    except (OSError, KeyError, TypeError, ValueError, RuntimeError):
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
