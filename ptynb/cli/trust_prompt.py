"""Confirmation of the fields of a run file that call functions, run programs or connect to other machines.

These fields are marked with `TRUST`. Since a run file may come from another user, `ptynb run` asks for confirmation of
their values, and stores the answer.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_data_dir
from pydantic import BaseModel

from ptynb.exceptions import SettingsError
from ptynb.private_folder import only_own, private_folder
from ptynb.settings.base_models import ADDRESS, TRUST
from ptynb.settings.run_files.run_file import RunFile
from ptynb.text import quoted

LONGEST_SHOWN = 4000
"""Largest number of characters of fields that a terminal shows."""
MOST_BYTES = 2**20
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
            if ADDRESS in extra and "://" not in value:
                continue
            plain = model.model_dump(mode="json", include={name})[name]
            yield Line(f"{prefix}{name}", plain, str(extra[TRUST]))


def fingerprint(file: Path, line: Line) -> str:
    """Return the SHA-256 (hexadecimal) of a field, its value and the path of its file.

    Other parts of the file may change. A copy in another folder has another fingerprint, since a name such as
    'helper:send' may be another function there.
    """
    return hashlib.sha256(json.dumps([str(file.resolve()), line.name, line.value]).encode()).hexdigest()


def check_trust(file: Path, lines: Sequence[Line], ask: bool) -> None:
    """Check that these fields of a run file are confirmed. Raises SettingsError if they are not.

    ask: whether to ask for confirmation, on a terminal.
    """
    own = {fingerprint(file, line): line for line in lines}
    new = own.keys() - known() if own else set()
    if not new:
        return
    lines = [line for name, line in own.items() if name in new]
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
            "its author, add --trust, or run it once with 'ptynb run' at a terminal, which asks.",
            code="settings.not-confirmed",
        )
    print(f"{file} runs code or connects to other machines:\n{shown}", file=sys.stderr)
    print("Run it, now and as long as these fields are the same? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise SettingsError(
            f"{file} was not run, because its fields were not confirmed; remove them, or answer y.",
            code="settings.not-confirmed",
        )
    try:
        _remember(sorted(new))
    except OSError as error:  # the answer is valid for this run
        print(f"The answer could not be written to {trusted_file()} ({error.strerror}).", file=sys.stderr)


def trusted_file() -> Path:
    """Return the path of the file with the fingerprints of confirmed fields, for this user only."""
    return Path(jupyter_data_dir()) / "ptynb" / "trusted"


def known() -> set[str]:
    """Return the fingerprints of confirmed fields. Raises SettingsError if others can write the file."""
    path = trusted_file()
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return set()
    with os.fdopen(handle, "rb") as file:
        _check_own(handle, path)
        return {*file.read(MOST_BYTES).decode("ascii", "replace").split()}


def _remember(fingerprints: Sequence[str]) -> None:
    path = trusted_file()
    private_folder(path.parent)
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    with os.fdopen(handle, "wb") as file:
        _check_own(handle, path)
        file.write("".join(f"{one}\n" for one in fingerprints).encode())


def _check_own(handle: int, path: Path) -> None:
    status = os.fstat(handle)
    if not (stat.S_ISREG(status.st_mode) and only_own(status)):
        raise SettingsError(
            f"{path} is not a file that only you can write; remove it, and confirm run files again.",
            code="file.not-private",
        )
