"""Sessions with a scan that is being measured: commands before the first pattern, endings, recovery, repetition."""

from __future__ import annotations

import dataclasses
import functools
import os
import time
from pathlib import Path

import numpy as np
import pytest

import ptynb as pt
from ptynb.acquisition.emulators.faults import Faults
from ptynb.acquisition.emulators.playback import order
from ptynb.data.scan import Scan
from ptynb.loading import arrival_watch
from ptynb.settings.recipe import Stage
from ptynb.widgets.arrival_facts import arrival_facts
from tests.acquisition.emulated import emulator, expected, planned, recorded
from tests.live_source import Source, equal
from tests.raising import raises
from tests.waiting import until as until_within

until = functools.partial(until_within, seconds=60.0)

SETTINGS = pt.Settings(batch=8)


def arrivals(recon: pt.Reconstruction) -> pt.Arrivals:
    found = recon.status()[0].arrivals
    assert found is not None
    return found


def complete(recon: pt.Reconstruction, epochs: int) -> None:
    recon.start(epochs)
    recon.wait(120)


def test_commands_before_the_first_pattern_are_carried_out(source: Source) -> None:
    with pt.Reconstruction(source.live, SETTINGS, device="cpu", checkpointing=None) as recon:
        recon.start(3)
        recon.stop()
        recon.start(4)
        recon.settings = recon.settings.replace(probe={"learning_rate": 0.004})
        recon.title = "Live"
        recon.pause()
        source.give(range(31))
        time.sleep(0.2)
        assert (recon.state, arrivals(recon).arrived, arrivals(recon).admitted) == ("loading", 31, 0)
        assert recon.pictures() is None
        source.give([40])  # as many as it begins with: a thirtieth of the scan, but at least 32
        until(lambda: recon.state == "paused")
        assert recon.status()[0].rates["probe"] == 0.004
        until(lambda: arrivals(recon).admitted == 32)
        with raises("argument.invalid-value", 99):
            recon.pattern(99)
        assert recon.pattern(40).index == 40
        recon.resume()
        until(lambda: recon.epoch > 6)
        assert recon.target == recon.epoch + 4 or recon.state == "running"
        source.give(range(100))
        source.end()
        recon.wait(60)
        result = recon.result
        assert result.title == "Live"
        assert result.admissions is not None
        assert len(result.epochs) == result.admissions.epochs + 4 == recon.epoch


def test_epochs_that_are_run_one_by_one_count_from_the_end(source: Source) -> None:
    source.give(range(50))
    with pt.Reconstruction(source.live, SETTINGS, device="cpu", checkpointing=None) as recon:
        numbers = []
        for epoch in recon.run(3):
            numbers.append(epoch.number)
            if len(numbers) == 5:
                source.give(range(50, 100))
                source.end()
                until(lambda: arrivals(recon).admitted == 100)
        before = recon.status()[0].live_epochs
        assert before >= 5
        assert numbers == [*range(1, before + 4)]


@pytest.mark.parametrize("index", ["there", "lost"])
def test_an_interrupted_run_is_resumed_from_its_file(source: Source, tmp_path: Path, index: str) -> None:
    """With all that has come since; the index is lost where only the file of the scan was kept."""
    keep = pt.Checkpointing(folder=tmp_path / "kept", epochs=None, seconds=None)
    source.give(range(40))
    with pt.Reconstruction(source.live, SETTINGS, device="cpu", checkpointing=keep) as recon:
        recon.start(5)
        until(lambda: recon.epoch > 3)
        kept = recon.save_checkpoint()
    source.give(range(40, 100))
    source.end()
    if index == "lost":
        (source.folder / "arrivals.index").unlink()
    with pt.resume(kept, device="cpu") as recon:
        recon.start(5)
        recon.wait(60)
        record = recon.result.admissions
        assert record is not None
        assert sorted(record.patterns.tolist()) == [*range(100)]
        assert recon.epoch == record.epochs + 5
        assert recon.branch_result("main").admissions is not None


def test_a_receiver_that_is_silent_ends_the_scan(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrival_watch, "SILENCE_SECONDS", 0.5)
    source.give(range(60))
    source.die()
    with pt.Reconstruction(source.live, SETTINGS, device="cpu", checkpointing=None) as recon:
        recon.start(2)
        with pytest.warns(pt.PtynbWarning, match="with 60 of 100 patterns in use"):
            recon.wait(60)
        ended = arrivals(recon).ended
        assert ended is not None
        assert str(os.getpid()) in ended
        assert "60 of 100" in ended
        assert "no sign of life" in arrival_facts(arrivals(recon))["ended"]


def test_a_scan_without_a_pattern_is_an_error(source: Source) -> None:
    source.end("aborted at the detector")
    recon = pt.Reconstruction(source.live, SETTINGS, device="cpu", checkpointing=None)
    with raises("scan.empty", "aborted at the detector"):
        recon.start(1)
        recon.wait(30)
    recon.close()


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        (pt.Settings(optimiser="dm"), ("optimiser", "dm", "adam")),
        (pt.Settings(optimiser="lbfgs"), ("optimiser", "lbfgs")),
        (pt.Settings(batch_sampling="compact"), ("batch_sampling", "compact", "spread")),
        (pt.Settings(descan=pt.Descan(start="plane", learning_rate=0.01)), ("descan.start", "plane")),
    ],
    ids=["dm", "lbfgs", "compact", "descan"],
)
def test_what_requires_all_patterns_is_refused(source: Source, settings: pt.Settings, facts: tuple[str, ...]) -> None:
    with raises("scan.live", *facts):
        pt.Reconstruction(source.live, settings, device="cpu")


