"""The panel of the workbench that makes a film of the run."""

from __future__ import annotations

import html
from collections.abc import Callable
from pathlib import Path

from ptynb.app.session_state import Desk
from ptynb.exceptions import InvalidValueError
from ptynb.report.film.film import film
from ptynb.widgets import elements
from ptynb.widgets.actions import Actions
from ptynb.widgets.shared_widgets import CancelBar, CancelledError, complaint, put

CHECKPOINTS, THUMBNAILS = "checkpoints", "thumbnails"
RATE = 4.0


class FilmPanel(elements.VBox):
    """File and kind of a film, and its progress; films are made in a thread of their own, so that a run is not slowed.

    default: returns the path of a film without a name.
    """

    def __init__(self, desk: Desk, default: Callable[[], str]) -> None:
        self._desk, self._default = desk, default
        own = {"description_width": "initial"}
        self._path = elements.Text(
            description="Film file",
            placeholder="scan.gif or scan.mp4",
            layout=elements.Layout(width="380px", max_width="100%"),
        )
        self._of = elements.Dropdown(
            options=[CHECKPOINTS, THUMBNAILS], description="of", style=own, layout=elements.Layout(width="auto"),
            tooltip="Checkpoints have every pixel; thumbnails of up to 8 epochs are in every result",
        )  # fmt: skip
        self._rate = elements.BoundedFloatText(
            RATE, min=0.5, max=50.0, step=0.5, description="Frames/s", style=own,
            layout=elements.Layout(width="130px"),
        )  # fmt: skip
        self._make = elements.Button(
            description="Film", icon="film", tooltip="Writes a film of the run (GIF or MP4) to this file",
            layout=elements.Layout(width="auto"),
        )  # fmt: skip
        self._make.on_click(lambda _: self._start())
        self._progress = CancelBar("Film", "Ends the film; no file is written")
        self._status = elements.HTML()
        row = elements.HBox(
            [self._path, self._of, self._rate, self._make, self._progress],
            layout=elements.Layout(flex_flow="row wrap", overflow="visible", align_items="center"),
        )
        super().__init__([row, self._status], layout=elements.Layout(overflow="visible"))
        self._actions = Actions("ptynb film", self._complain, self._end)

    def close(self) -> None:
        """Cancel a film, close the panel and end its thread."""
        self._actions.close()
        super().close()

    def _start(self) -> None:
        path, kind, rate = self._path.value.strip(), self._of.value, self._rate.value
        self._make.disabled = True
        self._progress.begin()
        self._actions.put(lambda: self._write(Path(path or self._default()), kind, rate))

    def _write(self, path: Path, kind: str, rate: float) -> None:
        recon = self._desk.recon
        if recon is None:
            raise InvalidValueError(
                "There is no reconstruction; press New run first.", code="workbench.no-reconstruction"
            )
        source, line = (recon, "recon") if kind == CHECKPOINTS else (recon.result, "recon.result")
        try:
            written = film(source, path, rate=rate, progress=self._progress.show)
        except CancelledError:
            self._say("The film was cancelled; no file was written.")
            return
        given = "" if rate == RATE else f", rate={rate:g}"
        self._desk.tell(f"pt.film({line}, {str(path)!r}{given})")
        self._say(f"written: {written}")

    def _end(self) -> None:
        self._progress.end()
        self._make.disabled = False

    def _say(self, text: str) -> None:
        put(self._status, f'<span role="status">{html.escape(text)}</span>')

    def _complain(self, error: Exception | None) -> None:
        put(self._status, complaint(error))
