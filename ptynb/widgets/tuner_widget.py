"""Tuning: starts a study of the ticked settings and shows its trials."""

from __future__ import annotations

import html
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import ipywidgets
import numpy as np

from ptynb.data.engine_records import Result
from ptynb.data.trial_record import TunedTrial
from ptynb.exceptions import InvalidValueError
from ptynb.settings import Settings
from ptynb.settings.ranges import Range
from ptynb.widgets.actions import Actions, repeat
from ptynb.widgets.shared_widgets import Whole, complaint, put, state_row
from ptynb.widgets.trial_table import score_plots, trials_table

REFRESH_SECONDS = 0.4
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
    def path(self) -> Any: ...  # noqa: D102
    def start(self, trials: int | None = None) -> None: ...  # noqa: D102
    def stop(self) -> None: ...  # noqa: D102


class Make(Protocol):
    """A function that starts a study, as `ptynb.tune` does."""

    def __call__(  # noqa: D102
        self, ranges: Mapping[str, Any], *, trials: int, epochs: int, metric: Metric, study: str | None
    ) -> Tuned: ...


class Tuner(Whole):
    """Trials of a study: number, metric, table, plots of scores, and the best trial.

    make: starts a study. ranges: returns the ranges to tune when Start is clicked. use: called with the best settings;
    None: no button for it. metrics: functions of the user by name. tell: called with the line of Python that does the
    same as a click; `cluster`: the name of the cluster in it, "" without one.
    """

    def __init__(
        self,
        make: Make,
        ranges: Callable[[], Mapping[str, Any]],
        *,
        use: Callable[[Settings], Any] | None = None,
        metrics: Mapping[str, Callable[[Result], float]] | None = None,
        cluster: str = "cluster",
    ) -> None:
        self.study: Tuned | None = None
        self.tell: Callable[[str], None] | None = None
        self.cluster = cluster
        self._make, self._ranges, self._use = make, ranges, use
        self._drawn: tuple[Any, ...] = ()
        self._failure: Exception | None = None
        self._lock, self._refresh_now = threading.Lock(), threading.Event()
        self._make_fields(metrics or {})
        self._buttons = {
            "Start": self._button("Start", "play", "Starts a new study, or continues the one in the file", self._start),
            "Stop": self._button("Stop", "stop", "Ends the running trials; they can be repeated", self._stop),
            "Continue": self._button(
                "Continue", "forward", "Runs the remaining trials, or as many again", self._continue
            ),
            "Use best": self._button("Use best", "check", "Uses the settings of the best trial", self._use_best),
        }
        self._buttons["Use best"].layout.display = None if use else "none"
        self._summary, self._message, self._plots, self._table = (ipywidgets.HTML() for _ in range(4))
        self._order = ipywidgets.Dropdown(
            options=["best first", "newest first"], description="Order", layout=ipywidgets.Layout(width="200px")
        )
        self._order.observe(lambda _: self._refresh_now.set(), "value")
        self._actions = Actions("ptynb tuner", self.complain, self._refresh_soon)
        rows = [[self.trials, self.epochs, self.metric, self.file], [*self._buttons.values(), self._order]]
        layout = {"flex_flow": "row wrap", "overflow": "visible"}
        super().__init__(
            [
                *(ipywidgets.HBox(row, layout=ipywidgets.Layout(**layout)) for row in rows),
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
        number = {"min": 1, "style": {"description_width": "50px"}, "layout": ipywidgets.Layout(width="130px")}
        self.trials = ipywidgets.BoundedIntText(20, max=100_000, description="Trials", **number)
        self.epochs = ipywidgets.BoundedIntText(30, max=1_000_000, description="Epochs", **number)
        self.metric = ipywidgets.Dropdown(
            options=[*METRICS.items(), *metrics.items()],
            description="Score",
            tooltip="The value to minimise",
            style={"description_width": "50px"},
            layout=ipywidgets.Layout(width="330px"),
        )
        self.file = ipywidgets.Text(
            description="File",
            placeholder="default: a new file for each study",
            tooltip="Stores the trials; an earlier study is continued if its file is named",
            continuous_update=False,
            style={"description_width": "40px"},
            layout=ipywidgets.Layout(width="320px"),
        )
        self._about = ipywidgets.HTML()
        self.metric.observe(lambda _: self._describe_metric(), "value")
        self._describe_metric()

    def _describe_metric(self) -> None:
        text = DESCRIPTIONS.get(self.metric.value, "The value of your function for each result; smaller is better.")
        put(self._about, f'<p style="margin:2px 0;color:var(--jp-ui-font-color2,#616161)">Score: {text}</p>')

    def _button(self, text: str, icon: str, tip: str, action: Callable[[], None]) -> ipywidgets.Button:
        button = ipywidgets.Button(description=text, icon=icon, tooltip=tip, layout=ipywidgets.Layout(width="130px"))
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
        metric = self.metric.value
        study = self._make(
            self._ranges(),
            trials=self.trials.value,
            epochs=self.epochs.value,
            metric=metric,
            study=self.file.value.strip() or None,
        )
        self.show(study)
        cluster = f", {self.cluster}" if self.cluster else ""
        score = repr(metric) if isinstance(metric, str) else _python_name(metric, self.metric.label)
        self._say(
            f"study = pt.tune(scan, settings, {study.ranges!r}{cluster}, trials={self.trials.value}, "
            f"epochs={self.epochs.value}, metric={score}, study={str(study.path)!r})"
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

    def _use_best(self) -> None:
        if self.study is not None and self._use is not None:
            self._use(self.study.best_settings)
            self._say("settings = study.best_settings")

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
            self._buttons["Use best"].disabled = best is None
            if study is None:
                put(self._summary, "No study: tick the settings to tune and press Start.")
                return
            trials = study.trials
            if self._failure is not study.failure:
                self._failure = study.failure
                put(self._message, "" if self._failure is None else complaint(self._failure))
            put(self._summary, _summary(study, running, best))
            drawn = (id(study), self._order.value, *((one.number, one.state) for one in trials))
            if drawn == self._drawn:
                return
            self._drawn = drawn
            put(self._plots, score_plots(trials, study.ranges))
            put(self._table, trials_table(trials, [*study.ranges], self._order.value == "best first"))

    def settle(self, seconds: float = 30.0) -> None:
        """Wait until all clicks are carried out, and refresh. Raises TimeoutError."""
        self._actions.settle(seconds)
        self.refresh()

    @property
    def closed(self) -> bool:
        """Whether the view was closed."""
        return self.comm is None

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
    if best is not None:
        parts.append(f"best score <b>{best.score:.5g}</b> in trial {best.number}")
    path = html.escape(str(study.path))
    return f'{state_row(state, parts)}<small style="overflow-wrap:anywhere">file: <code>{path}</code></small>'
