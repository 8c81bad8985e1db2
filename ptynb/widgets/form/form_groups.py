"""The settings of a form in groups, one for each part of the model, the algorithm, and the lists.

A group is one line: a switch if the part can be off, its title, and a summary. While it is on, the fields that matter
first are below; the others are unfolded, and created then. In a compact form, beside pictures, only fields that were
changed are below a line that is not unfolded, and groups with such fields come first.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence

from ptynb.settings.schema import Entries, structure
from ptynb.widgets import elements
from ptynb.widgets.form.group_summary import GroupState, Page
from ptynb.widgets.form.part_switches import SWITCHES
from ptynb.widgets.shared_widgets import free, put

LEFT = (
    "Algorithm", "Batches", "object", "probe", "slices", "tilt", "positions", "affine", "probe_offset", "aberrations",
)  # fmt: skip
RIGHT = (
    "opr", "pattern_intensities", "background", "descan", "fly_scan", "detector", "schedule", "stop", "regularizers",
    "constraints", "Computing",
)  # fmt: skip
"""Names of the groups in two columns, or below each other in this order."""
FIRST = {
    "probe": ("probe.modes",),
    "slices": ("slices.count", "slices.thickness"),
    "aberrations": ("aberrations.order",),
    "opr": ("opr.modes",),
    "descan": ("descan.start",),
}
"""Fields that come first in their group; the others follow in the order of the settings."""


class FormGroup(elements.VBox):
    """The line of a part, and its fields.

    boxes: returns the widgets of fields, by dotted name, or of the list. switched: called with the name of the part and
    whether it is to be on. fixed: whether it cannot be switched. compact: see the module.
    """

    def __init__(
        self,
        part: Page,
        boxes: Callable[[Page, Sequence[str]], Sequence[elements.Element]],
        switched: Callable[[str, bool], None],
        fixed: bool,
        compact: bool,
    ) -> None:
        self.part, self._boxes, self._switched, self._compact = part, boxes, switched, compact
        first = FIRST.get(part.name, ())
        names = [] if isinstance(part, Entries) else [setting.name for setting in part.settings if setting.simple]
        self._first = [*first, *(name for name in names if name not in first)]
        self._state = GroupState(False if part.name in SWITCHES else None)
        self.switch: elements.Checkbox | None = None
        place = elements.Layout(width="200px", flex="0 0 auto", margin="0 0 0 2px")
        if part.name in SWITCHES:
            self.switch = elements.Checkbox(
                value=False, description=part.title, tooltip=f"{part.description}: on or off", indent=False,
                disabled=fixed, layout=place,
            )  # fmt: skip
            self.switch.observe(self._clicked, "value")
        head = self.switch or elements.HTML(f"<b>{html.escape(part.title)}</b>", layout=place)
        self.fold = elements.ToggleButton(
            value=False, icon="chevron-right", tooltip=f"{part.title}: all settings",
            layout=elements.Layout(width="30px", height="24px", flex="0 0 auto", padding="0"),
        )  # fmt: skip
        self.fold.observe(lambda _: self._arrange(), "value")
        self.summary = elements.HTML(layout=elements.Layout(flex="1 1 0%", min_width="0"))
        line = elements.HBox([self.fold, head, self.summary], layout=elements.Layout(align_items="center"))
        line.add_class("ptynb-group-line")
        self._fields, self._more = elements.VBox(layout=free()), elements.VBox(layout=free())
        super().__init__([line, self._fields, self._more], layout=free())
        self.add_class("ptynb-group")
        self._arrange()

    @property
    def unfolded(self) -> bool:
        """Whether all settings of the group are shown."""
        return bool(self.fold.value)

    def unfold(self) -> None:
        """Show all settings."""
        self.fold.value = True

    def show(self, state: GroupState) -> None:
        """Show whether the part is on, and its summary."""
        self._state = state
        if self.switch is not None:
            self.switch.value = bool(state.on)
        mark = f"<b>● {state.changed} changed</b> " if state.changed else ""
        put(
            self.summary,
            f'<div class="ptynb-clip" title="{html.escape(state.summary)}">{mark}{html.escape(state.summary)}</div>',
        )
        self._arrange()

    def make_all(self) -> None:
        """Create the widgets of all settings."""
        self._fill(self._fields, self._first)
        self._fill(self._more, self._others())

    def _others(self) -> list[str]:
        if isinstance(self.part, Entries):
            return [self.part.name]
        return [setting.name for setting in self.part.settings if setting.name not in self._first]

    def _fill(self, box: elements.VBox, names: Sequence[str]) -> None:
        if names and not box.children:
            box.children = tuple(self._boxes(self.part, names))

    def _arrange(self) -> None:
        on = self._state.on is not False
        shown = {self._fields: on or self.unfolded, self._more: self.unfolded}
        if self._compact:
            self._arrange_compact()
            shown[self._fields] = True
        elif shown[self._fields]:
            self._fill(self._fields, self._first)
        if self.unfolded:
            self._fill(self._more, self._others())
        for box, visible in shown.items():
            box.layout.display = None if visible else "none"
        self.fold.icon = "chevron-down" if self.unfolded else "chevron-right"

    def _arrange_compact(self) -> None:
        self.layout.order = "-1" if self._state.changed else "1" if self._state.on is False else "0"
        others = set(self._others())
        names = self._first if self.unfolded else [name for name in self._state.names if name not in others]
        fields = tuple(self._boxes(self.part, names)) if names else ()
        if not self.unfolded:  # those of the others that were changed are in their own box while it is unfolded
            changed = [name for name in self._state.names if name in others]
            fields += tuple(self._boxes(self.part, changed)) if changed else ()
        if self._fields.children != fields:
            self._fields.children = fields

    def _clicked(self, change: dict[str, bool]) -> None:
        if change["new"] is not bool(self._state.on):
            self._switched(self.part.name, change["new"])


class FormGroups(elements.Box):
    """All groups, in two columns where there is the width for it."""

    def __init__(
        self,
        boxes: Callable[[Page, Sequence[str]], Sequence[elements.Element]],
        switched: Callable[[str, bool], None],
        fixed: Callable[[str], bool],
        *,
        lists: bool,
        compact: bool = False,
    ) -> None:
        """fixed: whether the field of a name cannot be changed. compact: see the module."""

        def is_fixed(part: Page) -> bool:
            return part.name in SWITCHES and any(fixed(name) for name in SWITCHES[part.name].on)

        parts: list[Page] = [*structure().sections, *(structure().lists if lists else ())]
        self.groups = {part.name: FormGroup(part, boxes, switched, is_fixed(part), compact) for part in parts}
        columns = [
            elements.VBox(
                [self.groups[name] for name in names if name in self.groups],
                layout=elements.Layout(flex=f"1 1 {400 if compact else 560}px", min_width="0", overflow="visible"),
            )
            for names in (LEFT, RIGHT)
        ]
        super().__init__(columns, layout=free())
        self.layout.display, self.layout.flex_flow = "flex", "row wrap"
        self.add_class("ptynb-groups")
        if compact:
            self.add_class("ptynb-compact")

    def make_all(self) -> None:
        """Create the widgets of all settings."""
        for group in self.groups.values():
            group.make_all()
