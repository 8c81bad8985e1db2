"""Whether each installed plug-in is what its kind has to be: all are imported, for `ptynb info` and `ptynb doctor`."""

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
from ptynb.plugins import KINDS, Plugin, class_of, guarded, installed, instance
from ptynb.settings.cluster_options import SECTIONS
from ptynb.settings.constraints import CONSTRAINTS, ConstraintPlugin
from ptynb.settings.plugin_entries import OWN_COMPONENTS, ComponentPlugin, entry_model
from ptynb.settings.regularizers import LOSSES
from ptynb.table import Table

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
    "components": OWN_COMPONENTS.__contains__,
    "live_sources": SOURCES.__contains__,
    "losses": ("auto", *LOSSES).__contains__,
    "constraints": CONSTRAINTS.own.__contains__,
    "launchers": SECTIONS.__contains__,
    "colour_maps": is_own,
}
"""Kind -> whether a name is one of ptynb's own, before those of plug-ins; other kinds have no own names."""


def problems() -> dict[Plugin, str]:
    """Return the installed plug-ins, and why each cannot be used, or is not; empty for those that can."""
    return {plugin: _problem_of(plugin) for plugin in installed()}


def listed(found: dict[Plugin, str]) -> str:
    """Return plug-ins with their problems as a table."""
    if not found:
        return "No plug-in is installed."
    rows = tuple(
        (KINDS[one.kind], one.name, one.distribution, one.version, problem or "works") for one, problem in found.items()
    )
    return Table(("Kind", "Name", "Package", "Version", "State"), rows, left=(0, 1, 2, 3, 4)).text()


def _problem_of(plugin: Plugin) -> str:
    if OWN.get(plugin.kind, lambda name: False)(plugin.name):
        whose = "matplotlib" if plugin.kind == "colour_maps" else "ptynb"
        return f"Not used: {whose} has this name; {plugin.distribution} needs another one for it."
    try:
        with guarded(plugin):
            CHECKS[plugin.kind](plugin)
    except PluginError as error:
        return str(error)
    return ""
