import itertools
import math
import re
from xml.etree import ElementTree

import pytest

from ptynb.data.record import Epoch
from ptynb.widgets.loss_curve import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, change_curves, loss_curve
from ptynb.widgets.svg_axes import POINTS


def drawn(losses, marks=()):
    """The root of the SVG, whose text is well-formed or raises, and the curve's points."""
    root = ElementTree.fromstring(loss_curve(losses, marks))
    assert root.tag == "svg"
    line = root.find("polyline")
    points = [] if line is None else [tuple(map(float, pair.split(","))) for pair in line.get("points").split()]
    for x, y in points:
        assert LEFT - 0.06 <= x <= WIDTH - RIGHT + 0.06
        assert TOP - 0.06 <= y <= HEIGHT - BOTTOM + 0.06
    return root, points


def labels(root):
    return [(element.text, float(element.get("x")), float(element.get("y"))) for element in root.iter("text")]


@pytest.mark.parametrize("losses", [[], [0.0], [math.nan, math.inf, -1.0]])
def test_without_a_loss_it_says_so(losses):
    root, points = drawn(losses)
    assert points == []
    assert [text for text, _, _ in labels(root)] == ["no epoch yet"]


def test_heights_are_proportional_to_the_logarithm_and_epochs_are_evenly_spaced():
    losses = [0.9, 0.5, 0.031, 0.12, 0.0077, 0.0062]
    _, points = drawn(losses)
    assert len(points) == len(losses)
    assert [x for x, _ in points] == pytest.approx(
        [LEFT + (WIDTH - LEFT - RIGHT) * index / 5 for index in range(6)], abs=0.06
    )
    (_, top), (_, bottom) = points[0], points[-1]
    scale = (bottom - top) / math.log10(losses[0] / losses[-1])
    assert scale > 40
    for (_, y), loss in zip(points, losses, strict=True):
        assert y == pytest.approx(top + scale * math.log10(losses[0] / loss), abs=0.12)


@pytest.mark.parametrize("losses", [[0.3, 0.1, 0.05], [1.0, 1e-4], [0.011, 0.01]])
def test_the_axis_says_which_height_is_which_loss(losses):
    root, points = drawn(losses)
    ticks = [(float(text), y - 4) for text, x, y in labels(root) if re.fullmatch(r"\de[+-]\d+", text) and x < LEFT]
    assert len(ticks) >= 2
    (first, first_y), (last, last_y) = ticks[0], ticks[-1]
    scale = (last_y - first_y) / math.log10(last / first)
    for (_, y), loss in zip(points, losses, strict=True):
        assert y == pytest.approx(first_y + scale * math.log10(loss / first), abs=0.25)


def test_the_axis_says_which_place_is_which_epoch():
    root, points = drawn([1.0 / number for number in range(1, 51)])
    ticks = {int(text): x for text, x, y in labels(root) if text.isdigit()}
    assert ticks == {number: points[number - 1][0] for number in (10, 20, 30, 40, 50)}
    assert "epoch" in [text for text, _, _ in labels(root)]


def test_what_has_no_logarithm_is_left_out_and_moves_nothing():
    clean = [0.5, 0.4, 0.3, 0.2, 0.1]
    _, whole = drawn(clean)
    _, points = drawn([0.5, math.nan, 0.0, 0.2, 0.1])
    assert points == [whole[0], whole[3], whole[4]]
    _, ended = drawn([0.5, 0.4, 0.3, 0.2, math.inf])
    assert [x for x, _ in ended] == [x for x, _ in whole[:4]]


@pytest.mark.parametrize("count", [POINTS - 1, POINTS, POINTS + 1, 5000, 12345])
def test_a_long_curve_is_thinned_and_keeps_both_ends(count):
    losses = [1.0 / number for number in range(1, count + 1)]
    root, points = drawn(losses)
    assert POINTS / 2 <= len(points) <= POINTS + 1
    assert points[0][0] == LEFT
    assert points[-1][0] == WIDTH - RIGHT
    circle = root.find("circle")
    assert (float(circle.get("cx")), float(circle.get("cy"))) == points[-1]
    assert len(loss_curve(losses)) < 20_000


def test_each_change_is_marked_at_its_epoch():
    root, points = drawn([0.5, 0.4, 0.3, 0.2, 0.1], marks=[2, 4, 99])
    dotted = [line for line in root.iter("line") if line.get("stroke-dasharray")]
    assert [float(line.get("x1")) for line in dotted] == [points[1][0], points[3][0], WIDTH - RIGHT]
    assert {(line.get("y1"), line.get("y2")) for line in dotted} == {(str(TOP), str(HEIGHT - BOTTOM))}
    assert not [line for line in drawn([0.5, 0.4])[0].iter("line") if line.get("stroke-dasharray")]


@pytest.mark.parametrize("loss", [0.01, 0.2, 0.37, 1.0, 7e12])
def test_one_epoch_is_one_point_between_two_limits(loss):
    root, points = drawn([loss])
    assert len(points) == 1
    assert len([text for text, _, _ in labels(root) if "e" in text and text != "epoch"]) >= 2


