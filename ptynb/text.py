"""Text from files, libraries and users, made safe for one line of a message."""

from __future__ import annotations

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


def counted(number: int, noun: str) -> str:
    """Return '1 thread', '2 threads', '2,000 threads'."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def has_control_characters(text: str) -> bool:
    """Whether a text has control characters (line breaks, NUL, ...) or surrogates."""
    return not text.isprintable() and any(unicodedata.category(one) in ("Cc", "Cs") for one in text)
