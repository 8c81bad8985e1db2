"""The tab Compare: results are selected, added, shown side by side and reported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ptynb as pt
from ptynb.app.compare_tab import CompareTab
from ptynb.app.session_state import LANES, Session
from ptynb.io.result_file import save_result
from ptynb.widgets.actions import Actions
from tests.analysis.test_result_comparison import result


class Bench:
    """A session, its tab Compare, and the errors that are shown."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.desk, self.actions = Session(None, None, None), Actions("ptynb test", self.complain, lanes=LANES)
        self.tab = CompareTab(self.desk, self.actions)

    def complain(self, error: Exception | None) -> None:
        self.error = error

    def does(self, name: str, **given: Any) -> CompareTab:
        self.tab.receive_command(name, given)
        self.actions.settle()
        return self.tab


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.chdir(tmp_path)
    made = Bench()
    yield made
    if made.tab.comparison is not None:
        made.tab.comparison.settle()
    made.actions.close()
    made.tab.close()


def test_results_are_compared_and_reported_by_lines_that_do_the_same(bench: Bench) -> None:
    path = save_result(result(), "night.result.h5")
    bench.does("add", path=f" {path} ")
    bench.does("add", path=str(path))
    assert bench.tab.results == bench.tab.chosen == ["night.result.h5", "night.result.h5 (2)"]
    first = bench.does("show").comparison
    assert first is not None
    first.show(colours="magma")
    first.settle()
    again = bench.does("show").comparison
    assert again is not None
    again.settle()
    assert first.closed
    assert {*again.viewer.colours.values()} == {"magma"}, "colours are those of the comparison before"
    assert bench.does("report").said == "written: comparison.html"
    Path("comparison.html").unlink()
    names: dict[str, Any] = {}
    views = []
    for line in bench.desk.lines:
        exec(line, names)
        if line.startswith("view = "):
            views.append(names["view"])
    assert [[*view.results] for view in views] == [bench.tab.results] * 2
    assert "<h1>" in Path("comparison.html").read_text(encoding="utf-8")
    for view in views:
        view.settle()
        view.close()


def test_what_cannot_be_done_says_why(bench: Bench) -> None:
    for name, given, fact in (
        ("add", {"path": " "}, "No file is named"),
        ("add", {"path": "none.h5"}, "none.h5"),
        ("add_branches", {}, "There is no reconstruction"),
        ("show", {}, "0 results are selected; select 2 or more"),
        ("report", {}, "select 1 or more"),
    ):
        bench.does(name, **given)
        assert fact in str(bench.error)
    assert bench.tab.results == []


def test_only_what_is_selected_and_still_there_is_taken(bench: Bench) -> None:
    for name in ("one", "two", "three"):
        bench.desk.add_result(name, result(), name)
    bench.tab.receive_values({"chosen": ["three", "gone", "one"], "results": ["none"]})
    assert bench.tab.results == ["one", "two", "three"]
    shown = bench.does("show").comparison
    assert shown is not None
    assert [*shown.results] == ["one", "three"]


def test_branches_and_checkpoints_are_added_each_once(bench: Bench, tmp_path: Path) -> None:
    keep = pt.Checkpointing(folder=tmp_path / "kept", seconds=None)
    scan = pt.simulate(patterns=36, window=32)
    with pt.Reconstruction(scan, pt.Settings(batch=12), device="cpu", checkpointing=keep) as recon:
        recon.step()
        recon.save_checkpoint()
        recon.step()
        bench.desk.recon = recon
        assert bench.does("add_branches").results == ["branch main"]
        for _ in range(2):
            bench.tab.show_checkpoints(recon.checkpoints, with_now=True)
        assert bench.tab.results[1:] == ["epoch 1 (main)", "now, epoch 2", "now, epoch 2 (2)"]
        assert bench.tab.chosen == ["epoch 1 (main)", "now, epoch 2 (2)"]
        assert bench.tab.comparison is not None
        assert [*bench.tab.comparison.results] == bench.tab.chosen
        told = f"kept['epoch 1 (main)'] = pt.load_result({str(recon.checkpoints[0].path)!r})"
        assert told in bench.desk.lines
