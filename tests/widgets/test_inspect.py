import dataclasses
import io
import math
import re
import threading
import time
from xml.etree import ElementTree

import h5py
import numpy as np
import pytest
from PIL import Image

import ptynb as pt
from ptynb import analysis, preparation
from ptynb.data.patterns import ArrayFrames, HDF5Frames
from ptynb.data.scan import Scan
from ptynb.simulation.simulated_scan import simulate
from ptynb.widgets import elements
from ptynb.widgets.elements import below
from ptynb.widgets.inspect import Inspect, facts, inspect
from ptynb.widgets.inspect.inspect_state import number_list, read_number_list
from ptynb.widgets.inspect.position_map import KINDS, PositionMap
from ptynb.widgets.inspect.scan_facts import histogram
from ptynb.widgets.viewer.viewer import Viewer
from tests.analysis.scans import made, raster
from tests.live_source import Source
from tests.preparation.test_rotation_fit import electron_scan
from tests.raising import raises
from tests.tuning import recommend_scans

SCAN = simulate(patterns=36, window=32, seed=3)
COUNTS = SCAN.counts(0, len(SCAN)).astype(np.float64)
MASK = np.ones(SCAN.pattern_shape, bool)
MASK[3:5, 20:24] = False


@pytest.fixture
def shown(monkeypatch):
    """Looks at a scan with a browser that draws at once, and closes the look afterwards."""
    monkeypatch.setattr(Viewer, "ready", property(lambda _: True))
    open_ones = []

    def look(scan, *, wait=True):
        one = inspect(scan)
        open_ones.append(one)
        one.lines = []
        one.tell = one.lines.append
        if wait:
            one.settle()
        return one

    yield look
    for one in open_ones:
        one.close()


def control(look, description):
    found = [widget for widget in below(look) if getattr(widget, "description", "") == description]
    assert found, description
    return found[0]


def press(look, description):
    control(look, description).click()
    look.settle()


def picture(look, name):
    """The newest picture of this name: its description, and its grey levels or colours as an array."""
    frames = [widget.frame["pictures"] for widget in below(look) if isinstance(widget, Viewer)]
    found = next(picture for pictures in frames for picture in pictures if picture["name"] == name)
    return found, np.asarray(Image.open(io.BytesIO(found["image"]))).astype(float)


def values(look, name):
    """The picture's values, to its 255th part."""
    found, levels = picture(look, name)
    low, high = found["limits"]
    return low + levels / 255 * (high - low), (high - low) / 250


def words(look):
    return " ".join(widget.value for widget in below(look) if isinstance(widget, elements.HTML))


def done_by(lines, scan):
    """What the lines of Python make of a scan."""
    names = {"pt": pt, "np": np, "scan": scan}
    exec("\n".join(lines), names)
    return names


def same(one, other):
    np.testing.assert_array_equal(one.positions, other.positions)
    np.testing.assert_array_equal(one.counts(0, len(one)), other.counts(0, len(other)))
    assert (one.mask is None) == (other.mask is None)
    if one.mask is not None:
        np.testing.assert_array_equal(one.mask, other.mask)


# Patterns and their places


def test_a_look_shows_facts_map_pattern_and_statistics(shown):
    look = shown(SCAN)
    assert isinstance(look, Inspect)
    assert "36 patterns of 32 × 32, float32" in facts(SCAN)
    assert "8.266 keV, object pixel 125 × 125 nm" in facts(SCAN)
    assert facts(SCAN) in words(look)
    assert "36 of 36 patterns surveyed, complete" in words(look)
    for name, expected in (
        ("pattern", COUNTS[0]),
        ("mean", COUNTS.mean(0)),
        ("maximum", COUNTS.max(0)),
        ("variance", COUNTS.var(0)),
    ):
        found, step = values(look, name)
        assert np.abs(found - np.log10(expected + 1)).max() <= step, name
    found, _ = values(look, "map")
    assert found.max() > 0
    assert look.scan is SCAN
    assert look.lines == []


