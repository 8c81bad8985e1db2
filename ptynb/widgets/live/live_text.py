"""Text and tables of the live view, as HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence

from ptynb.data.engine_records import Change, Health, Status
from ptynb.data.record import stop_reason
from ptynb.settings import Settings
from ptynb.settings.schema import structure
from ptynb.widgets.form.field_words import label_of_name, value_words
from ptynb.widgets.live.protocol import Watched
from ptynb.widgets.live.time_left import recent_rate, rough_duration, seconds_left
from ptynb.widgets.number_text import number
from ptynb.widgets.shared_widgets import state_row

MOST_CHANGES = 8
NO_R_FACTOR = "Not measured; under More, choose every how many epochs it is"
TIME_LEFT = (
    "At the rate of the last epochs; in stages to come, in proportion to the pixels of their patterns; of a scan \
that is being measured, after its end at the present rate"
)
CELL = 'style="padding:0 14px 0 0;text-align:left;white-space:nowrap"'


def state_of(recon: Watched, status: Status) -> str:
    """Return the state of a reconstruction: failed, closed, recovering, or the state of its engines."""
    if recon.failure is not None:
        return "failed"
    return "closed" if recon.closed else "recovering" if recon.recovering else status.state


def summary(recon: Watched, status: Status, state: str, measured: float | None = None) -> str:
    """Return what a glance has to find, in a row: state, epoch, loss, R-factor, speed and time left.

    measured: patterns per second of all engines, for the time before the first epoch is completed.
    """
    epochs = recon.epochs
    epoch = f"epoch <b>{status.epoch}</b>"
    measured_now = status.arrivals is not None and status.arrivals.ended is None
    if status.target and not measured_now:
        epoch += f" of {status.target}"
    if status.update:
        epoch += f" <small>+ {status.update}/{status.updates_per_epoch} updates</small>"
    if status.target > status.epoch and measured_now:
        epoch += f", then {status.target - status.epoch} after the scan"
    parts = [epoch]
    if reason := stop_reason(status.changes, status.epoch):
        parts.append(html.escape(f"stopped: {reason}"))
    if len(status.stages) > 1:
        parts.append(f"stage <b>{status.stage + 1}</b> of {len(status.stages)}")
    speed = recent_rate(status, epochs) or measured
    if epochs:
        parts.append(f"loss <b>{number(epochs[-1].loss)}</b>")
    if recon.r_factors:
        at, value = recon.r_factors[-1]
        parts.append(f'<span title="after epoch {at}">R-factor <b>{value:.4f}</b></span>')
    elif epochs:
        parts.append(f'<span title="{NO_R_FACTOR}">R-factor –</span>')
    if speed:
        parts.append(f"{speed:,.0f} patterns/s")
    if state in ("running", "paused"):
        left = seconds_left(status, epochs, len(recon.scan), recon.scan.pattern_shape, measured)
        if left is not None:
            parts.append(f'<span title="{TIME_LEFT}"><b>{rough_duration(left)}</b> left</span>')
    return state_row(state, parts)


def facts(recon: Watched, status: Status) -> str:
    """Return engines, batch and the newest checkpoint in a row."""
    parts = [
        html.escape(recon.engines),
        html.escape(f"batch {recon.batch}{_scaling_hint(recon.settings, status.world)}"),
    ]
    if status.checkpoint_epoch is not None:
        parts.append(f"checkpoint of epoch {status.checkpoint_epoch}")
    return f'<div style="line-height:1.6">{" &nbsp;·&nbsp; ".join(parts)}</div>'


def speed_of(engines: Sequence[Health]) -> float | None:
    """Return patterns per second of all engines; None if it is not known of each."""
    speeds = [one.patterns_per_second for one in engines]
    return None if not speeds or None in speeds else sum(speed for speed in speeds if speed is not None)


def _scaling_hint(settings: Settings, engines: int) -> str:
    """Return, if each engine has its own batch, a hint how to scale learning rates to the global batch."""
    each = settings.batch_per == "engine" and engines > 1
    return (
        f"; settings.scale_for_engines({engines}) scales learning rates chosen for a batch of {settings.batch} to it"
        if each
        else ""
    )


def change_table(changes: Sequence[Change]) -> str:
    """Return a table of the latest changes of settings."""
    if not changes:
        return ""
    rows = "".join(
        f'<tr><td {CELL}>{change.epoch + 1}</td><td {CELL} title="{html.escape(change.name)}">'
        f"{html.escape(label_of_name(change.name))}</td>"
        f"<td {CELL}>{_value(change.name, change.old)} → <b>{_value(change.name, change.new)}</b></td></tr>"
        for change in changes[-MOST_CHANGES:]
    )
    return _table("Changes", ("in epoch", "setting", "from → to"), rows)


def _value(name: str, value: object) -> str:
    """Return a value of a setting with its unit, or another value, as HTML."""
    is_number = structure().has(name) and isinstance(value, int | float) and structure().setting(name).numeric
    return html.escape(value_words(structure().setting(name), value) if is_number else str(value))


def health_table(engines: Sequence[Health]) -> str:
    """Return a table with a row for each engine."""
    if not engines:
        return ""
    rows = "".join(
        f"<tr>{''.join(f'<td {CELL}>{html.escape(cell)}</td>' for cell in health_cells(one, len(engines)))}</tr>"
        for one in engines
    )
    return _table(
        "Engines", ("rank", "device", "patterns/s", "memory", "load", "temperature", "in sync at epoch", "state"), rows
    )


def health_cells(one: Health, engines: int) -> tuple[str, ...]:
    """Return the cells of an engine's row."""
    speed = "–" if one.patterns_per_second is None else f"{one.patterns_per_second:,.0f}"
    return (
        str(one.rank),
        " on ".join(part for part in (one.device, one.host) if part),
        speed,
        _memory(one.memory, one.memory_total),
        "–" if one.load is None else f"{one.load:.0%}",
        "–" if one.temperature is None else f"{one.temperature:.0f} °C",
        "–" if engines == 1 else str(one.agreed) if one.agreed else "–",
        one.state if one.answered else "busy; values are from before",
    )


def _memory(used: int | None, total: int | None) -> str:
    if used is None:
        return "–"
    return f"{used / 2**30:.1f} GiB" if total is None else f"{used / 2**30:.1f} of {total / 2**30:.0f} GiB"


def _table(caption: str, heads: Sequence[str], rows: str) -> str:
    head = "".join(f'<th scope="col" {CELL}>{name}</th>' for name in heads)
    return (
        '<table style="margin:8px 16px 8px 0;line-height:1.5;font-variant-numeric:tabular-nums">'
        f'<caption style="text-align:left;font-weight:600">{caption}</caption><tr>{head}</tr>{rows}</table>'
    )
