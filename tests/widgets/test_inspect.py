"""The inspector and its panels, with a browser that draws at once."""

import dataclasses
import io
import math
import threading
import time

import h5py
import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

import ptynb as pt
from ptynb import analysis, preparation
from ptynb.data.patterns import ArrayFrames, HDF5Frames
from ptynb.data.scan import Scan
from ptynb.polling import wait_until
from ptynb.simulation.simulated_scan import simulate
from ptynb.widgets.inspect.panels import number_list, read_number_list
from ptynb.widgets.inspect.position_map import KINDS, PositionMap
from ptynb.widgets.viewer.viewer import Viewer
from tests.analysis.scans import made, raster
from tests.live_source import Source
from tests.preparation.test_rotation_fit import electron_scan, phase_scan
from tests.raising import raises
from tests.tuning import recommend_scans
from tests.widgets.browser_model import BrowserModel, violations

SCAN = simulate(patterns=36, window=32, seed=3)
COUNTS = SCAN.counts(0, len(SCAN)).astype(np.float64)
MASK = np.ones(SCAN.pattern_shape, bool)
MASK[3:5, 20:24] = False


@pytest.fixture
def shown(monkeypatch):
    """Inspects a scan with a browser that draws at once, and closes the inspector afterwards."""
    monkeypatch.setattr(Viewer, "ready", property(lambda _: True))
    open_ones = []

    def look(scan, *, wait=True, tab="Statistics"):
        open_ones.append(one := pt.inspect(scan))
        one.lines = []
        one.tell, one.tab = one.lines.append, tab
        if wait:
            one.settle()
        return one

    yield look
    for one in open_ones:
        one.close()


def do(look, command, **arguments):
    command(**arguments)
    look.settle()


def put(look, element, **traits):
    element.receive_values(traits)  # as the browser sets them
    look.settle()


def picture(look, name):
    """The newest picture of this name: its description, and its grey levels or colours as an array."""
    views = [look.map_view, look.view, *(panel.view for panel in look.panels.values() if panel.view is not None)]
    found = next(one for view in views for one in view.frame["pictures"] if one["name"] == name)
    return found, np.asarray(Image.open(io.BytesIO(found["image"]))).astype(float)


def values(look, name):
    """The picture's values, to its 255th part."""
    found, levels = picture(look, name)
    low, high = found["limits"]
    return low + levels / 255 * (high - low), (high - low) / 250


def assert_shows(look, name, expected):
    found, step = values(look, name)
    assert np.abs(found - expected).max() <= step, name


def assert_done_by(lines, scan, made_of_it):
    """The lines of Python make this of the scan."""
    exec("\n".join(lines), names := {"pt": pt, "np": np, "scan": scan})
    np.testing.assert_array_equal(names["scan"].positions, made_of_it.positions)
    np.testing.assert_array_equal(names["scan"].counts(0, len(names["scan"])), made_of_it.counts(0, len(made_of_it)))
    np.testing.assert_array_equal(names["scan"].mask, made_of_it.mask)


# Patterns and their positions


def test_facts_map_pattern_and_statistics_are_shown(shown):
    look = shown(dataclasses.replace(SCAN, mask=MASK))
    assert look.facts[:2] == [SCAN.name, "36 patterns of 32 × 32, float32"]
    assert "8.266 keV, object pixel 125 × 125 nm" in look.facts
    assert "8 bad pixels masked" in look.facts
    assert look.surveyed == 36
    statistics = look.panels["Statistics"]
    fields = {"mean": COUNTS.mean(0), "maximum": COUNTS.max(0), "variance": COUNTS.var(0)}
    scales = {"linear": lambda counts: counts, "log": lambda c: np.log10(c + 1), "gamma": lambda c: c**0.3}
    for scale, change in scales.items():
        for element in (look, statistics):
            put(look, element, scale=scale, exponent=0.3)
        assert_shows(look, "pattern", change(COUNTS[0] * MASK))
        for name, expected in fields.items():
            assert_shows(look, name, change(expected * MASK))
    put(look, look, scale="cubic")
    assert look.scale == "gamma"
    assert (statistics.patterns, sum(statistics.octaves)) == (36, 36 * MASK.sum())
    assert look.lines == []


