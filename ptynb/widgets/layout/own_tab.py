"""OwnTab: a button that shows a view in a tab of JupyterLab of its own."""

from __future__ import annotations

import traitlets

from ptynb.widgets.element_tree import Element


class OwnTab(Element):
    """A button that opens its page in a tab beside the notebook's, as large as the window; elsewhere it is hidden.

    title: of the tab. It shows the same elements: kernel and run are not affected, and closing the tab ends nothing.
    """

    component = "ownTab"

    title = traitlets.Unicode("").tag(sync=True)
