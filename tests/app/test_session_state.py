"""The session of a workbench without views: each command does what its line of Python does."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptynb as pt
from ptynb.app import cluster_choice
from ptynb.app.cluster_choice import EXISTING, LAUNCHER, SLURM, Existing, existing_clusters, section_of
from ptynb.app.session_state import Session
from ptynb.cluster.launchers import scheduler_commands
from ptynb.data.scan import Scan
from ptynb.polling import wait_until
from ptynb.settings.cluster_options import LocalCluster, NoCluster
from ptynb.settings.schema import as_python
from tests.raising import raises

ONE_ENGINE = LocalCluster(engines=1, device="cpu", threads=1)


@pytest.fixture(scope="module")
def scan() -> Scan:
    return pt.simulate(patterns=36, window=32, seed=2)


@pytest.fixture
def session(scan: Scan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    monkeypatch.chdir(tmp_path)
    made = Session(scan, pt.Settings(batch=12, probe=pt.Probe(modes=2)))
    yield made
    if made.recon is not None:
        made.recon.close()
    if made.cluster is not None:
        made.cluster.stop()


def run(session: Session, epochs: int, **given: Any) -> pt.Reconstruction:
    recon = session.start_run(epochs, **given)
    recon.wait()
    return recon


def carried_out(session: Session, **names: Any) -> dict[str, Any]:
    """The names that the lines of Python make."""
    exec("\n".join(session.lines), names)
    return names


def test_the_lines_do_what_the_commands_did(session: Session, scan: Scan, tmp_path: Path) -> None:
    run(session, 3)
    written = [session.save(), session.report("simulated.result.h5"), session.film(thumbnails=True, rate=2.0)]
    assert [path.name for path in written] == ["simulated.result.h5", "simulated.html", "simulated.gif"]
    assert session.add_to_comparison() == "epoch 3"
    assert session.lines.count("recon.wait()") == 1, "nothing has run since"
    losses = pt.load_result(written[0]).losses
    for path in written:
        path.unlink()
    names = carried_out(session, scan=scan)
    names["recon"].close()
    assert all(path.exists() for path in written)
    np.testing.assert_allclose(pt.load_result(written[0]).losses, losses, rtol=1e-5)
    assert [*names["kept"]] == ["epoch 3"]
    assert session.recon is not None
    session.recon.start(1)
    session.recon.wait()
    session.save("other.h5")
    assert session.lines[-2:] == ["recon.wait()", "recon.save('other.h5')"]


def test_stages_take_the_place_of_epochs(session: Session, scan: Scan) -> None:
    recon = run(session, 50, stages=[pt.Stage(epochs=2, pattern_size=16), pt.Stage(epochs=1, settings={"batch": 9})])
    assert (recon.epoch, recon.stage, recon.settings.batch) == (3, 2, 9)
    again = carried_out(session, scan=scan)["recon"]
    again.wait()
    assert again.stages == recon.stages
    np.testing.assert_allclose(again.result.losses, recon.result.losses, rtol=1e-5)
    again.close()


def test_a_run_has_the_checkpoints_that_it_was_given(session: Session, tmp_path: Path) -> None:
    own = pt.Checkpointing(folder=Path("night"), epochs=2, seconds=None, max_to_keep=5)
    for checkpointing, told in (
        (own, ", checkpointing=pt.Checkpointing(folder='night', epochs=2, seconds=None, max_to_keep=5)"),
        (None, ", checkpointing=None"),
        (pt.Checkpointing(), ""),
    ):
        recon = run(session, 4, checkpointing=checkpointing)
        assert f"recon = pt.Reconstruction(scan, settings{told})" in session.lines
        if checkpointing is own:
            assert wait_until(lambda: [*(tmp_path / "night").glob("state-*.h5")], 10)  # written beside the run
    (tmp_path / "file").touch()
    for folder, told in (("night", "already contains checkpoints"), ("file", "is a file")):
        with raises("checkpoint.exists", told):
            session.start_run(checkpointing=pt.Checkpointing(folder=Path(folder)))
    assert recon.state == "ready"  # refused before it was closed


def test_a_run_under_way_is_not_ended_by_another_one_but_one_at_rest_is(session: Session) -> None:
    first = session.start_run(100_000)
    assert wait_until(lambda: first.epoch > 0, 30)
    with raises("workbench.run-active", "A run uses the engines", "press Stop before"):
        session.start_run(1)
    assert (session.recon, first.state) == (first, "running")
    first.stop()
    first.wait()
    session.settings = pt.Settings(batch=9)
    assert run(session, 1).settings.batch == 9
    assert first.closed


def test_what_lacks_a_scan_or_a_run_says_so(session: Session, scan: Scan) -> None:
    with raises("workbench.no-scan", "load one in the tab Scan first"):
        Session().start_run()
    for act in (session.save, session.report, session.film, session.add_to_comparison):
        with raises("workbench.no-reconstruction", "press New run first"):
            act()
    with raises("workbench.no-cluster", "has not started engines"):
        session.stop_engines()
    assert session.lines == Session(scan, session.settings).lines


def test_a_scan_is_loaded_and_changes_are_announced(session: Session) -> None:
    seen: list[str] = []
    session.on_change(seen.append)
    pt.save_scan(pt.simulate(patterns=25, window=32, seed=7), "some.h5")
    session.load("some.h5")
    assert session.scan is not None
    assert len(session.scan) == 25
    assert session.lines[-1] == "scan = pt.load('some.h5')"
    session.settings = pt.Settings(batch=5)
    session.settings = pt.Settings(batch=5)
    run(session, 1)
    session.add_to_comparison()
    assert [one for one in seen if one != "lines"] == ["scan", "settings", "recon", "results"]


def test_engines_are_kept_while_the_choice_is_the_same_and_ended_when_it_changes(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    run(session, 1, cluster=ONE_ENGINE, report=told.append)
    first = session.cluster
    assert first is not None
    run(session, 1, cluster=ONE_ENGINE, report=told.append)
    assert session.cluster is first
    assert told == ["starting 1 engine …", "starting the run …", "starting the run …"]
    assert "recon = pt.Reconstruction(scan, settings, cluster)" in session.lines
    with monkeypatch.context() as patched:
        patched.setattr(scheduler_commands, "require", lambda title, name: name)
        with pytest.raises(pt.ClusterError) as caught:
            session.use_cluster(section_of(SLURM, {"nodes": "1"}))
        assert caught.value.fields[0] == "gpus_per_node"
    with monkeypatch.context() as patched:
        patched.setenv("PATH", "/nowhere")
        with raises("scheduler.not-installed") as missing:
            session.use_cluster(section_of(SLURM, {"nodes": "1", "device": "cpu"}))
        assert missing.value.fields == (LAUNCHER,)
    assert session.cluster is first
    assert first.running, "nothing is ended for what can not be started"
    session.use_cluster(NoCluster())
    assert session.cluster is None
    assert not first.running
    assert session.lines[-1] == "cluster.stop()"
    assert "cluster = pt.Cluster(1, device='cpu', threads=1)" in session.lines


def test_an_existing_cluster_is_joined_and_left_running(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    with pt.Cluster(1, device="cpu", threads=1) as mine:
        name = mine.name
        assert existing_clusters()[name] == f"{name}: local, 1 engine"
        with monkeypatch.context() as patched:
            patched.setattr(cluster_choice.os, "getpid", os.getppid)
            assert name not in existing_clusters(), "another process holds it"
        session.use_cluster(Existing(name))
        assert session.cluster is mine
        assert session.lines[-1] == f"cluster = pt.Cluster.joined({name!r})"
        assert pt.Cluster.joined(name) is mine
        with raises("workbench.no-cluster"):
            session.stop_engines()
        session.use_cluster(NoCluster())
        assert mine.running
    assert name not in existing_clusters()
    with raises("cluster.not-reachable", name) as caught:
        session.use_cluster(Existing(name))
    assert caught.value.fields == (EXISTING,)


def test_a_given_cluster_is_used_and_not_replaced(scan: Scan) -> None:
    with pt.Cluster(1, device="cpu") as cluster:
        session = Session(scan, None, cluster)
        cluster.stop()
        with raises("workbench.cluster-stopped", "call its start() again"):
            session.start_run(1)
        cluster.start()
        assert run(session, 1).cluster is cluster
        assert session.recon is not None
        session.recon.close()


def test_remedies_are_more_epochs_settings_of_the_run_and_settings_and_scan_of_the_next(session: Session) -> None:
    session.settings = before = pt.Settings(optimiser="rpie")
    recon = run(session, 8)
    first = pt.diagnose(recon)["not converged"]
    assert "goes on for 10 epochs" in session.take_remedy(first)
    recon.wait()
    assert (recon.epoch, session.lines[-1]) == (18, "recon.start(found['not converged'].epochs)")
    live = dataclasses.replace(first, epochs=0, changes={"probe.learning_rate": 0.5})
    assert "The run has the remedy" in session.take_remedy(live)
    assert recon.settings.probe.learning_rate == 0.5
    assert session.lines[-1] == "recon.reconfigure(recon.settings.with_values(found['not converged'].changes))"
    told = len(session.lines)
    last = dataclasses.replace(live, changes={"batch": 7}, prepare=({"flip": "y"},), restart=True)
    assert "press New run" in session.take_remedy(last)
    assert (session.settings, recon.settings.batch) == (before.with_values({"batch": 7}), 16)
    names: dict[str, Any] = {"pt": pt, "recon": recon, "settings": before, "found": {last.name: last}}
    exec("\n".join(session.lines[told:]), names)
    assert names["settings"] == session.settings
    assert session.scan is not None
    np.testing.assert_array_equal(names["scan"].positions, session.scan.positions)
    assert not np.array_equal(session.scan.counts(0, 1), recon.scan.counts(0, 1))


def test_settings_with_terms_as_python_make_the_same_settings() -> None:
    terms = (pt.constraints.OrthogonalModes(), pt.constraints.RemovePhaseRamp())
    settings = pt.Settings(regularizers=(pt.regularizers.TotalVariation(weight=0.1),), constraints=terms)
    assert eval(as_python(settings), {"pt": pt}) == settings
