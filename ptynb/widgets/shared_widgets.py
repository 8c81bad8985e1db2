"""Helpers that several widgets share."""

from __future__ import annotations

import html
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from ptynb.exceptions import PtynbError
from ptynb.widgets import elements


class Form(Protocol):
    """A view with fields."""

    def mark(self, error: PtynbError) -> object:
        """Show which fields an error is about, by its `fields`."""


@contextmanager
def marking(form: Form) -> Iterator[None]:
    """Mark the fields of a form that an error of what is done inside is about."""
    try:
        yield
    except PtynbError as error:
        form.mark(error)
        raise


class CancelledError(Exception):
    """The user has cancelled what a `CancelBar` shows."""


class CancelBar(elements.VBox):
    """A progress bar with a button that cancels, shown from `begin` to `end`."""

    def __init__(self, what: str, tooltip: str) -> None:
        self._cancelled = threading.Event()
        self.bar = elements.IntProgress(
            description=what, style={"description_width": "initial"}, layout=elements.Layout(width="240px")
        )
        button = elements.Button(
            description=f"Cancel {what.lower()}", icon="x", tooltip=tooltip, layout=elements.Layout(width="auto")
        )
        button.on_click(lambda _: self._cancelled.set())
        row = elements.HBox([self.bar, button], layout=elements.Layout(overflow="visible", align_items="center"))
        super().__init__([row], layout=elements.Layout(overflow="visible", display="none"))

    def begin(self) -> None:
        """Show an empty bar."""
        self._cancelled.clear()
        self.bar.value, self.layout.display = 0, None

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled since `begin`."""
        return self._cancelled.is_set()

    def show(self, done: int, total: int) -> None:
        """Show the progress. Raises CancelledError if it was cancelled."""
        if self.cancelled:
            raise CancelledError
        self.bar.max, self.bar.value = total, done

    def end(self) -> None:
        """Hide the bar."""
        self.layout.display = "none"

    def close(self) -> None:
        """Cancel, and close the bar."""
        self._cancelled.set()
        super().close()


def put(widget: elements.HTML, value: str) -> None:
    """Set the value if it differs, to avoid needless messages to the browser."""
    if widget.value != value:
        widget.value = value


def free(width: str = "100%") -> elements.Layout:
    """Return the layout of a box without scroll bars of its own: the page scrolls."""
    return elements.Layout(overflow="visible", width=width)


def complaint(error: Exception | str | None) -> str:
    """Return HTML of an error: its first line beside a red bar, the rest as details; "" for None."""
    return "" if error is None else _box(str(error), "#c62828", "alert")


def _box(text: str, colour: str, role: str) -> str:
    first, *more = text.split("\n", 1)
    details = f"<details><summary>details</summary><pre>{html.escape(more[0])}</pre></details>" if more else ""
    style = f"border-left:4px solid {colour};padding:4px 10px;margin:4px 0;line-height:1.4"
    return f'<div role="{role}" style="{style}">{html.escape(first)}{details}</div>'