def test_a_pattern_is_chosen_by_number_buttons_and_a_click_on_the_map(shown):
    look = shown(SCAN)

    def chosen():
        look.settle()
        index = look.state.index
        found, step = values(look, "pattern")
        assert np.abs(found - np.log10(COUNTS[index] + 1)).max() <= step
        y, x = SCAN.positions[index]
        assert f"{COUNTS[index].sum():,.0f} counts, maximum {COUNTS[index].max():,.0f}; " in words(look)
        assert f"position y {y:.2f}, x {x:.2f} object pixels" in words(look)
        assert control(look, "Pattern").value == index
        assert look.patterns._map_view.chosen["map"] == index
        return index

    assert chosen() == 0
    control(look, "Pattern").value = 17
    assert chosen() == 17
    press(look, "Next")
    assert chosen() == 18
    press(look, "Previous")
    press(look, "Previous")
    assert chosen() == 16
    places = look.patterns._map.points
    y, x = places[29]
    look.patterns._map_view._received(None, {"kind": "click", "name": "map", "y": y + 0.2, "x": x}, [])
    assert chosen() == 29
    control(look, "Pattern").value = 35
    press(look, "Next")
    assert chosen() == 35


@pytest.mark.parametrize(
    ("scale", "change"),
    [("linear", lambda counts: counts), ("log", lambda c: np.log10(c + 1)), ("gamma", lambda c: c**0.3)],
)
def test_counts_are_shown_linear_logarithmic_or_to_a_power(shown, scale, change):
    look = shown(SCAN)
    control(look, "Scale").value = scale
    control(look, "Exponent").value = 0.3
    look.settle()
    found, step = values(look, "pattern")
    assert np.abs(found - change(COUNTS[0])).max() <= step
    assert (control(look, "Exponent").layout.display == "none") == (scale != "gamma")
    assert look.patterns._value_at("pattern", 4, 5) == f"{COUNTS[0, 4, 5]:,.6g} counts"


def test_what_means_nothing_now_is_not_offered(shown):
    """A pause after the survey, a radius of what has none."""
    look = shown(SCAN)
    assert control(look, "Pause survey").layout.display == "none"
    for kind, offered in (("counts", False), ("bright field", True), ("dark field", True), ("brightest", False)):
        control(look, "Map").value = kind
        assert (control(look, "Radius [pixels]").layout.display is None) == offered
    look.settle()
    assert f"{int((~MASK).sum())} bad pixels masked" in words(shown(dataclasses.replace(SCAN, mask=MASK)))


@pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "masked"])
def test_fft_order_looks_the_same_as_centred(shown, mask):
    centred = Scan.from_arrays(COUNTS, SCAN.positions, mask=mask)
    other = Scan.from_arrays(
        np.fft.ifftshift(COUNTS, axes=(1, 2)),
        SCAN.positions,
        order="fft",
        mask=None if mask is None else np.fft.ifftshift(mask),
    )
    one, two = shown(centred), shown(other)
    for look in (one, two):
        look._tab.selected_index = 1
        look.settle()
    for name in ("pattern", "map", "mask"):
        assert picture(one, name)[0]["image"] == picture(two, name)[0]["image"], name


@pytest.mark.parametrize("kind", KINDS)
def test_virtual_images_are_those_of_the_counts(shown, kind):
    look = shown(SCAN)
    control(look, "Map").value = kind
    control(look, "Radius [pixels]").value = 4
    look.settle()
    seen = look.state.survey
    moments = preparation.centre_of_mass(SCAN) - preparation.centre_of_mass(SCAN).mean(0)
    expected = {
        "counts": COUNTS.sum((1, 2)),
        "bright field": seen.annulus(0, 4),
        "dark field": seen.annulus(4),
        "brightest": COUNTS.max((1, 2)),
        "centre of mass y": moments[:, 0],
        "centre of mass x": moments[:, 1],
    }
    if kind == "centre of mass":
        assert picture(look, "map")[0]["limits"] is None
        return
    found, step = values(look, "map")
    low, high = picture(look, "map")[0]["limits"]
    for index, (y, x) in enumerate(look.patterns._map.points.astype(int)):
        assert abs(found[y, x] - np.clip(expected[kind][index], low, high)) <= step


