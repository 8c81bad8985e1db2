"""How loops are compiled: by numba, at the first call for each type of arrays."""

from __future__ import annotations

import functools
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
    return _kept(functools.partial(numba.njit, nogil=True, fastmath=REORDER, error_model="numpy"), function)


def callback(signature: Any, function: Callable[..., Any]) -> int:
    """The address of a function for compiled loops to call; kept on disk as they are."""
    address: int = _kept(functools.partial(numba.cfunc, signature), function).address
    return address


def _kept(compiler: Callable[..., Callable[[Any], Any]], function: Callable[..., Any]) -> Any:
    # numba looks at the file that a loop is in, not at those of the loops that it calls: all are in the name of what it
    # keeps.
    function.__qualname__ += f"_{_VERSION}"
    try:
        return compiler(cache=True)(function)
    except RuntimeError:  # no folder can be written, neither beside the file nor the user's own
        return compiler()(function)
