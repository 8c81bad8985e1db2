"""Drawer: pages below a row of buttons, of which one at most is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import traitlets

from ptynb.widgets import elements
from ptynb.widgets.element_tree import Element
from ptynb.widgets.shared_widgets import free


class DrawerButtons(Element):
    """The buttons of a drawer. shown: number of the page that is shown, from 1; 0: none, the drawer is shut.

    The browser shows and hides pages by itself, so that they open while the kernel is busy.
    """

    component = "drawer"

    titles: traitlets.List[str] = traitlets.List(traitlets.Unicode()).tag(sync=True)
    icons: traitlets.List[str] = traitlets.List(traitlets.Enum(elements.ICONS)).tag(sync=True)
    description = traitlets.Unicode("").tag(sync=True)
    shown = traitlets.Int(0, min=0).tag(sync=True)


class Drawer(elements.VBox):
    """Pages that are out of the way until their button is pressed, which also shuts them again.

    description: what the pages have in common, for screen readers. icons: names of icons (Lucide), by title.
    beside: widgets left of the buttons, in their row.
    """

    def __init__(
        self,
        pages: Mapping[str, elements.Element],
        description: str,
        *,
        icons: Mapping[str, str] | None = None,
        beside: tuple[elements.Element, ...] = (),
    ) -> None:
        self._titles = [*pages]
        icon = icons or {}
        self.buttons = DrawerButtons(
            titles=self._titles, icons=[icon.get(title, "") for title in pages], description=description
        )
        boxes = []
        for number, page in enumerate(pages.values(), 1):
            box = elements.VBox([page], layout=free())
            box.add_class("ptynb-drawer-page")
            box.add_class(f"ptynb-drawer-page-{number}")
            boxes.append(box)
        row = elements.HBox([*beside, self.buttons], layout=free())
        row.add_class("ptynb-drawer-row")
        super().__init__([row, *boxes], layout=free())
        self.add_class("ptynb-drawer")

    @property
    def shown(self) -> str | None:
        """Title of the page that is shown; assignment shows a page, None shuts the drawer."""
        return self._titles[self.buttons.shown - 1] if self.buttons.shown else None

    @shown.setter
    def shown(self, title: str | None) -> None:
        self.buttons.shown = 0 if title is None else self._titles.index(title) + 1

    def on_change(self, callback: Callable[[], None]) -> None:
        """Register a function that is called when another page is shown."""
        self.buttons.observe(lambda _: callback(), "shown")