@pytest.mark.parametrize("losses", [[0.25] * 7, [1e-300, 1e300], [1e12, 1e-12]])
def test_any_range_is_drawn_with_labels_that_can_be_read(losses):
    root, points = drawn(losses)
    assert len(points) == len(losses)
    heights = sorted(y for text, x, y in labels(root) if x < LEFT)
    assert heights
    assert all(above - below >= 11 for below, above in itertools.pairwise(heights))


@pytest.mark.parametrize("extreme", [5e-324, 1.7e308])
def test_an_absurd_loss_breaks_nothing(extreme):
    _, points = drawn([0.5, extreme, 0.25])
    assert len(points) >= 2


def test_r_factors_are_a_second_curve_on_the_same_axes():
    losses, r_factors = [0.5, 0.2, 0.1, 0.05], [(1, 0.2), (3, 0.05)]
    root = ElementTree.fromstring(loss_curve(losses, r_factors=r_factors))
    loss, r_factor = (
        [tuple(map(float, pair.split(","))) for pair in line.get("points").split()] for line in root.iter("polyline")
    )
    assert r_factor[0] == pytest.approx((loss[0][0], loss[1][1]), abs=0.06)
    assert r_factor[1] == pytest.approx((loss[2][0], loss[3][1]), abs=0.06)
    assert {"loss ●", "R-factor ■"} <= {text for text, _, _ in labels(root)}
    assert root.find("polyline").get("stroke-dasharray") is None
    assert root.findall("polyline")[1].get("stroke-dasharray")
    assert len(ElementTree.fromstring(loss_curve(losses)).findall("polyline")) == 1


def test_over_seconds_an_epoch_is_as_wide_as_it_took():
    root = ElementTree.fromstring(loss_curve([0.5, 0.2, 0.1], marks=[3], seconds=[1.0, 4.0, 5.0]))
    points = [tuple(map(float, pair.split(","))) for pair in root.find("polyline").get("points").split()]
    assert [x for x, _ in points] == pytest.approx(
        [LEFT + (WIDTH - LEFT - RIGHT) * done for done in (0.1, 0.5, 1.0)], abs=0.06
    )
    dashed = next(line for line in root.iter("line") if line.get("stroke-dasharray"))
    assert float(dashed.get("x1")) == pytest.approx(points[1][0], abs=0.06)  # where the second epoch ended
    ticks = {text: x for text, x, y in labels(root) if y > HEIGHT - BOTTOM and re.fullmatch(r"[\d.]+", text)}
    assert float(ticks["10"]) == pytest.approx(points[2][0], abs=0.06)
    assert "time [s]" in {text for text, _, _ in labels(root)}


@pytest.mark.parametrize("seconds", [[1e-7], [3e6, 2e6], [0.0]])
def test_any_duration_has_an_axis(seconds):
    root = ElementTree.fromstring(loss_curve([0.5] * len(seconds), seconds=seconds))
    assert root.find("polyline") is not None
    assert 1 <= len([text for text, _, y in labels(root) if HEIGHT - BOTTOM < y < HEIGHT - 5]) <= 12


def test_its_name_says_what_the_losses_are_over():
    assert 'aria-label="loss over epochs"' in loss_curve([0.5, 0.4])
    assert 'aria-label="loss over seconds"' in loss_curve([0.5, 0.4], seconds=[1.0, 2.0])
    for drawn, name in ((loss_curve([0.5, 0.4]), "loss"), (loss_curve([0.5, 0.4], r_factors=[(1, 0.3)]), "loss ●")):
        assert [text for text, *_ in labels(ElementTree.fromstring(drawn)) if "loss" in text] == [name]


def test_changes_have_curves_where_they_are_known():
    assert change_curves([Epoch(1, 0.1, 1.0, 1.0)]) == ""
    epochs = [Epoch(n, 0.1, 2.0, 1.0, None, 0.1 / n, 0.2 / n) for n in (1, 2, 3)]
    root = ElementTree.fromstring(change_curves(epochs))
    assert len([*root.iter("polyline")]) == 2
    assert {"object", "probe", "epoch"} <= {text for text, _, _ in labels(root)}
    moved = [Epoch(n, 0.1, 2.0, 1.0, None, 0.1, 0.2, 0.3) for n in (1, 2)]
    root = ElementTree.fromstring(change_curves(moved, [2.0, 2.0]))
    assert len([*root.iter("polyline")]) == 3
    assert {"positions", "time [s]"} <= {text for text, _, _ in labels(root)}


def test_in_a_small_place_texts_keep_their_size_and_do_not_overlap():
    root = ElementTree.fromstring(loss_curve([0.5, 0.2, 0.001], size=(240, 120)))
    assert root.get("viewBox") == "0 0 240 120"
    heights = sorted(float(text.get("y")) for text in root.findall("text") if text.get("text-anchor") == "end")
    assert len(heights) >= 2
    assert min(b - a for a, b in itertools.pairwise(heights)) >= 12
