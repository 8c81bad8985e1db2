"""Addresses of functions of the operating system, for compiled code."""

from __future__ import annotations

import ctypes
from typing import Any


def system_function(name: str, library: str | None = None) -> Any:
    """Return a function of a library, or of the loaded libraries; None if it does not exist."""
    try:
        return getattr(ctypes.CDLL(library), name)
    except (AttributeError, OSError, TypeError):
        return None


def address_of(function: Any) -> int:
    """Return the address of a function; 0 for None."""
    return 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0
