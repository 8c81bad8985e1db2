"""The view of a folder in which a run shows itself, here or copied from another machine: `watch`."""

from __future__ import annotations

import html
import threading
import weakref
from pathlib import Path

import ipywidgets

from ptynb.io.status import PICTURES, Folder, Shown
from ptynb.snapshot import Pictures
from ptynb.widgets.curve import loss_curve
from ptynb.widgets.parts import below, in_a_row, put
from ptynb.widgets.picture_view import PictureView

LOOK_SECONDS = 0.5


class Watch(ipywidgets.VBox):
    """Object amplitude and phase, probe modes, loss curve and state, as the files in a folder tell; see `watch`."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Folder(folder)
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._waiting: Pictures | None = None
        self._pictures = PictureView()
        self._curve = ipywidgets.HTML(loss_curve([]), layout=ipywidgets.Layout(width="100%"))
        self._summary, self._message, self._record = ipywidgets.HTML(), ipywidgets.HTML(), ipywidgets.HTML()
        wide = ipywidgets.Layout(width="540px", max_width="100%")
        beside = ipywidgets.HBox(
            [ipywidgets.VBox([ipywidgets.HTML("<b>Loss</b>"), self._curve], layout=wide), self._record],
            layout=ipywidgets.Layout(flex_flow="row wrap", align_items="flex-start"),
        )
        super().__init__([self._summary, self._message, self._pictures, beside])
        self.add_class("ptynb-watch")
        self.refresh()
        target, ended = weakref.ref(self), self._ended
        threading.Thread(target=_look, args=(target, ended), name="ptynb watch view", daemon=True).start()

    def close(self) -> None:
        """Ends the view and its thread; the run goes on."""
        self._ended.set()
        with self._lock:
            for widget in below(self):
                widget.close()
            super().close()

    @property
    def closed(self) -> bool:
        """Whether the view was closed."""
        return self._ended.is_set()

    def refresh(self) -> None:
        """Takes over what is new in the folder, and new pictures once the screen is ready for them."""
        with self._lock:
            if self.closed:
                return
            folder = self._folder
            changed = folder.look()
            shown = folder.shown
            put(self._message, f'<b style="color:#b26a00">{html.escape(folder.problem)}</b>' if folder.problem else "")
            if shown is None:
                return
            put(self._summary, in_a_row(shown.state, [html.escape(fact) for fact in (*shown.facts, folder.written)]))
            if changed:
                losses = [float("nan") if loss is None else loss for loss in shown.losses]
                put(self._curve, loss_curve(losses, [epoch + 1 for epoch, _ in shown.changes]))
                put(self._record, _record(shown))
                self._waiting = _pictures(folder, shown)
            if self._waiting is not None and self._pictures.ready:
                self._pictures.show(self._waiting)
                self._waiting = None


def watch(folder: str | Path) -> Watch:
    """A live view of a run that keeps pictures in a folder (`Keep(pictures=...)`), made in another process.

    folder: where it keeps them, or a copy that another machine fills (rsync); it may come later. As the last line of a
    cell the view appears below it. `ptynb watch FOLDER` shows the same as a page.
    """
    return Watch(folder)


def _look(reference: weakref.ref[Watch], ended: threading.Event) -> None:
    while not ended.wait(LOOK_SECONDS):
        view = reference()
        if view is None:
            return
        view.refresh()
        del view


def _pictures(folder: Folder, shown: Shown) -> Pictures | None:
    """The pictures for the screen, once all three are there."""
    if any(name not in folder.pictures for name in PICTURES):
        return None
    nothing = {"amplitude": (0.0, 0.0), "phase": (0.0, 0.0)}
    amplitude, phase, probe = (folder.pictures[name] for name in PICTURES)
    return Pictures(*shown.picture, amplitude, phase, probe, {**nothing, **shown.limits}, shown.powers)


def _record(shown: Shown) -> str:
    if not shown.changes:
        return ""
    rows = "".join(f"<tr><td>{epoch + 1}</td><td>{html.escape(name)}</td></tr>" for epoch, name in shown.changes[-8:])
    return (
        '<table style="margin:8px 16px;line-height:1.5">'
        '<caption style="text-align:left;font-weight:600">Changes</caption>'
        f'<tr><th style="padding-right:12px">in epoch</th><th>setting</th></tr>{rows}</table>'
    )
