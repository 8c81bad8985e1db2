"""The tab Run of the workbench: what a new run is given, its start, its live view, and its result."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any

import traitlets

from ptynb.app.cluster_choice import EXISTING, LOCAL, Existing
from ptynb.app.diagnosis_panel import DiagnosisPanel
from ptynb.app.run_fields import CheckpointFields, ClusterFields
from ptynb.app.session_state import FILM, FILM_RATE, RUN, SCAN, Session
from ptynb.data.engine_records import Checkpoint
from ptynb.exceptions import PtynbError
from ptynb.settings.cluster_options import QUEUED
from ptynb.settings.recipe import Recipe, Stage, StagePlan
from ptynb.widgets.actions import Actions, CancelledError
from ptynb.widgets.element_tree import Element, command, shown
from ptynb.widgets.form import SettingsForm
from ptynb.widgets.history import History
from ptynb.widgets.live import Live

STAGES, CHECKPOINTS, CLUSTER, RESULT = PAGES = "Stages", "Checkpointing", "Cluster", "Result"
"""The pages of the drawer."""
HISTORY = "Checkpoints"
"""The page of the live view with the checkpoints of the run."""


class RunTab(Element):
    """What a new run needs, its start, the live view of the current run, and what is written of it.

    page: the open page of the drawer; "": none. starting: what a start waits for; can_cancel: whether that can be
    ended. said: what the last command about the result or a film has done. film: frames of a film that are written, and
    all; empty without one. view: the live view, with the pages history and diagnosis.
    """

    component = "runTab"
    epochs = traitlets.Int(100, min=1, max=1_000_000).tag(sync=True)
    stages = traitlets.Unicode("").tag(sync=True)
    result_path = traitlets.Unicode("").tag(sync=True)
    film_path = traitlets.Unicode("").tag(sync=True)
    film_of = traitlets.Enum(("checkpoints", "thumbnails"), "checkpoints").tag(sync=True)
    film_rate = traitlets.Float(FILM_RATE, min=0.5, max=50.0).tag(sync=True)
    page = traitlets.Enum(("", *PAGES), "").tag(sync=True)
    starting = shown(traitlets.Unicode(""))
    can_cancel = shown(traitlets.Bool(False))
    said = shown(traitlets.Unicode(""))
    film: traitlets.List[int] = shown(traitlets.List([]))
    clusters: Any = shown(traitlets.Instance(ClusterFields))
    checkpoints: Any = shown(traitlets.Instance(CheckpointFields))
    view: Any = shown(traitlets.Instance(Live, allow_none=True))

    open_comparison: Callable[[Sequence[Checkpoint], bool], None] | None = None
    """Shows checkpoints side by side; see `History`."""
    history: History
    diagnosis: DiagnosisPanel

    def __init__(self, session: Session, actions: Actions) -> None:
        self._session, self._actions = session, actions
        self._start_cancelled, self._film_cancelled = threading.Event(), threading.Event()
        self._proposed = ""
        super().__init__(clusters=ClusterFields(actions, session.cluster), checkpoints=CheckpointFields(actions))
        session.on_change(self._follow)

    def propose(self, stages: tuple[Stage, ...]) -> None:
        """Enter stages, which may be none, in the place of those that were entered so before, or of an empty field."""
        if stages or self.stages == self._proposed:
            self._proposed = self.stages = StagePlan(stages).to_yaml()

    @command
    def new_run(self) -> None:
        """Start a reconstruction of the scan with the settings."""
        self._put(self._start, after=(SCAN,))

    @command
    def cancel_start(self) -> None:
        """End the wait for a cluster, and cancel the job."""
        self._start_cancelled.set()

    @command
    def attach(self) -> None:
        """Attach to a run that continues without its notebook; of several, to that of the existing cluster."""
        fields = self.clusters
        self._put(lambda: self._session.attach(fields.fields.text(EXISTING) if fields.launcher == EXISTING else None))

    @command
    def stop_engines(self) -> None:
        """Stop the cluster that the workbench has started."""

        def stop() -> None:
            self._session.stop_engines()
            if self.clusters.launcher == EXISTING:  # it is gone
                self.clusters.launcher = LOCAL

        self._put(stop)

    @command
    def save(self) -> None:
        """Write the result to the file."""
        self._put(lambda: self._show_said(f"saved: {self._session.save(self.result_path.strip())}"))

    @command
    def report(self) -> None:
        """Write a report beside the file of the result."""
        self._put(lambda: self._show_said(f"written: {self._session.report(self.result_path.strip())}"))

    @command
    def add_to_comparison(self) -> None:
        """Add the present result to the tab Compare."""
        self._put(lambda: self._show_said(f"added to comparison: {self._session.add_to_comparison()}"))

    @command
    def make_film(self) -> None:
        """Write a film of the run, while that goes on."""
        if not self.film:
            self._film_cancelled.clear()
            self.said, self.film = "", [0, 1]
            self._actions.put(self._make_film, lane=FILM)

    @command
    def cancel_film(self) -> None:
        """End the film; no file is written."""
        self._film_cancelled.set()

    def close(self) -> None:
        """Cancel what is waited for, and close the view of the run, which continues."""
        self._start_cancelled.set()
        self._film_cancelled.set()
        self._show(None)
        super().close()

    def _put(self, action: Callable[[], None], after: Collection[str] = ()) -> None:
        def act() -> None:
            self.said = ""
            action()

        self._actions.put(act, lane=RUN, after=after)

    def _start(self) -> None:
        session, ended = self._session, ""
        stages = Recipe.from_yaml(f"stages:\n{self.stages}").stages
        try:
            checkpointing, cluster = self.checkpoints.checkpointing(), self.clusters.chosen()
            self._start_cancelled = threading.Event()
            self.can_cancel = getattr(cluster, "kind", "") in QUEUED
            session.start_run(
                self.epochs, stages=stages, checkpointing=checkpointing, cluster=cluster, report=self._report_start,
                cancel=self._start_cancelled,
            )  # fmt: skip
        except PtynbError as error:
            if error.code == "cluster.start-cancelled":
                ended = "The start was cancelled, and no job is left."
            elif self.checkpoints.mark(error):
                self.page = CHECKPOINTS
            elif self.clusters.mark(error):
                self.page = CLUSTER
            else:
                raise
        finally:
            self.starting, self.can_cancel = ended, False

    def _report_start(self, text: str) -> None:
        self.starting = text

    @traitlets.observe("page")
    def _turned(self, _: Any) -> None:
        if self.page == CLUSTER:
            self.clusters.look()

    def _follow(self, what: str) -> None:
        if what == "recon":
            self._show(self._session.recon)
        elif what == "cluster":
            self.can_cancel = False  # it is there
            if isinstance(self._session.chosen_cluster, Existing):
                self.clusters.show_existing(self._session.chosen_cluster.name)

    def _show(self, recon: Any) -> None:
        """Show the views of a reconstruction."""
        before, self.view = self.view, None
        if before is not None:
            before.close()
        if recon is None:
            return
        session = self._session
        form, history = SettingsForm(recon.settings, live=True, recon=recon), History(recon)
        self.history, self.diagnosis = history, DiagnosisPanel(recon, session, self._actions)
        view = Live(recon, pages={"Live settings": form, HISTORY: history, "Diagnosis": self.diagnosis})
        history.rest(True)
        view.on_page(lambda: history.rest(view.page != HISTORY))
        form.tell = history.tell = view.tell = session.tell
        history.open_comparison = self.open_comparison
        self.view, self.result_path = view, session.free_path()

    def _show_said(self, text: str) -> None:
        self.said = text

    def _make_film(self) -> None:
        def show(done: int, frames: int) -> None:
            if self._film_cancelled.is_set():
                raise CancelledError
            self.film = [done, frames]

        path, beside, thumbnails = self.film_path.strip(), self.result_path.strip(), self.film_of == "thumbnails"
        try:
            written = self._session.film(path, thumbnails=thumbnails, rate=self.film_rate, result=beside, progress=show)
            self.said = f"written: {written}"
        except CancelledError:
            self.said = "The film was cancelled; no file was written."
        finally:
            self.film = []
