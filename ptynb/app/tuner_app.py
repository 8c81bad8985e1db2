"""Tuning in a notebook: the settings with ranges to tune, and the trials of a study."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ptynb.cluster.cluster import Cluster
from ptynb.data.engine_records import Result
from ptynb.data.scan import Scan
from ptynb.exceptions import InvalidValueError
from ptynb.settings import Settings
from ptynb.settings.ranges import usual_ranges
from ptynb.tuning.scan_variants import ScanFunction
from ptynb.tuning.study import Study, tune
from ptynb.widgets import elements
from ptynb.widgets.form import SettingsForm
from ptynb.widgets.tuner_widget import Metric, Tuner

RANGES = "Settings and ranges"
"""Title of the form above the trials."""


class Tuning(elements.VBox):
    """A form with ticks, and trials below it; see `tuner`.

    scan, cluster: of the next study; they may be set later, and a study needs a scan. form: provides settings and
    ranges. tuner: the trials; `tuner.study` is the study. picked_scan: the scan of the trial that was used last, if the
    study varied the scan; without a scan_function the next study begins with it.
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
        use_scan: Callable[[Scan], Any] | None = None,
        scan_function: ScanFunction | None = None,
    ) -> None:
        """form: a form that is shown elsewhere; None: creates one above the trials."""
        self._scan, self.cluster, self._scan_function = scan, cluster, scan_function
        self.picked_scan: Scan | None = None
        self.form = SettingsForm(settings, ticks=True, scan=scan) if form is None else form
        self.tuner = Tuner(
            self._tune, self._ranges, use=use or self._use, use_scan=use_scan or self._use_scan, metrics=metrics
        )
        if scan_function is not None:
            self.tuner.scan_name = "picked_scan"
            self.tuner.more = f", scan_function={getattr(scan_function, '__name__', 'scan_function')}"
        shown: list[elements.Element] = [self.tuner]
        if form is None:
            hint = "Tick the settings to tune. By default learning rates are tuned."
            above = elements.Accordion([self.form], titles=(RANGES,))
            shown = [elements.HTML(hint), above, self.tuner]

            def count() -> None:
                ticked = len(self.form.tuned)
                above.titles = (f"{RANGES} ({ticked} tuned)" if ticked else RANGES,)

            self.form.on_ranges(count)
        self._own_form = form is None
        super().__init__(shown)

    @property
    def scan(self) -> Scan | None:
        """The scan of the next study, which its own form uses too."""
        return self._scan

    @scan.setter
    def scan(self, scan: Scan | None) -> None:
        self._scan = scan
        if self._own_form:
            self.form.scan = scan

    @property
    def study(self) -> Study | None:
        """The study that is shown, if there is one."""
        study = self.tuner.study
        assert study is None or isinstance(study, Study)
        return study

    @property
    def tell(self) -> Callable[[str], None] | None:
        """Called with the line of Python equivalent to a click."""
        return self.tuner.tell

    @tell.setter
    def tell(self, tell: Callable[[str], None] | None) -> None:
        self.tuner.tell = tell
        if self._own_form:
            self.form.tell = tell

    def _ranges(self) -> Mapping[str, Any]:
        """Return those of ticked settings; of the learning rates, if neither settings nor the scan are to be tuned."""
        alone = not self.tuner.scan_ranges.value.strip()
        return self.form.ranges() or (usual_ranges(self.form.settings) if alone else {})

    def _tune(
        self,
        ranges: Mapping[str, Any],
        *,
        trials: int,
        epochs: int,
        metric: Metric,
        study: str | None,
        sampler: str,
    ) -> Study:
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
            sampler=sampler,  # type: ignore[arg-type]  # checked there
            scan_function=self._scan_function,
        )

    def _use(self, settings: Settings) -> None:
        self.form.settings = settings

    def _use_scan(self, scan: Scan) -> None:
        self.picked_scan = scan
        if self._scan_function is None:  # which would be applied to its own result in the next study
            self.scan = scan


def tuner(
    scan: Scan | None,
    settings: Settings | None = None,
    cluster: Cluster | None = None,
    *,
    form: SettingsForm | None = None,
    metrics: Mapping[str, Callable[[Result], float]] | None = None,
    use: Callable[[Settings], Any] | None = None,
    use_scan: Callable[[Scan], Any] | None = None,
    scan_function: ScanFunction | None = None,
) -> Tuning:
    """Return a widget that tunes settings and values of the scan in ranges and shows the trials, as `tune` does.

    It is displayed if it is the last expression of a notebook cell.

    Parameters
    ----------
    scan : Scan or None
        The scan; None: it is set later, as the attribute `scan`.
    settings : Settings, optional
        The settings to begin with.
    cluster : Cluster, optional
        The cluster that runs trials; None: this process.
    form : SettingsForm, optional
        A `SettingsForm(ticks=True)` that is shown elsewhere.
    metrics : mapping of str to callable, optional
        Functions of a `Result` to choose besides the loss and the Fourier ring correlation, by the name to show.
    use : callable, optional
        Called with the settings of the picked trial after a click on "Use"; None: the form shows them.
    use_scan : callable, optional
        Called with the scan of that trial, if the study varies the scan; None: `picked_scan` is set to it, and the next
        study has it, unless there is a `scan_function`.
    scan_function : callable, optional
        Function that makes the scans of trials, as for `tune`.

    Returns
    -------
    Tuning
        The widget; its `study` is the `Study`, which continues when the widget is closed.
    """
    return Tuning(
        scan, settings, cluster, form=form, metrics=metrics, use=use, use_scan=use_scan, scan_function=scan_function
    )
