"""The search for runs that continue without a notebook."""

from __future__ import annotations

from collections.abc import Callable

from ptynb.data.scan import Scan
from ptynb.exceptions import ClusterError
from ptynb.session.resume import any_held_elsewhere, going_on
from ptynb.widgets.actions import View, repeat

WAITING_SECONDS = 20
"""Time that a page waits for an earlier page that may be about to detach from the run."""


def look_for_runs(
    view: View,
    scan: Scan | None,
    found: Callable[[View, dict[str, str]], None],
    complain: Callable[[View, Exception | None], None],
    *,
    wait: bool,
) -> None:
    """Search for runs of this scan (None: of any) in a thread until the view is closed.

    found: called with name and description of each. wait: for one that another process is about to detach from.
    """
    tries = iter(range(WAITING_SECONDS if wait else 1, 0, -1))
    ended: list[bool] = []

    def search(this: View) -> None:
        if ended:
            return
        ended.append(True)
        try:
            runs = going_on(scan)
        except ClusterError:  # a cluster that is just ending
            runs = {}
        if runs:
            found(this, runs)
        elif next(tries) > 1 and any_held_elsewhere():
            ended.clear()

    repeat(view, "ptynb resume offer", 1.0, search, complain, over=lambda _: bool(ended)).set()
