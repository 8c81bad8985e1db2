"""Initial settings for kinds of scans that need other values than the defaults; each is tested on a simulated scan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ptynb.exceptions import SettingsError
from ptynb.settings.settings import Settings

SLICE_DISTANCES = (50.0, 150.0)
"""Distances of two slices that are tried, in units of (object pixel)² / wavelength; they are refined."""
RATE_OF_SLICES = 0.03
"""Learning rate of object and probe with several slices.

After 100 epochs the object error of two slices was 0.0035 with 0.03, 0.029 with 0.01, and 0.047 with 0.1, which fits
thin objects best.
"""


class _Sized(Protocol):
    def __len__(self) -> int: ...


@dataclass(frozen=True)
class Preset:
    """Function that returns settings for a number of patterns, its purpose, and the reason of each setting by name."""

    about: str
    make: Callable[[int | None], dict[str, Any]]
    reasons: Mapping[str, str]


def _thin_xray(patterns: int | None) -> dict[str, Any]:
    """Least squares with computed step lengths (LSQ-ML), momentum, compact batches, and a partially coherent probe.

    LSQ-ML converges in tens of epochs for thin objects, best with compact batches: Odstrcil, Menzel and
    Guizar-Sicairos, Opt. Express 26, 3108 (2018). A synchrotron beam has several coherent modes: Thibault and Menzel,
    Nature 494, 68 (2013); three contain nearly all of its power at a typical beamline.
    """
    return {
        "optimiser": "lsqml",
        "batch_sampling": "compact",
        "batch": _part(patterns, 16, 8),
        "momentum": 0.5,
        "probe": {"modes": 3},
    }


def _thick_electron(patterns: int | None) -> dict[str, Any]:
    """Eight slices of 2 nm, amplitude and phase as separate parameters, and two probe modes.

    Slices as thick as the depth of focus of a probe of 25 to 35 mrad (λ / α², 2 to 4 nm) describe multiple scattering:
    Maiden, Humphry and Rodenburg, J. Opt. Soc. Am. A 29, 1606 (2012); Chen et al., Science 372, 826 (2021), who also
    need a partially coherent probe: Chen et al., Nat. Commun. 11, 2994 (2020). Both light and heavy atoms shift the
    phase and hardly absorb (Kirkland, Advanced Computing in Electron Microscopy, 5.1), so the step of the amplitude is
    a tenth of that of the phase.
    """
    return {
        "slices": {"count": 8, "thickness": 2e-9},
        "object": {
            "parametrization": "amplitude_phase",
            "learning_rate": RATE_OF_SLICES,
            "amplitude_learning_rate": RATE_OF_SLICES / 10,
        },
        "probe": {"modes": 2, "learning_rate": RATE_OF_SLICES},
    }


def _near_field(patterns: int | None) -> dict[str, Any]:
    """Small batches, refined positions, intensities and background, and rates that decrease.

    Sixteen positions of a structured, full-field beam are usual: Stockmar et al., Sci. Rep. 3, 1927 (2013). Each
    pattern depends on nearly the whole object, so an update with a quarter of them is as effective as an epoch. In a
    full-field beam a wrong position, a drift of the intensity and a background appear as contrast in the whole field,
    which the object cannot explain and takes up. Steps that decrease end the fluctuations that small batches cause.

    On simulated shadows with positions wrong by up to 2 pixels, intensities by 10% and a background of 10%, 60 epochs
    end at an object error of 0.064 and an R-factor of 0.007; the defaults at 0.141 and 0.024.
    """
    return {
        "batch": _part(patterns, 4, 4),
        "positions": {"learning_rate": 0.1},
        "pattern_intensities": {"learning_rate": 0.01},
        "background": {"learning_rate": 0.01},
        "schedule": {"end_factor": 0.1},
    }


def _low_dose(patterns: int | None) -> dict[str, Any]:
    """Poisson likelihood, minimised with all patterns at once.

    For pixels with one photon or none the Poisson likelihood has the correct weights, and steps computed from all
    patterns do not fluctuate with the noise of a batch: Thibault and Guizar-Sicairos, New J. Phys. 14, 063004 (2012);
    Godard et al., Opt. Express 20, 25914 (2012).
    """
    return {"loss": "poisson", "optimiser": "lbfgs"}


PRESETS = {
    "thin X-ray": Preset(
        "Thin specimens at a synchrotron: partial coherence, fast convergence.",
        _thin_xray,
        {
            "optimiser": "converges in tens of epochs for thin objects",
            "batch_sampling": "LSQ-ML converges best with neighbouring patterns",
            "batch": "at least eight updates an epoch",
            "momentum": "accelerates LSQ-ML from epoch to epoch",
            "probe.modes": "three contain nearly all power of a synchrotron beam",
        },
    ),
    "thick electron": Preset(
        "Specimens of 10 to 30 nm in an electron microscope: slices. Set their number to your thickness.",
        _thick_electron,
        {
            "slices.count": "multiple scattering; set it to your thickness",
            "slices.thickness": "the depth of focus of a probe of 25 to 35 mrad",
            "object.parametrization": "atoms shift the phase and hardly absorb",
            "object.learning_rate": "smaller than that of thin objects, which fits several slices best",
            "probe.learning_rate": "as that of the object",
            "object.amplitude_learning_rate": "a tenth of that of the phase, as atoms hardly absorb",
            "probe.modes": "the beam is partially coherent",
        },
    ),
    "near field": Preset(
        "Full-field shadows at few positions: positions, intensities and background are refined.",
        _near_field,
        {
            "batch": "each pattern depends on nearly the whole object, so four make an effective update",
            "positions.learning_rate": "a wrong position appears as contrast in the whole field",
            "pattern_intensities.learning_rate": "a drift of the intensity appears as contrast in the whole field",
            "background.learning_rate": "a background appears as contrast in the whole field",
            "schedule.end_factor": "decreasing steps end the fluctuations that small batches cause",
        },
    ),
    "low dose": Preset(
        "About a photon a pixel or less: the likelihood of counts, all patterns at once.",
        _low_dose,
        {
            "loss": "has the correct weights for pixels with one photon or none",
            "optimiser": "steps computed from all patterns do not fluctuate with the noise of a batch",
        },
    ),
}


def preset(name: str, scan: _Sized | None = None) -> Settings:
    """Return settings for a kind of scan.

    The choices and their sources are documented in `ptynb/settings/presets.py`; all others are the defaults.

    Parameters
    ----------
    name : {"thin X-ray", "thick electron", "near field", "low dose"}
        Kind of the scan.
    scan : Scan, optional
        Scan with the number of patterns, on which the batch depends.

    Returns
    -------
    Settings
        The settings.

    Raises
    ------
    SettingsError
        If there is no preset of this name (code "argument.invalid-value").
    """
    if name not in PRESETS:
        known = ", ".join(repr(known) for known in PRESETS)
        raise SettingsError(f"There is no preset {name!r}; expected one of {known}.", code="argument.invalid-value")
    return Settings(**PRESETS[name].make(None if scan is None else len(scan)))


def _part(patterns: int | None, most: int, updates: int) -> int:
    """Return a batch of at most `most` patterns with at least `updates` updates in an epoch."""
    return most if patterns is None else max(1, min(most, patterns // updates))
