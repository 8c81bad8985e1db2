import dataclasses

import numpy as np

from ptynb import preparation as prepare
from tests.parametrization import each
from tests.preparation.scans import misfit, smooth_scan
from tests.raising import raises

CHOICES = {
    "slice": (slice(1, None, 3), [1, 4, 7]),
    "indices": ([6, -1, 2], [6, 7, 2]),
    "truth values": ([True, False, False, True, False, False, False, True], [0, 3, 7]),
}


@each("name", CHOICES)
def test_patterns_and_positions_stay_together(name):
    which, expected = CHOICES[name]
    scan = smooth_scan(bad=True)
    scan = dataclasses.replace(scan, motion=2 * scan.positions)
    made = prepare.select(scan, which)
    np.testing.assert_array_equal(made.motion, 2 * made.positions)
    np.testing.assert_array_equal(made.positions, scan.positions[expected])
    np.testing.assert_array_equal(made.counts(0, 3), scan.counts(0, 8)[expected])
    assert misfit(made) < 1e-9


def test_numbers_of_a_pattern_stay_with_it():
    scan = smooth_scan()
    noisy = prepare.add_poisson_noise(prepare.normalise(scan, monitor=np.arange(1.0, 9)), seed=4)
    np.testing.assert_array_equal(prepare.select(noisy, [5, 2]).counts(0, 2), noisy.counts(0, 8)[[5, 2]])


REFUSED = {
    "nothing": ([], "scan.nothing-left", 8),
    "beyond the end": ([0, 8], "argument.invalid-value", "-8 to 7"),
    "bools of another scan": ([True] * 7, "argument.invalid-value", "8 bools"),
    "floats": ([0.5, 1.0], "argument.invalid-value", "float64"),
}


@each("name", REFUSED)
def test_other_choices_are_refused(name):
    which, *expected = REFUSED[name]
    with raises(*expected):
        prepare.select(smooth_scan(), which)
