"""What is measured on two real engines, and the advice and the estimates that follow."""

import dataclasses
import json

import numpy as np
import pytest

import ptynb as pt
from ptynb.physics.model_builder import object_frame
from ptynb.planning import memory as rooms
from ptynb.planning.performance import measure, part_of
from ptynb.settings import Settings
from tests.raising import raises


def test_the_measured_part_has_the_positions_rests_inside_the_object(scan):
    settings = Settings(probe={"modes": 16})
    frame, part = object_frame(scan, settings), part_of(scan, settings)
    assert len(part) == 64
    rests = {tuple(np.round(rest, 6)) for rest in (scan.positions - np.rint(scan.positions)).tolist()}
    assert {tuple(np.round(rest, 6)) for rest in (part.positions - np.rint(part.positions)).tolist()} <= rests
    low, high = part.positions.min(0), part.positions.max(0) + scan.pattern_shape
    assert (low >= 0).all()
    assert (high <= frame.shape).all()
    counts = {pattern.tobytes() for pattern in scan.frames.read(0, len(scan))}
    assert all(pattern.tobytes() in counts for pattern in part.frames.read(0, 64))


@pytest.mark.parametrize("optimiser", ["adam", "lbfgs"])
def test_two_real_engines_are_measured(cluster, scan, optimiser):
    found = measure(cluster, scan, Settings(optimiser=optimiser), [1, 2])
    assert found[1].link is None
    assert found[2].link.latency > 0
    assert 1e6 < found[2].link.bandwidth < 1e13
    for one in found.values():
        assert 0 < one.compute.seconds(16) < 60
    assert [status["threads"] for status in cluster.status()] == [engine.threads for engine in cluster.plan.engines], (
        "threads are what they were"
    )


def test_advice_from_two_real_engines(cluster, scan):
    found = pt.advise(scan, Settings(), cluster)
    assert [option.engines for option in found.options] == [1, 2, 2, 2]
    assert found.best in found.options
    assert cluster.running


def test_what_fits_nowhere_is_refused_before_anything_is_measured(scan, monkeypatch):
    monkeypatch.setattr(rooms, "free_on_host", lambda: 1000)
    with raises("memory.insufficient", "the engine needs about"):
        pt.advise(scan, Settings(), 2, device="cpu")


def test_engines_at_work_are_not_measured(cluster, scan):
    with (
        pt.Reconstruction(scan, Settings(), cluster),
        pytest.raises(pt.ClusterError, match=r"A reconstruction is open on this engine.*close\(\) it first"),
    ):
        pt.advise(scan, Settings(), cluster)


def test_an_estimate_from_a_real_engine(cluster, scan):
    found = pt.estimate(scan, Settings(), cluster)
    assert found.engines == 2
    assert found.problem is None
    assert 0 < found.seconds < 600
    assert found.bytes == sum(item.bytes for item in found.items)
    assert "together, of" in found._repr_html_()
    quick = pt.estimate(scan, Settings(), 2, device="cpu", measure_time=False)
    assert (quick.seconds, quick.items) == (None, found.items)
    assert dataclasses.asdict(quick)["batch"] == "16"


def test_what_cannot_fit_is_told_and_not_measured(scan, monkeypatch):
    monkeypatch.setattr(rooms, "free_on_host", lambda: 1000)
    found = pt.estimate(scan, Settings(), 2, device="cpu")
    assert found.problem.startswith("The memory does not suffice: 2 engines need about ")
    assert found.problem in str(found)
    assert found.seconds is None
    json.dumps(dataclasses.asdict(found))
