"""Messages about the options of `load` in the words of the panel, whose fields have these options.

Messages name options as in Python ("give energy=12400 [eV]"); the panel has fields with titles and units ("enter Photon
energy").
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ptynb.io.reading.reader_interface import Missing
from ptynb.settings.load_options import LoadOptions
from ptynb.widgets.load.quantities import UNIT, quantity

NAME = "|".join(sorted(LoadOptions.model_fields, key=len, reverse=True))
VALUE = r"""'(?P<word>[^']*)'|\([^()]*\)|(?P<number>[-+]?\d[\d.]*(?:e[-+]?\d+)?)(?![\w.])|array|\.\.\."""
GIVEN = re.compile(rf"\b(?P<name>{NAME})=(?:{VALUE})?(?:\s*\((?:y, x|pattern, yx)\))?(?P<unit>\s*\[\w+\])?")
STATED = re.compile(rf"\b(?P<name>{NAME}) is (?=['\"(\d-])")
BARE = re.compile(rf"\b(?P<name>{'|'.join(name for name in LoadOptions.model_fields if '_' in name)})\b(?:\s*\[\w+\])?")
CALL = re.compile(r"\bload\(\.\.\.,\s*([^()]*(?:\([^()]*\)[^()]*)*)\)")
GIVE = re.compile(r"\b([Gg])ive( it)?\b")


def in_panel_words(text: str) -> str:
    """Return a message with the titles of fields instead of arguments of Python."""
    if not fields_in(text):
        return text
    text = CALL.sub(r"\1", text).replace(" as `load` describes it", " in the unit beside the field")
    text = GIVE.sub(lambda found: ("E" if found[1] == "G" else "e") + "nter" + (found[2] or ""), text)
    text = STATED.sub(lambda found: f"{title_of(found['name'])} is ", GIVEN.sub(_with_value, text))
    return BARE.sub(lambda found: title_of(found["name"]), text)


def fields_in(text: str) -> tuple[str, ...]:
    """Return the options that a message names, in its order."""
    found = sorted(
        ((match.start(), match["name"]) for pattern in (GIVEN, STATED, BARE) for match in pattern.finditer(text)),
    )
    return tuple(dict.fromkeys(name for _, name in found))


def lacking(lacks: Sequence[Missing]) -> str:
    """Return a sentence about what a file lacks, and the fields into which it is entered; "" if it lacks nothing."""
    if not lacks:
        return ""
    names = _listed([lack.name for lack in lacks], "and")
    fields = [_fields_of(lack) for lack in lacks]
    return f"The file lacks {names}: enter {'; '.join(fields)}."


def title_of(name: str) -> str:
    """Return the title of an option's field."""
    return LoadOptions.model_fields[name].title or name


def _fields_of(lack: Missing) -> str:
    titles = [title_of(name) for name in lack.options]
    if "raster" in lack.options and "positions" in lack.options:  # which replaces the others together
        return f"{title_of('positions')}, or {title_of('raster')} and {title_of('step')}"
    return _listed(titles, "or")


def _with_value(found: re.Match[str]) -> str:
    title = title_of(found["name"])
    if found["word"] is not None and "/" not in found["word"]:
        return f"{title} “{found['word']}”"
    if found["number"] is not None:
        unit = UNIT.search(LoadOptions.model_fields[found["name"]].description or "")
        return f"{title} {quantity(found['number'], unit[1] if unit else '')}"
    return title


def _listed(words: Sequence[str], last: str) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"
