import dataclasses

import numpy as np
import pytest

from ptynb import preparation
from ptynb.data.geometry import Geometry
from ptynb.data.scan import Scan
from ptynb.io.prepared_scan import prepare
from ptynb.settings import Recipe
from ptynb.simulation.illumination import electron_probe, propagate
from tests.parametrization import each
from tests.raising import raises

GEOMETRY = Geometry(wavelength=1e-10, distance=2.0, detector_pixel=(50e-6, 100e-6))
WINDOW = (8, 10)
COUNT = 6


def some_patterns(dtype=np.float32):
    return np.random.default_rng(0).poisson(20, (COUNT, *WINDOW)).astype(dtype)


def some_positions():
    return np.array([[0.0, 0.25], [0.5, 4], [1, 8], [5, 0], [5.5, 4], [6, 8.75]])


def with_value(array, index, value):
    array = np.array(array)
    array[index] = value
    return array


def test_positions_in_metres_agree_with_pixels():
    pixel = np.array([1e-10 * 2 / (8 * 50e-6), 1e-10 * 2 / (10 * 100e-6)])
    metres = Scan.from_arrays(some_patterns(), some_positions() * pixel, units="metres", geometry=GEOMETRY)
    pixels = Scan.from_arrays(some_patterns(), some_positions())
    np.testing.assert_allclose(metres.positions, pixels.positions, rtol=1e-14)
    assert metres.pixel_size == pytest.approx(tuple(pixel))
    assert pixels.pixel_size is None


@each(("order", "centred"), [("centred", True), ("fft", False)])
def test_order_says_where_the_zero_frequency_is(order, centred):
    scan = Scan.from_arrays(some_patterns(), some_positions(), order=order)
    assert scan.centred is centred
    np.testing.assert_array_equal(scan.counts(0, COUNT), some_patterns())


def test_a_scan_knows_its_size():
    scan = Scan.from_arrays(some_patterns(), some_positions(), name="here", geometry=GEOMETRY)
    assert len(scan) == COUNT
    assert scan.pattern_shape == WINDOW
    assert repr(scan) == "<Scan here: 6 patterns of 8 x 10, float32, 1.92 kB in memory, object pixel 5e-07 x 2e-07 m>"


NAN, INF = float("nan"), float("inf")
REFUSED = {
    "patterns of two dimensions": ({"patterns": np.ones((4, 8))}, "array.shape-mismatch", (4, 8)),
    "tiny patterns": ({"patterns": np.ones((6, 3, 8))}, "scan.too-small", "3 x 8", "4 x 4"),
    "complex patterns": ({"patterns": some_patterns(np.complex64)}, "argument.invalid-type", "complex64"),
    "NaN count": ({"patterns": with_value(some_patterns(), (4, 2, 3), NAN)}, "scan.invalid-count", "Pattern 4", "nan"),
    "negative count": ({"patterns": with_value(some_patterns(), (3, 1, 0), -2)}, "scan.invalid-count", "Pattern 3"),
    "NaN with clip_negative": (
        {"patterns": with_value(some_patterns(), (0, 0, 0), NAN), "clip_negative": True},
        "scan.invalid-count",
        "Pattern 0",
        "nan",
    ),
    "mask of another shape": ({"mask": np.ones((10, 8))}, "array.shape-mismatch", (10, 8), (8, 10)),
    "mask False everywhere": ({"mask": np.zeros(WINDOW)}, "scan.mask-empty"),
    "positions transposed": ({"positions": some_positions().T}, "array.shape-mismatch", (2, 6), (6, 2), "transposed"),
    "one axis of positions": (
        {"positions": some_positions()[:, 0]},
        "array.shape-mismatch",
        (6,),
        "np.stack([y, x], 1)",
    ),
    "patterns (y, x, pattern)": (
        {"patterns": np.moveaxis(some_patterns(), 0, 2), "positions": some_positions()},
        "array.shape-mismatch",
        "axis of length 6",
        "np.moveaxis(patterns, 2, 0)",
    ),
    "positions in words": ({"positions": [["a", "b"]] * 6}, "argument.invalid-type", "positions"),
    "wild position": (
        {"positions": with_value(some_positions(), 2, (500, -70))},
        "scan.position-disconnected",
        "Position 2",
        (500, -70),
        "8 x 10",
        "508 x 89",
    ),
    "unknown units": ({"units": "mm"}, "argument.invalid-value", "units is 'mm'"),
    "metres without geometry": ({"units": "metres"}, "scan.no-geometry", "geometry=Geometry("),
    "object guess too small": ({"object": np.ones((14, 18))}, "scan.position-outside", "Position 5", (6, 8.75)),
    "position outside the object guess": (
        {"object": np.ones((30, 30)), "positions": some_positions() - 1},
        "scan.position-outside",
        "Position 0",
        (-1, -0.75),
    ),
    "NaN in the object guess": (
        {"object": with_value(np.ones((30, 30), complex), (0, 0), NAN)},
        "scan.invalid-guess",
        "object",
        "1 values",
    ),
    "probe guess of another shape": ({"probe": np.ones((10, 8))}, "scan.invalid-guess", "probe", (1, 10, 8), "8 x 10"),
    "probe guess zero": ({"probe": np.zeros(WINDOW)}, "scan.invalid-guess", "zero"),
}


@each("case", REFUSED)
def test_what_does_not_fit_together_is_refused(case):
    given, *expected = REFUSED[case]
    arguments = {"patterns": some_patterns(), "positions": some_positions(), **given}
    with raises(*expected):
        Scan.from_arrays(arguments.pop("patterns"), arguments.pop("positions"), **arguments)


