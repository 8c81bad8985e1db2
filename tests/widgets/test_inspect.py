import dataclasses
import io
import re
from xml.etree import ElementTree

import ipywidgets
import numpy as np
import pytest
from PIL import Image

from ptynb.physics.simulate import simulate
from ptynb.scan import Scan
from ptynb.widgets.colours import look_up_table
from ptynb.widgets.inspect import Inspect, facts, inspect, position_map

SCAN = simulate(patterns=30, window=32, seed=3)
COUNTS = SCAN.counts(0, len(SCAN))
MASK = np.ones(SCAN.window, bool)
MASK[3:5, 20:24] = False


def pixels(image):
    return np.asarray(Image.open(io.BytesIO(image.value)).convert("RGB")).astype(int)


@pytest.fixture
def shown():
    """Looks at a scan and closes the look afterwards."""
    open_ones = []

    def look(scan):
        open_ones.append(inspect(scan))
        return open_ones[-1]

    yield look
    for one in open_ones:
        one.close()


def descendants(widget):
    for child in getattr(widget, "children", ()):
        yield child
        yield from descendants(child)


def expected(counts, logarithmic=True):
    values = np.log10(counts.astype(float) + 1) if logarithmic else counts.astype(float)
    return look_up_table("magma")[(values * (255.999 / values.max())).astype(np.uint8)].astype(int)


def test_pattern_mean_and_facts_are_those_of_the_scan(shown):
    look = shown(SCAN)
    assert isinstance(look, Inspect)
    assert np.abs(pixels(look._pattern) - expected(COUNTS[0])).max() <= 6
    assert np.abs(pixels(look._mean) - expected(COUNTS.mean(0))).max() <= 6
    text = facts(SCAN)
    assert "30 patterns of 32 × 32, float32" in text
    assert "8.266 keV, object pixel 125 × 125 nm" in text
    assert "first guess of 1 probe mode(s)" in text
    assert text in [widget.value for widget in look.children if isinstance(widget, ipywidgets.HTML)]


def test_the_slider_chooses_pattern_note_and_place(shown):
    look = shown(SCAN)
    before = look._pattern.value, look._note.value, look._map.value
    mean = look._mean.value
    look._chosen.value = 17
    assert all(
        now != then for now, then in zip((look._pattern.value, look._note.value, look._map.value), before, strict=True)
    )
    assert look._mean.value == mean
    assert np.abs(pixels(look._pattern) - expected(COUNTS[17])).max() <= 6
    y, x = SCAN.positions[17]
    assert (
        look._note.value == f"{COUNTS[17].sum():,.0f} counts, brightest {COUNTS[17].max():,.0f}; at ({y:.2f}, {x:.2f})"
    )
    assert look._map.value == position_map(SCAN, 17)
    assert look._chosen.max == len(SCAN) - 1


def test_counts_are_shown_linear_or_logarithmic(shown):
    look = shown(SCAN)
    look._scale.value = "linear"
    assert np.abs(pixels(look._pattern) - expected(COUNTS[0], logarithmic=False)).max() <= 6
    assert np.abs(pixels(look._mean) - expected(COUNTS.mean(0), logarithmic=False)).max() <= 6
    look._scale.value = "log"
    assert np.abs(pixels(look._pattern) - expected(COUNTS[0])).max() <= 6


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
    assert one._pattern.value == two._pattern.value
    assert one._mean.value == two._mean.value
    assert one._note.value == two._note.value


def test_bad_pixels_have_a_colour_of_their_own(shown):
    look = shown(dataclasses.replace(SCAN, mask=MASK))
    for image in (look._pattern, look._mean):
        np.testing.assert_array_equal((pixels(image) == (90, 110, 130)).all(-1), ~MASK)
    assert "8 bad pixels masked" in facts(dataclasses.replace(SCAN, mask=MASK))


def test_one_pattern_can_be_looked_at(shown):
    look = shown(Scan.from_arrays(COUNTS[:1], SCAN.positions[:1]))
    picture = look._pattern.value
    look._chosen.value = 1
    assert look._pattern.value == picture == look._mean.value
    assert "Mean of 1 patterns" in str(look.children[-1].children[-1].children[0].value)


@pytest.mark.parametrize("value", [0, 7])
@pytest.mark.parametrize("scale", ["log", "linear"])
def test_patterns_without_contrast_are_no_warning(shown, value, scale):
    look = shown(Scan.from_arrays(np.full((4, 8, 8), value, np.uint16), SCAN.positions[:4]))
    look._scale.value = scale
    assert len(np.unique(pixels(look._pattern).reshape(-1, 3), axis=0)) == 1
    assert look._note.value.startswith(f"{64 * value} counts, brightest {value};")


def parts_of(svg):
    root = ElementTree.fromstring(svg)
    dots = [tuple(map(float, dot)) for dot in re.findall(r"M(-?[\d.]+) (-?[\d.]+)h0", root.find("path").get("d"))]
    circle = root.find("circle")
    return root, dots, (float(circle.get("cx")), float(circle.get("cy")))


@pytest.mark.parametrize("chosen", [0, 11, 29])
def test_the_map_shows_every_position_and_marks_the_chosen_one(chosen):
    root, dots, mark = parts_of(position_map(SCAN, chosen))
    assert len(dots) == len(SCAN)
    assert mark == dots[chosen]
    assert dots.count(mark) == 1
    # One scale for both axes, y down: distances on the map are those of the scan.
    extent = np.ptp(SCAN.positions, axis=0).max()
    moved = (SCAN.positions - SCAN.positions.min(0))[:, ::-1] / extent * (float(root.get("width")) - 24) + 12
    np.testing.assert_allclose(dots, moved, atol=0.06)


def test_a_large_map_is_thinned_and_still_marks_the_chosen_one():
    positions = np.stack(np.divmod(np.arange(9001.0), 95), axis=1)
    root, dots, mark = parts_of(position_map(Scan.from_arrays(np.ones((9001, 4, 4), np.uint8), positions), 8999))
    assert 2000 <= len(dots) <= 4000
    row, column = divmod(8999, 95)
    inner = float(root.get("width")) - 24
    assert mark == pytest.approx((12 + inner * column / 94, 12 + inner * row / 94), abs=0.1)


def test_one_position_is_a_map_too():
    _, dots, mark = parts_of(position_map(Scan.from_arrays(COUNTS[:1], SCAN.positions[:1]), 0))
    assert dots == [mark]


def test_a_hostile_name_is_text(shown):
    scan = dataclasses.replace(SCAN, name="<script>alert('x')</script>&")
    assert "<script" not in facts(scan)
    assert "&lt;script&gt;" in facts(scan)
    values = [widget.value for widget in descendants(shown(scan)) if isinstance(widget, ipywidgets.HTML)]
    assert len(values) >= 6
    assert not [value for value in values if "<script" in value]
