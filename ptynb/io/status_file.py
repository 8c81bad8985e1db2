"""Status of a run in a folder: `status.json` and three pictures, replaced repeatedly while it runs.

{"format": "ptynb status", "version": 1, "name", "scan", "state", "epoch", "target", "update", "updates_per_epoch",
 "losses": [...], "seconds": [...], "changes": [[epoch, name], ...], "engines", "written": ISO time,
 "picture": {"epoch", "update", "limits": {name: [low, high]}, "powers": [...]}, "kept"}

The folder may be a copy from another machine, so its content is not trusted: a file is used once it is complete, values
that are not numbers or short texts are left out, and links are not followed.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from ptynb.data.engine_records import Status
from ptynb.data.record import STOPPED

FORMAT = "ptynb status"
VERSION = 1
PICTURES = ("amplitude", "phase", "probe")
STATES = ("loading", "ready", "running", "paused", "failed", "closed")
MOST_BYTES = 32 * 2**20
"""Maximum size of a file [bytes]; a status of a hundred thousand epochs has 4 MB."""
MOST_LETTERS = 300
NOT_WHOLE = "status.json is not whole (yet)"
STILL_SECONDS = 30.0
"""Time without an update after which a run is reported as not updating, if it is also longer than some epochs."""


@dataclass(frozen=True)
class StatusReport:
    """Status of a run. Numbers are finite; losses and seconds: of each epoch, None if not available.

    changes: (epochs completed before it, name of the setting). limits: (low, high) of each picture's colours.
    """

    name: str = ""
    scan: str = ""
    state: str = "unknown"
    epoch: int = 0
    target: int = 0
    update: int = 0
    updates_per_epoch: int = 0
    losses: tuple[float | None, ...] = ()
    seconds: tuple[float | None, ...] = ()
    changes: tuple[tuple[int, str], ...] = ()
    engines: str = ""
    written: str = ""
    checkpoint: str = ""
    picture: tuple[int, int] = (0, 0)
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    powers: tuple[float, ...] = ()

    @property
    def title(self) -> str:
        """Name of the scan and of the run."""
        return f"{self.scan} ({self.name})" if self.scan and self.name else self.scan or self.name

    @property
    def facts(self) -> tuple[str, ...]:
        """Short texts that describe the state of the run."""
        loss, seconds = _last(self.losses), _last(self.seconds)
        epoch = f"epoch {self.epoch} of {self.target}" if self.target else f"epoch {self.epoch}"
        if self.update:
            epoch += f" + {self.update}/{self.updates_per_epoch} updates"
        stopped = self.state == "ready" and self.changes[-1:] == ((self.epoch, STOPPED),)
        facts = (
            epoch,
            "stopped, since it made no more progress" if stopped else "",
            "" if loss is None else f"loss {loss:.5g}",
            "" if seconds is None else f"{seconds:.3g} s an epoch",
            f"engines: {self.engines}" if self.engines.isdecimal() else self.engines,
            f"checkpoint: {self.checkpoint}" if self.checkpoint else "",
        )
        return tuple(fact for fact in facts if fact)


def status_text(name: str, scan: str, status: Status, picture: dict[str, Any] | None, kept: str | None) -> bytes:
    """Return the content of a `status.json`. picture: metadata of the pictures; kept: name of the newest checkpoint."""
    values = {
        "format": FORMAT,
        "version": VERSION,
        "name": name,
        "scan": scan,
        "state": status.state,
        "epoch": status.epoch,
        "target": status.target,
        "update": status.update,
        "updates_per_epoch": status.updates_per_epoch,
        "losses": [epoch.loss if math.isfinite(epoch.loss) else None for epoch in status.epochs],
        "seconds": [epoch.seconds for epoch in status.epochs],
        "changes": [[change.epoch, change.name] for change in status.changes],
        "engines": status.world,
        "r_factor": None,
        "written": datetime.now().astimezone().isoformat(timespec="milliseconds"),
        "picture": picture,
        "kept": kept,
    }
    return json.dumps(values, allow_nan=False).encode()


class Folder:
    """A folder with the status of a run, which need not exist yet. For use by one thread."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser().absolute()
        self.shown: StatusReport | None = None
        """The newest complete status."""
        self.pictures: dict[str, bytes] = {}
        """The newest complete pictures, JPEG, by name."""
        self.problem = ""
        """Why there is no status, or no newer one."""
        self._seen: dict[str, tuple[int, int, int]] = {}
        self._changed_at: float | None = None

    def look(self) -> bool:
        """Read new files; return whether there were any."""
        changed = False
        content = self._read("status.json")
        if content is not None:
            shown, problem = read_status(content)
            if shown is not None:
                self.shown, changed = shown, True
            # While a file is being copied, the previous content stays valid.
            self.problem = "" if problem == NOT_WHOLE and self.shown is not None else problem
        elif self.shown is None and not self.problem:
            self.problem = f"waiting for a run to show itself in {self.path}"
        for name in PICTURES:
            picture = self._read(f"{name}.jpg")
            if picture is not None and picture[:2] == b"\xff\xd8" and picture.rstrip(b"\0")[-2:] == b"\xff\xd9":
                self.pictures[name], changed = picture, True
        return changed

    @property
    def age(self) -> float | None:
        """Seconds since a file was last written, as far as it can be determined here; None if there is none."""
        return None if self._changed_at is None else max(0.0, time.time() - self._changed_at)

    @property
    def written(self) -> str:
        """The same as text: 'last written 3 minutes ago'."""
        words = "" if self.age is None else f"last written {ago(self.age)}"
        return f"{words}; nothing new since" if self.still else words

    @property
    def still(self) -> bool:
        """Whether a run that has not reported its end has written nothing for too long."""
        if self.shown is None or self.age is None or self.shown.state not in ("running", "loading", "unknown"):
            return False
        epochs = [seconds for seconds in self.shown.seconds[-3:] if seconds is not None]
        return self.age > max(STILL_SECONDS, 3 * max(epochs, default=0.0))

    def _read(self, name: str) -> bytes | None:
        """Return the content of a regular file in the folder, if it has changed since the last call."""
        with contextlib.suppress(OSError):
            # Links are not followed, and opening does not block on a pipe.
            flags = os.O_RDONLY
            for flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"):
                flags |= getattr(os, flag, 0)  # each on some systems only
            handle = os.open(self.path / name, flags)
            with os.fdopen(handle, "rb") as file:
                found = os.fstat(file.fileno())
                seen = (found.st_mtime_ns, found.st_size, found.st_ino)
                if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES or self._seen.get(name) == seen:
                    return None
                content = file.read(MOST_BYTES)
            # On the first read the file may be old; later it was written just now, whatever its time stamp.
            known = self._seen.get(name) is not None
            written = time.time() if known else min(found.st_mtime, time.time())
            self._changed_at = max(self._changed_at or 0.0, written)
            self._seen[name] = seen
            return content
        return None


