"""Tuning in a notebook: the settings with ranges to tune, a study of them, its trials, and the one that is picked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import traitlets

from ptynb.cluster.cluster import Cluster
from ptynb.data.engine_records import Result
from ptynb.data.scan import Scan
from ptynb.exceptions import InvalidValueError
from ptynb.settings import Settings
from ptynb.settings.ranges import usual_ranges
from ptynb.tuning.scan_variants import ScanFunction
from ptynb.tuning.study import Study, tune
from ptynb.widgets import trial_table
from ptynb.widgets.actions import Actions, repeat
from ptynb.widgets.element_tree import Element, command, shown
from ptynb.widgets.form import SettingsForm
from ptynb.widgets.quantities import number
from ptynb.widgets.range_text import ranges_in

REFRESH_SECONDS = 0.4
BEST = 0
"""The best trial, whichever it is; trials are numbered from 1."""

Metric = Callable[[Result], float]


class Tuning(Element):
    """A form with ticks, what a study is started with, and its trials; see `tuner`.

    scan, cluster: of the next study; they may be set later, and a study needs a scan. form: provides settings and
    ranges. study: the one that is shown, if there is one. picked_scan: the scan of the trial that was used last, if the
    study varied the scan; without a scan_function the next study begins with it.

    Attributes for the browser
    --------------------------
    trials, epochs, metric, sampler, file, scan_ranges: of the next study. functions: names of the user's metrics.
    shown_form: the form, unless it is shown elsewhere. state: of the study, "" without one, and counts of its trials,
    its file and its best score. best: number of the best trial. parameters: what is tuned. rows, pictures: of trials,
    by number.
    """

    component = "tuner"
    trials = traitlets.Int(20, min=1, max=100_000).tag(sync=True)
    epochs = traitlets.Int(30, min=1, max=1_000_000).tag(sync=True)
    metric = traitlets.Unicode("loss").tag(sync=True)
    sampler = traitlets.Unicode("tpe").tag(sync=True)
    file = traitlets.Unicode("").tag(sync=True)
    scan_ranges = traitlets.Unicode("").tag(sync=True)
    functions: traitlets.List[str] = shown(traitlets.List())
    shown_form = shown(traitlets.Instance(SettingsForm, allow_none=True))
    state: traitlets.Dict[str, Any] = shown(traitlets.Dict({"state": ""}))
    best = shown(traitlets.Int(None, allow_none=True))
    parameters: traitlets.List[dict[str, Any]] = shown(traitlets.List())
    rows: traitlets.Dict[str, dict[str, Any]] = shown(traitlets.Dict())
    pictures: traitlets.Dict[str, str] = shown(traitlets.Dict())
    message = shown(traitlets.Unicode(""))

    def __init__(
        self,
        scan: Scan | None,
        settings: Settings | None = None,
        cluster: Cluster | None = None,
        *,
        form: SettingsForm | None = None,
        metrics: Mapping[str, Metric] | None = None,
        use: Callable[[Settings], Any] | None = None,
        use_scan: Callable[[Scan], Any] | None = None,
        scan_function: ScanFunction | None = None,
    ) -> None:
        """form: a form that is shown elsewhere; None: creates one above the trials."""
        self._scan, self.cluster, self._scan_function = scan, cluster, scan_function
        self._use, self._use_scan, self._metrics = use, use_scan, dict(metrics or {})
        self.study: Study | None = None
        self.picked_scan: Scan | None = None
        self._tell: Callable[[str], None] | None = None
        self._drawn: tuple[Any, ...] = ()
        self._failure: Exception | None = None
        self._lock, self._refresh_now = threading.Lock(), threading.Event()
        own = SettingsForm(settings, ticks=True, scan=scan) if form is None else None
        self.form: SettingsForm = own or form  # type: ignore[assignment]
        super().__init__(functions=[*self._metrics], shown_form=own)
        self._actions = Actions("ptynb tuner", self.complain, self._refresh_now.set)
        repeat(self, "ptynb tuner view", REFRESH_SECONDS, Tuning.refresh, Tuning.complain, soon=self._refresh_now)

    def close(self) -> None:
        """Close the view with its own form, and end its threads; the study continues."""
        self._actions.close()
        super().close()
        if self.shown_form is not None:
            self.shown_form.close()
        self._refresh_now.set()

    @property
    def scan(self) -> Scan | None:
        """The scan of the next study, which its own form uses too."""
        return self._scan

    @scan.setter
    def scan(self, scan: Scan | None) -> None:
        self._scan = scan
        if self.shown_form is not None:
            self.shown_form.scan = scan

    @property
    def tell(self) -> Callable[[str], None] | None:
        """Called with the line of Python equivalent to a click."""
        return self._tell

    @tell.setter
    def tell(self, tell: Callable[[str], None] | None) -> None:
        self._tell = tell
        if self.shown_form is not None:
            self.shown_form.tell = tell

    def show(self, study: Study) -> None:
        """Show a study."""
        with self._lock:
            self.study = study
        self._refresh_now.set()

    def settle(self, seconds: float = 30.0) -> None:
        """Wait until all commands are carried out, and refresh. Raises TimeoutError."""
        self._actions.settle(seconds)
        self.refresh()

    def complain(self, error: Exception | None) -> None:
        """Show an error above the trials; None: removes it."""
        self.message = "" if error is None else str(error)

    def refresh(self) -> None:
        """Show the current state of the study."""
        with self._lock:
            study = self.study
            if study is None:
                return
            trials, best, running = study.trials, study.best, study.running
            if self._failure is not study.failure:
                self._failure = study.failure
                self.complain(self._failure)
            self.best = None if best is None else best.number
            self.state = {
                "state": "running" if running else "failed" if study.failure is not None else "ready",
                "done": study.done,
                "wanted": study.wanted,
                "unfinished": sum(trial.state == "running" for trial in trials),
                "score": "" if best is None or best.score is None else number(best.score, 5),
                "file": str(study.path),
            }
            drawn = (id(study), *((one.number, one.state, len(one.losses)) for one in trials))
            if drawn != self._drawn:
                self._drawn = drawn
                self.parameters = trial_table.parameters(study.ranges)
                self.rows = {str(trial.number): trial_table.row(trial, study.ranges) for trial in trials}
                self.pictures = trial_table.pictures(trials)

    # Commands

    @command
    def start(self) -> None:
        """Start a new study, or continue the one in the file."""
        self._actions.put(self._start)

    @command
    def stop(self) -> None:
        """End the running trials; they can be repeated."""

        def act() -> None:
            if self.study is not None:
                self.study.stop()
                self._say("study.stop()")

        self._actions.put(act)

    @command
    def resume(self) -> None:
        """Run the remaining trials, or as many again."""

        def act() -> None:
            if self.study is not None:
                more = None if self.study.done < self.study.wanted else self.trials
                self.study.start(more)
                self._say("study.start()" if more is None else f"study.start({more})")

        self._actions.put(act)

    @command
    def use(self, trial: int = BEST) -> None:
        """Use the settings, and the scan, of a trial."""
        self._actions.put(lambda: self._use_trial(trial))

    def _start(self) -> None:
        if self.study is not None and self.study.running:
            raise InvalidValueError(
                "A study is running on the engines; press Stop before starting another one.",
                code="tuning.already-running",
            )
        of_scan = ranges_in(self.scan_ranges)
        ranges = self.form.ranges() or ({} if of_scan else usual_ranges(self.form.settings))
        if self.scan is None:
            raise InvalidValueError(
                "There is no scan, and each trial reconstructs one; load a scan first.", code="workbench.no-scan"
            )
        metric, sampler, trials, epochs = self.metric, self.sampler, self.trials, self.epochs
        study = tune(
            self.scan,
            self.form.settings,
            {**ranges, **of_scan},
            self.cluster,
            trials=trials,
            epochs=epochs,
            metric=self._metrics.get(metric, metric),  # type: ignore[arg-type]  # checked there
            study=self.file.strip() or None,
            sampler=sampler,  # type: ignore[arg-type]  # checked there
            scan_function=self._scan_function,
        )
        self.show(study)
        score = _python_name(self._metrics[metric], metric) if metric in self._metrics else repr(metric)
        more = "" if sampler == "tpe" else f", sampler={sampler!r}"
        if self._scan_function is not None:
            more += f", scan_function={getattr(self._scan_function, '__name__', 'scan_function')}"
        self._say(
            f"study = pt.tune(scan, settings, {study.ranges!r}{'' if self.cluster is None else ', cluster'}, "
            f"trials={trials}, epochs={epochs}, metric={score}, study={str(study.path)!r}{more})"
        )

    def _use_trial(self, trial: int) -> None:
        study = self.study
        if study is None:
            return
        best = study.best
        found = best.number if trial == BEST and best is not None else trial
        settings = study.settings_of(found)
        if study.varies_scan:
            scan = study.scan_of(found)
            if self._use_scan is not None:
                self._use_scan(scan)
            else:
                self.picked_scan = scan
                if self._scan_function is None:  # which would be applied to its own result in the next study
                    self.scan = scan
            name = "scan" if self._scan_function is None else "picked_scan"
            self._say(f"{name} = {'study.best_scan' if trial == BEST else f'study.scan_of({found})'}")
        if self._use is not None:
            self._use(settings)
        else:
            self.form.settings = settings
        self._say(f"settings = {'study.best_settings' if trial == BEST else f'study.settings_of({found})'}")


def _python_name(metric: Metric, label: str) -> str:
    """Return a function's name for a line of Python if it is the notebook's or numpy's, else its entry in `metrics`."""
    home, name = getattr(metric, "__module__", ""), getattr(metric, "__qualname__", "")
    if home == "__main__" and name.isidentifier():
        return name
    return f"np.{name}" if getattr(np, name, None) is metric else f"metrics[{label!r}]"


def tuner(
    scan: Scan | None,
    settings: Settings | None = None,
    cluster: Cluster | None = None,
    *,
    form: SettingsForm | None = None,
    metrics: Mapping[str, Metric] | None = None,
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
