"""The files of a form: a name, and buttons to load settings from it and to save them there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import ipywidgets

from ptynb.exceptions import SettingsError
from ptynb.settings import Settings


class Files(ipywidgets.HBox):
    """A file's name with buttons; `load` and `save` are called with it."""

    def __init__(self, load: Callable[[Path], None], save: Callable[[Path], None]) -> None:
        self.name = ipywidgets.Text(
            "settings.yaml",
            description="File",
            tooltip="YAML file with settings; relative to the notebook's folder",
            continuous_update=False,
            style={"description_width": "40px"},
            layout=ipywidgets.Layout(width="260px"),
        )
        self.load, self.save = (
            ipywidgets.Button(description=word, tooltip=tip, icon=icon, layout=ipywidgets.Layout(width="80px"))
            for word, tip, icon in (
                ("Load", "Takes the settings in this file over", "folder-open"),
                ("Save", "Writes the settings to this file", "save"),
            )
        )
        self.load.on_click(lambda _: load(self.path))
        self.save.on_click(lambda _: save(self.path))
        super().__init__([self.name, self.load, self.save], layout=ipywidgets.Layout(overflow="visible"))

    @property
    def path(self) -> Path:
        """The file that is named."""
        return Path(self.name.value.strip()).expanduser()


def read_file(path: Path) -> Settings:
    """The settings in a YAML file. Raises SettingsError where there are none."""
    if not path.is_file():
        raise SettingsError(f"{path} is no file; expected one with settings as YAML. Name another, or save one first.")
    return Settings.from_yaml(path)


def write_file(path: Path, settings: Settings) -> None:
    """Writes settings as YAML; an existing file is replaced."""
    if path.is_dir() or not path.name:
        raise SettingsError(f"{str(path)!r} is a folder; expected the name of a file, such as settings.yaml.")
    path.write_text(settings.to_yaml())
