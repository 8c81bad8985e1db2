"""The session of the workbench, without widgets: what it holds, what can be done with it, and the lines of Python."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import traitlets

from ptynb.analysis.faults.diagnosis import Finding
from ptynb.app.cluster_choice import Chosen, Existing, checked_cluster, lines_of, start_text
from ptynb.cluster.cluster import Cluster
from ptynb.cluster.cluster_start import start_cluster
from ptynb.data.arrivals import Acquisition
from ptynb.data.engine_records import Result
from ptynb.data.scan import Scan, check_scan
from ptynb.exceptions import ClusterError, InvalidValueError, ReconstructionError, ScanError
from ptynb.io.checkpoint_file import states
from ptynb.io.load import load
from ptynb.io.new_files import free_name
from ptynb.io.prepared_scan import prepare
from ptynb.report.film.film import film
from ptynb.report.report_file import report
from ptynb.session.reconstruction import Reconstruction
from ptynb.session.resume import attach
from ptynb.settings import Settings
from ptynb.settings.checkpointing import Checkpointing
from ptynb.settings.cluster_options import NoCluster
from ptynb.settings.recipe import Recipe, Stage, StagePlan
from ptynb.settings.schema import as_python

LANES = SCAN, LISTENING, RUN, COMPARISON, FILM, DIAGNOSIS, FIELDS = (
    "scan", "listening", "run", "comparison", "film", "diagnosis", "fields",
)  # fmt: skip
"""Lanes of the actions of the workbench, which do not wait for each other: one for each object that they change, those
that take long without changing one, and the check of fields."""
FIRST_LINE = "import ptynb as pt"
IMPORTS = {"Path(": "from pathlib import Path", "np.": "import numpy as np"}
"""Imports that lines of Python may need."""
NO_CLUSTER, CHECKPOINTING = NoCluster(), Checkpointing()
FILM_RATE = 4.0
"""Frames of a film per second, by default."""


class Session(traitlets.HasTraits):
    """Scan, settings, cluster, reconstruction and results of a workbench, and what can be done with them.

    Each command does what its line of Python does, and adds the line; those that take long return when they are done.
    scan, settings, cluster: of the next run; no cluster: the process of the notebook. recon: the current run. results:
    for the comparison, by name. lines: the session as Python. chosen_cluster: what the cluster was chosen as; None for
    that with which the session began, which it neither starts nor stops. on_settings: called with settings for the next
    run, their Python and the finding that they are a remedy of; by default they are used.
    """

    scan: Scan | None = traitlets.Any(None)  # type: ignore[assignment]
    settings: Settings = traitlets.Any()  # type: ignore[assignment]
    cluster: Cluster | None = traitlets.Any(None)  # type: ignore[assignment]
    recon: Reconstruction | None = traitlets.Any(None)  # type: ignore[assignment]
    results: traitlets.Dict[str, Result] = traitlets.Dict({})
    lines: traitlets.List[str] = traitlets.List([])
    chosen_cluster: Chosen | None = None
    _own: Cluster | None = None
    _waited_epoch = 0

    def __init__(
        self, scan: Scan | None = None, settings: Settings | None = None, cluster: Cluster | None = None
    ) -> None:
        if scan is not None:
            check_scan(scan)
        super().__init__(scan=scan, settings=settings or Settings(), cluster=cluster)
        self._given = cluster is not None
        self.on_settings: Callable[[Settings, str, Finding], None] = self._use_settings
        self._lock = threading.RLock()  # actions are carried out in several threads
        given = [] if scan is None else [f"# scan: {scan.name}, from the line that opened this workbench"]
        given += [] if cluster is None else ["# cluster: likewise"]
        self.lines = [FIRST_LINE, *given, f"settings = {as_python(self.settings)}"]

    def on_change(self, callback: Callable[[str], None]) -> None:
        """Register a function that is called with the name of what has changed, in the thread of the change."""
        self.observe(lambda change: callback(change["name"]))

    def tell(self, line: str) -> None:
        """Add a line of Python."""
        with self._lock:
            needed = [imported for word, imported in IMPORTS.items() if word in line and imported not in self.lines]
            self.lines = [*needed, *self.lines, line]

    # Scan and settings

    def load(self, path: str, **options: Any) -> None:
        """Load the scan in a file."""
        scan = load(path, **options)
        given = ", ".join([repr(path), *(f"{name}={value!r}" for name, value in options.items())])
        self.tell(f"scan = pt.load({given})")
        self.scan = scan

    def stop_listening(self) -> None:
        """End the reception of the scan, if it is being received."""
        if self.scan is not None and isinstance(self.scan.acquisition, Acquisition):
            self.scan.stop_listening()
            self.tell("scan.stop_listening()")

    def _use_settings(self, settings: Settings, line: str, finding: Finding) -> None:
        self.tell(f"settings = {line}")
        self.settings = settings

    # Cluster

    def use_cluster(
        self, chosen: Chosen, report: Callable[[str], None] = lambda text: None, cancel: threading.Event | None = None
    ) -> None:
        """Start or join what was chosen, unless it is there, and end what the session had started before.

        report: called with what a start waits for; cancel: ends that wait. Raises ClusterError, for what can be known
        beforehand before anything is ended.
        """
        if self._given:
            if self.cluster is not None and not self.cluster.running:
                raise InvalidValueError(
                    "The cluster of this workbench was stopped; call its start() again.",
                    code="workbench.cluster-stopped",
                )
            return
        if self.cluster is not None and self.cluster.running and chosen == self.chosen_cluster:
            return
        lines = lines_of(chosen)
        cluster = checked_cluster(chosen)
        if self._own is not None and self._own is not cluster:
            self.stop_engines()
        self.chosen_cluster = None
        if isinstance(chosen, NoCluster):
            self.cluster = None
            return
        if cluster is None:
            assert not isinstance(chosen, Existing)
            report(start_text(chosen))
            cluster = self._own = start_cluster(chosen, report, cancel)
        elif len(lines) > 1:  # nobody else has it
            self._own = cluster
        self.chosen_cluster = chosen
        self.cluster = cluster
        for line in lines:
            self.tell(line)

    def stop_engines(self) -> None:
        """End the run, and the cluster that the session has started."""
        if self._own is None:
            raise InvalidValueError(
                "The workbench has not started engines; stop a cluster of your own with cluster.stop().",
                code="workbench.no-cluster",
            )
        try:
            if self.recon is not None:
                self.recon.close()
        finally:
            self._own.stop()
            self._own = self.chosen_cluster = None
            self.cluster = None
            self.tell("cluster.stop()")

    # Run

    def start_run(
        self,
        epochs: int = 100,
        *,
        stages: Sequence[Stage] = (),
        checkpointing: Checkpointing | None = CHECKPOINTING,
        cluster: Chosen = NO_CLUSTER,
        report: Callable[[str], None] = lambda text: None,
        cancel: threading.Event | None = None,
    ) -> Reconstruction:
        """Reconstruct the scan on a cluster: the stages, or so many epochs without any; the run before ends.

        What can be refused is refused before anything is ended. report, cancel: as for `use_cluster`.
        """
        scan, recipe = (
            self.scan,
            Recipe(settings=self.settings, stages=tuple(stages)),
        )  # of now: a start may take long
        if scan is None:
            raise ScanError("There is no scan; load one in the tab Scan first.", code="workbench.no-scan")
        before = self.recon
        if before is not None and _is_active(before):
            raise InvalidValueError(
                f"A run uses the engines, at epoch {before.epoch}; press Stop before starting another one.",
                code="workbench.run-active",
            )
        check_folder(checkpointing)
        self.use_cluster(cluster, report, cancel)
        if before is not None:
            before.close()
            self.recon = None
        report("starting the run …")
        recon = Reconstruction(scan, recipe, self.cluster, checkpointing=checkpointing)
        if recipe.stages:
            self.tell(f"recipe = pt.Recipe(settings=settings, stages={[*StagePlan(recipe.stages).plain]!r})")
        given = ["scan", "recipe" if recipe.stages else "settings", *(["cluster"] if self.cluster is not None else [])]
        if checkpointing != CHECKPOINTING:
            given.append(python_of_checkpointing(checkpointing))
        self.tell(f"recon = pt.Reconstruction({', '.join(given)})")
        self.recon = recon
        recon.start(None if recipe.stages else epochs)
        self.tell(f"recon.start({'' if recipe.stages else f'epochs={epochs}'})")
        return recon

    @traitlets.observe("recon")
    def _begin_lines(self, _: Any) -> None:
        self._waited_epoch = 0 if self.recon is None else self.recon.epoch

    def attach(self, name: str | None = None) -> None:
        """Attach to a run that continues without its notebook; name: as for `pt.attach`."""
        recon = attach(name)
        self.tell(f"recon = pt.attach({'' if name is None else repr(name)})")
        assert recon.cluster is not None
        self._own, self._given = recon.cluster, False
        self.chosen_cluster = Existing(recon.cluster.name)
        if self.scan is None:
            self.scan = recon.scan
        self.cluster, self.recon = recon.cluster, recon

    def take_remedy(self, finding: Finding) -> str:
        """Apply the remedy of a finding of the current reconstruction; return what follows from it."""
        recon, source = self._current(), f"found[{finding.name!r}]"
        if finding.epochs:
            recon.start(finding.epochs)
            self.tell(f"recon.start({source}.epochs)")
            return f"The run goes on for {finding.epochs} epochs; diagnose again at its end."
        if not finding.restart:
            recon.reconfigure(recon.settings.with_values(finding.changes))
            self.tell(f"recon.reconfigure(recon.settings.with_values({source}.changes))")
            return "The run has the remedy; press Start to continue if it has ended, and diagnose again at its end."
        if finding.prepare:
            prepared = prepare(recon.scan, finding.prepare)
            self.tell(f"scan = pt.prepare(recon.scan, {source}.prepare)")
            self.scan = prepared
        if finding.changes:
            changed = self.settings.with_values(finding.changes)
            self.on_settings(changed, f"settings.with_values({source}.changes)", finding)
        return "The remedy is in the settings and the scan of the next run; press New run."

    # Results

    def save(self, path: str = "") -> Path:
        """Write the result; "": to a new file with the name of the scan."""
        recon = self._waited()
        path = path or self.free_path()
        written = recon.save(path)
        self.tell(f"recon.save({path!r})")
        return written

    def report(self, result: str = "") -> Path:
        """Write a report beside a file for the result."""
        recon = self._waited()
        path = self.free_path(".html", result)
        written = report(recon, path)
        self.tell(f"pt.report(recon, {path!r})")
        return written

    def film(
        self,
        path: str = "",
        *,
        thumbnails: bool = False,
        rate: float = FILM_RATE,
        result: str = "",
        progress: Callable[[int, int], None] | None = None,
    ) -> Path:
        """Write a film of checkpoints or thumbnails; path "": beside a file for the result."""
        recon = self._current()
        path = path or self.free_path(".gif", result)
        source = "recon.result" if thumbnails else "recon"
        written = film(recon.result if thumbnails else recon, path, rate=rate, progress=progress)
        self.tell(f"pt.film({source}, {path!r}{'' if rate == FILM_RATE else f', rate={rate:g}'})")
        return written

    def free_path(self, ending: str = ".result.h5", beside: str = "") -> str:
        """Return the path of a file that does not exist: beside a result, or with the name of the scan."""
        scan = self.recon.scan if self.recon is not None else self.scan
        named = re.sub(r"[^\w.-]+", "_", scan.name) if scan is not None else ""
        path = Path(beside or named or "scan")
        stem = path.name.removesuffix(".h5").removesuffix(".result")
        return str(path.with_name(free_name(stem, ending, path.parent)))

    def add_to_comparison(self) -> str:
        """Add the present result to the results; return its name there."""
        recon = self._waited()
        return self.add_result(f"epoch {recon.epoch}", recon.result, "recon.result")

    def add_result(self, name: str, result: Result, source: str) -> str:
        """Add a result to the comparison and return its unique name; source: the Python expression of it."""
        unique, number = name, 2
        with self._lock:
            while unique in self.results:
                unique, number = f"{name} ({number})", number + 1
            if not self.results:
                self.tell("kept = {}")
            self.tell(f"kept[{unique!r}] = {source}")
            self.results = {**self.results, unique: result}
        return unique

    def _current(self) -> Reconstruction:
        if self.recon is None:
            raise InvalidValueError(
                "There is no reconstruction; press New run first.", code="workbench.no-reconstruction"
            )
        return self.recon

    def _waited(self) -> Reconstruction:
        """Return the current reconstruction; if it has come to rest at another epoch since, the lines wait for that."""
        recon = self._current()
        if recon.state == "ready" and recon.epoch != self._waited_epoch:
            self._waited_epoch = recon.epoch
            self.tell("recon.wait()")
        return recon


def check_folder(checkpointing: Checkpointing | None) -> None:
    """Refuse a folder of checkpoints that engines would refuse."""
    if checkpointing is None or checkpointing.folder is None:
        return
    folder, problem = checkpointing.folder.expanduser(), ""
    if folder.exists() and not folder.is_dir():
        problem = f"{folder} is a file; enter a folder, which need not exist."
    elif folder.is_dir() and (found := list(states(folder))):
        problem = (
            f"{folder} already contains checkpoints of another run ({found[0].name}); enter another folder, or "
            "resume from that checkpoint."
        )
    if problem:
        raise InvalidValueError(problem, code="checkpoint.exists", fields=("folder",))


def python_of_checkpointing(checkpointing: Checkpointing | None) -> str:
    """Return the argument of `ptynb.Reconstruction` as Python."""
    if checkpointing is None:
        return "checkpointing=None"
    given = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in checkpointing
        if value != getattr(CHECKPOINTING, name)
    }
    return f"checkpointing=pt.Checkpointing({', '.join(f'{name}={value!r}' for name, value in given.items())})"


def _is_active(recon: Reconstruction) -> bool:
    try:
        return recon.state in ("running", "paused", "recovering")
    except (ReconstructionError, ClusterError):  # its engines have ended
        return False
