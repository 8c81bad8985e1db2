"""A view of this process on a plain page of a real browser, without Jupyter: seconds instead of a minute.

The messages of its page go to the browser at once; those of the browser are taken over by `collect`.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Sequence
from typing import Any

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page

from ptynb.widgets import element_tree
from ptynb.widgets.element_tree import Element
from ptynb.widgets.page_widget import script_text
from tests.widgets.conftest import screenshot

LIGHT = {
    "--jp-layout-color1": "#fff",
    "--jp-layout-color2": "#eee",
    "--jp-border-color1": "#bdbdbd",
    "--jp-ui-font-color1": "rgba(0,0,0,.87)",
    "--jp-ui-font-color2": "rgba(0,0,0,.54)",
    "--jp-brand-color1": "#1976d2",
}
DARK = {
    "--jp-layout-color1": "#111",
    "--jp-layout-color2": "#424242",
    "--jp-layout-color3": "#616161",
    "--jp-ui-inverse-font-color1": "rgba(0,0,0,.8)",
    "--jp-error-color1": "#f44336",
    "--jp-border-color1": "#616161",
    "--jp-ui-font-color1": "#fff",
    "--jp-ui-font-color2": "rgba(255,255,255,.7)",
    "--jp-brand-color1": "#2196f3",
}
PAGE = """<!doctype html><html lang="en"><head><title>A view</title><style>
:root {{ {variables} }} body {{ margin: 16px; background: var(--jp-layout-color1); }}
</style></head><body><main id="widget"></main></body></html>"""
CHANNEL = """
async ([script, tree, root]) => {
  const revive = (value) => {
    if (Array.isArray(value)) return value.map(revive);
    if (value === null || typeof value !== "object") return value;
    if ("base64" in value) return new DataView(Uint8Array.from(atob(value.base64), (c) => c.charCodeAt(0)).buffer);
    return Object.fromEntries(Object.entries(value).map(([key, kept]) => [key, revive(kept)]));
  };
  const listeners = [];
  const said = { messages: [], saves: 0 };
  const channel = {
    get: () => revive(tree),
    on: (event, act) => listeners.push(act),
    send: (content, callbacks, buffers = []) => {
      said.saves += "set" in content;
      said.messages.push([content, buffers.map((buffer) => Array.from(new Uint8Array(buffer)))]);
    },
  };
  const { pageOf, show } = await import(URL.createObjectURL(new Blob([script], { type: "text/javascript" })));
  const model = { model_id: "page", widget_manager: {} };
  window.remove = show({ channel, model, el: document.getElementById("widget") });
  window.kernel = {
    model: pageOf(channel).element(root),
    show: (el) => show({ channel, model, el }),
    update: (name, value) => kernel.model.update({ [name]: value }),
    saves: () => said.saves,
    receive: (message, buffers) => listeners.forEach((act) => act(message, revive(buffers))),
    collect: () => said.messages.splice(0),
  };
}
"""


THEMED = """
(theme) => {
  for (const [name, value] of Object.entries(theme)) document.documentElement.style.setProperty(name, value);
}
"""


EXAMINE = """
([context, options]) => axe.run(context ?? document, options).then(({ violations }) => violations.map(
  ({ id, nodes }) => [id, nodes[0].html]
))
"""
RULES = {"rules": {"region": {"enabled": False}, "page-has-heading-one": {"enabled": False}}}
RULES_OF_COLOURS = {"runOnly": ["color-contrast", "link-in-text-block"]}


def violations(page: Page, context: str | None = None, name: str = "") -> list[tuple[str, str, str]]:
    """Rules of accessibility that a page, or this part of it, breaks, with the theme and the first element.

    All rules in a light theme, those that depend on colours in a dark one too. name: of the pictures that are kept for
    a person's eye.
    """
    found = list[tuple[str, str, str]]()
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    for title, theme, rules in (("light", LIGHT, RULES), ("dark", DARK, RULES_OF_COLOURS)):
        page.evaluate(THEMED, theme)
        if name:
            screenshot(page, f"{name}-{title}")
        broken = page.evaluate(EXAMINE, [context, {**rules, "resultTypes": ["violations"]}])
        found += [(title, rule, element) for rule, element in broken]
    page.evaluate(THEMED, dict.fromkeys({**LIGHT, **DARK}, ""))
    return found


def plain(value: Any) -> Any:
    """What JSON can carry, bytes among it."""
    if isinstance(value, bytes | memoryview):
        return {"base64": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, dict):
        return {key: plain(kept) for key, kept in value.items()}
    if isinstance(value, list | tuple):
        return [plain(kept) for kept in value]
    return value


class BrowserModel:
    """Shows an element, with all below it, on a page until `close`; `widget` is the element."""

    def __init__(self, page: Page, widget: Element) -> None:
        self.page, self.widget = page, widget
        variables = "".join(f"{name}: {value};" for name, value in LIGHT.items())
        page.set_content(PAGE.format(variables=variables))
        self._unsent: list[list[Any]] = []
        self._page = element_tree.ElementPage(widget, self._send)
        page.evaluate(CHANNEL, [script_text(), plain(self._page.tree()), widget.key])
        self.collect()

    def _send(self, message: dict[str, Any], buffers: Sequence[Any] = ()) -> None:
        self._unsent.append([message, plain([*buffers])])
        if threading.current_thread() is threading.main_thread():  # that of the browser
            self._deliver()

    def _deliver(self) -> None:
        while self._unsent:
            message = self._unsent.pop(0)
            self.page.evaluate("([message, buffers]) => kernel.receive(message, buffers)", message)

    def collect(self) -> None:
        """Takes over what the page has set and sent since the last time, and sends what changed in other threads."""
        self._deliver()
        for content, buffers in self.page.evaluate("kernel.collect()"):
            self._page.receive(content, [bytes(buffer) for buffer in buffers])

    def message(self, content: dict[str, Any]) -> None:
        """A message of the kernel to what draws the element."""
        self.widget.send(content)

    def close(self) -> None:
        self._page.close()
