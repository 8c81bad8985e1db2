"""What several widgets are made with."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

import ipywidgets

STATE_COLOURS = {
    "running": "#2e7d32",
    "paused": "#b26a00",
    "ready": "#1565c0",
    "recovering": "#6a1b9a",
    "failed": "#c62828",
}


def below(box: ipywidgets.Box) -> Iterator[ipywidgets.Widget]:
    """All widgets in a box, and in the boxes in it."""
    for widget in box.children:
        if isinstance(widget, ipywidgets.Box):
            yield from below(widget)
        yield widget


class Whole(ipywidgets.VBox):
    """A box that is closed as a whole: with it all that is in it."""

    def close(self) -> None:
        """Closes what is in it, and itself."""
        close_all(*self.children)
        super().close()
        _undress(self)

    def __del__(self) -> None:
        # One whose making was refused has nothing to close; ipywidgets would try, and print what goes wrong.
        if self.comm is not None:
            super().__del__()


def close_all(*widgets: ipywidgets.Widget) -> None:
    """Closes these and what is in them, with their layouts and styles, which ipywidgets remembers apart until then."""
    for widget in widgets:
        if isinstance(widget, ipywidgets.Box) and not isinstance(widget, Whole):
            close_all(*widget.children)
        widget.close()
        _undress(widget)


def _undress(widget: ipywidgets.Widget) -> None:
    for name in ("layout", "style"):
        part = widget._trait_values.get(name)  # one that was never asked for is not made now
        if isinstance(part, ipywidgets.Widget):
            part.close()


def put(widget: ipywidgets.HTML, value: str) -> None:
    """Sets the value if it is another one, so that nothing travels to the browser for nothing."""
    if widget.value != value:
        widget.value = value


def in_a_row(state: str, parts: Sequence[str]) -> str:
    """HTML: the state in its colour, and the parts, which are HTML, beside it."""
    colour = STATE_COLOURS.get(state, "#555")
    badge = f'<b style="background:{colour};color:white;border-radius:4px;padding:2px 8px">{html.escape(state)}</b>'
    spans = "".join(f'<span style="margin-right:18px">{part}</span>' for part in (badge, *parts))
    return f'<div style="font-variant-numeric:tabular-nums;line-height:2">{spans}</div>'


def free(width: str = "100%") -> ipywidgets.Layout:
    """The layout of a box that never scrolls by itself: what does not fit is the page's to scroll."""
    return ipywidgets.Layout(overflow="visible", width=width)


def complaint(error: Exception | str) -> str:
    """HTML of something that went wrong: its first line beside a red bar, the rest as details."""
    return _box(str(error), "#c62828", "alert")


def note(text: str) -> str:
    """HTML of something to know, beside an amber bar."""
    return _box(text, "#b26a00", "status")


def _box(text: str, colour: str, role: str) -> str:
    first, *more = text.split("\n", 1)
    details = f"<details><summary>details</summary><pre>{html.escape(more[0])}</pre></details>" if more else ""
    style = f"border-left:4px solid {colour};padding:4px 10px;margin:4px 0;line-height:1.4"
    return f'<div role="{role}" style="{style}">{html.escape(first)}{details}</div>'
