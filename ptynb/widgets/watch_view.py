"""The view of the folder in which a run writes its status and pictures: `watch`."""

from __future__ import annotations

import html
import io
import threading
from pathlib import Path

from PIL import Image

from ptynb.data.engine_records import Picture
from ptynb.io.status_file import PICTURES, Folder, StatusReport
from ptynb.widgets import elements
from ptynb.widgets.actions import repeat
from ptynb.widgets.loss_curve import loss_curve
from ptynb.widgets.shared_widgets import complaint, put, state_row
from ptynb.widgets.viewer.viewer import Viewer

REFRESH_SECONDS = 0.5


class Watch(elements.VBox):
    """Object amplitude and phase, probe modes, loss curve and state from the files in a folder; see `watch`."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Folder(folder)
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._waiting: list[Picture] | None = None
        self._pictures = Viewer()
        self._curve = elements.HTML(loss_curve([]), layout=elements.Layout(width="100%"))
        self._summary, self._message, self._record = elements.HTML(), elements.HTML(), elements.HTML()
        wide = elements.Layout(width="540px", max_width="100%")
        beside = elements.HBox(
            [elements.VBox([elements.HTML("<b>Loss</b>"), self._curve], layout=wide), self._record],
            layout=elements.Layout(flex_flow="row wrap", align_items="flex-start"),
        )
        super().__init__([self._summary, self._message, self._pictures, beside])
        self.add_class("ptynb-watch")
        self.refresh()
        self._soon = repeat(self, "ptynb watch view", REFRESH_SECONDS, Watch.refresh, Watch.complain)

    def close(self) -> None:
        """Close the view and end its thread; the run continues."""
        self._ended.set()
        self._soon.set()
        with self._lock:
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
            shown = folder.shown
            put(self._message, f'<b style="color:#b26a00">{html.escape(folder.problem)}</b>' if folder.problem else "")
            if shown is None:
                return
            put(self._summary, state_row(shown.state, [html.escape(fact) for fact in (*shown.facts, folder.written)]))
            if changed:
                losses = [float("nan") if loss is None else loss for loss in shown.losses]
                put(self._curve, loss_curve(losses, [epoch + 1 for epoch, _ in shown.changes]))
                put(self._record, _record(shown))
                self._waiting = _pictures(folder, shown)
            if self._waiting is not None and self._pictures.ready:
                self._pictures.show(self._waiting, epoch=shown.picture[0], update=shown.picture[1])
                self._waiting = None

    def complain(self, error: Exception | None) -> None:
        """Show an error of `refresh`; its next success removes it."""
        with self._lock:
            if error is not None and not self.closed:
                put(self._message, complaint(f"{type(error).__name__}: {error}"))


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


def _pictures(folder: Folder, shown: StatusReport) -> list[Picture] | None:
    """Return the pictures if all three exist: grey levels of the object, colours of the probe."""
    if any(name not in folder.pictures for name in PICTURES):
        return None
    powers = ", ".join(f"{power:.1%}" for power in shown.powers)
    amplitude, phase, probe = (folder.pictures[name] for name in PICTURES)
    limits = {name: shown.limits.get(name, (0.0, 1.0)) for name in PICTURES}
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


def _record(shown: StatusReport) -> str:
    if not shown.changes:
        return ""
    rows = "".join(f"<tr><td>{epoch + 1}</td><td>{html.escape(name)}</td></tr>" for epoch, name in shown.changes[-8:])
    return (
        '<table style="margin:8px 16px;line-height:1.5">'
        '<caption style="text-align:left;font-weight:600">Changes</caption>'
        f'<tr><th style="padding-right:12px">in epoch</th><th>setting</th></tr>{rows}</table>'
    )
