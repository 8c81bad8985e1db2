"""Listening to a live source by mouse: its fields, the wait for the first pattern, and what came of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import traitlets

from ptynb.acquisition.listen import receive_scan
from ptynb.app.plan_fields import ListenArguments, PlanFields
from ptynb.app.session_state import LISTENING, Session
from ptynb.data.scan import Scan
from ptynb.exceptions import PtynbError
from ptynb.polling import wait_until
from ptynb.widgets.actions import Actions
from ptynb.widgets.element_tree import Element, command, shown

CANCEL_SECONDS = 10.0
"""Time in which a receiver ends whose scan has not begun, when the panel is closed [s]."""


class ListenPanel(Element):
    """A source and its plan, and the wait for its scan.

    heard: called with the scan once it has begun. busy: whether a scan is waited for that has not begun; waiting: for
    how long; notice: what the receiver says; status: how the wait ended.
    """

    component = "listenPanel"

    fields = shown(traitlets.Instance(PlanFields))
    busy = shown(traitlets.Bool(False))
    waiting = shown(traitlets.Unicode(""))
    notice = shown(traitlets.Unicode(""))
    status = shown(traitlets.Unicode(""))

    def __init__(self, session: Session, actions: Actions, heard: Callable[[Scan], None]) -> None:
        self._session, self._actions, self._heard = session, actions, heard
        self._cancelled = threading.Event()
        self._began = 0.0
        super().__init__(fields=PlanFields(self._edited))

    @command
    def listen(self) -> None:
        """Listen to the source with what was entered."""
        if not self.busy:
            self._cancelled.clear()
            self.busy = True
            self._actions.put(self._receive, lane=LISTENING)

    @command
    def cancel(self) -> None:
        """End the wait; nothing is kept."""
        self._cancelled.set()

    def close(self) -> None:
        """End a wait for a scan, with its receiver; a scan that has begun is received on."""
        self._cancelled.set()
        wait_until(lambda: not self.busy, CANCEL_SECONDS)
        super().close()

    def _edited(self) -> None:
        if not self.busy:
            self._actions.put(self._show_line, instead_of="plan", lane=LISTENING)

    def _show_line(self) -> None:
        self.fields.mark(None)
        try:
            self.fields.line = self.fields.arguments().line
        except PtynbError:  # what is not yet entered is no error before the button is pressed
            self.fields.line = ""

    def _receive(self) -> None:
        self.status = ""
        self.fields.mark(None)
        try:
            try:
                given = self.fields.arguments()
                self.fields.line = given.line
                scan = self._receive_scan(given)
            except PtynbError as error:
                if error.code == "acquisition.cancelled":
                    self.status = "Cancelled; nothing was received."
                else:
                    self.fields.mark(error)
                return
            self._session.tell(given.line)
            self._heard(scan)
        finally:
            self.busy = False

    def _receive_scan(self, given: ListenArguments) -> Scan:
        """Return the scan once it has begun, after as long as it takes."""
        self._began, self.notice = time.monotonic(), ""
        try:
            return receive_scan(
                given.source, plan=given.plan, positions=given.positions, folder=given.folder, cancelled=self._waited,
                tell=self._take_notice,
            )  # fmt: skip
        finally:
            self.waiting = ""

    def _waited(self) -> bool:
        """Show for how long the scan has been waited for; return whether to end the wait."""
        seconds = int(time.monotonic() - self._began)
        self.waiting = f"waiting for the scan to begin, {seconds // 60}:{seconds % 60:02d}"
        return self._cancelled.is_set()

    def _take_notice(self, notice: str) -> None:
        self.notice = notice
