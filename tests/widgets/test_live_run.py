"""The live view of a real reconstruction in this process: what is shown is what the engine did."""

import time

import numpy as np
import pytest

import ptynb as pt
from tests.waiting import until
from tests.widgets.test_live import call, confirm_frames, lines, names, points, put, rows  # noqa: F401


@pytest.fixture
def recon():
    scan = pt.simulate(patterns=36, window=32, modes=2, seed=1)
    settings = pt.Settings(probe=pt.Probe(modes=2), positions=pt.Positions(learning_rate=0.02))
    with pt.Reconstruction(scan, settings, device="cpu", checkpointing=None) as made:
        yield made


@pytest.fixture
def view(recon, lines):  # noqa: F811
    shown = pt.live(recon, rate=50.0)
    shown.tell = lines.append
    confirm_frames(shown)
    yield shown
    shown.close()


def test_a_session_with_the_mouse_is_what_the_engine_does(recon, view, lines):  # noqa: F811
    until(lambda: "start" in view.usable)
    call(view, "measure_r_factor", every=2)
    call(view, "start", epochs=2000)
    until(lambda: len(rows(view, "r_factors", 2)) and rows(view, "epochs", 6)[-1, 0] >= 3, 30)
    assert rows(view, "epochs", 6)[:3, 1].tolist() == [epoch.loss for epoch in recon.epochs[:3]]
    until(lambda: names(view.probe_pictures) == ["probe 1", "probe 2"])
    until(lambda: view.object_pictures.frame_facts.get("epoch", 0) >= 3)

    call(view, "freeze", part="probe", on=True)
    until(lambda: any(change.name == "probe.learning_rate" and change.new == 0 for change in recon.changes))
    until(lambda: [row[2] for row in view.changes] == ["probe.learning_rate"])
    assert "positions" in view.parts

    call(view, "look_at", pattern=17)
    until(lambda: view.pattern_pictures.frame["number"])
    assert view.pattern_pictures.frame["pictures"][0]["title"] == "pattern 17, measured"
    put(view, positions=True)
    until(lambda: "phase" in view.object_pictures.moves)
    assert len(points(view, "phase")) == 36
    until(lambda: np.abs(points(view, "phase", "moves") - points(view, "phase")).max() > 1e-3)
    put(view, page="Engines")
    until(lambda: view.health)

    call(view, "stop")
    until(lambda: recon.state == "ready" and len(lines) == 5)
    assert lines == [
        "recon.r_factor_every = 2",
        "recon.start(epochs=2000)",
        'recon.settings = recon.settings.replace(probe={"learning_rate": 0.0})',
        "recon.pattern(17)",
        "recon.stop()",
    ]
    assert view.messages == []


def test_the_view_shows_the_last_state_and_rests(recon, view):
    recon.start(3)
    recon.wait(30)
    viewer = view.object_pictures
    until(lambda: viewer.frame_facts == {"epoch": 3, "update": 0})
    time.sleep(0.3)
    number = viewer.frame["number"]
    time.sleep(0.3)
    assert viewer.frame["number"] == number
    pictures = recon.pictures(view.request)
    assert [one["image"] for one in viewer.frame["pictures"]] == [picture.image for picture in pictures.pictures[:2]]
    value = abs(recon.result.object[5 + pictures.corner[0], 7 + pictures.corner[1]])
    assert float(viewer.value_at("amplitude", 5, 7)) == pytest.approx(value, abs=1e-3)


def test_cuts_positions_and_errors_of_a_run_are_those_that_their_lines_give():
    scan = pt.simulate(patterns=36, window=32, seed=2)
    settings = pt.Settings(slices=pt.Slices(count=3, thickness=2e-6), positions=pt.Positions(learning_rate=0.1))
    with pt.Reconstruction(scan, settings, device="cpu", checkpointing=None) as recon:
        list(recon.run(4))
        view, told, here = pt.live(recon, rate=50.0), [], {"pt": pt, "recon": recon}
        confirm_frames(view)
        view.tell = told.append
        until(lambda: view.slices == 3)
        put(view, cuts=True)
        until(lambda: told and len(names(view.cut_pictures)) == 4, 10)
        found, picture = eval(told[-1], here), view.cut_pictures.frame["pictures"][2]
        assert picture["title"] == f"phase, xz at y {found.row}"
        assert picture["bands"][0] * picture["pixel_size"][0] == pytest.approx(found.z[1])
        corner = recon.pictures(view.request).corner
        cut, beside = (
            view.cut_pictures.value_at("phase xz", 1, 3),
            view.object_pictures.value_at("phase", found.row - corner[0], 3),
        )
        assert view.request.slice == 1
        assert float(cut.removesuffix(" rad")) == pytest.approx(float(beside.removesuffix(" rad")), abs=0.0021)

        put(view, page="Positions")
        until(lambda: view.refinement and len(told) == 2)
        refinement = eval(told[-1], here)
        assert view.refinement["moves"][0] == refinement.length_text(refinement.rms)

        errors = view.errors
        put(view, page="Errors")
        until(lambda: errors.facts.startswith("36 patterns"), 10)
        assert f"median {eval(told[-1], here).median:.4f}" in errors.facts
        call(errors, "compute", epochs=2)
        until(lambda: errors.errors.frame["number"] and len(told) == 4, 60)
        exec(told[-1], here)
        assert f"{here['errors'].median:.3g} of the amplitude" in errors.said
        view.close()