def test_the_map_finds_every_pattern_and_keeps_the_scale_of_both_axes():
    places = PositionMap(SCAN)
    assert [places.pattern_at(y, x) for y, x in places.points] == list(range(len(SCAN)))
    ratio = np.ptp(places.points, axis=0) / np.ptp(SCAN.positions, axis=0)
    assert ratio[0] == pytest.approx(ratio[1])
    one = PositionMap(Scan.from_arrays(COUNTS[:1], SCAN.positions[:1]))
    assert one.pattern_at(0, 0) == 0
    # A sample fills the picture between its patterns, and a hole in the scan stays one.
    ring = raster(2500)
    hole = np.hypot(*(ring - ring.mean(0)).T) > 20
    scan = Scan.from_arrays(np.ones((int(hole.sum()), 4, 4)), ring[hole])
    some = np.zeros(len(scan), bool)
    some[::10] = True
    image = PositionMap(scan).image(np.where(some, 5.0, np.nan), some)
    middle = image.shape[0] // 2
    assert image[middle, middle] == 0
    assert (image[10] == 5).mean() > 0.9


@pytest.mark.parametrize("steps", [(1, 1), (4, 1), (1, 9)])
def test_rasters_with_oblong_steps_leave_no_stripes(steps):
    scan = Scan.from_arrays(np.ones((900, 40, 40)), raster(900, 1.0) * steps)
    assert (PositionMap(scan).image(np.ones(900), np.ones(900, bool)) == 1).all()


@pytest.mark.parametrize("value", [0, 7])
def test_patterns_without_contrast_and_single_ones_are_no_warning(shown, value):
    frames = ArrayFrames.of(np.full((1, 8, 8), value, np.uint16))
    scan = Scan(frames=frames, positions=SCAN.positions[:1])
    look = shown(scan)
    assert len(np.unique(picture(look, "pattern")[1])) == 1
    for scale in ("linear", "gamma"):
        control(look, "Scale").value = scale
    for kind in KINDS:
        control(look, "Map").value = kind
        look.settle()
    for tab in range(4):
        look._tab.selected_index = tab
        look.settle()
    press(look, "Find suspicious")
    assert "alert" not in words(look)
    assert f"{64 * value} counts, maximum {value};" in words(look)


def test_a_hostile_name_is_text(shown):
    scan = dataclasses.replace(SCAN, name="<script>alert('x')</script>&")
    assert "&lt;script&gt;" in facts(scan)
    assert "<script" not in words(shown(scan))


def test_the_histogram_is_a_picture_with_a_bar_for_each_octave():
    patterns = np.zeros((1, 8, 8))
    patterns[0, 0, :4] = [1, 2, 3, 9]
    root = ElementTree.fromstring(histogram(analysis.survey(Scan.from_arrays(patterns, [[0.0, 0.0]]))))
    titles = [bar.find("title").text for bar in root.findall("rect")]
    assert titles == [
        "from 0 counts: 60 pixels",
        "from 1 counts: 1 pixels",
        "from 2 counts: 2 pixels",
        "from 4 counts: 0 pixels",
        "from 8 counts: 1 pixels",
    ]


# Mask


def stroke(look, path, radius, erase=False):
    """As the browser sends it: places count from a pixel's corner."""
    points = (np.array(path) + 0.5).astype("<f4").tobytes()
    look.mask._view._received(None, {"kind": "stroke", "name": "mask", "radius": radius, "erase": erase}, [points])
    look.settle()


