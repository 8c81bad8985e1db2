"""The starter notebooks run as they stand, from the first cell to the last."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import ptynb as pt
from ptynb.cli import notebooks_folder

NOTEBOOKS = sorted(notebooks_folder().glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_starter_notebook_runs_to_its_end(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    shown = {kind for output in outputs for kind in output.get("data", {})}
    assert "application/vnd.jupyter.widget-view+json" in shown
    assert "image/png" in shown
    errors = [output for output in outputs if output.get("name") == "stderr"]
    assert not errors, json.dumps(errors)
    result = pt.load_result(tmp_path / "first_result.h5")
    assert result.losses[-1] < 0.1 * result.losses[0]
    assert [change.name for change in result.changes] == ["probe.rate"]
