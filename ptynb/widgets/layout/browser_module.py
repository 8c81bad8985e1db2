"""The JavaScript modules of widgets, built from the sources in `frontend/`."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

BUNDLE = Path(__file__).parent.parent / "static" / "ptynb.js"


def module_of(component: str) -> str:
    """Return the module of an anywidget that shows a component of the bundle, by its name in `components.js`."""
    bundle, components = _bundle()
    return f"{bundle}\nexport default {{ render: {components}.{component} }};\n"


@cache
def _bundle() -> tuple[str, str]:
    """The bundle, and what it calls its components."""
    bundle = BUNDLE.read_text(encoding="utf-8")
    found = re.search(r"export\s*\{[^}]*?([\w$]+) as components\b", bundle)
    assert found, "the bundle exports its components"
    return bundle, found[1]
