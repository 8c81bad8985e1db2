"""Checkpoints of a running reconstruction: where, how often, and who receives the files."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from ptynb.settings.base_models import MOST_EPOCHS, MOST_SECONDS, TRUST, SettingsModel


class Checkpointing(SettingsModel):
    """Where and how often checkpoints are written; on request only if both `epochs` and `seconds` are None."""

    folder: Path | None = Field(
        default=None, description="Folder of the checkpoints, shared by all engines; none: a folder of ptynb"
    )
    epochs: int | None = Field(
        default=None,
        ge=1,
        le=MOST_EPOCHS,
        description="Epochs from one checkpoint to the next; none: independent of epochs",
    )
    seconds: float | None = Field(
        default=60.0,
        gt=0,
        le=MOST_SECONDS,
        allow_inf_nan=False,
        description="Time from one checkpoint to the next [s]; none: independent of time",
    )
    max_to_keep: int = Field(
        default=3, ge=1, le=10_000, description="Number of checkpoints to keep; older ones are removed"
    )
    pictures: float | None = Field(
        default=None,
        gt=0,
        le=MOST_SECONDS,
        allow_inf_nan=False,
        description="Time from one set of pictures and status.json to the next [s]; none: no pictures",
    )
    transfer: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$",
        description="Function, as 'module:function', that is called with the path of each complete file",
        json_schema_extra={TRUST: "is the function that is called with the path of each file that is kept"},
    )
