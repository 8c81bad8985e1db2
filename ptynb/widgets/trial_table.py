"""Trials of a study as plain data: rows of a table, their places in plots of the score, and small pictures."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ptynb.data.trial_record import TunedTrial, value_text
from ptynb.settings.ranges import Between, Range
from ptynb.settings.schema import structure
from ptynb.table import duration
from ptynb.widgets.form.field_words import label_of_name, value_words
from ptynb.widgets.quantities import number, quantity
from ptynb.widgets.range_text import scan_unit

ROWS = 40
"""Maximum number of trials that are shown, whether best or newest ones first: no other pictures are sent."""


def parameters(ranges: Mapping[str, Range]) -> list[dict[str, Any]]:
    """Return title and labelled places of the axis of each parameter; places are 0 at its begin and 1 at its end."""
    labels = {
        name: [(0.0, _value(name, range.low), "start"), (1.0, _value(name, range.high), "end")]
        if isinstance(range, Between)
        else [(_place(choice, range), _value(name, choice), "middle") for choice in range]
        for name, range in ranges.items()
    }
    return [{"label": label_of_name(name), "ends": ends} for name, ends in labels.items()]


def row(trial: TunedTrial, ranges: Mapping[str, Range]) -> dict[str, Any]:
    """Return what is told about a trial. places: of its values along the axes, as in `parameters`."""
    items = ranges.items()
    return {
        "number": trial.number,
        "state": trial.state,
        "reason": trial.reason.split("\n", 1)[0],
        "score": trial.score if trial.score is None or math.isfinite(trial.score) else None,
        "text": "" if trial.score is None else number(trial.score, 5),
        "values": [_value(name, trial.values.get(name, "")) for name, _ in items],
        "places": [_place(trial.values[name], range) if name in trial.values else None for name, range in items],
        "epochs": len(trial.losses),
        "time": duration(trial.seconds) if trial.seconds else "",
        "engines": ", ".join(str(rank) for rank in trial.ranks) or "this process",
        "pictured": trial.picture is not None,
    }


def pictures(trials: Sequence[TunedTrial]) -> dict[str, str]:
    """Return the addresses of the pictures of the best and of the newest trials, with their data, by number."""
    pictured = [trial for trial in trials if trial.picture is not None]
    best = sorted(pictured, key=lambda trial: math.inf if trial.score is None else trial.score)
    return {str(trial.number): _address(trial) for trial in (*best[:ROWS], *pictured[-ROWS:])}


def _address(trial: TunedTrial) -> str:
    assert trial.picture is not None
    kind = "png" if trial.picture.image.startswith(b"\x89PNG") else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(trial.picture.image).decode()}"


def _value(name: str, value: Any) -> str:
    if structure().has(name) and value != "":
        return value_words(structure().setting(name), value)
    unit = scan_unit(name)
    return quantity((value,), unit) if unit and isinstance(value, int | float) else value_text(value)


def _place(value: object, range: Range) -> float:
    if isinstance(range, Between):
        assert isinstance(value, int | float)
        low, high, at = (math.log(end) if range.log else float(end) for end in (range.low, range.high, value))
        return (at - low) / (high - low)
    return (range.index(value) + 0.5) / len(range)
