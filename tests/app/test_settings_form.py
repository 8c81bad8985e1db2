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
    one.form.enter("probe.modes", "8")
    one.settle()
    now = one.last_estimate
    assert now.bytes > before.bytes
    assert now.items == pt.estimate(SCAN, pt.Settings(probe={"modes": 8}), measure_time=False).items
    assert f"each takes {now.bytes / 1e6:.0f} MB" in one.memory["sentence"]
    assert one.memory["table"]["rows"] == now.table().rows
    assert one.settings.probe.modes == 8


def test_what_scan_and_settings_say_against_each_other_is_shown_beside_the_form(set_up):
    one = set_up(dataclasses.replace(SCAN, geometry=None))
    one.settings = pt.Settings(slices={"count": 2, "thickness": 1e-9})
    one.settle()
    assert "the scan has no geometry" in one.message
    one.settings = pt.Settings()
    one.settle()
    assert one.message == ""


def test_the_preview_shows_probe_frame_and_positions(set_up):
    one, lines = set_up(SCAN), []
    one.tell = lines.append
    assert not one.previewed
    one.preview()
    one.settle()
    assert one.previewed
    assert [picture["name"] for picture in one.viewer.frame["pictures"]] == ["positions", "object", "probe 1"]
    assert len(one.viewer.points["positions"]) > 0
    assert one.viewer.frame["pictures"][1]["note"].endswith(" pixels, 1 slice, 1 mode")
    assert lines == ["pt.preview(scan, settings)"]
    assert one.last_preview.object.shape == pt.preview(SCAN, one.settings).object.shape


def test_time_and_advice_are_asked_for_this_cluster_and_forgotten_with_the_settings(set_up, monkeypatch):
    """What they measure on real engines is tested where they are."""
    asked = []
    cost = pt.Advice("scan", "CPU", {}, (), {})
    monkeypatch.setattr(pt.Advice, "sentence", "2 engines are fastest.")
    monkeypatch.setattr(forms, "advise", lambda scan, settings, engines: asked.append(engines) or cost)
    counted = pt.estimate(SCAN, measure_time=False)
    timed = dataclasses.replace(counted, seconds=2.5)
    monkeypatch.setattr(forms, "estimate", lambda *a, measure_time=True: timed if measure_time else counted)
    one, lines = set_up(SCAN), []
    one.tell = lines.append
    one.measure()
    one.settle()
    assert "about 2.5 s an epoch" in one.memory["sentence"]
    assert one.advice["caption"] == "2 engines are fastest."
    assert asked == [None]
    assert lines == ["pt.estimate(scan, settings)", "pt.advise(scan, settings)"]
    one.form.enter("batch", "4")
    one.settle()
    assert one.advice == {}


def test_an_error_of_measuring_is_shown(set_up, monkeypatch):
    def fail(*_: Any, **__: Any) -> None:
        raise pt.ClusterError("Its engines are at work; stop them first.")

    one = set_up(SCAN)
    monkeypatch.setattr(forms, "advise", fail)
    monkeypatch.setattr(forms, "estimate", lambda *a, **k: one.last_estimate)
    one.measure()
    one.settle()
    assert "at work; stop them first" in one.message
    assert (one.advice, one.measuring) == ({}, False)


def test_without_a_scan_it_is_the_form_alone_until_there_is_one(set_up):
    one = set_up(settings=pt.Settings(batch=5))
    assert not one.with_scan
    assert one.settings.batch == 5
    one.scan = SCAN
    one.settle()
    assert one.with_scan
    assert one.last_estimate.items == pt.estimate(SCAN, pt.Settings(batch=5), measure_time=False).items
    assert one.form.scan is SCAN
    assert one.settings.batch == 5


def test_what_was_said_of_another_scan_goes_with_it(set_up):
    one = set_up(SCAN)
    one.preview()
    one.settle()
    one.advice = {"caption": "2 engines are fastest."}
    larger = pt.simulate(patterns=64, window=64)
    one.scan = larger
    one.settle()
    assert one.last_estimate.items == pt.estimate(larger, measure_time=False).items
    assert (one.advice, one.last_preview, one.previewed) == ({}, None, False)
    one.scan = None
    one.settings = pt.Settings(batch=3)
    one.settle()
    assert not one.with_scan
    assert (one.message, one.last_estimate) == ("", None)


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
    one.recommend()
    one.settle(240)
    found = one.last_recommendation
    assert found.settings.object.learning_rate in (0.03, 0.1, 0.2)
    assert one.settings == found.settings
    assert stages == [found.stages]
    assert "mask bad pixels" in one.recommended["caption"] + str(one.recommended["rows"])
    assert "Batch" in [row[0] for row in one.recommended["rows"]]
    [scan] = scans
    assert not scan.mask[3, 5]
    assert scan.mask.sum() == 32 * 32 - 1
    assert lines[:2] == ["recommended = pt.recommend(scan)", "scan = pt.prepare(scan, recommended.recipe.prepare)"]
    assert lines[2] == "settings = recommended.settings"
    assert (one.trials, one.finding) == (None, "")
    assert one.form.source["name"] == "recommended"
    assert one.form.source["reasons"]["batch"].startswith("36 patterns")


def test_a_recommendation_shows_how_far_it_is_and_is_cancelled(set_up):
    one, lines = set_up(SCAN), []
    one.tell = lines.append
    before, seen = one.settings, []
    one.observe(lambda change: seen.append(change["new"]), "trials")
    one.recommend()
    until = time.monotonic() + 60
    while len(seen) < 3:
        assert time.monotonic() < until, seen
        time.sleep(0.01)
    assert one.trials is not None
    assert "trials of" in one.finding
    one.preview()
    while one.last_preview is None:
        assert time.monotonic() < until, "a preview waits for the trials"
        time.sleep(0.01)
    assert one.trials is not None
    clicked = time.monotonic()
    one.cancel()
    one.settle()
    assert time.monotonic() - clicked < 5
    assert seen.pop() is None
    assert seen == sorted(seen)
    assert seen[-1] < 100
    assert one.finding == "Cancelled; the settings are as before."
    assert one.message == ""
    assert (one.settings, one.last_recommendation, lines) == (before, None, ["pt.preview(scan, settings)"])
