"""Processor cores."""

from __future__ import annotations

import os
import sys

import psutil


def usable_cores() -> int:
    """Processor cores that this process may use."""
    return len(psutil.Process().cpu_affinity()) if sys.platform != "darwin" else os.cpu_count() or 1
