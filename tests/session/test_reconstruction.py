"""Reconstructions on a real cluster of two engines, and the same lines in this process."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import psutil
import pytest
import torch

import ptynb as pt
from ptynb.cluster import cluster as cluster_module
from ptynb.data.commands import StartRun
from ptynb.data.engine_records import RenderRequest, Status
from ptynb.data.scan import Scan
from ptynb.engine import run_registry
from ptynb.engine.worker import IDLE_SECONDS
from ptynb.optimize.gradient_descent import Gradient
from ptynb.physics import triton_dispatch
from ptynb.planning import memory as rooms
from ptynb.planning.memory import Room
from ptynb.session import branching
from ptynb.session import engine_client as engine_client_module
from tests.cluster.test_error_messages import file_of
from tests.planning.peak import scan_of
from tests.raising import raises
from tests.waiting import until as until_within

until = functools.partial(until_within, seconds=20.0)


@pytest.fixture(params=["two engines", "this process"])
def recon(request: pytest.FixtureRequest, cluster: pt.Cluster, scan: Scan) -> Iterator[pt.Reconstruction]:
    chosen = cluster if request.param == "two engines" else None
    with pt.Reconstruction(scan, pt.Settings(), chosen) as made:
        yield made


def place(recon: pt.Reconstruction) -> list[tuple[int, int]]:
    return [(status.epoch, status.update) for status in statuses_after_commands(recon)]


def statuses_after_commands(recon: pt.Reconstruction) -> tuple[Status, ...]:
    """When all engines have applied the commands that rank 0 has applied: another may be some milliseconds late."""
    sent = recon.status()[0].applied
    until(lambda: all(status.applied >= sent for status in recon.status()))
    return recon.status()


def test_a_run_yields_each_epoch_with_a_falling_loss(recon: pt.Reconstruction) -> None:
    epochs = list(recon.run(6))
    assert [epoch.number for epoch in epochs] == [1, 2, 3, 4, 5, 6]
    assert epochs[-1].loss < 0.5 * epochs[0].loss
    assert recon.epochs == tuple(epochs)
    assert all(epoch.patterns_per_second == pytest.approx(100 / epoch.seconds) for epoch in epochs)


def test_several_scans_are_refused_by_name(scan: Scan) -> None:
    ranges: Any = {"probe.learning_rate": pt.between(0.01, 0.1)}
    several: Any = [scan, scan]
    for begin in (pt.estimate, pt.advise, pt.preview, pt.inspect, pt.workbench):
        with pytest.raises(TypeError, match=r"The scan is a list; expected one Scan.*preparation\.combine"):
            begin(several)
    with pytest.raises(TypeError, match="The scan is a list"):
        pt.tune(several, pt.Settings(), ranges)
    with raises("argument.missing", "2 scans", "share='probe'", "share='object'"):
        pt.Reconstruction([scan, scan])


@pytest.fixture
def patient(recon: pt.Reconstruction) -> pt.Reconstruction:
    """Ends after 5 epochs, the third of which changed a setting: two count, and no loss halves from one to the next."""
    list(recon.run(3))
    recon.settings = recon.settings.replace(stop=pt.Stop(patience=1, tolerance=0.9))
    return recon


def test_a_run_without_progress_ends_before_its_last_epoch_and_can_go_on(patient: pt.Reconstruction) -> None:
    patient.start(50)
    patient.wait(30)
    assert (patient.state, patient.epoch) == ("ready", 5)
    assert patient.stopped.startswith("the loss decreased by 0.")
    assert (patient.changes[-1].name, patient.changes[-1].epoch, patient.changes[-1].old) == ("stopped", 5, 53)
    assert patient.changes[-1].new == patient.stopped
    assert {status.changes for status in statuses_after_commands(patient)} == {patient.changes}
    assert [epoch.number for epoch in patient.run(50)] == [6, 7]
    assert patient.changes[-1].old == 55
    patient.run_until(9)
    patient.wait(30)
    assert (patient.epoch, patient.stopped) == (9, "")
    assert patient.result.epochs == patient.epochs


@pytest.mark.parametrize("recon", ["this process"], indirect=True)
def test_a_run_that_makes_its_last_epoch_was_not_ended_before(patient: pt.Reconstruction) -> None:
    assert len(list(patient.run(2))) == 2
    assert patient.stopped == ""
    patient.step()
    patient.step()
    assert (patient.epoch, patient.stopped) == (7, "")


def test_paused_stands_still_on_all_engines_and_resumed_goes_on(recon: pt.Reconstruction) -> None:
    recon.start(2000)
    until(lambda: recon.epoch >= 1)
    recon.pause()
    held = place(recon)
    time.sleep(0.5)
    assert place(recon) == held
    assert len(set(held)) == 1
    recon.resume()
    until(lambda: place(recon)[0] > held[0])
    recon.stop()
    assert recon.state == "ready"


def test_a_change_of_rates_is_recorded_on_all_engines_at_the_same_update(recon: pt.Reconstruction) -> None:
    recon.start(2000)
    until(lambda: recon.epoch >= 1)
    recon.settings = recon.settings.replace(object={"learning_rate": 0.004})
    recon.pause()  # the rates fall from epoch to epoch
    statuses = statuses_after_commands(recon)
    assert len({status.rates["object"] for status in statuses}) == 1
    assert 0 < statuses[0].rates["object"] <= 0.004
    assert {status.changes for status in statuses} == {recon.changes}
    assert [(change.name, change.old, change.new) for change in recon.changes] == [("object.learning_rate", 0.1, 0.004)]
    recon.stop()
    assert recon.result.changes == recon.changes
    assert recon.result.settings["object"]["learning_rate"] == 0.004


def test_a_run_is_made_longer_and_shorter_while_it_goes_on(recon: pt.Reconstruction) -> None:
    with raises("reconstruction.not-running"):
        recon.target = 9
    recon.start(90_000)
    recon.target = 100_000
    until(lambda: recon.epoch >= 2)
    with raises("argument.invalid-value", "target is 1"):
        recon.target = 1
    recon.pause()
    recon.target = last = recon.epoch + 3
    recon.resume()
    recon.wait(30)
    assert (recon.state, recon.epoch) == ("ready", last)
    assert [(one.name, one.old, one.new) for one in recon.changes] == [
        ("target", 90_000, 100_000), ("target", 100_000, last),
    ]  # fmt: skip


@pytest.mark.parametrize("recon", ["this process"], indirect=True)
def test_start_twice_and_nonsense_are_refused(recon: pt.Reconstruction) -> None:
    recon.start(2000)
    with raises("reconstruction.busy", "stop() it first"):
        recon.start(5)
    recon.stop()
    with raises("argument.invalid-value", "at least 1"):
        recon.start(0)


NO_NUMBERS: list[Any] = [10**30, 10**5000, True, np.True_, 2.0, "3", None, -1]


def test_epochs_are_whole_numbers_that_engines_can_count(scan: Scan) -> None:
    with pt.Reconstruction(scan, checkpointing=None) as recon:
        orders: list[Any] = [recon.start, recon.run, recon.run_until]
        orders += [lambda one: setattr(recon, "target", one), lambda one: recon.run_until(1, one)]
        for number in NO_NUMBERS:
            for order in orders[2 if number is None else 0 :]:  # start and run have a default
                with pytest.raises(
                    pt.ReconstructionError, match=r"got .*; expected (a whole number of|at least) "
                ) as no:
                    order(number)
                assert len(str(no.value)) < 300
        assert recon.status()[0].epoch == 0
        recon.start(np.int64(1))
        recon.wait(30)
        assert recon.epoch == 1


def test_a_run_that_ends_before_it_has_converged_says_so_until_the_next_one(scan: Scan) -> None:
    slow = pt.Settings(object={"learning_rate": 0.01}, probe={"learning_rate": 0.01}, schedule={"kind": "constant"})
    with pt.Reconstruction(scan, slow, checkpointing=None) as recon:
        with pytest.warns(pt.PtynbWarning, match="not converged after epoch 12: the loss fell"):
            told = [recon.notices for _ in recon.run(12)]
        assert [len(notices) for notices in told] == [0] * 11 + [1]
        recon.start(30)
        recon.stop()
        assert recon.notices == ()
        recon.settings = pt.Settings()
        recon.start(30)
        recon.wait(60)
        assert recon.notices == ()


def test_patterns_of_a_slow_size_are_a_warning() -> None:
    with pt.Reconstruction(pt.simulate(4, window=83), checkpointing=None) as recon:
        told = pytest.warns(pt.PtynbWarning, match=r"83 x 83 takes .* 84 x 84")
        with told:
            recon.step()


def test_what_slows_the_updates_of_a_gpu_is_a_warning_once(scan: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    triton, graphs = "Triton does not work.", "The update cannot be recorded as a CUDA graph."
    monkeypatch.setitem(triton_dispatch._problems, "cuda", triton)
    monkeypatch.setattr(Gradient, "notices", (graphs,))
    with pt.Reconstruction(scan, checkpointing=None) as recon:
        with pytest.warns(pt.PtynbWarning) as caught:
            for _ in recon.run(2):
                pass
        assert [str(one.message) for one in caught] == [triton, graphs]
        assert recon.notices == (triton, graphs)
        for _ in recon.run(1):  # a warning would be an error here
            pass


def test_an_interrupted_loop_stops_the_engines_and_goes_on_where_it_stopped(recon: pt.Reconstruction) -> None:
    for epoch in recon.run(100):
        if epoch.number == 3:
            break
    time.sleep(0.1)
    assert (recon.state, recon.epoch) == ("ready", 3)
    assert next(recon.run(1)).number == 4


def test_the_result_is_that_of_one_engine_and_survives_a_file(
    recon: pt.Reconstruction, scan: Scan, tmp_path: Path
) -> None:
    for _ in recon.run(10):
        pass
    result = recon.result
    with pt.Reconstruction(scan) as alone:
        losses = [epoch.loss for epoch in alone.run(10)]
        reference = alone.result
    assert result.losses == pytest.approx(losses, rel=1e-4)
    assert result.r_factor == pytest.approx(reference.r_factor, rel=1e-4)
    assert result.object.shape == scan.object_frame(4).shape
    np.testing.assert_allclose(result.positions + result.origin, scan.positions)
    recon.save(tmp_path / "result.h5")
    loaded = pt.load_result(tmp_path / "result.h5")
    np.testing.assert_array_equal(loaded.object, result.object)
    np.testing.assert_array_equal(loaded.probe, result.probe)
    assert loaded.epochs == result.epochs
    assert loaded.metadata["ptynb"] == pt.__version__


def test_snapshots_and_pictures_come_while_it_runs(recon: pt.Reconstruction) -> None:
    recon.start(2000)
    until(lambda: recon.epoch >= 1)
    first, second = recon.snapshot(size=50), recon.pictures(RenderRequest(size=64))
    assert max(first.object.shape) <= 50
    assert first.reduction > 1
    assert second is not None
    assert all(picture.image.startswith(b"\xff\xd8") for picture in second.pictures)
    until(lambda: recon.snapshot().epoch > first.epoch)
    assert recon.state == "running"
    recon.stop()


@pytest.mark.parametrize("recon", ["two engines"], indirect=True)
def test_requests_that_are_under_way_when_it_is_closed_end_with_it(
    recon: pt.Reconstruction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed engines do not know it any more: asked again, they would refuse, for a minute."""
    list(recon.run(1))
    asked: Any = recon._client.engines.call

    def call(rank: int, method: str, *arguments: Any, **how: Any) -> Any:
        if method == "look" and not recon.closed:
            recon._close(result=False)
            raise pt.ClusterError("KeyError", code="engine.call")
        return asked(rank, method, *arguments, **how)

    monkeypatch.setattr(recon._client.engines, "call", call)
    with raises("reconstruction.closed"):
        recon.pictures()
    assert recon.state == "closed"


