"""What the live view tells of a run beside its pictures, as plain values: state, record, engines and changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ptynb.data.engine_records import Change, Epoch, Health, Status
from ptynb.data.record import stop_reason
from ptynb.settings import Settings
from ptynb.settings.schema import structure
from ptynb.widgets.form.field_words import label_of_name, value_words
from ptynb.widgets.live.protocol import Watched
from ptynb.widgets.live.time_left import recent_rate, rough_duration, seconds_left
from ptynb.widgets.quantities import number

MOST_CHANGES = 8
CHUNK = 100
"""Rows of a record in one piece: browsers get the pieces that have changed."""


def state_of(recon: Watched, status: Status) -> str:
    """Return the state of a reconstruction: failed, closed, recovering, or the state of its engines."""
    if recon.failure is not None:
        return "failed"
    return "closed" if recon.closed else "recovering" if recon.recovering else status.state


def summary(recon: Watched, status: Status, state: str, measured: float | None = None) -> dict[str, Any]:
    """Return what a glance has to find: state, epoch, loss, R-factor, speed and time left; "" and 0: not known.

    measured: patterns per second of all engines, for the time before the first epoch is completed.
    """
    epochs = recon.epochs
    coming = status.arrivals is not None and status.arrivals.ended is None
    speed = recent_rate(status, epochs) or measured
    left = None
    if state in ("running", "paused"):
        left = seconds_left(status, epochs, len(recon.scan), recon.scan.pattern_shape, measured)
    at, r_factor = recon.r_factors[-1] if recon.r_factors else (0, None)
    return {
        "state": state,
        "epoch": status.epoch,
        "target": 0 if coming else status.target,
        "after_scan": max(status.target - status.epoch, 0) if coming else 0,
        "update": status.update,
        "updates": status.updates_per_epoch,
        "stopped": stop_reason(status.changes, status.epoch) or "",
        "stage": status.stage + 1 if len(status.stages) > 1 else 0,
        "stages": len(status.stages),
        "loss": number(epochs[-1].loss) if epochs else "",
        "r_factor": f"{r_factor:.4f}" if r_factor is not None else "",
        "r_factor_epoch": at,
        "speed": f"{speed:,.0f}" if speed else "",
        "left": "" if left is None else rough_duration(left),
    }


def facts(recon: Watched, status: Status) -> list[str]:
    """Return engines, batch and the newest checkpoint."""
    found = [recon.engines, f"batch {recon.batch}{_scaling_hint(recon.settings, status.world)}"]
    if status.checkpoint_epoch is not None:
        found.append(f"checkpoint of epoch {status.checkpoint_epoch}")
    return found


def _scaling_hint(settings: Settings, engines: int) -> str:
    """Return, if each engine has its own batch, a hint how to scale learning rates to the global batch."""
    if settings.batch_per != "engine" or engines < 2:
        return ""
    return f"; settings.scale_for_engines({engines}) scales learning rates chosen for a batch of {settings.batch} to it"


def record(epochs: Sequence[Epoch], r_factors: Sequence[tuple[int, float]]) -> dict[str, bytes]:
    """Return "epochs" (number, loss, seconds, changes of object, probe, positions) and "r_factors" (epoch, value).

    See `pieces`.
    """
    rows = [
        (one.number, one.loss, one.seconds, one.object_change, one.probe_change, one.position_change) for one in epochs
    ]
    return pieces("epochs", rows) | pieces("r_factors", r_factors)


def pieces(table: str, rows: Sequence[Sequence[float | None]]) -> dict[str, bytes]:
    """Return a table as float64, `CHUNK` rows in a piece, by the name of the table and a number; NaN: not known."""
    return {
        f"{table} {start // CHUNK}": np.array(rows[start : start + CHUNK], dtype="<f8").tobytes()
        for start in range(0, len(rows), CHUNK)
    }


def change_rows(changes: Sequence[Change]) -> list[list[str]]:
    """Return (epoch, label, name, old value, new value) of the latest changes of settings."""
    return [
        [str(one.epoch + 1), label_of_name(one.name), one.name, _value(one.name, one.old), _value(one.name, one.new)]
        for one in changes[-MOST_CHANGES:]
    ]


def _value(name: str, value: object) -> str:
    """Return a value of a setting with its unit, or another value, as text."""
    is_number = structure().has(name) and isinstance(value, int | float) and structure().setting(name).numeric
    return value_words(structure().setting(name), value) if is_number else str(value)


def speed_of(engines: Sequence[Health]) -> float | None:
    """Return patterns per second of all engines; None if it is not known of each."""
    speeds = [one.patterns_per_second for one in engines]
    return None if not speeds or None in speeds else sum(speed for speed in speeds if speed is not None)


def health_row(one: Health, engines: int) -> list[str]:
    """Return rank, device, patterns/s, memory, load, temperature, epoch of the last agreement and state."""
    speed = "–" if one.patterns_per_second is None else f"{one.patterns_per_second:,.0f}"
    return [
        str(one.rank),
        " on ".join(part for part in (one.device, one.host) if part),
        speed,
        _memory(one.memory, one.memory_total),
        "–" if one.load is None else f"{one.load:.0%}",
        "–" if one.temperature is None else f"{one.temperature:.0f} °C",
        "–" if engines == 1 else str(one.agreed) if one.agreed else "–",
        one.state if one.answered else "busy; values are from before",
    ]


def _memory(used: int | None, total: int | None) -> str:
    if used is None:
        return "–"
    return f"{used / 2**30:.1f} GiB" if total is None else f"{used / 2**30:.1f} of {total / 2**30:.0f} GiB"
