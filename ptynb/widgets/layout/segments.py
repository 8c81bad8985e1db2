"""Segments: a choice between few things, of which one is always chosen, as buttons in a row."""

from __future__ import annotations

from collections.abc import Sequence

import traitlets

from ptynb.widgets import elements
from ptynb.widgets.element_tree import Element


class Segments(Element):
    """Buttons side by side of which one is pressed. chosen: its text. icons: names of icons (Lucide).

    description: what is chosen, for screen readers.
    """

    component = "segments"

    options: traitlets.List[str] = traitlets.List(traitlets.Unicode()).tag(sync=True)
    icons: traitlets.List[str] = traitlets.List(traitlets.Enum(elements.ICONS)).tag(sync=True)
    chosen = traitlets.Unicode("").tag(sync=True)
    description = traitlets.Unicode("").tag(sync=True)

    def __init__(self, description: str, options: Sequence[str], icons: Sequence[str] = ()) -> None:
        super().__init__(description=description, options=[*options], icons=[*icons], chosen=options[0])

    @traitlets.validate("chosen")
    def _offered(self, proposal: traitlets.Bunch) -> str:
        """Ignore texts that are no option, which a browser may send."""
        return str(proposal["value"]) if proposal["value"] in self.options else self.chosen
