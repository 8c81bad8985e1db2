"""Tuning in a notebook: the settings with what is ticked, and the trials that a cluster's engines make of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets

from ptynb.cluster.cluster import Cluster
from ptynb.data.scan import Scan
from ptynb.data.snapshot import Result
from ptynb.exceptions import InvalidValueError
from ptynb.settings import Settings
from ptynb.settings.ranges import usual_ranges
from ptynb.tuning.study import Study, tune
from ptynb.widgets.elements import Whole
from ptynb.widgets.form import SettingsForm
from ptynb.widgets.tuner_widget import Metric, Tuner


class Tuning(Whole):
    """A form with ticks, and the trials below it; see `tuner`.

    scan, cluster: of the next study; they may be set later, and none is started without a scan. form: where settings
    and ranges come from.
    tuner: the trials; `tuner.study` is the study.
    """

    def __init__(
        self,
        scan: Scan | None,
        settings: Settings | None = None,
        cluster: Cluster | None = None,
        *,
        form: SettingsForm | None = None,
        metrics: Mapping[str, Callable[[Result], float]] | None = None,
        use: Callable[[Settings], Any] | None = None,
    ) -> None:
        """form: one that is shown elsewhere; None: one of its own, above the trials."""
        self._scan, self.cluster = scan, cluster
        self.form = SettingsForm(settings, ticks=True, scan=scan) if form is None else form
        self.tuner = Tuner(self._tune, self._ranges, use=use or self._take_over, metrics=metrics)
        shown = [self.tuner]
        if form is None:
            hint = "Tick what is to be tuned; with nothing ticked: the rates, a decade to both sides."
            above = ipywidgets.Accordion([self.form], titles=("Settings, and what is to be tuned",))
            shown = [ipywidgets.HTML(f"<p>{hint}</p>"), above, self.tuner]
        self._own_form = form is None
        super().__init__(shown)

    @property
    def scan(self) -> Scan | None:
        """The scan of the next study, at which its own form looks too."""
        return self._scan

    @scan.setter
    def scan(self, scan: Scan | None) -> None:
        self._scan = scan
        if self._own_form:
            self.form.scan = scan

    @property
    def study(self) -> Study | None:
        """The study that is shown; None before the first."""
        study = self.tuner.study
        assert study is None or isinstance(study, Study)
        return study

    @property
    def tell(self) -> Callable[[str], None] | None:
        """Is given the line of Python that does what was just done."""
        return self.tuner.tell

    @tell.setter
    def tell(self, tell: Callable[[str], None] | None) -> None:
        self.tuner.tell = tell
        if self._own_form:
            self.form.tell = tell

    def _ranges(self) -> Mapping[str, Any]:
        return self.form.ranges() or usual_ranges(self.form.settings)

    def _tune(self, ranges: Mapping[str, Any], *, trials: int, epochs: int, metric: Metric, study: str | None) -> Study:
        if self.scan is None:
            raise InvalidValueError(
                "There is no scan, and each trial reconstructs one; load a scan first.", code="workbench.no-scan"
            )
        self.tuner.cluster = "" if self.cluster is None else "cluster"
        return tune(
            self.scan,
            self.form.settings,
            ranges,
            self.cluster,
            trials=trials,
            epochs=epochs,
            metric=metric,  # type: ignore[arg-type]  # checked there
            study=study,
        )

    def _take_over(self, settings: Settings) -> None:
        self.form.settings = settings

    def close(self) -> None:
        """Ends the widgets and their threads; a study goes on."""
        super().close()


def tuner(
    scan: Scan | None,
    settings: Settings | None = None,
    cluster: Cluster | None = None,
    *,
    form: SettingsForm | None = None,
    metrics: Mapping[str, Callable[[Result], float]] | None = None,
    use: Callable[[Settings], Any] | None = None,
) -> Tuning:
    """A widget that tunes settings: tick parameters and ranges, start, and watch the trials come; `tune` with a mouse.

    settings: to begin with. cluster: whose engines try; None: this process. metrics: functions of a `Result` to choose
    beside the loss and the FRC, by the names to show. use: is given the settings of the best trial when "Use the best"
    is clicked; None: they are put in the form. form: a `SettingsForm(ticks=True)` that is shown elsewhere.

    As the last line of a cell it appears below it. Its `study` is the `Study`, and the widget may be closed while
    that goes on.
    """
    return Tuning(scan, settings, cluster, form=form, metrics=metrics, use=use)
