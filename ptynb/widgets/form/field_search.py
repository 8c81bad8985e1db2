"""Words of the form: labels of fields, names of choices; and the search for fields."""

from __future__ import annotations

import functools

from ptynb.settings.load_options import LoadOptions
from ptynb.settings.schema import Setting, structure

PREFIXES = {
    "slices": "Slice distance",
    "positions": "Position",
    "affine": "Linear map",
    "opr": "OPR",
    "pattern_intensities": "Intensity",
    "schedule": "",
    "stop": "Early stop",
}
"""First words of the labels of a part's fields, where they are not its title."""
CHOICES = {
    "adam": "Adam",
    "adamw": "AdamW",
    "nadam": "NAdam",
    "radam": "RAdam",
    "rmsprop": "RMSprop",
    "sgd": "SGD",
    "lbfgs": "L-BFGS",
    "rpie": "rPIE",
    "lsqml": "LSQ-ML",
    "dm": "difference map (DM)",
    "raar": "RAAR",
    "poisson": "Poisson",
    "tv": "total variation",
    "l1": "L1 norm",
    "l2": "L2 norm",
    "amplitude_phase": "amplitude and phase",
    "group": "all engines together",
    "engine": "each engine",
    "spread": "spread over the scan",
    "compact": "neighbours",
    "interleaved": "every n-th pattern",
    "auto": "first with enough space",
    "device": "memory of the device",
    "host": "memory of the host",
    "disk": "file",
    "sparse": "probe windows only",
    "dense": "whole object",
    "update": "each update",
    "epoch": "each epoch",
    "plane": "fitted plane",
}
"""Names of choices that are not words of the field by themselves."""


def label_of(setting: Setting) -> str:
    """Return the label of a setting: its title, with the words for its part unless they are in it."""
    prefix = _prefixes().get(setting.name.rpartition(".")[0], "")
    if not prefix or prefix.split()[0].lower() in setting.title.lower():
        return setting.title
    first, rest = setting.title[0], setting.title[1:]
    return f"{prefix} {first if rest[:1].isupper() else first.lower()}{rest}"


def label_of_name(name: str) -> str:
    """Return the label of a setting, or the words for a value of the scan: "load.focus_to_sample", "scan.angle"."""
    if structure().has(name):
        return label_of(structure().setting(name))
    group, _, field = name.rpartition(".")
    title = LoadOptions.model_fields[field].title if group == "load" and field in LoadOptions.model_fields else None
    return title or field.replace("_", " ")


def choice_label(choice: str) -> str:
    """Return the words for one of the choices of a setting."""
    return CHOICES.get(choice, choice.replace("_", " "))


def found_by(words: str) -> tuple[list[str], list[str]]:
    """Return dotted names of fields, and names of lists, that have all these words in their name or description."""
    terms = words.lower().split()

    def matches(*texts: str) -> bool:
        return all(word in " ".join(texts).lower() for word in terms)

    names = [
        setting.name
        for setting in structure().settings
        if matches(
            label_of(setting),
            setting.name,
            setting.description,
            setting.unit,
            *setting.choices,
            *map(choice_label, setting.choices),
        )
    ]
    lists = [
        entries.name
        for entries in structure().lists
        if any(matches(entries.title, kind.title, kind.kind, kind.description) for kind in entries.kinds)
    ]
    return names, lists


@functools.cache
def _prefixes() -> dict[str, str]:
    return {section.name: section.title for section in structure().sections} | PREFIXES