def test_another_one_takes_the_engines_over_once_the_one_at_work_is_stopped_or_closed(
    cluster: pt.Cluster, scan: Scan
) -> None:
    for leave in (pt.Reconstruction.stop, pt.Reconstruction.close):
        first = pt.Reconstruction(scan, pt.Settings(), cluster, checkpointing=None)
        first.start(5000)
        with raises("engine.busy", "stop() or close() that one first"):
            pt.Reconstruction(scan, pt.Settings(), cluster, checkpointing=None)
        leave(first)
        with pt.Reconstruction(scan, pt.Settings(), cluster, checkpointing=None) as second:
            assert second.step().number == 1
            assert first.closed
            assert len(first.result.epochs) == len(first.epochs)
            with raises("reconstruction.closed"):
                first.start(1)


def test_what_a_cluster_decides_and_cannot_do(cluster: pt.Cluster, scan: Scan) -> None:
    with raises("argument.invalid-type", "settings", "Cluster"):
        pt.Reconstruction(scan, cluster)  # type: ignore[arg-type]
    with pytest.raises(pt.SettingsError, match=r"can't share 100 patterns in batches of 1.*a batch of at least 2"):
        pt.Reconstruction(scan, pt.Settings(batch=1), cluster)
    with pt.Reconstruction(scan, pt.Settings(batch=1, batch_per="engine"), cluster) as recon:
        assert recon.batch == "2 (1 on each of 2 engines)"
    with raises("argument.conflict", "device is 'cpu'", "Cluster(...)"):
        pt.Reconstruction(scan, pt.Settings(), cluster, device="cpu")
    with pt.Reconstruction(scan, pt.Settings(), cluster, checkpointing=None) as recon:  # of pt.Cluster(2, device="cpu")
        assert recon.engines.startswith("2 engines on CPU")


