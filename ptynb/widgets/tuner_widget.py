"""Tuning: a study is started from ticked settings, and its trials are shown as they come."""

from __future__ import annotations

import html
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import ipywidgets
import numpy as np

from ptynb.data.snapshot import Result
from ptynb.data.trial_record import TunedTrial
from ptynb.exceptions import InvalidValueError
from ptynb.settings import Settings
from ptynb.settings.ranges import Range
from ptynb.widgets.actions import Actions
from ptynb.widgets.elements import Whole, complaint, in_a_row, put
from ptynb.widgets.polling import keep_fresh
from ptynb.widgets.trial_table import score_plots, trials_table

LOOK_SECONDS = 0.4
METRICS = {"Loss of the last epoch": "loss", "Fourier ring correlation of halves": "frc"}
TELLING = {
    "loss": "The loss of the last epoch; it may fall by fitting noise.",
    "frc": "1 less the mean correlation of two reconstructions from half the scan each.",
}

Metric = str | Callable[[Result], float]


class Tuned(Protocol):
    """What the view needs of a study; `ptynb.Study` has it."""

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
    """Makes a study that runs, as `ptynb.tune` does, with what the widget chose."""

    def __call__(  # noqa: D102
        self, ranges: Mapping[str, Any], *, trials: int, epochs: int, metric: Metric, study: str | None
    ) -> Tuned: ...


