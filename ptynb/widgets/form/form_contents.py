"""What a form of settings shows, as plain data: its groups and fields, and the values and marks of a draft.

A group is one line: a switch if the part can be off, its title, and a summary. While it is on, the fields that matter
first are below; the others are unfolded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ptynb.settings import Settings
from ptynb.settings.base_models import PartSwitch
from ptynb.settings.schema import Entries, Section, Setting, structure
from ptynb.widgets.form import field_words as words
from ptynb.widgets.form.unsaved_settings import Draft, is_of_entry

Plain = dict[str, Any]


def _below(part: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{part}.{name}": value for name, value in values.items()}


SWITCHES = {
    name: PartSwitch(_below(name, one.off), _below(name, one.on), _below(name, one.unused))
    for name, field in Settings.model_fields.items()
    if (one := getattr(field.annotation, "switch", None)) is not None
}
"""Part -> its switch, with the dotted names of its fields."""


def schema() -> Plain:
    """Return all groups with their fields, and the fields of entries, which several kinds of them may share."""
    fields: list[Plain] = []
    parts: tuple[Section | Entries, ...] = (*structure().sections, *structure().lists)
    groups = sorted((_group(part, fields) for part in parts), key=lambda group: bool(group["name"] == "Computing"))
    return {"groups": groups, "entryFields": fields}


def _group(part: Section | Entries, fields: list[Plain]) -> Plain:
    group: Plain = {"name": part.name, "title": part.title, "about": part.description}
    if isinstance(part, Entries):
        kinds = [
            {
                "kind": kind.kind,
                "title": kind.title,
                "about": kind.description,
                "fields": [_index(_field(setting, setting.title), fields) for setting in kind.settings],
            }
            for kind in part.kinds
        ]
        return group | {"kinds": kinds}
    # What a part is comes before how it is updated; of the fields, those of the base class are first.
    first = sorted((one for one in part.settings if one.simple), key=lambda one: one.name.endswith(".learning_rate"))
    others = [setting for setting in part.settings if not setting.simple]
    group |= {"fields": [_field(setting, words.label_of(setting)) for setting in (*first, *others)]}
    group |= {"first": len(first)}
    if part.name in SWITCHES:
        group["switch"] = True
    return group


def _index(one: Plain, fields: list[Plain]) -> int:
    if one not in fields:
        fields.append(one)
    return fields.index(one)


def _field(setting: Setting, label: str) -> Plain:
    """Return what draws a field; what it has not is left out. limits: as text in each of its units."""
    units = words.units_of(setting)
    plain = {
        "name": setting.name,
        "label": label,
        "kind": setting.kind,
        "about": setting.description,
        "unit": "" if units else setting.unit,
        "units": units,
        "limits": [text for unit in units or (setting.unit,) if (text := words.range_of(setting, unit))],
        "choices": [(choice, words.choice_label(choice)) for choice in setting.choices],
        "placeholder": "none" if setting.optional else "",
        "live": setting.live,
    }
    return {key: [*value] if isinstance(value, tuple) else value for key, value in plain.items() if value}


def shown(setting: Setting, value: Any) -> Any:
    """Return a value as the browser shows it: a key, a switch, or text, in each of its units where it has several."""
    if setting.kind == "choice":
        return value if value in setting.choices else None
    if setting.kind == "switch":
        return value is not words.MISSING and bool(value)
    if value is words.MISSING:
        return ""
    if units := words.units_of(setting):
        fit = units.index(words.fitting_unit(setting, value))
        return {"texts": [words.text_of(value, setting, unit) for unit in units], "fit": fit}
    return words.text_of(value, setting, setting.unit)


def group_states(draft: Draft, changed: Collection[str], tuned: Collection[str]) -> dict[str, Plain]:
    """Return what the line of each group says: whether it is on (None: it has no switch), a summary, what was changed.

    changed, tuned: dotted names of fields.
    """
    states: dict[str, Plain] = {}
    for entries in structure().lists:
        titles = [entry.kind.title for entry in draft.entries[entries.name] if entry.on]
        states[entries.name] = {"on": None, "summary": ", ".join(titles) or "none", "changed": len(titles)}
    for section in structure().sections:
        switch = SWITCHES.get(section.name)
        on = None if switch is None else any(draft.value(name) != value for name, value in switch.off.items())
        edited = [one for one in section.settings if one.name in changed]
        parts = ["off"] if on is False else []
        parts += [f"{one.title.lower()} {words.value_words(one, draft.value(one.name))}" for one in edited]
        count = sum(one.name in tuned for one in section.settings)
        parts += [f"{count} tuned"] if count else [] if edited else [section.description]
        states[section.name] = {"on": on, "summary": " · ".join(parts), "changed": len(edited)}
    return states


def change_words(name: str, old: Any, new: Any) -> list[str]:
    """Return the label of a field and its change in words; of a list, that it changes."""
    if not structure().has(name):
        return [words.label_of_name(name), ""]
    setting = structure().setting(name)
    return [words.label_of(setting), f"{words.value_words(setting, old)} → {words.value_words(setting, new)}"]


def problem_words(draft: Draft) -> str:
    """Return the labels of all invalid fields, and the problem of several fields; "" without one."""
    if not draft.problems:
        return ""
    together = draft.problems.get("", "")
    labels = ", ".join(dict.fromkeys(_label(name, draft) for name in draft.problems if name))
    return f"Edits are applied after this is corrected: {f'{labels}. {together}'.strip() if labels else together}"


def _label(name: str, draft: Draft) -> str:
    if not is_of_entry(name):
        return words.label_of_name(name)
    entry = draft.entry(name)
    return entry.kind.title if name == entry.name else f"{entry.kind.title}: {draft.setting(name).title}"
