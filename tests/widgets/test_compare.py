"""The view of results side by side, without a browser: what is sent to one is looked at."""

import ast
import dataclasses
import io
import re
import threading
import time
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import ptynb as pt
from ptynb.exceptions import FileError
from ptynb.io.named_results import named
from ptynb.io.result_file import save_result
from ptynb.widgets import elements
from ptynb.widgets.compare.compare_view import Compare, compare
from tests.analysis.test_result_comparison import result
from tests.raising import raises

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def shown():
    """Makes views, and closes them at the end."""
    views = []

    def make(*results):
        views.append(compare(*results))
        views[-1].settle()
        return views[-1]

    yield make
    for view in views:
        view.close()


def panes(view):
    return {picture["name"]: picture for picture in view._viewer.frame["pictures"]}


def pixels(picture):
    return np.asarray(Image.open(io.BytesIO(picture["image"]))).astype(float)


def changed(strength=0.2):
    """A result that differs from the plain one in a spot, beside shift, ramp and factor."""
    base = result(shift=(0.7, -0.4), ramp=(0.01, 0.02), factor=0.5j)
    spot = np.zeros(base.object.shape)
    spot[60:70, 60:70] = strength
    return dataclasses.replace(base, object=base.object * np.exp(1j * spot))


def test_results_lie_side_by_side_with_their_difference(shown):
    view = shown(result(), changed())
    assert list(panes(view)) == ["A", "B", "difference"]
    a, b, difference = panes(view).values()
    assert a["limits"] == b["limits"]
    assert a["shape"] == b["shape"] == difference["shape"]
    assert (a["unit"], difference["unit"]) == ("rad", "rad")
    assert re.fullmatch(r"-?[\d.]+ rad", view._viewer.value_at("A", 3, 5))
    assert difference["title"] == "B − A"
    low, high = difference["limits"]
    assert low == -high
    # registered they look the same but for the spot, which the difference shows
    apart = np.abs(pixels(a) - pixels(b)) * (a["limits"][1] - a["limits"][0]) / 255
    y = slice(60 - 8, 70 - 8)
    assert np.median(apart) < 0.02
    found = low + pixels(difference) / 255 * (high - low)
    assert np.median(found[y, y]) > 10 * np.median(np.abs(found))
    assert view._message.value == view._notes.value == view._busy.value == ""


def test_quantities_are_those_of_the_field(shown):
    view = shown(result(), changed())
    view.show(picture="amplitude")
    view.settle()
    a = panes(view)["A"]
    expected = np.abs(result().object[8:112, 8:122])
    low, high = a["limits"]
    np.testing.assert_allclose(
        low + pixels(a) / 255 * (high - low), np.clip(expected, low, high), atol=(high - low) / 200
    )
    assert view._viewer.value_at("A", 3, 5) == f"{expected[3, 5]:.5g}"
    lines: list[str] = []
    view.tell = lines.append
    view._viewer.receive({"kind": "line", "name": "A", "text": "np.hypot(3, 4)"}, [])
    assert lines == ["np.hypot(3, 4)"]
    np.testing.assert_allclose(eval(view._viewer.expressions["A"], {"view": view}), expected, rtol=1e-6)
    view.tell = None
    assert view._viewer.value_at("A", 300, 5) == view._viewer.value_at("gone", 0, 0) == ""
    view.show(picture="complex")
    view.settle()
    assert panes(view)["A"]["limits"] is None
    assert pixels(panes(view)["A"]).ndim == 3
    np.testing.assert_allclose(eval(view._viewer.expressions["A"], {"view": view, "np": np}), expected, rtol=1e-6)
    assert view._viewer.value_at("A", 3, 5).startswith(f"{expected[3, 5]:.4g}, ")
    view.show(picture="probe")
    view.settle()
    assert list(panes(view)) == ["A", "B"]
    assert "100.0%" in panes(view)["A"]["note"]


def test_unregistered_each_is_as_it_is_with_limits_of_its_own(shown):
    view = shown(result(), result(factor=3.0))
    view.show(picture="amplitude", registered=False)
    view.settle()
    a, b = panes(view)["A"], panes(view)["B"]
    assert b["limits"] == pytest.approx([3 * limit for limit in a["limits"]])
    view.show(registered=True)
    view.settle()
    assert panes(view)["B"]["limits"] == a["limits"]


