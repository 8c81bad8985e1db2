"""Colour maps as look-up tables: those of matplotlib, to which plug-ins add theirs."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import numpy as np

from ptynb import plugins
from ptynb.data.engine_records import Array
from ptynb.exceptions import InvalidValueError
from ptynb.plugins import Plugin

COLOURS = ("gray", "viridis", "cividis", "magma", "PuOr", "twilight")
"""Maps to choose from: perceptually uniform; PuOr diverges, for differences, twilight is cyclic, for phases."""
CYCLIC = ("twilight", "twilight_shifted")
"""Cyclic maps, for which the browser does not change the contrast."""


@functools.cache
def offered() -> tuple[str, ...]:
    """Return the maps to choose from, those of plug-ins, too; what cannot be used of them is a notice."""
    added = []
    for plugin in plugins.of_kind("colour_maps"):
        with plugins.isolated():
            _register(plugin)
            added.append(plugin.name)
    return (*COLOURS, *(name for name in added if name not in COLOURS))


def names_with(name: str) -> Iterable[str]:
    """Return the names of all maps that matplotlib has; it gets that of this name first, if it is of a plug-in."""
    from matplotlib import colormaps

    if name not in colormaps and (plugin := plugins.named("colour_maps", name)) is not None:
        _register(plugin)
    return colormaps


def is_own(name: str) -> bool:
    """Whether matplotlib itself has a map of this name, so that one of a plug-in is not used."""
    from matplotlib import colormaps

    return name in colormaps and name not in _added


_added = set[str]()
"""Maps that matplotlib has of plug-ins."""


def _register(plugin: Plugin) -> None:
    """Give matplotlib the map of a plug-in, unless it has one of this name. Raises PluginError."""
    from matplotlib import colormaps
    from matplotlib.colors import LinearSegmentedColormap

    if plugin.name in colormaps:
        return
    values = plugins.instance(plugin, np.ndarray)
    if values.ndim != 2 or values.shape[1] != 3 or len(values) < 2 or not ((values >= 0) & (values <= 1)).all():
        raise plugins.unfit(plugin, f"is an array of the shape {values.shape}; expected colours (n, 3) from 0 to 1")
    colormaps.register(LinearSegmentedColormap.from_list(plugin.name, values))
    _added.add(plugin.name)


def look_up_table(name: str) -> Array:
    """Return the table (256, 3) uint8 of a colour map. Raises InvalidValueError for an unknown name."""
    from matplotlib import colormaps

    if name not in names_with(name):
        raise InvalidValueError(
            f"There is no colour map {name!r}; expected one of matplotlib, such as 'gray' or 'viridis'"
            f"{plugins.or_of_plugins('colour_maps')}.",
            code="argument.invalid-value",
            fields=("colours",),
        )
    return (colormaps[name](np.arange(256) / 255.0)[:, :3] * 255).round().astype(np.uint8)