def test_an_exception_on_one_engine_reaches_the_user_with_its_rank_and_the_cluster_stays_usable(
    cluster: pt.Cluster, scan: Scan, tmp_path: Path
) -> None:
    pt.save_scan(scan, tmp_path / "scan.h5")
    with h5py.File(tmp_path / "scan.h5", "r+") as file:
        file["patterns"][80, 3, 4] = np.nan
    broken = pt.load(tmp_path / "scan.h5")
    started = time.monotonic()
    recon = pt.Reconstruction(broken, pt.Settings(), cluster)
    with pytest.raises(
        pt.ReconstructionError, match=r"Rank 1: ScanError: Pattern 80 has the count nan at pixel \(3, 4\)"
    ):
        recon.step()
    assert time.monotonic() - started < 10
    told = str(recon.failure)
    assert len(told.splitlines()) <= 10
    assert "Traceback (most recent call last)" not in told
    whole = file_of(told).read_text()
    assert "Traceback (most recent call last)" in whole
    assert "--- engine-rank1.log" in whole
    with pytest.raises(pt.ReconstructionError, match="Rank 1"):
        recon.start(1)
    with pt.Reconstruction(scan, pt.Settings(), cluster) as again:
        assert again.step().number == 1


def test_a_killed_engine_ends_the_run_and_the_others_still_give_what_they_hold(
    scan: Scan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        cluster_module, "REPLACE_SECONDS", 120.0
    )  # a machine that does other things too starts engines slowly
    monkeypatch.setattr(engine_client_module, "LOOK_SECONDS", 3600.0)  # known without a look
    with pt.Cluster(2, device="cpu") as own:
        for lost in (0, 1):
            own.complete()
            recon = pt.Reconstruction(scan, pt.Settings(), own)
            list(recon.run(3))
            recon.start(2000)
            psutil.Process(own.status()[lost]["pid"]).kill()
            started = time.monotonic()
            with raises("engine.lost", f"rank {lost}"):
                recon.wait(30)
            assert time.monotonic() - started < 5
            result = recon.result
            assert len(result.epochs) >= 3
            assert np.isnan(result.r_factor)
            assert f"rank {lost}" in result.metadata["failure"]
            assert np.abs(result.object - 1).max() > 0.1
            recon.close()


