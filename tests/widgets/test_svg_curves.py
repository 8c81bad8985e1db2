import itertools
import math
import re
from xml.etree import ElementTree

import pytest

from ptynb.widgets.svg_axes import POINTS
from ptynb.widgets.svg_curves import BOTTOM, COLOURS, DASHES, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Curve, CurvePanel, curves


def falling(name, count=20, rate=0.1, faint=False):
    return Curve(name, list(range(1, count + 1)), [math.exp(-rate * n) for n in range(count)], faint)


def drawn(*panels):
    """The root of the SVG, whose text is well-formed or raises, and the points of all curves."""
    root = ElementTree.fromstring(curves(panels))
    lines = [
        [tuple(map(float, pair.split(","))) for pair in line.get("points").split()] for line in root.iter("polyline")
    ]
    for x, y in itertools.chain(*lines):
        assert LEFT - 0.06 <= x <= WIDTH - RIGHT + 0.06
        assert TOP - 0.06 <= y <= HEIGHT - BOTTOM + 0.06
    return root, lines


def texts(root):
    return [
        ("".join(element.itertext()), float(element.get("x")), float(element.get("y"))) for element in root.iter("text")
    ]


def test_without_a_value_it_says_so():
    for curve in (Curve("a", [], []), Curve("a", [1, 2], [math.nan, -1.0])):
        root, lines = drawn(CurvePanel("Loss", "epoch", (curve,)))
        assert lines == []
        assert "nothing to draw yet" in [text for text, _, _ in texts(root)]


def test_curves_share_their_axes():
    root, (one, two) = drawn(CurvePanel("Loss", "epoch", (falling("one"), falling("two", 10, 0.3))))
    ticks = [(float(text), y - 4) for text, x, y in texts(root) if re.fullmatch(r"\de[+-]\d+", text) and x < LEFT]
    (first, first_y), (last, last_y) = ticks[0], ticks[-1]
    scale = (last_y - first_y) / math.log10(last / first)
    for line, rate in ((one, 0.1), (two, 0.3)):
        for number, (_, y) in enumerate(line):
            assert y == pytest.approx(first_y - scale * (rate * number / math.log(10) + math.log10(first)), abs=0.3)
    assert [x for x, _ in two] == [x for x, _ in one[:10]]


def test_each_curve_has_dash_colour_and_name_of_its_own_in_all_panels():
    several = tuple(falling(f"run {number}", rate=0.1 + 0.02 * number) for number in range(5))
    root, _ = drawn(CurvePanel("Loss", "epoch", several), CurvePanel("Loss", "seconds", several))
    lines = list(root.iter("polyline"))
    assert len(lines) == 10
    assert [(line.get("stroke"), line.get("stroke-dasharray")) for line in lines[:5]] == list(
        zip(COLOURS[:5], DASHES[:5], strict=True)
    )
    assert len({line.get("stroke-dasharray") for line in lines[:5]}) == 5
    assert [line.attrib | {"points": ""} for line in lines[:5]] == [line.attrib | {"points": ""} for line in lines[5:]]
    for number in range(5):
        assert [text for text, _, _ in texts(root)].count(f"run {number}") == 2


@pytest.mark.parametrize("count", [2, 6, 12])
@pytest.mark.parametrize("last", [1.0, 1e-3])
def test_names_at_equal_ends_do_not_overlap_and_stay_inside(count, last):
    same = tuple(Curve(f"run {number}", [1, 2], [1.0, last]) for number in range(count))
    root, _ = drawn(CurvePanel("Loss", "epoch", (*same, Curve("other", [1, 2], [1e-3, 0.9]))))
    heights = sorted(y for text, x, y in texts(root) if x > WIDTH - RIGHT)
    assert len(heights) == count + 1
    assert all(above - below >= 11 for below, above in itertools.pairwise(heights))
    assert heights[-1] <= HEIGHT - BOTTOM + 5


def test_a_linear_panel_has_its_limits_thresholds_and_marks():
    frc = Curve("FRC", [0.0, 1.0, 2.0], [1.0, 0.5, -0.2])
    level = Curve("half-bit", [0.0, 1.0, 2.0], [0.5, 0.4, 0.3], faint=True)
    panel = CurvePanel("FRC", "1/nm", (frc, level), logarithmic=False, lowest=0, highest=1, marks=((1.2, "0.83 nm"),))
    root, (line, faint) = drawn(panel)
    assert line[0] == (LEFT, TOP)
    assert line[1][1] == pytest.approx((TOP + HEIGHT - BOTTOM) / 2)
    assert line[2] == (WIDTH - RIGHT, HEIGHT - BOTTOM)
    (mark,) = [line for line in root.iter("line") if line.get("stroke-dasharray")]
    assert float(mark.get("x1")) == pytest.approx(LEFT + 0.6 * (WIDTH - LEFT - RIGHT), abs=0.06)
    assert "0.83 nm" in [text for text, _, _ in texts(root)]
    assert list(root.iter("polyline"))[1].get("stroke") == "currentColor"
    assert faint[0][1] == line[1][1]


def test_names_are_text_and_long_ones_shortened_with_the_whole_beneath():
    hostile, long = "<b>&", "a name that is much too long for the space"
    root, _ = drawn(CurvePanel("<i>", "epoch", (falling(hostile), falling(long, rate=0.3))))
    assert hostile in [text for text, _, _ in texts(root)]
    assert [element.text for element in root.iter("title")] == [long]
    assert root.get("aria-label") == "<i>"


def test_long_curves_are_thinned_and_keep_their_ends():
    _, (line,) = drawn(CurvePanel("Loss", "epoch", (falling("long", 12345, 1e-4),)))
    assert POINTS / 2 <= len(line) <= POINTS + 1
    assert line[-1][0] == WIDTH - RIGHT


@pytest.mark.parametrize("values", [[0.25] * 7, [1e-300, 1e300], [1e12, 1e-12], [7.0], [5e-324, 1.7e308, 0.5]])
@pytest.mark.parametrize("logarithmic", [True, False])
def test_any_range_is_drawn_with_labels_that_can_be_read(values, logarithmic):
    root, lines = drawn(CurvePanel("Loss", "epoch", (Curve("a", range(1, len(values) + 1), values),), logarithmic))
    assert lines
    heights = sorted(y for text, x, y in texts(root) if x < LEFT)
    assert all(above - below >= 11 for below, above in itertools.pairwise(heights))
