"""The search for a run that continues without a notebook."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ptynb.data.scan import Scan
from ptynb.exceptions import ClusterError
from ptynb.session.resume import any_held_elsewhere, going_on
from ptynb.widgets.actions import repeat

WAITING_SECONDS = 20
"""Time that a page waits for an earlier page that may be about to detach from the run."""


class ResumeSearch:
    """A search for runs of a scan that continue without a notebook, in a thread, until it is closed.

    found: called with the name and the description of each; failed: with an error.
    """

    def __init__(self, found: Callable[[dict[str, str]], None], failed: Callable[[Exception], None]) -> None:
        self._found, self._failed = found, failed
        self._ended = threading.Event()

    @property
    def closed(self) -> bool:
        """Whether the search has ended."""
        return self._ended.is_set()

    def begin(self, scan: Scan | None, wait: bool = False) -> None:
        """Search for runs of this scan (None: of any). wait: for one that another process is about to detach from."""
        tries = iter(range(WAITING_SECONDS if wait else 1, 0, -1))

        def search(this: ResumeSearch) -> None:
            try:
                runs = going_on(scan)
            except ClusterError:  # a cluster that is just ending
                runs = {}
            if runs and not this.closed:
                this._found(runs)
            if runs or next(tries) == 1 or not any_held_elsewhere():
                this.close()

        def fail(this: ResumeSearch, error: Exception | None) -> None:
            this.close()
            if error is not None:
                this._failed(error)

        repeat(self, "ptynb resume offer", 1.0, search, fail).set()

    def close(self) -> None:
        """End the search."""
        self._ended.set()
