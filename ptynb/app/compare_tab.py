"""The tab Compare of the workbench."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import traitlets

from ptynb.app.session_state import COMPARISON, RUN, Session
from ptynb.data.engine_records import Checkpoint
from ptynb.exceptions import InvalidValueError
from ptynb.io.checkpoint_result import name_of_checkpoint
from ptynb.io.new_files import free_name
from ptynb.io.result_file import load_result
from ptynb.report.report_file import report
from ptynb.widgets.actions import Actions
from ptynb.widgets.compare.compare_view import Compare
from ptynb.widgets.element_tree import Element, command, shown


class CompareTab(Element):
    """The results of the session, a field for a result file, and the selected results side by side.

    results: names of all; chosen: of those that are selected. said: of the last report.
    """

    component = "compareTab"
    results: traitlets.List[str] = shown(traitlets.List())
    chosen: traitlets.List[str] = traitlets.List(traitlets.Unicode()).tag(sync=True)
    said = shown(traitlets.Unicode(""))
    comparison = shown(traitlets.Instance(Compare, allow_none=True))

    def __init__(self, session: Session, actions: Actions) -> None:
        super().__init__()
        self._session, self._actions = session, actions
        self._sources: dict[str, str] = {}
        """Python of the results that are checkpoints, by name: each of them is read once."""
        session.on_change(self._follow)

    def close(self) -> None:
        """Close the tab and its comparison."""
        if self.comparison is not None:
            self.comparison.close()
        super().close()

    @command
    def add(self, path: str) -> None:
        """Add the result in a file."""

        def act() -> None:
            if not path.strip():
                raise InvalidValueError(
                    "No file is named; enter the path of a result, such as scan.result.h5, and press Add.",
                    code="argument.missing",
                )
            file = Path(path.strip())
            self._session.add_result(file.name, load_result(file), f"pt.load_result({str(file)!r})")

        self._actions.put(act, lane=COMPARISON)

    @command
    def add_branches(self) -> None:
        """Add the state of each branch of the reconstruction."""

        def act() -> None:
            recon = self._session.recon
            if recon is None:
                raise InvalidValueError(
                    "There is no reconstruction; start one to compare its branches.", code="workbench.no-reconstruction"
                )
            for branch in recon.branches:
                source = f"recon.branch_result({branch.name!r})"
                self._session.add_result(f"branch {branch.name}", recon.branch_result(branch.name), source)

        self._actions.put(act, lane=COMPARISON, after=(RUN,))

    @command
    def show(self) -> None:
        """Show the selected results side by side."""
        self._put(self._show)

    @command
    def report(self) -> None:
        """Write a report of the selected results."""
        self._put(self._report)

    def show_checkpoints(self, checkpoints: Sequence[Checkpoint], with_now: bool) -> None:
        """Add checkpoints, and optionally the current state, to the results, and show them side by side."""
        names = []
        for checkpoint in checkpoints:
            name = name_of_checkpoint(checkpoint.path, checkpoint.epoch, checkpoint.update)
            source = f"pt.load_result({str(checkpoint.path)!r})"
            if self._sources.get(name) != source:  # a checkpoint of another run may have the same name
                name = self._session.add_result(name, load_result(checkpoint.path), source)
                self._sources[name] = source
            names.append(name)
        recon = self._session.recon
        if with_now and recon is not None:
            names.append(self._session.add_result(f"now, epoch {recon.epoch}", recon.result, "recon.result"))
        self.chosen = names
        self._show(names)

    def _follow(self, what: str) -> None:
        if what == "results":
            self.results = [*self._session.results]
            self.chosen = [*self.chosen, self.results[-1]]

    def _put(self, action: Callable[[list[str]], None]) -> None:
        """Queue an action on the currently selected results."""
        names = [name for name in self._session.results if name in self.chosen]
        self._actions.put(lambda: action(names), lane=COMPARISON)

    def _report(self, names: list[str]) -> None:
        self.said = ""
        _check_chosen(names, 1)
        path = free_name("comparison" if len(names) > 1 else "report", ".html")
        written = report({name: self._session.results[name] for name in names}, path)
        self._session.tell(f"pt.report({{name: kept[name] for name in {names!r}}}, {path!r})")
        self.said = f"written: {written}"

    def _show(self, names: list[str]) -> None:
        _check_chosen(names, 2)
        before = self.comparison
        looks = None if before is None else before.looks  # colours and limits are those of the comparison before
        shown = Compare({name: self._session.results[name] for name in names}, looks)
        self.comparison, shown.tell = shown, self._session.tell
        if before is not None:
            before.close()
        self._session.tell(f"view = pt.compare({{name: kept[name] for name in {names!r}}})")


def _check_chosen(names: list[str], fewest: int) -> None:
    if len(names) < fewest:
        raise InvalidValueError(
            f"{len(names)} results are selected; select {fewest} or more with Ctrl and click ('Add to comparison' in "
            "the tab Run adds the current result).",
            code="widget.nothing-selected",
        )
