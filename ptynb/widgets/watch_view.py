"""The view of the folder in which a run writes its status and pictures: `watch`."""

from __future__ import annotations

import io
import itertools
import threading
from pathlib import Path

import traitlets
from PIL import Image

from ptynb.data.engine_records import Picture
from ptynb.io.status_file import PICTURES, Folder, StatusReport
from ptynb.widgets.actions import repeat
from ptynb.widgets.element_tree import Element, shown
from ptynb.widgets.live.live_facts import MOST_CHANGES, pieces
from ptynb.widgets.viewer.viewer import Viewer

REFRESH_SECONDS = 0.5
UNKNOWN = None, None, None
"""Changes of object, probe and positions in an epoch, which the files do not have."""


class Watch(Element):
    """Object amplitude and phase, probe modes, loss curve and state from the files in a folder; see `watch`.

    state, facts: of the run, in words. record: see `live_facts.record`. marks: epochs in which settings were changed;
    changes: (epoch, setting) of the latest ones. problem: why nothing is shown; message: the error of the last look.
    """

    component = "watch"

    state = shown(traitlets.Unicode(""))
    facts: traitlets.List[str] = shown(traitlets.List())
    record: traitlets.Dict[str, bytes] = shown(traitlets.Dict())
    marks: traitlets.List[int] = shown(traitlets.List())
    changes: traitlets.List[list[str]] = shown(traitlets.List())
    problem = shown(traitlets.Unicode(""))
    message = shown(traitlets.Unicode(""))
    pictures = shown(traitlets.Instance(Viewer))

    def __init__(self, folder: str | Path) -> None:
        self._folder = Folder(folder)
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._waiting: list[Picture] | None = None
        super().__init__(pictures=Viewer())
        self.refresh()
        self._soon = repeat(self, "ptynb watch view", REFRESH_SECONDS, Watch.refresh, Watch.complain)

    def close(self) -> None:
        """Close the view and end its thread; the run continues."""
        self._ended.set()
        self._soon.set()
        with self._lock:
            self.pictures.close()
            super().close()

    @property
    def closed(self) -> bool:
        """Whether the view was closed."""
        return self._ended.is_set()

    def refresh(self) -> None:
        """Show changes in the folder, and new pictures when the screen is ready for them."""
        with self._lock:
            if self.closed:
                return
            folder = self._folder
            changed = folder.look()
            report = folder.shown
            self.problem = folder.problem
            if report is None:
                return
            self.state, self.facts = report.state, [*report.facts, folder.written]
            if changed:
                known = itertools.zip_longest(report.losses, report.seconds[: len(report.losses)])
                self.record = pieces("epochs", [(number, *both, *UNKNOWN) for number, both in enumerate(known, 1)])
                self.marks = [epoch + 1 for epoch, _ in report.changes]
                self.changes = [[str(epoch + 1), name] for epoch, name in report.changes[-MOST_CHANGES:]]
                self._waiting = _pictures(folder, report)
            if self._waiting is not None and self.pictures.ready:
                self.pictures.show(self._waiting, epoch=report.picture[0], update=report.picture[1])
                self._waiting = None

    def complain(self, error: Exception | None) -> None:
        """Show an error of `refresh`; its next success removes it."""
        with self._lock:
            if not self.closed:
                self.message = "" if error is None else f"{type(error).__name__}: {error}"


def watch(folder: str | Path) -> Watch:
    """Return a live view of a run in another process that writes pictures (`Checkpointing(pictures=...)`).

    It is displayed if it is the last expression of a notebook cell. `ptynb watch FOLDER` shows the same as a web page.

    Parameters
    ----------
    folder : str or Path
        The folder of the run, or a copy of it from another machine (rsync); it may be created later.

    Returns
    -------
    Watch
        The view. `close` ends it and its thread; the run continues.
    """
    return Watch(folder)


def _pictures(folder: Folder, report: StatusReport) -> list[Picture] | None:
    """Return the pictures if all three exist: grey levels of the object, colours of the probe."""
    if any(name not in folder.pictures for name in PICTURES):
        return None
    powers = ", ".join(f"{power:.1%}" for power in report.powers)
    amplitude, phase, probe = (folder.pictures[name] for name in PICTURES)
    limits = {name: report.limits.get(name, (0.0, 1.0)) for name in PICTURES}
    return [
        Picture("amplitude", "Object amplitude", amplitude, _shape(amplitude), limits=limits["amplitude"]),
        Picture("phase", "Object phase, ramp removed", phase, _shape(phase), limits=limits["phase"], unit="rad"),
        Picture("probe", "Probe modes", probe, _shape(probe), note=f"power {powers}" if powers else ""),
    ]


def _shape(image: bytes) -> tuple[int, int]:
    """Return the shape (y, x) of an encoded picture; (0, 0) if it is invalid."""
    try:
        with Image.open(io.BytesIO(image)) as opened:
            return opened.height, opened.width
    except (OSError, Image.DecompressionBombError):
        return 0, 0
