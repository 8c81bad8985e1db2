"""The viewer's JavaScript module, style sheet and colour maps, for notebooks and reports."""

from __future__ import annotations

from pathlib import Path

from ptynb.widgets.layout.browser_module import module_of

HERE = Path(__file__).parent
SCRIPTS = HERE / "scripts"
PARTS = (
    "viewer_pixels.js",
    "viewer_geometry.js",
    "viewer_icons.js",
    "viewer_overlay.js",
    "viewer_contrast.js",
    "viewer_measures.js",
    "viewer_spectrum.js",
    "viewer_pane.js",
    "viewer_colouring.js",
    "viewer_cursor.js",
    "viewer_measuring.js",
    "viewer_pair.js",
    "viewer_input.js",
    "viewer_saving.js",
    "viewer_figure.js",
    "viewer_toolbar.js",
    "viewer.js",
)
"""Files of the JavaScript module, in order."""
COLOURS = ("gray", "viridis", "cividis", "magma", "PuOr", "twilight")
"""Colour maps to choose from: perceptually uniform; PuOr diverges, for differences, twilight is cyclic, for phases."""
CYCLIC = ("twilight", "twilight_shifted")
"""Cyclic maps, for which the browser does not change the contrast."""


def script() -> str:
    """Return the JavaScript module."""
    return module_of(*(SCRIPTS / part for part in PARTS))


def styles() -> str:
    """Return the style sheet."""
    return (HERE / "viewer.css").read_text(encoding="utf-8")
