"""A workbench comes back to what goes on without it: by itself, or with a click on a line at its top."""

from __future__ import annotations

import html
import threading
import weakref
from collections.abc import Callable
from functools import partial

import ipywidgets

from ptynb.data.scan import Scan
from ptynb.exceptions import ClusterError
from ptynb.session.resume import any_held_elsewhere, going_on
from ptynb.widgets.actions import Actions
from ptynb.widgets.elements import Whole, close_all, free

LEAVING_SECONDS = 20
"""How long a page waits for the one before it, which may just be letting go of the run."""


class Offer(Whole):
    """A line for each run that goes on without a notebook, with a button that comes back to it.

    take: comes back to the run of this name, in the thread of the actions; actions: their queue.
    """

    def __init__(self, actions: Actions, take: Callable[[str], None]) -> None:
        self._actions, self._take = actions, take
        self._ended = threading.Event()
        super().__init__(layout=free())
        self.add_class("ptynb-offer")

    def look(self, scan: Scan | None, by_itself: bool = False) -> None:
        """Looks for such runs of this scan (None: of any) in a thread of its own, and offers them.

        by_itself: where there is exactly one it is come back to at once, and one that another process is just letting
        go of is waited for.
        """
        threading.Thread(
            target=_look, args=(weakref.ref(self), self._ended, scan, by_itself), name="ptynb coming back", daemon=True
        ).start()

    def found(self, runs: dict[str, str], by_itself: bool) -> None:
        """Takes over what goes on: names, and what each is in words."""
        if by_itself and len(runs) == 1:
            self._actions.put(partial(self._take, *runs))
        else:
            self.children = [self._line(name, words) for name, words in runs.items()]

    def end(self) -> None:
        """There is a run now: nothing is offered any more, nor looked for."""
        self._ended.set()
        lines, self.children = self.children, []
        close_all(*lines)

    def close(self) -> None:
        """Ends the looking too."""
        self._ended.set()
        super().close()

    def _line(self, name: str, words: str) -> ipywidgets.HBox:
        button = ipywidgets.Button(
            description="Come back to it", icon="plug", tooltip=f"pt.attach({name!r})",
            layout=ipywidgets.Layout(width="auto"),
        )  # fmt: skip
        button.on_click(lambda _: self._actions.put(partial(self._take, name)))
        text = ipywidgets.HTML(f'<span role="status">A run goes on without a notebook: {html.escape(words)}.</span>')
        layout = ipywidgets.Layout(flex_flow="row wrap", overflow="visible", align_items="center")
        return ipywidgets.HBox([button, text], layout=layout)


def _look(offer: weakref.ref[Offer], ended: threading.Event, scan: Scan | None, by_itself: bool) -> None:
    for _ in range(LEAVING_SECONDS if by_itself else 1):
        try:
            runs = going_on(scan)
        except ClusterError:  # one that ends just now
            runs = {}
        shown = offer()
        if shown is None or ended.is_set():
            return
        if runs:
            shown.found(runs, by_itself)
            return
        del shown
        if not any_held_elsewhere() or ended.wait(1.0):
            return
