"""Numbers that a file or a detector states: which are not set, which no experiment has, and which few have.

`CLAIMS` is the table for all formats and live sources. A number that is not set (`is_set`) is missing. An impossible
one is an error (`impossible`), an improbable one a remark (`improbable`); both name the options that replace it.

Whether an energy is of photons or of electrons is decided by what is possible (`beam_of`). Detectors of electrons
store the acceleration voltage under the names of a photon energy, and their software computes a wavelength from it as
if it were one: 4.13 pm instead of 1.97 pm at 300 kV.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from ptynb.data.electrons import electron_voltage, electron_wavelength
from ptynb.data.geometry import energy_from_wavelength, wavelength_from_energy
from ptynb.exceptions import InvalidValueError

Range = tuple[float, float]
UNITS = {1e-3: "millimetres", 1e-6: "micrometres", 1e-9: "nanometres", 1e-10: "angstrom", 1e3: "kilometres"}
NOT_SET = frozenset((0.0, -1.0, 2.0**16 - 1, 2.0**32 - 1))
"""Besides NaN, what detectors and their software write where nobody entered a number."""


@dataclass(frozen=True)
class Claim:
    """What a number can be.

    words: what is stated ("a detector pixel"). unit. possible: limits of what an experiment has. usual: ranges of
    what most have. give: how `load` is given another. fields: names of these options.
    """

    words: str
    unit: str
    possible: Range
    usual: tuple[Range, ...]
    give: str
    fields: tuple[str, ...]

    @property
    def limits(self) -> str:
        """The limits, with their unit."""
        low, high = self.possible
        return f"{low / 1e3:g} to {high / 1e3:g} kV" if self.unit == "V" else f"{low:g} to {high:g} {self.unit}"


CLAIMS = {
    # electrons of some MeV to the far infrared; electrons of 20 kV to 1 MV, photons of 80 keV to 35 eV, lasers
    "wavelength": Claim(
        "a wavelength",
        "m",
        (1e-13, 2e-5),
        ((8e-13, 9e-12), (1.5e-11, 3.5e-8), (2.5e-7, 2e-6)),
        "wavelength= [m] or energy= [eV]",
        ("wavelength", "energy"),
    ),
    "voltage": Claim(
        "an acceleration voltage", "V", (3e3, 3e6), ((2e4, 4e5),), "voltage=300e3 [V]", ("voltage",)
    ),
    "distance": Claim(
        "a distance to the detector", "m", (1e-4, 500.0), ((5e-3, 50.0),), "distance= [m]", ("distance",)
    ),
    "focus_to_sample": Claim(
        "a distance from focus to sample", "m", (1e-8, 500.0), ((1e-6, 10.0),), "focus_to_sample= [m]",
        ("focus_to_sample",),
    ),
    "detector_pixel": Claim(
        "a detector pixel", "m", (1e-8, 1e-2), ((3e-7, 5e-4),), "detector_pixel=(y, x) [m]", ("detector_pixel",)
    ),
    "angular_pixel": Claim(
        "a detector pixel", "rad", (1e-9, 0.5), ((1e-7, 2e-2),), "angular_pixel=(y, x) [rad]", ("angular_pixel",)
    ),
    "step": Claim(
        "a step of the scan", "m", (1e-13, 1e-2), ((5e-12, 1e-4),), "step=(y, x) [m]", ("step",)
    ),
}  # fmt: skip
"""Numbers of a record, by name. Wavelengths of 5 to 35 eV are errors of their own: `mistaken_kev`."""
NO_SOURCE = (3.5e-8, 2.5e-7)
"""[m]: 5 to 35 eV, unusual in ptychography; the usual 5 to 35 keV become this if they are read as eV."""


def is_set(value: float) -> bool:
    """Return whether a number is a value, not what is written where there is none."""
    return not math.isnan(value) and value not in NOT_SET


def impossible(name: str, value: float, place: str = "") -> InvalidValueError | None:
    """Return the error of a number that no experiment has; None for others. place: in the file, for the message."""
    claim = CLAIMS[name]
    low, high = claim.possible
    size = abs(value) if name == "step" else value  # a scan may run backwards
    if low <= size <= high:
        return mistaken_kev(value, place) if name == "wavelength" else None
    return InvalidValueError(
        f"{claim.words} of {value:.6g} {claim.unit}{_at(place)}{_likely_unit(size, claim)}; expected "
        f"{claim.limits}: give {claim.give}.",
        code="scan.implausible-metadata",
        fields=claim.fields,
    )


def improbable(name: str, value: float, place: str = "") -> str | None:
    """Return a remark on a possible number that few experiments have; None for others."""
    claim = CLAIMS[name]
    size = abs(value) if name == "step" else value
    if any(low <= size <= high for low, high in claim.usual) or not claim.possible[0] <= size <= claim.possible[1]:
        return None
    usual = " or ".join(f"{low:g} to {high:g}" for low, high in claim.usual)
    return (
        f"The file has {claim.words} of {value:.6g} {claim.unit}{_at(place)}, which is unusual ({usual} "
        f"{claim.unit}); if it is wrong, give {claim.give}."
    )


def mistaken_kev(wavelength: float, place: str = "") -> InvalidValueError | None:
    """Return the error of a wavelength that no usual source has, and that keV taken as eV would give."""
    if not NO_SOURCE[0] < wavelength < NO_SOURCE[1]:
        return None
    energy = energy_from_wavelength(wavelength)
    return InvalidValueError(
        f"a photon energy of {energy:.6g} eV{_at(place)}, which looks like {energy:.6g} keV taken as eV; give "
        f"energy={energy * 1e3:.6g} [eV], or energy={energy:.6g} if it is correct.",
        code="scan.implausible-metadata",
        fields=("energy",),
        proposals={"energy": float(f"{energy * 1e3:.6g}")},
    )


def _at(place: str) -> str:
    return f" (at {place})" if place else ""


def _likely_unit(value: float, claim: Claim) -> str:
    """Return the unit in which a length would be possible."""
    if claim.unit != "m" or not (math.isfinite(value) and value > claim.possible[1]):
        return ""
    low, high = claim.possible
    fits = [unit for scale, unit in UNITS.items() if low <= value * scale <= high and scale < 1]
    return f" (it could be {' or '.join(fits[:2])})" if fits else ""


ELECTRON_DETECTORS = re.compile(r"\b(arina|quadro|ela|singla|empad|stela|celeritas|canvas|opus|k2|k3)\b", re.IGNORECASE)
PHOTON_DETECTORS = re.compile(r"\b(eiger2?|pilatus[34]?|mythen2?|jungfrau|lambda|moench|xspectrum)\b", re.IGNORECASE)
LEAST_ELECTRONS = 2e4
"""[eV]: below it a detector of electrons counts none; its default of 8 keV is a setting for X-rays."""
UNDECIDED = (5e4, 1.2e5)
"""[eV]: energies at which both photons and electrons are used. Below, only photons; above, only electrons."""
STORAGE_RING = 3e6
"""[eV]: higher energies are of a storage ring, or in another unit."""
TENSIONS = (30e3, 40e3, 60e3, 80e3, 100e3, 120e3, 160e3, 200e3, 300e3)
"""[V]: acceleration voltages of microscopes."""


@dataclass(frozen=True)
class Beam:
    """The wavelength [m], None if it is not known; a remark; and what has to be asked, with the options that answer."""

    wavelength: float | None = None
    remark: str = ""
    question: str = ""
    give: str = ""


def beam_of(
    wavelength: float | None = None, energy: float | None = None, voltage: float | None = None, detector: str = ""
) -> Beam:
    """Return the wavelength from what a file states.

    wavelength [m], energy [eV] of photons or electrons, voltage [V]; None where nothing is set. detector: its
    description ("Dectris ARINA Si"), by which electrons are told from photons where their energy does not.
    """
    electrons = bool(ELECTRON_DETECTORS.search(detector))
    if electrons and voltage is not None:
        return Beam(electron_wavelength(voltage))
    if wavelength is not None and not CLAIMS["wavelength"].possible[0] <= wavelength < math.inf:
        return Beam(wavelength)
    if wavelength is not None and (energy is None or not _alike(energy_from_wavelength(wavelength), energy)):
        return _stated(wavelength, electrons, detector)
    if energy is not None and energy > 0:
        return _decided(energy, electrons, detector)
    return Beam() if voltage is None else Beam(electron_wavelength(voltage))


def energy_of(wavelength: float) -> float:
    """Return the energy [eV] of which `beam_of` makes this wavelength [m]: of photons, or of electrons."""
    energy = energy_from_wavelength(wavelength)
    return electron_voltage(wavelength) if energy > UNDECIDED[1] else energy


def _decided(energy: float, electrons: bool, detector: str) -> Beam:
    if energy > STORAGE_RING:
        return Beam(
            question=f"the file states {energy:.6g} eV, more than a beam of photons or electrons has",
            give="energy=10e3 (photons, [eV]) or voltage=300e3 [V]",
        )
    if electrons and energy < LEAST_ELECTRONS:
        return Beam(
            question=f"the file states {energy:.6g} eV, which {detector}, a detector of electrons, does not count",
            give="voltage=300e3 [V]",
        )
    if electrons or energy > UNDECIDED[1]:
        why = detector if electrons else f"no photons of more than {UNDECIDED[1]:.6g} eV are used in ptychography"
        return Beam(
            electron_wavelength(energy), f"The energy of {energy:.6g} eV is taken as that of electrons ({why})."
        )
    if energy < UNDECIDED[0] or PHOTON_DETECTORS.search(detector):
        return Beam(wavelength_from_energy(energy))
    return Beam(
        question=f"the file states {energy:.6g} eV, which may be of electrons or of photons",
        give=f"voltage={energy:.6g} [V] for electrons, or energy={energy:.6g} [eV] for photons",
    )


def _stated(wavelength: float, electrons: bool, detector: str) -> Beam:
    """Return the beam of a stated wavelength, for which the software of a detector may have used the wrong formula."""
    energy, voltage = energy_from_wavelength(wavelength), electron_voltage(wavelength)
    if electrons and voltage < LEAST_ELECTRONS:
        return _decided(energy, electrons, detector)
    if (electrons or energy > UNDECIDED[1]) and _is_tension(energy) and not _is_tension(voltage):
        return Beam(
            electron_wavelength(energy),
            f"The wavelength of {wavelength:.6g} m is that of photons of {energy:.6g} eV, and taken as electrons of "
            "this energy.",
        )
    return Beam(wavelength)


def _is_tension(volts: float) -> bool:
    return any(_alike(volts, tension) for tension in TENSIONS)


def _alike(one: float, other: float) -> bool:
    return abs(one - other) <= 3e-3 * abs(other)
