"""Setting up a reconstruction: the form of the settings, with memory, time, advice and a preview."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import traitlets

from ptynb.cluster.cluster import Cluster
from ptynb.data.scan import Scan
from ptynb.exceptions import ReconstructionError
from ptynb.io.prepared_scan import prepare
from ptynb.planning.advice import advise
from ptynb.planning.estimate import Estimate, estimate
from ptynb.session.preview import Preview, preview
from ptynb.settings import Settings
from ptynb.settings.recipe import Stage
from ptynb.table import duration, gigabytes
from ptynb.text import counted
from ptynb.tuning.recommend import recommend
from ptynb.tuning.recommendation import Recommendation
from ptynb.widgets.actions import Actions
from ptynb.widgets.element_tree import Element, command, shown
from ptynb.widgets.form import SettingsForm
from ptynb.widgets.form.field_words import choice_label, label_of_name
from ptynb.widgets.form.settings_sources import Source
from ptynb.widgets.viewer.viewer import Viewer

ENGINES = "engines"
"""Lane of the actions that measure or try something on engines; estimates and previews do not wait for them."""


class SetUp(Element):
    """The form of the settings; with a scan also memory, time, advice and a preview of the initial state.

    `settings` are the last valid ones; `form` is the form itself; `cluster` is the cluster to estimate for (None: one
    engine of this machine). `scan` and `cluster` may be set later. `use_scan` is called with the scan that a
    recommendation has prepared, `use_stages` with the stages that it has beside the settings.

    Attributes for the browser
    --------------------------
    with_scan: whether there is one. memory: what an engine takes. measuring, advice: of time, and what it found.
    trials: the part that is done [%], None without any; finding: what they do; recommended: what they found.
    """

    component = "setUp"
    form: traitlets.Instance[SettingsForm] = shown(traitlets.Instance(SettingsForm))
    viewer: traitlets.Instance[Viewer] = shown(traitlets.Instance(Viewer))
    with_scan = shown(traitlets.Bool())
    memory: traitlets.Dict[str, Any] = shown(traitlets.Dict())
    measuring = shown(traitlets.Bool())
    advice: traitlets.Dict[str, Any] = shown(traitlets.Dict())
    trials: traitlets.Int[int | None, int | None] = shown(traitlets.Int(None, allow_none=True))
    finding = shown(traitlets.Unicode())
    recommended: traitlets.Dict[str, Any] = shown(traitlets.Dict())
    previewed = shown(traitlets.Bool())
    message = shown(traitlets.Unicode())

    def __init__(self, scan: Scan | None, settings: Settings | None, cluster: Cluster | None) -> None:
        self.cluster = cluster
        self.use_scan: Callable[[Scan], None] | None = None
        self.use_stages: Callable[[tuple[Stage, ...]], None] | None = None
        self._scan: Scan | None = None
        self.last_estimate: Estimate | None = None
        self.last_preview: Preview | None = None
        self.last_recommendation: Recommendation | None = None
        self._cancelled = threading.Event()
        self._actions = Actions("ptynb set up", self._complain, lanes=("", ENGINES))
        super().__init__(form=SettingsForm(settings, scan=scan), viewer=Viewer(height=220, share=0.4))
        self.form.on_change(self._changed)
        self.scan = scan

    @property
    def scan(self) -> Scan | None:
        """The scan to estimate for; None shows the form alone."""
        return self._scan

    @scan.setter
    def scan(self, scan: Scan | None) -> None:
        self._scan = self.form.scan = scan
        self.last_estimate = self.last_preview = self.last_recommendation = None
        with self.hold_sync():
            self.memory, self.advice, self.recommended = {}, {}, {}  # for another scan
            self.finding = self.message = ""
            self.previewed, self.with_scan = False, scan is not None
        if scan is not None:
            self._count(self.form.settings)

    @property
    def settings(self) -> Settings:
        """The last valid settings; assignment shows others."""
        return self.form.settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        self.form.settings = settings

    @property
    def tell(self) -> Callable[[str], None] | None:
        """Called with the line of Python equivalent to an edit."""
        return self.form.tell

    @tell.setter
    def tell(self, tell: Callable[[str], None] | None) -> None:
        self.form.tell = tell

    def settle(self, seconds: float = 60.0) -> None:
        """Wait until all edits and requests are carried out. Raises TimeoutError."""
        self._actions.settle(seconds)
        self.form.settle(seconds)  # a recommendation edits the form
        self._actions.settle(seconds)  # an edit requests an estimate

    def close(self) -> None:
        """Close the form and end its threads."""
        self.cancel()
        self._actions.close()
        self.form.close()
        self.viewer.close()
        super().close()

    @command
    def measure(self) -> None:
        """Measure time on engines, and show advice."""
        self._actions.put(self._measure, instead_of="measure", lane=ENGINES)

    @command
    def recommend(self) -> None:
        """Find settings by trials on the engines, show them with their reasons, and put them into the form."""
        self._actions.put(self._recommend, instead_of="recommend", lane=ENGINES)

    @command
    def cancel(self) -> None:
        """End the trials; the settings stay as they are."""
        self._cancelled.set()

    @command
    def preview(self) -> None:
        """Show the initial probe, the frame of the object and the positions."""
        self._actions.put(self._preview, instead_of="preview")

    def _changed(self, settings: Settings) -> None:
        if self._scan is not None:
            self.advice = {}  # for other settings
            self._count(settings)

    def _count(self, settings: Settings) -> None:
        """Estimate memory, without a measurement."""

        def count() -> None:
            if (scan := self._scan) is None:
                return
            self._show_estimate(scan, estimate(scan, settings, self._engines, measure_time=False))

        self._actions.put(count, instead_of="memory")

    def _show_estimate(self, scan: Scan, estimated: Estimate) -> None:
        if scan is self._scan:
            self.last_estimate, self.memory = estimated, _memory(estimated)

    def _measure(self) -> None:
        if (scan := self._scan) is None:
            return
        settings = self.settings
        self.advice, self.measuring = {}, True
        try:
            self._show_estimate(scan, estimate(scan, settings, self._engines))
            if scan is not self._scan:
                return
            advice = advise(scan, settings, self.cluster)
        finally:
            self.measuring = False
        if scan is not self._scan:
            return
        self.advice = asdict(advice.table())
        self._say(f"pt.estimate(scan, settings{self._cluster_text})", f"pt.advise(scan, settings{self._cluster_text})")

    def _recommend(self) -> None:
        if (scan := self._scan) is None:
            return
        self._cancelled.clear()
        self.recommended, self.trials = {}, 0
        try:
            found = recommend(
                scan,
                self.cluster,
                report=lambda line: self.set_trait("finding", f"{line} ..."),
                progress=lambda fraction: self.set_trait("trials", round(100 * fraction)),
                cancelled=lambda: self._cancelled.is_set() or scan is not self._scan,
            )
        except ReconstructionError as error:
            self.finding = ""
            if error.code != "tuning.cancelled":
                raise
            if scan is self._scan:
                self.finding = "Cancelled; the settings are as before."
            return
        except Exception:
            self.finding = ""
            raise
        finally:
            self.trials = None
        if scan is not self._scan:
            return
        self._say(f"recommended = pt.recommend(scan{self._cluster_text})")
        if found.recipe.prepare and self.use_scan is not None:
            self.use_scan(prepare(scan, found.recipe.prepare))
            self._say("scan = pt.prepare(scan, recommended.recipe.prepare)")
        if self.use_stages is not None:
            self.use_stages(found.stages)
        self.last_recommendation, self.finding, self.recommended = found, "", _reasons(found)
        self.form.take(_source(found))

    def _preview(self) -> None:
        if (scan := self._scan) is None:
            return
        previewed = preview(scan, self.settings)
        if scan is not self._scan:
            return
        self.last_preview = previewed
        self.viewer.show(previewed.pictures())
        self.viewer.mark("positions", previewed.centres)
        self.previewed = True
        self._say("pt.preview(scan, settings)")

    @property
    def _engines(self) -> int | Cluster:
        return 1 if self.cluster is None else self.cluster

    @property
    def _cluster_text(self) -> str:
        return "" if self.cluster is None else ", cluster"

    def _complain(self, error: Exception | None) -> None:
        self.message = "" if error is None else str(error)


def settings_form(scan: Scan | None = None, settings: Settings | None = None, cluster: Cluster | None = None) -> SetUp:
    """Return a form of the settings, generated from their descriptions, ranges and units.

    It is displayed if it is the last expression of a notebook cell. With a scan it shows the required memory and, on
    request, time, advice and a preview of probe, object frame and positions.

    Parameters
    ----------
    scan : Scan, optional
        The scan to estimate for.
    settings : Settings, optional
        The settings to begin with.
    cluster : Cluster, optional
        The cluster to estimate for; None: one engine of this machine.

    Returns
    -------
    SetUp
        The form; its `settings` are the last valid ones.
    """
    return SetUp(scan, settings, cluster)


def _reasons(found: Recommendation) -> dict[str, Any]:
    """Return what is recommended and why as a table: the fields show their reasons themselves."""
    rows = tuple(
        (", ".join(map(label_of_name, choice.name.split(", "))), choice_label(choice.value), choice.reason)
        for choice in found.choices
    )
    return asdict(replace(found.table(), rows=rows))


def _source(found: Recommendation) -> Source:
    """Return a recommendation as a source of settings, with the reason of each."""
    reasons = {name: choice.reason for choice in found.choices for name in choice.name.split(", ")}
    about = f"for {found.scan}, from {len(found.trials)} trials with {found.patterns} patterns"
    return Source("recommended", "recommended", found.settings, "recommended.settings", about, reasons)


def _memory(found: Estimate) -> dict[str, Any]:
    """Return the required memory in a sentence, and its items as a table."""
    there = found.room.host if found.room.device is None else found.room.device
    what = "memory" if found.room.device is None else "the GPU's memory"
    time = "" if found.seconds is None else f", about {duration(found.seconds)} an epoch"
    sentence = (
        f"{counted(found.engines, 'engine')} on {found.device}; each takes {gigabytes(found.bytes)} of "
        f"{gigabytes(there)} of {what}{time}; batch {found.batch}."
    )
    return {"sentence": sentence, "table": asdict(found.table()), "problem": found.problem or ""}
