"""Numbers as physicists write them: 0, 12.3, 1.2e-3."""

from __future__ import annotations

import re

EXPONENT = re.compile(r"e([-+])0*(\d+)$")


def number(value: float, digits: int = 4) -> str:
    """Return a number with so many significant digits, without zeros that say nothing: 1e-5, not 1e-05."""
    text = f"{value:.{digits}g}"
    return EXPONENT.sub(lambda found: f"e{'-' if found[1] == '-' else ''}{found[2]}", "0" if text == "-0" else text)