def waits(pid: int) -> int:
    """How often the threads of a process have waited, but those of gloo, which look at their sockets 25 times a second.

    Unlike the time that they take, it does not depend on what else the machine does.
    """
    count = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            if "gloo" not in (thread / "comm").read_text():
                found = re.search(r"^voluntary_ctxt_switches:\s*(\d+)$", (thread / "status").read_text(), re.MULTILINE)
                count += int(found[1]) if found else 0
    return count


@pytest.mark.parametrize("last", [False, True], ids=["of some epochs", "of the end"])
def test_statuses_that_were_lost_on_the_way_are_asked_for(
    cluster: pt.Cluster, scan: Scan, monkeypatch: pytest.MonkeyPatch, last: bool
) -> None:
    """As while the connection is interrupted: later statuses show it, or the silence of an engine at work."""
    monkeypatch.setattr(engine_client_module, "ASKING_SECONDS", 60.0)
    with pt.Reconstruction(scan, pt.Settings(), cluster, checkpointing=None) as recon:
        recon.step()
        heard = recon._client._receive
        recon._client._receive = lambda *_: None
        recon._client.command(StartRun(40))
        until(lambda: recon._client.engines.call(0, "status", 10**9).epoch >= (41 if last else 5))
        assert recon.epoch == 1
        recon._client._receive = heard
        if last:
            monkeypatch.setattr(engine_client_module, "ASKING_SECONDS", 0.5)
        recon.wait(60)
        assert [epoch.number for epoch in recon.epochs] == [*range(1, 42)]


