"""Where the state of a running reconstruction is kept, how often, and who is handed the files."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from ptynb.settings.validation import MOST_EPOCHS, MOST_SECONDS, TRUST, SettingsModel


class Checkpointing(SettingsModel):
    """How the state is kept. Where both `epochs` and `seconds` are None it is kept only when asked for."""

    folder: Path | None = Field(
        default=None, description="Folder for the states, one that all engines see; none: one of ptynb's own"
    )
    epochs: int | None = Field(
        default=None, ge=1, le=MOST_EPOCHS, description="Epochs from one state to the next; none: don't count"
    )
    seconds: float | None = Field(
        default=60.0,
        gt=0,
        le=MOST_SECONDS,
        allow_inf_nan=False,
        description="Seconds from one state to the next; none: don't count",
    )
    max_to_keep: int = Field(default=3, ge=1, le=10_000, description="States that stay; older ones are removed")
    pictures: float | None = Field(
        default=None,
        gt=0,
        le=MOST_SECONDS,
        allow_inf_nan=False,
        description="Seconds from one set of pictures and status.json to the next; none: no pictures",
    )
    transfer: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$",
        description="Function, as 'module:function', that is handed the path of each file when it is whole",
        json_schema_extra={TRUST: "is the function that is called with the path of each file that is kept"},
    )