def test_the_slider_is_between_the_chosen_two_and_off_again(shown):
    view = shown(result(), changed(), result())
    # A field without a choice would be empty on the screen.
    fields = [control for control in view._controls.values() if not isinstance(control, elements.Checkbox)]
    assert all(control.index is not None for control in fields)
    view.show(slider=("A", "C"))
    view.settle()
    assert view._viewer.swipe == ["A", "C"]
    view.show(slider="off", pair="none")
    view.settle()
    assert view._viewer.swipe == []
    assert list(panes(view)) == ["A", "B", "C"]
    assert "No pair is selected" in view._difference.value


def test_two_are_shown_in_turn_in_place_of_a_slider(shown):
    view, lines = shown(result(), changed(), result()), []
    view.tell = lines.append
    view.show(slider=("A", "B"))
    view.settle()
    view.show(flicker=("A", "C"))
    view.settle()
    assert (view._viewer.swipe, view._viewer.pairing) == (["A", "C"], "flicker")
    assert view._controls["slider"].value == "off"
    assert lines == ["view.show(slider=('A', 'B'))", "view.show(flicker=('A', 'C'))"]
    # what the viewer's own tools choose is seen in the fields, in whatever order
    view._viewer.swipe, view._viewer.pairing = ["B", "A"], "swipe"
    assert (view._controls["slider"].value, view._controls["flicker"].value) == (("A", "B"), "off")
    view._viewer.swipe, view._viewer.pairing = ["A", "difference"], "flicker"
    view.show(picture="amplitude")
    view.settle()
    assert view._viewer.swipe == ["A", "difference"], "a pair of the tools stays"
    view.show(flicker=("A", "B"))
    view.show(flicker="off")
    view.settle()
    assert view._viewer.swipe == []


def test_colours_and_limits_are_those_of_a_quantity(shown):
    view = shown(result(), changed())
    assert [picture["quantity"] for picture in panes(view).values()] == ["phase", "phase", "difference of phase"]
    view.show(colours="twilight", limits=(-1.0, 2.0))
    view.settle()
    assert view._viewer.colours == {"A": "twilight", "B": "twilight"}
    assert view._viewer.limits == {"A": [-1.0, 2.0], "B": [-1.0, 2.0]}
    view.show(picture="amplitude")
    view.settle()
    assert view._viewer.colours == view._viewer.limits == {}
    view.show(colours={"difference": "magma"})
    view.show(picture="phase")
    view.settle()
    assert view._viewer.colours == {"A": "twilight", "B": "twilight"}
    assert view.looks["amplitude"].colours == {"difference": "magma"}
    view.show(limits="auto", linked=False)
    view.settle()
    assert view._viewer.limits == {}
    assert not view._viewer.linked_colours
    other = Compare(view.results, view.looks)
    other.settle()
    assert other._viewer.colours == {"A": "twilight", "B": "twilight"}, "as in the comparison before"
    other.close()


def test_colours_that_stay_are_told_as_a_line_that_gives_them(shown):
    view, lines = shown(result(), changed()), []
    view.tell = lines.append
    for low in (-0.3, -0.2, -0.123456789):  # a drag
        view._viewer.receive_values({"limits": {"A": [low, 0.5], "B": [low, 0.5]}})
    view._viewer.receive_values({"colours": {"A": "magma", "B": "magma"}})
    view._viewer.receive_values({"linked_colours": False})
    until = time.monotonic() + 10
    while len(lines) < 3:
        assert time.monotonic() < until
        time.sleep(0.02)
    assert sorted(lines) == [
        "view.show(colours='magma')", "view.show(limits=(-0.12346, 0.5))", "view.show(linked=False)",
    ]  # fmt: skip
    view._viewer.receive_values({"colours": {"A": "gray", "B": "magma"}})
    while len(lines) < 4:
        assert time.monotonic() < until
        time.sleep(0.02)
    assert lines[3] == "view.show(colours={'A': 'gray'})"
    other = shown(result(), changed())
    for line in lines:
        eval(line, {"view": other})
    other.settle()
    assert other._viewer.colours == view._viewer.colours
    assert other._viewer.limits["B"] == pytest.approx(view._viewer.limits["B"], abs=1e-5)


