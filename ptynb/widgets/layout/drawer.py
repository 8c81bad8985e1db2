"""Drawer: pages below a row of buttons, of which one at most is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import traitlets

from ptynb.widgets import elements
from ptynb.widgets.element_tree import Element


class Drawer(Element):
    """Pages that are out of the way until their button is pressed, which also shuts them again.

    pages: elements by their titles. description: what they have in common, for screen readers. icons: names of icons
    (Lucide), by title. beside: elements left of the buttons. shown: title of the page that is shown; None: the drawer
    is shut. The browser shows and hides pages by itself, so that they open while the kernel is busy.
    """

    component = "drawer"
    titles: traitlets.List[str] = traitlets.List(traitlets.Unicode()).tag(sync=True)
    icons: traitlets.List[str] = traitlets.List(traitlets.Enum(elements.ICONS)).tag(sync=True)
    description = traitlets.Unicode("").tag(sync=True)
    pages: Any = traitlets.List().tag(sync=True)
    beside: Any = traitlets.List().tag(sync=True)
    shown = traitlets.Unicode(None, allow_none=True).tag(sync=True)

    def __init__(
        self,
        pages: Mapping[str, Element],
        description: str,
        *,
        icons: Mapping[str, str] | None = None,
        beside: tuple[Element, ...] = (),
    ) -> None:
        icon = icons or {}
        super().__init__(
            titles=[*pages],
            icons=[icon.get(title, "") for title in pages],
            description=description,
            pages=[*pages.values()],
            beside=[*beside],
        )

    @traitlets.validate("shown")
    def _known(self, proposal: Any) -> str | None:
        title = proposal["value"]
        if title is not None and title not in self.titles:
            raise traitlets.TraitError(f"There is no page {title!r}; the pages are {self.titles}.")
        return None if title is None else str(title)

    def on_change(self, callback: Callable[[], None]) -> None:
        """Register a function that is called when another page is shown."""
        self.observe(lambda _: callback(), "shown")

    def close(self) -> None:
        """Close the drawer and all that is in it."""
        for element in (*self.beside, *self.pages):
            element.close()
        super().close()
