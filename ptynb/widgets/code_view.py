"""CodeView: lines of Python with a button that copies them."""

from __future__ import annotations

from collections.abc import Iterable

import traitlets

from ptynb.widgets.element_tree import Element


class CodeView(Element):
    """Lines of Python, with a button that copies them; it scrolls to the newest line unless the user scrolled away."""

    component = "codeView"

    lines: traitlets.List[str] = traitlets.List(traitlets.Unicode()).tag(sync=True)

    def __init__(self, lines: Iterable[str] = ()) -> None:
        super().__init__()
        self.lines = list(lines)

    @property
    def text(self) -> str:
        """All lines."""
        return "\n".join(self.lines)
