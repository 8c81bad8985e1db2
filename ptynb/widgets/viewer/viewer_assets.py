"""The viewer's module and styles as text, and its colour maps: for a notebook, and for the page of a report."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
PARTS = (
    "viewer_pixels.js",
    "viewer_geometry.js",
    "viewer_overlay.js",
    "viewer_pane.js",
    "viewer_input.js",
    "viewer_tools.js",
    "viewer.js",
)
"""The browser's module, joined from these files in this order."""
COLOURS = ("gray", "viridis", "cividis", "magma", "twilight")
"""Colour maps to choose from: perceptually uniform; twilight ends where it begins, for phases."""
CYCLIC = ("twilight", "twilight_shifted")
"""Maps of which no part may stand for the whole: the browser does not narrow their contrast."""


def script() -> str:
    """The module of the browser."""
    return "\n".join((HERE / part).read_text(encoding="utf-8") for part in PARTS)


def styles() -> str:
    """Its style sheet."""
    return (HERE / "viewer.css").read_text(encoding="utf-8")
