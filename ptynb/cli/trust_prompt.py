"""Confirmation of the fields of a run file that call functions, run programs or connect to other machines.

These fields are marked with `TRUST`. Since a run file may come from another user, `ptynb run` asks for confirmation of
their values.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ptynb.exceptions import SettingsError
from ptynb.settings.base_models import ADDRESS, TRUST
from ptynb.settings.run_files.run_file import RunFile
from ptynb.text import quoted

LONGEST_SHOWN = 4000
"""Largest number of characters of fields that a terminal shows."""
RESULTS = (".h5", ".hdf5", ".hdf", ".nxs", ".cxi")
"""Suffixes of HDF5 files, which no program reads as a start-up file."""


@dataclass(frozen=True)
class Line:
    """A field and its plain value. does: its effect, to follow the word "it"."""

    name: str
    value: Any
    does: str


def lines_to_confirm(plan: RunFile, file: Path) -> list[Line]:
    """Return the fields of a run file that its user has to confirm; those with default values are not included."""
    lines = [*_marked(plan)]
    inside = plan.result.resolve().is_relative_to(file.parent.resolve())
    if not inside and plan.result.suffix.lower() not in RESULTS:
        # The file is a result, but a shell or Python may find executable lines in it.
        lines.append(
            Line("result", str(plan.result), "is a file elsewhere that is replaced, and not named as a result")
        )
    return lines


def _marked(model: BaseModel, prefix: str = "") -> Iterator[Line]:
    for name, field in type(model).model_fields.items():
        value, extra = getattr(model, name), field.json_schema_extra
        if isinstance(value, BaseModel):
            yield from _marked(value, f"{prefix}{name}.")
        elif isinstance(value, tuple) and any(isinstance(one, BaseModel) for one in value):  # entries, also of plug-ins
            for number, one in enumerate(value):
                yield from _marked(one, f"{prefix}{name}.{number}.") if isinstance(one, BaseModel) else ()
        elif isinstance(extra, dict) and TRUST in extra and value is not None:
            if ADDRESS in extra and "://" not in value:
                continue
            plain = model.model_dump(mode="json", include={name})[name]
            yield Line(f"{prefix}{name}", plain, str(extra[TRUST]))


def check_trust(file: Path, lines: Sequence[Line], ask: bool) -> None:
    """Check that these fields of a run file are confirmed. Raises SettingsError if they are not.

    ask: whether to ask for confirmation, on a terminal.
    """
    if not lines:
        return
    shown = "\n".join(f"  {line.name}: {quoted(line.value, LONGEST_SHOWN)}\n      {line.does}" for line in lines)
    named = ", ".join(f"{line.name}: {quoted(line.value)}" for line in lines)
    if len(shown) > LONGEST_SHOWN:
        raise SettingsError(
            f"{file} runs code or connects to other machines in fields too long to be shown ({named}); read the "
            "file, and add --trust if you know its author.",
            code="settings.not-confirmed",
        )
    if not (ask and sys.stdin.isatty() and sys.stderr.isatty()):
        raise SettingsError(
            f"{file} runs code or connects to other machines ({named}), which is not confirmed; if you know "
            "its author, add --trust, or use 'ptynb run' at a terminal, which asks.",
            code="settings.not-confirmed",
        )
    print(f"{file} runs code or connects to other machines:\n{shown}", file=sys.stderr)
    print("Run it? (With --trust it is not asked.) [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise SettingsError(
            f"{file} was not run, because its fields were not confirmed; remove them, or answer y.",
            code="settings.not-confirmed",
        )
