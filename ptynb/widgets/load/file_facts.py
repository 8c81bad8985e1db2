"""What `info` found in a file, as HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence

from ptynb.io.file_info import FileInfo
from ptynb.io.reading.reader_interface import Missing
from ptynb.widgets.load.load_panel import title_of
from ptynb.widgets.load.quantities import fact_text
from ptynb.widgets.shared_widgets import complaint, note


def remarks_of(found: FileInfo) -> str:
    """Return the problem of a file, what it lacks, and what was guessed."""
    parts = [note(lacking(found.missing))] if found.missing else []
    remarks = [complaint(found.problem), *map(note, found.notes)]
    # What is suggested may be the remedy of the problem.
    return "".join([*parts, *(reversed(remarks) if found.suggested else remarks)])


def facts_of(found: FileInfo) -> str:
    """Return a table of the values in a file with units and places."""
    cell = '<td style="padding:1px 14px 1px 0;text-align:left;line-height:1.35'
    rows = "".join(
        f'<tr>{cell};white-space:nowrap">{html.escape(fact.name)}</td>'
        f'{cell}">{html.escape(fact_text(fact))}</td>'
        f'{cell};color:var(--jp-ui-font-color2,#555)">{html.escape(fact.place)}</td></tr>'
        for fact in found.facts
    )
    title = f"<b>{html.escape(found.path)}</b>: {html.escape(found.format)}"
    return f'<div style="margin-top:4px">{title}</div><table style="border-collapse:collapse">{rows}</table>'


def lacking(lacks: Sequence[Missing]) -> str:
    """Return a sentence about what a file lacks, and the fields into which it is entered; "" if it lacks nothing."""
    if not lacks:
        return ""
    names = _listed([lack.name for lack in lacks], "and")
    fields = [_fields_of(lack) for lack in lacks]
    return f"The file lacks {names}: enter {'; '.join(fields)}."


def _fields_of(lack: Missing) -> str:
    if "raster" in lack.options and "positions" in lack.options:  # which replaces the others together
        return f"{title_of('positions')}, or {title_of('raster')} and {title_of('step')}"
    return _listed([title_of(name) for name in lack.options], "or")


def _listed(words: Sequence[str], last: str) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"
