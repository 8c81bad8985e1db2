"""The live view of a real reconstruction in this process: what is shown is what the engine did."""

import time

import numpy as np
import pytest

import ptynb as pt
from tests.widgets.test_live import browser_sends, click, confirm_frames, points, sent, until  # noqa: F401


@pytest.fixture
def recon():
    scan = pt.simulate(patterns=36, window=32, modes=2, seed=1)
    settings = pt.Settings(probe=pt.Probe(modes=2), positions=pt.Positions(learning_rate=0.02))
    with pt.Reconstruction(scan, settings, device="cpu", checkpointing=None) as made:
        yield made


@pytest.fixture
def view(recon, sent):  # noqa: F811
    shown = pt.live(recon, rate=50.0)
    confirm_frames(shown)
    yield shown
    shown.close()


def test_a_session_with_the_mouse_is_what_the_engine_does(recon, view):
    lines = []
    view.tell = lines.append
    controls = view._controls
    until(lambda: not controls.buttons["Start"].disabled)
    browser_sends(controls.more, value=2000)
    browser_sends(controls.r_factor.widget, value=2)
    click(controls.buttons["Start"])
    until(lambda: recon.epoch >= 3, 30)
    until(lambda: "R-factor" in view._curve.value)
    until(lambda: [one["name"] for one in view._panes.probe.frame["pictures"]] == ["probe 1", "probe 2"])
    until(lambda: view._panes.object.frame["facts"]["epoch"] >= 3)

    browser_sends(controls.frozen["probe"].widget, value=True)
    until(lambda: any(change.name == "probe.learning_rate" and change.new == 0 for change in recon.changes))
    until(lambda: "probe.learning_rate" in view._record.value)
    until(lambda: controls.frozen["positions"].widget.layout.display is None)

    browser_sends(view._patterns.number.widget, value=17)
    until(lambda: view._patterns.viewer.frame["number"])
    assert view._patterns.viewer.frame["pictures"][0]["title"] == "pattern 17, measured"
    browser_sends(view._panes.positions, value=True)
    until(lambda: "phase" in view._panes.object.moves)
    assert len(points(view, "phase")) == 36
    until(lambda: np.abs(points(view, "phase", "moves") - points(view, "phase")).max() > 1e-3)
    browser_sends(view._drawer.buttons, shown=5)
    until(lambda: "in sync at epoch" in view._health.value)

    click(controls.buttons["Stop"])
    until(lambda: recon.state == "ready")
    until(lambda: len(lines) == 5)
    assert lines == [
        "recon.r_factor_every = 2",
        "recon.start(epochs=2000)",
        'recon.settings = recon.settings.replace(probe={"learning_rate": 0.0})',
        "recon.pattern(17)",
        "recon.stop()",
    ]
    assert view._message.value == ""


def test_the_view_shows_the_last_state_and_rests(recon, view):
    recon.start(3)
    recon.wait(30)
    until(lambda: view._panes.object.frame["facts"] == {"epoch": 3, "update": 0})
    time.sleep(0.3)
    number = view._panes.object.frame["number"]
    time.sleep(0.3)
    assert view._panes.object.frame["number"] == number
    pictures = recon.pictures(view._panes.request)
    assert [one["image"] for one in view._panes.object.frame["pictures"]] == [
        picture.image for picture in pictures.pictures[:2]
    ]
    text = view._panes.object.value_at("amplitude", 5, 7)
    assert float(text) == pytest.approx(
        abs(recon.result.object[5 + pictures.corner[0], 7 + pictures.corner[1]]), abs=1e-3
    )


def test_cuts_positions_and_errors_of_a_run_are_those_that_their_lines_give(sent):  # noqa: F811
    scan = pt.simulate(patterns=36, window=32, seed=2)
    settings = pt.Settings(slices=pt.Slices(count=3, thickness=2e-6), positions=pt.Positions(learning_rate=0.1))
    with pt.Reconstruction(scan, settings, device="cpu", checkpointing=None) as recon:
        list(recon.run(4))
        view, lines = pt.live(recon, rate=50.0), []
        confirm_frames(view)
        view.tell = lines.append
        cuts, errors = view._panes.cuts, view._errors_page
        until(lambda: cuts.tick.layout.display is None)
        browser_sends(cuts.tick, value=True)
        until(lambda: lines, 10)
        found = eval(lines[-1], {"pt": pt, "recon": recon})
        until(lambda: len(cuts.viewer.frame["pictures"]) == 4)
        picture = cuts.viewer.frame["pictures"][2]
        assert picture["title"] == f"phase, xz at y {found.row}"
        assert picture["bands"][0] * picture["pixel_size"][0] == pytest.approx(found.z[1])
        value = float(cuts.viewer.value_at("phase xz", 1, 3).removesuffix(" rad"))
        beside = view._panes.object.value_at("phase", found.row - view._panes._corner[0], 3)
        assert view._panes.request.slice == 1
        assert value == pytest.approx(float(beside.removesuffix(" rad")), abs=0.0021)

        browser_sends(view._drawer.buttons, shown=2)
        until(lambda: view._panes._refinement is not None and len(lines) == 2)
        refinement = eval(lines[-1], {"pt": pt, "recon": recon})
        assert refinement.rms == pytest.approx(view._panes._refinement.rms)
        assert refinement.length_text(refinement.rms) in view._panes.arrows._text.value

        browser_sends(view._drawer.buttons, shown=3)
        until(lambda: errors._found is not None and errors._found.complete, 10)
        np.testing.assert_allclose(eval(lines[-1], {"pt": pt, "recon": recon}).values, errors._found.values)
        browser_sends(errors.epochs, value=2)
        click(errors.compute)
        until(lambda: errors.errors.frame["number"], 60)
        until(lambda: len(lines) == 4)
        again = {}
        exec(lines[-1], {"pt": pt, "recon": recon}, again)
        assert f"{again['errors'].median:.3g} of the amplitude" in errors._progress.value
        view.close()
