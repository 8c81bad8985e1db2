"""Tuning: starts a study of the ticked settings and of values of the scan, shows its trials, and lets one be picked."""

from __future__ import annotations

import html
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from ptynb.data.engine_records import Result
from ptynb.data.scan import Scan
from ptynb.data.trial_record import TunedTrial
from ptynb.exceptions import InvalidValueError
from ptynb.settings import Settings
from ptynb.settings.ranges import Range
from ptynb.widgets import elements
from ptynb.widgets.actions import Actions, repeat
from ptynb.widgets.number_text import number
from ptynb.widgets.range_text import ranges_in
from ptynb.widgets.shared_widgets import complaint, put, state_row
from ptynb.widgets.trial_table import score_plots, trial_pictures, trials_table

REFRESH_SECONDS = 0.4
SAMPLERS = {
    "model of the scores (TPE)": "tpe",
    "random": "random",
    "all combinations of choices": "grid",
    "Gaussian process": "gp",
    "covariance matrix (CMA-ES)": "cmaes",
}
BEST = 0
"""Entry of the trials to pick: the best one, whichever it is; trials are numbered from 1."""
METRICS = {"Loss of the last epoch": "loss", "Fourier ring correlation of halves": "frc"}
DESCRIPTIONS = {
    "loss": "The loss of the last epoch; fitting noise reduces it too.",
    "frc": "1 minus the mean Fourier ring correlation of two reconstructions, each from half of the scan.",
}

Metric = str | Callable[[Result], float]


class Tuned(Protocol):
    """The interface of a study that the widget uses; `ptynb.Study` has it."""

    failure: Exception | None
    wanted: int

    @property
    def ranges(self) -> dict[str, Range]: ...  # noqa: D102
    @property
    def running(self) -> bool: ...  # noqa: D102
    @property
    def done(self) -> int: ...  # noqa: D102
    @property
    def trials(self) -> tuple[TunedTrial, ...]: ...  # noqa: D102
    @property
    def best(self) -> TunedTrial | None: ...  # noqa: D102
    @property
    def best_settings(self) -> Settings: ...  # noqa: D102
    @property
    def varies_scan(self) -> bool: ...  # noqa: D102
    def settings_of(self, trial: int) -> Settings: ...  # noqa: D102
    def scan_of(self, trial: int) -> Scan: ...  # noqa: D102
    @property
    def path(self) -> Any: ...  # noqa: D102
    def start(self, trials: int | None = None) -> None: ...  # noqa: D102
    def stop(self) -> None: ...  # noqa: D102


class Make(Protocol):
    """A function that starts a study, as `ptynb.tune` does."""

    def __call__(  # noqa: D102
        self, ranges: Mapping[str, Any], *, trials: int, epochs: int, metric: Metric, study: str | None, sampler: str
    ) -> Tuned: ...


