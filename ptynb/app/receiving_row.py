"""What can be done with a scan that is being received: end it, once a question is answered, and open what came."""

from __future__ import annotations

from collections.abc import Callable

from ptynb.app.session_state import SCAN
from ptynb.data.arrivals import Acquisition
from ptynb.widgets import elements
from ptynb.widgets.actions import Actions
from ptynb.widgets.shared_widgets import free, put

STOP_LINE = "scan.stop_listening()"


class ReceivingRow(elements.VBox):
    """Buttons that end the reception of a scan and open its file; hidden without such a scan.

    A scan that was ended cannot be taken again, so that this is asked first, in place.
    stop, open_received: carried out by `actions`.
    """

    def __init__(self, actions: Actions, stop: Callable[[], None], open_received: Callable[[], None]) -> None:
        self._acquisition: Acquisition | None = None
        self.stop = _button("Stop listening", "stop", "Ends the reception, after a question; what has come is kept")
        self.stop.on_click(lambda _: actions.put(self._ask, lane=SCAN))
        self.received = _button("Open received scan", "folder-open", "Opens the file with what came, to prepare it")
        self.received.on_click(lambda _: actions.put(open_received, lane=SCAN))
        self.end = _button("End the scan", "stop", STOP_LINE)
        self.end.button_style = "danger"
        self.end.on_click(lambda _: actions.put(lambda: self._answered(stop), lane=SCAN))
        self.keep = _button("Keep listening", "rss", "Nothing is ended")
        self.keep.on_click(lambda _: actions.put(self._hide_question, lane=SCAN))
        self._about = elements.HTML(layout=elements.Layout(width="auto", margin="0 6px"))
        wrap = elements.Layout(flex_flow="row wrap", overflow="visible", align_items="center", display="none")
        self.question = elements.HBox([self.end, self.keep, self._about], layout=wrap)
        super().__init__([elements.HBox([self.stop, self.received], layout=free()), self.question], layout=free())
        self.show(None)

    def show(self, acquisition: Acquisition | None) -> None:
        """Offer what is possible with the scan that is open; None: it is not one that is received."""
        self._acquisition = acquisition
        self.layout.display = "none" if acquisition is None else None
        self.stop.disabled, self.received.disabled = False, True
        self._hide_question()

    def show_end(self) -> None:
        """Offer what the end of the scan allows."""
        self.stop.disabled, self.received.disabled = True, False
        self._hide_question()

    def _ask(self) -> None:
        if self._acquisition is None or self.stop.disabled:
            return
        found = self._acquisition.index().summary()
        put(
            self._about,
            f'<div role="status">End the scan? {found.arrived:,} of {found.planned:,} patterns came; those that come '
            f"later are not received, and the scan cannot be continued. <code>{STOP_LINE}</code></div>",
        )
        self.question.layout.display = None

    def _answered(self, stop: Callable[[], None]) -> None:
        self._hide_question()
        stop()

    def _hide_question(self) -> None:
        self.question.layout.display = "none"
        put(self._about, "")


def _button(text: str, icon: str, tooltip: str) -> elements.Button:
    return elements.Button(description=text, icon=icon, tooltip=tooltip, layout=elements.Layout(width="auto"))
