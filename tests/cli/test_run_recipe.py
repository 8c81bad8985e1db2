"""`ptynb run` with a recipe: prepared, in stages, resumed in the middle of one, and repeated from its result."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ptynb as pt
from ptynb.cli.main import main
from ptynb.io.result_file import load_result

RUN = """\
scan: scan.h5
result: {result}
cluster: {{kind: none, device: cpu}}
prepare:
  - flip: y
  - crop: 32
  - mask_pixels: bad.npy
settings: {{batch: 8, positions: {{learning_rate: 0.05}}}}
stages:
  - epochs: 3
    pattern_size: 16
  - epochs: 3
    settings: {{probe: {{modes: 2}}, optimiser: rpie, positions: {{learning_rate: 0}}}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipe")
    scan = pt.simulate(patterns=16, window=40, step=5, seed=5)
    pt.save_scan(scan, path / "scan.h5")
    np.save(path / "bad.npy", np.arange(32) != np.arange(32)[:, None])
    for name in ("whole", "parts"):
        (path / f"{name}.yaml").write_text(RUN.format(result=f"{name}.h5"))
    return path


@pytest.fixture(scope="module")
def whole(folder: Path) -> Path:
    assert main(["run", str(folder / "whole.yaml")]) == 0
    return folder / "whole.h5"


def test_a_run_file_prepares_and_has_stages(whole: Path) -> None:
    result = load_result(whole)
    assert (len(result.epochs), result.stage, result.probe.shape) == (6, 1, (2, 32, 32))
    assert [next(iter(step)) for step in result.scan.preparation] == ["flip", "crop", "mask_pixels"]
    assert (result.settings["optimiser"], result.settings["object"]["learning_rate"]) == ("rpie", 1.0)


@pytest.mark.parametrize("epochs", [2, 3])
def test_it_is_resumed_in_the_middle_of_a_stage(folder: Path, whole: Path, tmp_path: Path, epochs: int) -> None:
    run, result = str(folder / "parts.yaml"), str(tmp_path / "parts.h5")
    kept = ("--keep", str(tmp_path / "kept"), "--result", result)
    assert main(["run", run, *kept, "--epochs", str(epochs)]) == 0
    assert len(load_result(result).epochs) == epochs
    assert main(["run", run, *kept, "--resume"]) == 0
    one, other = load_result(whole), load_result(result)
    assert np.array_equal(one.object, other.object)
    assert np.array_equal(one.losses, other.losses)


def test_a_step_that_cannot_be_made_is_one_sentence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for step, fact in (
        ("crop: 300", "Step 1 of the preparation, crop: A window of 300 x 300 pixels"),
        ("mask_pixels: none.npy", f"There is no file {folder / 'none.npy'}"),
        ("bin: [1, 2, 3]", "bin"),
    ):
        (folder / "wrong.yaml").write_text(f"scan: scan.h5\nepochs: 1\nresult: wrong.h5\nprepare: [{{{step}}}]\n")
        assert main(["run", str(folder / "wrong.yaml"), "--cluster", "none"]) in (64, 66, 78)
        said = capsys.readouterr().err
        assert fact in said.replace("\n", " ")
        assert "Traceback" not in said