class Tuner(elements.VBox):
    """Trials of a study: number, metric, sampler, table or pictures, plots of scores, and the trial that is picked.

    make: starts a study. ranges: returns the ranges of settings when Start is clicked, those of the scan are typed
    here. use: called with the settings of the picked trial; None: no button for it. use_scan: called with its scan, if
    the study varies the scan. metrics: functions of the user by name. tell: called with the line of Python that does
    the same as a click; `cluster`: the name of the cluster in it, "" without one; `more`: further arguments in it;
    `scan_name`: the name that the scan of the picked trial gets in it.
    """

    def __init__(
        self,
        make: Make,
        ranges: Callable[[], Mapping[str, Any]],
        *,
        use: Callable[[Settings], Any] | None = None,
        use_scan: Callable[[Scan], Any] | None = None,
        metrics: Mapping[str, Callable[[Result], float]] | None = None,
        cluster: str = "cluster",
    ) -> None:
        self.study: Tuned | None = None
        self.tell: Callable[[str], None] | None = None
        self.cluster, self.more, self.scan_name = cluster, "", "scan"
        self._make, self._ranges, self._use, self._use_scan = make, ranges, use, use_scan
        self._drawn: tuple[Any, ...] = ()
        self._failure: Exception | None = None
        self._lock, self._refresh_now = threading.Lock(), threading.Event()
        self._make_fields(metrics or {})
        self._buttons = {
            "Start": self._button("Start", "play", "Starts a new study, or continues the one in the file", self._start),
            "Stop": self._button("Stop", "stop", "Ends the running trials; they can be repeated", self._stop),
            "Continue": self._button(
                "Continue", "fast-forward", "Runs the remaining trials, or as many again", self._continue
            ),
            "Use": self._button(
                "Use", "check", "Uses the settings, and the scan, of the picked trial", self._use_picked
            ),
        }
        self.pick = elements.Dropdown(
            options=[("the best trial", BEST)],
            description="Pick",
            tooltip="The trial to use: by its score, or by its picture",
            style={"description_width": "40px"},
            layout=elements.Layout(width="240px"),
        )
        self._buttons["Use"].layout.display = self.pick.layout.display = None if use else "none"
        self._summary, self._message, self._plots, self._table = (elements.HTML() for _ in range(4))
        self._order = elements.Dropdown(
            options=["best first", "newest first"], description="Order", layout=elements.Layout(width="200px")
        )
        self._view = elements.Dropdown(
            options=["table", "pictures"], description="View", layout=elements.Layout(width="190px")
        )
        for choice in (self._order, self._view):
            choice.observe(lambda _: self._refresh_now.set(), "value")
        self._actions = Actions("ptynb tuner", self.complain, self._refresh_soon)
        *buttons, use_button = self._buttons.values()
        rows: list[list[elements.Element]] = [
            [self.trials, self.epochs, self.metric, self.sampler, self.file],
            [self.scan_ranges],
            [*buttons, self._order, self._view, self.pick, use_button],
        ]
        layout = {"flex_flow": "row wrap", "overflow": "visible"}
        super().__init__(
            [
                *(elements.HBox(row, layout=elements.Layout(**layout)) for row in rows),
                self._about,
                self._summary,
                self._message,
                self._plots,
                self._table,
            ]
        )
        self.add_class("ptynb-tuner")
        self.refresh()
        repeat(self, "ptynb tuner view", REFRESH_SECONDS, Tuner.refresh, Tuner.complain, soon=self._refresh_now)

    def _make_fields(self, metrics: Mapping[str, Callable[[Result], float]]) -> None:
        number = {"min": 1, "style": {"description_width": "50px"}, "layout": elements.Layout(width="130px")}
        self.trials = elements.BoundedIntText(20, max=100_000, description="Trials", **number)
        self.epochs = elements.BoundedIntText(30, max=1_000_000, description="Epochs", **number)
        self.metric = elements.Dropdown(
            options=[*METRICS.items(), *metrics.items()],
            description="Score",
            tooltip="The value to minimise",
            style={"description_width": "50px"},
            layout=elements.Layout(width="330px"),
        )
        self.sampler = elements.Dropdown(
            options=[*SAMPLERS.items()],
            description="Sampler",
            tooltip="How values are suggested",
            style={"description_width": "60px"},
            layout=elements.Layout(width="290px"),
        )
        self.scan_ranges = elements.Textarea(
            description="Scan",
            placeholder="Values of the scan to tune, one a line:\nScan rotation: -5 to 5 °\ncrop: 64, 96",
            tooltip="Fields of a file, preparation, and arguments of the scan function, with their ranges",
            continuous_update=False,
            rows=3,
            style={"description_width": "50px"},
            layout=elements.Layout(width="460px", max_width="100%"),
        )
        self.file = elements.Text(
            description="File",
            placeholder="default: a new file for each study",
            tooltip="Stores the trials; an earlier study is continued if its file is named",
            continuous_update=False,
            style={"description_width": "40px"},
            layout=elements.Layout(width="320px"),
        )
        self._about = elements.HTML()
        self.metric.observe(lambda _: self._describe_metric(), "value")
        self._describe_metric()

    def _describe_metric(self) -> None:
        text = DESCRIPTIONS.get(self.metric.value, "The value of your function for each result; smaller is better.")
        put(self._about, f'<p style="margin:2px 0;color:var(--jp-ui-font-color2,#616161)">Score: {text}</p>')

    def _button(self, text: str, icon: str, tip: str, action: Callable[[], None]) -> elements.Button:
        button = elements.Button(description=text, icon=icon, tooltip=tip, layout=elements.Layout(width="130px"))
        button.on_click(lambda _: self._actions.put(action))
        return button

    # Actions

    def show(self, study: Tuned) -> None:
        """Show a study."""
        with self._lock:
            self.study = study
        self._refresh_now.set()

    def _start(self) -> None:
        if self.study is not None and self.study.running:
            raise InvalidValueError(
                "A study is running on the engines; press Stop before starting another one.",
                code="tuning.already-running",
            )
        metric, sampler = self.metric.value, self.sampler.value
        study = self._make(
            {**self._ranges(), **ranges_in(self.scan_ranges.value)},
            trials=self.trials.value,
            epochs=self.epochs.value,
            metric=metric,
            study=self.file.value.strip() or None,
            sampler=sampler,
        )
        self.show(study)
        cluster = f", {self.cluster}" if self.cluster else ""
        score = repr(metric) if isinstance(metric, str) else _python_name(metric, self.metric.label)
        more = f", sampler={sampler!r}" if sampler != "tpe" else ""
        self._say(
            f"study = pt.tune(scan, settings, {study.ranges!r}{cluster}, trials={self.trials.value}, "
            f"epochs={self.epochs.value}, metric={score}, study={str(study.path)!r}{more}{self.more})"
        )

    def _stop(self) -> None:
        if self.study is not None:
            self.study.stop()
            self._say("study.stop()")

    def _continue(self) -> None:
        if self.study is not None:
            more = None if self.study.done < self.study.wanted else self.trials.value
            self.study.start(more)
            self._say("study.start()" if more is None else f"study.start({more})")

    def _use_picked(self) -> None:
        study, number = self.study, self.pick.value
        if study is None or self._use is None:
            return
        best = study.best
        if number == BEST and best is not None:
            number = best.number
        settings = study.settings_of(number)
        if study.varies_scan and self._use_scan is not None:
            self._use_scan(study.scan_of(number))
            picked = "study.best_scan" if self.pick.value == BEST else f"study.scan_of({number})"
            self._say(f"{self.scan_name} = {picked}")
        self._use(settings)
        self._say(
            "settings = study.best_settings" if self.pick.value == BEST else f"settings = study.settings_of({number})"
        )

    def _say(self, line: str) -> None:
        if self.tell is not None:
            self.tell(line)

    def _refresh_soon(self) -> None:
        self._refresh_now.set()

    # Updates

    def refresh(self) -> None:
        """Show the current state of the study."""
        with self._lock:
            study = self.study
            running = study is not None and study.running
            best = None if study is None else study.best
            self._buttons["Start"].disabled = running
            self._buttons["Stop"].disabled = not running
            self._buttons["Continue"].disabled = study is None or running
            self._show_picks(() if study is None else study.trials)
            self._buttons["Use"].disabled = best is None and self.pick.value == BEST
            if study is None:
                put(self._summary, "No study: tick the settings to tune and press Start.")
                return
            trials = study.trials
            if self._failure is not study.failure:
                self._failure = study.failure
                put(self._message, "" if self._failure is None else complaint(self._failure))
            put(self._summary, _summary(study, running, best))
            drawn = (id(study), self._order.value, self._view.value, *((one.number, one.state) for one in trials))
            if drawn == self._drawn:
                return
            self._drawn = drawn
            put(self._plots, score_plots(trials, study.ranges))
            shown = trial_pictures if self._view.value == "pictures" else trials_table
            put(self._table, shown(trials, [*study.ranges], self._order.value == "best first"))

    def _show_picks(self, trials: tuple[TunedTrial, ...]) -> None:
        """Offer the trials that have a picture; the one that was picked stays picked."""
        options = [("the best trial", BEST)]
        for trial in trials:
            if trial.picture is not None:
                score = trial.state if trial.score is None else number(trial.score)
                options.append((f"trial {trial.number}: {score}", trial.number))
        if options != [*self.pick.options]:
            picked = self.pick.value
            self.pick.options = options
            self.pick.value = picked if picked in {number for _, number in options} else BEST

    def settle(self, seconds: float = 30.0) -> None:
        """Wait until all clicks are carried out, and refresh. Raises TimeoutError."""
        self._actions.settle(seconds)
        self.refresh()

    def close(self) -> None:
        """Close the view and end its threads; the study continues."""
        self._actions.close()
        super().close()
        self._refresh_now.set()

    def complain(self, error: Exception | None) -> None:
        """Show an error above the trials; None: removes it."""
        put(self._message, complaint(error))


def _python_name(metric: Callable[[Result], float], label: str) -> str:
    """Return a function's name for a line of Python if it is the notebook's or numpy's, else its entry in `metrics`."""
    home, name = getattr(metric, "__module__", ""), getattr(metric, "__qualname__", "")
    if home == "__main__" and name.isidentifier():
        return name
    if getattr(np, name, None) is metric:
        return f"np.{name}"
    return f"metrics[{label!r}]"


def _summary(study: Tuned, running: bool, best: TunedTrial | None) -> str:
    state = "running" if running else "failed" if study.failure is not None else "ready"
    unfinished = sum(trial.state == "running" for trial in study.trials)
    parts = [f"<b>{study.done}</b> of {study.wanted} trials"]
    parts += [f"{unfinished} running"] if unfinished else []
    if best is not None and best.score is not None:
        parts.append(f"best score <b>{number(best.score, 5)}</b> in trial {best.number}")
    path = html.escape(str(study.path))
    return f'{state_row(state, parts)}<small style="overflow-wrap:anywhere">file: <code>{path}</code></small>'
