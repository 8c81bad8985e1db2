import numpy as np
import pytest

from ptynb.data.geometry import Geometry
from ptynb.data.scan import Scan
from ptynb.exceptions import ScanError
from tests.pairs import each

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


@each("dtype", [np.uint8, np.uint16, np.int32, np.float32, np.float64])
def test_counts_keep_their_type_and_values(dtype):
    scan = Scan.from_arrays(some_patterns(dtype), some_positions(), mask=np.ones(WINDOW))
    assert scan.counts(2, 4).dtype == dtype
    np.testing.assert_array_equal(scan.counts(2, 4), some_patterns(dtype)[2:4])


NAN, INF = float("nan"), float("inf")
REFUSED = {
    "patterns of two dimensions": (
        {"patterns": np.ones((4, 8))},
        r"The patterns have shape \(4, 8\); expected \(pattern, y, x\)",
    ),
    "no pattern": ({"patterns": np.ones((0, 8, 8))}, r"shape \(0, 8, 8\); expected \(pattern, y, x\), none of them 0"),
    "tiny patterns": ({"patterns": np.ones((6, 3, 8))}, "The patterns are 3 x 8 pixels; expected at least 4 x 4"),
    "complex patterns": ({"patterns": some_patterns(np.complex64)}, "of type complex64; expected real counts"),
    "boolean patterns": ({"patterns": some_patterns(bool)}, "of type bool; expected real counts"),
    "NaN count": (
        {"patterns": with_value(some_patterns(), (4, 2, 3), NAN)},
        r"Pattern 4 has the count nan at pixel \(2, 3\); expected finite numbers\. Give a mask",
    ),
    "infinite count": (
        {"patterns": with_value(some_patterns(), (5, 7, 9), INF)},
        r"Pattern 5 has the count inf at pixel \(7, 9\)",
    ),
    "negative count": (
        {"patterns": with_value(some_patterns(), (3, 1, 0), -2)},
        r"Pattern 3 has the count -2\.0 at pixel \(1, 0\); expected counts of at least 0.*clip_negative=True",
    ),
    "negative integer": (
        {"patterns": with_value(some_patterns(np.int16), (3, 1, 0), -2)},
        r"Pattern 3 has the count -2 at pixel \(1, 0\)",
    ),
    "NaN with clip_negative": (
        {"patterns": with_value(some_patterns(), (0, 0, 0), NAN), "clip_negative": True},
        "Pattern 0 has the count nan",
    ),
    "mask of another shape": (
        {"mask": np.ones((10, 8))},
        r"The mask has shape \(10, 8\); expected that of a pattern, \(8, 10\)",
    ),
    "mask False everywhere": ({"mask": np.zeros(WINDOW)}, r"The mask is False everywhere.*Is it inverted\?"),
    "positions transposed": (
        {"positions": some_positions().T},
        r"shape \(2, 6\); expected \(6, 2\).*They look transposed",
    ),
    "too few positions": ({"positions": some_positions()[:5]}, r"shape \(5, 2\); expected \(6, 2\).*each of the 6"),
    "flat positions": ({"positions": some_positions().ravel()}, r"shape \(12,\); expected \(6, 2\)"),
    "positions in words": ({"positions": [["a", "b"]] * 6}, "The positions are not real numbers"),
    "NaN position": (
        {"positions": with_value(some_positions(), (4, 1), NAN)},
        r"Position 4 is \(5\.5, nan\); expected finite numbers",
    ),
    "wild position": (
        {"positions": with_value(some_positions(), 2, (500, -70))},
        r"Position 2 at \(500, -70\) pixels lies more than a probe window \(8 x 10\).*object of 508 x 89 pixels",
    ),
    "two wild positions": (
        {"positions": with_value(some_positions(), [3, 5], [(500, 0), (-900, 0)])},
        r"Position 3 and 1 more at \(500, 0\) pixels",
    ),
    "unknown units": ({"units": "mm"}, "units is 'mm'; expected 'pixels' or 'metres'"),
    "metres without geometry": ({"units": "metres"}, "The positions are in metres, and without geometry=Geometry"),
    "unknown order": ({"order": "middle"}, "order is 'middle'; expected 'centred' or 'fft'"),
    "object guess too small": (
        {"object": np.ones((14, 18))},
        r"Position 5 is \(6, 8\.75\): its 8 x 10 window is not inside the given object of 14 x 18 pixels",
    ),
    "position outside the object guess": (
        {"object": np.ones((30, 30)), "positions": some_positions() - 1},
        r"Position 0 is \(-1, -0\.75\)",
    ),
    "object guess of four dimensions": (
        {"object": np.ones((2, 2, 30, 30))},
        r"The object guess has shape \(2, 2, 30, 30\).*expected 2 or 3 dimensions",
    ),
    "NaN in the object guess": (
        {"object": with_value(np.ones((30, 30), complex), (0, 0), NAN)},
        "The object guess has shape .* and 1 values that are not finite",
    ),
    "probe guess of another shape": (
        {"probe": np.ones((10, 8))},
        r"The probe guess has shape \(1, 10, 8\).*the patterns' 8 x 10 pixels\. Crop, pad or resample",
    ),
    "probe guess zero": ({"probe": np.zeros(WINDOW)}, "not zero everywhere"),
    "probe guess of four dimensions": (
        {"probe": np.ones((1, 1, *WINDOW))},
        r"The probe guess has shape \(1, 1, 8, 10\).*expected 3 dimensions",
    ),
    "infinite probe guess": (
        {"probe": np.full(WINDOW, INF)},
        "The probe guess has shape .* and 80 values that are not finite",
    ),
}


@each("case", REFUSED)
def test_what_does_not_fit_together_is_refused(case):
    given, words = REFUSED[case]
    arguments = {"patterns": some_patterns(), "positions": some_positions(), **given}
    with pytest.raises(ScanError, match=words) as caught:
        Scan.from_arrays(arguments.pop("patterns"), arguments.pop("positions"), **arguments)
    assert isinstance(caught.value, ValueError)


def test_a_bad_pattern_far_behind_the_first_is_found_under_its_own_number():
    patterns = np.zeros((5000, 64, 64), np.float32)
    patterns[4700, 5, 6] = -1
    with pytest.raises(ScanError, match=r"Pattern 4700 has the count -1\.0 at pixel \(5, 6\)"):
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
    np.testing.assert_array_equal(Scan.from_arrays(some_patterns(), some_positions(), probe=probe).probe, probe[None])


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
