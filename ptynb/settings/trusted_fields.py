"""Lines of a run file that do more than reconstruct: they call a function, run a program, or reach other machines.

The fields say so themselves, with `TRUST` beside their description. A run file from somebody else may hold such a line,
so `ptynb run` asks before it obeys one (`ptynb.cli.trust_prompt`).
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
"""Names of HDF5 files, which no program takes for its own start-up file."""


@dataclass(frozen=True)
class Line:
    """A field and its value, as plain values. does: what it does, after "it"."""

    name: str
    value: Any
    does: str


def lines_to_confirm(plan: RunFile, file: Path) -> list[Line]:
    """Those of the run in this file that its user has to know of; fields left at their defaults are not among them."""
    lines = [*_marked(plan)]
    inside = plan.result.resolve().is_relative_to(file.parent.resolve())
    if not inside and plan.result.suffix.lower() not in RESULTS:
        # Its bytes are a result's, but a shell or Python may find lines in them that it can run.
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
    """SHA-256 of a line and of where its file is, hexadecimal: for another value or file it is another one.

    The rest of the file may be edited. A copy in another folder counts as another file, since a name such as
    'helper:send' may mean another function there.
    """
    return hashlib.sha256(json.dumps([str(file.resolve()), line.name, line.value]).encode()).hexdigest()
