"""Module search path of the processes that a command starts."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

VARIABLE = "PYTHONSAFEPATH"


@contextlib.contextmanager
def without_working_folder() -> Iterator[None]:
    """Context in which Python processes start without the working folder in their module search path.

    Engines are started with `python -m`, which searches there first: a psutil.py beside a scan or a run file would be
    run instead of the package.
    """
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = before


def with_working_folder() -> None:
    """Python processes started from now on search there, for modules that the user has named."""
    os.environ.pop(VARIABLE, None)
