"""First tab of the workbench: choose a file or a live source, open it, inspect and prepare the scan."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import traitlets

from ptynb.app.listen_panel import ListenPanel
from ptynb.app.session_state import SCAN, Session
from ptynb.data.arrivals import SCAN_NAME, Acquisition
from ptynb.data.scan import Scan
from ptynb.exceptions import PtynbError, ScanError
from ptynb.io.file_info import FileInfo, info
from ptynb.widgets.actions import Actions
from ptynb.widgets.element_tree import Element, command, shown
from ptynb.widgets.inspect.inspect_view import Inspect, inspect
from ptynb.widgets.load.file_chooser import FileChooser
from ptynb.widgets.load.load_fields import LoadFields, remarks_of
from ptynb.widgets.load.recent_files import remember
from ptynb.widgets.option_fields import marking
from ptynb.widgets.quantities import fact_text, quantity

DESCRIBE = "describe"
"""Key of the actions that describe a file: only the newest is needed."""


class ScanTab(Element):
    """A file, its contents and the options of `load`, or a live source and its plan; and the open scan.

    live: whether a live source is shown instead of a file. unfolded: whether fields are shown, as until a scan is open.
    path: of the file as it was typed or chosen. remarks: problems and notes about it, with their roles; title: its path
    and format; facts: rows of name, value and place. suggestion: of a near field; "": none. being_written: whether the
    file can be listened to. receiving: "on" while the open scan is received, "ended" after it, or else ""; question:
    what is asked before that is ended, since such a scan cannot be taken again.
    """

    component = "scanTab"

    live = traitlets.Bool(False).tag(sync=True)
    unfolded = traitlets.Bool(True).tag(sync=True)
    path = shown(traitlets.Unicode(""))
    remarks: traitlets.List[dict[str, str]] = shown(traitlets.List())
    title: traitlets.List[str] = shown(traitlets.List())
    facts: traitlets.List[list[str]] = shown(traitlets.List())
    suggestion = shown(traitlets.Unicode(""))
    being_written = shown(traitlets.Bool(False))
    receiving = shown(traitlets.Unicode(""))
    question = shown(traitlets.Unicode(""))
    chooser = shown(traitlets.Instance(FileChooser))
    options = shown(traitlets.Instance(LoadFields))
    listening = shown(traitlets.Instance(ListenPanel))
    inspection = shown(traitlets.Instance(Inspect, allow_none=True))

    def __init__(self, session: Session, actions: Actions) -> None:
        self._session, self._actions = session, actions
        self._described: tuple[str, dict[str, Any]] | None = None
        self._suggested: dict[str, Any] = {}
        self._shown: Scan | None = None
        super().__init__(
            unfolded=session.scan is None,
            chooser=FileChooser(self._choose),
            options=LoadFields(self._put_describe),
            listening=ListenPanel(session, actions, self._take),
        )
        self._follow("scan")
        session.on_change(self._follow)

    @command
    def name_file(self, path: str) -> None:
        """Take the path of a file that was typed."""
        if path != self.path:
            self.path = path
            self._put_describe()

    @command
    def describe(self) -> None:
        """Show what the file contains, and what is missing."""
        self._put_describe(again=True)

    @command
    def suggest(self) -> None:
        """Enter what was suggested."""
        self.options.fill(self._suggested)

    @command
    def open(self) -> None:
        """Open the scan in the file."""
        self._actions.put(self._open, lane=SCAN)

    @command
    def listen_to_file(self) -> None:
        """Take the file, which is still being written, as a live source."""
        self.listening.fields.enter("source", self.path.strip())
        self.live = True

    @command
    def stop(self) -> None:
        """Ask whether to end the reception of the scan."""
        self._actions.put(self._ask, lane=SCAN)

    @command
    def answer(self, end: bool) -> None:
        """End the reception, or not."""
        self.question = ""
        if end:
            self._actions.put(self._session.stop_listening, lane=SCAN)

    @command
    def open_received(self) -> None:
        """Open the file with what came, to prepare it."""
        self._actions.put(self._open_received, lane=SCAN)

    def _follow(self, what: str) -> None:
        """Show the inspection of another scan."""
        scan = self._session.scan
        if what != "scan" or scan is None or scan is self._shown:
            return
        self._shown = scan
        before, shown = self.inspection, inspect(scan)
        shown.tell, shown.on_scan = self._session.tell, self._take_over
        live = scan.acquisition if isinstance(scan.acquisition, Acquisition) else None
        self.receiving, self.question = "" if live is None else "on", ""
        if live is not None:
            shown.on_end = self._show_end
            if live.index().ended is not None:  # before there was somebody to be told
                self._show_end()
        self.inspection = shown
        if before is not None:
            before.close()

    def close(self) -> None:
        """End the threads of what is shown; a scan that has begun is received on."""
        self.listening.close()
        if self.inspection is not None:
            self.inspection.close()
        super().close()

    @traitlets.observe("live")
    def _unfold(self, _: object) -> None:
        self.unfolded = True

    @traitlets.observe("live", "unfolded")
    def _look(self, _: object) -> None:
        if self.unfolded and not self.live:
            self.chooser.refresh()

    def _choose(self, path: Path, twice: bool) -> None:
        """Take a file that was clicked; a second click opens it."""
        text = _shortest(path)
        if text != self.path:
            self.options.clear()
            self.name_file(text)
        elif not twice:
            self.describe()
        if twice:
            self.open()

    def _put_describe(self, again: bool = False) -> None:
        """Queue the description of the file; again: also if nothing was changed since the last one."""
        if self.path.strip():
            self._actions.put(lambda: self._describe(again), instead_of=DESCRIBE, lane=SCAN)
        elif again:
            self._actions.put(self._entered, lane=SCAN)

    def _entered(self) -> tuple[str, dict[str, Any]]:
        """Return the path and the options of `load`."""
        path = self.path.strip()
        if not path:
            raise ScanError(
                "No file is named; click one in the list, or type the path of a scan, such as scan.cxi.",
                code="argument.missing",
            )
        with marking(self.options):
            return path, self.options.arguments

    def _describe(self, again: bool) -> None:
        path, options = self._entered()
        if not again and self._described == (path, options):
            return
        with marking(self.options):
            try:
                found = info(path, **options)
            except Exception as error:
                self._show_facts(None)
                self.being_written = isinstance(error, PtynbError) and error.code == "file.being-written"
                raise
        if found.suggested and any(fact.name == "geometry" for fact in found.facts):  # the file itself says it
            self.options.fill(found.suggested)
            options = self.options.arguments
            found = info(path, **options)
        other = again or self._described is None or self._described[0] != path
        self._described = path, options
        self._show_facts(found)
        if other:  # not while fields are filled in
            given = [repr(path), *(f"{name}={value!r}" for name, value in options.items())]
            self._session.tell(f"pt.info({', '.join(given)})")
            self.options.focus(self.options.lacking)

    def _show_facts(self, found: FileInfo | None) -> None:
        self._suggested = {} if found is None else found.suggested
        focus = self._suggested.get("focus_to_sample")
        about = "" if focus is None else f", focus to sample about {quantity((focus,), 'm')}"
        self.options.show(found)
        with self.hold_sync():
            self.suggestion = f"Use near field{about}" if self._suggested else ""
            self.being_written = False
            self.title = [] if found is None else [found.path, found.format]
            self.facts = [] if found is None else [[one.name, fact_text(one), one.place] for one in found.facts]
            self.remarks = [] if found is None else remarks_of(found)

    def _open(self) -> None:
        try:
            path, options = self._entered()
            self._session.load(path, **options)
        except Exception as error:
            self.unfolded = True  # most errors are of values that the fields replace
            with contextlib.suppress(PtynbError):  # of the same cause
                self._describe(False)
            if isinstance(error, PtynbError):
                self.options.mark(error)
            raise
        remember(Path(path).expanduser())
        self.unfolded = False

    def _take(self, scan: Scan) -> None:
        """Take over a scan that has begun to come."""
        self._session.scan = scan
        self.unfolded = False

    def _take_over(self, scan: Scan) -> None:
        """Take over a scan as it is inspected."""
        self._shown = self._session.scan = scan

    @property
    def _acquisition(self) -> Acquisition | None:
        """The acquisition of the scan that is being received."""
        found = None if self._session.scan is None else self._session.scan.acquisition
        return found if isinstance(found, Acquisition) else None

    def _ask(self) -> None:
        if self._acquisition is not None and self.receiving == "on":
            found = self._acquisition.index().summary()
            self.question = (
                f"End the scan? {found.arrived:,} of {found.planned:,} patterns came; those that come later are not "
                "received, and the scan cannot be continued."
            )

    def _show_end(self) -> None:
        """Offer what the end of the scan allows."""
        self.receiving, self.question = "ended", ""

    def _open_received(self) -> None:
        if self._acquisition is not None:
            path = _shortest(self._acquisition.folder / SCAN_NAME)
            self._session.load(path)
            remember(Path(path))


def _shortest(path: Path) -> str:
    """Return a path relative to the folder of the notebook if it is below."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
