"""How loops are compiled: by numba, at the first call for each type of arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

REORDER = {"reassoc", "contract", "nsz"}
"""What a loop may do with sums and products to run in vectors; that a number is none is still seen."""
_SOURCES = sorted(Path(__file__).parent.glob("*.py"))
_VERSION = hashlib.sha256(b"".join(source.read_bytes() for source in _SOURCES)).hexdigest()[:12]


def compiled(function: Callable[..., Any]) -> Any:
    """A loop that lets go of the interpreter's lock; kept on disk where there is a place for it."""
    # numba looks at the file that a loop is in, not at those of the loops that it calls: all are in the name of what it
    # keeps.
    function.__qualname__ += f"_{_VERSION}"
    options: dict[str, Any] = {"nogil": True, "fastmath": REORDER, "error_model": "numpy"}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder can be written, neither beside the file nor the user's own
        return numba.njit(**options)(function)