def read_status(content: bytes) -> tuple[StatusReport | None, str]:
    """Return the status in the content of a `status.json`, or None and the reason."""
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        return None, NOT_WHOLE
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        return None, "status.json is none of ptynb's"
    if values.get("version") != VERSION:
        return None, f"status.json has version {_text(values.get('version'))}; this ptynb reads version {VERSION}"
    picture = values.get("picture")
    picture = picture if isinstance(picture, dict) else {}
    state = values.get("state")
    return StatusReport(
        name=_text(values.get("name")),
        scan=_text(values.get("scan")),
        engines=_text(values.get("engines")),
        written=_text(values.get("written")),
        checkpoint=_text(values.get("kept")),
        epoch=_count(values.get("epoch")),
        target=_count(values.get("target")),
        update=_count(values.get("update")),
        updates_per_epoch=_count(values.get("updates_per_epoch")),
        state=state if isinstance(state, str) and state in STATES else "unknown",
        losses=tuple(_number(value) for value in _list(values.get("losses"))),
        seconds=tuple(_number(value) for value in _list(values.get("seconds"))),
        changes=tuple(
            (_count(change[0]), _text(change[1]))
            for change in _list(values.get("changes"))
            if isinstance(change, list) and len(change) == 2
        ),
        picture=(_count(picture.get("epoch")), _count(picture.get("update"))),
        limits=_limits(picture.get("limits")),
        powers=tuple(power for value in _list(picture.get("powers")) if (power := _number(value)) is not None),
    ), ""


def _last(values: tuple[float | None, ...]) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)


def ago(seconds: float) -> str:
    """Return a duration as text: 'just now', '40 seconds ago', '3 minutes ago', '2 days ago'."""
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        count = int(seconds // size)
        if count >= (10 if unit == "second" else 1):
            return f"{count} {unit}{'' if count == 1 else 's'} ago"
    return "just now"


def _text(value: Any) -> str:
    """Return a short text in one line; other values by their representation."""
    text = "" if value is None else value if isinstance(value, str) else str(value)[:MOST_LETTERS]
    return " ".join(text[:MOST_LETTERS].encode(errors="replace").decode().split())


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e300:
        return None
    return float(value) if math.isfinite(value) else None


def _count(value: Any) -> int:
    number = _number(value)
    return 0 if number is None else min(max(int(number), 0), 2**53)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _limits(value: Any) -> dict[str, tuple[float, float]]:
    found = {}
    for name in PICTURES:
        pair = [_number(limit) for limit in _list(value.get(name) if isinstance(value, dict) else None)]
        if len(pair) == 2 and pair[0] is not None and pair[1] is not None:
            found[name] = (pair[0], pair[1])
    return found
