import math

import numpy as np
import pytest

from ptynb import analysis, preparation
from ptynb.analysis.scan_survey import Surveyor
from ptynb.data.scan import Scan
from ptynb.simulation.simulated_scan import simulate
from tests.parametrization import each
from tests.preparation.test_rotation_fit import phase_scan, potential_gradient
from tests.raising import raises


def turned_scan(degrees, noise=False):
    """Gaussian spots, moved by the gradient of a potential at the true places, on a stage that is turned."""
    stage = np.stack(np.meshgrid(np.arange(25.0), np.arange(25.0), indexing="ij"), -1).reshape(-1, 2)
    true = stage @ preparation.affine_matrix(rotation=math.radians(degrees)).T
    centres = 16 + 0.5 * potential_gradient(true)
    grid = np.arange(32.0)
    rows, columns = (np.exp(-((grid - centre[:, None]) ** 2) / 18) for centre in centres.T)
    patterns = 40 * rows[:, :, None] * columns[:, None, :]
    if noise:
        patterns = np.random.default_rng(3).poisson(patterns).astype(float)
    return Scan.from_arrays(patterns, stage)


@each("degrees", [-67.0, 0.0, 12.3, 40.0])
@each("noise", [False, True])
def test_a_known_rotation_is_found_to_half_a_degree(degrees, noise):
    found = analysis.scan_rotation(turned_scan(degrees, noise))
    assert abs(found.degrees - degrees) < 0.5
    assert not found.transposed
    assert found.curl_after < 0.1
    if degrees:
        assert found.curl_before > found.curl_after


def test_a_survey_gives_the_same_and_what_is_applied_leaves_nothing_to_turn():
    scan = turned_scan(25.0)
    found = analysis.scan_rotation(scan, analysis.survey(scan))
    assert found.angle == pytest.approx(analysis.scan_rotation(scan).angle, abs=1e-9)
    right = analysis.scan_rotation(found.apply(scan))
    assert abs(right.degrees) < 0.2
    assert right.curl_before == pytest.approx(found.curl_after, rel=0.2)


@each("transposed", [False, True])
def test_a_phase_object_behind_a_turned_or_mirrored_stage(transposed):
    scan, _ = phase_scan(None, math.radians(30), transposed)
    found = analysis.scan_rotation(scan)
    assert found.transposed is transposed
    assert abs(found.degrees - 30) < 1  # to first order only: the probe is not small against the object
    assert found.curl_after < found.curl_before / 2


def test_too_small_a_sample_is_refused():
    scan = simulate(patterns=400, window=32)
    surveyor = Surveyor(scan, sample=30)
    surveyor.advance()
    with raises("scan.survey-incomplete", "30 of 400"):
        analysis.scan_rotation(scan, surveyor.survey())


def test_the_middle_of_a_large_scan_is_enough(monkeypatch):
    monkeypatch.setattr("ptynb.analysis.rotation_check.MOST", 200)
    assert abs(analysis.scan_rotation(turned_scan(12.3)).degrees - 12.3) < 0.5
