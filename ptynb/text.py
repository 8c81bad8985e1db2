"""Text from elsewhere (a file, a library, a user) made fit for one line of a message."""

from __future__ import annotations

import unicodedata

LONGEST = 200
"""Characters of such a text in a message: it may be anything."""


def in_one_line(value: object, longest: int = LONGEST) -> str:
    """A value as text in one line of at most `longest` characters, with escapes for what a terminal would obey."""
    text = " ".join(str(value).split())
    if not text.isprintable():
        # No more than is shown is escaped; an escape is longer than its character.
        text = "".join(one if one.isprintable() else _escaped(one) for one in text[: longest + 1])
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def quoted(value: object, longest: int = LONGEST) -> str:
    """A value as Python writes it, in one line; its type where it has no `repr`, as an integer of 5000 digits."""
    try:
        return in_one_line(repr(value), longest)
    except (ValueError, RecursionError):
        return f"<{type(value).__name__} that is too long to be shown>"


def has_control_characters(text: str) -> bool:
    """Whether it has line breaks, NUL or others that are no text, or halves of a character."""
    return not text.isprintable() and any(unicodedata.category(one) in ("Cc", "Cs") for one in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
