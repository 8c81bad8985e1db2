"""The view of results side by side: its choices, its pictures, and what a browser draws of it."""

import ast
import dataclasses
import io
import re

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

import ptynb as pt
from ptynb.data.images import reduce_by
from ptynb.exceptions import FileError
from ptynb.io.named_results import named
from ptynb.io.result_file import save_result
from ptynb.polling import wait_until
from ptynb.widgets.compare.compare_view import Compare, compare
from tests.analysis.test_result_comparison import result
from tests.raising import raises
from tests.widgets.browser_model import BrowserModel, violations


@pytest.fixture
def shown():
    """Makes views, and closes them at the end."""
    views = []

    def make(*results, **choices):
        views.append(compare(*results))
        views[-1].show(**choices)
        views[-1].settle()
        return views[-1]

    yield make
    for view in views:
        view.close()


def chosen(view, **choices):
    """The view once it shows other choices."""
    view.show(**choices)
    view.settle()
    return view


def told(view):
    lines = []
    view.tell = lines.append
    return lines


def panes(view):
    return {picture["name"]: picture for picture in view.viewer.frame["pictures"]}


def pixels(picture):
    return np.asarray(Image.open(io.BytesIO(picture["image"]))).astype(float)


def changed(strength=0.2):
    """A result that differs from the plain one in a spot, beside shift, ramp and factor."""
    base = result(shift=(0.7, -0.4), ramp=(0.01, 0.02), factor=0.5j)
    spot = np.zeros(base.object.shape)
    spot[60:70, 60:70] = strength
    return dataclasses.replace(base, object=base.object * np.exp(1j * spot))


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


# Pictures


def test_results_lie_side_by_side_with_their_difference(shown):
    view = shown(result(), changed())
    assert list(panes(view)) == ["A", "B", "difference"]
    a, b, difference = panes(view).values()
    assert a["limits"] == b["limits"]
    assert a["shape"] == b["shape"] == difference["shape"]
    assert (a["unit"], difference["unit"], difference["title"]) == ("rad", "rad", "B − A")
    assert re.fullmatch(r"-?[\d.]+ rad", view.viewer.value_at("A", 3, 5))
    low, high = difference["limits"]
    assert low == -high
    # registered they look the same but for the spot, which the difference shows
    apart = np.abs(pixels(a) - pixels(b)) * (a["limits"][1] - a["limits"][0]) / 255
    y = slice(60 - 8, 70 - 8)
    assert np.median(apart) < 0.02
    found = low + pixels(difference) / 255 * (high - low)
    assert np.median(found[y, y]) > 10 * np.median(np.abs(found))
    assert (view.message, view.notes, view.busy) == ("", [], False)


@pytest.mark.parametrize("quantity", ["phase", "complex"])
def test_a_region_of_large_results_is_shown_with_more_pixels_in_the_contrast_of_all(shown, monkeypatch, quantity):
    for module in ("ptynb.analysis.comparison_images", "ptynb.widgets.compare.compare_view"):
        monkeypatch.setattr(f"{module}.SIDE", 30)
    view = shown(result(), changed(), picture=quantity)
    assert {pane["reduction"] for pane in panes(view).values()} == {4}
    assert view.viewer.region_frame["pictures"] == []
    view.viewer.region = [40, 65, 50, 78]
    view.settle()
    part_frame = view.viewer.region_frame
    assert part_frame["corner"] == [40, 50]
    for part, whole in zip(part_frame["pictures"], panes(view).values(), strict=True):
        assert (part["shape"], part["reduction"]) == ([25, 28], 1)
        assert [part[name] for name in ("name", "limits", "unit")] == [
            whole[name] for name in ("name", "limits", "unit")
        ]
    values, part = view.values["A"], part_frame["pictures"][0]
    if quantity == "phase":
        low, high = part["limits"]
        expected = 255 * np.clip((values[40:65, 50:78] - low) / (high - low), 0, 1)
        assert np.abs(pixels(part) - expected).max() < 1.01
    else:
        largest = np.abs(reduce_by(values, 4)).max()
        expected = 255 * np.minimum(np.abs(values[40:65, 50:78]) / largest, 1)
        assert np.abs(pixels(part).max(axis=2) - expected).max() < 2
    chosen(view, registered=False)  # other pictures come with their region
    assert view.viewer.region_frame["number"] == part_frame["number"] + 1
    view.viewer.region = []
    view.settle()
    assert view.viewer.region_frame["pictures"] == []


