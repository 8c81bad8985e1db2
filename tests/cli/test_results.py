"""Commands that take a result file."""

from __future__ import annotations

from pathlib import Path

import pytest

import ptynb as pt
from ptynb.cli.main import main
from ptynb.io.result_file import load_result


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    pt.simulate(patterns=36, window=32, seed=5, path=folder / "scan.h5")
    with pt.Reconstruction(
        pt.load(folder / "scan.h5"), pt.Settings(batch=8), device="cpu", checkpointing=None
    ) as recon:
        recon.run_until(1, 2)
        recon.wait()
        recon.settings = recon.settings.replace(probe={"learning_rate": 0.05})
        [*recon.run(2)]
        recon.title = "A title"
        recon.save(folder / "result.h5")
    return folder / "result.h5"


def test_a_run_is_repeated_and_compared(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    second = tmp_path / "second.h5"
    assert main(["run", str(made), "--reproduce", "--device", "cpu", "--result", str(second)]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[:2] == [
        "After epoch 1: probe.learning_rate",
        f"{len(load_result(made).epochs)} epochs again. Equal to the bit.",
    ]
    assert (load_result(second).losses == load_result(made).losses).all()


def test_what_can_not_go_with_it_is_refused(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options, words in (
        (["--epochs", "3"], "--epochs and --reproduce exclude each other; omit the former."),
        (["--cluster", "slurm"], "--reproduce does not support --cluster slurm; use ptynb.reproduce"),
    ):
        assert main(["run", str(made), "--reproduce", *options]) == 64
        assert words in " ".join(capsys.readouterr().err.split())


def test_a_result_is_exported_to_several_files(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / name for name in ("a.tif", "a.png", "a.cxi", "a.npz")]
    assert main(["export", str(made), *map(str, files)]) == 0
    assert capsys.readouterr().out.split() == [*map(str, files)]
    assert all(file.stat().st_size > 1000 for file in files)
    assert main(["export", str(made), str(tmp_path / "a.jpg")]) == 65
    assert "expected one of .cxi" in capsys.readouterr().err
