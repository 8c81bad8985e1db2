"""What the line of a group says: whether its part is on, and what was changed or ticked in it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ptynb.settings.schema import Entries, Section, Setting
from ptynb.widgets.form.field_row import fitting_unit, text_of
from ptynb.widgets.form.field_search import choice_label
from ptynb.widgets.form.part_switches import SWITCHES
from ptynb.widgets.form.unsaved_settings import Draft
from ptynb.widgets.number_text import number

Page = Section | Entries


@dataclass(frozen=True)
class GroupState:
    """What a group shows: whether it is on (None: it has no switch), a summary, and the number of changed fields.

    names: dotted names of the changed fields; those of a list's entries have none.
    """

    on: bool | None
    summary: str = ""
    changed: int = 0
    names: tuple[str, ...] = ()


def state_of(part: Page, draft: Draft, changed: Collection[str], ticked: Collection[str]) -> GroupState:
    """Return what the line of a part shows. changed, ticked: dotted names of fields."""
    if isinstance(part, Entries):
        on = [part.kind(entry.kind).title for entry in draft.entries[part.name] if entry.on]
        return GroupState(None, ", ".join(on) or "none", len(on))
    switch = SWITCHES.get(part.name)
    is_on = None if switch is None else any(draft.value(name) != value for name, value in switch.off.items())
    edited = [setting for setting in part.settings if setting.name in changed]
    parts = [] if is_on is not False else ["off"]
    parts += [f"{setting.title.lower()} {value_words(setting, draft.value(setting.name))}" for setting in edited]
    tuned = sum(setting.name in ticked for setting in part.settings)
    parts += [f"{tuned} tuned"] if tuned else []
    return GroupState(
        is_on,
        " · ".join(parts) if edited or tuned else " · ".join([*parts, part.description]),
        len(edited),
        tuple(setting.name for setting in edited),
    )


def value_words(setting: Setting, value: Any) -> str:
    """Return a value with its unit, or the words for a choice; numbers are shortened."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if not setting.numeric:
        return choice_label(str(value))
    unit = fitting_unit(setting, value)
    text = text_of(value, setting, unit)
    short = number(float(text)) if isinstance(value, float) else text
    return " ".join(filter(None, (short or "none", unit)))
