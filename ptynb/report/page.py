"""The page: one HTML file that asks for nothing, under a policy that would not let it.

The policy names the hashes of its one style sheet and its one script; nothing else is applied or run, and nothing is
loaded but pictures that are in the page itself. So text that got into it by a fault would still be text.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from ptynb.report.assets import Contents
from ptynb.report.markup import Content, Markup, code_element, data_element, element, joined
from ptynb.widgets.viewer import viewer_assets

HERE = Path(__file__).parent
POLICY = (
    "default-src 'none'; img-src data:; style-src '{style}'; script-src '{script}'; base-uri 'none'; form-action 'none'"
)
DATA = "report-data"


def page(
    title: str,
    headline: Sequence[tuple[str, str]],
    before: Content,
    sections: Sequence[Markup],
    contents: Contents,
    made_by: str,
) -> str:
    """The whole text of a report. before: what stands between headline and sections; made_by: the last line."""
    style = "\n".join((viewer_assets.styles(), _read("report.css")))
    script = "\n".join(
        (viewer_assets.script(), _read("report_curve.js"), _read("report_values.js"), _read("report.js"))
    )
    policy = POLICY.format(style=_hash(style), script=_hash(script))
    head = joined(
        element("meta", {"charset": "utf-8"}),
        element("meta", {"http-equiv": "Content-Security-Policy", "content": policy}),
        element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("meta", {"name": "color-scheme", "content": "light dark"}),
        element("title", None, title),
        code_element("style", {}, style),
    )
    facts = [element("div", None, element("dt", None, name), element("dd", None, value)) for name, value in headline]
    body = joined(
        element("header", None, element("h1", None, title), element("dl", {"class": "report-headline"}, facts)),
        _menu(sections),
        element("main", None, _without_scripts(), before, sections),
        element("footer", None, made_by),
        data_element(DATA, contents.plain()),
        code_element("script", {"type": "module"}, script),
    )
    whole = element("html", {"lang": "en"}, element("head", None, head), element("body", None, body))
    return f"<!doctype html>\n{whole}\n"


def _menu(sections: Sequence[Markup]) -> Markup:
    names = [section.split('id="', 1)[1].split('"', 1)[0] for section in sections]
    links = [
        element("li", None, element("a", {"href": f"#{name}"}, name.replace("-", " ").capitalize())) for name in names
    ]
    return element("nav", {"aria-label": "Contents"}, element("ul", None, links))


def _without_scripts() -> Markup:
    said = "Its pictures and curves are drawn by the page's own script, which is not run here; open it in a browser."
    return element("noscript", None, element("p", None, said))


def _read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
