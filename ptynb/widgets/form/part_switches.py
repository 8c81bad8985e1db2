"""Which parts of the settings can be off, and the values that switch them off and on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class PartSwitch:
    """Values by dotted name; a part is off while all values of `off` hold.

    on: values for a start. unused: values of what means nothing while the part is off, which are set then, too.
    """

    off: Mapping[str, Any]
    on: Mapping[str, Any]
    unused: Mapping[str, Any] = field(default_factory=dict)


def _rate(part: str, rate: float) -> PartSwitch:
    name = f"{part}.learning_rate"
    return PartSwitch({name: 0.0}, {name: rate})


SWITCHES: Mapping[str, PartSwitch] = {
    # Two slices need their distance, for which no value is a good guess: its field asks for it.
    "slices": PartSwitch(
        {"slices.count": 1, "slices.learning_rate": 0.0}, {"slices.count": 2}, {"slices.thickness": None}
    ),
    "tilt": PartSwitch({"tilt.y": 0.0, "tilt.x": 0.0, "tilt.learning_rate": 0.0}, {"tilt.learning_rate": 0.1}),
    "positions": PartSwitch(
        {"positions.learning_rate": 0.0, "positions.search_trials": 0}, {"positions.learning_rate": 0.1}
    ),
    "affine": _rate("affine", 0.1),
    "probe_offset": _rate("probe_offset", 0.1),
    "aberrations": PartSwitch({"aberrations.order": 0}, {"aberrations.order": 2}),
    "opr": PartSwitch({"opr.modes": 0}, {"opr.modes": 3}),
    "pattern_intensities": _rate("pattern_intensities", 0.01),
    "background": _rate("background", 0.01),
    "descan": PartSwitch(
        {"descan.start": "none", "descan.learning_rate": 0.0}, {"descan.start": "plane", "descan.learning_rate": 0.1}
    ),
    "fly_scan": PartSwitch({"fly_scan.steps": 1}, {"fly_scan.steps": 4}),
    "schedule": PartSwitch({"schedule.kind": "constant"}, {"schedule.kind": "cosine"}),
    "stop": PartSwitch({"stop.patience": 0}, {"stop.patience": 20}),
}
"""Name of the part -> its switch. Object and probe cannot be off; the detector has no values that are a good guess."""
