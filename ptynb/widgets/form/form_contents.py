"""What a form of settings shows, as plain data: its groups and fields, and the values and marks of a draft.

A group is one line: a switch if the part can be off, its title, and a summary. While it is on, the fields that matter
first are below; the others are unfolded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ptynb.settings.schema import Entries, Section, Setting, structure
from ptynb.widgets.form import field_words as words
from ptynb.widgets.form.unsaved_settings import Draft, is_of_entry

FIRST = {
    "probe": ("probe.modes",),
    "slices": ("slices.count", "slices.thickness"),
    "aberrations": ("aberrations.order",),
    "opr": ("opr.modes",),
    "descan": ("descan.start",),
}
"""Fields that come first in their group; the others follow in the order of the settings."""
Plain = dict[str, Any]


@dataclass(frozen=True)
class PartSwitch:
    """Values by dotted name; a part is off while all values of `off` hold.

    on: values for a start. unused: values of what means nothing while the part is off, which are set then, too.
    """

    off: Mapping[str, Any]
    on: Mapping[str, Any]
    unused: Mapping[str, Any] = field(default_factory=dict)


def _rate(part: str, rate: float) -> PartSwitch:
    name = f"{part}.learning_rate"
    return PartSwitch({name: 0.0}, {name: rate})


SWITCHES: Mapping[str, PartSwitch] = {
    # Two slices need their distance, for which no value is a good guess: its field asks for it.
    "slices": PartSwitch(
        {"slices.count": 1, "slices.learning_rate": 0.0}, {"slices.count": 2}, {"slices.thickness": None}
    ),
    "tilt": PartSwitch({"tilt.y": 0.0, "tilt.x": 0.0, "tilt.learning_rate": 0.0}, {"tilt.learning_rate": 0.1}),
    "positions": PartSwitch(
        {"positions.learning_rate": 0.0, "positions.search_trials": 0}, {"positions.learning_rate": 0.1}
    ),
    "affine": _rate("affine", 0.1),
    "probe_offset": _rate("probe_offset", 0.1),
    "aberrations": PartSwitch({"aberrations.order": 0}, {"aberrations.order": 2}),
    "opr": PartSwitch({"opr.modes": 0}, {"opr.modes": 3}),
    "pattern_intensities": _rate("pattern_intensities", 0.01),
    "background": _rate("background", 0.01),
    "descan": PartSwitch(
        {"descan.start": "none", "descan.learning_rate": 0.0}, {"descan.start": "plane", "descan.learning_rate": 0.1}
    ),
    "fly_scan": PartSwitch({"fly_scan.steps": 1}, {"fly_scan.steps": 4}),
    "schedule": PartSwitch({"schedule.kind": "constant"}, {"schedule.kind": "cosine"}),
    "stop": PartSwitch({"stop.patience": 0}, {"stop.patience": 20}),
}
"""Name of the part -> its switch. Object and probe cannot be off; the detector has no values that are a good guess."""


def schema() -> Plain:
    """Return all groups with their fields, and the fields of entries, which several kinds of them may share."""
    fields: list[Plain] = []
    parts: tuple[Section | Entries, ...] = (*structure().sections, *structure().lists)
    groups = [_group(part, fields) for part in parts]
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
    first = FIRST.get(part.name, ())
    settings = {setting.name: setting for setting in part.settings}
    names = [*first, *(name for name, one in settings.items() if one.simple and name not in first)]
    others = [name for name in settings if name not in names]
    group |= {"fields": [_field(settings[name], words.label_of(settings[name])) for name in (*names, *others)]}
    group |= {"first": len(names)}
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
