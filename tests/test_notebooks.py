"""The starter notebooks run as they stand, from the first cell to the last, and find what they say."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import ptynb as pt
from ptynb.cli import notebooks_folder

FOLDER = notebooks_folder()


def run(name: str, folder: Path, *expressions: str) -> tuple[list[Any], list[Any]]:
    """The outputs of a notebook's cells, and what these expressions are worth after its last one."""
    notebook = nbformat.read(FOLDER / name, as_version=4)
    asked = f"import json\nprint('FOUND', json.dumps([{', '.join(expressions)}], default=float))"
    notebook.cells.append(nbformat.v4.new_code_cell(asked))
    NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(folder)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    errors = [output for output in outputs if output.get("name") == "stderr"]
    assert not errors, json.dumps(errors)
    said = notebook.cells[-1].outputs[0].text
    return outputs[:-1], json.loads(said.removeprefix("FOUND"))


def kinds(outputs: list[Any]) -> set[str]:
    return {kind for output in outputs for kind in output.get("data", {})}


def test_every_notebook_has_its_test_here() -> None:
    assert sorted(path.name for path in FOLDER.glob("*.ipynb")) == [
        "01_first_reconstruction.ipynb",
        "02_physics.ipynb",
        "03_your_own_model.ipynb",
    ]


def test_the_first_reconstruction(tmp_path: Path) -> None:
    outputs, _ = run("01_first_reconstruction.ipynb", tmp_path)
    assert kinds(outputs) >= {"application/vnd.jupyter.widget-view+json", "image/png"}
    result = pt.load_result(tmp_path / "first_result.h5")
    assert result.losses[-1] < 0.1 * result.losses[0]
    assert [change.name for change in result.changes] == ["probe.rate"]


@pytest.mark.timeout(900)
def test_the_physics(tmp_path: Path) -> None:
    outputs, found = run(
        "02_physics.ipynb",
        tmp_path,
        "thin_error",
        "thick_error",
        "rms_positions[0]",
        "rms_positions[-1]",
        "scale_errors[-1]",
        "rotation_errors[-1]",
        "drift_factor",
        "mode_errors[0]",
        "mode_errors[1]",
    )
    thin, thick, displaced, replaced, scale, rotation, drift, one_mode, four_modes = found
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 12
    assert thick < thin / 2
    assert displaced > 2.5
    assert replaced < 0.3
    assert abs(scale) < 0.2
    assert abs(rotation) < 0.05
    assert drift > 8
    assert four_modes < one_mode / 2


def test_a_model_of_ones_own(tmp_path: Path) -> None:
    outputs, found = run(
        "03_your_own_model.ipynb",
        tmp_path,
        "lost",
        "found",
        "float(together.optimised['warming module/loss'])",
        "errors['both']",
        "min(errors['neither'], errors['piece'], errors['constraint'])",
    )
    lost, alone, together, with_both, with_less = found
    assert "image/png" in kinds(outputs)
    assert alone == pytest.approx(lost, abs=0.02)
    assert together == pytest.approx(alone, abs=0.005)
    assert with_both < with_less / 2


def test_a_piece_and_a_constraint_of_ones_own_take_less_than_forty_lines() -> None:
    notebook = nbformat.read(FOLDER / "03_your_own_model.ipynb", as_version=4)
    trees = [ast.parse(cell.source) for cell in notebook.cells if cell.cell_type == "code"]
    classes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    lines = sum((node.end_lineno or 0) - node.lineno + 1 for node in classes)
    assert {ast.unparse(node.bases[0]) for node in classes} == {"pt.Piece", "pt.Imposed"}
    assert lines < 40
