import numpy as np

from ptynb.kernels.unpack import arrange
from tests.parametrization import each

SHAPE = (5, 6, 7)


@each("shifts", [(0, 0), (3, 3), (0, 2), (5, 0)])
@each(
    ("stored", "kept"),
    [("u1", "u1"), ("u2", "u2"), (">u2", "u2"), ("i4", "u2"), ("u8", "i4"), ("f2", "f4"), ("f4", "f4"), (">f8", "f8")],
)
def test_patterns_are_rolled_converted_and_added_up(stored, kept, shifts):
    patterns = np.random.default_rng(4).integers(0, 200, SHAPE).astype(stored)
    out, total = np.zeros(SHAPE, kept), np.ones(SHAPE[1:])
    arrange(patterns, shifts, out, total)
    expected = np.roll(patterns.astype(kept), tuple(-shift for shift in shifts), (1, 2))
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(total, 1 + expected.sum(0, dtype=np.float64))


def test_sums_of_integers_are_exact():
    patterns = np.random.default_rng(0).integers(2**31 - 5000, 2**31, (1000, 2, 2)).astype(np.int32)
    total = np.zeros((2, 2))
    for some in (patterns[:533], patterns[533:]):
        arrange(some, (1, 1), np.empty_like(some), total)
    np.testing.assert_array_equal(total, np.roll(patterns, (1, 1), (1, 2)).sum(0, dtype=np.int64))
