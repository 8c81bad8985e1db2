"""Files that were loaded last, kept for the user between sessions."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from jupyter_core.paths import jupyter_data_dir

from ptynb.private_folder import make_folder

MOST = 12


def _store() -> Path:
    return Path(jupyter_data_dir()) / "ptynb" / "recent_files.json"


def recent_files() -> list[Path]:
    """Return the files that were loaded last and still exist, the newest first."""
    try:
        known = json.loads(_store().read_text(encoding="utf-8"))
    except (OSError, ValueError):  # there is none yet, or another program has written it
        return []
    paths = [Path(one) for one in known if isinstance(one, str)] if isinstance(known, list) else []
    return [path for path in paths if os.path.exists(path)][:MOST]


def remember(path: Path) -> None:
    """Put a file at the top of the list."""
    store, first = _store(), path.absolute()
    paths = [first, *(other for other in recent_files() if other != first)][:MOST]
    try:
        make_folder(store.parent)
        with tempfile.NamedTemporaryFile("w", dir=store.parent, delete=False, encoding="utf-8") as written:
            json.dump([str(one) for one in paths], written)
        os.replace(written.name, store)  # another notebook may read it now
    except OSError:  # a home that cannot be written to is no reason not to load a scan
        return
