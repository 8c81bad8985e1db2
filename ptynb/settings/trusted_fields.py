"""Fields of a run file that call a function, run a program, or connect to other machines.

These fields are marked with `TRUST`. Since a run file may come from somebody else, `ptynb run` asks for confirmation
of their values (`ptynb.cli.trust_prompt`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ptynb.settings.run_file import RunFile
from ptynb.settings.validation import TRUST

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
        elif isinstance(extra, dict) and TRUST in extra and value is not None:
            plain = model.model_dump(mode="json", include={name})[name]
            yield Line(f"{prefix}{name}", plain, str(extra[TRUST]))


def fingerprint(file: Path, line: Line) -> str:
    """Return the SHA-256 (hexadecimal) of a field, its value and the path of its file.

    Other parts of the file may change. A copy in another folder has another fingerprint, since a name such as
    'helper:send' may be another function there.
    """
    return hashlib.sha256(json.dumps([str(file.resolve()), line.name, line.value]).encode()).hexdigest()
