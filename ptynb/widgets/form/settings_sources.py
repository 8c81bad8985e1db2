"""Sources of the settings in a form: defaults, presets, a recommendation, YAML files."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ptynb.exceptions import FileError
from ptynb.settings import Settings
from ptynb.settings.presets import PRESETS, preset
from ptynb.widgets import elements
from ptynb.widgets.shared_widgets import put

DEFAULTS = "defaults"
CHANGED = "changed"
"""Key of the option that is shown once settings of a source were edited."""


@dataclass(frozen=True)
class Source:
    """Settings with a name.

    title: in sentences, 'preset "thin X-ray"'. reasons: why its settings are as they are, by dotted name. line: of
    Python that makes them, after `settings = `.
    """

    name: str
    title: str
    settings: Settings
    line: str
    about: str = ""
    reasons: Mapping[str, str] = field(default_factory=dict)


class Sources:
    """The sources that a form offers: defaults, presets, and what was taken; and the one that its settings come from.

    held: the source of the settings, also after they were edited.
    """

    def __init__(self, scan: Any) -> None:
        self._usual, self._taken = _usual_sources(scan), dict[str, Source]()
        self.held = self._usual[0]

    @property
    def offered(self) -> tuple[Source, ...]:
        """All sources, the defaults first."""
        return (*self._usual, *self._taken.values())

    @property
    def from_defaults(self) -> bool:
        """Whether the settings come from the defaults, some of which depend on other settings."""
        return self.held.name == DEFAULTS

    def for_scan(self, scan: Any) -> None:
        """Offer the presets for another scan; settings that come from one are compared with it from now on."""
        self._usual = _usual_sources(scan)
        self.held = next((source for source in self.offered if source.name == self.held.name), self.held)

    def take(self, source: Source) -> None:
        """Make a source the one that the settings come from, and offer it."""
        if all(source.name != usual.name for usual in self._usual):
            self._taken[source.name] = source
        self.held = source

    def find(self, settings: Settings) -> None:
        """Find the source whose settings these are; edited ones remain those of the last source."""
        sources = (self.held, *self.offered)
        self.held = next((source for source in sources if source.settings == settings), self.held)

    def named(self, name: str) -> Source:
        """Return the source of this name."""
        return next(source for source in self.offered if source.name == name)


def _usual_sources(scan: Any) -> tuple[Source, ...]:
    """Return the defaults and all presets for a scan, or without one."""
    of_scan = "" if scan is None else ", scan"
    presets = (
        Source(name, f"preset {name}", preset(name, scan), f"pt.preset({name!r}{of_scan})", kind.about, kind.reasons)
        for name, kind in PRESETS.items()
    )
    return Source(DEFAULTS, "default", Settings(), "pt.Settings()"), *presets


class SourceChoice(elements.HBox):
    """A list of sources that shows which one holds; `take` is called with the name of the chosen one.

    about: what the source is for, to be shown below.
    """

    def __init__(self, take: Callable[[str], None]) -> None:
        self._take, self._showing = take, False
        self.choice = elements.Dropdown(
            description="Preset",
            tooltip="Settings for a kind of scan; a choice replaces all settings",
            style={"description_width": "50px"},
            layout=elements.Layout(width="240px"),
        )
        self.about = elements.HTML()
        self.choice.observe(self._chosen, "value")
        super().__init__([self.choice], layout=elements.Layout(overflow="visible"))

    def show(self, sources: Sequence[Source], held: Source, changed: bool) -> None:
        """Offer these sources and show which one holds, and whether its settings were edited."""
        options = [(source.name, source.name) for source in sources]
        if changed:
            options.append((f"{held.name}, changed", CHANGED))
        self._showing = True
        try:
            if [*self.choice.options] != options:
                self.choice.options = options
            self.choice.value = CHANGED if changed else held.name
        finally:
            self._showing = False
        about = html.escape(held.about)
        put(self.about, f'<div style="line-height:1.4;padding-left:56px">{about}</div>' if about else "")
        self.about.layout.display = None if about else "none"

    def _chosen(self, change: dict[str, Any]) -> None:
        if not self._showing and change["new"] not in (None, CHANGED):
            self._take(change["new"])


class SettingsFiles(elements.HBox):
    """A file name with buttons Load and Save, which call `load` and `save` with its path."""

    def __init__(self, load: Callable[[Path], None], save: Callable[[Path], None]) -> None:
        self.name = elements.Text(
            "settings.yaml",
            description="Settings file",
            tooltip="YAML file of settings, relative to the folder of the notebook",
            continuous_update=False,
            style={"description_width": "80px"},
            layout=elements.Layout(width="210px"),
        )
        self.load, self.save = (
            elements.Button(description=text, tooltip=tip, icon=icon, layout=elements.Layout(width="auto"))
            for text, tip, icon in (
                ("Load", "Loads the settings in this file", "folder-open"),
                ("Save", "Writes the settings to this file", "save"),
            )
        )
        self.load.on_click(lambda _: load(self.path))
        self.save.on_click(lambda _: save(self.path))
        super().__init__([self.name, self.load, self.save], layout=elements.Layout(overflow="visible"))

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
