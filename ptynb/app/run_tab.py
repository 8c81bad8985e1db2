"""The tab Run of the workbench: start, the live view, live settings, history, and the result."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from ptynb.analysis.faults.diagnosis import Finding
from ptynb.app.checkpoint_fields import CheckpointFields
from ptynb.app.cluster_choice import LOCAL, RunCluster
from ptynb.app.cluster_fields import OWN_WIDTH, ClusterFields, StartRow
from ptynb.app.diagnosis_panel import DiagnosisPanel
from ptynb.app.film_panel import FilmPanel
from ptynb.app.session_state import RUN, SCAN, Desk
from ptynb.data.engine_records import Checkpoint
from ptynb.exceptions import ClusterError, InvalidValueError, PtynbError, ReconstructionError, ScanError
from ptynb.io.new_files import free_name
from ptynb.report.report_file import report
from ptynb.session.reconstruction import Reconstruction
from ptynb.session.resume import attach
from ptynb.settings.cluster_options import SlurmCluster
from ptynb.settings.recipe import Recipe, Stage, StagePlan
from ptynb.widgets import elements
from ptynb.widgets.actions import Actions
from ptynb.widgets.form import SettingsForm
from ptynb.widgets.history import History
from ptynb.widgets.layout.drawer import Drawer
from ptynb.widgets.live import Live
from ptynb.widgets.shared_widgets import free, marking, put

STAGES_EXAMPLE = """\
- epochs: 50
  pattern_size: 64
