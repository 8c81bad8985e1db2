"""A widget of this process on a plain page of a real browser, without Jupyter: seconds instead of a minute.

The page has what anywidget gives a widget's module: a model with get, set, on, off, save_changes and send. Traits that
change here are sent there at once; what the page says is taken over by `collect`.
"""

from __future__ import annotations

import base64
from typing import Any

from playwright.sync_api import Page

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
    "--jp-border-color1": "#616161",
    "--jp-ui-font-color1": "#fff",
    "--jp-ui-font-color2": "rgba(255,255,255,.7)",
    "--jp-brand-color1": "#2196f3",
}
PAGE = """<!doctype html><html lang="en"><head><title>A widget</title><style>
:root {{ {variables} }} body {{ margin: 16px; background: var(--jp-layout-color1); }}
</style></head><body><main id="widget"></main></body></html>"""
MODEL = """
async ([esm, state]) => {
  const revive = (value) => {
    if (Array.isArray(value)) return value.map(revive);
    if (value === null || typeof value !== "object" || value instanceof DataView) return value;
    if ("base64" in value) return new DataView(Uint8Array.from(atob(value.base64), (c) => c.charCodeAt(0)).buffer);
    return Object.fromEntries(Object.entries(value).map(([key, kept]) => [key, revive(kept)]));
  };
  const known = Object.fromEntries(Object.entries(state).map(([key, value]) => [key, revive(value)]));
  const listeners = new Map();
  const fire = (event, ...arguments_) => [...(listeners.get(event) ?? [])].forEach((act) => act(...arguments_));
  const changed = new Set();
  const said = { state: {}, messages: [], saves: 0 };
  const model = {
    get: (key) => known[key],
    set: (key, value) => {
      if (JSON.stringify(known[key]) === JSON.stringify(value)) return;
      known[key] = value;
      changed.add(key);
      fire(`change:${key}`);
    },
    save_changes: () => {
      said.saves += 1;
      for (const key of changed) said.state[key] = known[key];
      changed.clear();
    },
    send: (content, callbacks, buffers = []) => {
      said.messages.push([content, buffers.map((buffer) => Array.from(new Uint8Array(buffer)))]);
    },
    on: (event, act) => listeners.set(event, [...(listeners.get(event) ?? []), act]),
    off: (event, act) => listeners.set(event, (listeners.get(event) ?? []).filter((other) => other !== act)),
  };
  window.kernel = {
    model,
    listeners,
    update: (key, value) => { known[key] = revive(value); fire(`change:${key}`); },
    saves: () => said.saves,
    message: (content) => fire("msg:custom", content, []),
    collect: () => {
      const taken = { state: { ...said.state }, messages: said.messages };
      said.state = {};
      said.messages = [];
      return taken;
    },
  };
  const module = await import(URL.createObjectURL(new Blob([esm], { type: "text/javascript" })));
  window.remove = await module.default.render({ model, el: document.getElementById("widget") });
}
"""


def _plain(value: Any) -> Any:
    """What JSON can carry, bytes among it."""
    if isinstance(value, bytes | memoryview):
        return {"base64": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, dict):
        return {key: _plain(kept) for key, kept in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(kept) for kept in value]
    return value


class BrowserModel:
    """Shows an anywidget on a page until `close`."""

    def __init__(self, page: Page, widget: Any, *, theme: dict[str, str] = LIGHT) -> None:
        self.page, self.widget = page, widget
        variables = "".join(f"{name}: {value};" for name, value in theme.items())
        page.set_content(PAGE.format(variables=variables))
        names = [name for name in widget.traits(sync=True) if not name.startswith("_")]
        names = [name for name in names if name not in ("layout", "tabbable", "tooltip")]
        page.evaluate(MODEL, [widget._esm, {name: _plain(getattr(widget, name)) for name in names}])
        self._taking = False
        self._names = names
        widget.observe(self._changed, names)

    def _changed(self, change: Any) -> None:
        if not self._taking:
            self.page.evaluate("([key, value]) => kernel.update(key, value)", [change["name"], _plain(change["new"])])

    def collect(self) -> None:
        """Takes over what the page has set and sent since the last time."""
        said = self.page.evaluate("kernel.collect()")
        self._taking = True
        for name, value in said["state"].items():
            setattr(self.widget, name, value)
        self._taking = False
        for content, buffers in said["messages"]:
            self.widget._handle_custom_msg(content, [bytes(buffer) for buffer in buffers])

    def message(self, content: dict[str, Any]) -> None:
        """A message of the kernel to the page."""
        self.page.evaluate("content => kernel.message(content)", content)

    def close(self) -> None:
        self.widget.unobserve(self._changed, self._names)
