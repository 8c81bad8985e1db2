"""Going back, branches and restructuring of a reconstruction, in this process and on two engines."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import ptynb as pt
from ptynb.data.scan import Scan
from ptynb.io import checkpoint_file as files
from ptynb.physics.model import Model
from tests.raising import raises
from tests.waiting import until as until_within

until = functools.partial(until_within, seconds=60.0)

SETTINGS = pt.Settings(batch=8, positions=pt.Positions(learning_rate=0.05))
EPOCHS = 6


@pytest.fixture(scope="module")
def scan() -> Scan:
    return pt.simulate(patterns=36, window=32, seed=5)


def keep(folder: Path, last: int = 3) -> pt.Checkpointing:
    return pt.Checkpointing(folder=folder, epochs=None, seconds=None, max_to_keep=last)


@pytest.fixture
def recon(scan: Scan, tmp_path: Path) -> Iterator[pt.Reconstruction]:
    """After four epochs, with states of the second and the fourth."""
    with pt.Reconstruction(scan, SETTINGS, device="cpu", checkpointing=keep(tmp_path)) as made:
        for _ in range(2):
            [*made.run(2)]
            made.save_checkpoint()
        yield made


def epochs_of(recon: pt.Reconstruction, branch: str) -> list[int]:
    return [one.epoch for one in recon.checkpoints if one.branch == branch]


@pytest.mark.parametrize("fails", [False, True])
def test_a_checkpoint_that_is_written_now_is_no_earlier_one(
    scan: Scan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """That of the first epoch is still on its way to the disk, by a slow disk, when the second ends."""
    put = files.put

    def slowly(path: Path, data: memoryview) -> None:
        if path.name.startswith("state-00001"):
            time.sleep(1)
            if fails:
                raise OSError("no room")
        put(path, data)

    monkeypatch.setattr(files, "put", slowly)
    often = pt.Checkpointing(folder=tmp_path, epochs=1, seconds=None)
    with pt.Reconstruction(scan, SETTINGS, device="cpu", checkpointing=often) as recon:
        recon.warns = False
        recon.start(2)
        recon.wait()
        assert files.load_state(recon.save_checkpoint()).epoch == 2


def test_going_back_and_training_again_is_never_having_left(recon: pt.Reconstruction) -> None:
    [*recon.run(EPOCHS - 4)]
    losses, result = [one.loss for one in recon.epochs], recon.result
    recon.settings = recon.settings.replace(probe={"learning_rate": 0.2})
    [*recon.run(1)]
    recon.restore(4)
    assert (recon.state, recon.epoch, recon.settings) == ("ready", 4, SETTINGS)
    assert [(one.epoch, one.name, one.old, one.new) for one in recon.changes] == [
        (4, "went back", "epoch 7", "epoch 4")
    ]
    assert [one.loss for one in recon.epochs] == losses[:4]
    [*recon.run(EPOCHS - 4)]
    assert [one.loss for one in recon.epochs] == losses
    np.testing.assert_array_equal(recon.result.object, result.object)
    np.testing.assert_array_equal(recon.result.positions, result.positions)
    # and what came after the state is still there
    assert epochs_of(recon, "main-7") == [7]
    recon.switch_branch("main-7")
    assert (recon.epoch, recon.branch_name, recon.settings.probe.learning_rate) == (7, "main-7", 0.2)


def test_a_state_of_two_engines_is_gone_back_to_bit_for_bit(scan: Scan, cluster: pt.Cluster, tmp_path: Path) -> None:
    with (
        pt.Reconstruction(scan, SETTINGS, cluster, checkpointing=keep(tmp_path)) as recon,
        pt.Reconstruction(scan, SETTINGS, device="cpu", checkpointing=keep(tmp_path / "one")) as one,
    ):
        recon.start(EPOCHS)
        recon.pause()
        recon.branch("here")  # in the middle of an epoch, mostly, and the run goes on
        recon.resume()
        recon.wait()
        there, result = [epoch.loss for epoch in recon.epochs], recon.result
        recon.restore(next(state for state in recon.checkpoints if state.branch == "here"))
        assert recon.epoch < EPOCHS
        recon.start(EPOCHS - recon.epoch)
        recon.wait()
        assert [epoch.loss for epoch in recon.epochs] == there
        np.testing.assert_array_equal(recon.result.object, result.object)
        # restructured, two engines still give one engine's answer
        [*one.run(EPOCHS)]
        for each in (recon, one):
            each.reconfigure(SETTINGS.replace(probe={"modes": 2}, batch=12))
            [*each.run(3)]
        np.testing.assert_allclose(recon.result.losses, one.result.losses, rtol=1e-3)
        assert recon.result.probe.shape[0] == one.result.probe.shape[0] == 2
        assert [change.name for change in recon.changes][-2:] == ["probe.modes", "batch"]


def test_a_branch_goes_on_where_it_is_and_the_other_keeps_its_states(recon: pt.Reconstruction, tmp_path: Path) -> None:
    recon.start(200)
    until(lambda: recon.epoch > 5)
    assert recon.branch("trial") == "trial"
    assert (recon.state, recon.target, recon.branch_name) == ("running", 204, "trial")
    epoch = recon.epoch
    until(lambda: recon.epoch > epoch)
    recon.stop()
    recon.save_checkpoint()
    assert epochs_of(recon, "main")[:2] == [2, 4]
    assert (tmp_path / "branches" / "trial").is_dir()
    assert recon.branch(checkpoint=2) == "branch"
    assert (recon.epoch, recon.state) == (2, "ready")
    main, branch, trial = recon.branches
    assert (branch.origin, branch.epoch, branch.present) == ("main", 2, True)
    assert (main.present, trial.present) == (False, False)
    with pytest.raises(ValueError, match="There is a branch 'trial' already"):
        recon.branch("trial")
    with pytest.raises(ValueError, match="is not a valid name"):
        recon.branch("../trial")
    with raises("branch.not-found", "'nothing'", "main, branch, trial"):
        recon.switch_branch("nothing")
    with raises("checkpoint.present", "'branch'"):
        recon.switch_branch("branch")
    recon.remove_branch("trial")
    assert [one.name for one in recon.branches] == ["main", "branch"]
    for name in ("main", "branch"):
        with raises("branch.not-removable"):
            recon.remove_branch(name)


def test_the_result_of_a_branch_is_that_of_its_newest_state(recon: pt.Reconstruction) -> None:
    result = recon.result
    recon.branch("trial", 2)
    found = recon.branch_result("main")
    np.testing.assert_array_equal(found.object, result.object)
    np.testing.assert_allclose(found.probe, result.probe, rtol=1e-6)
    np.testing.assert_allclose(found.positions, result.positions, rtol=0, atol=1e-9)
    assert (found.origin, found.epochs, found.settings) == (result.origin, result.epochs, result.settings)
    assert np.isnan(found.r_factor)


def test_what_one_goes_back_to_is_not_thinned_out(recon: pt.Reconstruction) -> None:
    recon.restore(2)
    for _ in range(5):
        [*recon.run(1)]
        recon.save_checkpoint()
    until(lambda: epochs_of(recon, "main") == [2, 5, 6, 7])  # what is not needed any more is removed a little later
    assert epochs_of(recon, "main-4") == [4]
    with raises("checkpoint.not-found", "epoch 3", "2, 5, 6, 7"):
        recon.restore(3)
    with raises("checkpoint.present"):
        recon.restore(7)
    with raises("checkpoint.not-found"):
        recon.restore("/nowhere/state-00002.h5")
    assert recon.step().number == 8


def test_what_stays_is_not_written_over_by_the_same_moment_with_other_settings(
    scan: Scan, recon: pt.Reconstruction, tmp_path: Path
) -> None:
    recon.step()
    recon.restore(4)
    with raises("checkpoint.present"):
        recon.restore(4)
    kept = next(one for one in recon.checkpoints if (one.branch, one.epoch) == ("main", 4))
    assert kept.stays
    before = kept.path.read_bytes()
    recon.settings = SETTINGS.replace(probe={"learning_rate": 0.2})
    other = recon.save_checkpoint()
    assert (other.name, kept.path.read_bytes() == before) == ("state-00004.2.h5", True)
    assert recon.save_checkpoint() == other
    recon.restore(kept)
    assert (recon.settings, recon.epoch) == (SETTINGS, 4)
    recon.switch_branch("main-4")
    assert (recon.settings.probe.learning_rate, recon.epoch) == (0.2, 4)
    recon.switch_branch("main")
    recon.reconfigure(SETTINGS.replace(probe={"modes": 2}))
    [*recon.run(1)]
    recon.restore(kept)
    assert recon.settings == SETTINGS
    recon.close()
    # nor by a run that comes by again, from an earlier state
    with pt.resume(tmp_path / "state-00002.h5", scan, device="cpu") as again:
        [*again.run(2)]
        assert again.save_checkpoint().name != kept.path.name
    assert kept.path in [one.path for one in recon.checkpoints]


def test_a_restart_goes_on_with_the_branch_worked_on_last(scan: Scan, recon: pt.Reconstruction, tmp_path: Path) -> None:
    recon.branch("trial", 2)
    [*recon.run(1)]
    recon.close()
    with pt.resume(tmp_path, scan, device="cpu") as again:
        assert (again.epoch, again.branch_name) == (2, "trial")
        [*again.run(2)]
        assert again.save_checkpoint().parent == tmp_path / "branches" / "trial"
        assert {one.name for one in again.branches} == {"main", "trial"}
        again.restore(2)
    shown = pt.Checkpointing(folder=tmp_path, seconds=None, pictures=0.01)
    with pt.resume(tmp_path, scan, device="cpu", checkpointing=shown) as again:
        assert (again.epoch, again.branch_name) == (2, "trial")  # not at what it went back from
        until((tmp_path / "status.json").exists)  # for who watches: in one place, whatever the branch
        again.switch_branch("main")
        assert again.epoch == 4
    with pt.resume(tmp_path / "branches" / "trial", scan, device="cpu") as again:
        assert (again.epoch, again.branch_name) == (2, "trial")


def test_every_live_setting_is_taken_over_and_recorded(recon: pt.Reconstruction) -> None:
    recon.start(500)
    changes = {
        "schedule": {"kind": "linear", "epochs": 50},
        "regularizers": ({"kind": "total_variation", "weight": 1e-3},),
        "constraints": ({"kind": "orthogonal_modes"},),
        "positions": {"learning_rate": 0.0},
        "background": {"learning_rate": 0.01},
        "pattern_intensities": {"learning_rate": 0.01},
        "probe": {"learning_rate": 0.0},
    }
    for name, value in changes.items():
        recon.settings = recon.settings.replace(**{name: value})
    until(lambda: recon.last_status().rates.keys() == {"object", "background", "weights"})  # type: ignore[union-attr]
    recon.settings = recon.settings.replace(probe={"learning_rate": 0.01}, regularizers=(), constraints=())
    epoch = recon.epoch
    until(lambda: recon.epoch > epoch + 1)
    assert recon.state == "running"
    recorded = {change.name for change in recon.changes}
    assert recorded == {
        "schedule.kind",
        "schedule.epochs",
        "regularizers",
        "constraints",
        "positions.learning_rate",
        "background.learning_rate",
        "pattern_intensities.learning_rate",
        "probe.learning_rate",
    }
    recon.stop()


def test_restructuring_goes_on_where_it_was(recon: pt.Reconstruction) -> None:
    recon.start(300)
    until(lambda: recon.epoch > 5)
    before = recon.epochs[-1].loss
    with raises("settings.not-live", "batch", "reconfigure(settings)"):
        recon.settings = SETTINGS.replace(batch=12)
    wanted = SETTINGS.replace(probe={"modes": 3}, batch=12, opr={"modes": 1}, object={"learning_rate": 0.02})
    assert recon.reconfigure_error(wanted) is None
    recon.reconfigure(wanted)
    assert (recon.state, recon.target, recon.settings) == ("running", 304, wanted)
    epoch = recon.epoch
    until(lambda: recon.epoch > epoch + 1)
    assert recon.epochs[epoch].loss < 2 * before < recon.epochs[0].loss
    recon.stop()
    assert {one.name for one in recon.changes} == {"probe.modes", "batch", "opr.modes", "object.learning_rate"}
    assert recon.snapshot().probe.shape[0] == 3
    (aside,) = [one for one in recon.branches if one.origin == "main"]
    recon.switch_branch(aside.name)
    assert recon.settings == SETTINGS
    assert recon.snapshot().probe.shape[0] == 1
    recon.reconfigure(SETTINGS.replace(probe={"learning_rate": 0.02}))  # live: nothing is opened again
    assert len(recon.branches) == 2


def test_what_cannot_be_done_leaves_it_running(scan: Scan, recon: pt.Reconstruction, tmp_path: Path) -> None:
    recon.start(500)
    for wanted, sentence in (
        (SETTINGS.replace(precision="double"), "precision cannot change"),
        (SETTINGS.replace(slices={"count": 2, "thickness": 1e-6}, optimiser="adam"), None),
        (SETTINGS.replace(batch=8, detector={"oversampling": 2}), "another window"),
    ):
        found = recon.reconfigure_error(wanted)
        assert (sentence is None) == (found is None), found
        if sentence is not None:
            with raises("settings.not-reconfigurable", sentence):
                recon.reconfigure(wanted)
    damaged = next(state for state in recon.checkpoints if state.epoch == 2)
    damaged.path.write_bytes(damaged.path.read_bytes()[:-1000])
    with pytest.raises(ValueError, match=r"damaged|not a readable"):
        recon.restore(damaged)
    assert recon.state == "running"
    assert recon.branch_name == "main"
    recon.stop()
    with pt.Reconstruction(scan, SETTINGS, device="cpu", checkpointing=None) as other:
        other.step()
        assert "checkpointing=None" in str(other.reconfigure_error(SETTINGS.replace(batch=4)))
        with raises("checkpoint.disabled", "checkpointing=Checkpointing()"):
            other.restore(1)
        assert (other.checkpoints, other.branches) == ((), ())
    with pt.Reconstruction(scan, SETTINGS, device="cpu", checkpointing=pt.Checkpointing()) as other:
        other.step()
        other.save_checkpoint()
        other.step()
        other.restore(1)
        assert other.epoch == 1


def test_a_refused_move_ends_no_loop(recon: pt.Reconstruction) -> None:
    numbers = []
    for epoch in recon.run(3):
        numbers.append(epoch.number)
        with raises("checkpoint.not-found", "epoch 99"):
            recon.restore(99)
    assert numbers == [5, 6, 7]
    for _ in recon.run(3):
        recon.restore(np.int64(4))
    assert recon.epoch == 4
    with raises("argument.invalid-type", "start got 2.5"):
        recon.start(2.5)  # type: ignore[arg-type]
    recon.start(np.int64(300))  # type: ignore[arg-type]
    recon.target = np.int64(5)  # type: ignore[assignment]
    assert type(recon.target) is int
    recon.wait()
    assert recon.epoch == 5


class Spoils(pt.CustomConstraint):
    """Makes the object not finite, once that is wanted."""

    after = "epoch"
    wanted = False

    def impose(self, model: Model) -> None:
        if Spoils.wanted:
            model.object.values.fill_(float("nan"))


def spoil(recon: pt.Reconstruction, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Spoils, "wanted", True)
        recon.start(50)
        with raises("reconstruction.not-finite"):
            recon.wait()


def test_from_a_failure_one_goes_back_and_works_on(scan: Scan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recon = pt.Reconstruction(scan, SETTINGS, device="cpu", checkpointing=keep(tmp_path), extensions=[Spoils()])
    for _ in range(2):
        [*recon.run(2)]
        recon.save_checkpoint()
    losses, result = [one.loss for one in recon.epochs], recon.result
    spoil(recon, monkeypatch)
    assert (recon.state, recon.can_recover) == ("failed", False)
    with raises("reconstruction.not-finite"):
        recon.branch("here")
    with raises("reconstruction.not-finite"):
        recon.reconfigure(SETTINGS.replace(probe={"modes": 2}))
    with monkeypatch.context() as patch:
        patch.setattr(
            "ptynb.io.checkpoint_branches.use", lambda _: (_ for _ in ()).throw(OSError("no room on the disk"))
        )
        with pytest.raises(OSError, match="no room on the disk"):
            recon.restore(4)
    assert recon.state == "failed"
    recon.restore(4)
    assert (recon.state, recon.epoch, recon.settings, recon.failure) == ("ready", 4, SETTINGS, None)
    assert [(one.name, one.old, one.new) for one in recon.changes] == [
        ("went back", "epoch 5, where it failed", "epoch 4")
    ]
    assert [one.loss for one in recon.epochs] == losses
    np.testing.assert_array_equal(recon.result.object, result.object)
    recon.start(2)
    recon.wait()
    assert epochs_of(recon, "main") == [2, 4]
    # and so does a branch
    spoil(recon, monkeypatch)
    recon.branch("trial", 2)
    [*recon.run(1)]
    until(lambda: recon.epochs[-1].number == 3)
    assert (recon.branch_name, recon.save_checkpoint().parent.name) == ("trial", "trial")
    recon.close()


def test_what_only_the_state_tells_is_refused_too(scan: Scan, tmp_path: Path) -> None:
    settings = SETTINGS.replace(pattern_intensities={"learning_rate": 0.01})
    with pt.Reconstruction(scan, settings, device="cpu", checkpointing=keep(tmp_path)) as recon:
        recon.step()
        assert "weights has been active" in str(recon.reconfigure_error(pt.Settings(batch=8, optimiser="dm")))
        recon.settings = SETTINGS.replace(
            pattern_intensities={"learning_rate": 0.0}
        )  # they did, though they do no more
        with pytest.raises(pt.ReconstructionError, match="weights has been active"):
            recon.reconfigure(pt.Settings(batch=8, optimiser="dm"))
        recon.settings = settings
        assert (recon.settings, recon.step().number) == (settings, 2)
        # and the state before is kept, even where nothing but a batch is another
        recon.reconfigure(settings.replace(batch=6))
        (aside,) = [one for one in recon.branches if one.origin == "main"]
        recon.switch_branch(aside.name)
        assert recon.settings == settings


def test_a_relative_path_leads_to_a_state(
    scan: Scan, recon: pt.Reconstruction, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = recon.checkpoints[0].path
    recon.close()
    monkeypatch.chdir(path.parent)
    with pt.resume(path.name, scan, device="cpu") as again:
        monkeypatch.chdir("/")
        assert again.step().number == 3
        assert again.latest_checkpoint == path


def test_a_structure_that_engines_refuse_is_undone(recon: pt.Reconstruction, monkeypatch: pytest.MonkeyPatch) -> None:
    from ptynb.engine.loop import Loop

    plain = Loop.restore

    def refuse(self: Loop, state: object, settings: pt.Settings | None = None) -> None:
        if self.settings.probe.modes == 4:
            raise MemoryError("no room, says the test")
        plain(self, state, settings)  # type: ignore[arg-type]

    monkeypatch.setattr(Loop, "restore", refuse)
    recon.restore(2)  # to a state that stays, beside which the refused one is written
    changes, branches, files_before = recon.changes, recon.branches, {one.path for one in recon.checkpoints}
    with raises("reconstruction.not-reopened", "continues as before", "no room, says the test"):
        recon.reconfigure(SETTINGS.replace(probe={"modes": 4}))
    assert {one.path for one in recon.checkpoints} == files_before
    recon.start(500)
    names = [one.path for one in recon.checkpoints]
    with raises("reconstruction.not-reopened", "continues as before", "no room, says the test"):
        recon.reconfigure(SETTINGS.replace(probe={"modes": 4}))
    assert (recon.state, recon.settings, recon.changes) == ("running", SETTINGS, changes)
    assert [one.path for one in recon.checkpoints][: len(names)] == names
    assert [one.name for one in recon.branches] == [one.name for one in branches]
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError("no links")))
        patch.setattr("shutil.copy2", lambda *_: (_ for _ in ()).throw(OSError("no room on the disk")))
        with raises("reconstruction.not-reopened", "continues as before", "no room on the disk"):
            recon.reconfigure(SETTINGS.replace(probe={"modes": 2}))
    assert recon.state == "running"
    recon.reconfigure(SETTINGS.replace(probe={"modes": 2}))
    recon.stop()
