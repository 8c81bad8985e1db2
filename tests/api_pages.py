"""Pages of all public names, from their docstrings: `python -m tests.api_pages FOLDER`, by pdoc.

A docstring is plain text. Its lines `name: what it is` become a list here; the rest is Markdown as it stands.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path

import pdoc
import pdoc.render

import ptynb
import ptynb.report
from ptynb.report import report_file

ITEM = re.compile(r"[a-z_*][\w, *]*: ")
"""What begins a line about an argument, a field, or several."""
NEXT = re.compile(r"(?<=\.) (?=[a-z_]{2,}(?:, [a-z_]+)*: )")
"""Where the next one begins in the same line."""
CONSTRAINED = re.compile(r"(?:typing\.)?Annotated\[([^\n]*?), FieldInfo\((?:[^\[\]\n]|\[[^\]\n]*\])*\)\]")
"""A type with its range, as pydantic has it; the range is in the description."""


def as_markdown(docstring: str) -> str:
    """A docstring of ours as Markdown: arguments and fields, each of which has its line, as a list."""
    return "\n\n".join(_paragraph(text) for text in docstring.split("\n\n"))


def _paragraph(text: str) -> str:
    lines = text.splitlines()
    first = next((number for number, line in enumerate(lines) if ITEM.match(line)), None)
    if first is None or lines[0].startswith(("- ", "    ", "```")):
        return text
    items: list[str] = []
    for line in lines[first:]:
        if ITEM.match(line):
            items.append(line)
        else:
            items[-1] += f" {line.strip()}"
    listed = [item.partition(": ") for line in items for item in NEXT.split(line)]
    return "\n".join([*lines[:first], "", *(f"- **{name}**: {rest}" for name, _, rest in listed)])


def build(folder: Path) -> list[Path]:
    """Writes the pages, one of `ptynb` and one of each public module, and returns them; warns of what it can't show."""
    homes = sorted(set(ptynb._MODULES.values()))
    for home in homes:
        module = import_module(home)
        if not hasattr(module, "__all__"):
            inside = (name for name, value in vars(module).items() if getattr(value, "__module__", "").startswith(home))
            module.__all__ = [name for name in inside if not name.startswith("_")]  # type: ignore[attr-defined]
    # The package is the function too, and tells the whole of it in its module.
    ptynb.report.report = report_file.report  # type: ignore[attr-defined]
    ptynb.report.__all__ = ["report"]  # type: ignore[attr-defined]
    pdoc.render.configure(docformat="markdown", show_source=False, search=False, math=False)
    pdoc.render.env.filters["to_markdown"] = as_markdown
    specifications = [spec for home in ("ptynb", *homes) for spec in (home, f"!{re.escape(home)}\\.")]
    pdoc.pdoc(*specifications, output_directory=folder)
    pages = sorted(folder.rglob("*.html"))
    for page in pages:
        page.write_text(CONSTRAINED.sub(r"\1", page.read_text()))
    return pages


if __name__ == "__main__":
    for path in build(Path(sys.argv[1])):
        print(path)
