"""FileList: the files and folders of a folder, as a list for mouse and keyboard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import traitlets

from ptynb.widgets.element_tree import Element

Item = tuple[str, str, str, str, str]
"""Key, kind ("folder", "scan" or "other"), name, size and date."""


class FileList(Element):
    """A list whose items are opened by a click or Enter; arrows move along it, Backspace goes up.

    items: see `Item`. current: key of the item that is marked. opened: called with the key of a clicked item, and
    whether it was a double click; ups: called for Backspace. A browser may send a key that is not in the list any more.
    """

    component = "fileList"

    items: traitlets.List[Item] = traitlets.List(traitlets.Tuple(*(traitlets.Unicode() for _ in range(5)))).tag(
        sync=True
    )
    current = traitlets.Unicode("").tag(sync=True)
    label = traitlets.Unicode("").tag(sync=True)

    def __init__(self, opened: Callable[[str, bool], None], up: Callable[[], None]) -> None:
        self._opened, self._up = opened, up
        super().__init__()
        self.on_msg(self._said)

    def _said(self, _: Any, content: Any, __: Any) -> None:
        if content.get("up"):
            self._up()
        elif isinstance(key := content.get("open"), str):
            self._opened(key, bool(content.get("twice")))
