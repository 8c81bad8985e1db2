"""Pages of all public names, from their docstrings (numpydoc): `python -m tests.api_pages FOLDER`, by pdoc."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pdoc
import pdoc.doc
import pdoc.render

import ptynb
import ptynb.report
from ptynb.report import report_file

CONSTRAINED = re.compile(r"(?:typing\.)?Annotated\[([^\n]*?), FieldInfo\((?:[^\[\]\n]|\[[^\]\n]*\])*\)\]")
"""A type with its range, as pydantic shows it; the range is in the docstring."""


def shown_members(shown: pdoc.doc.Class) -> list[pdoc.doc.Doc[Any]]:
    """Return the members of a class, and those that a class of the session has from a base that is not public."""
    inherited = shown.inherited_members.items()
    return [
        *OWN(shown),
        *(one for base, members in inherited if base[0].startswith("ptynb.session.") for one in members),
    ]


OWN = vars(pdoc.doc.Class)["own_members"].func
pdoc.doc.Class.own_members = property(shown_members)  # type: ignore[assignment]


def build(folder: Path) -> list[Path]:
    """Write the pages, one of `ptynb` and one of each public module, and return their paths."""
    public = [getattr(ptynb, name) for name in ptynb.__all__]
    homes = sorted(value.__name__ for value in public if isinstance(value, ModuleType))
    for home in homes:
        module = import_module(home)
        if not hasattr(module, "__all__"):
            inside = (name for name, value in vars(module).items() if getattr(value, "__module__", "").startswith(home))
            module.__all__ = [name for name in inside if not name.startswith("_")]  # type: ignore[attr-defined]
    # The package can be called, too; the function is documented in its module.
    report_file.report.__doc__ = type(ptynb.report).__call__.__doc__
    ptynb.report.report = report_file.report  # type: ignore[attr-defined]
    ptynb.report.__all__ = ["report"]  # type: ignore[attr-defined]
    pdoc.render.configure(docformat="numpy", show_source=False, search=False, math=False)
    specifications = [spec for home in ("ptynb", *homes) for spec in (home, f"!{re.escape(home)}\\.")]
    pdoc.pdoc(*specifications, output_directory=folder)
    pages = sorted(folder.rglob("*.html"))
    for page in pages:
        page.write_text(CONSTRAINED.sub(r"\1", page.read_text()))
    return pages


if __name__ == "__main__":
    for path in build(Path(sys.argv[1])):
        print(path)
