"""Sources of patterns and positions, connected to by their addresses."""

from __future__ import annotations

from pathlib import Path

from ptynb.acquisition.messages import LiveSource
from ptynb.data.source_address import Address
from ptynb.exceptions import PtynbError


def open_patterns(address: Address, position_datasets: tuple[str, ...] = ()) -> LiveSource:
    """Connect to a source of patterns. position_datasets: names of datasets with positions, in a file."""
    # Inside: each needs a package of its own.
    options = address.options
    if address.kind == "stream2":
        from ptynb.acquisition.protocols.pulling import Pulling
        from ptynb.acquisition.protocols.simplon_v2 import Stream2Parser

        stream2 = Stream2Parser(options.get("channel"))
        return Pulling(
            address.place,
            address.port,
            lambda parts, arrival: stream2.parse(parts[0].buffer if len(parts) == 1 else b"", arrival),
        )
    if address.kind == "simplon":
        from ptynb.acquisition.protocols.pulling import Pulling
        from ptynb.acquisition.protocols.simplon_v1 import SimplonV1Parser

        return Pulling(address.place, address.port, SimplonV1Parser().parse)
    if address.kind == "pva":
        from ptynb.acquisition.protocols.pva import PvAccess

        first = int(options["first"]) if "first" in options else None
        return PvAccess(address.place, first, options.get("server"))
    from ptynb.acquisition.protocols.swmr import GrowingFile

    return GrowingFile(Path(address.place), options.get("patterns"), options.get("uid"), position_datasets)


def open_positions(address: Address) -> LiveSource:
    """Connect to a source of positions."""
    try:
        if address.kind == "panda":
            from ptynb.acquisition.protocols.panda import Panda

            return Panda(address.place, address.port, address.options)
        from ptynb.acquisition.protocols.json_positions import read_json
        from ptynb.acquisition.protocols.pulling import Pulling

        return Pulling(
            address.place,
            address.port,
            lambda parts, _: read_json(parts[-1].bytes),
            subscribe=address.options.get("pattern") == "sub",
        )
    except PtynbError as error:
        error.fields = ("positions",)
        raise
