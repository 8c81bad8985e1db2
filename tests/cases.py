"""Every piece of the physics and every algorithm as a small scan with settings that use it: one table for all tests."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np

import ptynb as pt
from ptynb.data.geometry import NearField
from ptynb.data.scan import Scan
from ptynb.settings import (
    OPR,
    PARTS,
    Aberrations,
    Affine,
    Background,
    Descan,
    Detector,
    FlyScan,
    Object,
    Optimiser,
    PatternIntensities,
    Positions,
    Probe,
    ProbeOffset,
    Settings,
    Slices,
    Tilt,
)
from ptynb.settings.regularizers import PACBED, DataTerm, Similarity, Sparsity, TotalVariation

THICK = Slices(count=3, thickness=2e-4)
MODES, FIXED = Probe(modes=2), Probe(modes=2, learning_rate=0)
PLACES = Positions(learning_rate=0.1)
INTENSITIES, LIGHT = PatternIntensities(learning_rate=0.01), Background(learning_rate=0.01)


@functools.cache
def a_scan(patterns: int = 37, window: int = 32, kind: str = "far") -> Scan:
    """A simulated scan of two probe modes; near: the same numbers taken for shadows; masked: with dead pixels.

    shared probe, shared object: the first part of it and the last patterns of another one, as one scan.
    """
    scan = pt.simulate(patterns=patterns, window=window, modes=2, photons=1e5, step=window / 8, seed=3)
    match kind:
        case "near":
            geometry = NearField(
                wavelength=1.5e-10, focus_to_sample=0.01, sample_to_detector=1.0, detector_pixel=(5e-5, 5e-5)
            )
            return dataclasses.replace(scan, geometry=geometry, ground_truth=None)
        case "parallel":
            geometry = NearField(
                wavelength=1.5e-10, focus_to_sample=math.inf, sample_to_detector=0.01, detector_pixel=(1e-6, 1e-6)
            )
            return dataclasses.replace(scan, geometry=geometry, ground_truth=None)
        case "masked":
            working = np.random.default_rng(0).random((window, window)) > 0.1
            return dataclasses.replace(scan, mask=working)
        case "shared probe" | "shared object":
            other = pt.simulate(patterns=patterns, window=window, modes=2, photons=2e5, step=window / 8, seed=4)
            cut = patterns * 3 // 5
            both = [pt.preparation.select(scan, slice(cut)), pt.preparation.select(other, slice(cut, None))]
            return pt.preparation.combine(both, share="probe" if kind == "shared probe" else "object")
    return scan


@functools.cache
def sparse_scan(patterns: int = 37) -> Scan:
    """Windows that a batch of three leaves most of the object between: 32 pixels in about 190."""
    return pt.simulate(patterns=patterns, window=32, modes=2, photons=1e5, step=24, seed=3)


# name -> (kind of scan, settings, parts whose parameters have to move)
CASES: dict[str, tuple[str, Settings, set[str]]] = {
    "plain": ("far", Settings(probe=MODES), {"object", "probe"}),
    "bad pixels": ("masked", Settings(probe=MODES), {"object", "probe"}),
    "poisson": ("far", Settings(probe=MODES, loss="poisson"), {"object", "probe"}),
    "intensity": ("far", Settings(probe=MODES, loss="intensity"), {"object", "probe"}),
    "polar": ("far", Settings(object=Object(parametrization="amplitude_phase")), {"object", "probe"}),
    "states": ("far", Settings(object=Object(modes=2), probe=MODES), {"object", "probe"}),
    "slices": ("far", Settings(slices=THICK, probe=MODES), {"object", "probe"}),
    "slices, polar": (
        "far",
        Settings(slices=THICK, object=Object(parametrization="amplitude_phase")),
        {"object", "probe"},
    ),
    "slices, states": ("far", Settings(slices=THICK, object=Object(modes=2)), {"object", "probe"}),
    "thickness": ("far", Settings(slices=THICK.model_copy(update={"learning_rate": 0.01})), {"slices"}),
    "tilt": ("far", Settings(slices=THICK, tilt=Tilt(y=2e-5, learning_rate=0.01)), {"tilt"}),
    "tilt of each": ("far", Settings(slices=THICK, tilt=Tilt(per_position=True, learning_rate=0.01)), {"tilt"}),
    "positions": ("far", Settings(probe=MODES, positions=PLACES), {"positions"}),
    "position search": (
        "far",
        Settings(probe=MODES, positions=Positions(learning_rate=0.1, search_trials=4, search_start_epoch=1)),
        {"positions"},
    ),
    "affine": ("far", Settings(affine=Affine(learning_rate=0.1)), {"affine"}),
    "offset": ("far", Settings(probe_offset=ProbeOffset(learning_rate=0.1)), {"offset"}),
    "variations": ("far", Settings(probe=MODES, opr=OPR(modes=2)), {"variations"}),
    "aberrations": ("far", Settings(probe=FIXED, aberrations=Aberrations(order=3)), {"aberrations"}),
    "aberrations of two probes": (
        "shared object",
        Settings(
            probe=FIXED,
            aberrations=Aberrations(order=2, learning_rate=0.05),
            opr=OPR(modes=1),
            probe_offset=ProbeOffset(learning_rate=0.1),
        ),
        {"aberrations", "variations"},
    ),
    "weights": ("far", Settings(pattern_intensities=INTENSITIES), {"weights"}),
    "background": ("far", Settings(background=LIGHT), {"background"}),
    "descan": ("far", Settings(probe=MODES, descan=Descan(start="plane", learning_rate=0.05)), {"descan"}),
    "descan, slices": ("far", Settings(slices=THICK, descan=Descan(start="zero", learning_rate=0.05)), {"descan"}),
    "fly scan": ("far", Settings(probe=MODES, fly_scan=FlyScan(steps=3)), {"object", "probe"}),
    "fly scan, near field": ("near", Settings(fly_scan=FlyScan(steps=3, exposure_fraction=0.5)), {"object", "probe"}),
    "oversampling": ("far", Settings(detector=Detector(oversampling=2)), {"object", "probe"}),
    "blur": ("far", Settings(detector=Detector(psf_sigma=0.7)), {"object", "probe"}),
    "saturation": ("far", Settings(detector=Detector(saturation=900.0)), {"object", "probe"}),
    "near field": ("near", Settings(probe=MODES), {"object", "probe"}),
    "near field, slices": ("parallel", Settings(slices=THICK), {"object", "probe"}),
    "two losses": ("far", Settings(regularizers=(DataTerm(loss="poisson", weight=0.5),)), {"object", "probe"}),
    "mean pattern": ("far", Settings(regularizers=(PACBED(weight=0.5),)), {"object", "probe"}),
    "sparsity": ("far", Settings(regularizers=(Sparsity(weight=0.1, power=1.5),)), {"object"}),
    "total variation": ("far", Settings(regularizers=(TotalVariation(weight=0.1),)), {"object"}),
    "similarity": ("far", Settings(object=Object(modes=2), regularizers=(Similarity(weight=0.1),)), {"object"}),
    "shared probe": ("shared probe", Settings(probe=MODES, affine=Affine(learning_rate=0.1)), {"probe", "affine"}),
    "shared object": (
        "shared object",
        Settings(probe=MODES, opr=OPR(modes=1), probe_offset=ProbeOffset(learning_rate=0.1)),
        {"object", "probe", "offset", "variations"},
    ),
    "accumulated": ("masked", Settings(probe=MODES, gradient_accumulation=3), {"object", "probe"}),
    "random batches": ("far", Settings(probe=MODES, batch_sampling="random"), {"object", "probe"}),
    "compact batches": ("far", Settings(probe=MODES, batch_sampling="compact"), {"object", "probe"}),
    "everything": (
        "masked",
        Settings(
            slices=Slices(count=2, thickness=2e-4, learning_rate=0.01),
            tilt=Tilt(per_position=True, learning_rate=0.01),
            object=Object(modes=2),
            probe=MODES,
            positions=PLACES,
            affine=Affine(learning_rate=0.1),
            probe_offset=ProbeOffset(learning_rate=0.1),
            opr=OPR(modes=1),
            pattern_intensities=INTENSITIES,
            background=LIGHT,
            descan=Descan(start="plane", learning_rate=0.05),
            fly_scan=FlyScan(steps=2, exposure_fraction=0.5),
            detector=Detector(oversampling=2, psf_sigma=0.5, saturation=5000.0),
            loss="poisson",
            regularizers=(PACBED(weight=0.1), TotalVariation(weight=0.01)),
        ),
        {
            *("object", "probe", "slices", "tilt", "positions", "affine", "offset", "variations", "weights"),
            *("background", "descan"),
        },
    ),
}


# Plain gradient steps that change every part by some per cent in 20 updates, and do not diverge.
PART_RATES = {
    "object": 0.3,
    "probe": 0.3,
    "slices": 1e-2,
    "tilt": 1e-3,
    "positions": 1e-2,
    "affine": 1e-2,
    "probe_offset": 1e-2,
    "aberrations": 1e-5,
    "opr": 0.3,
    "pattern_intensities": 1e-2,
    "background": 1e-3,
    "descan": 1e-2,
}
LOSS_FACTORS = {"amplitude": 1.0, "poisson": 0.03, "intensity": 0.07}


def as_sgd(settings: Settings) -> Settings:
    """These settings with plain gradient steps in double precision, where only a fault of logic makes a difference."""
    loss = "amplitude" if settings.loss == "auto" else settings.loss
    factor = LOSS_FACTORS[loss]
    if settings.slices.count > 1 or settings.opr.modes or settings.regularizers or settings.detector.psf_sigma:
        factor *= 0.1
    moving = [name for name in PARTS if settings.part(name).learning_rate > 0]
    rates: dict[str, Any] = {name: {"learning_rate": PART_RATES[name] * factor} for name in moving}
    return settings.replace(optimiser="sgd", loss=loss, batch=8, precision="double", **rates)


EVERYTHING_BY: tuple[Optimiser, ...] = ("adamw", "nadam", "radam", "rmsprop", "rpie", "lbfgs")


def everything_by(optimiser: Optimiser) -> Settings:
    """All parts at once, moved by this optimiser."""
    values = CASES["everything"][1].model_dump() | {"optimiser": optimiser, "loss": "amplitude"}
    values["regularizers"] = [
        term for term in values["regularizers"] if term["kind"] != "pacbed" or optimiser != "lbfgs"
    ]
    return Settings(**values)


# name -> (kind of scan, settings, updates in which object and probe move far)
ALGORITHMS: dict[str, tuple[str, Settings, int]] = {
    "rpie": ("far", Settings(optimiser="rpie", probe=MODES, batch=8), 20),
    "epie": ("masked", Settings(optimiser="rpie", rpie_alpha=1, probe=MODES, batch=8), 20),
    "rpie, shared object": ("shared object", Settings(optimiser="rpie", probe=MODES, batch=8), 20),
    "lsqml": ("masked", Settings(optimiser="lsqml", probe=MODES, batch=8), 20),
    "lsqml, everything": (
        "masked",
        Settings(
            optimiser="lsqml",
            momentum=0.5,
            probe=MODES,
            slices=Slices(count=2, thickness=2e-4),
            positions=Positions(learning_rate=0.5, momentum=0.5),
            opr=OPR(modes=2),
            pattern_intensities=PatternIntensities(learning_rate=0.5),
            background=Background(learning_rate=0.5),
            batch=8,
            batch_sampling="compact",
        ),
        12,
    ),
    "lsqml, near field": (
        "near",
        Settings(optimiser="lsqml", probe=MODES, positions=Positions(learning_rate=0.5), batch=8),
        12,
    ),
    "lsqml, shared object": (
        "shared object",
        Settings(optimiser="lsqml", probe=MODES, positions=Positions(learning_rate=0.5), opr=OPR(modes=1), batch=8),
        20,
    ),
    "lbfgs": ("far", Settings(optimiser="lbfgs", probe=MODES, batch=8), 15),
    "lbfgs, term": (
        "masked",
        Settings(
            optimiser="lbfgs",
            probe=MODES,
            batch=8,
            regularizers=(TotalVariation(weight=0.01),),
            positions=Positions(learning_rate=1.0),
        ),
        15,
    ),
    "dm": ("far", Settings(optimiser="dm", probe=MODES, batch=8), 10),
    "raar": ("masked", Settings(optimiser="raar", probe=MODES, batch=8), 10),
    "dm, shared object": ("shared object", Settings(optimiser="dm", probe=MODES, batch=8), 10),
    **{
        f"{name}, everything": ("masked", everything_by(name).replace(batch=8), 2 if name == "lbfgs" else 10)
        for name in EVERYTHING_BY
    },
}