@pytest.mark.parametrize("order", ["centred", "fft"])
def test_a_mask_is_painted_undone_saved_loaded_and_used(shown, order, tmp_path):
    turn = np.fft.ifftshift if order == "fft" else np.asarray
    patterns = turn(COUNTS, axes=(1, 2)) if order == "fft" else COUNTS
    scan = Scan.from_arrays(patterns, SCAN.positions, order=order)
    look = shown(scan)
    look._tab.selected_index = 1
    control(look, "Paint").value = True
    assert look.mask._view.painted == "mask"
    stroke(look, [[4, 5], [4, 9]], 1.5)
    stroke(look, [[20, 20]], 3.0)
    stroke(look, [[20, 21]], 1.0, erase=True)
    expected = analysis.painted(np.ones((32, 32), bool), [[4, 5], [4, 9]], 1.5)
    expected = analysis.painted(expected, [[20, 20]], 3)
    before = expected
    expected = analysis.painted(expected, [[20, 21]], 1, good=True)
    np.testing.assert_array_equal(look.mask.mask, turn(expected))
    colours = picture(look, "mask")[1]
    np.testing.assert_array_equal((colours == (230, 159, 0)).all(-1), ~expected)
    press(look, "Undo")
    np.testing.assert_array_equal(look.mask.mask, turn(before))
    for name in ("mask.npy", "mask.h5"):
        control(look, "File").value = str(tmp_path / name)
        press(look, "Save")
        np.testing.assert_array_equal(pt.load_mask(tmp_path / name), turn(before))
    control(look, "y").value, control(look, "x").value = 8, 9
    press(look, "Mask disc")
    assert (~look.mask.mask).sum() > (~before).sum()
    press(look, "Load")
    np.testing.assert_array_equal(look.mask.mask, turn(before))
    press(look, "Use mask")
    np.testing.assert_array_equal(look.scan.mask, turn(before))
    same(look.scan, done_by(look.lines, scan)["scan"])
    assert f"{int((~before).sum())} bad pixels masked" in words(look)
    press(look, "Undo last change")
    assert look.scan is scan
    assert done_by(look.lines, scan)["scan"] is scan


def test_a_mask_that_nothing_was_painted_on_is_saved_and_used_by_lines_that_run(shown, tmp_path):
    scan = analysis.with_mask(SCAN, MASK)
    look = shown(scan)
    look._tab.selected_index = 1
    control(look, "File").value = str(tmp_path / "mask.npy")
    press(look, "Save")
    (tmp_path / "mask.npy").unlink()
    done_by(look.lines, scan)
    np.testing.assert_array_equal(pt.load_mask(tmp_path / "mask.npy"), MASK)
    look.lines.clear()
    press(look, "Use mask")
    same(look.scan, done_by(look.lines, scan)["scan"])


def test_bad_pixels_are_found_and_taken_over(shown):
    patterns = COUNTS.copy()
    patterns[:, 12, 20] = 1e7
    patterns[:, 16, 16] = 0
    scan = dataclasses.replace(SCAN, frames=ArrayFrames.of(patterns))
    look = shown(scan)
    look._tab.selected_index = 1
    press(look, "Find bad pixels")
    assert "1 hot, 1 dead, 0 stuck" in words(look)
    assert np.argwhere((picture(look, "mask")[1] == (86, 180, 233)).all(-1)).tolist() == [[12, 20], [16, 16]]
    press(look, "Mask found")
    press(look, "Use mask")
    assert np.argwhere(~look.scan.mask).tolist() == [[12, 20], [16, 16]]
    same(look.scan, done_by(look.lines, scan)["scan"])
    # The next change begins with the mask that the scan has by now.
    stroke(look, [[2, 2]], 0.5)
    press(look, "Use mask")
    same(look.scan, done_by(look.lines, scan)["scan"])
    press(look, "Undo last change")
    assert np.argwhere(~look.scan.mask).tolist() == [[12, 20], [16, 16]]
    same(look.scan, done_by(look.lines, scan)["scan"])


