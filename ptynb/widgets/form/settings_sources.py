"""Sources of the settings in a form: defaults, presets, a recommendation, YAML files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ptynb.exceptions import FileError
from ptynb.settings import Settings
from ptynb.settings.presets import PRESETS, preset

DEFAULTS = "defaults"


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

    offered: by name, the defaults first. held: the source of the settings, also after they were edited.
    """

    def __init__(self, scan: Any) -> None:
        self.offered = _usual_sources(scan)
        self.held = self.offered[DEFAULTS]

    @property
    def from_defaults(self) -> bool:
        """Whether the settings come from the defaults, some of which depend on other settings."""
        return self.held.name == DEFAULTS

    def for_scan(self, scan: Any) -> None:
        """Offer the presets for another scan; settings that come from one are compared with it from now on."""
        self.offered |= _usual_sources(scan)
        self.held = self.offered[self.held.name]

    def take(self, source: Source) -> None:
        """Make a source the one that the settings come from, and offer it."""
        self.offered[source.name] = self.held = source

    def find(self, settings: Settings) -> None:
        """Find the source whose settings these are; edited ones remain those of the last source."""
        sources = (self.held, *self.offered.values())
        self.held = next((source for source in sources if source.settings == settings), self.held)


def _usual_sources(scan: Any) -> dict[str, Source]:
    """Return the defaults and all presets for a scan, or without one."""
    of_scan = "" if scan is None else ", scan"
    presets = (
        Source(name, f"preset {name}", preset(name, scan), f"pt.preset({name!r}{of_scan})", kind.about, kind.reasons)
        for name, kind in PRESETS.items()
    )
    return {one.name: one for one in (Source(DEFAULTS, "default", Settings(), "pt.Settings()"), *presets)}


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
    path.write_text(settings.to_yaml(), encoding="utf-8")
