"""Where the processes that a command starts look for modules."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

VARIABLE = "PYTHONSAFEPATH"


@contextlib.contextmanager
def without_working_folder() -> Iterator[None]:
    """Python started meanwhile does not look for modules in the working folder.

    Engines are started with `python -m`, which looks there first: beside somebody's scan or run file a psutil.py would
    be run in the place of the package.
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
    """Python started from now on does look there, for modules of the user's that were asked for."""
    os.environ.pop(VARIABLE, None)
