"""Compilation of loops by numba, at the first call for each combination of argument types."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

REORDER = {"reassoc", "contract", "nsz"}
"""Fast-math flags that allow vectorised sums and products; NaN is still detected."""
_SOURCES = sorted(Path(__file__).parent.glob("*.py"))
_VERSION = hashlib.sha256(b"".join(source.read_bytes() for source in _SOURCES)).hexdigest()[:12]


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a loop that releases Python's global lock (GIL); cached on disk if a folder is writable."""
    return _kept(functools.partial(numba.njit, nogil=True, fastmath=REORDER, error_model="numpy"), function)


def callback(signature: Any, function: Callable[..., Any]) -> int:
    """Return the address of a function, compiled so that loops can call it; cached on disk like loops."""
    address: int = _kept(functools.partial(numba.cfunc, signature), function).address
    return address


def _kept(compiler: Callable[..., Callable[[Any], Any]], function: Callable[..., Any]) -> Any:
    # numba recompiles a loop if its own file changes, but not if files with the loops that it calls change: the name in
    # the cache contains a hash of all of them.
    function.__qualname__ += f"_{_VERSION}"
    try:
        return compiler(cache=True)(function)
    except RuntimeError:  # neither the folder of the file nor the user's cache folder is writable
        return compiler()(function)
