"""What the errors of the physics tell to do is done, and works."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptynb as pt
from ptynb import illumination
from tests.remedy_cases import Case, follow

ELECTRON, XRAY = pt.electrons.electron_wavelength(300e3), 1e-10
GRID = (64, 64), (20e-12, 20e-12), ELECTRON
FINE = (64, 64), (25e-9, 25e-9), XRAY
SCAN = pt.simulate(patterns=9, window=17, step=3, seed=3)  # a side of which nothing is compiled first
TILTED = replace(
    SCAN,
    ground_truth=None,
    geometry=pt.TiltedGeometry(
        wavelength=1e-9,
        detector_steps=((0.0, 1e-4, 0.0), (1e-4, 0.0, 0.0)),
        detector_centre=(0.0, 0.3, 0.4),
        beam=(0.0, 0.0, 1.0),
    ),
)
NEAR = replace(
    SCAN,
    ground_truth=None,
    geometry=pt.NearField(
        wavelength=1e-10, focus_to_sample=math.inf, sample_to_detector=0.01, detector_pixel=(1e-6, 1e-6)
    ),
)
TWO_SLICES = {"count": 2, "thickness": 1e-6}


def probe(**aberrations: Any) -> np.ndarray:
    made: np.ndarray = illumination.electron_probe(*GRID, 0.02, aberrations)
    assert np.isfinite(made).all()
    return made


def reconstructed(scan: pt.Scan, **settings: Any) -> None:
    with pt.Reconstruction(scan, pt.Settings(**settings), device="cpu", checkpointing=None) as recon:
        recon.step()


def guessed(slices: int) -> pt.Scan:
    """A first guess of so many slices."""
    shape = SCAN.ground_truth.object.shape[-2:]
    return replace(SCAN, object=np.ones((slices, *shape), np.complex64))


def speck() -> pt.Scan:
    """Its probe is one pixel."""
    lit = np.zeros((1, 17, 17), np.complex64)
    lit[0, 8, 8] = 10
    return replace(SCAN, probe=lit)


def exposed(count: int) -> pt.Scan:
    truth = SCAN.ground_truth
    return pt.simulate_diffraction(truth.object, np.repeat(truth.probe[None], count, axis=0), SCAN.positions)


def number(words: str, sentence: str) -> float:
    found = re.search(rf"{words} ([\d.e-]+\d)", sentence)
    assert found, sentence
    return float(found[1])


PROBES = {
    "an unknown aberration": Case(
        lambda _: probe(defocus=1e-8),
        "give a defocus as C10",
        lambda *_: probe(C10=1e-8),
    ),
    "an aberration by both its names": Case(
        lambda _: probe(C21=1e-8, B2=(1e-8, 0.2)),
        "use one of the two names",
        lambda *_: (probe(C21=1e-8), probe(B2=(1e-8, 0.2))),
    ),
    "a direction of a round aberration": Case(
        lambda _: probe(C30=(1e-6, 0.2)),
        "magnitude alone",
        lambda *_: probe(C30=1e-6),
    ),
    "a stop as wide as its zone plate": Case(
        lambda _: illumination.zone_plate_probe(*FINE, 1e-4, 6e-8, central_stop=1e-4),
        "use a smaller stop, or 0 for none",
        lambda *_: [illumination.zone_plate_probe(*FINE, 1e-4, 6e-8, central_stop=size) for size in (5e-5, 0)],
    ),
    "a spot wider than the window": Case(
        lambda _: illumination.electron_probe((128, 300), (20e-12, 20e-12), ELECTRON, 5e-4),
        "of this size, or larger pixels",
        lambda _, told: (
            illumination.electron_probe((int(number("at least", told)), 300), (20e-12, 20e-12), ELECTRON, 5e-4),
            illumination.electron_probe((128, 300), (40e-12, 20e-12), ELECTRON, 5e-4),
        ),
    ),
    "a pinhole wider than the window": Case(
        lambda _: illumination.pinhole_probe((64, 100), FINE[1], XRAY, 1.7e-6),
        "or larger pixels",
        lambda *_: illumination.pinhole_probe((64, 100), (30e-9, 30e-9), XRAY, 1.7e-6),
    ),
    "a window without pixels": Case(
        lambda _: illumination.electron_probe((0, 64), *GRID[1:], 0.02),
        "give at least 1 along y and x",
        lambda *_: probe(),
    ),
    "a field of one axis": Case(
        lambda _: illumination.propagate(np.ones(8), *FINE[1:], 1e-6),
        "; expected (…, y, x).",
        lambda *_: illumination.propagate(probe(), *FINE[1:], 1e-6),
    ),
    "a dark field": Case(
        lambda _: illumination.propagate(0 * probe(), *FINE[1:], 1e-6),
        "expected a field with propagating waves",
        lambda *_: illumination.propagate(probe(), *FINE[1:], 1e-6),
    ),
}

MODELS = {
    "a projection on tilted planes": Case(
        lambda _: reconstructed(TILTED, optimiser="dm"),
        "use 'adam'",
        lambda *_: reconstructed(TILTED, optimiser="adam"),
    ),
    "a finer grid in the near field": Case(
        lambda _: reconstructed(NEAR, detector={"oversampling": 2}),
        "leave it at 1",
        lambda *_: reconstructed(NEAR),
    ),
    "a guess of other slices": Case(
        lambda _: reconstructed(guessed(3), slices=TWO_SLICES),
        "make them equal, or give an initial object of one slice",
        lambda *_: (
            reconstructed(guessed(2), slices=TWO_SLICES),
            reconstructed(guessed(3), slices=TWO_SLICES | {"count": 3}),
            reconstructed(guessed(1), slices=TWO_SLICES),
        ),
    ),
    "modes that one pixel can't hold": Case(
        lambda _: reconstructed(speck(), probe={"modes": 2}),
        "use fewer modes",
        lambda *_: reconstructed(speck(), probe={"modes": 1}),
    ),
    "some probes for some positions": Case(
        lambda _: exposed(2),
        "give one probe, or one for each position",
        lambda *_: (exposed(1), exposed(len(SCAN))),
    ),
}


@pytest.mark.parametrize("case", [*PROBES, *MODELS])
def test_what_the_sentence_says_helps(tmp_path: Path, case: str) -> None:
    follow((PROBES | MODELS)[case], tmp_path)
