"""The form beside what it would take and where it would start."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np
import pytest

import ptynb as pt
from ptynb.app import settings_form as forms
from ptynb.app.settings_form import SetUp, settings_form
from ptynb.widgets import elements
from ptynb.widgets.elements import below

SCAN = pt.simulate(patterns=36, window=32, seed=3)


@pytest.fixture
def set_up():
    """Makes one, and closes it afterwards."""
    made: list[SetUp] = []

    def make(*arguments: Any, **choices: Any) -> SetUp:
        made.append(settings_form(*arguments, **choices))
        made[-1].settle()
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_memory_is_that_of_the_estimate_and_follows_the_settings(set_up):
    one = set_up(SCAN)
    before = one.last_estimate
    assert before.items == pt.estimate(SCAN, measure_time=False).items
    one.form.row("probe.modes").input.value = "8"
    one.settle()
    now = one.last_estimate
    assert now.bytes > before.bytes
    assert now.items == pt.estimate(SCAN, pt.Settings(probe={"modes": 8}), measure_time=False).items
    assert f"{now.bytes / 1e6:.0f} MB" in one._memory.value
    assert one.settings.probe.modes == 8


def test_what_scan_and_settings_say_against_each_other_is_shown_beside_the_form(set_up):
    one = set_up(dataclasses.replace(SCAN, geometry=None))
    one.settings = pt.Settings(slices={"count": 2, "thickness": 1e-9})
    one.settle()
    assert "the scan has no geometry" in one._message.value
    one.settings = pt.Settings()
    one.settle()
    assert one._message.value == ""


def test_the_preview_shows_probe_frame_and_positions(set_up):
    one, lines = set_up(SCAN), []
    one.tell = lines.append
    assert one._viewed.layout.display == "none"
    one.look.click()
    one.settle()
    assert one._viewed.layout.display is None
    assert [picture["name"] for picture in one.viewer.frame["pictures"]] == ["positions", "object", "probe 1"]
    assert len(one.viewer.points["positions"]) > 0
    assert one.viewer.frame["pictures"][1]["note"].endswith(" pixels, 1 slice, 1 mode")
    assert lines == ["pt.preview(scan, settings)"]
    assert one.last_preview.object.shape == pt.preview(SCAN, one.settings).object.shape


def test_time_and_advice_are_asked_for_this_cluster_and_forgotten_with_the_settings(set_up, monkeypatch):
    """What they measure on real engines is tested where they are."""
    asked = []
    cost = forms.Advice("scan", "CPU", {}, (), {})
    monkeypatch.setattr(forms.Advice, "sentence", "2 engines are fastest.")
    monkeypatch.setattr(forms, "advise", lambda scan, settings, engines: asked.append(engines) or cost)
    counted = pt.estimate(SCAN, measure_time=False)
    timed = dataclasses.replace(counted, seconds=2.5)
    monkeypatch.setattr(forms, "estimate", lambda *a, measure_time=True: timed if measure_time else counted)
    one, lines = set_up(SCAN), []
    one.tell = lines.append
    one.measure.click()
    one.settle()
    assert "2.5" in one._memory.value
    assert "2 engines are fastest." in one._time.value
    assert asked == [None]
    assert lines == ["pt.estimate(scan, settings)", "pt.advise(scan, settings)"]
    one.form.row("batch").input.value = "4"
    one.settle()
    assert one._time.value == ""


def test_an_error_of_measuring_is_shown(set_up, monkeypatch):
    def fail(*_: Any, **__: Any) -> None:
        raise pt.ClusterError("Its engines are at work; stop them first.")

    one = set_up(SCAN)
    monkeypatch.setattr(forms, "advise", fail)
    monkeypatch.setattr(forms, "estimate", lambda *a, **k: one.last_estimate)
    one.measure.click()
    one.settle()
    assert "at work; stop them first" in one._message.value
    assert one._time.value == ""


def test_without_a_scan_it_is_the_form_alone_until_there_is_one(set_up):
    one = set_up(settings=pt.Settings(batch=5))
    assert one._beside.layout.display == "none"
    assert one.settings.batch == 5
    one.scan = SCAN
    one.settle()
    assert one._beside.layout.display is None
    assert one.last_estimate.items == pt.estimate(SCAN, pt.Settings(batch=5), measure_time=False).items
    assert one.form.scan is SCAN
    assert one.settings.batch == 5


def test_what_was_said_of_another_scan_goes_with_it(set_up):
    one = set_up(SCAN)
    one.look.click()
    one.settle()
    one._time.value = "2 engines are fastest."
    larger = pt.simulate(patterns=64, window=64)
    one.scan = larger
    one.settle()
    assert one.last_estimate.items == pt.estimate(larger, measure_time=False).items
    assert (one._time.value, one.last_preview, one._viewed.layout.display) == ("", None, "none")
    one.scan = None
    one.settings = pt.Settings(batch=3)
    one.settle()
    assert one._beside.layout.display == "none"
    assert (one._message.value, one.last_estimate) == ("", None)


def test_presets_look_at_the_scan(set_up):
    one = set_up(pt.simulate(patterns=8, window=16))
    one.form.presets.choice.value = "near field"
    one.settle()
    assert one.settings == pt.preset("near field", one.scan)
    assert one.settings.batch == 2


def test_it_steers_a_reconstruction_that_runs():
    from ptynb.widgets.form import SettingsForm

    with pt.Reconstruction(SCAN, device="cpu", checkpointing=None) as recon:
        # An edit is applied after an update, so `settle` would wait for the loops that the first one compiles.
        for _ in recon.run(1):
            pass
        recon.start(10**6)
        form = SettingsForm(live=True, recon=recon)
        try:
            form.row("probe.learning_rate").input.value = "0.002"
            form.settle()
            form.row("object.learning_rate")  # of a group that is folded until it is asked for
            form.freezes["object.learning_rate"].click()
            form.settle()
            assert (recon.settings.object.learning_rate, recon.settings.probe.learning_rate) == (0.0, 0.002)
            assert recon.state == "running"
            assert [change.name for change in recon.changes] == ["probe.learning_rate", "object.learning_rate"]
            form.row("batch").input.value = "8"
            form.settle()
            assert recon.settings.batch == 16, "it is not applied at once"
            assert recon.state == "running"
        finally:
            form.close()
            recon.stop()


def test_the_light_of_a_preview_is_that_of_all_patterns():
    found = pt.preview(SCAN, pt.Settings(probe={"modes": 2}))
    expected = np.zeros(found.object.shape[-2:])
    intensity = (np.abs(found.probe) ** 2).sum(0)
    for y, x in np.rint(found.positions).astype(int):
        expected[y : y + 32, x : x + 32] += intensity
    np.testing.assert_allclose(found.illumination, expected, atol=1e-5 * expected.max())


def test_a_recommendation_is_shown_and_put_into_the_form_and_the_scan_is_prepared(set_up):
    """The trials themselves are tested in tests/tuning."""
    patterns = np.array(SCAN.frames.read(0, len(SCAN)))
    patterns[:, 3, 5] = 50 * patterns.mean()
    one, lines, scans = set_up(pt.Scan.from_arrays(patterns, SCAN.positions, probe=SCAN.probe)), [], []
    stages = list[Any]()

    def tell(line: str) -> None:
        time.sleep(0.1)  # so that `settle` has to wait for it
        lines.append(line)

    one.tell, one.use_scan, one.use_stages = tell, scans.append, stages.append
    one.advise.click()
    one.settle(240)
    found = one.last_recommendation
    assert found.settings.object.learning_rate in (0.03, 0.1, 0.2)
    assert one.settings == found.settings
    assert stages == [found.stages]
    assert "mask bad pixels" in one._recommended.value
    assert '<td style="text-align:left">Batch</td>' in one._recommended.value
    [scan] = scans
    assert not scan.mask[3, 5]
    assert scan.mask.sum() == 32 * 32 - 1
    assert lines[:2] == ["recommended = pt.recommend(scan)", "scan = pt.prepare(scan, recommended.recipe.prepare)"]
    assert lines[2] == "settings = recommended.settings"
    assert (one.trials.bar.value, one.trials.layout.display, one.advise.disabled) == (100, "none", False)
    assert one.form.presets.choice.value == "recommended"
    assert "◆ recommended</b>: 36 patterns" in one.form.row("batch").about.value


def test_a_recommendation_shows_how_far_it_is_and_is_cancelled(set_up):
    one, lines = set_up(SCAN), []
    one.tell = lines.append
    before, seen = one.settings, []
    one.trials.bar.observe(lambda change: seen.append(change["new"]), "value")
    one.advise.click()
    until = time.monotonic() + 60
    while len(seen) < 3:
        assert time.monotonic() < until, seen
        time.sleep(0.01)
    assert one.trials.layout.display is None
    assert one.advise.disabled
    assert "trials of" in one._recommended.value
    one.look.click()
    while one.last_preview is None:
        assert time.monotonic() < until, "a preview waits for the trials"
        time.sleep(0.01)
    assert one.trials.layout.display is None
    clicked = time.monotonic()
    next(part for part in below(one.trials) if isinstance(part, elements.Button)).click()
    one.settle()
    assert time.monotonic() - clicked < 5
    assert seen == sorted(seen)
    assert seen[-1] < 100
    assert "Cancelled" in one._recommended.value
    assert one._message.value == ""
    assert (one.trials.layout.display, one.advise.disabled) == ("none", False)
    assert (one.settings, one.last_recommendation, lines) == (before, None, ["pt.preview(scan, settings)"])
