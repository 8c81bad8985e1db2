"""Addresses: which source of patterns or positions a text names.

stream2://host:31001?channel=threshold_2     Dectris' stream2
simplon://host:9999                          Dectris' Simplon stream, version 1
pva://PREFIX:Pva1:Image?first=1              an NTNDArray of EPICS' PV Access
scan.h5, scan_master.h5                      an HDF5 file that is being written; ?patterns=entry/data/data&uid=...
panda://host:8889?y=INENC1.VAL.Mean&x=...    PandA's data port
zmq+json://host:5556?pattern=sub             JSON by ZeroMQ
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from ptynb.exceptions import InvalidValueError
from ptynb.text import quoted

PATTERN_PORTS = {"stream2": 31001, "simplon": 9999}
POSITION_PORTS = {"panda": 8889, "zmq+json": 5556}
OPTIONS = {
    "stream2": ("channel",),
    "simplon": (),
    "pva": ("first", "server"),
    "file": ("patterns", "uid"),
    "panda": ("y", "x", "number"),
    "zmq+json": ("pattern",),
}
"""Names of the options of each kind, after a question mark."""


@dataclass(frozen=True)
class Address:
    """A source that a text names. kind: of `OPTIONS`; place: host, name of the PV, or path."""

    kind: str
    place: str
    port: int
    options: dict[str, str]


def pattern_address(text: str | Path) -> Address:
    """Return the source of patterns that a text names. Raise InvalidValueError for others."""
    kinds = (*PATTERN_PORTS, "pva")
    if isinstance(text, str) and "://" in text:
        return _network(text, PATTERN_PORTS, kinds, "source")
    place, _, query = str(text).partition("?")
    return Address("file", str(Path(place).expanduser().absolute()), 0, _options("source", str(text), "file", query))


def position_address(text: str) -> Address:
    """Return the source of positions that a text names. Raise InvalidValueError for others."""
    return _network(text, POSITION_PORTS, tuple(POSITION_PORTS), "positions")


def position_datasets(text: str, patterns: Address) -> tuple[str, ...]:
    """Return the names of datasets with positions, in a file as source. Raise InvalidValueError for others."""
    names = tuple(text.split(","))
    if patterns.kind != "file" or len(names) > 2 or not all(names):
        raise InvalidValueError(
            f"positions is {quoted(text)}; expected 'planned', an address such as panda://host:8889, or, of a file as "
            "source, one dataset (pattern, yx) or two: 'entry/y,entry/x'.",
            code="argument.invalid-value",
            fields=("positions",),
        )
    return names


def _network(text: str, ports: dict[str, int], kinds: tuple[str, ...], name: str) -> Address:
    parts = urlsplit(text)
    if parts.scheme not in kinds:
        raise InvalidValueError(
            f"{name} is {quoted(text)}; expected an address that begins with "
            f"{' or '.join(f'{one}://' for one in kinds)}.",
            code="argument.invalid-value",
            fields=(name,),
        )
    options = _options(name, text, parts.scheme, parts.query)
    if parts.scheme == "pva":
        if not parts.netloc and not parts.path:
            raise _without_place(name, text, "the name of a PV: pva://PREFIX:Pva1:Image")
        if not options.get("first", "0").isdecimal():
            raise _without_place(name, text, "a whole number as first")
        return Address("pva", parts.netloc + parts.path, 0, options)
    try:
        host, port = parts.hostname, parts.port or ports[parts.scheme]
    except ValueError:
        host, port = None, 0
    if not host or parts.path not in ("", "/") or parts.username is not None:
        raise _without_place(name, text, f"{parts.scheme}://host:{ports[parts.scheme]}")
    if options.get("pattern", "pull") not in ("pull", "sub"):
        raise _without_place(name, text, "pattern=pull or pattern=sub")
    return Address(parts.scheme, f"[{host}]" if ":" in host else host, port, options)


def _options(name: str, text: str, kind: str, query: str) -> dict[str, str]:
    options = dict(parse_qsl(query))
    unknown = [option for option in options if option not in OPTIONS[kind]]
    if unknown:
        raise InvalidValueError(
            f"{name} is {quoted(text)} with the option {quoted(unknown[0])}; expected "
            f"{' or '.join(OPTIONS[kind]) or 'none'}.",
            code="argument.unknown",
            fields=(name,),
        )
    return options


def _without_place(name: str, text: str, expected: str) -> InvalidValueError:
    return InvalidValueError(
        f"{name} is {quoted(text)}; expected {expected}.", code="argument.invalid-value", fields=(name,)
    )
