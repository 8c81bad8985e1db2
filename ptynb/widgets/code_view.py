"""CodeView: lines of Python with a button that copies them."""

from __future__ import annotations

from collections.abc import Iterable

import anywidget
import traitlets

from ptynb.widgets.layout.browser_module import module_of


class CodeView(anywidget.AnyWidget):
    """Lines of Python, with a button that copies them; it scrolls to the newest line unless the user scrolled away."""

    _esm = module_of("codeView")

    lines: traitlets.List[str] = traitlets.List(traitlets.Unicode()).tag(sync=True)

    def __init__(self, lines: Iterable[str] = ()) -> None:
        super().__init__()
        self.lines = list(lines)

    @property
    def text(self) -> str:
        """All lines."""
        return "\n".join(self.lines)