def test_quantities_are_those_of_the_field(shown):
    view = shown(result(), result(factor=3.0), picture="amplitude")
    a, expected = panes(view)["A"], np.abs(result().object[8:112, 8:122])
    low, high = a["limits"]
    seen = low + pixels(a) / 255 * (high - low)
    np.testing.assert_allclose(seen, np.clip(expected, low, high), atol=(high - low) / 200)
    assert panes(view)["B"]["limits"] == [low, high]
    apart = panes(chosen(view, registered=False))["B"]["limits"]
    assert apart == pytest.approx([3 * low, 3 * high]), "unregistered, each has limits of its own"
    assert view.viewer.value_at("A", 3, 5) == f"{expected[3, 5]:.5g}"
    assert view.viewer.value_at("A", 300, 5) == view.viewer.value_at("gone", 0, 0) == ""
    names = {"view": view, "np": np}
    np.testing.assert_allclose(eval(view.viewer.expressions["A"], names), expected, rtol=1e-6)
    a = panes(chosen(view, picture="complex"))["A"]
    assert (a["limits"], pixels(a).ndim) == (None, 3)
    np.testing.assert_allclose(eval(view.viewer.expressions["A"], names), expected, rtol=1e-6)
    assert view.viewer.value_at("A", 3, 5).startswith(f"{expected[3, 5]:.4g}, ")
    probes = panes(chosen(view, picture="probe"))
    assert list(probes) == ["A", "B"]
    assert "100.0%" in probes["A"]["note"]


def test_what_cannot_be_compared_says_why_and_the_rest_is_shown(shown):
    view = shown(result(), result(origin=(500, 0)), changed())
    assert "B is not compared: it shares" in view.notes[0]
    assert list(panes(view)) == ["A", "B", "C"]  # the difference of B and A is not there
    assert "B is not compared" in view.difference["problem"]
    assert panes(view)["A"]["shape"] == panes(view)["C"]["shape"]
    assert "difference" in panes(chosen(view, pair=("C", "A")))
    assert "moved onto A" in view.difference["registration"]
    empty = dataclasses.replace(result(), object=np.zeros_like(result().object))
    view = shown(result(), empty)
    assert "B could not be moved onto A: The object is 0" in view.notes[0]
    assert list(panes(view)) == ["A", "B"]


def test_slices_are_offered_where_there_are_some(shown):
    thin = result()
    view = shown(dataclasses.replace(thin, object=np.stack([thin.object, thin.object**2, thin.object])), thin)
    assert (view.options["slice"], view.thick) == (["all", "0", "1", "2"], True)
    chosen(view, slice=1, picture="amplitude")
    assert "B is not compared: it has no slice 1 (its number of slices is 1)" in view.notes[0]
    assert view.viewer.value_at("A", 3, 5) == f"{np.abs(thin.object[11, 13]) ** 2:.5g}"
    with raises("argument.invalid-value", "slice is 7", "one of 'all', 0, 1, 2."):
        view.show(slice=7)
    thin_ones = shown(thin, thin)
    assert (thin_ones.options["slice"], thin_ones.thick) == (["all"], False)


# Choices


def test_two_are_shown_in_one_pane_by_a_slider_or_in_turn(shown):
    view = shown(result(), changed(), result())
    lines = told(view)
    assert chosen(view, slider=("A", "B")).viewer.swipe == ["A", "B"]
    chosen(view, flicker=("A", "C"))
    assert (view.viewer.swipe, view.viewer.pairing) == (["A", "C"], "flicker")
    assert view.chosen["slider"] == "off"
    assert lines == ["view.show(slider=('A', 'B'))", "view.show(flicker=('A', 'C'))"]
    # what the viewer's own tools choose is seen in the fields, in whatever order
    view.viewer.swipe, view.viewer.pairing = ["B", "A"], "swipe"
    assert (view.chosen["slider"], view.chosen["flicker"]) == ("A | B", "off")
    view.viewer.swipe, view.viewer.pairing = ["A", "difference"], "flicker"
    assert chosen(view, picture="amplitude").viewer.swipe == ["A", "difference"], "a pair of the tools stays"
    chosen(view, flicker=("A", "B"))
    assert chosen(view, flicker="off", pair="none").viewer.swipe == []
    assert list(panes(view)) == ["A", "B", "C"]
    assert view.difference == {}


