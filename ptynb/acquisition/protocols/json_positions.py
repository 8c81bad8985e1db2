"""Positions as JSON by ZeroMQ (`zmq+json://host:5556`).

A message is one of

    {"first": 12, "positions": [[y, x], ...]}     positions of consecutive patterns, from the first one's number
    {"number": 12, "y": 1.2e-6, "x": 3.4e-6}      one position
    {"end": true}                                 there are no more

in `Plan.units`. The sender binds a PUSH socket; one that publishes (?pattern=sub) loses what it sends before the
receiver has subscribed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ptynb.acquisition.compression import damaged
from ptynb.acquisition.messages import Damaged, MeasuredPositions, Message, SeriesEnded, parsed_json, whole
from ptynb.acquisition.protocols.pulling import Pulling
from ptynb.data.source_address import Address
from ptynb.exceptions import AcquisitionError

LONGEST = 2**24
"""Most bytes of a message."""


def open_json(address: Address) -> Pulling:
    """Connect to who pushes, or publishes, positions."""
    subscribe = address.options.get("pattern") == "sub"
    return Pulling(address, lambda parts, _: read_json(parts[-1].bytes), subscribe=subscribe)


def read_json(raw: bytes) -> Message:
    """Return the message; `Damaged` if it cannot be read."""
    try:
        if len(raw) > LONGEST:
            raise damaged(f"{len(raw)} bytes of positions; expected at most {LONGEST}")
        found = parsed_json(raw, "positions that are")
        if found.get("end") is True:
            return SeriesEnded()
        if "number" in found:
            rows: Any = [[found.get("y"), found.get("x")]]
            first = whole(found["number"], "the number of a pattern")
        else:
            first, rows = whole(found.get("first"), "the number of the first pattern"), found.get("positions")
        if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == 2 for row in rows):
            raise damaged("positions that are no list of [y, x]")
        values = np.array([[_number(one) for one in row] for row in rows], dtype=np.float64).reshape(-1, 2)
        return MeasuredPositions(first, values)
    except AcquisitionError as error:
        return Damaged(str(error))


def _number(value: Any) -> float:
    """Return a number, NaN for null: a position that is not known, and is refused by its pattern's number."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise damaged(f"the position {value!r:.60}; expected a number")
    try:
        return float(value)
    except OverflowError:
        return math.inf
