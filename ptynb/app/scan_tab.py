"""First tab of the workbench: say what a file contains, open it, inspect and prepare the scan."""

from __future__ import annotations

from typing import Any

import ipywidgets

from ptynb.app.session_state import Desk
from ptynb.data.scan import Scan
from ptynb.exceptions import PtynbError, ScanError
from ptynb.io.file_info import info
from ptynb.io.load import load
from ptynb.widgets.actions import Actions
from ptynb.widgets.inspect.inspect_view import Inspect, inspect
from ptynb.widgets.load_panel import LoadPanel
from ptynb.widgets.shared_widgets import Whole, close_all, free, put


class ScanTab(Whole):
    """Fields for a file and the options of `load`, and the inspection of the open scan."""

    def __init__(self, desk: Desk, actions: Actions) -> None:
        self._desk, self._actions = desk, actions
        self._path = ipywidgets.Text(
            placeholder="scan.cxi", description="File", layout=ipywidgets.Layout(width="460px", max_width="100%")
        )
        self._load = ipywidgets.Button(description="Load", icon="folder-open", tooltip="Open the scan in this file")
        self._load.on_click(lambda _: self._put_load())
        self._info = ipywidgets.Button(
            description="Info", icon="info-circle", tooltip="Shows what the file contains, and what is missing"
        )
        self._info.on_click(lambda _: self._actions.put(self._describe))
        self._options, self._facts = LoadPanel(), ipywidgets.HTML()
        self._inspect: Inspect | None = None
        row = ipywidgets.HBox([self._path, self._load, self._info], layout=ipywidgets.Layout(flex_flow="row wrap"))
        self._place = ipywidgets.VBox(layout=free())
        super().__init__([row, self._options, self._facts, self._place], layout=free())
        if desk.scan is not None:
            self.show(desk.scan)

    def _put_load(self) -> None:
        self._actions.put(self._open)

    def _chosen(self) -> tuple[str, dict[str, Any]]:
        """Return the path and the options of `load`."""
        path = self._path.value.strip()
        if not path:
            raise ScanError(
                "No file is named; type the path of a scan, such as scan.cxi, and press Load.", code="argument.missing"
            )
        return path, self._options.arguments

    def _describe(self) -> None:
        path, options = self._chosen()
        found = info(path, **options)
        if found.missing or found.problem is not None:
            self._options.unfold()
        put(self._facts, found._repr_html_())
        self._desk.tell(f"pt.info({_arguments(path, options)})")

    def _open(self) -> None:
        path, options = self._chosen()
        try:
            scan = load(path, **options)
        except PtynbError:
            self._options.unfold()  # most errors are of values that these fields replace
            raise
        put(self._facts, "")
        self._desk.tell(f"scan = pt.load({_arguments(path, options)})")
        self.show(scan)
        self._desk.scan = scan

    def show(self, scan: Scan) -> None:
        """Show the inspection of a scan."""
        before = self._inspect
        self._inspect = inspect(scan)
        self._inspect.tell = self._desk.tell
        self._inspect.on_scan = self._take_over
        self._place.children = [self._inspect]
        if before is not None:
            close_all(before)

    def _take_over(self, scan: Scan) -> None:
        self._desk.scan = scan


def _arguments(path: str, options: dict[str, Any]) -> str:
    return ", ".join([repr(path), *(f"{name}={value!r}" for name, value in options.items())])
