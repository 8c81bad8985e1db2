"""Asking before a run file calls functions, runs programs or reaches other machines, and remembering the answer."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ptynb.text import quoted

if TYPE_CHECKING:
    from ptynb.settings.trusted_fields import Line

LONGEST_SHOWN = 4000
"""Characters of lines that somebody can be asked about: what scrolls away is not seen."""
MOST_BYTES = 2**20


def check_trust(file: Path, lines: Sequence[Line], ask: bool) -> None:
    """Returns where nobody has to be asked about these lines of a run file, or who was asked says yes.

    ask: whether somebody may be asked, if there is a terminal. Raises SettingsError.
    """
    from ptynb.exceptions import SettingsError
    from ptynb.settings.trusted_fields import fingerprint

    own = {fingerprint(file, line): line for line in lines}
    new = own.keys() - known() if own else set()
    if not new:
        return
    lines = [line for name, line in own.items() if name in new]
    shown = "\n".join(f"  {line.name}: {quoted(line.value, LONGEST_SHOWN)}\n      {line.does}" for line in lines)
    named = ", ".join(f"{line.name}: {quoted(line.value)}" for line in lines)
    if len(shown) > LONGEST_SHOWN:
        raise SettingsError(
            f"{file} does more than reconstruct, in lines too long to be shown here ({named}); read the file, and add "
            "--trust if you know who wrote them.",
            code="settings.not-confirmed",
        )
    if not (ask and sys.stdin.isatty() and sys.stderr.isatty()):
        raise SettingsError(
            f"{file} does more than reconstruct ({named}), and nobody has confirmed these lines; if you know who wrote "
            "them, add --trust, or run it once with 'ptynb run' at a terminal, which asks.",
            code="settings.not-confirmed",
        )
    print(f"{file} does more than reconstruct:\n{shown}", file=sys.stderr)
    print("Go on, now and whenever these lines are the same? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise SettingsError(
            f"{file} was not run, since its lines were not confirmed; take them out, or answer y.",
            code="settings.not-confirmed",
        )
    try:
        _remember(sorted(new))
    except OSError as error:  # it holds for this run all the same
        print(f"The answer could not be kept in {trusted_file()} ({error.strerror}).", file=sys.stderr)


def trusted_file() -> Path:
    """Where the fingerprints of what was confirmed are, one a line, for this user only."""
    from jupyter_core.paths import jupyter_data_dir

    return Path(jupyter_data_dir()) / "ptynb" / "trusted"


def known() -> set[str]:
    """The fingerprints of what was confirmed. Raises SettingsError where others can write there."""
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
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    with os.fdopen(handle, "wb") as file:
        _check_own(handle, path)
        file.write("".join(f"{one}\n" for one in fingerprints).encode())


def _check_own(handle: int, path: Path) -> None:
    from ptynb.exceptions import SettingsError

    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise SettingsError(
            f"{path} is not a file that you alone can write; remove it, and confirm run files again.",
            code="file.not-private",
        )
