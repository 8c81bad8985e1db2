import numpy as np

from ptynb import analysis
from ptynb.analysis.mask_drawing import MaskHistory, painted
from ptynb.simulation.simulated_scan import simulate
from tests.parametrization import each
from tests.raising import raises

ALL = np.ones((20, 30), bool)
Y, X = np.meshgrid(np.arange(20), np.arange(30), indexing="ij")


def test_a_point_makes_a_disc():
    np.testing.assert_array_equal(~painted(ALL, [[8, 9]], 4), np.hypot(Y - 8, X - 9) <= 4)
    np.testing.assert_array_equal(np.argwhere(~painted(ALL, [[8, 9]], 0.5)), [[8, 9]])


def test_a_path_is_as_wide_as_the_brush_and_reaches_beyond_the_edges():
    mask = painted(ALL, [[5, -4], [5, 12], [40, 12]], 2)
    across = (np.abs(Y - 5) <= 2) & (X <= 12)
    down = (np.abs(X - 12) <= 2) & (Y >= 5)
    corner = np.hypot(Y - 5, X - 12) <= 2
    np.testing.assert_array_equal(~mask, across | down | corner)
    assert painted(ALL, [[-50, -50], [-40, -60]], 3).all()


def test_erasing_makes_good_again_and_the_given_mask_stays():
    mask = painted(ALL, [[8, 9]], 4)
    before = mask.copy()
    assert painted(mask, [[8, 9]], 4, good=True).all()
    np.testing.assert_array_equal(mask, before)


@each("path", [[[1, 2, 3]], [], [[0, np.nan]]])
def test_other_paths_are_refused(path):
    with raises("array.shape-mismatch", "path", np.shape(path)):
        painted(ALL, path, 1)


@each("radius", [0, np.inf])
def test_other_radii_are_refused(radius):
    with raises("argument.invalid-value", f"radius is {radius}"):
        painted(ALL, [[1, 1]], radius)


def test_changes_are_undone_in_turn():
    history = MaskHistory(ALL)
    one = painted(ALL, [[3, 3]], 2)
    history.change(one)
    history.change(one)  # nothing new, nothing to undo
    history.change(painted(one, [[9, 9]], 2))
    assert history.changed
    history.undo()
    np.testing.assert_array_equal(history.mask, one)
    history.undo()
    assert history.mask.all()
    assert not history.changed
    history.undo()


def test_a_scan_takes_a_mask():
    scan = simulate(patterns=9, window=32)
    mask = painted(np.ones((32, 32), bool), [[4, 4]], 3)
    masked = analysis.with_mask(scan, mask.astype(np.uint8))
    np.testing.assert_array_equal(masked.mask, mask)
    assert analysis.with_mask(masked, None).mask is None
    with raises("scan.mask-empty"):
        analysis.with_mask(scan, np.zeros((32, 32)))
