"""HTML out of which no text can break: each text is escaped once, here, when it is put into an element.

Names, comments and metadata of files may hold anything. What looks like a tag becomes text; characters that can't be
seen, or that turn around what stands beside them, become their codes. Attributes that would run something, or that the
page's policy forbids, can't be written at all.
"""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, final

Attributes = Mapping[str, str | int | float | bool | None]
VOID: Final = frozenset({"meta", "input", "br", "hr"})
_ATTRIBUTES = (
    "class id lang charset content name type scope colspan role tabindex title href for value open start "
    "aria-label aria-labelledby aria-hidden http-equiv"
)
ALLOWED: Final = frozenset(_ATTRIBUTES.split(" "))
"""Attributes that may be written, beside those that begin with data-."""
_ENDS = "".join(chr(plane * 0x10000 + last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufdd0-\ufdef"
    f"\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udfff{_ENDS}]"
)


@final
class Markup(str):
    """Text that is HTML already: what the functions here return, and `comments.rendered`."""

    __slots__ = ()


Content = str | int | float | None | Iterable["Content"]


def visible(text: str) -> str:
    """The text with line ends as \\n, and a code in place of each character that is not seen or turns others around."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", lines)


def escaped(text: str) -> Markup:
    """The text as HTML, in an element or between an attribute's quotes."""
    return Markup(html.escape(visible(text), quote=True))


def element(name: str, attributes: Attributes | None = None, *content: Content) -> Markup:
    """An element. Attributes that are None or False are left out; those that are True have no value."""
    start = "".join(_attribute(key, value) for key, value in (attributes or {}).items())
    if name in VOID:
        return Markup(f"<{name}{start}>")
    return Markup(f"<{name}{start}>{joined(*content)}</{name}>")


def joined(*content: Content) -> Markup:
    """Contents one after the other: markup as it is, texts escaped, None as nothing."""
    parts = []
    for one in content:
        if isinstance(one, Markup):
            parts.append(one)
        elif isinstance(one, str):
            parts.append(escaped(one))
        elif isinstance(one, int | float):
            parts.append(Markup(one))
        elif one is not None:
            parts.append(joined(*one))
    return Markup("".join(parts))


def code_element(name: str, attributes: Attributes, text: str) -> Markup:
    """A script or style element with our own text, to the letter: its hash is in the page's policy."""
    assert not re.search(r"</(script|style)|<!--|<script", text, re.IGNORECASE), f"the text would end its {name}"
    start = "".join(_attribute(key, value) for key, value in attributes.items())
    return Markup(f"<{name}{start}>{text}</{name}>")


def data_element(identity: str, data: Any) -> Markup:
    """Plain values as a block of JSON, in which nothing can be taken for a tag; what is not finite is null."""
    text = json.dumps(_plain(data), allow_nan=False, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return code_element("script", {"type": "application/json", "id": identity}, text)


def _attribute(name: str, value: str | int | float | bool | None) -> str:
    assert name in ALLOWED or re.fullmatch(r"data-[a-z]+", name), f"the attribute {name} is not among those allowed"
    if value is None or value is False:
        return ""
    if value is True:
        return f" {name}"
    assert name != "href" or str(value).startswith("#"), "links lead to places in the page only"
    return f' {name}="{escaped(str(value))}"'


def _plain(value: Any) -> Any:
    """What JSON can hold, with texts as they are shown."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {visible(str(key)): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value
