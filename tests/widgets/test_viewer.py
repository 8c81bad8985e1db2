"""The viewer without a browser: what is sent to one, and what one would send."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import traitlets

from ptynb.data.images import picture
from ptynb.io.export.colour_maps import look_up_table
from ptynb.widgets.element_tree import ElementPage
from ptynb.widgets.viewer import viewer as module
from ptynb.widgets.viewer.viewer import PATIENCE, Viewer
from tests.raising import raises

RAMP = np.arange(12.0).reshape(3, 4)


@pytest.fixture
def viewer():
    shown = Viewer()
    yield shown
    shown.close()


def says(viewer, buffers=(), **content):
    viewer.receive(content, list(buffers))


def test_a_frame_holds_all_pictures_and_its_facts(viewer):
    made = picture(RAMP, "ramp", "A ramp", unit="rad", pixel_size=(1e-9, 2e-9), colours="magma", note="a note")
    viewer.show([made, picture(RAMP * 1j, "wave")], epoch=3, update=1)
    first, second = viewer.frame["pictures"]
    shown = dataclasses.asdict(made)
    del shown["largest"]  # by which Python colours a part of the picture
    assert first == {
        **shown,
        "shape": [3, 4],
        "limits": list(made.limits),
        "pixel_size": [1e-9, 2e-9],
        "axes": ["y", "x"],
        "bands": [1, 1],
    }
    assert (second["name"], second["limits"]) == ("wave", None)
    assert viewer.frame_facts == {"epoch": 3, "update": 1}
    assert viewer.tables["magma"] == look_up_table("magma").tobytes()


def test_at_most_two_frames_wait_unless_the_kernel_hears_nothing_for_long(viewer, monkeypatch):
    for _ in range(2):
        assert viewer.ready
        viewer.show([picture(RAMP, "ramp")])
    assert not viewer.ready
    viewer.shown = 1
    assert viewer.ready
    viewer.show([picture(RAMP, "ramp")])
    assert not viewer.ready
    later = viewer._sent_at + PATIENCE + 0.01
    monkeypatch.setattr(module.time, "monotonic", lambda: later)
    assert viewer.ready


def test_of_two_pages_the_quicker_one_sets_the_pace(viewer):
    for _ in range(3):
        viewer.show([picture(RAMP, "ramp")])
    for confirmed in (3, 1):
        viewer.receive_values({"shown": confirmed})
    assert viewer.ready


def test_a_page_that_is_loaded_again_gets_the_whole_frame_though_it_has_not_changed(viewer):
    sent = []
    ElementPage(viewer, lambda message, _: sent.append(message["changes"][0][1]))
    viewer.show([picture(RAMP, "ramp")])
    says(viewer, kind="shown", name="board")
    frames = [values["frame"] for values in sent if "frame" in values]
    assert [[one["name"] for one in frame["pictures"]] for frame in frames] == [["ramp"]] * 2
    says(viewer, kind="hidden", name="board")
    assert not viewer.ready


def test_a_page_grants_frames_in_advance_and_the_fastest_page_counts():
    viewer = Viewer()
    viewer.show([picture(RAMP, "ramp")])
    viewer.granted = 5
    for _ in range(4):
        assert viewer.ready
        viewer.show([picture(RAMP, "ramp")])
    assert viewer.frame["number"] == 5
    assert not viewer.ready, "no more than that without another word"
    viewer.granted = 3  # of a slower page
    assert not viewer.ready
    viewer.granted = 6
    assert viewer.ready


def test_one_whose_pages_confirm_nothing_is_always_ready():
    viewer = Viewer(confirms=False)
    for _ in range(9):
        assert viewer.ready
        viewer.show([picture(RAMP, "ramp")])
    assert viewer.ready
    viewer.close()


def test_wrong_pictures_and_choices_are_refused_in_a_sentence(viewer):
    with raises("argument.invalid-value", "different names"):
        viewer.show([picture(RAMP, "ramp"), picture(RAMP, "ramp")])
    with raises("argument.invalid-value", "rainbows"):
        viewer.show([picture(RAMP, "ramp", colours="rainbows")])
    for trait, value in {
        "region": [4, 4, 0, 8],
        "percentiles": [3, 2],
        "view": {"y": 0.5},
        "swipe": ["one"],
        "limits": {"ramp": [3, 3]},
        "measure": {"kind": "ruler", "picture": "ramp", "start": [0, 0]},
        "tool": "hammer",
        "pairing": "mirror",
        "colours": {"ramp": "rainbows"},
    }.items():
        with pytest.raises((traitlets.TraitError, ValueError)):
            setattr(viewer, trait, value)
    viewer.colours = {"ramp": "inferno"}
    assert viewer.tables["inferno"] == look_up_table("inferno").tobytes()


def test_clicks_and_strokes_arrive_and_what_callbacks_raise_is_shown(viewer):
    clicks, strokes = [], []
    assert not viewer.clickable
    viewer.on_click(lambda *click: clicks.append(click))
    viewer.on_stroke(lambda *stroke: strokes.append(stroke))
    assert viewer.clickable
    viewer.paint("ramp")
    assert viewer.painted == "ramp"
    says(viewer, kind="click", name="ramp", y=1.5, x=2)
    path = np.array([[0.5, 1.5], [2.0, 3.0]], "<f4").tobytes()
    says(viewer, [memoryview(path)], kind="stroke", name="ramp", radius=2, erase=True)
    assert clicks == [("ramp", 1.5, 2.0)]
    name, drawn, radius, erase = strokes[0]
    assert (name, drawn.tolist(), radius, erase) == ("ramp", [[0.5, 1.5], [2.0, 3.0]], 2.0, True)
    says(viewer, kind="click", name="ramp", y="nowhere", x=0)
    assert "nowhere" in viewer.problem
    viewer.on_click(lambda *_: {}["no pattern there"])
    says(viewer, kind="click", name="ramp", y=0, x=0)
    assert "no pattern there" in viewer.problem


def test_the_line_of_a_measurement_is_told(viewer):
    lines = []
    says(viewer, kind="line", name="ramp", text="np.hypot(3, 4)")
    viewer.tell = lines.append
    says(viewer, kind="line", name="ramp", text="np.hypot(3, 4)")
    assert lines == ["np.hypot(3, 4)"]
    viewer.measure = {"kind": "ruler", "picture": "ramp", "start": (0, 0), "stop": (3, 4)}
    assert viewer.measure == {"kind": "ruler", "picture": "ramp", "start": [0.0, 0.0], "stop": [3.0, 4.0], "width": 1}
    viewer.measure = {}
    assert viewer.problem == ""


def test_marks_are_sent_as_pairs_and_taken_away(viewer):
    points = np.array([[1.0, 2.0], [3.0, 4.0]])
    viewer.mark("ramp", points, chosen=1, moved=points + 1)
    assert np.frombuffer(viewer.points["ramp"], "<f4").tolist() == [1, 2, 3, 4]
    assert np.frombuffer(viewer.moves["ramp"], "<f4").tolist() == [2, 3, 4, 5]
    assert viewer.chosen == {"ramp": 1}
    changed = []
    viewer.observe(lambda change: changed.append(change["name"]), ["points", "moves", "chosen"])
    viewer.mark("ramp", points, chosen=0, moved=points + 1)
    assert changed == ["chosen"]
    viewer.mark("ramp", np.zeros((0, 2)))
    assert (viewer.points, viewer.moves, viewer.chosen) == ({}, {}, {})
    with raises("array.shape-mismatch", "(point, 2)"):
        viewer.mark("ramp", np.zeros(3))
    with raises("argument.invalid-value", "chosen is 2", "0 to 1"):
        viewer.mark("ramp", points, chosen=2)
    with raises("array.shape-mismatch", "points", "moved"):
        viewer.mark("ramp", points, moved=points[:1])


def test_exact_values_are_asked_for_in_a_thread(monkeypatch):
    viewer, sent = Viewer(value_at=lambda name, y, x: f"{RAMP[y, x]:g} of {name}"), []
    monkeypatch.setattr(viewer, "send", sent.append)
    assert viewer.exact
    says(viewer, kind="value", name="ramp", y=1, x=2)
    viewer._questions.settle()
    assert sent == [{"kind": "value", "name": "ramp", "y": 1, "x": 2, "text": "6 of ramp"}]
    says(viewer, kind="value", name="ramp", y=9, x=9)
    viewer._questions.settle()
    assert "out of bounds" in viewer.problem
    viewer.close()