def test_a_mask_that_leaves_nothing_is_refused_in_the_widget(shown, tmp_path):
    look = shown(SCAN)
    stroke(look, [[16, 16]], 100)
    press(look, "Use mask")
    assert "mask is False everywhere" in words(look)
    assert look.scan is SCAN
    press(look, "Undo")
    assert "mask is False everywhere" not in words(look)
    np.save(tmp_path / "mask.npy", np.ones((4, 4), bool))
    control(look, "File").value = str(tmp_path / "mask.npy")
    press(look, "Load")
    assert "mask has shape (4, 4); expected that of a pattern" in words(look)


# Places


def turned_scan():
    from tests.preparation.test_rotation_fit import phase_scan

    return phase_scan(None, math.radians(25.0), False)[0]


def test_the_rotation_is_found_and_applied(shown):
    scan = turned_scan()
    look = shown(scan)
    press(look, "Find rotation")
    assert re.search(r"<b>2[45]\.\d\d°</b>", words(look))
    press(look, "Rotate positions")
    look.settle()
    assert abs(preparation.estimate_rotation(look.scan).degrees) < 0.5
    same(look.scan, done_by(look.lines, scan)["scan"])
    assert look.state.survey.complete


def test_suspicious_patterns_are_listed_shown_and_left_out(shown):
    patterns = COUNTS.copy()
    patterns[7] = 0
    patterns[20] *= 4
    scan = dataclasses.replace(SCAN, frames=ArrayFrames.of(patterns))
    look = shown(scan)
    press(look, "Find suspicious")
    listed = control(look, "Suspicious")
    assert [text for _, text in listed.options] == ["7: dark", "20: brighter"]
    listed.value = listed.offered[1]
    look.settle()
    assert look.state.index == 20
    press(look, "Exclude chosen")
    assert look.excluded == [20]
    press(look, "Exclude all suspicious")
    control(look, "Exclude").value += ", 30-32"
    assert look.excluded == [7, 20, 30, 31, 32]
    taken = []
    look.on_scan = taken.append
    press(look, "Remove from scan")
    assert len(look.scan) == 31
    assert taken == [look.scan]
    assert look.excluded == []
    same(look.scan, done_by(look.lines, scan)["scan"])
    control(look, "Exclude").value = "seven"
    press(look, "Remove from scan")
    assert "&#x27;seven&#x27; is not an index" in words(look)


@pytest.mark.parametrize(
    ("text", "numbers"), [("3, 7-9", [3, 7, 8, 9]), ("", []), ("1, 2", [1, 2]), ("0-2, 10", [0, 1, 2, 10])]
)
def test_lists_of_numbers_are_written_and_read(text, numbers):
    assert number_list(numbers) == text
    assert read_number_list(text, 11) == numbers


@pytest.mark.parametrize(
    ("text", "fact"),
    [("0-99999999999", "from 0 to 10"), ("11", "from 0 to 10"), ("9-7", "7-9"), ("²", "expected integers")],
)
def test_lists_of_patterns_that_are_not_there_are_refused(text, fact):
    with raises("argument.invalid-value", text, fact):
        read_number_list(f"1, {text}", 11)


# Preparation


