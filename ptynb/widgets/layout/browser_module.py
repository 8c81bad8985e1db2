"""The JavaScript module of a widget."""

from __future__ import annotations

from pathlib import Path

FOLLOWING = Path(__file__).parent / "following.js"


def module_of(*parts: Path) -> str:
    """Return the module of an anywidget from its parts, the last of which exports `following(render)`."""
    return "\n".join(part.read_text(encoding="utf-8") for part in (FOLLOWING, *parts))
