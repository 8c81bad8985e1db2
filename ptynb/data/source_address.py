"""Live sources: what there is to know of each kind, and which one of them an address names.

`SOURCES` is the only list of those of ptynb: addresses, the receiver, forms, run files, the docstring of `listen` and
`ptynb emulate` follow from it. Plug-ins add others (`all_kinds`).
"""

from __future__ import annotations

import pkgutil
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

from ptynb import plugins
from ptynb.exceptions import AcquisitionError, InvalidValueError
from ptynb.plugins import Plugin
from ptynb.text import quoted

Role = Literal["source", "positions"]
"""What a source is for: patterns, or positions; the argument of `ptynb.listen` that names it."""


@dataclass(frozen=True)
class SourceKind:
    """A kind of live source.

    title: what it is. example: its address, with its default port after "host", if it has one. options: what those
    after a question mark are, by name; values: regular expressions of the values of some of them. opens: what makes a
    `LiveSource` of an `Address`. emulators: names for `ptynb emulate`, and classes. Both are "module:name". extra: of
    the package that they need, in pyproject.toml.
    """

    role: Role
    title: str
    example: str
    opens: str
    emulators: dict[str, str]
    options: dict[str, str] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    extra: str = ""

    @property
    def port(self) -> int:
        """The default port; 0: the address names no host, but a PV, say."""
        found = re.search(r"://host:(\d+)", self.example)
        return int(found[1]) if found else 0

    def loaded(self, name: str) -> Any:
        """Return what `opens`, or an emulator; each is imported on demand, for its packages.

        Raise AcquisitionError if the package is not installed.
        """
        try:
            return pkgutil.resolve_name(name)
        except ImportError:
            if not self.extra:
                raise
            raise AcquisitionError(
                f"{self.title} ({self.example}) needs a package that is not installed: pip install "
                f"'ptynb[{self.extra}]'.",
                code="package.not-installed",
            ) from None


SOURCES = {
    "stream2": SourceKind(
        "source", "Dectris' stream2", "stream2://host:31001",
        options={"channel": "one of several thresholds, such as threshold_2; by default the first"},
        opens="ptynb.acquisition.protocols.simplon_v2:open_stream2",
        emulators={"stream2": "ptynb.acquisition.emulators.simplon_players:Stream2Player"},
    ),
    "simplon": SourceKind(
        "source", "Dectris' Simplon stream, version 1", "simplon://host:9999",
        opens="ptynb.acquisition.protocols.simplon_v1:open_simplon",
        emulators={"simplon": "ptynb.acquisition.emulators.simplon_players:SimplonPlayer"},
    ),
    "pva": SourceKind(
        "source", "an NTNDArray of EPICS' PV Access", "pva://PREFIX:Pva1:Image",
        options={
            "first": "the number (uniqueId) of the first pattern",
            "server": "host:port; otherwise it is searched",
        },
        values={"first": r"\d+"},
        opens="ptynb.acquisition.protocols.pva:PvAccess",
        emulators={"pva": "ptynb.acquisition.emulators.pva_player:PvaPlayer"},
        extra="pva",
    ),
    "file": SourceKind(
        "source", "an HDF5 file that is being written: SWMR, or Eiger's master file; it need not exist yet", "scan.h5",
        options={
            "patterns": "their dataset, such as entry/data/data",
            "uid": "a dataset that is not 0 where a pattern has been written",
        },
        opens="ptynb.acquisition.protocols.swmr:GrowingFile",
        emulators={
            "swmr": "ptynb.acquisition.emulators.file_players:SwmrPlayer",
            "eiger": "ptynb.acquisition.emulators.file_players:EigerPlayer",
        },
    ),
    "panda": SourceKind(
        "positions", "captured fields of a PandA", "panda://host:8889?y=INENC1.VAL.Mean&x=INENC2.VAL.Mean",
        options={"y": "a field", "x": "a field", "number": "the field with the number of the pattern"},
        opens="ptynb.acquisition.protocols.panda:Panda",
        emulators={"panda": "ptynb.acquisition.emulators.position_players:PandaPlayer"},
    ),
    "zmq+json": SourceKind(
        "positions", "JSON by ZeroMQ", "zmq+json://host:5556",
        options={"pattern": "pull or sub, as the sender pushes (by default) or publishes"},
        values={"pattern": "pull|sub"},
        opens="ptynb.acquisition.protocols.json_positions:open_json",
        emulators={"json": "ptynb.acquisition.emulators.position_players:JsonPlayer"},
    ),
}  # fmt: skip
"""All kinds of live sources of ptynb; but for files, by the scheme of their addresses."""


