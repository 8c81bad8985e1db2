"""Labels of fields, and the search for fields."""

from __future__ import annotations

import functools

from ptynb.settings.schema import Setting, structure


def label_of(setting: Setting) -> str:
    """Return the label of a setting, with the title of its section: "Probe modes", "Batch"."""
    part = setting.name.rpartition(".")[0]
    return f"{_titles()[part]} {setting.title[0].lower()}{setting.title[1:]}" if part else setting.title


def found_by(words: str) -> tuple[list[str], list[str]]:
    """Return dotted names of fields, and names of lists, that have all these words in their name or description."""
    terms = words.lower().split()

    def matches(*texts: str) -> bool:
        return all(word in " ".join(texts).lower() for word in terms)

    names = [
        setting.name
        for setting in structure().settings
        if matches(label_of(setting), setting.name, setting.description, setting.unit, *setting.choices)
    ]
    lists = [
        entries.name
        for entries in structure().lists
        if any(matches(entries.title, kind.title, kind.kind, kind.description) for kind in entries.kinds)
    ]
    return names, lists


@functools.cache
def _titles() -> dict[str, str]:
    return {section.name: section.title for section in structure().sections}
