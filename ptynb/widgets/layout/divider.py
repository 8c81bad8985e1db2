"""Divider: what stands between pictures and controls; it gives the pictures the window's height and arranges them."""

from __future__ import annotations

import traitlets

from ptynb.widgets.element_tree import Element


class Divider(Element):
    """A line that is dragged to divide a view between pictures and controls, with a button that folds the controls.

    It is a child of a box of class `ptynb-split`, between those of class `ptynb-split-pictures` and
    `ptynb-split-controls`. The height of that box follows what the window shows, so that the view needs no scrolling;
    the pictures (viewers of class `ptynb-main` and `ptynb-aside`, and a box of class `ptynb-curve`) are arranged so
    that those of the main viewer are as large as they can be. Width and fold are kept by the browser for all views.

    room: width and height of the box of class `ptynb-curve` [screen pixels], set by the page, to draw curves to its
    size; (0, 0): not known yet.
    """

    component = "divider"

    room: traitlets.List[int] = traitlets.List(traitlets.Int(), [0, 0], minlen=2, maxlen=2).tag(sync=True)
