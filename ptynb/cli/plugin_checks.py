"""Whether each installed plug-in is what its kind has to be: all are imported, for `ptynb info --plugins`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ptynb.cluster.cluster import launcher_class
from ptynb.data.source_address import SOURCES, SourceKind
from ptynb.exceptions import PluginError
from ptynb.io.export import Exporter
from ptynb.io.export.colour_maps import is_own, names_with
from ptynb.io.reading.reader_interface import Format
from ptynb.physics.losses import Loss
from ptynb.plugins import Plugin, class_of, instance
from ptynb.settings.cluster_options import SECTIONS
from ptynb.settings.constraints import CONSTRAINTS, ConstraintPlugin
from ptynb.settings.plugin_entries import ComponentPlugin, entry_model
from ptynb.settings.regularizers import LOSSES

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


OWN: dict[str, Callable[[str], bool]] = {
    "live_sources": SOURCES.__contains__,
    "losses": ("auto", *LOSSES).__contains__,
    "constraints": CONSTRAINTS.own.__contains__,
    "launchers": SECTIONS.__contains__,
    "colour_maps": is_own,
}
"""Kind -> whether a name is one of ptynb's own, before those of plug-ins; other kinds have no own names."""


def problem_of(plugin: Plugin) -> str:
    """Return why a plug-in cannot be used, or is not; empty if it can."""
    if OWN.get(plugin.kind, lambda name: False)(plugin.name):
        whose = "matplotlib" if plugin.kind == "colour_maps" else "ptynb"
        return f"Not used: {whose} has this name; {plugin.distribution} needs another one for it."
    try:
        CHECKS[plugin.kind](plugin)
    except PluginError as error:
        return str(error)
    return ""
