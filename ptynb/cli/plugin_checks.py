"""Whether each installed plug-in is what its kind has to be: all are imported, for `ptynb info --plugins`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ptynb.cluster.cluster import launcher_class
from ptynb.data.source_address import SourceKind
from ptynb.exceptions import PluginError
from ptynb.io.export import Exporter
from ptynb.io.export.colour_maps import names_with
from ptynb.io.reading.reader_interface import Format
from ptynb.physics.losses import Loss
from ptynb.plugins import Plugin, class_of, instance
from ptynb.settings.constraints import ConstraintPlugin
from ptynb.settings.plugin_entries import ComponentPlugin, entry_model

CHECKS: dict[str, Callable[[Plugin], Any]] = {
    "formats": lambda one: instance(one, Format),
    "live_sources": lambda one: instance(one, SourceKind),
    "components": lambda one: entry_model(one, ComponentPlugin),
    "losses": lambda one: class_of(one, Loss),
    "constraints": lambda one: entry_model(one, ConstraintPlugin),
    "launchers": lambda one: launcher_class(one.name),
    "exporters": lambda one: instance(one, Exporter),
    "colour_maps": lambda one: names_with(one.name),
}
"""Kind -> function that raises an error of ptynb for a plug-in that cannot be used."""


def problem_of(plugin: Plugin) -> str:
    """Return why a plug-in cannot be used; empty if it can."""
    try:
        CHECKS[plugin.kind](plugin)
    except PluginError as error:
        return str(error)
    return ""
