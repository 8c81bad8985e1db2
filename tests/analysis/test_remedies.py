"""What the errors of comparisons, of preparation and of figures tell to do is done, and works."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptynb as pt
from ptynb import analysis, preparation
from ptynb.analysis.scan_survey import Surveyor
from tests.analysis.test_registration import blobs
from tests.analysis.test_result_comparison import result
from tests.preparation.scans import FAR
from tests.preparation.test_bright_field_disc import disc_scan
from tests.preparation.test_rotation_fit import phase_scan
from tests.remedy_cases import Case, follow
from tests.report.test_figure import RESULT, TRUTH

FULL = blobs((64, 64))
HALF = FULL * (np.arange(64) > 31)
MOVED = blobs((64, 64), (12, 0))
BEAM = pt.electrons.electron_wavelength(300e3)
DARK = np.zeros((40, 40), complex)
DARK[:, 20:] = 1
GUESSED = dataclasses.replace(disc_scan(), geometry=FAR, object=np.ones((70, 70), complex))
SCAN = pt.simulate(patterns=36, window=32, seed=5)
TURNED = phase_scan(None, 0.4, False)[0]


def together(**given: Any) -> analysis.Together:
    made = analysis.Together(given)
    assert not made.left_out
    return made


def none_left_out(made: analysis.Together) -> None:
    if made.left_out:
        raise ValueError(next(iter(made.left_out.values())))


def surveyed(patterns: int) -> analysis.Survey:
    surveyor = Surveyor(SCAN, sample=patterns)
    surveyor.advance()
    return surveyor.survey()


CASES = {
    "images of two shapes": Case(
        lambda _: analysis.fourier_ring_correlation(FULL, FULL[2:], align=False),
        "or leave align=True",
        lambda *_: analysis.fourier_ring_correlation(FULL, FULL[2:]),
    ),
    "a ramp of nothing": Case(
        lambda _: analysis.without_ramp(DARK, (slice(0, 40), slice(0, 20))),
        "Choose another area or weight",
        lambda *_: (
            analysis.without_ramp(DARK, (slice(0, 40), slice(20, 40))),
            analysis.without_ramp(DARK, weight=np.ones((40, 40))),
        ),
    ),
    "a reference of nothing": Case(
        lambda _: analysis.register(FULL, HALF, (slice(8, 56), slice(4, 28))),
        "Choose another area",
        lambda *_: analysis.register(FULL, HALF, (slice(8, 56), slice(36, 60))),
    ),
    "a shift out of the object": Case(
        lambda _: analysis.register(MOVED, FULL, (slice(4, 60), slice(8, 56))),
        "choose a smaller area or a better offset",
        lambda *_: analysis.register(MOVED, FULL, (slice(20, 44), slice(8, 56))),
    ),
    "no results": Case(
        lambda _: analysis.Together({}),
        "give at least one",
        lambda *_: together(one=result()),
    ),
    "a slice that is not there": Case(
        lambda _: analysis.Together({"thin": result()}, slice=1),
        "choose another one, or all",
        lambda *_: (analysis.Together({"thin": result()}, slice=0), together(thin=result())),
    ),
    "another place": Case(
        lambda _: none_left_out(analysis.Together({"here": result(), "there": result(origin=(5000, 5000))})),
        "Compare it with results of the same place",
        lambda *_: together(here=result(), too=result(origin=(4, -3))),
    ),
    "a survey that has begun": Case(
        lambda _: preparation.estimate_rotation(SCAN, surveyed(6)),
        "Wait for the survey, or leave it out",
        lambda *_: (
            preparation.estimate_rotation(TURNED, analysis.survey(TURNED)),
            preparation.estimate_rotation(TURNED),
        ),
    ),
    "a disc without a wavelength": Case(
        lambda _: preparation.calibrate_from_disc(disc_scan(), 0.02),
        "give wavelength=... [m]",
        lambda *_: preparation.calibrate_from_disc(disc_scan(), 0.02, wavelength=BEAM),
    ),
    "a disc with an object guess": Case(
        lambda _: preparation.calibrate_from_disc(GUESSED, 0.02),
        "leave it out",
        lambda *_: preparation.calibrate_from_disc(dataclasses.replace(GUESSED, object=None), 0.02),
    ),
    "an overview of two results": Case(
        lambda _: pt.figure(RESULT, "overview", RESULT),
        "use pt.figure(result, 'frc', other)",
        lambda *_: pt.figure(RESULT, "frc", RESULT),
    ),
    "a correlation of one": Case(
        lambda _: pt.figure(RESULT, "frc"),
        "give another result or scan.ground_truth after 'frc'",
        lambda *_: (pt.figure(RESULT, "frc", RESULT), pt.figure(RESULT, "frc", TRUTH)),
    ),
    "positions of a truth": Case(
        lambda _: pt.figure(RESULT, "positions", TRUTH),
        "give another result, or omit `against`",
        lambda *_: (pt.figure(RESULT, "positions", RESULT), pt.figure(RESULT, "positions")),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_the_sentence_says_helps(tmp_path: Path, case: str) -> None:
    follow(CASES[case], tmp_path)
