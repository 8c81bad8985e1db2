"""First tab of the workbench: choose a file or a live source, open it, inspect and prepare the scan."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ptynb.app.listen_panel import ListenPanel
from ptynb.app.receiving_row import STOP_LINE, ReceivingRow
from ptynb.app.session_state import SCAN, Desk
from ptynb.data.arrivals import SCAN_NAME, Acquisition
from ptynb.data.scan import Scan
from ptynb.exceptions import PtynbError, ScanError
from ptynb.io.file_info import FileInfo, info
from ptynb.io.load import load
from ptynb.widgets import elements
from ptynb.widgets.actions import Actions
from ptynb.widgets.inspect.inspect_view import Inspect, inspect
from ptynb.widgets.layout.segments import Segments
from ptynb.widgets.load.file_chooser import FileChooser
from ptynb.widgets.load.file_facts import facts_of, remarks_html
from ptynb.widgets.load.load_fields import LoadFields
from ptynb.widgets.load.quantities import quantity
from ptynb.widgets.load.recent_files import remember
from ptynb.widgets.shared_widgets import free, marking, note, put

LINE = "1px solid var(--jp-border-color2, #ddd)"
DESCRIBE = "describe"
"""Key of the actions that describe a file: only the newest is needed."""


FILE, LIVE = "File", "Live source"
UNFOLD = {
    FILE: ("Choose file", "Shows or hides files, contents of the file, and fields for what it lacks"),
    LIVE: ("Plan", "Shows or hides what is known of the scan before it is measured"),
}
"""What the button is called that unfolds the fields of a file or a live source, and its tooltip."""


class ScanTab(elements.VBox):
    """A file, its contents and the options of `load`, or a live source and its plan; and the open scan.

    The fields are folded once a scan is open.
    """

    def __init__(self, desk: Desk, actions: Actions) -> None:
        self._desk, self._actions = desk, actions
        self._described: tuple[str, dict[str, Any]] | None = None
        self._path = elements.Text(
            placeholder="scan.cxi", description="File", tooltip="Path of a scan: type it, or click a file below",
            continuous_update=False, style={"description_width": "40px"},
            layout=elements.Layout(flex="1 1 300px", width="auto", max_width="700px"),
        )  # fmt: skip
        self._path.observe(lambda _: self._put_describe(), "value")
        self._load = self._button("Load", "folder-open", "Opens the scan in this file", self._put_load)
        self._load.button_style = "primary"
        self._info = self._button(
            "Info", "info", "Shows what the file contains, and what is missing", lambda: self._put_describe(True)
        )
        self._browse = elements.ToggleButton(
            value=desk.scan is None, icon="list", layout=elements.Layout(width="120px")
        )
        self._browse.observe(lambda _: self._fold(), "value")
        self._chooser = FileChooser(self._choose)
        self._options = LoadFields(self._put_describe)
        self._remarks = elements.HTML(note("Click a file: what it contains is shown before it is loaded."))
        self._facts = elements.HTML(layout=elements.Layout(width="auto"))
        self._suggestion = elements.Button(
            icon="wand-sparkles",
            tooltip="Enters this below; replace it by what was measured",
            layout=elements.Layout(width="auto", display="none"),
        )
        self._suggestion.on_click(lambda _: self._options.fill(self._suggested))
        self._suggested: dict[str, Any] = {}
        self._inspect: Inspect | None = None
        self._kind = Segments("Scan from", [FILE, LIVE], ["file", "rss"])
        self._kind.observe(lambda _: self._show_kind(), "chosen")
        self._listening = ListenPanel(desk, self._heard)
        wrap = {"flex_flow": "row wrap", "overflow": "visible"}
        self._file_row = elements.HBox(
            [self._path, self._load, self._info],
            layout=elements.Layout(align_items="center", flex="1 1 500px", min_width="0", **wrap),
        )
        row = elements.HBox(
            [self._kind, self._file_row, self._listening, self._browse],
            layout=elements.Layout(align_items="center", **wrap),
        )
        self._follow = elements.Button(
            description="Listen to this file", icon="rss", layout=elements.Layout(width="auto", display="none"),
            tooltip="Receives the scan of this file while it is written",
        )  # fmt: skip
        self._follow.on_click(lambda _: self._listen_to_file())
        self._receiving = ReceivingRow(actions, self._stop_listening, self._open_received)
        self._chooser.layout.flex, self._chooser.layout.min_width = "1 1 320px", "0"
        fields = elements.VBox(  # remarks come and go: below the fields, which must not move under the mouse
            [self._options, self._suggestion, self._remarks, self._follow],
            layout=elements.Layout(flex="1 1 430px", min_width="0", overflow="visible"),
        )
        columns = elements.HBox([self._chooser, fields], layout=elements.Layout(**wrap))
        self._open_file = elements.VBox([columns, self._facts], layout=free())
        self._place = elements.VBox(layout=free())
        super().__init__([row, self._open_file, self._listening.fields, self._receiving, self._place], layout=free())
        self._show_kind(unfold=False)
        if desk.scan is not None:
            self.show(desk.scan)

    def _button(self, text: str, icon: str, tooltip: str, action: Callable[[], None]) -> elements.Button:
        button = elements.Button(description=text, icon=icon, tooltip=tooltip, layout=elements.Layout(width="90px"))
        button.on_click(lambda _: action())
        return button

    def _show_kind(self, unfold: bool = True) -> None:
        """Show the fields of a file or of a live source."""
        live = self._kind.chosen == LIVE
        self._file_row.layout.display = "none" if live else None
        self._listening.layout.display = None if live else "none"
        self._browse.description, self._browse.tooltip = UNFOLD[self._kind.chosen]
        if unfold:
            self._browse.value = True
        self._fold()

    def _fold(self) -> None:
        for part, kind in ((self._open_file, FILE), (self._listening.fields, LIVE)):
            part.layout.display = None if self._browse.value and self._kind.chosen == kind else "none"
            if self._inspect is not None:  # what follows is of the scan that is open, not of this file
                part.layout.border_bottom, part.layout.padding = LINE, "0 0 8px"
        if self._browse.value and self._kind.chosen == FILE:
            self._chooser.refresh()

    def _choose(self, path: Path, twice: bool) -> None:
        """Take a file that was clicked; a second click opens it."""
        text = _shortest(path)
        if text != self._path.value:
            self._options.clear()
            self._path.value = text
        elif not twice:
            self._put_describe(True)
        if twice:
            self._put_load()

    def _put_load(self) -> None:
        self._actions.put(self._open, lane=SCAN)

    def _put_describe(self, again: bool = False) -> None:
        """Queue the description of the file; again: also if nothing was changed since the last one."""
        if self._path.value.strip():
            self._actions.put(lambda: self._describe(again), instead_of=DESCRIBE, lane=SCAN)
        elif again:
            self._actions.put(self._chosen, lane=SCAN)

    def _chosen(self) -> tuple[str, dict[str, Any]]:
        """Return the path and the options of `load`."""
        path = self._path.value.strip()
        if not path:
            raise ScanError(
                "No file is named; click one in the list, or type the path of a scan, such as scan.cxi.",
                code="argument.missing",
            )
        with marking(self._options):
            return path, self._options.arguments

    def _describe(self, again: bool) -> None:
        path, options = self._chosen()
        if not again and self._described == (path, options):
            return
        with marking(self._options):
            try:
                found = info(path, **options)
            except Exception as error:
                self._show_facts(None)
                if isinstance(error, PtynbError) and error.code == "file.being-written":
                    self._follow.layout.display = None
                raise
        if found.suggested and any(fact.name == "geometry" for fact in found.facts):  # the file itself says it
            self._options.fill(found.suggested)
            options = self._options.arguments
            found = info(path, **options)
        if again or self._described is None or self._described[0] != path:
            self._desk.tell(f"pt.info({_arguments(path, options)})")
        other = again or self._described is None or self._described[0] != path
        self._described = path, options
        self._show_facts(found)
        if other:  # not while fields are filled in
            self._options.focus(self._options.lacking)

    def _show_facts(self, found: FileInfo | None) -> None:
        self._suggested = {} if found is None else found.suggested
        self._suggestion.layout.display = None if self._suggested else "none"
        focus = self._suggested.get("focus_to_sample")
        about = "" if focus is None else f", focus to sample about {quantity((focus,), 'm')}"
        self._suggestion.description = f"Use near field{about}"
        self._options.show(found)
        self._follow.layout.display = "none"
        put(self._remarks, "" if found is None else remarks_html(found))
        put(self._facts, "" if found is None else facts_of(found))

    def _open(self) -> None:
        try:
            path, options = self._chosen()
            scan = load(path, **options)
        except Exception as error:
            self._browse.value = True  # most errors are of values that the fields replace
            with contextlib.suppress(PtynbError):  # of the same cause
                self._describe(False)
            if isinstance(error, PtynbError):
                self._options.mark(error)
            raise
        self._desk.tell(f"scan = pt.load({_arguments(path, options)})")
        remember(Path(path).expanduser())
        self.show(scan)
        self._browse.value = False
        self._desk.scan = scan

    def _listen_to_file(self) -> None:
        """Take the file, which is still being written, as a live source."""
        self._listening.fields.enter("source", self._path.value.strip())
        self._kind.chosen = LIVE

    def _heard(self, scan: Scan) -> None:
        """Take a scan over that has begun to come."""
        self.show(scan)
        self._browse.value = False
        self._desk.scan = scan

    def _stop_listening(self) -> None:
        scan = self._desk.scan
        if scan is not None and isinstance(scan.acquisition, Acquisition):
            scan.stop_listening()
            self._desk.tell(STOP_LINE)

    def _open_received(self) -> None:
        scan = self._desk.scan
        if scan is not None and isinstance(scan.acquisition, Acquisition):
            path = _shortest(scan.acquisition.folder / SCAN_NAME)
            received = load(path)
            self._desk.tell(f"scan = pt.load({path!r})")
            remember(Path(path))
            self.show(received)
            self._desk.scan = received

    def show(self, scan: Scan) -> None:
        """Show the inspection of a scan."""
        before = self._inspect
        self._inspect = inspect(scan)
        self._inspect.tell = self._desk.tell
        self._inspect.on_scan = self._take_over
        live = scan.acquisition if isinstance(scan.acquisition, Acquisition) else None
        self._receiving.show(live)
        if live is not None:
            self._inspect.on_end = self._receiving.show_end
            if live.index().ended is not None:  # before there was somebody to be told
                self._receiving.show_end()
        self._place.children = [self._inspect]
        if before is not None:
            before.close()

    def _take_over(self, scan: Scan) -> None:
        self._desk.scan = scan


def _shortest(path: Path) -> str:
    """Return a path relative to the folder of the notebook if it is below."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _arguments(path: str, options: dict[str, Any]) -> str:
    return ", ".join([repr(path), *(f"{name}={value!r}" for name, value in options.items())])
