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
