"""Choice: a list that changes while one chooses from it.

A browser that tells a choice by its number in the list means the neighbour where the list has become another one
meanwhile. This one tells it by its key, so that a choice means what was seen, or nothing that there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import anywidget
import traitlets

HERE = Path(__file__).parent

Option = tuple[str, str]
"""Key and text."""


class Choice(anywidget.AnyWidget):
    """A labelled list from which one is chosen, or several.

    options: (key, text) of each; keys are unlike each other. chosen: their keys, at most one unless `several`; a key
    that is not, or no longer, among the options can come from a browser, and is the caller's to refuse.
    rows: in sight at a time; 1: a menu that opens. head: titles of columns, above the list, for texts with columns.
    """

    _esm = (HERE / "choice.js").read_text(encoding="utf-8")
    _css = (HERE / "choice.css").read_text(encoding="utf-8")

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
        """width: of all of it, label and list [CSS]."""
        super().__init__(description=description, rows=rows, several=several, head=head, options=[*options])
        self.layout.width, self.layout.max_width = width, "100%"

    @property
    def offered(self) -> list[str]:
        """The keys of all options."""
        return [key for key, _ in self.options]

    @property
    def value(self) -> str | None:
        """The key that is chosen, of several the first; None where none is. Assigning chooses."""
        return self.chosen[0] if self.chosen else None

    @value.setter
    def value(self, key: str | None) -> None:
        self.chosen = [] if key is None else [key]

    def offer(self, options: Iterable[Option], chosen: Sequence[str] | None = None) -> None:
        """Other options. chosen: keys; None: what is chosen stays so, as far as it is still among them."""
        options = [*options]
        there = {key for key, _ in options}
        with self.hold_trait_notifications(), self.hold_sync():
            self.options = options
            self.chosen = [key for key in (self.chosen if chosen is None else chosen) if key in there]
