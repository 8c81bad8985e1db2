"""What the errors of engines tell to do is done, and works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ptynb as pt
from ptynb.data.scan import Scan
from ptynb.loading import engine_patterns
from tests.raising import raises
from tests.remedy_cases import Case, follow

SCAN = pt.simulate(patterns=16, window=17, step=3, seed=3)  # a side of which nothing is compiled first
PLAIN = pt.Settings()
SLOW = pt.Settings(loss="intensity", optimiser="sgd", object={"learning_rate": 1e-3}, probe={"learning_rate": 1e-3})
WILD = SLOW.replace(object={"learning_rate": 10.0}, probe={"learning_rate": 10.0})


def kept_in(folder: Path) -> pt.Checkpointing:
    return pt.Checkpointing(folder=folder, epochs=None, seconds=None)


def reconstructed(
    scan: Scan, settings: pt.Settings = PLAIN, keep: pt.Checkpointing | None = None, epochs: int = 1
) -> Any:
    with pt.Reconstruction(scan, settings, device="cpu", checkpointing=keep) as recon:
        done = [*recon.run(epochs)]
        if keep is not None:
            recon.save_checkpoint()
        return done


def in_a_file(folder: Path) -> Scan:
    return pt.save_scan(SCAN, folder / "scan.h5")


def in_another_s_folder(folder: Path) -> None:
    reconstructed(SCAN, keep=kept_in(folder / "kept"))
    reconstructed(SCAN, keep=kept_in(folder / "kept"))


def gone_on(folder: Path) -> None:
    with pt.resume(folder, SCAN) as recon:
        assert (recon.epoch, recon.step().number) == (1, 2)


CASES = {
    "patterns in memory that are to be on disk": Case(
        lambda _: reconstructed(SCAN, pt.Settings(pattern_storage="disk")),
        "write them with save_scan and load that file, or use 'auto'",
        lambda folder, _: (
            reconstructed(in_a_file(folder), pt.Settings(pattern_storage="disk")),
            reconstructed(SCAN, pt.Settings(pattern_storage="auto")),
        ),
    ),
    "a folder with states of another": Case(
        in_another_s_folder,
        "choose another folder, or resume from that checkpoint",
        lambda folder, _: (
            reconstructed(SCAN, keep=kept_in(folder / "other")),
            gone_on(folder / "kept"),
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_the_sentence_says_helps(tmp_path: Path, case: str) -> None:
    follow(CASES[case], tmp_path)


def test_after_rates_that_were_too_high_lower_ones_go_on_from_a_kept_state_and_from_the_start(tmp_path: Path) -> None:
    with pt.Reconstruction(SCAN, SLOW, device="cpu", checkpointing=kept_in(tmp_path)) as recon:
        [*recon.run(2)]
        recon.save_checkpoint()
        losses = [epoch.loss for epoch in recon.epochs]
        recon.settings = WILD
        with raises("reconstruction.not-finite", "Start again with lower ones, or restore a checkpoint and"):
            [*recon.run(20)]
        recon.restore(2)
        recon.settings = recon.settings.replace(object={"learning_rate": 5e-4})
        [*recon.run(2)]
        assert (recon.epoch, recon.state) == (4, "ready")
        assert recon.epochs[-1].loss < losses[0]
    assert [epoch.loss for epoch in reconstructed(SCAN, SLOW, epochs=2)] == losses


def test_patterns_that_memory_can_not_hold_are_read_from_a_file_as_the_message_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = in_a_file(tmp_path)
    monkeypatch.setattr(engine_patterns, "free_on_host", lambda: 1000)
    with pytest.raises(pt.ReconstructionError, match="write them with save_scan and load that file, to have them read"):
        reconstructed(SCAN)
    with pt.Reconstruction(held, PLAIN, device="cpu", checkpointing=None) as recon:
        recon.step()
        assert recon.status()[0].frames == "disk"