def test_what_a_browser_chooses_is_told_as_python_that_does_the_same(shown):
    view = shown(result(), changed())
    lines = told(view)
    for name, choice in (
        ("picture", "complex"), ("pair", "A − B"), ("slider", "A | B"), ("registered", False), ("slider", "off"),
    ):  # fmt: skip
        view.receive_command("choose", {"name": name, "choice": choice})
    view.settle()
    assert lines == [
        "view.show(picture='complex')", "view.show(pair=('A', 'B'))", "view.show(slider=('A', 'B'))",
        "view.show(registered=False)", "view.show(slider='off')",
    ]  # fmt: skip
    other = shown(result(), changed())
    for line in lines:
        eval(line, {"view": other})
    other.settle()
    assert other.chosen == view.chosen


CHOICES = {"picture": "real", "slice": 7, "pair": ("A", "C"), "slider": "on", "flicker": ("B", "A"), "cuts": "no"}


def test_each_choice_that_a_message_offers_can_be_made(shown):
    view = shown(result(), changed())
    for name, wrong in CHOICES.items():
        with raises("argument.invalid-value", name, wrong) as caught:
            view.show(**{name: wrong})
        offered = str(caught.value).partition("expected one of ")[2].removesuffix(".")
        for choice in ast.literal_eval(f"[{offered}]"):
            pair = " − " if name == "pair" else " | "
            text = pair.join(choice) if isinstance(choice, tuple) else choice
            assert chosen(view, **{name: choice}).chosen[name] in (text, str(text))


# Colours and figures


def test_colours_and_limits_are_those_of_a_quantity(shown):
    view = shown(result(), changed(), colours="twilight", limits=(-1.0, 2.0))
    viewer, both = view.viewer, {"A": "twilight", "B": "twilight"}
    assert [picture["quantity"] for picture in panes(view).values()] == ["phase", "phase", "difference of phase"]
    assert (viewer.colours, viewer.limits) == (both, {"A": [-1.0, 2.0], "B": [-1.0, 2.0]})
    chosen(view, picture="amplitude")
    assert viewer.colours == viewer.limits == {}
    chosen(view, colours={"difference": "magma"})
    chosen(view, picture="phase")
    assert viewer.colours == both
    assert view.looks["amplitude"].colours == {"difference": "magma"}
    chosen(view, limits="auto", linked=False)
    assert (viewer.limits, viewer.linked_colours) == ({}, False)
    other = Compare(view.results, view.looks)
    other.settle()
    assert other.viewer.colours == both, "as in the comparison before"
    other.close()


def test_colours_that_stay_are_told_as_a_line_that_gives_them(shown):
    view = shown(result(), changed())
    lines = told(view)
    for low in (-0.3, -0.2, -0.123456789):  # a drag
        view.viewer.receive_values({"limits": {"A": [low, 0.5], "B": [low, 0.5]}})
    view.viewer.receive_values({"colours": {"A": "magma", "B": "magma"}})
    view.viewer.receive_values({"linked_colours": False})
    assert wait_until(lambda: len(lines) == 3, 10)
    assert sorted(lines) == [
        "view.show(colours='magma')", "view.show(limits=(-0.12346, 0.5))", "view.show(linked=False)",
    ]  # fmt: skip
    view.viewer.receive_values({"colours": {"A": "gray", "B": "magma"}})
    assert wait_until(lambda: len(lines) == 4, 10)
    assert lines[3] == "view.show(colours={'A': 'gray'})"
    other = shown(result(), changed())
    for line in lines:
        eval(line, {"view": other})
    other.settle()
    assert other.viewer.colours == view.viewer.colours
    assert other.viewer.limits["B"] == pytest.approx(view.viewer.limits["B"], abs=1e-5)


