import pickle

import numpy as np
from scipy.spatial import cKDTree

from ptynb.analysis import split_scan
from ptynb.analysis.half_scans import in_second_half
from ptynb.data.patterns import ArrayFrames, SelectedFrames
from ptynb.data.scan import Scan
from tests.parametrization import each
from tests.raising import raises

WINDOW = (8, 10)


def raster(rows, columns, step=(2.0, 2.0), snake=False):
    y, x = np.mgrid[:rows, :columns].astype(float)
    if snake:
        x[1::2] = x[1::2, ::-1]
    return np.stack([y.ravel() * step[0], x.ravel() * step[1]], 1)


def some_patterns(count):
    return np.random.default_rng(0).poisson(20, (count, *WINDOW)).astype(np.uint16)


def spiral(count):
    t = np.arange(count)
    return 1.5 * np.sqrt(t)[:, None] * np.stack([np.sin(2.39996 * t), np.cos(2.39996 * t)], 1)


@each("columns", [7, 8])
@each("snake", [False, True])
@each("step", [(2.0, 2.0), (3.0, 1.0)])
def test_a_raster_becomes_a_checkerboard(columns, snake, step):
    positions = raster(6, columns, step, snake)
    parity = (positions / step).sum(1).astype(int) % 2 == 1
    second = in_second_half(positions)
    assert (second == parity).all() or (second == ~parity).all()


@each(
    "positions",
    [
        spiral(301),
        np.random.default_rng(0).uniform(0, 40, (400, 2)),
        raster(20, 20) + np.random.default_rng(1).normal(0, 0.4, (400, 2)),
        np.random.default_rng(2).permutation(raster(20, 20)),
        np.repeat(raster(9, 9), 2, axis=0),
        raster(1, 2),
        np.zeros((5, 2)),
    ],
)
def test_each_half_covers_what_the_scan_covers(positions):
    second = in_second_half(positions)
    assert abs(second.sum() - (~second).sum()) <= 1
    reach = cKDTree(positions).query(positions, min(5, len(positions)))[0][:, -1]
    for half in (second, ~second):
        gaps = cKDTree(positions[half]).query(positions)[0]
        # At nearly every place one of its four nearest neighbours, or itself, is in the half.
        assert np.mean(gaps <= reach + 1e-9) > 0.97


def test_every_pattern_is_in_one_half_with_its_position():
    patterns, positions = some_patterns(35), spiral(35)
    mask = np.arange(80).reshape(WINDOW) > 3
    scan = Scan.from_arrays(patterns, positions, mask=mask, motion=2 * positions, name="dots")
    parts = split_scan(scan)
    seen = []
    for number, half in enumerate(parts, start=1):
        assert half.name == f"dots, half {number} of 2"
        assert half.mask is scan.mask
        np.testing.assert_array_equal(half.motion, 2 * half.positions)
        index = [int(np.flatnonzero((positions == place).all(1))[0]) for place in half.positions]
        np.testing.assert_array_equal(half.counts(0, len(half)), np.where(scan.mask, patterns[index], 0))
        seen += index
    assert sorted(seen) == list(range(35))
    assert len(parts[0]) + len(parts[1]) == 35


def test_an_engine_gets_only_its_part_of_a_half():
    patterns = some_patterns(48)
    half = split_scan(Scan.from_arrays(patterns, raster(6, 8)))[1]
    whole = half.frames.read(0, len(half))
    part = pickle.loads(pickle.dumps(half.part(np.array([5, 9, 13]))))
    assert len(part) == len(half)
    for pattern in (5, 9, 13):
        np.testing.assert_array_equal(part.counts(pattern, pattern + 1), whole[pattern : pattern + 1])
    assert len(part.frames.source.array) == 3


@each("indices", [[-1, 2], [0, 60], [[1, 2]]])
def test_indices_outside_are_refused(indices):
    with raises("argument.invalid-value", "0 to 59"):
        SelectedFrames.of(ArrayFrames.of(some_patterns(60)), np.array(indices))


def test_a_single_pattern_has_no_halves():
    with raises("scan.too-few-patterns", "1 pattern"):
        split_scan(Scan.from_arrays(some_patterns(1), np.zeros((1, 2))))
