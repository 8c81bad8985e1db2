"""The widget of a notebook that shows elements; see `element_tree`."""

from __future__ import annotations

import functools
import gzip
import hashlib
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets
import traitlets

from ptynb.widgets.element_tree import Element, ElementPage

STATIC = Path(__file__).parent / "static"


class PageScript(ipywidgets.Widget):
    """The bundle of scripts and styles of all pages, once in a kernel; packed: by gzip."""

    packed = traitlets.Bytes().tag(sync=True)
    digest = traitlets.Unicode().tag(sync=True)


class Channel(ipywidgets.Widget):
    """The elements of a page, and messages about them.

    It is a model without a view: a model of anywidget refuses all messages once its script took two seconds to load.
    """

    tree: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)

    def __init__(self, root: Element) -> None:
        self.page = ElementPage(root, self.send)
        super().__init__()
        self.on_msg(lambda _, content, buffers: self.page.receive(content, buffers))

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> dict[str, Any]:
        """Return the state of the widget, with the elements as they are now."""
        state = super().get_state(key, drop_defaults)
        return {**state, "tree": self.page.tree()} if "tree" in state else state


class PageWidget(anywidget.AnyWidget):
    """The widget that shows an element and all below it."""

    _esm = (STATIC / "loader.js").read_text(encoding="utf-8")
    own = traitlets.Unicode().tag(sync=True)
    script = traitlets.Unicode().tag(sync=True)
    channel = traitlets.Unicode().tag(sync=True)

    def __init__(self, root: Element) -> None:
        self._channel = Channel(root)
        super().__init__(script=_script().model_id, channel=self._channel.model_id)
        self.own = self.model_id  # by which another view of it is made

    def close(self) -> None:
        """Close the widget; the elements stay."""
        self._channel.page.close()
        layout = self.layout
        super().close()
        layout.close()
        self._channel.close()


@functools.cache
def script_text() -> str:
    """Return the bundle of scripts and styles of all pages, a module of JavaScript."""
    return (STATIC / "ptynb.js").read_text(encoding="utf-8")


@functools.cache
def _script() -> PageScript:
    text = script_text().encode()
    return PageScript(packed=gzip.compress(text, mtime=0), digest=hashlib.sha256(text).hexdigest())