def test_steps_are_seen_before_and_after_and_applied(shown):
    look = shown(SCAN)
    look._tab.selected_index = 3

    def add(name, value=None):
        step = control(look, "Step")
        step.value = dict(step.options)[name]
        if value is not None:
            control(look, "Number").value = value
        press(look, "Add step")

    add("crop", "24")
    add("bin", "2")
    add("centre")
    add("remove counts below", "3")
    add("rotate positions", "30")
    press(look, "Remove last")
    expected = preparation.remove_negatives(preparation.centre(preparation.bin(preparation.crop(SCAN, 24), 2)), 3.0)
    control(look, "Pattern").value = 5
    look.settle()
    before, step = values(look, "before")
    assert np.abs(before - np.log10(COUNTS[5] + 1)).max() <= step
    after, step = values(look, "after")
    assert np.abs(after - np.log10(expected.counts(5, 6)[0] + 1)).max() <= step
    assert look.scan is SCAN
    press(look, "Apply")
    same(look.scan, expected)
    same(look.scan, done_by(look.lines, SCAN)["scan"])
    assert "36 patterns of 12 × 12" in words(look)
    add("crop", "many")
    assert "&#x27;many&#x27;; expected an integer" in words(look)
    look._tab.selected_index = 0  # what is drawn meanwhile takes no complaint away
    look.settle()
    assert "expected an integer" in words(look)
    add("pad", "6")
    assert "window is 6 x 6 pixels and the patterns have 12 x 12" in words(look)
    press(look, "Undo last change")
    assert look.scan is SCAN


# Large scans, threads and errors


def test_what_can_not_be_drawn_is_said_and_the_survey_goes_on(shown):
    scan = made(3000)
    look = shown(scan, wait=False)
    control(look, "Map").value = "dark field"
    control(look, "Radius [pixels]").value = 1e4
    look.settle()
    assert look.state.survey.complete
    assert "virtual detector reaches from 10000 to inf pixels" in words(look)
    control(look, "Radius [pixels]").value = 5
    look.settle()
    assert "virtual detector" not in words(look)
    press(look, "Remove from scan")
    assert "list of patterns to exclude is empty" in words(look)


def test_a_scan_far_larger_than_memory_opens_at_once_and_is_read_in_portions(shown, tmp_path):
    with h5py.File(tmp_path / "huge.h5", "w") as file:
        # Unwritten chunks take no room, and are read as zeros.
        patterns = file.create_dataset("patterns", (200_000, 64, 64), np.uint16, chunks=(1, 64, 64))
        patterns[150_000] = 3
        frames = HDF5Frames.of(patterns)
    look = shown(Scan(frames=frames, positions=raster(200_000)), wait=False)
    control(look, "Pattern").value = 150_000
    look._reading.settle()
    assert look.patterns._counts.sum() == 3 * 64**2
    until = time.monotonic() + 30
    while look.state.survey is None and time.monotonic() < until:
        time.sleep(0.05)
    assert 256 <= look.state.survey.patterns < 20_000
    assert "of 200,000 patterns surveyed, running" in words(look)
    press_pause = control(look, "Pause survey")
    assert press_pause.layout.display is None
    press_pause.value = True
    look.settle()
    assert "paused" in words(look)
    assert not control(look, "Positions").value
    # Closing it ends the survey long before its end: the fixture of all tests finds threads left behind.


def test_only_the_last_of_many_choices_is_read(shown):
    scan = made(2000)
    look = shown(scan)
    scan.frames.reads.clear()
    free = threading.Event()
    look._reading.put(free.wait)
    time.sleep(0.05)
    for index in range(1, 60):
        look.choose(index)
    free.set()
    look.settle()
    assert scan.frames.reads == [1]
    assert look.state.index == 59


def test_clicks_count_from_the_last_one_while_older_patterns_are_drawn(shown, monkeypatch):
    look = shown(SCAN)
    drawn, allowed = threading.Semaphore(0), threading.Semaphore(0)
    follow = look.patterns._follow

    def wait_and_follow():
        drawn.release()
        assert allowed.acquire(timeout=30)
        follow()

    monkeypatch.setattr(look.patterns, "_follow", wait_and_follow)
    control(look, "Pattern").value = 5
    assert drawn.acquire(timeout=30)
    control(look, "Next").click()
    control(look, "Next").click()
    allowed.release()
    assert drawn.acquire(timeout=30)  # 5 was followed, 7 is about to be
    control(look, "Next").click()
    allowed.release(9)
    look.settle()
    assert (control(look, "Pattern").value, look.state.index) == (8, 8)