def test_what_is_computed_from_all_patterns_is_refused_until_they_have_come(source: Source, tmp_path: Path) -> None:
    scan, settings = source.live, SETTINGS
    source.give(range(99))
    for name, call in {
        "save_scan": lambda: pt.save_scan(scan, tmp_path / "copy.h5"),
        "preview": lambda: pt.preview(scan, settings),
        "recommend": lambda: pt.recommend(scan),
        "tune": lambda: pt.tune(scan, settings, {"batch": (8, 16)}),
    }.items():
        with raises("scan.live", name, "after its end"):
            call()
    assert not (tmp_path / "copy.h5").exists()
    facts = ("Pattern 99", "99 of 100", source.folder / "scan.h5")
    for read in (pt.analysis.survey, pt.preparation.mean_pattern, pt.analysis.find_bad_pixels):
        with raises("scan.live", *facts):
            read(scan)
    np.testing.assert_array_equal(scan.counts(17, 19), source.scan.counts(17, 19))
    source.give([99])
    np.testing.assert_array_equal(pt.analysis.survey(scan).mean, pt.analysis.survey(source.scan).mean)
    with raises("scan.live", "save_scan"):  # its positions are those of the plan
        pt.save_scan(scan, tmp_path / "copy.h5")


def test_a_fly_scan_needs_planned_positions(measured: Scan, tmp_path: Path) -> None:
    settings = SETTINGS.replace(fly_scan={"steps": 3})
    for planned_ones in (True, False):
        source = Source(measured, tmp_path / str(planned_ones), positions_planned=planned_ones)
        try:
            if planned_ones:
                pt.Reconstruction(source.live, settings, device="cpu", checkpointing=None).close()
            else:
                with raises("scan.live", "fly_scan.steps is 3", "extent"):
                    pt.Reconstruction(source.live, settings, device="cpu")
        finally:
            source.close()


def test_preparation_and_combination_are_refused(source: Source, measured: Scan) -> None:
    with raises("scan.live", "crop"):
        pt.preparation.crop(source.live, (16, 16))
    with raises("scan.live", "combine"):
        pt.preparation.combine([source.live, measured], share="probe")
    recipe = pt.Recipe(settings=SETTINGS, stages=[Stage(epochs=1, pattern_size=(16, 16)), Stage(epochs=1)])
    with raises("scan.live", "pattern_size 16 x 16"):
        pt.Reconstruction(source.live, recipe, device="cpu")


def test_stages_begin_after_the_end(source: Source) -> None:
    stages = [Stage(epochs=2), Stage(epochs=3, settings={"probe": {"modes": 2}})]
    source.give(range(50))
    recipe = pt.Recipe(settings=SETTINGS, stages=stages)
    with pt.Reconstruction(source.live, recipe, device="cpu", checkpointing=None) as recon:
        recon.start()
        until(lambda: recon.epoch > 4)
        assert recon.stage == 1
        source.give(range(50, 100))
        source.end()
        recon.wait(60)
        result = recon.result
        assert result.admissions is not None
        assert len(result.probe) == 2
        [change] = [one for one in result.changes if one.name == "stage"]
        assert change.epoch == result.admissions.epochs + 2
        assert len(result.epochs) == result.admissions.epochs + 5


@pytest.mark.filterwarnings("ignore:The scan ended")  # said again by each run that repeats it
def test_from_the_detector_to_the_report(cluster: pt.Cluster, tmp_path: Path) -> None:
    """An emulated detector and a PandA with faults, the receiver, two engines; and the run repeated: from its file, and
    with a clean scan of the patterns that came.
    """
    path, faults = recorded(tmp_path, 144), Faults(shuffle=50, drop=0.03, duplicate=0.02, late_positions=2, seed=1)
    words = [f"--{name.replace('_', '-')}={value}" for name, value in dataclasses.asdict(faults).items() if value]
    with emulator(path, "--as", "stream2", "--rate", 50, "--send-positions", "panda", *words) as emulated:
        scan = pt.listen(
            emulated.source, plan=planned(path), positions=emulated.positions, folder=tmp_path / "live", timeout=30
        )
        with pt.Reconstruction(scan, SETTINGS, cluster, checkpointing=None) as recon:
            with pytest.warns(pt.PtynbWarning, match="of 144 patterns in use"):
                complete(recon, 4)
            found, result = arrivals(recon), recon.result
            saved = recon.save(tmp_path / "live.result.h5")
    numbers, sent = expected(path, faults), order(144, faults)
    record = result.admissions
    assert record is not None
    assert 0 < len(numbers) < 144
    assert len(numbers) < len(sent)
    assert sorted(record.patterns.tolist()) == numbers
    assert found.arrived == found.placed == found.admitted == len(numbers) == 144 - found.missing
    assert (found.duplicates, found.late, found.refused) == (len(sent) - len(numbers), 0, 0)
    assert found.ended == f"ended early: {len(numbers)} of 144 (the source ended the series)"
    assert found.lag > 1.5
    clean = pt.preparation.select(pt.load(path), numbers)
    in_order = np.argsort(record.patterns)
    np.testing.assert_allclose(record.positions[in_order], clean.positions, rtol=0, atol=1e-6)
    clean = dataclasses.replace(clean, positions=record.positions[in_order])
    with pt.Reconstruction(clean, SETTINGS, cluster, checkpointing=None, admissions=record) as recon:
        complete(recon, 4)  # without the notice of the first run
        assert equal(recon.result, result)
    with raises("argument.conflict", 50, len(numbers)):
        pt.Reconstruction(pt.preparation.select(clean, slice(50)), SETTINGS, device="cpu", admissions=record)
    again = pt.reproduce(saved, cluster=cluster)
    assert again.equal, again.notes
    assert "Patterns that came during the run" in pt.report(saved, tmp_path / "live.html").read_text()
