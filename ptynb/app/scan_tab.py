"""First tab of the workbench: open, inspect and prepare a scan."""

from __future__ import annotations

import ipywidgets

from ptynb.app.session_state import Desk
from ptynb.data.scan import Scan
from ptynb.exceptions import ScanError
from ptynb.io.load import load
from ptynb.widgets.actions import Actions
from ptynb.widgets.inspect.inspect_view import Inspect, inspect
from ptynb.widgets.shared_widgets import Whole, close_all, free


class ScanTab(Whole):
    """Field for a file, and the inspection of the open scan."""

    def __init__(self, desk: Desk, actions: Actions) -> None:
        self._desk, self._actions = desk, actions
        self._path = ipywidgets.Text(
            placeholder="scan.cxi", description="File", layout=ipywidgets.Layout(width="460px", max_width="100%")
        )
        self._load = ipywidgets.Button(description="Load", icon="folder-open", tooltip="Open the scan in this file")
        self._load.on_click(lambda _: self._put_load())
        self._inspect: Inspect | None = None
        row = ipywidgets.HBox([self._path, self._load], layout=ipywidgets.Layout(flex_flow="row wrap"))
        self._place = ipywidgets.VBox(layout=free())
        super().__init__([row, self._place], layout=free())
        if desk.scan is not None:
            self._show(desk.scan)

    def _put_load(self) -> None:
        path = self._path.value
        self._actions.put(lambda: self._open(path))

    def _open(self, path: str) -> None:
        if not path.strip():
            raise ScanError(
                "No file is named; type the path of a scan, such as scan.cxi, and press Load.", code="argument.missing"
            )
        scan = load(path.strip())
        self._desk.tell(f"scan = pt.load({path.strip()!r})")
        self._show(scan)
        self._desk.scan = scan

    def _show(self, scan: Scan) -> None:
        before = self._inspect
        self._inspect = inspect(scan)
        self._inspect.tell = self._desk.tell
        self._inspect.on_scan = self._take_over
        self._place.children = [self._inspect]
        if before is not None:
            close_all(before)

    def _take_over(self, scan: Scan) -> None:
        self._desk.scan = scan
