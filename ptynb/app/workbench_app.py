"""The workbench: everything a reconstruction needs in one widget, a tab for each thing that is done."""

from __future__ import annotations

import html

import ipywidgets

from ptynb.app.compare_tab import CompareTab
from ptynb.app.resume_offer import Offer
from ptynb.app.run_tab import RunTab
from ptynb.app.scan_tab import ScanTab
from ptynb.app.session_state import Desk
from ptynb.app.settings_form import settings_form
from ptynb.app.tuner_app import tuner
from ptynb.cluster.cluster import Cluster
from ptynb.cluster.devices import counted
from ptynb.data.scan import Scan
from ptynb.session.reconstruction import Reconstruction
from ptynb.settings import Settings
from ptynb.widgets.actions import Actions
from ptynb.widgets.code_view import CodeView
from ptynb.widgets.elements import Whole, complaint, free, put
from ptynb.widgets.form import SettingsForm

TABS = ("Scan", "Settings", "Run", "Compare", "Tune", "Python")


class Workbench(Whole):
    """Scan, settings, run, comparison, tuning and the lines of Python that do the same; see `workbench`."""

    def __init__(
        self,
        scan: Scan | None = None,
        settings: Settings | None = None,
        cluster: Cluster | None = None,
        recon: Reconstruction | None = None,
        by_itself: bool = False,
    ) -> None:
        """by_itself: whether a run of the scan that goes on without a notebook is come back to without a click."""
        if recon is not None:
            scan, settings, cluster = scan or recon.scan, settings or recon.settings, cluster or recon.cluster
        self._desk = Desk(scan, settings, cluster)
        self._actions = Actions("ptynb workbench", self._complain)
        self._facts, self._message = ipywidgets.HTML(), ipywidgets.HTML()
        self._offer = Offer(self._actions, self.come_back)
        self._code = CodeView(self._desk.lines)
        self._scan_tab = ScanTab(self._desk, self._actions)
        self._run_tab = RunTab(self._desk, self._actions)
        self._compare_tab = CompareTab(self._desk, self._actions)
        self._form = settings_form(scan, self._desk.settings, cluster)
        self._form.tell = self._desk.tell
        self._tuning = tuner(scan, self._desk.settings, cluster, use=self._take_settings)
        self._tuning.tuner.tell = self._desk.tell  # its form follows the other one, which tells
        for form in (self._form.form, self._tuning.form):
            self._listen(form)
        self._tabs = ipywidgets.Tab(
            [
                self._scan_tab, self._form, self._run_tab, self._compare_tab, self._tuning,
                ipywidgets.VBox([self._code], layout=free()),
            ],
            layout=free(width="auto"),
        )  # fmt: skip
        self._tabs.titles = TABS
        super().__init__([self._facts, self._offer, self._message, self._tabs], layout=free())
        self.add_class("ptynb-workbench")
        self._desk.on_change(self._follow)
        self._tell_facts()
        if recon is not None:
            self._desk.tell("# recon: from the line that opened this workbench")
            self._run_tab.show(recon)
            self._tabs.selected_index = TABS.index("Run")
        elif cluster is None:
            self._offer.look(scan, by_itself)

    @property
    def scan(self) -> Scan | None:
        """The scan, as it was made ready."""
        return self._desk.scan

    @property
    def settings(self) -> Settings:
        """Those of the next reconstruction."""
        return self._desk.settings

    @property
    def cluster(self) -> Cluster | None:
        """Whose engines reconstruct."""
        return self._desk.cluster

    @property
    def recon(self) -> Reconstruction | None:
        """The present reconstruction, for lines of your own beside the mouse."""
        return self._desk.recon

    @property
    def code(self) -> str:
        """The session so far, as Python."""
        return self._code.text

    def come_back(self, name: str | None = None) -> None:
        """To a run that goes on without its notebook: `pt.attach(name)`, with its settings, in the tab Run."""
        self._run_tab.attach(name)
        assert self.recon is not None
        self._take_settings(self.recon.settings)
        self._tabs.selected_index = TABS.index("Run")

    def close(self) -> None:
        """Ends all views and their threads; a run goes on, and so does its cluster."""
        self._actions.close()
        super().close()

    def _listen(self, form: SettingsForm) -> None:
        form.on_change(lambda settings: self._take_settings(settings, form))

    def _take_settings(self, settings: Settings, source: SettingsForm | None = None) -> None:
        """What one of the forms says, the others say too; source: the one that says it."""
        if settings == self._desk.settings or (source is not None and source.settings != settings):
            return  # an echo, or settings that were edited again meanwhile: the newer ones are on their way
        self._desk.settings = settings
        for form in (self._form.form, self._tuning.form):
            if form is not source and form.settings != settings:
                form.settings = settings

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
            self._tell_facts()

    def _tell_facts(self) -> None:
        scan, cluster = self._desk.scan, self._desk.cluster
        parts = ["no scan yet"]
        if scan is not None:
            height, width = scan.pattern_shape
            parts = [f"<b>{html.escape(scan.name)}</b>", f"{len(scan):,} patterns of {height} × {width}"]
        if cluster is not None:
            parts.append(f"{counted(len(cluster), 'engine')} on {html.escape(cluster.plan.engines[0].kind)}")
        put(self._facts, " &nbsp;·&nbsp; ".join(parts))

    def _complain(self, error: Exception | None) -> None:
        put(self._message, complaint(error))


def workbench(
    scan: Scan | None = None,
    settings: Settings | None = None,
    cluster: Cluster | None = None,
    recon: Reconstruction | None = None,
) -> Workbench:
    """Everything a reconstruction needs, with a mouse: as the last line of a cell it appears below it.

    scan: None: a file is opened in the first tab. settings: to begin with. cluster: None: the tab Run starts one.
    recon: one that there is already, such as `pt.attach()` after a restart of the kernel; its scan, settings and
    cluster are taken where none are given. Without it, and without a cluster, a run of the scan that goes on without a
    notebook is offered in a line at the top.
    `.scan`, `.settings`, `.cluster` and `.recon` are what lies on the bench, for lines of Python in other cells;
    `.code` is what was done, as Python.
    """
    return Workbench(scan, settings, cluster, recon)
