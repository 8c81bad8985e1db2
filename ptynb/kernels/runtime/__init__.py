"""Runtime of loops compiled for a CPU (see README.md). It imports nothing else of ptynb, which sets what is here."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any


def plain_thread(name: str, work: Callable[..., object], *arguments: object) -> Any:
    """Return a thread that ends with the process."""
    return threading.Thread(target=work, name=name, args=arguments, daemon=True)  # noqa: TID251 - ptynb sets its own


folder_of_code: Callable[[str], Path] = Path
"""Returns the folder for compiled code of this name, created."""
new_thread: Callable[..., Any] = plain_thread
"""Makes a helper thread from its name, its work and the arguments of this."""
