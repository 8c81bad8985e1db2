"""The offer of a workbench to attach to a run that continues without a notebook, or attaching to it without a click."""

from __future__ import annotations

import html
import threading
from collections.abc import Callable
from functools import partial

from ptynb.app.session_state import RUN
from ptynb.data.scan import Scan
from ptynb.exceptions import ClusterError
from ptynb.session.resume import any_held_elsewhere, going_on
from ptynb.widgets import elements
from ptynb.widgets.actions import Actions, repeat
from ptynb.widgets.shared_widgets import free

WAITING_SECONDS = 20
"""Time that a page waits for an earlier page that may be about to detach from the run."""


class Offer(elements.VBox):
    """A line for each run that continues without a notebook, with a button that attaches to it.

    take: attaches to the run of this name, in the thread of the actions; actions: their queue.
    """

    def __init__(self, actions: Actions, take: Callable[[str], None]) -> None:
        self._actions, self._take = actions, take
        self._ended = threading.Event()
        super().__init__(layout=free())
        self.add_class("ptynb-offer")

    @property
    def closed(self) -> bool:
        """Whether the search has ended."""
        return self._ended.is_set()

    def look(self, scan: Scan | None, by_itself: bool = False) -> None:
        """Search for such runs of this scan (None: of any) in a thread, and offer them.

        by_itself: attaches without a click if there is exactly one, and waits for one that another process is about to
        detach from.
        """
        tries = iter(range(WAITING_SECONDS if by_itself else 1, 0, -1))
        self._ended.clear()

        def search(offer: Offer) -> None:
            try:
                runs = going_on(scan)
            except ClusterError:  # a cluster that is just ending
                runs = {}
            if runs and not offer.closed:
                offer.found(runs, by_itself)
            if runs or next(tries) == 1 or not any_held_elsewhere():
                offer._ended.set()

        def fail(offer: Offer, error: Exception | None) -> None:
            offer._ended.set()
            if error is not None:
                offer._actions.put(partial(_raise, error), lane=RUN)  # which shows the error

        repeat(self, "ptynb resume offer", 1.0, search, fail).set()

    def found(self, runs: dict[str, str], by_itself: bool) -> None:
        """Offer runs: name and description of each."""
        if by_itself and len(runs) == 1:
            self._actions.put(partial(self._take, *runs), lane=RUN)
        else:
            self.children = [self._line(name, text) for name, text in runs.items()]

    def end(self) -> None:
        """Remove the offer and end the search, as there is a run now."""
        self._ended.set()
        lines, self.children = self.children, []
        for one in lines:
            one.close()

    def close(self) -> None:
        """Close the offer and end the search."""
        self._ended.set()
        super().close()

    def _line(self, name: str, text: str) -> elements.HBox:
        button = elements.Button(
            description="Attach", icon="plug", tooltip=f"pt.attach({name!r})",
            layout=elements.Layout(width="auto"),
        )  # fmt: skip
        button.on_click(lambda _: self._actions.put(partial(self._take, name), lane=RUN))
        label = elements.HTML(f'<span role="status">A run continues without a notebook: {html.escape(text)}.</span>')
        layout = elements.Layout(flex_flow="row wrap", overflow="visible", align_items="center")
        return elements.HBox([button, label], layout=layout)


def _raise(error: Exception) -> None:
    raise error
