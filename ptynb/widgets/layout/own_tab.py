"""OwnTab: a button that shows a view in a tab of JupyterLab of its own."""

from __future__ import annotations

import traitlets

from ptynb.widgets import elements
from ptynb.widgets.page import Element


class OwnTab(Element):
    """A button that opens a view in a tab beside the notebook's, as large as the window; elsewhere it is hidden.

    target: key of the view. title: of the tab. It is the same view: kernel and run are not affected, and
    closing the tab ends nothing.
    """

    component = "ownTab"

    target = traitlets.Unicode("").tag(sync=True)
    title = traitlets.Unicode("").tag(sync=True)

    def show(self, view: elements.Element, title: str) -> None:
        """Set the view that the button opens, and the title of its tab."""
        self.target, self.title = view.key, title