def source_kind(name: str) -> SourceKind | None:
    """Return a kind of live sources, one of ptynb's or of a plug-in; None if there is none. Raises PluginError."""
    if name in SOURCES:
        return SOURCES[name]
    plugin = plugin_of(name)
    return None if plugin is None else plugins.instance(plugin, SourceKind)


def plugin_of(name: str) -> Plugin | None:
    """Return the plug-in that this kind of live sources is; None if it is one of ptynb's, or not installed."""
    return None if name in SOURCES else plugins.named("live_sources", name)


def all_kinds() -> dict[str, SourceKind]:
    """Return all kinds of live sources, those of plug-ins, too; what cannot be used of them is a notice."""
    found = dict(SOURCES)
    for plugin in plugins.of_kind("live_sources"):
        with plugins.isolated():
            found.setdefault(plugin.name, plugins.instance(plugin, SourceKind))
    return found


def example(role: Role) -> str:
    """Return an address of the first kind."""
    return next(kind.example for kind in SOURCES.values() if kind.role == role)


def addresses(role: Role) -> str:
    """Return an address of each kind, and what it is."""
    return ", ".join(f"{kind.example} ({kind.title})" for kind in SOURCES.values() if kind.role == role)


def described(role: Role) -> list[str]:
    """Return for each kind a line with an address, what it is, and its options."""
    return [
        "; ".join([f"{kind.example} ({kind.title})", *(f"{name}: {about}" for name, about in kind.options.items())])
        for kind in SOURCES.values()
        if kind.role == role
    ]


@dataclass(frozen=True)
class Address:
    """A source that a text names. kind: of `SOURCES`; place: host, name of the PV, or path."""

    kind: str
    place: str
    port: int
    options: dict[str, str]


def pattern_address(text: str | Path) -> Address:
    """Return the source of patterns that a text names. Raise InvalidValueError for others."""
    if isinstance(text, str) and "://" in text:
        return _network(text, "source")
    place, _, query = str(text).partition("?")
    return Address("file", str(Path(place).expanduser().absolute()), 0, _options("source", str(text), "file", query))


def position_address(text: str) -> Address:
    """Return the source of positions that a text names. Raise InvalidValueError for others."""
    return _network(text, "positions")


def with_positions(patterns: Address, text: str) -> Address:
    """Return a file as source with names of its datasets with positions. Raise InvalidValueError for others."""
    names = text.split(",")
    if patterns.kind != "file" or len(names) > 2 or not all(names) or "://" in text:
        ways = (
            f"'planned', an address such as {example('positions')}, or, of a file as source, one dataset (pattern, yx)"
        )
        raise _invalid("positions", text, f"{ways} or two: 'entry/y,entry/x'")
    return replace(patterns, options={**patterns.options, "positions": text})


def live_addresses(source: str | Path, positions: str) -> tuple[Address, Address | None]:
    """Return the source of patterns, and that of positions that are neither planned nor in the same file.

    Raise InvalidValueError if a text names no source.
    """
    patterns = pattern_address(source)
    if positions == "planned":
        return patterns, None
    if "://" in positions:
        return patterns, position_address(positions)
    return with_positions(patterns, positions), None


def _network(text: str, role: Role) -> Address:
    parts = urlsplit(text)
    kind = source_kind(parts.scheme)
    if kind is None or kind.role != role:
        others = ", ".join(one.example for name, one in all_kinds().items() if name not in SOURCES and one.role == role)
        raise _invalid(
            role, text, f"an address such as {addresses(role)}{f', or of a plug-in: {others}' * bool(others)}"
        )
    options = _options(role, text, parts.scheme, parts.query)
    if not kind.port:
        if not parts.netloc and not parts.path:
            raise _invalid(role, text, f"a name as in {kind.example}")
        return Address(parts.scheme, parts.netloc + parts.path, 0, options)
    try:
        host, port = parts.hostname, parts.port or kind.port
    except ValueError:
        host, port = None, 0
    if not host or parts.path not in ("", "/") or parts.username is not None:
        raise _invalid(role, text, kind.example)
    return Address(parts.scheme, f"[{host}]" if ":" in host else host, port, options)


def _options(role: Role, text: str, scheme: str, query: str) -> dict[str, str]:
    kind, options = source_kind(scheme), dict(parse_qsl(query))
    assert kind is not None, scheme
    for name, value in options.items():
        if name not in kind.options:
            raise _invalid(role, text, f"{' or '.join(kind.options) or 'none'} as option", "argument.unknown")
        if not re.fullmatch(kind.values.get(name, ".*"), value):
            raise _invalid(role, text, f"{name} as {kind.options[name]}")
    return options


def _invalid(role: Role, text: str, expected: str, code: str = "argument.invalid-value") -> InvalidValueError:
    return InvalidValueError(f"{role} is {quoted(text)}; expected {expected}.", code=code, fields=(role,))
