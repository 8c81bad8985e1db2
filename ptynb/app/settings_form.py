"""Setting up a reconstruction: the form of the settings, with memory, time, advice and a preview."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ptynb.cluster.cluster import Cluster
from ptynb.data.scan import Scan
from ptynb.exceptions import ReconstructionError
from ptynb.io.prepared_scan import prepare
from ptynb.planning.advice import Advice, advise
from ptynb.planning.estimate import Estimate, estimate
from ptynb.session.preview import Preview, preview
from ptynb.settings import Settings
from ptynb.settings.recipe import Stage
from ptynb.table import duration, gigabytes
from ptynb.text import counted
from ptynb.tuning.recommend import recommend
from ptynb.tuning.recommendation import Recommendation
from ptynb.widgets import elements
from ptynb.widgets.actions import Actions
from ptynb.widgets.form import SettingsForm
from ptynb.widgets.form.field_search import choice_label, label_of_name
from ptynb.widgets.form.settings_sources import Source
from ptynb.widgets.shared_widgets import CancelBar, CancelledError, complaint, note, put
from ptynb.widgets.viewer.viewer import Viewer

ENGINES = "engines"
"""Lane of the actions that measure or try something on engines; estimates and previews do not wait for them."""


class SetUp(elements.VBox):
    """The form of the settings; with a scan also memory, time, advice and a preview of the initial state.

    `settings` are the last valid ones; `form` is the form itself; `cluster` is the cluster to estimate for (None: one
    engine of this machine). `scan` and `cluster` may be set later. `use_scan` is called with the scan that a
    recommendation has prepared, `use_stages` with the stages that it has beside the settings.
    """

    def __init__(self, scan: Scan | None, settings: Settings | None, cluster: Cluster | None) -> None:
        self.cluster = cluster
        self.use_scan: Callable[[Scan], None] | None = None
        self.use_stages: Callable[[tuple[Stage, ...]], None] | None = None
        self._scan: Scan | None = None
        self._tell: Callable[[str], None] | None = None
        self.form = SettingsForm(settings, scan=scan)
        self.last_estimate: Estimate | None = None
        self.last_advice: Advice | None = None
        self.last_preview: Preview | None = None
        self.last_recommendation: Recommendation | None = None
        self._memory, self._time, self._recommended, self._message = (elements.HTML() for _ in range(4))
        self.measure = self._button(
            "Time and advice",
            "clock",
            "Measures a few updates on engines, which takes some seconds",
            self._measure,
            ENGINES,
        )
        self.advise = self._button(
            "Recommend",
            "wand-sparkles",
            "Finds settings for this scan by short trials on the engines",
            self._recommend,
            ENGINES,
        )
        self.trials = CancelBar("Trials", "Ends the trials; the settings stay as they are")
        self.look = self._button("Preview", "eye", "Shows initial probe, object frame and positions", self._preview)
        self.viewer = Viewer(height=220, share=0.4)
        self._viewed = elements.VBox([self.viewer], layout=elements.Layout(display="none", overflow="visible"))
        self._actions = Actions("ptynb set up", self._complain, lanes=("", ENGINES))
        self._memory.layout.flex = "1 1 400px"
        line = elements.HBox(
            [self.advise, self.look, self.measure, self._memory],
            layout=elements.Layout(overflow="visible", flex_flow="row wrap", align_items="center"),
        )
        self._beside = elements.VBox(
            [line, self.trials, self._recommended, self._time, self._message, self._viewed],
            layout=elements.Layout(display="none", overflow="visible"),
        )
        super().__init__([self._beside, self.form])
        self.form.on_change(self._changed)
        self.scan = scan

    @property
    def scan(self) -> Scan | None:
        """The scan to estimate for; None shows the form alone."""
        return self._scan

    @scan.setter
    def scan(self, scan: Scan | None) -> None:
        self._scan = self.form.scan = scan
        self.last_estimate = self.last_advice = self.last_preview = self.last_recommendation = None
        for text in (self._memory, self._time, self._recommended, self._message):
            put(text, "")  # for another scan
        self._viewed.layout.display = "none"
        self._beside.layout.display = "none" if scan is None else None
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
        return self._tell

    @tell.setter
    def tell(self, tell: Callable[[str], None] | None) -> None:
        self._tell = self.form.tell = tell

    def settle(self, seconds: float = 60.0) -> None:
        """Wait until all edits and requests are carried out. Raises TimeoutError."""
        self._actions.settle(seconds)
        self.form.settle(seconds)  # a recommendation edits the form
        self._actions.settle(seconds)  # an edit requests an estimate

    def close(self) -> None:
        """Close the form and end its threads."""
        self.trials.close()
        self._actions.close()
        super().close()

    def _button(self, text: str, icon: str, tip: str, action: Callable[[], None], lane: str = "") -> elements.Button:
        button = elements.Button(description=text, icon=icon, tooltip=tip, layout=elements.Layout(width="auto"))
        button.on_click(lambda _: self._actions.put(action, instead_of=text, lane=lane))
        return button

    def _changed(self, settings: Settings) -> None:
        if self._scan is not None:
            put(self._time, "")  # for other settings
            self._count(settings)

    def _count(self, settings: Settings) -> None:
        """Estimate memory, without a measurement."""

        def count() -> None:
            if (scan := self._scan) is None:
                return
            estimated = estimate(scan, settings, self._engines, measure_time=False)
            if scan is self._scan:
                self.last_estimate = estimated
                put(self._memory, _memory(estimated))

        self._actions.put(count, instead_of="memory")

    def _measure(self) -> None:
        """Measure time on engines, and show advice."""
        if (scan := self._scan) is None:
            return
        settings = self.settings
        put(self._time, note("Measuring a few updates on engines with a part of the scan ..."))
        try:
            estimated = estimate(scan, settings, self._engines)
            if scan is not self._scan:
                return
            self.last_estimate = estimated
            put(self._memory, _memory(estimated))
            advice = advise(scan, settings, self.cluster)
        except Exception:
            put(self._time, "")
            raise
        if scan is not self._scan:
            return
        self.last_advice = advice
        put(self._time, f"<p>{advice.table().html()}</p>")
        self._say(f"pt.estimate(scan, settings{self._cluster_text})", f"pt.advise(scan, settings{self._cluster_text})")

    def _recommend(self) -> None:
        """Find settings by trials on the engines, show them with their reasons, and put them into the form."""
        if (scan := self._scan) is None:
            return
        self.advise.disabled = True
        self.trials.begin()
        try:
            found = recommend(
                scan,
                self.cluster,
                report=lambda line: put(self._recommended, note(f"{line} ...")),
                progress=lambda fraction: self.trials.show(round(100 * fraction), 100),
                cancelled=lambda: self.trials.cancelled or scan is not self._scan,
            )
        except (CancelledError, ReconstructionError) as error:
            put(self._recommended, "")
            if isinstance(error, ReconstructionError) and error.code != "tuning.cancelled":
                raise
            if scan is self._scan:
                put(self._recommended, note("Cancelled; the settings are as before."))
            return
        except Exception:
            put(self._recommended, "")
            raise
        finally:
            self.advise.disabled = False
            self.trials.end()
        if scan is not self._scan:
            return
        self._say(f"recommended = pt.recommend(scan{self._cluster_text})")
        if found.recipe.prepare and self.use_scan is not None:
            self.use_scan(prepare(scan, found.recipe.prepare))
            self._say("scan = pt.prepare(scan, recommended.recipe.prepare)")
        if self.use_stages is not None:
            self.use_stages(found.stages)
        self.last_recommendation = found
        put(self._recommended, _reasons(found))
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
        self._viewed.layout.display = None
        self._say("pt.preview(scan, settings)")

    @property
    def _engines(self) -> int | Cluster:
        return 1 if self.cluster is None else self.cluster

    @property
    def _cluster_text(self) -> str:
        return "" if self.cluster is None else ", cluster"

    def _say(self, *lines: str) -> None:
        for line in lines:
            if self._tell is not None:
                self._tell(line)

    def _complain(self, error: Exception | None) -> None:
        put(self._message, complaint(error))


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


def _reasons(found: Recommendation) -> str:
    """Return what is recommended and why, folded (HTML): the fields show their reasons themselves."""
    rows = tuple(
        (", ".join(map(label_of_name, choice.name.split(", "))), choice_label(choice.value), choice.reason)
        for choice in found.choices
    )
    table = replace(found.table(), rows=rows).html()
    return f"<details><summary>Recommended settings, and why</summary>{table}</details>"


def _source(found: Recommendation) -> Source:
    """Return a recommendation as a source of settings, with the reason of each."""
    reasons = {name: choice.reason for choice in found.choices for name in choice.name.split(", ")}
    about = f"for {found.scan}, from {len(found.trials)} trials with {found.patterns} patterns"
    return Source("recommended", "recommended", found.settings, "recommended.settings", about, reasons)


def _memory(found: Estimate) -> str:
    """Return the required memory and its items, folded (HTML)."""
    there = found.room.host if found.room.device is None else found.room.device
    what = "memory" if found.room.device is None else "the GPU's memory"
    time = "" if found.seconds is None else f", about <b>{duration(found.seconds)}</b> an epoch"
    sentence = (
        f"{counted(found.engines, 'engine')} on {found.device}; each takes <b>{gigabytes(found.bytes)}</b> of "
        f"{gigabytes(there)} of {what}{time}; batch {found.batch}."
    )
    problem = "" if found.problem is None else complaint(found.problem)
    items = f"<details><summary>details</summary>{found.table().html()}</details>"
    return f'<div role="status" style="line-height:1.4;font-size:90%">{sentence}{items}{problem}</div>'
