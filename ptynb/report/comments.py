"""A user's comments: Markdown as HTML that loads nothing, links to nothing and runs nothing.

HTML in it is shown as text, a picture as its description, and a link as its text followed by the address.
"""

from __future__ import annotations

from collections.abc import Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from ptynb.report.page import visible

FIRST_HEADING = 3
"""Level of the highest heading in comments: below the page's title and its sections."""
LONGEST = 200_000
"""Maximum number of characters; a longer text is cut."""
ADDRESSES = ("http://", "https://", "mailto:")


def rendered(text: str) -> Markup:
    """Return the comments as HTML; empty for an empty text."""
    if not text.strip():
        return Markup()
    reader = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    tokens = reader.parse(visible(text[:LONGEST]))
    _renumber_headings(tokens)
    for token in tokens:
        _remove_attributes(token)
        _replace_links(token)
    # The renderer has escaped every text.
    shown = Markup(reader.renderer.render(tokens, reader.options, {}))
    if len(text) > LONGEST:
        shown += Markup("<p>{}</p>").format(f"Only the first {LONGEST} of {len(text)} characters are shown.")
    return shown


def _remove_attributes(token: Token) -> None:
    """Remove all attributes but the first number of a list, and the language of code."""
    token.attrs = {name: value for name, value in token.attrs.items() if name == "start"}
    token.info = ""


def _replace_links(token: Token) -> None:
    """Replace links and pictures by text."""
    tokens: list[Token] = []
    addresses: list[str] = []
    for child in token.children or ():
        if child.type == "link_open":
            addresses.append(str(child.attrs.get("href", "")))
        elif child.type == "link_close":
            tokens += _address(addresses.pop(), tokens)
        elif child.type == "image":
            tokens.append(_text(child.content))
        else:
            _remove_attributes(child)
            tokens.append(child)
    if token.children is not None:
        token.children = tokens


def _address(address: str, before: Sequence[Token]) -> list[Token]:
    """Return the address after the text of a link, if it is of a known kind and not the text itself."""
    text = before[-1].content if before else ""
    shown = address.lower().startswith(ADDRESSES) and address not in (text, f"mailto:{text}")
    return [_text(f" ({address})")] if shown else []


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _renumber_headings(tokens: Sequence[Token]) -> None:
    """Put headings below the page's own, without skipping a level."""
    path: list[int] = []
    for token in tokens:
        if token.type == "heading_open":
            level = int(token.tag[1:])
            path = [*(one for one in path if one < level), level]
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(FIRST_HEADING + len(path) - 1, 6)}"
