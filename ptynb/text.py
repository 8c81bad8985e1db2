"""Text from files, libraries and users: made safe for one line of a message, and in the order of its numbers."""

from __future__ import annotations

import re
import unicodedata

LONGEST = 200
"""Largest number of characters of such a text in a message."""


def in_one_line(value: object, longest: int = LONGEST) -> str:
    """Return a value as one line of at most `longest` characters, with control characters escaped."""
    text = " ".join(str(value).split())
    if not text.isprintable():
        # Only the visible part is escaped; an escape is longer than its character.
        text = "".join(
            one if one.isprintable() else one.encode("unicode_escape").decode() for one in text[: longest + 1]
        )
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def quoted(value: object, longest: int = LONGEST) -> str:
    """Return the `repr` of a value in one line; its type if that fails, as for an integer of 5000 digits."""
    try:
        return in_one_line(repr(value), longest)
    except (ValueError, RecursionError):
        return f"<{type(value).__name__} that is too long to be shown>"


Order = tuple[list[tuple[int, str]], str]
"""Key of `natural_order`."""


def natural_order(name: str) -> Order:
    """Return a sort key with numbers in numerical order, however many digits they have: "f2" before "f10"."""
    parts = re.split(r"0*([0-9]+)", name)
    # Of numbers, which are every other part, the longer one is the larger; as `int` they must not have 5000 digits.
    return [(len(part) if index % 2 else 0, part) for index, part in enumerate(parts)], name


def counted(number: int, noun: str) -> str:
    """Return '1 thread', '2 threads', '2,000 threads'."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def has_control_characters(text: str) -> bool:
    """Whether a text has control characters (line breaks, NUL, ...) or surrogates."""
    return not text.isprintable() and any(unicodedata.category(one) in ("Cc", "Cs") for one in text)