def test_a_pattern_is_chosen_by_number_steps_and_a_click_on_the_map(shown):
    look = shown(SCAN)

    def assert_chosen(index):
        look.settle()
        assert (look.chosen, look.state.index, look.map_view.chosen["map"]) == (index, index, index)
        assert_shows(look, "pattern", np.log10(COUNTS[index] + 1))
        y, x = SCAN.positions[index]
        counts = f"{COUNTS[index].sum():,.0f} counts, maximum {COUNTS[index].max():,.0f}"
        assert look.pattern_note == f"{counts}; position y {y:.2f}, x {x:.2f} object pixels"
        assert look.view.value_at("pattern", 4, 5) == f"{COUNTS[index, 4, 5]:,.6g} counts"

    assert_chosen(0)
    look.choose(17)
    look.step(1)
    look.step(1)  # from the one chosen last, though it may not be shown yet
    assert_chosen(19)
    look.step(-1)
    assert_chosen(18)
    y, x = PositionMap(SCAN).points[29]
    look.map_view.receive({"kind": "click", "name": "map", "y": y + 0.2, "x": x})
    assert_chosen(29)
    look.choose(99)
    assert_chosen(35)
    put(look, look, dots=False)
    assert (look.map_view.chosen["map"], len(look.map_view.points["map"])) == (0, 8), "one point of two float32"


@pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "masked"])
def test_fft_order_looks_the_same_as_centred(shown, mask):
    centred = shown(Scan.from_arrays(COUNTS, SCAN.positions, mask=mask), tab="Mask")
    patterns, mask = np.fft.ifftshift(COUNTS, axes=(1, 2)), None if mask is None else np.fft.ifftshift(mask)
    other = shown(Scan.from_arrays(patterns, SCAN.positions, order="fft", mask=mask), tab="Mask")
    for name in ("pattern", "map", "mask"):
        assert picture(centred, name)[0]["image"] == picture(other, name)[0]["image"], name


def test_virtual_images_are_those_of_the_counts(shown):
    look = shown(SCAN)
    moments = preparation.centre_of_mass(SCAN) - preparation.centre_of_mass(SCAN).mean(0)
    inside, outside = look.state.survey.annulus(0, 4), look.state.survey.annulus(4)
    expected = [COUNTS.sum((1, 2)), inside, outside, COUNTS.max((1, 2)), None, moments[:, 0], moments[:, 1]]
    y, x = PositionMap(SCAN).points.astype(int).T
    for kind, of_patterns in zip(KINDS, expected, strict=True):
        put(look, look, map_kind=kind, radius=4)
        limits = picture(look, "map")[0]["limits"]
        assert (limits is None) == (of_patterns is None), "complex"
        if of_patterns is not None:
            found, step = values(look, "map")
            np.testing.assert_allclose(found[y, x], np.clip(of_patterns, *limits), atol=step)


