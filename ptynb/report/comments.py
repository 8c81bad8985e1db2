"""A user's comments: Markdown as HTML without anything that could load, link or run.

HTML in it is shown as text, pictures by their descriptions, and links as their text with the address behind it, where
it is one of the web: what is printed says where it leads, and a page that lies in a folder leads nowhere by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token

from ptynb.report.markup import Markup, element, visible

FIRST_HEADING = 3
"""Level of the comments' own headings: the page has its title and its sections above them."""
LONGEST = 200_000
"""Characters that are read; a longer text is cut, and says so."""
ADDRESSES = ("http://", "https://", "mailto:")


def rendered(text: str) -> Markup:
    """The comments as HTML; nothing for an empty text."""
    if not text.strip():
        return Markup()
    reader = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    tokens = reader.parse(visible(text[:LONGEST]))
    _settle_headings(tokens)
    for token in tokens:
        _settle(token)
        _settle_inside(token)
    # Every text is escaped by the renderer, and visible already.
    shown = Markup(reader.renderer.render(tokens, reader.options, {}))
    cut = f"The text goes on; {len(text)} characters are too many for a report."
    return shown if len(text) <= LONGEST else Markup(shown + element("p", None, cut))


def _settle(token: Token) -> None:
    """Keeps no attribute but the first number of a list, and lets code name no class."""
    token.attrs = {name: value for name, value in token.attrs.items() if name == "start"}
    token.info = ""


def _settle_inside(token: Token) -> None:
    """Links and pictures become text."""
    kept: list[Token] = []
    addresses: list[str] = []
    for child in token.children or ():
        if child.type == "link_open":
            addresses.append(str(child.attrs.get("href", "")))
        elif child.type == "link_close":
            kept += _address(addresses.pop(), kept)
        elif child.type == "image":
            kept.append(_text(child.content))
        else:
            _settle(child)
            kept.append(child)
    if token.children is not None:
        token.children = kept


def _address(address: str, before: Sequence[Token]) -> list[Token]:
    """The address after its text, unless it is of no kind that is known, or is the text itself."""
    said = before[-1].content if before else ""
    wanted = address.lower().startswith(ADDRESSES) and address not in (said, f"mailto:{said}")
    return [_text(f" ({address})")] if wanted else []


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _settle_headings(tokens: Sequence[Token]) -> None:
    """Headings below the page's own, none of which skips a level."""
    path: list[int] = []
    for token in tokens:
        if token.type == "heading_open":
            level = int(token.tag[1:])
            path = [*(one for one in path if one < level), level]
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(FIRST_HEADING + len(path) - 1, 6)}"
