"""The HTML page of a report, rendered by Jinja2 from sections of plain data (`page.html`).

The page loads nothing: its policy allows the one style sheet and the one script that it contains, by their hashes, and
pictures that are in the page itself. Every text is escaped by Jinja2 where it is inserted, and characters that are
invisible or reverse the direction of text are replaced by their codes, since titles, comments, and metadata of files
may hold anything.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from ptynb.report.page_data import PageData

HERE = Path(__file__).parent
_NONCHARACTERS = "".join(chr(plane * 0x10000 + last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufdd0-\ufdef"
    f"\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udfff{_NONCHARACTERS}]"
)


@dataclass(frozen=True)
class TextBlock:
    """A paragraph; note: one that explains the picture above it."""

    kind: ClassVar = "text"
    text: str
    note: bool = False


@dataclass(frozen=True)
class HeadingBlock:
    """A heading within a section."""

    kind: ClassVar = "heading"
    text: str


@dataclass(frozen=True)
class ViewerBlock:
    """A viewer of `PageData`, by name."""

    kind: ClassVar = "viewer"
    name: str


@dataclass(frozen=True)
class CurveBlock:
    """A curve of `PageData`, by name."""

    kind: ClassVar = "curve"
    name: str


@dataclass(frozen=True)
class CodeBlock:
    """Lines of code with a button that copies them; identity: of the element."""

    kind: ClassVar = "code"
    text: str
    identity: str


@dataclass(frozen=True)
class TableBlock:
    """A table; the first cell of a row is its heading. summary: what is clicked to unfold it; "": it is open."""

    kind: ClassVar = "table"
    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    caption: str
    summary: str = ""


@dataclass(frozen=True)
class Differing:
    """A cell that differs from the others of its row."""

    kind: ClassVar = "differing"
    text: str


@dataclass(frozen=True)
class SaveButton:
    """A cell with a button that saves a file of `PageData`."""

    kind: ClassVar = "button"
    file: str
    name: str


Cell = str | int | float | Differing | SaveButton
Block = TextBlock | HeadingBlock | ViewerBlock | CurveBlock | CodeBlock | TableBlock


class PageSection:
    """A section of the page: its title, the id that links lead to, and its blocks, omitting those that are None."""

    def __init__(self, title: str, *blocks: Block | None) -> None:
        self.title, self.identity = title, title.lower().replace(" ", "-")
        self.blocks = [block for block in blocks if block is not None]


def note(sentences: Sequence[str]) -> TextBlock | None:
    """Return the sentences as a note on the picture above them; None without any."""
    return TextBlock(" ".join(sentences), note=True) if sentences else None


def page(
    title: str,
    headline: Sequence[tuple[str, str]],
    comments: Markup,
    sections: Sequence[PageSection],
    data: PageData,
    footer: str,
) -> str:
    """Return the HTML of a report; comments: HTML that is safe already."""
    style, script = ((HERE / "static" / f"report.{suffix}").read_text(encoding="utf-8") for suffix in ("css", "js"))
    for text in (style, script):  # inserted as they are: the policy has their hashes
        assert not re.search(r"</(script|style)|<!--|<script", text, re.IGNORECASE), "the text would end its element"
    return _template().render(
        title=title,
        headline=headline,
        comments=comments,
        sections=sections,
        data=_json_values(data.as_dict()),
        footer=footer,
        style=Markup(style),
        script=Markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return environment.get_template("page.html")


def visible(text: str) -> str:
    """Return the text with line ends as \\n, and codes in place of characters that are invisible or reverse others."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return _INVISIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", lines)


def _json_values(value: Any) -> Any:
    """Return the value with visible texts, and None in place of numbers that are not finite."""
    match value:
        case str():
            return visible(value)
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {visible(str(key)): _json_values(one) for key, one in value.items()}
        case list() | tuple():
            return [_json_values(one) for one in value]
    return value


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
