"""The settings of a form that are not simple: a page for each section, created when it is first opened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import ipywidgets

from ptynb.settings.schema import Entries, Section, structure
from ptynb.widgets.form.unsaved_settings import Entry

Page = Section | Entries


class SettingsPages(ipywidgets.VBox):
    """A button that shows the pages; `fill` creates the widgets of a page."""

    def __init__(self, fill: Callable[[Page], Sequence[ipywidgets.Widget]], *, lists: bool) -> None:
        self._fill = fill
        sections = [part for part in structure().sections if any(not setting.simple for setting in part.settings)]
        self._parts: list[Page] = [*sections, *(structure().lists if lists else ())]
        self._pages = [ipywidgets.VBox(layout=ipywidgets.Layout(overflow="visible")) for _ in self._parts]
        self.button = ipywidgets.ToggleButton(
            value=False,
            description="More settings",
            icon="caret-down",
            tooltip="Shows or hides all other settings",
            layout=ipywidgets.Layout(width="230px"),
        )
        self.button.observe(lambda _: self._show_pages(), "value")
        self.pages = ipywidgets.Accordion(self._pages, titles=[part.title for part in self._parts], selected_index=None)
        self.pages.layout.display = "none"
        self.pages.observe(lambda change: self._opened(change["new"]), "selected_index")
        super().__init__([self.button, self.pages], layout=ipywidgets.Layout(overflow="visible"))

    def open_all(self) -> None:
        """Create the widgets of every page."""
        for index in range(len(self._pages)):
            self._opened(index)

    def show(self, changed: Iterable[str], entries: Mapping[str, Sequence[Entry]]) -> None:
        """Show in titles how many settings differ from their defaults and how many entries are on."""
        hidden = [name for name in changed if not structure().setting(name).simple]
        titles = tuple(_title(part, hidden, entries) for part in self._parts)
        if self.pages.titles != titles:
            self.pages.titles = titles
        self.button.description = f"More settings ({len(hidden)} changed)" if hidden else "More settings"

    def _show_pages(self) -> None:
        self.pages.layout.display = None if self.button.value else "none"

    def _opened(self, index: int | None) -> None:
        if index is not None and not self._pages[index].children:
            self._pages[index].children = tuple(self._fill(self._parts[index]))


def _title(part: Page, changed: Sequence[str], entries: Mapping[str, Sequence[Any]]) -> str:
    if isinstance(part, Entries):
        on = sum(entry.on for entry in entries[part.name])
        return f"{part.title} ({on} on)" if on else part.title
    names = {setting.name for setting in part.settings}
    count = sum(name in names for name in changed)
    return f"{part.title} ({count} changed)" if count else part.title
