"""Record of preparation: functions of `ptynb.preparation` add their name and arguments to the scan that they return."""

from __future__ import annotations

import copy
import functools
import hashlib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

import numpy as np

from ptynb.data.scan import Scan, check_scan
from ptynb.exceptions import ScanError

P = ParamSpec("P")
MOST_NUMBERS = 1000
"""Largest number of values of an array that is recorded as a list; of larger ones the digest is recorded."""


def recorded(function: Callable[Concatenate[Scan, P], Scan]) -> Callable[Concatenate[Scan, P], Scan]:
    """Return a function that adds itself and its arguments to `Scan.preparation`, in place of functions that it calls.

    Arguments with their default value are omitted.
    """
    parameters = inspect.signature(function).parameters

    @functools.wraps(function)
    def prepare(scan: Scan, *positional: P.args, **named: P.kwargs) -> Scan:
        check_measured(scan, function.__name__)
        changed = function(scan, *positional, **named)
        given = {**dict(zip([*parameters][1:], positional, strict=False)), **named}
        arguments = {name: _plain(value) for name, value in given.items() if value is not parameters[name].default}
        return with_preparation(changed, (*scan.preparation, {function.__name__: arguments}))

    return prepare  # type: ignore[return-value]


def check_measured(scan: Scan, step: str) -> None:
    """Raise ScanError if a scan is being measured, InvalidTypeError if it is none. step: what needs a complete one.

    Its positions are those of the plan, in whose pixels measured ones come, and patterns are still to come.
    """
    check_scan(scan)
    if scan.acquisition is not None:
        raise ScanError(
            f"{step} was called with '{scan.name}', a scan that is being measured; expected one that is complete: load "
            "the file of the scan after its end (Plan has a crop).",
            code="scan.live",
        )


def with_preparation(scan: Scan, steps: tuple[dict[str, Any], ...]) -> Scan:
    """Return the same scan with this record of its preparation, without checking its arrays again."""
    changed = copy.copy(scan)
    object.__setattr__(changed, "preparation", steps)
    return changed


def _plain(value: Any) -> Any:
    """Return an argument as a value that JSON can represent; a slice as text, a large array as its digest."""
    if isinstance(value, slice):
        return ":".join("" if one is None else str(one) for one in (value.start, value.stop, value.step))
    if isinstance(value, str | Path):
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    array = np.asarray(value)
    if array.size <= MOST_NUMBERS:
        return array.tolist()
    little = array.dtype.newbyteorder("<")
    digest = hashlib.sha256(np.ascontiguousarray(array, dtype=little).tobytes()).hexdigest()
    return {"array": digest, "shape": [*array.shape], "type": little.str}
