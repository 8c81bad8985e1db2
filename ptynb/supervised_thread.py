"""The threads of this package: an error that ends the work of one is reported, and the work begins again where it must.

Python prints what ends a thread, on an engine into a log that nobody reads, and of SystemExit not even that. What the
thread was for would then be missing without a word: the lease of an engine, the time limit of a collective, the record
of a run. Work that others wait for gives them its error by itself (a future, a failure of the run); of all other errors
`problems` has a sentence, which is among the notices of each reconstruction.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

RESTART_SECONDS = 1.0
"""Time after which work that has failed begins again [s]."""
MOST_PROBLEMS = 100

logger = logging.getLogger(__name__)
_problems = dict[str, None]()


def problems() -> tuple[str, ...]:
    """Return a sentence for each error that nothing else reports, of the background threads of this process."""
    return tuple(_problems)


def report(what: str, error: BaseException) -> None:
    """Note and log an error, once. what: the subject of the sentence, and what follows from the error."""
    problem = f"{what} ({type(error).__name__}: {error})."
    if problem not in _problems and len(_problems) < MOST_PROBLEMS:
        _problems[problem] = None
        logger.error(problem, exc_info=error)


class SupervisedThread(threading.Thread):
    """Thread that reports the error by which its work ends."""

    def __init__(
        self, name: str, work: Callable[..., object], *arguments: Any, restarts: bool = False, daemon: bool = True
    ) -> None:
        """restarts: whether `work`, which goes on until it is told to end, is called again after an error."""
        super().__init__(name=name, daemon=daemon)
        self._work, self._arguments, self._restarts = work, arguments, restarts

    def run(self) -> None:
        """Do the work."""
        while not self._is_done():
            time.sleep(RESTART_SECONDS)
        del self._work, self._arguments  # as Thread does: they may reference this thread

    def _is_done(self) -> bool:
        try:
            self._work(*self._arguments)
        except BaseException as error:  # noqa: BLE001 - reported, whatever it is
            outcome = "failed and was started again" if self._restarts else "ended by an error"
            report(f"The background thread {self.name!r} {outcome}", error)
            return not self._restarts
        return True
