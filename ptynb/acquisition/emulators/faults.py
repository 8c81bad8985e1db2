"""What goes wrong while a recording is sent. Nothing else is imported: `ptynb --help` has these options, too."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from ptynb.exceptions import InvalidValueError


def _fault(kind: type, place: str, about: str, default: float | None = 0) -> Any:
    return field(default=default, metadata={"type": kind, "metavar": place, "help": about})


@dataclass(frozen=True, kw_only=True)
class Faults:
    """What goes wrong: options of `ptynb emulate`, with what its parser is given of each."""

    drop: float = _fault(float, "FRACTION", "fraction of the patterns that are not sent")
    duplicate: float = _fault(float, "FRACTION", "fraction that is sent again")
    differ: float = _fault(float, "FRACTION", "fraction that is sent again with other counts")
    garbage: float = _fault(float, "FRACTION", "fraction of patterns after which bytes without a meaning are sent")
    shuffle: int = _fault(int, "N", "how many places late patterns may be sent")
    stall: float = _fault(float, "SECONDS", "time in the middle without patterns")
    abort: float | None = _fault(float, "FRACTION", "fraction after which the series is ended", None)
    kill: float | None = _fault(float, "FRACTION", "fraction after which this process kills itself", None)
    late_positions: float = _fault(float, "SECONDS", "time after which positions follow their patterns")
    stray: int = _fault(int, "N", "patterns of a previous series that come first")
    seed: int = _fault(int, "N", "seed of the random choices")
    endless: bool = field(default=False, metadata={"action": "store_true", "help": "send no end, and stay"})

    def __post_init__(self) -> None:
        for one in fields(self):
            value, most = getattr(self, one.name), 1 if one.metadata.get("metavar") == "FRACTION" else 10**9
            if value is not None and not 0 <= value <= most:
                text = f"{one.name} is {value}; expected from 0 to {most}."
                raise InvalidValueError(text, code="argument.invalid-value")
