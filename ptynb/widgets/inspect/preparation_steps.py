"""Steps of preparation, as a call of `ptynb.preparation` and as a line of Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ptynb import preparation
from ptynb.analysis import survey
from ptynb.data.scan import Scan
from ptynb.exceptions import InvalidValueError

MEAN_OF = 256
"""Number of patterns whose mean determines the centre of a scan."""


@dataclass(frozen=True)
class PreparationStep:
    """A preparation step: a function of the scan and the equivalent line of Python."""

    line: str
    apply: Callable[[Scan], Scan]


@dataclass(frozen=True)
class PreparationKind:
    """A kind of step: name, meaning of its parameter ("": none), default, and a function from text to step."""

    name: str
    number: str
    default: str
    step: Callable[[str], PreparationStep]


def _centre(_: str) -> PreparationStep:
    line = f"scan = pt.preparation.centre(scan, mean=pt.analysis.survey(scan, {MEAN_OF}).mean)"
    return PreparationStep(line, lambda scan: preparation.centre(scan, mean=survey(scan, MEAN_OF).mean))


def _whole(name: str, function: Callable[[Scan, int], Scan]) -> Callable[[str], PreparationStep]:
    def step(text: str) -> PreparationStep:
        number = _number(text, "an integer", int)
        return PreparationStep(f"scan = pt.preparation.{name}(scan, {number})", lambda scan: function(scan, number))

    return step


def _real(name: str, function: Callable[[Scan, float], Scan], factor: float = 1.0) -> Callable[[str], PreparationStep]:
    def step(text: str) -> PreparationStep:
        number = _number(text, "a number", float) * factor
        return PreparationStep(f"scan = pt.preparation.{name}(scan, {number!r})", lambda scan: function(scan, number))

    return step


def _plain(name: str, function: Callable[[Scan], Scan]) -> Callable[[str], PreparationStep]:
    return lambda _: PreparationStep(f"scan = pt.preparation.{name}(scan)", function)


def _flip(text: str) -> PreparationStep:
    axes = text.strip()
    return PreparationStep(f"scan = pt.preparation.flip(scan, {axes!r})", lambda scan: preparation.flip(scan, axes))


def _number(text: str, expected: str, kind: Callable[[str], Any]) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise InvalidValueError(
            f"The number of this step is {text!r}; expected {expected}.", code="argument.invalid-value"
        ) from None


KINDS = (
    PreparationKind("centre", "", "", _centre),
    PreparationKind("crop", "window [pixels]", "128", _whole("crop", preparation.crop)),
    PreparationKind("bin", "factor", "2", _whole("bin", preparation.bin)),
    PreparationKind("pad", "window [pixels]", "256", _whole("pad", preparation.pad)),
    PreparationKind("subtract dark", "level [counts]", "1", _real("subtract_dark", preparation.subtract_dark)),
    PreparationKind(
        "remove counts below", "threshold [counts]", "1", _real("remove_negatives", preparation.remove_negatives)
    ),
    PreparationKind("flip patterns", "axes: y, x or yx", "y", _flip),
    PreparationKind("transpose patterns", "", "", _plain("transpose", preparation.transpose)),
    PreparationKind(
        "rotate positions",
        "angle [degrees]",
        "90",
        _real("rotate_positions", preparation.rotate_positions, math.pi / 180),
    ),
    PreparationKind(
        "swap y and x of positions", "", "", _plain("transpose_positions", preparation.transpose_positions)
    ),
)