def test_idle_engines_sleep_and_obey_at_once(cluster: pt.Cluster, scan: Scan) -> None:
    pids = [one["pid"] for one in cluster.status()]
    with pt.Reconstruction(scan, pt.Settings(), cluster) as recon:
        recon.step()
        time.sleep(1)
        before, asked = [waits(pid) for pid in pids], list[str]()
        with pytest.MonkeyPatch.context() as patch:
            for name in ("call_all", "call_worker"):
                patch.setattr(type(cluster.caller), name, lambda *arguments: asked.append(str(arguments)))
            time.sleep(5)
        assert asked == []
        often = [(waits(pid) - old) / 5 for pid, old in zip(pids, before, strict=True)]
        assert all(0 < each < 30 for each in often), often
        waited = []
        for _ in range(5):
            began = time.monotonic()
            recon.step()
            waited.append(time.monotonic() - began)
        assert sorted(waited)[2] < IDLE_SECONDS / 2


def test_a_question_that_fails_does_not_end_the_reconstruction(cluster: pt.Cluster, scan: Scan) -> None:
    with pt.Reconstruction(scan, pt.Settings(), cluster) as recon:
        recon.step()
        with raises("argument.invalid-value", "rank 0", "slice 5") as caught:
            recon.pictures(RenderRequest(slice=5))
        assert caught.value.fields == ("slice", "state")
        assert recon.step().number == 2


def test_a_result_taken_while_it_runs_is_all_of_one_moment(recon: pt.Reconstruction) -> None:
    recon.settings = recon.settings.replace(schedule={"kind": "constant"})  # not over the 2000 epochs
    recon.start(2000)
    until(lambda: recon.epoch >= 2)
    result = recon.result
    recon.stop()
    with pt.Reconstruction(recon.scan, recon.settings) as again:
        for _ in again.run(len(result.epochs)):
            pass
        before = again.result.object
        again.step()
        after = again.result.object
    # Between these two states of another run of the same, not beside them.
    assert np.linalg.norm(result.object - before) < 1.01 * np.linalg.norm(after - before)


def test_stopped_from_elsewhere_a_loop_ends_and_a_step_says_so(recon: pt.Reconstruction) -> None:
    recon.settings = recon.settings.replace(object={"learning_rate": 0.001})
    done = []

    def stop_soon() -> None:
        until(lambda: len(done) >= 2)
        recon.stop()

    clicker = threading.Thread(target=stop_soon)
    clicker.start()
    for epoch in recon.run(10_000):
        done += [epoch.number]
    clicker.join()
    assert 2 <= len(done) < 10_000
    assert recon.state == "ready"
    assert recon.step().number == len(done) + 1


def test_a_reconstruction_that_nobody_holds_any_more_frees_its_engines(cluster: pt.Cluster, scan: Scan) -> None:
    forgotten = pt.Reconstruction(scan, pt.Settings(), cluster)
    forgotten.start(5000)
    del forgotten
    gc.collect()
    time.sleep(0.3)
    with pt.Reconstruction(scan, pt.Settings(), cluster) as recon:
        assert recon.step().number == 1
    # one that takes only some of them ends it on all: each waits for rank 0's word
    forgotten = pt.Reconstruction(scan, pt.Settings(), cluster)
    forgotten.start(5000)
    del forgotten
    gc.collect()
    with pt.Reconstruction(scan, pt.Settings(), cluster, ranks=[1]) as recon:
        assert recon.step().number == 1
        assert cluster.call(0, run_registry.open_names) == []
    alone = pt.Reconstruction(scan)
    alone.start(5000)
    assert "ptynb training" in [thread.name for thread in threading.enumerate()]
    del alone
    gc.collect()
    until(lambda: "ptynb training" not in [thread.name for thread in threading.enumerate()], seconds=5)


