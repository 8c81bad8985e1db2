"""Listening to a live source by mouse: its fields, the wait for the first pattern, and what came of it."""

from __future__ import annotations

import html
import threading
import time
from collections.abc import Callable

from ptynb.acquisition.listen import receive_scan
from ptynb.app.plan_fields import ListenArguments, PlanFields
from ptynb.app.session_state import Desk
from ptynb.data.scan import Scan
from ptynb.exceptions import PtynbError
from ptynb.widgets import elements
from ptynb.widgets.actions import Actions
from ptynb.widgets.shared_widgets import complaint, marking, note, put

LINE = "line"
"""Key of the actions that show the line of Python: only the newest is needed."""
CANCEL_SECONDS = 10.0
"""Time in which a receiver ends whose scan has not begun, when the panel is closed [s]."""


class ListenPanel(elements.VBox):
    """A source, the button that listens to it, and the fields of its plan (`fields`, placed by whoever shows this).

    heard: called with the scan once it has begun, in the panel's thread, which waits for it for as long as it takes.
    """

    def __init__(self, desk: Desk, heard: Callable[[Scan], None]) -> None:
        self._desk, self._heard = desk, heard
        self._cancelled = threading.Event()
        self._began = self._shown = 0.0
        self._notice = ""
        self.fields = PlanFields(self._edited)
        self.listen = elements.Button(
            description="Listen", icon="rss", button_style="primary", layout=elements.Layout(width="90px"),
            tooltip="Waits for the scan, and receives it while it is measured",
        )  # fmt: skip
        self.listen.on_click(lambda _: self.start())
        self.cancel = elements.Button(
            description="Cancel", icon="x", layout=elements.Layout(width="90px", display="none"),
            tooltip="Ends the wait; nothing is kept",
        )  # fmt: skip
        self.cancel.on_click(lambda _: self._cancelled.set())
        self.status = elements.HTML(layout=elements.Layout(width="auto", margin="0 6px"))
        super().__init__(
            [
                elements.HBox(
                    [self.listen, self.cancel, self.status],
                    layout=elements.Layout(flex_flow="row wrap", overflow="visible", align_items="center"),
                )
            ],
            layout=elements.Layout(flex="1 1 500px", min_width="0", overflow="visible"),
        )
        self._actions = Actions("ptynb listen", self._complain)

    @property
    def waiting(self) -> bool:
        """Whether a scan is waited for that has not begun."""
        return bool(self.listen.disabled)

    def start(self) -> None:
        """Listen to the source with what was entered."""
        if not self.waiting:
            self._cancelled.clear()
            self.listen.disabled = True
            self._actions.put(self._receive)

    def settle(self, seconds: float = 30.0) -> None:
        """Wait until the scan has begun, or an error is shown. Raises TimeoutError."""
        self._actions.settle(seconds)

    def close(self) -> None:
        """End a wait for a scan, with its receiver, and the thread; a scan that has begun is received on."""
        self._cancelled.set()
        if self.waiting:
            self._actions.settle(CANCEL_SECONDS)
        self._actions.close()
        super().close()

    def _edited(self) -> None:
        if not self.waiting:
            self._actions.put(self._show_line, instead_of=LINE)

    def _show_line(self) -> None:
        self.fields.mark(None)
        try:
            line = self.fields.arguments().line
        except PtynbError:  # what is not yet entered is no error before the button is pressed
            line = ""
        self.fields.line = line

    def _receive(self) -> None:
        try:
            self._listen()
        finally:
            self.cancel.layout.display = "none"
            self.listen.disabled = False

    def _listen(self) -> None:
        put(self.status, "")
        self.fields.mark(None)
        with marking(self.fields):
            given = self.fields.arguments()
            self.fields.line = given.line
            scan = self._receive_scan(given)
        if scan is None:
            put(self.status, '<span role="status">Cancelled; nothing was received.</span>')
            return
        self._desk.tell(given.line)
        self._heard(scan)

    def _receive_scan(self, given: ListenArguments) -> Scan | None:
        """Return the scan once it has begun; None if the wait was cancelled."""
        self._began, self._shown, self._notice = time.monotonic(), 0.0, ""
        self.cancel.layout.display = None
        try:
            return receive_scan(
                given.source, plan=given.plan, positions=given.positions, folder=given.folder, cancelled=self._waited,
                tell=self._take_notice,
            )  # fmt: skip
        except PtynbError as error:
            if error.code == "acquisition.cancelled":
                return None
            raise
        finally:
            put(self.status, "")

    def _waited(self) -> bool:
        """Show for how long the scan has been waited for; return whether to end the wait."""
        seconds = time.monotonic() - self._began
        if seconds - self._shown >= 1.0:
            self._shown = seconds
            text = f"waiting for the scan to begin, {int(seconds) // 60}:{int(seconds) % 60:02d}"
            put(
                self.status,
                '<progress aria-label="waiting for the scan" style="width:80px;vertical-align:middle"></progress> '
                f"{html.escape(text)}{note(self._notice) if self._notice else ''}",
            )
        return self._cancelled.is_set()

    def _take_notice(self, notice: str) -> None:
        self._notice = notice

    def _complain(self, error: Exception | None) -> None:
        """Show an error, unless a field shows it."""
        if error is not None and error is not self.fields.told:
            put(self.status, complaint(error))
