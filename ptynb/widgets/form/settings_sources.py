"""Sources of the settings in a form: presets and YAML files."""

from __future__ import annotations

import html
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ipywidgets

from ptynb.exceptions import FileError
from ptynb.settings import Settings
from ptynb.settings.presets import PRESETS


class PresetChoice(ipywidgets.HBox):
    """A list of presets; `take` is called with the name of the chosen one."""

    def __init__(self, take: Callable[[str], None]) -> None:
        self._take = take
        self.choice = ipywidgets.Dropdown(
            options=[("choose ...", ""), *((name, name) for name in PRESETS)],
            description="Preset",
            tooltip="Replaces all settings by those for this kind of scan",
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
        self.choice.value = ""  # edited settings no longer equal the preset


class SettingsFiles(ipywidgets.HBox):
    """A file name with buttons Load and Save, which call `load` and `save` with its path."""

    def __init__(self, load: Callable[[Path], None], save: Callable[[Path], None]) -> None:
        self.name = ipywidgets.Text(
            "settings.yaml",
            description="File",
            tooltip="YAML file of settings, relative to the folder of the notebook",
            continuous_update=False,
            style={"description_width": "40px"},
            layout=ipywidgets.Layout(width="260px"),
        )
        self.load, self.save = (
            ipywidgets.Button(description=text, tooltip=tip, icon=icon, layout=ipywidgets.Layout(width="80px"))
            for text, tip, icon in (
                ("Load", "Loads the settings in this file", "folder-open"),
                ("Save", "Writes the settings to this file", "save"),
            )
        )
        self.load.on_click(lambda _: load(self.path))
        self.save.on_click(lambda _: save(self.path))
        super().__init__([self.name, self.load, self.save], layout=ipywidgets.Layout(overflow="visible"))

    @property
    def path(self) -> Path:
        """The path of the file."""
        return Path(self.name.value.strip()).expanduser()


def read_file(path: Path) -> Settings:
    """Return the settings in a YAML file. Raises FileError, SettingsError."""
    if not path.is_file():
        raise FileError(
            f"{path} does not exist or is not a file; expected YAML settings. Save one first or enter another name.",
            code="file.not-found",
        )
    return Settings.from_yaml(path)


def write_file(path: Path, settings: Settings) -> None:
    """Write settings as YAML; an existing file is replaced. Raises FileError."""
    if path.is_dir() or not path.name:
        raise FileError(
            f"{str(path)!r} is a folder; expected the name of a file, such as settings.yaml.", code="file.not-writable"
        )
    path.write_text(settings.to_yaml())
