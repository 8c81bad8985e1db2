"""Protocols of sources, and the connection to a source by its address."""

from __future__ import annotations

from ptynb.acquisition.messages import LiveSource
from ptynb.data.source_address import SOURCES, Address
from ptynb.exceptions import about


def connect(address: Address) -> LiveSource:
    """Connect to a source of patterns or positions."""
    kind = SOURCES[address.kind]
    with about(kind.role):
        source: LiveSource = kind.loaded(kind.opens)(address)
        return source
