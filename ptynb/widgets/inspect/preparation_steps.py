"""Steps of preparation that the inspector offers: steps of a recipe, made from the text of a field."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ptynb.exceptions import InvalidValueError
from ptynb.settings.recipe import PrepareStep

MEAN_OF = 256
"""Number of patterns whose mean determines the centre of a scan."""


@dataclass(frozen=True)
class PreparationKind:
    """A kind of step: name, meaning of its parameter ("": none), default, and a function from text to step."""

    name: str
    number: str
    default: str
    step: Callable[[str], PrepareStep]


def _step(function: str, **arguments: Any) -> PrepareStep:
    return PrepareStep(function=function, arguments=arguments)


def _whole(function: str, argument: str) -> Callable[[str], PrepareStep]:
    return lambda text: _step(function, **{argument: _number(text, "an integer", int)})


def _real(function: str, argument: str, factor: float = 1.0) -> Callable[[str], PrepareStep]:
    return lambda text: _step(function, **{argument: _number(text, "a number", float) * factor})


def _number(text: str, expected: str, kind: Callable[[str], Any]) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise InvalidValueError(
            f"The number of this step is {text!r}; expected {expected}.", code="argument.invalid-value"
        ) from None


KINDS = (
    PreparationKind("centre", "", "", lambda _: _step("centre", patterns=MEAN_OF)),
    PreparationKind("crop", "window [pixels]", "128", _whole("crop", "window")),
    PreparationKind("bin", "factor", "2", _whole("bin", "factor")),
    PreparationKind("pad", "window [pixels]", "256", _whole("pad", "window")),
    PreparationKind("subtract dark", "level [counts]", "1", _real("subtract_dark", "dark")),
    PreparationKind("remove counts below", "threshold [counts]", "1", _real("remove_negatives", "threshold")),
    PreparationKind("flip patterns", "axes: y, x or yx", "y", lambda text: _step("flip", axes=text.strip())),
    PreparationKind("transpose patterns", "", "", lambda _: _step("transpose")),
    PreparationKind("rotate positions", "angle [degrees]", "90", _real("rotate_positions", "angle", math.pi / 180)),
    PreparationKind("swap y and x of positions", "", "", lambda _: _step("transpose_positions")),
)
