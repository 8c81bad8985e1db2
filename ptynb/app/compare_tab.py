"""The tab Compare of the workbench."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from pathlib import Path

from ptynb.app.session_state import COMPARISON, RUN, Desk
from ptynb.data.engine_records import Checkpoint
from ptynb.exceptions import InvalidValueError
from ptynb.io.checkpoint_result import name_of_checkpoint
from ptynb.io.new_files import free_name
from ptynb.io.result_file import load_result
from ptynb.report.report_file import report
from ptynb.widgets import elements
from ptynb.widgets.actions import Actions
from ptynb.widgets.choice import Choice
from ptynb.widgets.compare.compare_view import Compare
from ptynb.widgets.shared_widgets import free, put


class CompareTab(elements.VBox):
    """The results of the session, a field for a result file, and the selected results side by side."""

    def __init__(self, desk: Desk, actions: Actions) -> None:
        self._desk, self._actions = desk, actions
        self._sources: dict[str, str] = {}
        """Python of the results that are checkpoints, by name: each of them is read once."""
        self._names = Choice("Results", rows=4, several=True, width="460px")
        self._path = elements.Text(
            placeholder="other.result.h5", description="File",
            layout=elements.Layout(width="360px", max_width="100%"),
        )  # fmt: skip
        add = elements.Button(description="Add", icon="plus", tooltip="Adds the result in this file")
        add.on_click(lambda _: self._put_add())
        branches = elements.Button(
            description="Add branches", icon="git-branch", tooltip="Adds the state of each branch"
        )
        branches.on_click(lambda _: self._actions.put(self._add_branches, lane=COMPARISON, after=(RUN,)))
        show = elements.Button(description="Compare", icon="columns", tooltip="Shows the selected results side by side")
        show.on_click(lambda _: self._put(self._show))
        written = elements.Button(
            description="Report", icon="file-text", tooltip="Writes a report (HTML) of the selected results"
        )
        written.on_click(lambda _: self._put(self._report))
        self._status = elements.HTML()
        self._comparison: Compare | None = None
        self._place = elements.VBox(layout=free())
        wrapped = elements.Layout(flex_flow="row wrap", overflow="visible", align_items="flex-end")
        files = elements.VBox(
            [elements.HBox([self._path, add], layout=wrapped), elements.HBox([branches, show, written])]
        )
        top = elements.HBox([self._names, files], layout=wrapped)
        super().__init__([top, self._status, self._place], layout=free())
        desk.on_change(self._follow)

    def _follow(self, what: str) -> None:
        if what == "results":
            names = list(self._desk.results)
            self._names.offer(zip(names, names, strict=True), [*self._names.chosen, names[-1]])

    def _put_add(self) -> None:
        path = self._path.value.strip()
        self._actions.put(lambda: self._add(path), lane=COMPARISON)

    def _add(self, path: str) -> None:
        if not path:
            raise InvalidValueError(
                "No file is named; enter the path of a result, such as scan.result.h5, and press Add.",
                code="argument.missing",
            )
        self._desk.add_result(Path(path).name, load_result(path), f"pt.load_result({path!r})")

    def _add_branches(self) -> None:
        recon = self._desk.recon
        if recon is None:
            raise InvalidValueError(
                "There is no reconstruction; start one to compare its branches.", code="workbench.no-reconstruction"
            )
        for branch in recon.branches:
            source = f"recon.branch_result({branch.name!r})"
            self._desk.add_result(f"branch {branch.name}", recon.branch_result(branch.name), source)

    def show_checkpoints(self, checkpoints: Sequence[Checkpoint], with_now: bool) -> None:
        """Add checkpoints, and optionally the current state, to the results, and show them side by side."""
        names = []
        for checkpoint in checkpoints:
            name = name_of_checkpoint(checkpoint.path, checkpoint.epoch, checkpoint.update)
            source = f"pt.load_result({str(checkpoint.path)!r})"
            if self._sources.get(name) != source:  # a checkpoint of another run may have the same name
                name = self._desk.add_result(name, load_result(checkpoint.path), source)
                self._sources[name] = source
            names.append(name)
        recon = self._desk.recon
        if with_now and recon is not None:
            names.append(self._desk.add_result(f"now, epoch {recon.epoch}", recon.result, "recon.result"))
        self._names.chosen = names
        self._show(names)

    def _put(self, action: Callable[[list[str]], None]) -> None:
        """Queue an action on the currently selected results."""
        names = [name for name in self._desk.results if name in self._names.chosen]
        self._actions.put(lambda: action(names), lane=COMPARISON)

    def _report(self, names: list[str]) -> None:
        put(self._status, "")
        _check_chosen(names, 1)
        path = free_name("comparison" if len(names) > 1 else "report", ".html")
        written = report({name: self._desk.results[name] for name in names}, path)
        self._desk.tell(f"pt.report({{name: kept[name] for name in {names!r}}}, {path!r})")
        put(self._status, f'<span role="status">written: {html.escape(str(written))}</span>')

    def _show(self, names: list[str]) -> None:
        _check_chosen(names, 2)
        before = self._comparison
        looks = None if before is None else before.looks  # colours and limits are those of the comparison before
        self._comparison = Compare({name: self._desk.results[name] for name in names}, looks)
        self._comparison.tell = self._desk.tell
        self._place.children = [self._comparison]
        if before is not None:
            before.close()
        self._desk.tell(f"view = pt.compare({{name: kept[name] for name in {names!r}}})")


def _check_chosen(names: list[str], fewest: int) -> None:
    if len(names) < fewest:
        raise InvalidValueError(
            f"{len(names)} results are selected; select {fewest} or more with Ctrl and click ('Add to comparison' in "
            "the tab Run adds the current result).",
            code="widget.nothing-selected",
        )
