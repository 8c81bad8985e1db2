"""A reconstruction whose object is in tiles, or streamed, does what one with the whole object does in this process."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ptynb as pt
from ptynb.data.result import Result
from ptynb.data.scan import Scan
from ptynb.io.status_file import read_status
from tests.raising import raises

WHOLE = pt.Settings(
    batch=8,
    precision="double",
    batch_sampling="cells",
    positions=pt.Positions(learning_rate=0.05),
    schedule=pt.Schedule(kind="constant"),  # else rates depend on how epochs are divided into runs
)
TILES = WHOLE.replace(object={"layout": "tiles"})
STAGES = [
    pt.Stage(epochs=2, pattern_size=16, settings={"probe": {"learning_rate": 0}}),
    pt.Stage(epochs=2, settings={"probe": {"modes": 2}}),
    pt.Stage(epochs=1, settings={"optimiser": "rpie", "batch": 12}),
]


@pytest.fixture(scope="module")
def scan() -> Scan:
    return pt.simulate(patterns=50, window=32, seed=5)


@pytest.fixture(scope="module")
def cluster() -> Iterator[pt.Cluster]:
    with pt.Cluster(3, device="cpu") as cluster:
        yield cluster


def assert_same(one: Result, other: Result) -> None:
    for name in ("object", "probe", "positions"):
        own, others = getattr(one, name), getattr(other, name)
        np.testing.assert_allclose(others, own, atol=1e-8 * np.abs(own).max(), err_msg=name)
    np.testing.assert_allclose(other.losses, one.losses, rtol=1e-8)
    assert other.r_factor == pytest.approx(one.r_factor, rel=1e-8)
    assert [moment.epoch for moment in other.history] == [moment.epoch for moment in one.history]
    for own, others in zip(one.history, other.history, strict=True):
        np.testing.assert_allclose(others.object, own.object, atol=1e-5)


def test_stages_in_tiles(scan: Scan, cluster: pt.Cluster) -> None:
    results = []
    for settings, place in ((WHOLE, None), (TILES, cluster)):
        recipe = pt.Recipe(settings=settings, stages=STAGES)
        with pt.Reconstruction(scan, recipe, place, checkpointing=None) as recon:
            recon.start()
            recon.wait()
            results.append(recon.result)
    assert_same(*results)


BANDS = WHOLE.replace(batch_sampling="bands", batch_bands=3)
STREAMED = BANDS.replace(object={"layout": "streamed"})


def test_stages_of_a_streamed_object(scan: Scan) -> None:
    results = []
    for settings in (BANDS, STREAMED):
        recipe = pt.Recipe(settings=settings, stages=STAGES)
        with pt.Reconstruction(scan, recipe, device="cpu", checkpointing=None) as recon:
            recon.start()
            recon.wait()
            results.append(recon.result)
    assert_same(*results)


def test_a_streamed_object_is_restored_to_the_bit_and_resumed_and_reconfigured_whole(
    scan: Scan, tmp_path: Path
) -> None:
    keep = pt.Checkpointing(folder=tmp_path / "run", epochs=1, seconds=None, pictures=0.1)
    with pt.Reconstruction(scan, STREAMED, device="cpu", checkpointing=keep) as recon:
        list(recon.run(2))
        picture = recon.snapshot()
        list(recon.run(2))
        unbroken = recon.result
        recon.restore(2)
        list(recon.run(2))
        again = recon.result
        recon.reconfigure(recon.settings.replace(object={"layout": "whole"}))
        list(recon.run(1))
        recon.reconfigure(recon.settings.replace(object={"layout": "streamed"}))
        list(recon.run(1))
        reconfigured = recon.result
    assert np.array_equal(again.object, unbroken.object)
    with pt.resume(tmp_path / "run", scan, settings=BANDS.replace(object={"layout": "whole"})) as alone:
        list(alone.run(1))
        resumed = alone.result
    with pt.Reconstruction(scan, BANDS, device="cpu", checkpointing=None) as recon:
        list(recon.run(2))
        expected = recon.snapshot()
        assert expected is not None
        assert picture is not None
        np.testing.assert_allclose(picture.object, expected.object, atol=1e-8)
        list(recon.run(4))
        assert_same(recon.result, reconfigured)
        list(recon.run(1))
        assert_same(recon.result, resumed)


def test_own_constraints_are_refused_with_a_streamed_object(scan: Scan) -> None:
    with (
        raises("settings.unsupported-combination", "'streamed'", "BoundedEach"),
        pt.Reconstruction(scan, STREAMED, device="cpu", checkpointing=None, extensions=[BoundedEach()]) as recon,
    ):
        recon.wait()


def test_reconfigured_in_tiles_to_the_whole_object_and_back(scan: Scan, cluster: pt.Cluster, tmp_path: Path) -> None:
    results = []
    for settings, place, steps in ((WHOLE, None, ("whole", "whole")), (TILES, cluster, ("whole", "tiles"))):
        keep = pt.Checkpointing(folder=tmp_path / settings.object.layout)
        with pt.Reconstruction(scan, settings, place, checkpointing=keep) as recon:
            list(recon.run(2))
            recon.reconfigure(recon.settings.replace(probe={"modes": 2}))
            list(recon.run(1))
            recon.reconfigure(recon.settings.replace(object={"modes": 2, "layout": steps[0]}))
            list(recon.run(1))
            recon.reconfigure(recon.settings.replace(object={"layout": steps[1]}))
            list(recon.run(1))
            results.append(recon.result)
    assert_same(*results)


def test_restored_to_the_bit_and_resumed_by_one_process(scan: Scan, cluster: pt.Cluster, tmp_path: Path) -> None:
    keep = pt.Checkpointing(folder=tmp_path / "run", epochs=1, seconds=None, pictures=0.1)
    with pt.Reconstruction(scan, TILES, cluster, checkpointing=keep) as recon:
        list(recon.run(2))
        list(recon.run(2))
        unbroken = recon.result
        recon.restore(2)
        list(recon.run(2))
        again, windows = recon.result, recon._client.call(0, "positions")
    assert np.array_equal(again.object, unbroken.object)
    status, _ = read_status((tmp_path / "run" / "status.json").read_bytes())
    assert status is not None
    assert status.state == "closed"
    with pt.resume(tmp_path / "run", scan) as alone:
        list(alone.run(1))
        resumed = alone.result
    with pt.Reconstruction(scan, WHOLE, device="cpu", checkpointing=None) as recon:
        list(recon.run(4))
        np.testing.assert_allclose(windows, recon._client.call(0, "positions"), atol=1e-8)
        list(recon.run(1))
        assert_same(recon.result, resumed)


def test_recovered_after_the_loss_of_an_engine(scan: Scan, tmp_path: Path) -> None:
    keep = pt.Checkpointing(folder=tmp_path / "run", epochs=1, seconds=None)
    with pt.Cluster(3, device="cpu") as cluster, pt.Reconstruction(scan, TILES, cluster, checkpointing=keep) as recon:
        list(recon.run(2))
        before = recon.result
        os.kill(cluster.status()[1]["pid"], signal.SIGKILL)
        with pytest.raises(pt.ReconstructionError):
            list(recon.run(2))
        assert np.array_equal(recon.result.object, before.object)
        recon.recover()
        recon.wait()
        result = recon.result
    with pt.Reconstruction(scan, WHOLE, device="cpu", checkpointing=None) as recon:
        list(recon.run(len(result.epochs)))
        assert_same(recon.result, result)


class Bounded(pt.CustomConstraint):
    """An amplitude of 1.01 at most."""

    after = "update"

    def impose(self, model: Any) -> None:
        values = model.object.values
        model.object.set(torch.polar(values.abs().clamp(max=1.01), values.angle()))


class BoundedEach(Bounded):
    reach = 0


def test_own_constraints_say_how_far_they_reach(scan: Scan, cluster: pt.Cluster) -> None:
    with (
        raises("settings.unsupported-combination", "Bounded has reach=None", "expected 0 or 1"),
        pt.Reconstruction(scan, TILES, cluster, extensions=(Bounded(),), checkpointing=None) as recon,
    ):
        list(recon.run(1))
    results = []
    for settings, place in ((WHOLE, None), (TILES, cluster)):
        with pt.Reconstruction(scan, settings, place, extensions=(BoundedEach(),), checkpointing=None) as recon:
            list(recon.run(2))
            results.append(recon.result)
    assert np.abs(results[0].object).max() <= 1.01 + 1e-9
    assert_same(*results)
