"""The workbench: scan, settings, run, comparison and tuning in the tabs of one widget."""

from __future__ import annotations

import html
from collections.abc import Sequence

from ptynb.analysis.faults.diagnosis import Finding
from ptynb.app.compare_tab import CompareTab
from ptynb.app.resume_offer import Offer
from ptynb.app.run_tab import RunTab
from ptynb.app.scan_tab import ScanTab
from ptynb.app.session_state import COMPARISON, LANES, RUN, Desk
from ptynb.app.settings_form import settings_form
from ptynb.app.tuner_app import tuner
from ptynb.cluster.cluster import Cluster
from ptynb.data.engine_records import Checkpoint
from ptynb.data.scan import Scan
from ptynb.io.prepared_scan import prepare
from ptynb.session.reconstruction import Reconstruction
from ptynb.settings import Settings
from ptynb.text import counted
from ptynb.widgets import elements
from ptynb.widgets.actions import Actions
from ptynb.widgets.code_view import CodeView
from ptynb.widgets.form import SettingsForm
from ptynb.widgets.form.settings_sources import Source
from ptynb.widgets.layout.own_tab import OwnTab
from ptynb.widgets.shared_widgets import complaint, free, put

TABS = ("Scan", "Settings", "Run", "Compare", "Tune", "Python")