def test_after_its_cluster_was_stopped_it_says_so_and_keeps_the_last_result(scan: Scan) -> None:
    with pt.Cluster(1, device="cpu") as own:
        recon = pt.Reconstruction(scan, pt.Settings(), own)
        recon.step()
        kept = recon.result
    with raises("cluster.stopped"):
        recon.start(1)
    assert recon.result.object is kept.object
    with raises("cluster.stopped", "start() it first"):
        pt.Reconstruction(scan, pt.Settings(), own)
    with own.start(), pt.Reconstruction(scan, pt.Settings(), own) as again:
        assert again.step().number == 1
        with raises("cluster.stopped"):
            recon.start(1)


class Flicker(pt.ModelComponent):
    """Every second pattern has lost a part of its brightness."""

    name = "flicker"
    rate = 0.01

    def __init__(self) -> None:
        super().__init__()
        self.loss = torch.nn.Parameter(torch.zeros(()))

    def detect(self, intensity: torch.Tensor, batch: Any) -> torch.Tensor:
        return intensity * (1 - self.loss * (batch.patterns % 2))[:, None, None]


class Bounded(pt.CustomConstraint):
    """No gain: an amplitude of 1 at most."""

    after = "update"

    def impose(self, model: Any) -> None:
        values = model.object.values
        model.object.set(torch.polar(values.abs().clamp(max=1.0), values.angle()))


def test_pieces_and_constraints_of_the_users_own_are_the_same_on_a_cluster(cluster: pt.Cluster, scan: Scan) -> None:
    """Their classes reach the engines by value: none of them can import this module's copies."""
    brightness = np.where(np.arange(len(scan)) % 2, 0.4, 1.0)[:, None, None]
    flickering = Scan.from_arrays(scan.counts(0, len(scan)) * brightness, scan.positions, probe=scan.probe)
    results = []
    for where in (None, cluster):
        with pt.Reconstruction(flickering, pt.Settings(), where, extensions=[Flicker(), Bounded()]) as recon:
            recon.start(25)
            recon.wait(60)
            results.append(recon.result)
    for result in results:
        assert float(result.parameters["flicker/loss"]) == pytest.approx(0.6, abs=0.05)
        assert np.abs(result.object).max() <= 1 + 1e-6
    np.testing.assert_allclose(results[0].losses, results[1].losses, rtol=1e-3)


@pytest.mark.parametrize("wrong", [Bounded, 3, "fading"])
def test_what_is_no_extension_is_refused(scan: Scan, wrong: Any) -> None:
    with raises("argument.invalid-type", "ptynb.ModelComponent", "ptynb.CustomConstraint"):
        pt.Reconstruction(scan, extensions=[wrong])


def test_what_the_scan_cannot_do_is_refused_before_anything_starts(cluster: pt.Cluster, scan: Scan) -> None:
    without = dataclasses.replace(scan, geometry=None)
    with pytest.raises(pt.ScanError, match="the scan has no geometry"):
        pt.Reconstruction(without, pt.Settings(slices=pt.Slices(count=2, thickness=1e-6)), cluster)
    near = pt.NearField(wavelength=1e-10, focus_to_sample=1e-3, sample_to_detector=1.0, detector_pixel=(5e-5, 5e-5))
    with pytest.raises(pt.ScanError, match="in the near field a finer grid"):
        pt.Reconstruction(
            dataclasses.replace(scan, geometry=near), pt.Settings(detector=pt.Detector(oversampling=2)), cluster
        )


