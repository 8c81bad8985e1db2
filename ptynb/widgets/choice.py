"""Choice: a list that may change while the user selects from it.

The browser identifies a selection by its key, not by its index: after a change of the list an index would select
another option than the one that was clicked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import traitlets

from ptynb.widgets.element_tree import Element

Option = tuple[str, str]
"""Key and text."""


class Choice(Element):
    """A labelled list from which one option, or several, are selected.

    options: (key, text) of each, with unique keys. chosen: selected keys, at most one unless `several`; a browser may
    send a key that is not among the options any more, which the caller has to handle.
    rows: number of visible rows; 1: a menu. head: titles of columns above the list.
    """

    component = "choice"

    options: traitlets.List[Option] = traitlets.List(traitlets.Tuple(traitlets.Unicode(), traitlets.Unicode())).tag(
        sync=True
    )
    chosen: traitlets.List[str] = traitlets.List(traitlets.Unicode()).tag(sync=True)
    description = traitlets.Unicode("").tag(sync=True)
    head = traitlets.Unicode("").tag(sync=True)
    rows = traitlets.Int(1, min=1).tag(sync=True)
    several = traitlets.Bool(False).tag(sync=True)
    disabled = traitlets.Bool(False).tag(sync=True)

    def __init__(
        self,
        description: str,
        options: Iterable[Option] = (),
        *,
        rows: int = 1,
        several: bool = False,
        head: str = "",
        width: str = "260px",
    ) -> None:
        """width: of label and list together [CSS]."""
        super().__init__(description=description, rows=rows, several=several, head=head, options=[*options])
        self.layout.width, self.layout.max_width = width, "100%"

    @property
    def offered(self) -> list[str]:
        """The keys of all options."""
        return [key for key, _ in self.options]

    @property
    def value(self) -> str | None:
        """The first selected key, or None; assignment selects a key."""
        return self.chosen[0] if self.chosen else None

    @value.setter
    def value(self, key: str | None) -> None:
        self.chosen = [] if key is None else [key]

    def offer(self, options: Iterable[Option], chosen: Sequence[str] | None = None) -> None:
        """Replace the options. chosen: selected keys; None: keeps those that are among the options."""
        options = [*options]
        keys = {key for key, _ in options}
        with self.hold_trait_notifications(), self.hold_sync():
            self.options = options
            self.chosen = [key for key in (self.chosen if chosen is None else chosen) if key in keys]
