"""A list of the settings in a form: entries are added, switched on and off, moved and removed."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import Any

from ptynb.settings.schema import Entries
from ptynb.widgets import elements
from ptynb.widgets.form.field_row import MISSING, Row
from ptynb.widgets.form.unsaved_settings import Draft, Entry
from ptynb.widgets.shared_widgets import complaint, put


class EntriesEditor(elements.VBox):
    """The entries of one list of the settings; `edited` is called after each change of the draft."""

    def __init__(self, entries: Entries, draft: Draft, edited: Callable[[], None], *, reason: str = "") -> None:
        self._entries, self._draft, self._edited, self._reason = entries, draft, edited, reason
        self.panels: dict[Entry, EntryPanel] = {}
        singular = entries.title.lower().removesuffix("s")
        self.kind = elements.Dropdown(
            options=[(kind.title, kind.kind) for kind in entries.kinds],
            description=f"New {singular}",
            style={"description_width": "150px"},
            layout=elements.Layout(width="380px"),
            disabled=bool(reason),
        )
        self.add = elements.Button(
            description="Add",
            tooltip=f"Adds a {singular} of this kind",
            disabled=bool(reason),
            layout=elements.Layout(width="64px"),
        )
        self.add.on_click(lambda _: self._add())
        self._about = elements.HTML()
        self.kind.observe(lambda _: self._describe(), "value")
        self._describe()
        self._list = elements.VBox(layout=elements.Layout(overflow="visible"))
        top = elements.HBox([self.kind, self.add], layout=elements.Layout(overflow="visible"))
        note = elements.HTML(html.escape(f"{entries.description}. {reason}".strip()))
        super().__init__([note, self._list, top, self._about], layout=elements.Layout(overflow="visible"))
        self.refresh()

    def refresh(self) -> None:
        """Show the entries of the draft."""
        entries = self._draft.entries[self._entries.name]
        for removed in [entry for entry in self.panels if entry not in entries]:
            del self.panels[removed]
        for entry in entries:
            if entry not in self.panels:
                self.panels[entry] = EntryPanel(self._entries, entry, self, bool(self._reason))
            self.panels[entry].refresh(self._draft.problems)
        children = tuple(self.panels[entry] for entry in entries)
        if self._list.children != children:
            self._list.children = children

    def changed(self) -> None:
        """Validate the draft after an edit of an entry."""
        self._draft.check()
        self._edited()

    def move_up(self, entry: Entry) -> None:
        """Move an entry up by one."""
        entries = self._draft.entries[self._entries.name]
        at = entries.index(entry)
        if at > 0:
            entries[at - 1], entries[at] = entries[at], entries[at - 1]
            self.changed()

    def remove(self, entry: Entry) -> None:
        """Remove an entry."""
        self._draft.entries[self._entries.name].remove(entry)
        self.changed()

    def _add(self) -> None:
        self._draft.entries[self._entries.name].append(Entry(self.kind.value))
        self.changed()

    def _describe(self) -> None:
        kind = self._entries.kind(self.kind.value)
        put(self._about, f'<div style="margin-left:158px;font-size:90%">{html.escape(kind.description)}</div>')


class EntryPanel(elements.VBox):
    """One entry: a checkbox, its fields, and buttons to move and remove it."""

    def __init__(self, entries: Entries, entry: Entry, editor: EntriesEditor, fixed: bool) -> None:
        kind = entries.kind(entry.kind)
        self.entry, self._editor = entry, editor
        self.on = elements.Checkbox(
            value=entry.on,
            description=kind.title,
            tooltip=f"{kind.description} Off: it is not part of the settings.",
            indent=False,
            disabled=fixed,
            layout=elements.Layout(width="200px"),
        )
        self.on.observe(self._switched, "value")
        self.up, self.remove = (
            elements.Button(
                description=text, tooltip=f"{kind.title}: {tip}", disabled=fixed, layout=elements.Layout(width="80px")
            )
            for text, tip in (("Move up", "move before the previous entry"), ("Remove", "remove this entry"))
        )
        self.up.on_click(lambda _: editor.move_up(entry))
        self.remove.on_click(lambda _: editor.remove(entry))
        reason = "cannot be changed during a run" if fixed else ""
        self.rows = {setting.name: self._row(setting, reason) for setting in kind.settings}
        self._message = elements.HTML()
        about = elements.HTML(f'<span style="font-size:90%">{html.escape(kind.description)}</span>')
        head = elements.HBox([self.on, self.up, self.remove], layout=elements.Layout(overflow="visible"))
        super().__init__(
            [head, about, *self.rows.values(), self._message],
            layout=elements.Layout(
                overflow="visible", border_left="3px solid #1565c0", padding="0 0 0 8px", margin="4px 0"
            ),
        )

    def refresh(self, problems: dict[Any, str]) -> None:
        """Show the values of the entry and their problems."""
        self.on.value = self.entry.on
        for name, row in self.rows.items():
            value = self.entry.values.get(name, MISSING if row.setting.required else row.setting.default)
            row.show(
                value,
                changed=name in self.entry.values and not row.setting.required,
                default=row.setting.default,
                problem=problems.get((self.entry, name), ""),
            )
        problem = problems.get((self.entry, ""), "")
        put(self._message, complaint(f"{problem}.") if problem else "")

    def _row(self, setting: Any, reason: str) -> Row:
        name = setting.name
        return Row(
            setting,
            setting.title,
            lambda value: self._enter(name, value),
            lambda: self._enter(name, MISSING),
            reason=reason,
        )

    def _enter(self, name: str, value: Any) -> None:
        if value is MISSING:
            self.entry.values.pop(name, None)
        else:
            self.entry.values[name] = value
        self._editor.changed()

    def _switched(self, change: dict[str, Any]) -> None:
        if change["new"] != self.entry.on:
            self.entry.on = change["new"]
            self._editor.changed()