def test_a_figure_of_what_is_shown_is_made_and_told(shown, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    view, lines = shown(result(), changed()), []
    view.tell = lines.append
    asked = {"kind": "figure", "region": [[9.6, 40.3], [0.0, 114.0]], "limits": [-0.4567891, 0.5], "minus": None}
    for name, suffix, colours in (("A", "pdf", "magma"), ("B", "svg", "gray"), ("difference", "png", "PuOr")):
        view._viewer.receive({**asked, "name": name, "suffix": suffix, "colours": colours}, [])
    view._viewer.receive({**asked, "name": "A", "suffix": "png", "colours": "PuOr", "minus": "B"}, [])
    view._viewer._drawings.settle()
    assert view._viewer.problem == ""
    files = ["A.pdf", "B.svg", "B_A.png", "A_B.png"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(files)
    assert view._viewer.said == f"written: {tmp_path / 'A_B.png'}"
    assert lines[0] == (
        "pt.figure(view.values['A'], region=((9, 41), (0, 114)), limits=(-0.45679, 0.5), colours='magma', "
        f"pixel_size={tuple(panes(view)['A']['pixel_size'])!r}, label='Phase [rad]', ticks=True).savefig('A.pdf')"
    )
    assert "view.values['A'] - view.values['B']" in lines[3]
    assert "label='Phase difference [rad]'" in lines[2]
    assert "label='Phase difference [rad]'" in lines[3]
    made = {name: (tmp_path / name).read_bytes() for name in files}
    for line in lines:
        eval(line, {"pt": pt, "view": view})
    for name in ("B_A.png", "A_B.png"):
        assert np.array_equal(
            *(np.asarray(Image.open(io.BytesIO(one))) for one in (made[name], (tmp_path / name).read_bytes()))
        )
    view.show(picture="complex")
    view.settle()
    whole = {**asked, "region": [[0, 104], [0, 114]], "limits": None, "colours": None}
    view._viewer.receive({**whole, "name": "A", "suffix": "pdf"}, [])
    view._viewer._drawings.settle()
    assert (tmp_path / "A-2.pdf").read_bytes().startswith(b"%PDF")
    assert lines[-1].startswith("pt.figure(view.values['A'], pixel_size=")
    view._viewer.receive({**asked, "name": "gone", "suffix": "pdf", "colours": "gray"}, [])
    assert "There is no picture 'gone'" in view._viewer.problem
    view._viewer.receive({**asked, "name": "A", "suffix": "exe", "colours": "gray"}, [])
    assert "'exe' is not supported" in view._viewer.problem


def test_what_is_clicked_is_told_as_python_that_does_the_same(shown):
    view, lines = shown(result(), changed()), []
    view.tell = lines.append
    view._controls["picture"].value = "complex"
    view._controls["pair"].value = ("A", "B")
    view._controls["slider"].value = ("A", "B")
    view._controls["registered"].value = False
    view._controls["slider"].value = "off"
    assert lines == [
        "view.show(picture='complex')",
        "view.show(pair=('A', 'B'))",
        "view.show(slider=('A', 'B'))",
        "view.show(registered=False)",
        "view.show(slider='off')",
    ]
    other = shown(result(), changed())
    for line in lines:
        eval(line, {"view": other})
    assert [c.value for c in other._controls.values()] == [c.value for c in view._controls.values()]


def test_the_difference_is_told_with_its_ring_correlation(shown):
    view = shown(result(), changed(0.0))
    text = view._difference.value
    shift = [float(value) for value in re.search(r"by \((\S+), (\S+)\) pixels", text).groups()]
    assert shift == pytest.approx((-0.7, 0.4), abs=0.01)
    assert "share their noise" in text
    assert "half-bit" in text
    assert 'aria-label="Fourier ring correlation of B and A"' in text
    for svg in re.findall("<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(svg)


def test_tables_have_what_differs_and_losses_their_curves(shown):
    one = result()
    other = result(settings={**one.settings, "loss": "poisson", "probe": {**one.settings["probe"], "modes": 4}})
    view = shown({"first": one, HOSTILE: other})
    table = ElementTree.fromstring(view._settings.value)
    rows = [["".join(cell.itertext()) for cell in row] for row in table.iter("tr")]
    assert rows == [["", "first", HOSTILE], ["probe.modes", "1", "4"], ["loss", "auto", "poisson"]]
    assert "R-factor" in view._facts.value
    assert view._losses.value.count("<polyline") == 4
    assert "different kinds" in view._losses.value
    for html in (view._settings, view._facts, view._losses, view._difference):
        assert "<script" not in html.value
    assert "Settings that differ</b>: none" in shown(one, one)._settings.value


def test_what_cannot_be_compared_says_why_and_the_rest_is_shown(shown):
    view = shown(result(), result(origin=(500, 0)), changed())
    assert "B is not compared: it shares" in view._notes.value
    assert list(panes(view)) == ["A", "B", "C"]  # the difference of B and A is not there
    assert "B is not compared" in view._difference.value
    assert panes(view)["A"]["shape"] == panes(view)["C"]["shape"]
    view.show(pair=("C", "A"))
    view.settle()
    assert "difference" in panes(view)
    assert "moved onto A" in view._difference.value


def test_an_object_that_does_not_fit_is_shown_as_it_is(shown):
    empty = dataclasses.replace(result(), object=np.zeros_like(result().object))
    view = shown(result(), empty)
    assert "B could not be moved onto A: The object is 0" in view._notes.value
    assert list(panes(view)) == ["A", "B"]


def test_slices_are_offered_where_there_are_some(shown):
    thin = result()
    thick = dataclasses.replace(thin, object=np.stack([thin.object, thin.object**2, thin.object]))
    view = shown(thick, thin)
    assert [text for text, _ in view._controls["slice"].options] == ["all", "0", "1", "2"]
    view.show(slice=1, picture="amplitude")
    view.settle()
    assert "B is not compared: it has no slice 1 (its number of slices is 1)" in view._notes.value
    assert [*view._together] == [1], "the fields of slices shown before are not kept"
    assert view._viewer.value_at("A", 3, 5) == f"{np.abs(thin.object[11, 13]) ** 2:.5g}"
    assert shown(thin, thin)._controls["slice"].disabled
    with raises("argument.invalid-value", "slice is 7", "one of 'all', 0, 1, 2."):
        view.show(slice=7)


def thick(shift=(0.0, 0.0)):
    """Three slices, the middle one with the sample alone, and positions of which one pair was moved."""
    base = result(shift=shift)
    settings = {**base.settings, "slices": {"count": 3, "thickness": 5e-9}}
    flat = np.ones_like(base.object)
    slices = np.stack([flat, base.object, flat])
    start = np.array([[10.0, 12.0], [20.0, 40.0], [60.0, 30.0], [70.0, 80.0]])
    moved = start + np.array([[0.5, 0.0], [0.0, 0.0], [0.0, 0.0], [-0.5, 0.0]])
    return dataclasses.replace(
        base, object=slices, settings=settings, positions=moved, parameters={"positions/start": start}
    )


def test_thick_objects_are_cut_at_one_place_which_clicks_move(shown):
    """The same place of the sample in both, by registration; a thin one has no cuts."""
    one, other = thick(), thick(shift=(3.0, -2.0))
    view = shown(one, other, result())
    lines: list[str] = []
    view.tell = lines.append
    assert view._cuts.place.children == ()
    view.show(cuts=True, picture="phase")
    view.settle()
    cuts = {picture["name"]: picture for picture in view._cuts.viewer.frame["pictures"]}
    assert [*cuts] == ["A xz", "A yz", "B xz", "B yz"]
    assert len({tuple(picture["limits"]) for picture in cuts.values()}) == 1
    assert {*view._viewer.crosshair} == {"A", "B", "C", "difference"}
    view._viewer.crosshair = {**view._viewer.crosshair, "A": [30.5, 41.5]}  # as a click does
    view.settle()
    assert view._viewer.crosshair["B"] == [30.5, 41.5]
    y, x = view._together["all"].area
    at = {name: [int(number) for number in re.findall(r"[yx]=(\d+)", line)] for name, line in view._cuts.lines.items()}
    assert at["A"] == [30 + y.start, 41 + x.start]
    assert at["B"] == pytest.approx([at["A"][0] + 3, at["A"][1] - 2], abs=1)
    low, high = view._cuts.viewer.frame["pictures"][0]["limits"]
    shown_cuts = {one["name"]: pixels(one) for one in view._cuts.viewer.frame["pictures"]}
    cut = eval(view._cuts.lines["A"], {"pt": pt, "view": view})
    rows = shown_cuts["A xz"][[0, shown_cuts["A xz"].shape[0] // 2]]
    np.testing.assert_allclose(rows, np.clip((cut.xz[:2] - low) / (high - low), 0, 1) * 255, atol=1)
    until = time.monotonic() + 10
    while not [line for line in lines if "orthogonal_cuts" in line] and time.monotonic() < until:
        time.sleep(0.05)
    assert view._cuts.lines["B"] in lines
    assert "view.show(cuts=True)" in lines
    view.show(picture="probe")
    view.settle()
    assert view._viewer.crosshair == {}
    assert view._cuts.place.children == ()
    assert shown(result(), result())._controls["cuts"].layout.display == "none"


def test_positions_lie_over_the_objects_with_arrows_by_one_factor(shown):
    view = shown(thick(), dataclasses.replace(result(origin=(4, 6)), parameters={}))
    view.show(positions=True, registered=False)
    view.settle()
    viewer = view._viewer
    points = {name: np.frombuffer(data, "<f4").reshape(-1, 2) for name, data in viewer.points.items()}
    y, x = (part.start for part in view._together["all"].area)
    start, refined = view.results["A"].parameters["positions/start"], view.results["A"].positions
    np.testing.assert_allclose(points["A"], start + 16 - [y, x], atol=1e-3)
    np.testing.assert_allclose(points["B"], view.results["B"].positions + 16 + [4 - y, 6 - x], atol=1e-3)
    factor = float(viewer.labels["A"].removeprefix("arrows × "))
    assert factor >= 10
    ends = np.frombuffer(viewer.moves["A"], "<f4").reshape(-1, 2)
    np.testing.assert_allclose(ends, points["A"] + factor * (refined - start), atol=1e-3)
    assert "B" not in viewer.moves
    view.show(positions=False)
    view.settle()
    assert (viewer.points, viewer.moves, viewer.labels) == ({}, {}, {})


CHOICES = {"picture": "real", "slice": 7, "pair": ("A", "C"), "slider": "on", "flicker": ("B", "A")}


@pytest.mark.parametrize("name", CHOICES)
def test_each_choice_that_the_message_offers_can_be_made(shown, name):
    view = shown(result(), changed())
    with raises("argument.invalid-value", name, CHOICES[name]) as caught:
        view.show(**{name: CHOICES[name]})
    offered = str(caught.value).partition("expected one of ")[2].removesuffix(".")
    for choice in ast.literal_eval(f"[{offered}]"):
        view.show(**{name: choice})
        view.settle()
        assert view._controls[name].value == choice


def test_an_error_is_shown_and_the_next_choice_takes_it_away(shown, monkeypatch):
    view = shown(result(), changed())
    with monkeypatch.context() as broken:
        broken.setattr(Compare, "_show", lambda *_: 1 / 0)
        view.show(picture="complex")
        view.settle()
    assert "division by zero" in view._message.value
    view.show(picture="phase")
    view.settle()
    assert view._message.value == ""


def test_results_have_names_of_their_own(tmp_path):
    path = save_result(result(), tmp_path / "night.result.h5")
    given = named((result(), path, str(path), {"branch": result()}, result()))
    assert list(given) == ["A", "night", "night (2)", "branch", "B"]
    assert given["night"].r_factor == 0.1


def test_what_is_no_result_is_refused(tmp_path):
    with pytest.raises(ValueError, match="There is 1 result to compare; expected two or more"):
        compare(result())
    with pytest.raises(TypeError, match="A list is no result; expected a Result"):
        compare(result(), [1, 2])
    with pytest.raises(FileError):
        compare(result(), tmp_path / "absent.h5")


def test_closing_ends_the_threads():
    before = set(threading.enumerate())
    view = compare(result(), changed())
    mine = set(threading.enumerate()) - before
    assert mine
    view.close()
    for thread in mine:
        thread.join(10)
        assert not thread.is_alive(), thread.name
    view.close()
