"""Plug-ins: what other installed packages add to ptynb, found by the entry points of their distributions.

A package names what it adds in its pyproject.toml, one table for each of `KINDS`:

    [project.entry-points."ptynb.losses"]
    huber = "my_package.losses:HuberLoss"

Plug-ins are trusted by their installation and by nothing else: a name in a file or a run file is looked up among those
that are installed, and is never imported. They are found when a name is used that is not one of ptynb's, or when all
are listed, and each is imported when it is used, once in a process. One that cannot be used is a notice that names its
distribution where all are listed, and an error where it was asked for.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from ptynb.exceptions import PluginError, PtynbError, PtynbWarning
from ptynb.text import in_one_line, quoted

KINDS = {
    "formats": "file format",
    "live_sources": "live source",
    "components": "model component",
    "losses": "loss",
    "constraints": "constraint",
    "launchers": "launcher",
    "exporters": "exporter",
    "colour_maps": "colour map",
}
"""Kinds of plug-ins, the ends of the names of their groups of entry points ("ptynb.losses"), and what one is."""
__all__ = ["Plugin", "installed"]
MOST_LETTERS = 200
"""Largest number of characters of the message of an error in a plug-in."""

T = TypeVar("T")


@dataclass(frozen=True)
class Plugin:
    """Something that another installed package adds to ptynb.

    Parameters
    ----------
    kind : str
        Kind of the plug-in: "formats", "live_sources", "components", "losses", "constraints", "launchers", "exporters"
        or "colour_maps".
    name : str
        Name by which it is used, that of its entry point.
    distribution : str
        Name of the distribution (the package as pip knows it) that it belongs to.
    version : str
        Version of the distribution.
    """

    kind: str
    name: str
    distribution: str
    version: str

    def __str__(self) -> str:
        return f"the {KINDS.get(self.kind, 'plug-in')} {self.name!r} of {self.distribution} {self.version}"


@functools.cache
def _found() -> dict[Plugin, EntryPoint]:
    """Return all installed plug-ins; of two with the same kind and name, the first by the names of distributions."""
    found, entries = {}, entry_points()  # all: each call reads the files of every distribution
    for kind in KINDS:
        for entry in entries.select(group=f"ptynb.{kind}"):
            if entry.dist is not None:
                found[Plugin(kind, entry.name, entry.dist.name, entry.dist.version)] = entry
    chosen: dict[tuple[str, str], Plugin] = {}
    for plugin in sorted(found, key=lambda one: (one.kind, one.name, one.distribution)):
        other = chosen.setdefault((plugin.kind, plugin.name), plugin)
        if other is not plugin:
            _warn(f"{_capital(plugin)} is not used, since {other} has the same name; remove one of them.")
    return {plugin: found[plugin] for plugin in chosen.values()}


@functools.cache
def _warn(notice: str) -> None:
    """Show a notice, once in a process."""
    warnings.warn(notice, PtynbWarning, stacklevel=3)


def _capital(plugin: Plugin) -> str:
    return f"T{str(plugin)[1:]}"


def installed() -> tuple[Plugin, ...]:
    """Return the installed plug-ins: what other packages add to ptynb. None of them is imported.

    Returns
    -------
    tuple of Plugin
        The plug-ins, by kind and name.
    """
    return (*_found(),)


def named(kind: str, name: str) -> Plugin | None:
    """Return the installed plug-in of this kind and name; None if there is none."""
    return next((one for one in _found() if (one.kind, one.name) == (kind, name)), None)


def used(kind: str, name: str) -> Plugin:
    """Return the installed plug-in of this kind and name. Raises PluginError if there is none."""
    found = named(kind, name)
    if found is None:
        raise PluginError(
            f"The {KINDS[kind]} {name!r} is none of ptynb's, and no plug-in of this name is installed; install the "
            "package that has it.",
            code="plugin.not-installed",
        )
    return found


def of_kind(kind: str) -> tuple[Plugin, ...]:
    """Return the installed plug-ins of a kind, by name."""
    return tuple(one for one in _found() if one.kind == kind)


@functools.cache
def _imported(plugin: Plugin) -> Any:
    """Return what the entry point names, or the error of its import."""
    try:
        return _found()[plugin].load()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - told where it is used
        return _failed(plugin, "cannot be imported", error)


def _failed(plugin: Plugin, what: str, error: BaseException) -> PluginError:
    told = f"{type(error).__name__}: {in_one_line(error, MOST_LETTERS)}"
    found = PluginError(
        f"{_capital(plugin)} {what} ({told}); update or remove that package.",
        code="plugin.failed",
    )
    found.__cause__ = error
    return found


def instance(plugin: Plugin, expected: type[T]) -> T:
    """Return the object that a plug-in names, of the type that its kind needs. Raises PluginError."""
    found = _imported(plugin)
    if isinstance(found, PluginError):
        raise found
    if not isinstance(found, expected):
        raise unfit(plugin, f"is {quoted(found)}; expected an instance of {expected.__name__}")
    return found


def class_of(plugin: Plugin, base: type[T]) -> type[T]:
    """Return the class that a plug-in names, derived from the base that its kind needs. Raises PluginError."""
    found = _imported(plugin)
    if isinstance(found, PluginError):
        raise found
    if not (isinstance(found, type) and issubclass(found, base)) or getattr(found, "__abstractmethods__", None):
        told = f"is {quoted(found)}; expected a class derived from {base.__name__} with all of its methods"
        raise unfit(plugin, told)
    return found


def unfit(plugin: Plugin, told: str) -> PluginError:
    """Return the error about a plug-in that is not what its kind has to be. told: follows its name."""
    return PluginError(f"{_capital(plugin)} {told}. Update or remove that package.", code="plugin.invalid")


@contextmanager
def guarded(plugin: Plugin, what: str = "failed", *, whole: bool = False) -> Iterator[None]:
    """Turn errors of a plug-in that are none of ptynb's into a PluginError that names it. whole: also ptynb's."""
    try:
        yield
    except (Exception, SystemExit) as error:
        if isinstance(error, PtynbError) and not whole:
            raise
        raise _failed(plugin, what, error) from error


@contextmanager
def isolated() -> Iterator[None]:
    """Make a PluginError in the block a notice, shown once in a process: for plug-ins that nobody asked for."""
    try:
        yield
    except PluginError as error:
        _warn(str(error))


def check_installed(used: Iterable[Plugin], where: str = "") -> None:
    """Raise PluginError if one of these plug-ins is not installed here, or is another version.

    where: "on the engine of rank 2: ", say.
    """
    for plugin in used:
        found = named(plugin.kind, plugin.name)
        if found is None:
            raise PluginError(
                f"{where}{_capital(plugin)} is not installed; install it: pip install "
                f"'{plugin.distribution}=={plugin.version}'.",
                code="plugin.not-installed",
            )
        if (found.distribution, found.version) != (plugin.distribution, plugin.version):
            raise PluginError(
                f"{where}{_capital(found)} is installed; expected {plugin.distribution} {plugin.version}. Install the "
                "same version.",
                code="plugin.other-version",
            )


def other_versions(recorded: Iterable[Plugin], loads: bool) -> tuple[str, ...]:
    """Return remarks on plug-ins of a record that the run needs again, and that are another version here.

    loads: whether its scan is loaded, too. Raises PluginError if one is missing.
    """
    remarks = []
    for plugin in recorded:
        if plugin.kind not in ("components", "losses", "constraints", *(("formats",) if loads else ())):
            continue
        try:
            check_installed([plugin])
        except PluginError as error:
            if error.code != "plugin.other-version":
                raise
            found = named(plugin.kind, plugin.name)
            remarks.append(f"{_capital(plugin)} was used in the original run; now it is {found}.")
    return (*remarks,)


def or_of_plugins(kind: str) -> str:
    """Return the end of a sentence about an unknown name: the names that plug-ins add."""
    names = [repr(one.name) for one in of_kind(kind)]
    return f", or of a plug-in: {', '.join(names)}" if names else f" (no plug-in with a {KINDS[kind]} is installed)"


def clear_found() -> None:
    """Look for plug-ins again: some were installed or removed."""
    for function in (_found, _imported, _warn):
        function.cache_clear()
