"""What a field is called in a form, and which fields have some words in them."""

from __future__ import annotations

import functools

from ptynb.settings.schema import Setting, structure


def label_of(setting: Setting) -> str:
    """What it is called beside fields of other parts: "Probe modes", "Batch"."""
    part = setting.name.rpartition(".")[0]
    return f"{_titles()[part]} {setting.title[0].lower()}{setting.title[1:]}" if part else setting.title


def found_by(words: str) -> tuple[list[str], list[str]]:
    """Dotted names of the fields, and names of the lists, that have all these words in what is known of them."""
    wanted = words.lower().split()
    names = [setting.name for setting in structure().settings if _has(_text(setting), wanted)]
    lists = [
        entries.name
        for entries in structure().lists
        if any(
            _has(" ".join((entries.title, kind.title, kind.kind, kind.description)), wanted) for kind in entries.kinds
        )
    ]
    return names, lists


def _text(setting: Setting) -> str:
    return " ".join((label_of(setting), setting.name, setting.description, setting.unit, *setting.choices))


def _has(text: str, words: list[str]) -> bool:
    text = text.lower()
    return all(word in text for word in words)


@functools.cache
def _titles() -> dict[str, str]:
    return {section.name: section.title for section in structure().sections}
