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
        from ptynb.acquisition.simplon_v2 import Stream2

        return Stream2(address.place, address.port, options.get("channel"))
    if address.kind == "simplon":
        from ptynb.acquisition.simplon_v1 import SimplonV1

        return SimplonV1(address.place, address.port)
    if address.kind == "pva":
        from ptynb.acquisition.pva import PvAccess

        first = int(options["first"]) if "first" in options else None
        return PvAccess(address.place, first, options.get("server"))
    from ptynb.acquisition.swmr import GrowingFile

    return GrowingFile(Path(address.place), options.get("patterns"), options.get("uid"), position_datasets)


def open_positions(address: Address) -> LiveSource:
    """Connect to a source of positions."""
    try:
        if address.kind == "panda":
            from ptynb.acquisition.panda import Panda

            return Panda(address.place, address.port, address.options)
        from ptynb.acquisition.json_positions import JsonPositions

        return JsonPositions(address.place, address.port, subscribe=address.options.get("pattern") == "sub")
    except PtynbError as error:
        error.fields = ("positions",)
        raise