def test_a_figure_of_what_is_shown_is_made_and_told(shown, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    view = shown(result(), changed())
    viewer, lines = view.viewer, told(view)
    asked = {"kind": "figure", "region": [[9.6, 40.3], [0.0, 114.0]], "limits": [-0.4567891, 0.5], "colours": "PuOr"}
    for more in ({"name": "A", "suffix": "pdf"}, {"name": "difference", "suffix": "png"}):
        viewer.receive({**asked, "minus": None, **more}, [])
    viewer.receive({**asked, "name": "A", "suffix": "png", "minus": "B"}, [])
    viewer._drawings.settle()
    assert (viewer.problem, viewer.said) == ("", f"written: {tmp_path / 'A_B.png'}")
    assert lines[0] == (
        "pt.figure(view.values['A'], region=((9, 41), (0, 114)), limits=(-0.45679, 0.5), colours='PuOr', "
        f"pixel_size={tuple(panes(view)['A']['pixel_size'])!r}, label='Phase [rad]', ticks=True).savefig('A.pdf')"
    )
    assert "view.values['A'] - view.values['B']" in lines[2]
    made = [np.asarray(Image.open(name)) for name in ("B_A.png", "A_B.png")]
    for line in lines[1:]:
        assert "label='Phase difference [rad]'" in line
        eval(line, {"pt": pt, "view": view})
    assert all(np.array_equal(one, Image.open(name)) for one, name in zip(made, ("B_A.png", "A_B.png"), strict=True))
    for name, suffix, problem in (("gone", "pdf", "There is no picture 'gone'"), ("A", "exe", "'exe' is not")):
        viewer.receive({**asked, "name": name, "suffix": suffix, "minus": None}, [])
        assert problem in viewer.problem


# Overlays


def test_thick_objects_are_cut_at_one_place_which_clicks_move(shown):
    """The same place of the sample in both, by registration; a thin one has no cuts."""
    view = shown(thick(), thick(shift=(3.0, -2.0)), result())
    assert view.cuts is None
    lines = told(view)
    chosen(view, cuts=True)
    cuts = {picture["name"]: picture for picture in view.cuts.frame["pictures"]}
    assert [*cuts] == ["A xz", "A yz", "B xz", "B yz"]
    assert len({tuple(picture["limits"]) for picture in cuts.values()}) == 1
    assert {*view.viewer.crosshair} == {"A", "B", "C", "difference"}
    assert wait_until(lambda: len(lines) == 3, 10)
    lines.clear()
    view.viewer.crosshair = {**view.viewer.crosshair, "A": [30.5, 41.5]}  # as a click does
    view.viewer.colours = {"A": "magma"}
    view.settle()
    assert view.viewer.crosshair["B"] == [30.5, 41.5]
    assert view.cuts.colours == {"A xz": "magma", "A yz": "magma"}
    assert wait_until(lambda: len(lines) == 3, 10)
    a, b = sorted(line for line in lines if "orthogonal_cuts" in line)
    at = [[int(number) for number in re.findall(r"[yx]=(\d+)", line)] for line in (a, b)]
    area = [part.start for part in pt.analysis.Together(view.results).area]
    assert at[0] == [30 + area[0], 41 + area[1]]
    assert at[1] == pytest.approx([at[0][0] + 3, at[0][1] - 2], abs=1)
    picture = view.cuts.frame["pictures"][0]
    low, high = picture["limits"]
    cut = eval(a, {"pt": pt, "view": view})
    rows = pixels(picture)[[0, pixels(picture).shape[0] // 2]]
    np.testing.assert_allclose(rows, np.clip((cut.xz[:2] - low) / (high - low), 0, 1) * 255, atol=1)
    chosen(view, picture="probe")
    assert (view.viewer.crosshair, view.cuts) == ({}, None)


def test_positions_lie_over_the_objects_with_arrows_by_one_factor(shown):
    given = thick(), dataclasses.replace(result(origin=(4, 6)), parameters={})
    view = shown(*given, positions=True, registered=False)
    viewer = view.viewer
    points = {name: np.frombuffer(data, "<f4").reshape(-1, 2) for name, data in viewer.points.items()}
    y, x = (part.start for part in pt.analysis.Together(view.results).area)
    start, refined = view.results["A"].parameters["positions/start"], view.results["A"].positions
    np.testing.assert_allclose(points["A"], start + 16 - [y, x], atol=1e-3)
    np.testing.assert_allclose(points["B"], view.results["B"].positions + 16 + [4 - y, 6 - x], atol=1e-3)
    factor = float(viewer.labels["A"].removeprefix("arrows × "))
    assert factor >= 10
    ends = np.frombuffer(viewer.moves["A"], "<f4").reshape(-1, 2)
    np.testing.assert_allclose(ends, points["A"] + factor * (refined - start), atol=1e-3)
    assert "B" not in viewer.moves
    chosen(view, positions=False)
    assert (viewer.points, viewer.moves, viewer.labels) == ({}, {}, {})


# What is told


def test_the_difference_is_told_with_its_ring_correlation(shown):
    told_of = shown(result(), changed(0.0)).difference
    shift = [float(value) for value in re.search(r"by \((\S+), (\S+)\) pixels", told_of["registration"]).groups()]
    assert shift == pytest.approx((-0.7, 0.4), abs=0.01)
    assert "share their noise" in told_of["meaning"]
    curve = told_of["curve"]
    assert (curve["title"], curve["log"]) == ("Fourier ring correlation of B and A", False)
    assert [line["name"] for line in curve["lines"]] == ["FRC", "half-bit"]
    frequencies = curve["lines"][0]["x"][0]
    pixel = 1e9 * result().pixel_size[0]
    assert frequencies[-1] == pytest.approx(0.5 / pixel, rel=0.05)
    assert curve["lines"][0]["y"][0] > 0.9
    differs = shown(result(), changed()).difference
    period = float(re.search(r"at a period of (\S+) nm", differs["meaning"]).group(1))
    assert differs["curve"]["marks"] == [{"x": [pytest.approx(1 / period, rel=0.01)], "text": f"{period:g} nm"}]


def test_tables_have_what_differs_and_losses_their_curves(shown):
    one = result()
    epochs = tuple(dataclasses.replace(epoch, loss=np.nan) for epoch in one.epochs[:1]) + one.epochs[1:]
    changes = {"loss": "poisson", "probe": {**one.settings["probe"], "modes": 4}}
    view = shown(
        {"first": one, "second": dataclasses.replace(one, settings={**one.settings, **changes}, epochs=epochs)}
    )
    assert view.columns == ["first", "second"]
    assert view.settings == [("probe.modes", ["1", "4"], True), ("loss", ["auto", "poisson"], True)]
    assert ("R-factor", ["0.1", "0.1"], False) in view.facts
    lines = view.losses["curve"]["lines"]
    assert [line["name"] for line in lines] == view.columns
    assert lines[0]["x"][0] == [epoch.number for epoch in one.epochs]
    assert lines[0]["x"][1] == np.cumsum([epoch.seconds for epoch in one.epochs]).tolist()
    assert (lines[0]["y"], lines[1]["y"][0]) == ([epoch.loss for epoch in one.epochs], None)
    assert "different kinds (first: auto, second: poisson)" in view.losses["note"]
    same = shown(one, one)
    assert (same.settings, same.losses["note"]) == ([], "")


def test_an_error_is_shown_and_the_next_choice_takes_it_away(shown, monkeypatch):
    view = shown(result(), changed())
    with monkeypatch.context() as broken:
        broken.setattr(np, "angle", lambda *_: 1 / 0)
        chosen(view, registered=False)
    assert (view.message, view.busy) == ("division by zero", False)
    assert chosen(view, registered=True).message == ""


def test_results_are_given_as_files_or_by_name_and_what_is_none_is_refused(tmp_path):
    path = save_result(result(), tmp_path / "night.result.h5")
    given = named((result(), path, str(path), {"branch": result()}, result()))
    assert list(given) == ["A", "night", "night (2)", "branch", "B"]
    for error, words, one in (
        (ValueError, "There is 1 result to compare; expected two or more", ()),
        (TypeError, "A list is no result; expected a Result", ([1, 2],)),
        (FileError, "absent.h5", (tmp_path / "absent.h5",)),
    ):
        with pytest.raises(error, match=words):
            compare(result(), *one)


def test_a_browser_shows_all_and_chooses(shown, page):
    settings = {**result().settings, "loss": "poisson"}
    view = shown(thick(), dataclasses.replace(thick(shift=(0.7, -0.4)), settings=settings))
    model = BrowserModel(page, view)
    page.get_by_label("Slider", exact=True).select_option("A | B")
    page.get_by_label("Cuts", exact=True).press("Space")
    model.collect()
    view.settle()
    model.collect()
    assert (view.chosen["slider"], view.chosen["cuts"], view.viewer.swipe) == ("A | B", True, ["A", "B"])
    expect(page.locator(".ptynb-viewer")).to_have_count(2)
    sections = {"Difference": "moved onto", "Losses": "poisson", "Settings": "loss", "Facts": "R-factor"}
    for section, text in sections.items():
        page.get_by_role("tab", name=section).click()
        expect(page.get_by_role("tabpanel")).to_contain_text(text)
        part = None if section == "Difference" else "[role=tabpanel]"
        assert violations(page, part, f"compare-{section}") == []
    model.close()