def test_a_closed_look_reads_no_more(shown):
    scan = made(200_000)
    look = shown(scan, wait=False)
    look.choose(3)
    look._reading.settle()
    look.close()
    look._surveying.wait(10)
    reads = len(scan.frames.reads)
    look.choose(4)
    time.sleep(0.1)
    assert len(scan.frames.reads) == reads
    assert sum(scan.frames.reads) < 200_000


def test_a_file_that_is_gone_is_said_and_a_pattern_that_can_be_read_takes_it_away(shown, tmp_path):
    path = tmp_path / "scan.h5"
    scan = pt.save_scan(SCAN, path)
    look = shown(scan)
    path.rename(tmp_path / "elsewhere.h5")
    look.choose(3)
    look.settle()
    assert "Patterns 3 to 3 can&#x27;t be read from" in words(look)
    (tmp_path / "elsewhere.h5").rename(path)
    look.choose(3)
    look.settle()
    assert "can&#x27;t be read" not in words(look)


def test_every_control_says_what_it_is(shown):
    for widget in below(shown(SCAN)):
        if isinstance(widget, elements.Control) and not isinstance(widget, elements.HTML):
            assert getattr(widget, "description", "") or isinstance(widget, Viewer), widget


def test_first_pictures_fill_in_while_a_scan_is_measured(shown, tmp_path):
    scan = electron_scan(0.0, counts=1e4, grid=(12, 14))
    sums = scan.counts(0, len(scan)).sum((1, 2))
    source = Source(scan, tmp_path / "spool")

    def wait(text):
        last = time.monotonic() + 60
        while text not in words(look):
            assert time.monotonic() < last
            time.sleep(0.02)

    try:
        look = shown(source.live, wait=False)
        assert look._tab.titles == ("First pictures",)
        wait("None of the 168 patterns")
        for come in (range(5), range(70), range(168)):
            for number in come:
                source.frame(number)
            wait(f"<b>{len(come)}</b> of 168")
            source.give(come)  # positions come later
            wait(f"{len(come)} of 168 patterns have come")
            seen, step = values(look, "sum")
            np.testing.assert_allclose(
                seen.ravel()[: len(come)], sums[: len(come)].clip(*picture(look, "sum")[0]["limits"]), atol=step
            )
            assert (picture(look, "sum")[1].ravel()[len(come) :] == 0).all()
        assert look._problems[1].value == ""
        assert not look.lines
    finally:
        source.close()


def test_first_pictures_come_when_their_page_is_opened_and_give_the_first_guess(shown):
    scan = electron_scan(30.05, transposed=True, counts=1e4, grid=(16, 18))
    look = shown(scan)
    assert "electrons of 299.7 kV" in facts(scan)
    assert "pt.direct" not in " ".join(look.lines)
    look._tab.selected_index = 4
    look.settle()
    expected = pt.direct(scan)
    seen, step = values(look, "integrated phase")
    phase = expected.pictures["integrated phase"]
    inside = np.isfinite(phase) & (seen > seen.min()) & (seen < seen.max())
    np.testing.assert_allclose(seen[inside], phase[inside], atol=step)
    assert inside.mean() > 0.9
    assert f"{abs(np.degrees(expected.angle)):.1f}" in words(look)
    press(look, "Use as first guess")
    assert "scan = first.initial_guess(scan)" in look.lines
    np.testing.assert_array_equal(look.scan.positions, done_by(look.lines, scan)["scan"].positions)
    assert not pt.preparation.estimate_rotation(look.scan).needed
    near = shown(recommend_scans.SCANS["near field"]())
    near._tab.selected_index = 4
    near.settle()
    assert "patterns are images themselves" in words(near)
