"""Files that `docs/architecture.md` names; tests compare them with what is called."""

from __future__ import annotations

import re

from tests.import_graph import ROOT

CHAPTER = (ROOT / "docs" / "architecture.md").read_text()


def named(section: str = "") -> set[str]:
    """The files and packages of records that a section names, or the whole chapter."""
    text = next(part for part in (f"\n{CHAPTER}").split("\n## ") if part.startswith(section)) if section else CHAPTER
    return set(re.findall(r"`((?:[\w-]+/)+[\w.-]+\.\w+|\w+\.py|data|settings)`", text))