class Tuner(Whole):
    """Trials of settings: how many, by which metric, the table of them, scores against parameters, and the best.

    make: makes a study and starts it. ranges: asked for what is ticked when Start is clicked.
    use: is given the best settings; None: there is no such button. metrics: the user's functions, by name.
    tell: is given the line of Python that does what was just done; `cluster`: its name in there, "" without one.
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
        self._lock, self._look_now = threading.Lock(), threading.Event()
        self._make_fields(metrics or {})
        self._buttons = {
            "Start": self._button("Start", "play", "A new study, or the one in the file", self._start),
            "Stop": self._button("Stop", "stop", "Ends the trials under way; they can be tried again", self._stop),
            "Go on": self._button("Go on", "forward", "The trials that are left, or as many again", self._go_on),
            "Use the best": self._button("Use the best", "check", "Takes over the best trial's settings", self._take),
        }
        self._buttons["Use the best"].layout.display = None if use else "none"
        self._summary, self._message, self._plots, self._table = (ipywidgets.HTML() for _ in range(4))
        self._order = ipywidgets.Dropdown(
            options=["best first", "newest first"], description="Order", layout=ipywidgets.Layout(width="200px")
        )
        self._order.observe(lambda _: self._look_now.set(), "value")
        self._actions = Actions("ptynb tuner", self.complain, self._clear, self._look_now.set)
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
        keep_fresh(self, "ptynb tuner view", LOOK_SECONDS, self._look_now)

    def _make_fields(self, metrics: Mapping[str, Callable[[Result], float]]) -> None:
        number = {"min": 1, "style": {"description_width": "50px"}, "layout": ipywidgets.Layout(width="130px")}
        self.trials = ipywidgets.BoundedIntText(20, max=100_000, description="Trials", **number)
        self.epochs = ipywidgets.BoundedIntText(30, max=1_000_000, description="Epochs", **number)
        self.metric = ipywidgets.Dropdown(
            options=[*METRICS.items(), *metrics.items()],
            description="Score",
            tooltip="What is to be small",
            style={"description_width": "50px"},
            layout=ipywidgets.Layout(width="330px"),
        )
        self.file = ipywidgets.Text(
            description="File",
            placeholder="a new one for each study",
            tooltip="Keeps the trials; the file of an earlier study is gone on with, after a restart too",
            continuous_update=False,
            style={"description_width": "40px"},
            layout=ipywidgets.Layout(width="320px"),
        )
        self._about = ipywidgets.HTML()
        self.metric.observe(lambda _: self._tell_metric(), "value")
        self._tell_metric()

    def _tell_metric(self) -> None:
        words = TELLING.get(self.metric.value, "What your function returns for each result; small is good.")
        put(self._about, f'<p style="margin:2px 0;color:var(--jp-ui-font-color2,#616161)">Score: {words}</p>')

    def _button(self, text: str, icon: str, tip: str, action: Callable[[], None]) -> ipywidgets.Button:
        button = ipywidgets.Button(description=text, icon=icon, tooltip=tip, layout=ipywidgets.Layout(width="130px"))
        button.on_click(lambda _: self._actions.put(action))
        return button

    # Actions

    def show(self, study: Tuned) -> None:
        """Shows a study that was started elsewhere."""
        with self._lock:
            self.study = study
        self._look_now.set()

    def _start(self) -> None:
        if self.study is not None and self.study.running:
            raise InvalidValueError("A study is under way; press Stop first: a new one takes its engines.")
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
        score = repr(metric) if isinstance(metric, str) else _named(metric, self.metric.label)
        self._say(
            f"study = pt.tune(scan, settings, {study.ranges!r}{cluster}, trials={self.trials.value}, "
            f"epochs={self.epochs.value}, metric={score}, study={str(study.path)!r})"
        )

    def _stop(self) -> None:
        if self.study is not None:
            self.study.stop()
            self._say("study.stop()")

    def _go_on(self) -> None:
        if self.study is not None:
            more = None if self.study.done < self.study.wanted else self.trials.value
            self.study.start(more)
            self._say("study.start()" if more is None else f"study.start({more})")

    def _take(self) -> None:
        if self.study is not None and self._use is not None:
            self._use(self.study.best_settings)
            self._say("settings = study.best_settings")

    def _say(self, line: str) -> None:
        if self.tell is not None:
            self.tell(line)

    # Looking

    def refresh(self) -> None:
        """Shows what there is now."""
        with self._lock:
            study = self.study
            running = study is not None and study.running
            best = None if study is None else study.best
            self._buttons["Start"].disabled = running
            self._buttons["Stop"].disabled = not running
            self._buttons["Go on"].disabled = study is None or running
            self._buttons["Use the best"].disabled = best is None
            if study is None:
                put(self._summary, "No study yet: tick what is to be tuned, and start.")
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
        """Waits until all that was clicked is done, and shows it. Raises TimeoutError."""
        self._actions.settle(seconds)
        self.refresh()

    @property
    def closed(self) -> bool:
        """Whether the view was closed."""
        return self.comm is None

    def close(self) -> None:
        """Ends the view and its threads; the study goes on."""
        self._actions.close()
        super().close()
        self._look_now.set()

    def complain(self, error: Exception) -> None:
        """Shows an error above the trials, until something else is done."""
        put(self._message, complaint(error))

    def _clear(self) -> None:
        put(self._message, "")


def _named(metric: Callable[[Result], float], label: str) -> str:
    """What a line of Python calls a function: its name where that is the notebook's or numpy's, else its place."""
    home, name = getattr(metric, "__module__", ""), getattr(metric, "__qualname__", "")
    if home == "__main__" and name.isidentifier():
        return name
    if getattr(np, name, None) is metric:
        return f"np.{name}"
    return f"metrics[{label!r}]"


def _summary(study: Tuned, running: bool, best: TunedTrial | None) -> str:
    state = "running" if running else "failed" if study.failure is not None else "ready"
    under_way = sum(trial.state == "running" for trial in study.trials)
    parts = [f"<b>{study.done}</b> of {study.wanted} trials"]
    parts += [f"{under_way} under way"] if under_way else []
    if best is not None:
        parts.append(f"best score <b>{best.score:.5g}</b> in trial {best.number}")
    path = html.escape(str(study.path))
    return f'{in_a_row(state, parts)}<small style="overflow-wrap:anywhere">kept in <code>{path}</code></small>'