def test_the_map_finds_every_pattern_and_fills_what_is_between_them():
    places = PositionMap(SCAN)
    assert [places.pattern_at(y, x) for y, x in places.points] == list(range(len(SCAN)))
    ratio = np.ptp(places.points, axis=0) / np.ptp(SCAN.positions, axis=0)
    assert ratio[0] == pytest.approx(ratio[1])
    assert PositionMap(Scan.from_arrays(COUNTS[:1], SCAN.positions[:1])).pattern_at(0, 0) == 0
    # A sample fills the picture between its patterns, and a hole in the scan stays one.
    ring = raster(2500)
    hole = np.hypot(*(ring - ring.mean(0)).T) > 20
    scan = Scan.from_arrays(np.ones((int(hole.sum()), 4, 4)), ring[hole])
    some = np.arange(len(scan)) % 10 == 0
    image = PositionMap(scan).image(np.where(some, 5.0, np.nan), some)
    assert image[image.shape[0] // 2, image.shape[1] // 2] == 0
    assert (image[10] == 5).mean() > 0.9
    for steps in ((1, 1), (4, 1), (1, 9)):
        scan = Scan.from_arrays(np.ones((900, 40, 40)), raster(900, 1.0) * steps)
        assert (PositionMap(scan).image(np.ones(900), np.ones(900, bool)) == 1).all(), steps


@pytest.mark.parametrize("value", [0, 7])
def test_patterns_without_contrast_and_single_ones_are_no_error(shown, value):
    look = shown(Scan(frames=ArrayFrames.of(np.full((1, 8, 8), value, np.uint16)), positions=SCAN.positions[:1]))
    assert len(np.unique(picture(look, "pattern")[1])) == 1
    for kind, tab in zip(KINDS, [*look.panels, "Mask", "Prepare"], strict=True):
        put(look, look, map_kind=kind, tab=tab, scale="gamma")
    do(look, look.positions.find_suspicious)
    assert (look.message, look.pattern_message, look.survey_message) == ("", "", "")
    assert f"{64 * value} counts, maximum {value};" in look.pattern_note


# Mask


def stroke(look, path, radius, erase=False):
    """As the browser sends it: coordinates count from a pixel's corner."""
    points = (np.array(path) + 0.5).astype("<f4").tobytes()
    look.mask.view.receive({"kind": "stroke", "name": "mask", "radius": radius, "erase": erase}, [points])
    look.settle()
    assert look.mask.view.problem == ""


@pytest.mark.parametrize("order", ["centred", "fft"])
def test_a_mask_is_painted_undone_saved_loaded_and_used(shown, order, tmp_path):
    turn = np.fft.ifftshift if order == "fft" else np.asarray
    scan = Scan.from_arrays(turn(COUNTS, (1, 2)) if order == "fft" else COUNTS, SCAN.positions, order=order)
    look = shown(scan, tab="Mask")
    mask = look.mask
    put(look, mask, painting=True)
    assert mask.view.painted == "mask"
    stroke(look, [[4, 5], [4, 9]], 1.5)
    stroke(look, [[20, 20]], 3.0)
    before = analysis.painted(analysis.painted(np.ones((32, 32)), [[4, 5], [4, 9]], 1.5), [[20, 20]], 3)
    stroke(look, [[20, 21]], 1.0, erase=True)
    expected = analysis.painted(before, [[20, 21]], 1, good=True)
    np.testing.assert_array_equal(mask.mask, turn(expected))
    np.testing.assert_array_equal((picture(look, "mask")[1] == (230, 159, 0)).all(-1), ~expected)
    assert (mask.text, mask.changed) == (f"{(~expected).sum()} of 1,024 pixels masked (orange).", True)
    do(look, mask.undo)
    np.testing.assert_array_equal(mask.mask, turn(before))
    for name in ("mask.npy", "mask.h5"):
        do(look, mask.save, path=str(tmp_path / name))
        np.testing.assert_array_equal(pt.load_mask(tmp_path / name), turn(before))
        assert mask.text.startswith(f"Saved to {tmp_path / name}")
    mask.view.receive({"kind": "click", "name": "mask", "y": 8.6, "x": 9.2})
    assert mask.disc == {"y": 8, "x": 9, "radius": 5}
    do(look, mask.set_disc, good=False)
    np.testing.assert_array_equal(mask.mask, turn(analysis.painted(before, [[8, 9]], 5)))
    do(look, mask.load, path=str(tmp_path / "mask.h5"))
    do(look, mask.use)
    np.testing.assert_array_equal(look.scan.mask, turn(before))
    assert_done_by(look.lines, scan, look.scan)
    assert f"{int((~before).sum())} bad pixels masked" in look.facts
    assert look.can_undo
    do(look, look.undo)
    assert look.scan is scan
    assert not look.can_undo
    assert_done_by(look.lines, scan, scan)


def test_bad_pixels_are_found_and_taken_over(shown, tmp_path):
    patterns = COUNTS.copy()
    patterns[:, 12, 20], patterns[:, 16, 16] = 1e7, 0
    scan = dataclasses.replace(SCAN, frames=ArrayFrames.of(patterns))
    look = shown(scan, tab="Mask")
    do(look, look.mask.find)
    assert "Found: 1 hot, 1 dead, 0 stuck, 0 not finite; 2 not masked yet (blue)." in look.mask.text
    assert np.argwhere((picture(look, "mask")[1] == (86, 180, 233)).all(-1)).tolist() == [[12, 20], [16, 16]]
    assert look.mask.new == 2
    do(look, look.mask.mask_found)
    assert look.mask.new == 0
    do(look, look.mask.use)
    do(look, look.mask.save, path=str(path := tmp_path / "mask.npy"))  # on which nothing was painted yet
    path.unlink()
    assert_done_by(look.lines, scan, look.scan)
    np.testing.assert_array_equal(pt.load_mask(path), look.scan.mask)
    stroke(look, [[2, 2]], 0.5)  # begins with the mask that the scan has by now
    do(look, look.mask.use)
    for masked in ([[2, 2], [12, 20], [16, 16]], [[12, 20], [16, 16]]):
        assert np.argwhere(~look.scan.mask).tolist() == masked
        assert_done_by(look.lines, scan, look.scan)
        do(look, look.undo)


def test_a_mask_that_leaves_nothing_or_has_another_shape_is_refused(shown, tmp_path):
    look = shown(SCAN)
    stroke(look, [[16, 16]], 100)
    do(look, look.mask.use)
    assert "mask is False everywhere" in look.message
    assert look.scan is SCAN
    do(look, look.mask.undo)
    assert look.message == ""
    np.save(tmp_path / "mask.npy", np.ones((4, 4), bool))
    do(look, look.mask.load, path=str(tmp_path / "mask.npy"))
    assert "mask has shape (4, 4); expected that of a pattern" in look.message


# Positions


def test_the_rotation_is_found_and_applied(shown):
    scan = phase_scan(None, math.radians(25.0), False)[0]
    look = shown(scan)
    do(look, look.positions.find_rotation)
    assert float(look.positions.rotation["angle"].removesuffix("°")) == pytest.approx(25, abs=1)
    assert "The curl is" in look.positions.rotation["text"]
    do(look, look.positions.rotate)
    assert abs(preparation.estimate_rotation(look.scan).degrees) < 0.5
    assert_done_by(look.lines, scan, look.scan)
    assert look.state.survey.complete
    assert look.positions.rotation == {}


def test_suspicious_patterns_are_listed_and_excluded(shown):
    patterns = COUNTS.copy()
    patterns[7] = 0
    patterns[20] *= 4
    scan, taken = dataclasses.replace(SCAN, frames=ArrayFrames.of(patterns)), []
    look = shown(scan)
    look.on_scan, positions = taken.append, look.positions
    do(look, positions.find_suspicious)
    assert positions.rows == [[7, "dark"], [20, "brighter"]]
    assert positions.text == "1 dark, 1 brighter in 36 patterns"
    do(look, look.choose, index=35)
    do(look, positions.exclude_shown)
    assert look.excluded == [35]
    do(look, positions.exclude_suspicious)
    put(look, positions, exclude=f"{positions.exclude}, 30-32")
    assert look.excluded == [7, 20, 30, 31, 32, 35]
    do(look, positions.remove_excluded)
    assert taken == [look.scan]
    assert (len(look.scan), look.length, look.chosen, look.state.index) == (30, 30, 29, 29)
    assert (look.excluded, positions.rows) == ([], [])
    assert_done_by(look.lines, scan, look.scan)
    put(look, positions, exclude="seven")
    do(look, positions.remove_excluded)
    assert "'seven' is not an index" in look.message


def test_lists_of_patterns_are_written_and_read():
    for text, numbers in {"3, 7-9": [3, 7, 8, 9], "": [], "1, 2": [1, 2], "0-2, 10": [0, 1, 2, 10]}.items():
        assert (number_list(numbers), read_number_list(text, 11)) == (text, numbers)
    refused = {"0-99999999999": "from 0 to 10", "11": "from 0 to 10", "9-7": "7-9", "²": "expected integers"}
    for text, fact in refused.items():
        with raises("argument.invalid-value", text, fact):
            read_number_list(f"1, {text}", 11)


# Preparation


def test_steps_are_seen_before_and_after_and_applied(shown):
    look = shown(SCAN, tab="Prepare")
    steps = look.panels["Prepare"]
    numbers = {"crop": "24", "bin": "2", "centre": "", "remove counts below": "3", "rotate positions": "30"}
    for kind, number in numbers.items():
        do(look, steps.add, kind=kind, number=number)
    do(look, steps.remove)
    expected = preparation.remove_negatives(preparation.centre(preparation.bin(preparation.crop(SCAN, 24), 2)), 3.0)
    do(look, look.choose, index=5)
    assert_shows(look, "before", np.log10(COUNTS[5] + 1))
    assert_shows(look, "after", np.log10(expected.counts(5, 6)[0] + 1))
    assert "crop" in steps.recipe
    assert steps.facts[1] == "36 patterns of 12 × 12, float32"
    assert (look.scan, look.lines) == (SCAN, [])
    do(look, steps.apply)
    np.testing.assert_array_equal(look.scan.counts(0, 36), expected.counts(0, 36))
    assert_done_by(look.lines, SCAN, look.scan)
    assert (look.facts, steps.lines) == (steps.facts, [])
    do(look, steps.add, kind="crop", number="many")
    assert "'many'; expected an integer" in look.message
    put(look, look, tab="Statistics")  # what is drawn meanwhile takes no error away
    assert "expected an integer" in look.message
    do(look, steps.add, kind="pad", number="6")
    assert "window is 6 x 6 pixels and the patterns have 12 x 12" in look.message
    do(look, look.undo)
    assert look.scan is SCAN


# Large scans, threads and errors


def test_what_can_not_be_drawn_is_said_and_the_survey_goes_on(shown):
    look = shown(made(3000), wait=False)
    put(look, look, map_kind="dark field", radius=1e4)
    assert look.state.survey.complete
    assert "virtual detector reaches from 10000 to inf pixels" in look.message
    put(look, look, radius=5)
    assert look.message == ""
    do(look, look.positions.remove_excluded)
    assert "list of patterns to exclude is empty" in look.message


def test_a_scan_far_larger_than_memory_opens_at_once_and_is_read_in_portions(shown, tmp_path):
    with h5py.File(tmp_path / "huge.h5", "w") as file:
        # Unwritten chunks take no room, and are read as zeros.
        patterns = file.create_dataset("patterns", (200_000, 64, 64), np.uint16, chunks=(1, 64, 64))
        patterns[150_000] = 3
        frames = HDF5Frames.of(patterns)
    look = shown(Scan(frames=frames, positions=raster(200_000)), wait=False)
    look.choose(150_000)
    assert wait_until(lambda: look.pattern_note.startswith(f"{3 * 64**2:,} counts"), 30)
    assert wait_until(lambda: look.surveyed > 0, 30)
    assert 256 <= look.surveyed < 20_000
    put(look, look, paused=True)
    time.sleep(0.5)  # the portion that is being read
    paused_at = look.surveyed
    time.sleep(1.5)  # longer than the interval of reports
    assert look.surveyed == paused_at
    assert not look.dots
    # Closing it ends the survey long before its end: the fixture of all tests finds threads left behind.


def test_only_the_last_of_many_choices_is_read(shown, monkeypatch):
    look = shown(scan := made(2000))
    scan.frames.reads.clear()
    free = threading.Event()
    monkeypatch.setattr(Viewer, "ready", property(lambda _: free.is_set()))
    look.choose(1)
    assert wait_until(lambda: scan.frames.reads, 10)
    for index in range(2, 60):
        look.choose(index)
    free.set()
    look.settle()
    assert (scan.frames.reads, look.state.index) == ([1, 1], 59)


def test_a_file_that_is_gone_is_said_and_a_pattern_that_can_be_read_takes_it_away(shown, tmp_path):
    path, elsewhere = tmp_path / "scan.h5", tmp_path / "elsewhere.h5"
    look = shown(pt.save_scan(SCAN, path))
    path.rename(elsewhere)
    do(look, look.choose, index=3)
    assert "Patterns 3 to 3 can't be read from" in look.pattern_message
    elsewhere.rename(path)
    do(look, look.choose, index=3)
    assert look.pattern_message == ""


# Scans that are being measured, and first pictures


def test_a_scan_that_is_measured_fills_in_and_its_newest_pattern_is_shown_until_another_is_chosen(shown, tmp_path):
    scan = electron_scan(0.0, counts=1e4, grid=(12, 14))
    counts, ended = scan.counts(0, len(scan)), []
    sums = counts.sum((1, 2))
    source = Source(scan, tmp_path / "spool")
    try:
        look = shown(source.live, wait=False, tab="First pictures")
        look.on_end, direct = lambda: ended.append(True), look.panels["First pictures"]
        assert look.panels == {"First pictures": direct}
        assert "need all patterns" in look.note
        assert wait_until(lambda: "None of the 168 patterns" in direct.note, 60)
        do(look, look.choose, index=7)
        assert "Pattern 7 has not come yet (0 of 168 have)" in look.pattern_message
        look.choose(0)
        for count, index in ((5, 4), (70, 69), (167, 3)):
            for number in range(count):
                source.frame(number)
            assert wait_until(lambda count=count: look.arrivals.get("arrived") == count, 60)
            source.give(range(count))  # positions come later
            assert wait_until(lambda count=count: f"{count} of 168 patterns have come" in direct.text, 60)
            look.settle()
            assert (look.state.index, look.pattern_message) == (index, "")
            assert_shows(look, "pattern", np.log10(counts[index] + 1))
            (seen, step), (found, levels) = values(look, "sum"), picture(look, "sum")
            np.testing.assert_allclose(seen.ravel()[:count], sums[:count].clip(*found["limits"]), atol=step)
            assert (levels.ravel()[count:] == 0).all()
            if count == 70:
                look.choose(3)
        assert (look.message, look.lines, ended) == ("", [], [])
        source.end("ended early: 167 of 168")
        assert wait_until(lambda: ended, 30)
        assert "The scan has ended" in look.note
    finally:
        source.close()


def test_first_pictures_come_when_their_tab_is_opened_and_give_the_first_guess(shown):
    scan = electron_scan(30.05, transposed=True, counts=1e4, grid=(16, 18))
    look = shown(scan)
    direct = look.panels["First pictures"]
    assert "electrons of 299.7 kV" in " ".join(look.facts)
    assert look.lines == []
    put(look, look, tab="First pictures")
    expected = pt.direct(scan)
    seen, step = values(look, "integrated phase")
    phase = expected.pictures["integrated phase"]
    inside = np.isfinite(phase) & (seen > seen.min()) & (seen < seen.max())
    np.testing.assert_allclose(seen[inside], phase[inside], atol=step)
    assert inside.mean() > 0.9
    assert direct.rows == [expected.table().heads, *expected.table().rows]
    assert direct.guess
    do(look, direct.use_guess)
    assert "scan = first.initial_guess(scan)" in look.lines
    assert_done_by(look.lines, scan, look.scan)
    assert not pt.preparation.estimate_rotation(look.scan).needed
    near = shown(recommend_scans.SCANS["near field"](), tab="First pictures")
    assert "requires diffraction patterns" in near.panels["First pictures"].note


def test_reading_for_first_pictures_is_cancelled(shown):
    look = shown(electron_scan(0.0, counts=1e4, grid=(12, 14)))
    direct, progress = look.panels["First pictures"], []

    def cancel(change):
        progress.append(change["new"])
        direct.cancel()

    direct.observe(cancel, "reading")
    do(look, direct.compute)
    assert progress == [{"done": 0, "total": 168}, {}]
    assert (direct.note, direct.guess) == ("The reading was cancelled.", False)


# In a browser


def test_all_tabs_have_names_and_contrast(shown, page):
    look = shown(dataclasses.replace(SCAN, name=(name := "<script>alert('x')</script>&")))
    model = BrowserModel(page, look)

    def click(role, title):
        page.get_by_role(role, name=title, exact=True).click()
        model.collect()
        look.settle()
        model.collect()

    expect(page.get_by_text(name, exact=True)).to_be_visible()
    for number, title in enumerate(look.panels):
        click("tab", title)
        assert violations(page, "[role=tabpanel]" if number else None) == [], title
    click("button", "Next")
    expect(page.get_by_label("Pattern", exact=True)).to_have_value("1")
    model.close()
