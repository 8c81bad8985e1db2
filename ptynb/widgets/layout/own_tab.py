"""OwnTab: a button that shows a view in a tab of JupyterLab of its own."""

from __future__ import annotations

import anywidget
import ipywidgets
import traitlets

from ptynb.widgets.layout.browser_module import module_of


class OwnTab(anywidget.AnyWidget):
    """A button that opens a view in a tab beside the notebook's, as large as the window; elsewhere it is hidden.

    target: identifier of the view's model. title: of the tab. It is the same view: kernel and run are not affected, and
    closing the tab ends nothing.
    """

    _esm = module_of("ownTab")

    target = traitlets.Unicode("").tag(sync=True)
    title = traitlets.Unicode("").tag(sync=True)

    def show(self, view: ipywidgets.Widget, title: str) -> None:
        """Set the view that the button opens, and the title of its tab."""
        self.target, self.title = view.model_id, title