- epochs: 150
  settings: {probe: {modes: 3}}"""

CHECKPOINTS = "Checkpoints"
CHECKPOINTING = "Checkpointing"
CLUSTER = "Cluster"
"""The page with the checkpoints of a run, and those with what a new run is given."""


class RunTab(elements.VBox):
    """A bar with what a new run needs, behind its buttons what is needed now and then; below it the reconstruction."""

    def __init__(self, desk: Desk, actions: Actions) -> None:
        self._desk, self._actions = desk, actions
        self.open_comparison: Callable[[Sequence[Checkpoint], bool], None] | None = None
        """Shows checkpoints side by side; see `History`."""
        self.next_run: Callable[[Finding], None] = lambda finding: None
        """Takes the remedy of a finding into the scan and settings of the next run."""
        self._cluster, self._clusters = RunCluster(desk), ClusterFields(actions, desk.cluster)
        self._starting = StartRow()
        self._epochs = elements.BoundedIntText(
            100, min=1, max=1_000_000, description="Epochs", style=OWN_WIDTH, layout=elements.Layout(width="150px")
        )
        self._proposed = ""
        self._stages = elements.Textarea(
            description="Stages",
            placeholder=STAGES_EXAMPLE,
            tooltip="Stages of the run, as in a run file; empty: so many epochs with the settings",
            layout=elements.Layout(width="620px", max_width="100%", height="110px"),
        )
        self._path = elements.Text(
            description="Result file",
            placeholder="scan.result.h5",
            layout=elements.Layout(width="380px", max_width="100%"),
        )
        self._saved = elements.HTML()
        first = (
            *self._clusters.beside, self._epochs,
            self._button(
                "New run", "play", self._begin, "Starts a reconstruction of the scan with the settings", after=(SCAN,)
            ),
        )  # fmt: skip
        cluster = [
            self._button(
                "Attach", "plug", lambda: self.attach(self._clusters.existing),
                "Attaches to a run that continues without its notebook; of several, to that of the existing cluster",
            ),
            self._button("Stop engines", "power", self._stop_engines, "Stops the cluster that New run started"),
        ]  # fmt: skip
        result = [
            self._path,
            self._button("Save result", "save", self._save, "Writes the result to this file (HDF5)"),
            self._button("Report", "file-text", self._report, "Writes a report (HTML) next to the result file"),
            self._button("Add to comparison", "copy", self._keep, "Adds the current result to the tab Compare"),
            self._saved,
        ]
        wrapped = elements.Layout(flex_flow="row wrap", overflow="visible", align_items="center")
        self._run = elements.VBox(layout=free())
        self._film = FilmPanel(desk, self._film_path)
        self._checkpoints = CheckpointFields(actions)
        self._bar = Drawer(
            {
                "Stages": self._stages,
                CHECKPOINTING: self._checkpoints,
                CLUSTER: elements.VBox([self._clusters, elements.HBox(cluster, layout=wrapped)], layout=free()),
                "Result": elements.VBox([elements.HBox(result, layout=wrapped), self._film], layout=free()),
            },
            "More about the run",
            icons={"Stages": "list-checks", CHECKPOINTING: "archive", CLUSTER: "server", "Result": "save"},
            beside=first,
        )
        self._bar.on_change(self._clusters.look)
        super().__init__([self._bar, self._starting, self._run], layout=free())
        self.add_class("ptynb-run")

    def _button(
        self, text: str, icon: str, action: Callable[[], None], tooltip: str, after: Collection[str] = ()
    ) -> elements.Button:
        layout = elements.Layout(width="auto")
        button = elements.Button(description=text, icon=icon, tooltip=tooltip, layout=layout)
        button.on_click(lambda _: self._actions.put(action, lane=RUN, after=after))
        return button

    def propose(self, stages: tuple[Stage, ...]) -> None:
        """Enter stages, which may be none, in the place of those that were entered so before, or of an empty field."""
        if stages or self._stages.value == self._proposed:
            self._proposed = self._stages.value = StagePlan(stages).to_yaml()

    def _begin(self) -> None:
        desk, scan = self._desk, self._desk.scan  # another one may be loaded while engines start
        if scan is None:
            raise ScanError("There is no scan; load one in the tab Scan first.", code="workbench.no-scan")
        before = desk.recon
        if before is not None and _is_active(before):
            raise InvalidValueError(
                f"A run uses the engines, at epoch {before.epoch}; press Stop before starting another one.",
                code="workbench.run-active",
            )
        recipe = Recipe.from_yaml(f"stages:\n{self._stages.value}")  # before anything is closed
        recipe = Recipe(settings=desk.settings, stages=recipe.stages)
        try:
            checkpointing, argument = self._checkpoints.checkpointing(), self._checkpoints.argument
        except PtynbError:  # shown at its field
            self._bar.shown = CHECKPOINTING
            return
        if not self._have_engines():
            return
        if before is not None:
            before.close()
        self._clear()
        self._starting.say("starting the run …")
        try:
            with marking(self._checkpoints):
                recon = Reconstruction(scan, recipe, desk.cluster, checkpointing=checkpointing)
            chosen = "settings"
            if recipe.stages:
                chosen = "recipe"
                desk.tell(f"recipe = pt.Recipe(settings=settings, stages={[*StagePlan(recipe.stages).plain]!r})")
            given = [chosen, *(["cluster"] if desk.cluster is not None else []), *([argument] if argument else [])]
            desk.tell(f"recon = pt.Reconstruction(scan, {', '.join(given)})")
            self.show(recon)
        finally:
            self._starting.say("")
        self._path.value = _free_path(recon.scan.name)
        epochs = None if recipe.stages else self._epochs.value
        recon.start(epochs)
        desk.tell(f"recon.start({'' if epochs is None else f'epochs={epochs}'})")

    def attach(self, name: str | None = None) -> None:
        """Attach to a run that continues without its notebook; name: as for `pt.attach`."""
        desk = self._desk
        recon = attach(name)
        desk.tell(f"recon = pt.attach({'' if name is None else repr(name)})")
        self._clear()
        if desk.scan is None:
            desk.scan = recon.scan
        assert recon.cluster is not None
        self._cluster.adopt(recon.cluster)
        self._clusters.show_existing(recon.cluster.name)
        self.show(recon)

    def _have_engines(self) -> bool:
        """Start or find the chosen cluster; return False if an error is shown at its field, or the user cancelled."""
        starting, ended = self._starting, ""
        try:
            chosen = self._clusters.chosen()
            starting.begin(may_be_cancelled=isinstance(chosen, SlurmCluster))
            self._cluster.use(chosen, starting.say, starting.cancelled)
        except PtynbError as error:
            if error.code == "cluster.start-cancelled":
                ended = "The start was cancelled, and no job is left."
                return False
            if not self._clusters.complain(error):
                raise
            self._bar.shown = CLUSTER
            return False
        finally:
            starting.end(ended)
        return True

    def _stop_engines(self) -> None:
        self._cluster.stop()
        if self._clusters.existing is not None:  # it is gone
            self._clusters.show_launcher(LOCAL)

    def show(self, recon: Reconstruction) -> None:
        """Set the current reconstruction and show its views."""
        self._desk.recon = recon
        form = SettingsForm(recon.settings, live=True, recon=recon)
        history = History(recon)
        diagnosis = DiagnosisPanel(recon, self._actions, self.next_run, self._desk.tell)
        view = Live(recon, pages={"Live settings": form, CHECKPOINTS: history, "Diagnosis": diagnosis})
        history.rest(True)
        view.on_page(lambda: history.rest(view.page != CHECKPOINTS))
        for widget in (form, history, view):
            widget.tell = self._desk.tell
        history.open_comparison = self.open_comparison
        self._run.children = [view]

    def _clear(self) -> None:
        shown, self._run.children = self._run.children, []
        for one in shown:
            one.close()

    def _current(self) -> Reconstruction:
        if self._desk.recon is None:
            raise InvalidValueError(
                "There is no reconstruction; press New run first.", code="workbench.no-reconstruction"
            )
        return self._desk.recon

    def _save(self) -> None:
        put(self._saved, "")
        recon = self._current()
        path = Path(self._path.value.strip() or _free_path(recon.scan.name))
        self._say_wait(recon)
        written = recon.save(path)
        self._desk.tell(f"recon.save({str(path)!r})")
        self._say(f"saved: {written}")

    def _report(self) -> None:
        put(self._saved, "")
        recon = self._current()
        beside = Path(self._path.value.strip() or _free_path(recon.scan.name))
        path = beside.with_name(
            free_name(beside.name.removesuffix(".h5").removesuffix(".result"), ".html", beside.parent)
        )
        self._say_wait(recon)
        written = report(recon, path)
        self._desk.tell(f"pt.report(recon, {str(path)!r})")
        self._say(f"written: {written}")

    def _film_path(self) -> str:
        beside = Path(self._path.value.strip() or "scan.result.h5")
        stem = beside.name.removesuffix(".h5").removesuffix(".result")
        return str(beside.with_name(free_name(stem, ".gif", beside.parent)))

    def _keep(self) -> None:
        recon = self._current()
        self._say_wait(recon)
        name = self._desk.add_result(f"epoch {recon.epoch}", recon.result, "recon.result")
        self._say(f"added to comparison: {name}")

    def _say_wait(self, recon: Reconstruction) -> None:
        """Add `recon.wait()` to the lines of Python if the user waited for the end of the run."""
        if recon.state == "ready" and self._desk.lines[-1].startswith("recon.start("):
            self._desk.tell("recon.wait()")

    def _say(self, text: str) -> None:
        put(self._saved, f'<span role="status">{html.escape(text)}</span>')


def _is_active(recon: Reconstruction) -> bool:
    try:
        return recon.state in ("running", "paused", "recovering")
    except (ReconstructionError, ClusterError):  # its engines have ended
        return False


def _free_path(name: str) -> str:
    """Return a file name for a result that does not exist."""
    return free_name(re.sub(r"[^\w.-]+", "_", name) or "scan", ".result.h5")