@pytest.mark.parametrize("recon", ["this process"], indirect=True)
def test_parts_freed_while_it_runs_move_from_then_on(recon: pt.Reconstruction) -> None:
    recon.start(2)
    recon.wait(60)
    given = recon.result.positions
    assert "weights/weights" not in recon.result.parameters
    wanted = recon.settings.replace(positions={"learning_rate": 0.1}, pattern_intensities={"learning_rate": 0.01})
    before, shape = recon.settings, recon.result.object.shape
    with raises("settings.not-live", "margin of 9", "has 4", "reconfigure(settings)"):
        recon.settings = wanted
    assert (recon.settings, recon.changes) == (before, ())
    recon.reconfigure(wanted)
    assert recon.settings == wanted
    recon.start(2)
    recon.wait(60)
    moved = recon.result
    assert moved.object.shape == tuple(side + 2 * 5 for side in shape)
    assert np.abs(moved.positions - given).max() > 0.01
    assert np.ptp(moved.parameters["weights/weights"]) > 0
    assert {change.name for change in recon.changes} == {"positions.learning_rate", "pattern_intensities.learning_rate"}
    recon.settings = recon.settings.replace(positions={"learning_rate": 0})
    recon.start(1)
    recon.wait(60)
    np.testing.assert_array_equal(recon.result.positions, moved.positions)


def test_what_takes_more_memory_than_there_is_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU a thickness that is refined leaves the compiled steps; other changes are not looked at."""
    scan = pt.simulate(patterns=16, window=32, seed=2)
    settings = pt.Settings(batch=4, slices=pt.Slices(count=2, thickness=1e-6))
    with pt.Reconstruction(scan, settings, device="cpu") as recon:
        recon.step()
        monkeypatch.setattr(branching, "room_for", lambda *arguments: Room(1.0))
        with raises("memory.insufficient", "The memory does not suffice"):
            recon.settings = settings.replace(slices={"learning_rate": 0.01})
        assert recon.settings == settings
        recon.settings = settings.replace(slices={"learning_rate": 0}, probe={"learning_rate": 0.02})
        recon.step()
        assert [change.name for change in recon.changes] == ["probe.learning_rate"]


def test_the_effective_batch_is_shown_and_recorded(cluster: pt.Cluster, scan: Scan) -> None:
    for settings, text in (
        (pt.Settings(batch=12), "12"),
        (pt.Settings(batch=12, batch_per="engine"), "24 (12 on each of 2 engines)"),
        (pt.Settings(batch=60, batch_per="engine"), "100 (all patterns)"),
        (pt.Settings(optimiser="lbfgs"), "100 (all patterns)"),
    ):
        with pt.Reconstruction(scan, settings, cluster) as recon:
            assert repr(recon).endswith(f", batch {text}>")
            recon.step()
            assert recon.result.metadata["batch"] == recon.batch == text
            updates = recon.status()[0].updates_per_epoch
            batch = settings.effective_batch(2)
            assert updates == (1 if settings.optimiser == "lbfgs" else -(-100 // min(batch, 100)))


def test_with_a_cluster_the_kernel_does_not_ask_for_cuda(
    cluster: pt.Cluster, scan: Scan, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(asked.append(1)))
    with pt.Reconstruction(scan, pt.Settings(), cluster) as recon:
        recon.step()
    assert not asked


def test_the_one_before_counts_as_room_and_lives_on_where_the_next_is_refused(
    cluster: pt.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = scan_of(64, 32, 4), scan_of(2000, 128, 2)
    with pt.Reconstruction(small, pt.Settings(), cluster) as before:
        before.step()
        monkeypatch.setattr(rooms, "free_on_host", lambda: 0)
        with pytest.raises(pt.SettingsError, match=r"^The memory does not suffice: 2 engines need about"):
            pt.Reconstruction(large, pt.Settings(object={"modes": 8}, probe={"modes": 9}, batch=500), cluster)
        before.step()
        assert before.epoch == 2
        monkeypatch.setattr(rooms, "free_on_host", lambda: 100_000_000)
        with pt.Reconstruction(small, pt.Settings(), cluster) as after:
            assert before.closed
            after.step()


def test_a_wait_reports_progress_and_ends_with_its_error(scan: Scan) -> None:
    reported = list[int]()
    with pt.Reconstruction(scan, pt.Settings(), device="cpu", checkpointing=None) as recon:
        recon.start(400)
        recon.wait(progress=lambda: reported.append(recon.epoch))
        assert len(reported) > 1
        assert reported[-1] == 400
        recon.start(100_000)

        def cancel() -> None:
            raise KeyError("cancelled")

        with pytest.raises(KeyError, match="cancelled"):
            recon.wait(progress=cancel)
        with pytest.raises(TimeoutError):
            recon.wait(0.3, progress=lambda: None)
        assert recon.state == "running"
        recon.stop()
