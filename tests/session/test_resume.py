"""Going on from a kept state, on as many engines and on others; and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import ptynb as pt
from ptynb.data.scan import Scan
from tests.raising import raises

SETTINGS = pt.Settings(batch=20, probe=pt.Probe(modes=2), positions=pt.Positions(learning_rate=0.05, start_epoch=2))
EPOCHS = 6


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, scan: Scan) -> Scan:
    return pt.save_scan(scan, tmp_path_factory.mktemp("scan") / "scan.h5")


@pytest.fixture(scope="module")
def whole(stored: Scan, cluster: pt.Cluster) -> pt.Result:
    """What a run that was never interrupted comes to, on two engines."""
    with pt.Reconstruction(stored, SETTINGS, cluster, checkpointing=None) as recon:
        [*recon.run(EPOCHS)]
        return recon.result


def kept(stored: Scan, cluster: pt.Cluster | None, folder: Path, every: int = 2) -> None:
    """A run that is left after four epochs, its states in a folder."""
    with pt.Reconstruction(
        stored,
        SETTINGS,
        cluster,
        checkpointing=pt.Checkpointing(folder=folder, epochs=every, seconds=None),
        device="auto",
    ) as recon:
        for epoch in recon.run(EPOCHS):
            if epoch.number % every == 0:
                while recon.latest_checkpoint is None or f"{epoch.number:05d}" not in recon.latest_checkpoint.name:
                    recon.status()
            if epoch.number == 4:
                break


@pytest.fixture(scope="module")
def left_alone(stored: Scan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run in this process; tests take a copy."""
    folder = tmp_path_factory.mktemp("left")
    kept(stored, None, folder)
    return folder


@pytest.fixture
def left(left_alone: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(left_alone, tmp_path / "left"))


@pytest.mark.parametrize("engines", ["two engines", "this process"])
def test_a_resumed_run_ends_as_one_that_was_never_interrupted(
    stored: Scan, cluster: pt.Cluster, whole: pt.Result, tmp_path: Path, left: Path, engines: str
) -> None:
    """States of one engine go on with two, and those of two to the bit."""
    chosen, folder = None, left
    if engines == "two engines":
        chosen, folder = cluster, tmp_path / "two"
        kept(stored, cluster, folder)
    with pt.resume(folder, cluster=chosen) as recon:
        assert recon.epoch == 4
        assert recon.settings == SETTINGS
        [*recon.run(2)]
        result = recon.result
    losses = [epoch.loss for epoch in result.epochs]
    if chosen is not None:
        assert losses == whole.losses.tolist()
        np.testing.assert_array_equal(result.object, whole.object)
        np.testing.assert_array_equal(result.probe, whole.probe)
        np.testing.assert_array_equal(result.positions, whole.positions)
    else:
        np.testing.assert_allclose(losses, whole.losses, rtol=1e-3)


def test_title_and_comments_are_kept_with_the_states(stored: Scan, tmp_path: Path) -> None:
    """Said while it runs, they go with its states; said afterwards, a state is kept for them."""
    keep = pt.Checkpointing(folder=tmp_path, epochs=1, seconds=None)
    with pt.Reconstruction(stored, SETTINGS, checkpointing=keep, device="cpu") as recon:
        recon.title = "Star, run 17"
        [*recon.run(1)]
        while recon.latest_checkpoint is None:
            recon.status()
        recon.comments = "Realigned *before* this run."
    with pt.resume(tmp_path, device="cpu") as again:
        assert (again.title, again.comments) == ("Star, run 17", "Realigned *before* this run.")
        result = again.result
        assert (result.title, result.comments) == ("Star, run 17", "Realigned *before* this run.")
        again.title = ""
    again.comments = "After it was closed."
    assert (again.result.title, again.result.comments) == ("", "After it was closed.")


def test_a_damaged_state_is_refused_and_the_one_before_it_named(left: Path) -> None:
    newest = left / "state-00004.h5"
    newest.write_bytes(newest.read_bytes()[:-1000])
    with pytest.raises(pt.FileError, match=r"state-00004\.h5 is .* Use .*state-00002\.h5, the one before it"):
        pt.resume(left)
    with pt.resume(left / "state-00002.h5", device="cpu") as recon:
        assert recon.step().number == 3


def test_what_cannot_be_gone_on_from_is_refused(left: Path, scan: Scan, tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    with raises("checkpoint.not-found", tmp_path / "memory"):
        pt.resume(tmp_path / "memory")
    other = pt.simulate(patterns=100, window=64, seed=6)
    recon = pt.resume(left, other, device="cpu")
    with raises("checkpoint.other-scan"):
        recon.step()
    recon = pt.resume(left, settings=SETTINGS.replace(seed=5), device="cpu")
    with raises("checkpoint.other-settings", "seed"):
        recon.step()
    kept(scan, None, tmp_path / "memory")
    with raises("scan.not-in-file", "resume(path, scan)"):
        pt.resume(tmp_path / "memory")
    with pt.resume(tmp_path / "memory", scan, device="cpu") as recon:
        assert recon.step().number == 5


def test_a_folder_with_states_of_one_reconstruction_takes_none_of_another(
    stored: Scan, cluster: pt.Cluster, left: Path
) -> None:
    for chosen in (cluster, None):
        with raises("checkpoint.exists", left) as caught:
            pt.Reconstruction(stored, SETTINGS, chosen, checkpointing=pt.Checkpointing(folder=left))
        assert caught.value.fields == ("checkpointing.folder",)
        with raises("checkpoint.invalid-transfer", "no.such:function"):
            pt.Reconstruction(stored, SETTINGS, chosen, checkpointing=pt.Checkpointing(transfer="no.such:function"))
    with pt.Reconstruction(stored, SETTINGS, cluster, checkpointing=None) as recon:
        assert recon.step().number == 1


def test_the_state_is_kept_when_asked_for(stored: Scan, cluster: pt.Cluster, tmp_path: Path) -> None:
    with pt.Reconstruction(
        stored, SETTINGS, cluster, checkpointing=pt.Checkpointing(folder=tmp_path, seconds=None)
    ) as recon:
        recon.start(3)
        recon.wait()
        assert recon.latest_checkpoint is None
        path = recon.save_checkpoint()
        assert path == recon.latest_checkpoint == tmp_path / "state-00003.h5"
        assert recon.save_checkpoint(timeout=20.0) == path
    with (
        pt.Reconstruction(stored, SETTINGS, cluster, checkpointing=None) as recon,
        raises("checkpoint.disabled"),
    ):
        recon.save_checkpoint()


def test_a_folder_that_takes_nothing_is_told_once_and_nothing_stops(
    stored: Scan, cluster: pt.Cluster, tmp_path: Path
) -> None:
    folder = tmp_path / "states"
    folder.write_text("a file is in the way")
    keep = pt.Checkpointing(folder=folder, epochs=1, seconds=None)
    with pt.Reconstruction(stored, SETTINGS, cluster, checkpointing=keep) as recon:
        with pytest.warns(pt.PtynbWarning, match="could not be written"):
            for _ in recon.run(6):
                pass
        assert len(recon.notices) == 1
        with raises("checkpoint.failed"):
            recon.save_checkpoint(timeout=5.0)
        folder.unlink()
        assert recon.save_checkpoint().exists()
        assert recon.epoch == 6
