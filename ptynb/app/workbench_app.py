"""The workbench: scan, settings, run, comparison and tuning in the tabs of one view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import traitlets

from ptynb.analysis.faults.diagnosis import Finding
from ptynb.app.compare_tab import CompareTab
from ptynb.app.resume_offer import look_for_runs
from ptynb.app.run_tab import RunTab
from ptynb.app.scan_tab import ScanTab
from ptynb.app.session_state import COMPARISON, LANES, RUN, Session
from ptynb.app.settings_form import settings_form
from ptynb.app.tuner_app import tuner
from ptynb.cluster.cluster import Cluster
from ptynb.data.engine_records import Checkpoint
from ptynb.data.scan import Scan
from ptynb.session.reconstruction import Reconstruction
from ptynb.settings import Settings
from ptynb.text import counted
from ptynb.widgets.actions import Actions
from ptynb.widgets.element_tree import Element, command, shown
from ptynb.widgets.form import SettingsForm
from ptynb.widgets.form.settings_sources import Source

TABS = ("Scan", "Settings", "Run", "Compare", "Tune", "Python")


class Workbench(Element):
    """Scan, settings, run, comparison, tuning, and the equivalent lines of Python; see `workbench`.

    session: the state of all tabs, and what can be done with it. actions: execute what is clicked.
    """

    component = "workbench"
    facts = shown(traitlets.Dict({"scan": "", "about": []}))
    """Name of the scan, and what is known of it and of the cluster."""
    message = shown(traitlets.Unicode(""))
    offers: traitlets.Dict[str, str] = shown(traitlets.Dict({}))
    """Descriptions of the runs that continue without a notebook, by name."""
    tab = traitlets.Enum(TABS, "Scan").tag(sync=True)
    views: traitlets.Dict[str, Any] = shown(traitlets.Dict({}))
    """What the tabs contain; None for what pages do not have yet: they get that of the tab in front first."""
    lines: traitlets.List[str] = shown(traitlets.List([]))

    def __init__(
        self,
        scan: Scan | None = None,
        settings: Settings | None = None,
        cluster: Cluster | None = None,
        recon: Reconstruction | None = None,
        by_itself: bool = False,
    ) -> None:
        """by_itself: whether to attach without a click to a run of the scan that continues without a notebook."""
        super().__init__()
        if recon is not None:
            scan, settings, cluster = scan or recon.scan, settings or recon.settings, cluster or recon.cluster
        self.session = Session(scan, settings, cluster)
        self.actions = Actions("ptynb workbench", self._complain, lanes=LANES)
        self._by_itself = by_itself
        self.scan_tab = ScanTab(self.session, self.actions)
        self.run_tab = RunTab(self.session, self.actions)
        self.run_tab.open_comparison = self._compare_checkpoints
        self.compare_tab = CompareTab(self.session, self.actions)
        self.form = settings_form(scan, self.session.settings, cluster)
        self.form.tell, self.form.use_scan = self.session.tell, self._use_scan
        self.form.use_stages = self.run_tab.propose
        self.tuning = tuner(scan, self.session.settings, cluster, use=self.use_settings, use_scan=self._use_scan)
        self.tuning.tell, self.tuning.form.tell = self.session.tell, None  # its form is updated from the other one
        for form in (self.form.form, self.tuning.form):
            self._listen(form)
        self._all: dict[str, Element] = dict(
            zip(TABS, (self.scan_tab, self.form, self.run_tab, self.compare_tab, self.tuning), strict=False)
        )
        self.session.on_settings = self._take_settings_of_remedy
        self.session.on_change(self._follow)
        if recon is not None:
            self.session.tell("# recon: from the line that opened this workbench")
            self.session.recon = recon
            self.tab = "Run"
        self._follow("cluster")
        self._follow("lines")
        self._send_tab()
        if recon is None and cluster is None:
            look_for_runs(self, scan, Workbench._found, Workbench._complain, wait=by_itself)

    @property
    def scan(self) -> Scan | None:
        """The scan, with all changes."""
        return self.session.scan

    @property
    def settings(self) -> Settings:
        """The settings of the next reconstruction."""
        return self.session.settings

    @property
    def cluster(self) -> Cluster | None:
        """The cluster of the next reconstruction."""
        return self.session.cluster

    @property
    def recon(self) -> Reconstruction | None:
        """The current reconstruction."""
        return self.session.recon

    @property
    def code(self) -> str:
        """The session so far as lines of Python."""
        return "\n".join(self.session.lines)

    @command
    def attach(self, name: str | None = None) -> None:
        """Attach to a run that continues without its notebook, with its settings; name: as for `pt.attach`."""

        def attach() -> None:
            self.session.attach(name)
            assert self.recon is not None
            self.use_settings(self.recon.settings)
            self.tab = "Run"

        self.actions.put(attach, lane=RUN)

    @command
    def show_all(self) -> None:
        """Send what the other tabs contain: a page has drawn the one in front."""
        self.views = {**self._all}

    def use_settings(self, settings: Settings, source: SettingsForm | None = None) -> None:
        """Show settings in all forms; source: the form in which they were edited."""
        if settings == self.settings or (source is not None and source.settings != settings):
            return  # already shown, or edited again: the newer settings will follow
        self.session.settings = settings
        for form in (self.form.form, self.tuning.form):
            if form is not source and form.settings != settings:
                form.settings = settings

    def close(self) -> None:
        """Close all views and end their threads; a run and its cluster continue, and so does the receiver of a scan.

        A receiver whose scan has not begun ends.
        """
        self.actions.close()
        for view in self._all.values():
            view.close()
        super().close()

    @traitlets.observe("tab")
    def _send_tab(self, _: Any = None) -> None:
        self.views = {title: view if title == self.tab else self.views.get(title) for title, view in self._all.items()}

    def _found(self, runs: dict[str, str]) -> None:
        if self.recon is None and self._by_itself and len(runs) == 1:
            self.attach(*runs)
        elif self.recon is None:
            self.offers = runs

    def _compare_checkpoints(self, checkpoints: Sequence[Checkpoint], with_now: bool) -> None:
        def show() -> None:
            self.compare_tab.show_checkpoints(checkpoints, with_now)
            self.tab = "Compare"

        self.actions.put(show, lane=COMPARISON, after=(RUN,))

    def _listen(self, form: SettingsForm) -> None:
        form.on_change(lambda settings: self.use_settings(settings, form))

    def _use_scan(self, scan: Scan) -> None:
        self.session.scan = scan

    def _take_settings_of_remedy(self, settings: Settings, line: str, finding: Finding) -> None:
        """Show settings in the form, with what they are for; the form tells the line."""
        reasons, title = dict.fromkeys(finding.changes, finding.explanation), f"remedy of {finding.name}"
        self.form.form.take(Source(title, title, settings, line, "from a diagnosis of the run", reasons))

    def _follow(self, what: str) -> None:
        session = self.session
        if what == "lines":
            self.lines = [*session.lines]
        elif what == "recon":
            self.offers = {}
        elif what == "scan":
            self.form.scan = self.tuning.scan = session.scan
        elif what == "cluster":
            self.form.cluster = self.tuning.cluster = session.cluster
        if what in ("scan", "cluster"):
            self.facts = _facts(session.scan, session.cluster)

    def _complain(self, error: Exception | None) -> None:
        self.message = "" if error is None else str(error)


def _facts(scan: Scan | None, cluster: Cluster | None) -> dict[str, Any]:
    about = []
    if scan is not None:
        height, width = scan.pattern_shape
        about.append(f"{len(scan):,} patterns of {height} × {width}")
    if cluster is not None:
        about.append(f"{counted(len(cluster), 'engine')} on {cluster.plan.engines[0].kind}")
    return {"scan": "" if scan is None else scan.name, "about": about}


def workbench(
    scan: Scan | None = None,
    settings: Settings | None = None,
    cluster: Cluster | None = None,
    recon: Reconstruction | None = None,
) -> Workbench:
    """Return the workbench: scan, settings, run, comparison and tuning in one view.

    It is displayed if it is the last expression of a notebook cell. Without `recon` and `cluster` it offers to attach
    to a run of the scan that continues without a notebook.

    Parameters
    ----------
    scan : Scan, optional
        The scan; None: it is loaded in the first tab.
    settings : Settings, optional
        The settings to begin with.
    cluster : Cluster, optional
        The cluster that reconstructs; None: the tab Run starts one.
    recon : Reconstruction, optional
        A reconstruction to show, such as `pt.attach()` after a restart of the kernel; provides scan, settings and
        cluster if they are None.

    Returns
    -------
    Workbench
        The view. Its `scan`, `settings`, `cluster` and `recon` can be used in other cells; `code` are the
        equivalent lines of Python.
    """
    return Workbench(scan, settings, cluster, recon)
