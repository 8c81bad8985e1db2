"""The tab Run of the workbench: what a new run is given, its start, its live view, and its result."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any

import traitlets

from ptynb.app.checkpoint_fields import CheckpointFields
from ptynb.app.cluster_choice import EXISTING, LOCAL, Existing
from ptynb.app.cluster_fields import ClusterFields
from ptynb.app.diagnosis_panel import DiagnosisPanel
from ptynb.app.session_state import FILM_RATE, RUN, SCAN, Session
from ptynb.data.engine_records import Checkpoint
from ptynb.exceptions import PtynbError
from ptynb.settings.cluster_options import SlurmCluster
from ptynb.settings.recipe import Recipe, Stage, StagePlan
from ptynb.widgets.actions import Actions
from ptynb.widgets.element_tree import Element, command
from ptynb.widgets.form import SettingsForm
from ptynb.widgets.history import History
from ptynb.widgets.live import Live
from ptynb.widgets.shared_widgets import CancelledError

STAGES, CHECKPOINTS, CLUSTER, RESULT = PAGES = "Stages", "Checkpointing", "Cluster", "Result"
"""The pages of the drawer."""
HISTORY = "Checkpoints"
"""The page of the live view with the checkpoints of the run."""


class RunTab(Element):
    """What a new run needs, its start, the live view of the current run, and what is written of it.

    page: the open page of the drawer; "": none. starting: what a start waits for; can_cancel: whether that can be
    ended. said: what the last command about the result has done. film: progress of a film (frames that are
    written, and all; empty without one), and what came of it. view: the live view.
    """

    component = "runTab"
    epochs = traitlets.Int(100, min=1, max=1_000_000).tag(sync=True)
    stages = traitlets.Unicode("").tag(sync=True)
    result_path = traitlets.Unicode("").tag(sync=True)
    film_path = traitlets.Unicode("").tag(sync=True)
    film_of = traitlets.Enum(("checkpoints", "thumbnails"), "checkpoints").tag(sync=True)
    film_rate = traitlets.Float(FILM_RATE, min=0.5, max=50.0).tag(sync=True)
    page = traitlets.Enum(("", *PAGES), "").tag(sync=True)
    starting = traitlets.Unicode("").tag(sync=True, settable=False)
    can_cancel = traitlets.Bool(False).tag(sync=True, settable=False)
    said = traitlets.Unicode("").tag(sync=True, settable=False)
    film: traitlets.Dict[str, Any] = traitlets.Dict({"progress": [], "said": "", "problem": ""}).tag(
        sync=True, settable=False
    )
    clusters: Any = traitlets.Instance(ClusterFields).tag(sync=True, settable=False)
    checkpoints: Any = traitlets.Instance(CheckpointFields).tag(sync=True, settable=False)
    view: Any = traitlets.Instance(Live, allow_none=True).tag(sync=True, settable=False)

    open_comparison: Callable[[Sequence[Checkpoint], bool], None] | None = None
    """Shows checkpoints side by side; see `History`."""
    history: History
    diagnosis: DiagnosisPanel
    """Pages of the live view."""

    def __init__(self, session: Session, actions: Actions) -> None:
        self._session, self._actions = session, actions
        self._start_cancelled, self._film_cancelled = threading.Event(), threading.Event()
        self._proposed = ""
        super().__init__(clusters=ClusterFields(actions, session.cluster), checkpoints=CheckpointFields(actions))
        self._films = Actions("ptynb film", self._complain_of_film, self._end_film)
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
        self._put(lambda: self._say(f"saved: {self._session.save(self.result_path.strip())}"))

    @command
    def report(self) -> None:
        """Write a report beside the file of the result."""
        self._put(lambda: self._say(f"written: {self._session.report(self.result_path.strip())}"))

    @command
    def add_to_comparison(self) -> None:
        """Add the present result to the tab Compare."""
        self._put(lambda: self._say(f"added to comparison: {self._session.add_to_comparison()}"))

    @command
    def make_film(self) -> None:
        """Write a film of the run, in a thread of its own: the run is not slowed."""
        if self.film["progress"]:
            return
        self._film_cancelled.clear()
        self.film = {"progress": [0, 1], "said": "", "problem": ""}
        path, beside = self.film_path.strip(), self.result_path.strip()
        thumbnails, rate, progress = self.film_of == "thumbnails", self.film_rate, self._show_film_progress

        def make() -> None:
            try:
                written = self._session.film(path, thumbnails=thumbnails, rate=rate, result=beside, progress=progress)
                said = f"written: {written}"
            except CancelledError:
                said = "The film was cancelled; no file was written."
            self.film = {**self.film, "said": said}

        self._films.put(make)

    @command
    def cancel_film(self) -> None:
        """End the film; no file is written."""
        self._film_cancelled.set()

    def settle(self, seconds: float = 30.0) -> None:
        """Wait until a film is written. Raises TimeoutError."""
        self._films.settle(seconds)

    def close(self) -> None:
        """Cancel what is waited for, and close the view of the run, which continues."""
        self._start_cancelled.set()
        self._film_cancelled.set()
        self._films.close()
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
            self.can_cancel = isinstance(cluster, SlurmCluster)
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

    def _say(self, text: str) -> None:
        self.said = text

    def _show_film_progress(self, done: int, total: int) -> None:
        if self._film_cancelled.is_set():
            raise CancelledError
        self.film = {**self.film, "progress": [done, total]}

    def _complain_of_film(self, error: Exception | None) -> None:
        self.film = {**self.film, "problem": "" if error is None else str(error)}

    def _end_film(self) -> None:
        self.film = {**self.film, "progress": []}