def test_a_bad_pattern_far_behind_the_first_is_found_under_its_own_number():
    patterns = np.zeros((5000, 64, 64), np.float32)
    patterns[4700, 5, 6] = -1
    with raises("scan.invalid-count", "Pattern 4700", -1.0, (5, 6)):
        Scan.from_arrays(patterns, np.zeros((5000, 2)))


def test_clip_negative_makes_them_zero_and_leaves_the_rest():
    patterns = with_value(some_patterns(), (3, 1, 0), -2)
    scan = Scan.from_arrays(patterns, some_positions(), clip_negative=True)
    np.testing.assert_array_equal(scan.counts(0, COUNT), with_value(patterns, (3, 1, 0), 0))


@each("bad", [NAN, INF, -5.0])
def test_masked_pixels_count_nothing_whatever_they_hold(bad):
    patterns, mask = some_patterns(), np.ones(WINDOW, int)
    mask[1, 0] = 0
    scan = Scan.from_arrays(with_value(patterns, (slice(None), 1, 0), bad), some_positions(), mask=mask)
    np.testing.assert_array_equal(scan.counts(0, COUNT), with_value(patterns, (slice(None), 1, 0), 0))


def test_joined_by_a_chain_is_not_wild():
    along = np.column_stack([np.arange(0, 400, 8.0), np.zeros(50)])
    assert len(Scan.from_arrays(np.ones((50, *WINDOW)), along)) == 50


@each("padding", [0, 3])
def test_the_object_frame_holds_every_window(padding):
    scan = Scan.from_arrays(some_patterns(), some_positions() - [20, 0])
    frame = scan.object_frame(padding)
    # rounded corners run from (-20, 0) to (-14, 9), windows are 8 x 10
    assert frame.origin == (-20 - padding, -padding)
    assert frame.shape == (6 + 8 + 2 * padding, 9 + 10 + 2 * padding)


def test_the_object_frame_is_that_of_the_guess():
    scan = Scan.from_arrays(some_patterns(), some_positions(), object=np.ones((40, 50), complex))
    frame = scan.object_frame(7)
    assert (frame.origin, frame.shape) == ((0, 0), (40, 50))


def test_a_probe_guess_without_modes_is_one_mode():
    probe = np.random.default_rng(1).standard_normal(WINDOW) + 1j
    scan = Scan.from_arrays(some_patterns(), some_positions(), probe=probe)
    np.testing.assert_array_equal(scan.probe, probe[None])
    np.testing.assert_array_equal(dataclasses.replace(scan, probe=2 * probe).probe, 2 * probe[None])


def test_a_lens_makes_the_probe_and_is_a_step_of_a_recipe():
    scan = Scan.from_arrays(some_patterns(), some_positions(), geometry=GEOMETRY)
    lens = {"convergence_angle": 7e-5, "defocus": 5e-3, "aberrations": {"A1": (1e-3, 0.4)}}
    made = scan.with_probe(**lens)
    expected = electron_probe(WINDOW, scan.pixel_size, 1e-10, 7e-5, {"C10": 5e-3, "C12": (1e-3, 0.4)})
    np.testing.assert_array_equal(made.probe, expected[None])
    # Downstream: a defocus is a step of free space.
    focused = scan.with_probe(convergence_angle=7e-5)
    step = propagate(focused.probe, scan.pixel_size, 1e-10, 5e-3)
    defocused = scan.with_probe(convergence_angle=7e-5, defocus=5e-3).probe
    assert abs(np.vdot(step, defocused)) > 0.97 > 0.9 > abs(np.vdot(step, defocused.conj()))
    recorded = {"convergence_angle": 7e-5, "aberrations": {"C12": [1e-3, 0.4], "C10": 5e-3}}
    assert made.preparation == ({"lens_probe": recorded},)
    again = prepare(scan, Recipe.from_yaml(Recipe(prepare=made.preparation).to_yaml()).prepare)
    assert (again.preparation, again.metadata_digest) == (made.preparation, made.metadata_digest)
    step = preparation.lens_probe(scan, 7e-5, aberrations=recorded["aberrations"])
    np.testing.assert_array_equal(step.probe, made.probe)


def test_with_probe_takes_an_array_or_a_lens():
    scan = Scan.from_arrays(some_patterns(), some_positions())
    probe = np.random.default_rng(1).standard_normal(WINDOW) + 1j
    np.testing.assert_array_equal(scan.with_probe(probe).probe, probe[None])
    with raises("argument.conflict", "convergence_angle="):
        scan.with_probe()
    with raises("argument.conflict", "convergence_angle="):
        scan.with_probe(probe, convergence_angle=0.01)
    with raises("argument.conflict", "convergence_angle="):
        scan.with_probe(probe, defocus=1e-8)
    with raises("scan.no-geometry", "no geometry"):
        scan.with_probe(convergence_angle=0.01)
    with raises("scan.invalid-guess", "(1, 4, 10)"):
        scan.with_probe(probe[:4])


def test_a_part_keeps_the_indices_and_holds_its_own_patterns_only():
    scan = Scan.from_arrays(some_patterns(), some_positions())
    part = scan.part(np.arange(2, 5))
    np.testing.assert_array_equal(part.counts(3, 5), some_patterns()[3:5])
    assert len(part) == COUNT
    np.testing.assert_array_equal(part.positions, scan.positions)
    assert part.frames.array.nbytes == 3 * some_patterns()[0].nbytes


@each(("start", "stop"), [(1, 3), (4, 6)])
def test_patterns_of_another_part_are_not_given(start, stop):
    part = Scan.from_arrays(some_patterns(), some_positions()).part(np.arange(2, 5))
    with pytest.raises(AssertionError, match="another engine's part"):
        part.counts(start, stop)
