"""How loops are compiled: by numba, at the first call for each type of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

REORDER = {"reassoc", "contract", "nsz"}
"""What a loop may do with sums and products to run in vectors; that a number is none is still seen."""


def compiled(function: Callable[..., Any]) -> Any:
    """A loop that lets go of the interpreter's lock; kept on disk where there is a place for it."""
    options: dict[str, Any] = {"nogil": True, "fastmath": REORDER, "error_model": "numpy"}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder can be written, neither beside the file nor the user's own
        return numba.njit(**options)(function)
