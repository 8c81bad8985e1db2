"""The choice of a preset in a form."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import Any

import ipywidgets

from ptynb.settings.presets import PRESETS


class PresetChoice(ipywidgets.HBox):
    """Presets to choose from; `take` is called with the name of the one chosen."""

    def __init__(self, take: Callable[[str], None]) -> None:
        self._take = take
        self.choice = ipywidgets.Dropdown(
            options=[("choose ...", ""), *((name, name) for name in PRESETS)],
            description="Preset",
            tooltip="Takes settings for this kind of scan over, in place of all that is here",
            style={"description_width": "50px"},
            layout=ipywidgets.Layout(width="210px"),
        )
        self.about = ipywidgets.HTML(layout=ipywidgets.Layout(max_width="420px"))
        self.choice.observe(self._chosen, "value")
        super().__init__([self.choice, self.about], layout=ipywidgets.Layout(overflow="visible"))

    def _chosen(self, change: dict[str, Any]) -> None:
        name = change["new"]
        if not name:
            return
        self.about.value = f'<span style="font-size:90%">{html.escape(PRESETS[name].about)}</span>'
        self._take(name)
        self.choice.value = ""  # what is edited afterwards is no longer the preset
