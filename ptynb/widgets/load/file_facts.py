"""What `info` found in a file, as HTML."""

from __future__ import annotations

import html

from ptynb.io.file_info import FileInfo
from ptynb.widgets.load.panel_words import in_panel_words, lacking
from ptynb.widgets.load.quantities import quantity
from ptynb.widgets.shared_widgets import complaint, note


def remarks_of(found: FileInfo) -> str:
    """Return the problem of a file, what it lacks, and what was guessed."""
    parts = [note(lacking(found.missing))] if found.missing else []
    problem = None if found.problem is None else in_panel_words(found.problem)
    remarks = [complaint(problem), *(note(in_panel_words(text)) for text in found.notes)]
    # What is suggested may be the remedy of the problem.
    return "".join([*parts, *(reversed(remarks) if found.suggested else remarks)])


def facts_of(found: FileInfo) -> str:
    """Return a table of the values in a file with units and places."""
    cell = '<td style="padding:1px 14px 1px 0;text-align:left;line-height:1.35'
    rows = "".join(
        f'<tr>{cell};white-space:nowrap">{html.escape(fact.name)}</td>'
        f'{cell}">{html.escape(quantity(fact.value, fact.unit))}</td>'
        f'{cell};color:var(--jp-ui-font-color2,#555)">{html.escape(fact.place)}</td></tr>'
        for fact in found.facts
    )
    title = f"<b>{html.escape(found.path)}</b>: {html.escape(found.format)}"
    return f'<div style="margin-top:4px">{title}</div><table style="border-collapse:collapse">{rows}</table>'