class Workbench(elements.VBox):
    """Scan, settings, run, comparison, tuning, and the equivalent lines of Python; see `workbench`."""

    def __init__(
        self,
        scan: Scan | None = None,
        settings: Settings | None = None,
        cluster: Cluster | None = None,
        recon: Reconstruction | None = None,
        by_itself: bool = False,
    ) -> None:
        """by_itself: whether to attach without a click to a run of the scan that continues without a notebook."""
        if recon is not None:
            scan, settings, cluster = scan or recon.scan, settings or recon.settings, cluster or recon.cluster
        self._desk = Desk(scan, settings, cluster)
        self._actions = Actions("ptynb workbench", self._complain, lanes=LANES)
        self._facts, self._message = elements.HTML(), elements.HTML()
        self._offer = Offer(self._actions, self.come_back)
        self._code = CodeView(self._desk.lines)
        self._scan_tab = ScanTab(self._desk, self._actions)
        self._run_tab = RunTab(self._desk, self._actions)
        self._compare_tab = CompareTab(self._desk, self._actions)
        self._run_tab.open_comparison = self._compare_checkpoints
        self._run_tab.next_run = self._take_remedy
        self._form = settings_form(scan, self._desk.settings, cluster)
        self._form.tell, self._form.use_scan = self._desk.tell, self._take_scan
        self._form.use_stages = self._run_tab.propose
        self._tuning = tuner(scan, self._desk.settings, cluster, use=self._take_settings, use_scan=self._take_scan)
        self._tuning.tell, self._tuning.form.tell = self._desk.tell, None  # its form is updated from the other one
        for form in (self._form.form, self._tuning.form):
            self._listen(form)
        self._tabs = elements.Tab(
            [
                self._scan_tab, self._form, self._run_tab, self._compare_tab, self._tuning,
                elements.VBox([self._code], layout=free()),
            ],
            layout=free(width="auto"),
        )  # fmt: skip
        self._tabs.titles = TABS
        tab = OwnTab(title="Workbench")
        head = elements.HBox([self._facts, tab])
        head.add_class("ptynb-workbench-head")
        pages = elements.VBox([head, self._tabs], layout=free())
        pages.add_class("ptynb-workbench-pages")
        super().__init__([self._offer, self._message, pages], layout=free())
        self.add_class("ptynb-workbench")
        self._desk.on_change(self._follow)
        self._show_facts()
        if recon is not None:
            self._desk.tell("# recon: from the line that opened this workbench")
            self._run_tab.show(recon)
            self._tabs.selected_index = TABS.index("Run")
        elif cluster is None:
            self._offer.look(scan, by_itself)

    @property
    def scan(self) -> Scan | None:
        """The scan, with all changes."""
        return self._desk.scan

    @property
    def settings(self) -> Settings:
        """The settings of the next reconstruction."""
        return self._desk.settings

    @property
    def cluster(self) -> Cluster | None:
        """The cluster of the next reconstruction."""
        return self._desk.cluster

    @property
    def recon(self) -> Reconstruction | None:
        """The current reconstruction."""
        return self._desk.recon

    @property
    def code(self) -> str:
        """The session so far as lines of Python."""
        return self._code.text

    def come_back(self, name: str | None = None) -> None:
        """Attach to a run that continues without its notebook, with its settings; name: as for `pt.attach`."""
        self._run_tab.attach(name)
        assert self.recon is not None
        self._take_settings(self.recon.settings)
        self._tabs.selected_index = TABS.index("Run")

    def close(self) -> None:
        """Close all views and end their threads; a run and its cluster continue, and so does the receiver of a scan.

        A receiver whose scan has not begun ends.
        """
        self._actions.close()
        super().close()

    def _compare_checkpoints(self, checkpoints: Sequence[Checkpoint], with_now: bool) -> None:
        def show() -> None:
            self._compare_tab.show_checkpoints(checkpoints, with_now)
            self._tabs.selected_index = TABS.index("Compare")

        self._actions.put(show, lane=COMPARISON, after=(RUN,))

    def _listen(self, form: SettingsForm) -> None:
        form.on_change(lambda settings: self._take_settings(settings, form))

    def _take_settings(self, settings: Settings, source: SettingsForm | None = None) -> None:
        """Show settings in all forms; source: the form in which they were edited."""
        if settings == self._desk.settings or (source is not None and source.settings != settings):
            return  # already shown, or edited again: the newer settings will follow
        self._desk.settings = settings
        for form in (self._form.form, self._tuning.form):
            if form is not source and form.settings != settings:
                form.settings = settings

    def _take_scan(self, scan: Scan) -> None:
        """Make the scan of a trial that of the workbench."""
        self._scan_tab.show(scan)
        self._desk.scan = scan

    def _take_remedy(self, finding: Finding) -> None:
        """Take the remedy of a finding of the current reconstruction into the scan and settings of the next one."""
        assert self.recon is not None
        source = f"found[{finding.name!r}]"
        if finding.prepare:
            self._take_scan(prepare(self.recon.scan, finding.prepare))
            self._desk.tell(f"scan = pt.prepare(recon.scan, {source}.prepare)")
        if finding.changes:
            settings = self.settings.with_values(finding.changes)
            reasons = dict.fromkeys(finding.changes, finding.explanation)
            line = f"settings.with_values({source}.changes)"
            title = f"remedy of {finding.name}"
            self._form.form.take(Source(title, title, settings, line, "from a diagnosis of the run", reasons))

    def _follow(self, what: str) -> None:
        if what == "lines":
            self._code.lines = [*self._desk.lines]
        elif what == "recon":
            self._offer.end()
        elif what == "cluster":
            self._form.cluster = self._tuning.cluster = self._desk.cluster
        elif what == "scan":
            self._form.scan = self._tuning.scan = self._desk.scan
        if what in ("scan", "cluster"):
            self._show_facts()

    def _show_facts(self) -> None:
        scan, cluster = self._desk.scan, self._desk.cluster
        parts = ["no scan"]
        if scan is not None:
            height, width = scan.pattern_shape
            parts = [scan.name, f"{len(scan):,} patterns of {height} × {width}"]
        if cluster is not None:
            parts.append(f"{counted(len(cluster), 'engine')} on {cluster.plan.engines[0].kind}")
        first, *others = map(html.escape, parts)
        shown = " &nbsp;·&nbsp; ".join([f"<b>{first}</b>" if scan is not None else first, *others])
        whole = " · ".join([first, *others])  # of which a narrow page shows the beginning
        put(self._facts, f'<div class="ptynb-workbench-facts" title="{whole}">{shown}</div>')

    def _complain(self, error: Exception | None) -> None:
        put(self._message, complaint(error))


def workbench(
    scan: Scan | None = None,
    settings: Settings | None = None,
    cluster: Cluster | None = None,
    recon: Reconstruction | None = None,
) -> Workbench:
    """Return the workbench: scan, settings, run, comparison and tuning in one widget.

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
        The widget. Its `scan`, `settings`, `cluster` and `recon` can be used in other cells; `code` are the
        equivalent lines of Python.
    """
    return Workbench(scan, settings, cluster, recon)
