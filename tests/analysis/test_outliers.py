import dataclasses

import numpy as np

from ptynb import analysis
from ptynb.analysis.outliers import suspicious_positions
from ptynb.data.patterns import ArrayFrames
from ptynb.data.scan import Scan
from ptynb.simulation.simulated_scan import simulate
from tests.analysis.scans import raster
from tests.parametrization import each
from tests.raising import raises

SCAN = simulate(patterns=144, window=32, photons=1e5, seed=4)


def spiral(count):
    index = np.arange(count) + 0.5
    radius, angle = np.sqrt(index), index * np.pi * (3 - np.sqrt(5))
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


def with_patterns(change):
    patterns = SCAN.counts(0, len(SCAN)).astype(np.uint16)
    change(patterns)
    return dataclasses.replace(SCAN, frames=ArrayFrames.of(patterns))


def found(scan):
    return {reason: indices.tolist() for reason, indices in analysis.find_suspicious(scan).found.items()}


@each(
    "positions",
    [SCAN.positions, raster(900), raster(905), spiral(700), np.random.default_rng(0).permutation(raster(900))],
)
def test_good_positions_are_not_suspicious(positions):
    assert not any(len(indices) for indices in suspicious_positions(positions).values())


def test_planted_positions_are_found():
    positions = raster(900)  # 30 rows of 30, 2 pixels apart
    positions[100] = positions[101]
    positions[400] += (30, 25)  # still inside the scan: its neighbours in time give it away
    positions[500] = (500, -20)
    spoilt = {reason: indices.tolist() for reason, indices in suspicious_positions(positions).items()}
    assert spoilt == {
        "same place": [100, 101],
        "far from others": [],
        "outside": [500],
        "off the path": [400, 500],
    }


def test_a_lone_position_is_found():
    positions = np.concatenate([raster(400), [[19.0, 55.0]]])
    assert suspicious_positions(positions)["far from others"].tolist() == [400]


def test_good_patterns_are_not_suspicious():
    for seed in range(3):
        scan = simulate(patterns=144, window=32, photons=1e4, seed=seed)
        assert found(scan) == {}, seed


def test_planted_patterns_are_found():
    def spoil(patterns):
        patterns[20] = 0
        patterns[50] = patterns[50] * 3
        patterns[70] = patterns[70] // 2
        patterns[90] = np.roll(patterns[90], (4, 0), (0, 1))
        patterns[110, 3, 3] = 65535

    spoilt = found(with_patterns(spoil))
    assert spoilt["dark"] == [20]
    assert {50, 110} == set(spoilt["brighter"])
    assert spoilt["darker"] == [70]
    assert 90 in spoilt["shifted"]
    assert spoilt["saturated"] == [110]
    found_again = analysis.find_suspicious(with_patterns(spoil))
    assert found_again.reasons(110)[0] == "saturated"
    assert 20 in found_again.indices
    assert (20, "dark") in list(found_again)
    assert len(found_again) == len(list(found_again))


def test_a_ceiling_is_saturation_and_a_peak_is_none():
    scan = with_patterns(lambda patterns: np.minimum(patterns, 400, out=patterns))
    saturated = np.flatnonzero((SCAN.counts(0, 144) >= 400).any((1, 2))).tolist()
    assert len(saturated) > 3
    assert found(scan)["saturated"] == saturated


def test_numbers_that_are_no_counts():
    patterns = SCAN.counts(0, len(SCAN)).astype(np.float32)
    patterns[3, 1, 1], patterns[5, 1, 1] = np.inf, -2
    scan = dataclasses.replace(SCAN, frames=ArrayFrames.of(patterns))
    assert found(scan) == {"not finite": [3], "negative": [5]}
    assert found(dataclasses.replace(scan, clip_negative=True)) == {"not finite": [3]}


def test_patterns_are_left_out():
    left = analysis.leave_out(SCAN, [3, -1, 3])
    assert len(left) == 142
    np.testing.assert_array_equal(left.positions, np.delete(SCAN.positions, [3, 143], axis=0))
    np.testing.assert_array_equal(left.counts(3, 4), SCAN.counts(4, 5))
    assert len(analysis.leave_out(SCAN, [])) == 144
    with raises("argument.invalid-value", 144, "0 to 143"):
        analysis.leave_out(SCAN, [2, 144])
    with raises("scan.nothing-left", 144):
        analysis.leave_out(SCAN, range(144))
    with raises("argument.invalid-type", "float64"):
        analysis.leave_out(SCAN, [0.5])


def test_few_patterns_are_no_error():
    one = Scan.from_arrays(np.ones((1, 8, 8)), [[0.0, 0.0]])
    assert len(analysis.find_suspicious(one)) == 0
    assert repr(analysis.find_suspicious(one)) == "<Suspicious: nothing>"
