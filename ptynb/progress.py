"""Progress of a run, as a bar in a terminal or lines in a log."""

from __future__ import annotations

import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, final

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ptynb.exceptions import ReconstructionError

if TYPE_CHECKING:
    from ptynb.data.arrivals import Arrivals
    from ptynb.data.engine_records import Epoch

# Not imported at run time, since they import numpy.

LOOK_SECONDS = 0.05
LINE_SECONDS = 3.0
"""Shortest interval of the lines in a log [s]; the last epoch has a line, too."""


class SupportsProgress(Protocol):
    """Interface of a reconstruction for `follow`."""

    @property
    def epochs(self) -> tuple[Epoch, ...]: ...  # noqa: D102
    @property
    def state(self) -> str: ...  # noqa: D102
    @property
    def failure(self) -> Exception | None: ...  # noqa: D102
    def start(self, epochs: int) -> None: ...  # noqa: D102
    def wait(self, timeout: float | None = None) -> None: ...  # noqa: D102


class SupportsLiveProgress(SupportsProgress, Protocol):
    """Interface of a reconstruction for `follow_live`."""

    @property
    def arrivals(self) -> Arrivals | None: ...  # noqa: D102
    @property
    def target(self) -> int: ...  # noqa: D102


class ProgressDisplay(ABC):
    """Base class of progress displays; context managers."""

    @abstractmethod
    def show(self, epoch: Epoch, target: int | None = None) -> None:
        """Show the latest epoch. target: number of epochs, if it has changed."""

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class _WholeRows(Progress):
    """Bar of rich with a lock for each row, so that all columns show the same epoch."""

    def __init__(self, *columns: ProgressColumn, console: Console) -> None:
        self.row = threading.RLock()
        super().__init__(*columns, console=console)

    def make_tasks_table(self, tasks: Iterable[Task]) -> Table:
        with self.row:
            return super().make_tasks_table(tasks)


@final
class Bar(ProgressDisplay):
    """A bar in a terminal: epoch, loss over all engines, patterns/s, time left."""

    def __init__(self, console: Console, target: int, done: int) -> None:
        columns = (
            TextColumn("epoch {task.completed:.0f}/{task.total:.0f}"),
            BarColumn(),
            TextColumn("loss {task.fields[loss]}"),
            _SpeedColumn(),
            TimeRemainingColumn(),
        )
        self._progress = _WholeRows(*columns, console=console)
        self._task = self._progress.add_task("", total=target, completed=done, loss="-", speed=0.0)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def show(self, epoch: Epoch, target: int | None = None) -> None:
        """Update the bar."""
        with self._progress.row:
            self._progress.update(
                self._task,
                total=target,
                completed=epoch.number,
                loss=f"{epoch.loss:.5f}",
                speed=epoch.patterns_per_second,
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


@final
class LogProgress(ProgressDisplay):
    """Lines in a log, every few seconds, and for the last epoch."""

    def __init__(self, console: Console, target: int, every: float = LINE_SECONDS) -> None:
        self._console, self._target, self._every = console, target, every
        self._written_at = float("-inf")
        self._waiting: Epoch | None = None

    def show(self, epoch: Epoch, target: int | None = None) -> None:
        """Write a line if the interval has passed or this is the last epoch."""
        self._waiting, self._target = epoch, target or self._target
        if epoch.number >= self._target or time.monotonic() - self._written_at >= self._every:
            self._write()

    def _write(self) -> None:
        if self._waiting is not None:
            log(self._console, line(self._waiting, self._target))
            self._waiting, self._written_at = None, time.monotonic()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write()


class _SpeedColumn(ProgressColumn):
    """Patterns per second."""

    def render(self, task: Task) -> Text:
        speed = task.fields["speed"]
        return Text(f"{speed:8.0f} patterns/s" if speed else "", style="cyan")


def shown_on(console: Console, target: int, done: int = 0) -> ProgressDisplay:
    """Return a bar for a terminal, lines for a log."""
    return Bar(console, target, done) if console.is_terminal else LogProgress(console, target)


def line(epoch: Epoch, target: int) -> str:
    """Return an epoch as a line of a log: 'epoch 12/200 loss 0.0123 0.52 s (940 patterns/s)'."""
    speed = f"{epoch.seconds:.3g} s ({epoch.patterns_per_second:.0f} patterns/s)"
    return f"epoch {epoch.number}/{target} loss {epoch.loss:.5g} {speed}"


def log(console: Console, text: str) -> None:
    """Print a line without wrapping; in a log with the local time."""
    stamp = "" if console.is_terminal else f"{time.strftime('%Y-%m-%dT%H:%M:%S')} "
    console.print(f"{stamp}{text}", markup=False, highlight=False, soft_wrap=True)


def follow(
    recon: SupportsProgress, target: int, console: Console, meanwhile: Callable[[], None] = lambda: None
) -> None:
    """Run until `target` epochs are complete in total, and show the progress.

    meanwhile: called in every iteration. Returns when the run has ended, also if another caller stopped or closed it.
    Raises the error of a failed run.
    """
    done = len(recon.epochs)
    if done >= target:
        return
    with shown_on(console, target, done) as shown:
        recon.start(target - done)
        for epoch in _latest_epochs(recon, done, meanwhile):
            if epoch is not None:
                shown.show(epoch)


def follow_live(
    recon: SupportsLiveProgress, epochs: int, console: Console, meanwhile: Callable[[], None] = lambda: None
) -> None:
    """Run a scan that is being measured until `epochs` more are complete after its end, and show the progress.

    meanwhile, return and errors: as of `follow`.
    """
    done = len(recon.epochs)
    with ArrivalDisplay(console) as shown:
        recon.start(epochs)
        latest = _latest_epochs(recon, done, meanwhile)
        for epoch in latest:
            arrivals = recon.arrivals
            if arrivals is not None and shown.show(arrivals, epoch):
                break
    with shown_on(console, recon.target, len(recon.epochs)) as shown_epochs:
        for epoch in latest:
            if epoch is not None:
                shown_epochs.show(epoch, recon.target)


def _latest_epochs(
    recon: SupportsProgress, done: int, meanwhile: Callable[[], None] = lambda: None
) -> Iterator[Epoch | None]:
    """Yield the latest epoch again and again until the run has ended; None if it was yielded before.

    done: number of epochs at the beginning. Raises the error of a failed run.
    """
    while True:
        state = recon.state  # read before the epochs, so that all epochs of a run that has ended are shown
        epochs = recon.epochs
        yield epochs[-1] if len(epochs) > done else None
        done = len(epochs)
        meanwhile()
        if recon.failure is not None:
            raise recon.failure
        if state in ("ready", "closed"):
            return
        with contextlib.suppress(TimeoutError, ReconstructionError):  # the next iteration raises a failure
            recon.wait(LOOK_SECONDS)


class ArrivalDisplay:
    """What has come of a scan that is being measured: a line that is renewed in a terminal, lines in a log."""

    def __init__(self, console: Console, every: float = LINE_SECONDS) -> None:
        self._console, self._every = console, every
        self._written_at = float("-inf")
        self._status = console.status("") if console.is_terminal else None
        self._epoch: Epoch | None = None

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def show(self, arrivals: Arrivals, epoch: Epoch | None) -> bool:
        """Show the numbers, and the latest epoch if there is a new one. Return whether they will not change."""
        self._epoch = epoch or self._epoch
        if arrivals.ended is not None and (arrivals.admitted or 0) + arrivals.refused >= arrivals.placed:
            log(self._console, f"{arrived(arrivals)}; {arrivals.ended}.")
            return True
        text = arrived(arrivals)
        if self._epoch is not None:
            text += f"; epoch {self._epoch.number} loss {self._epoch.loss:.5g}"
        if self._status is not None:
            self._status.update(Text(text))
        elif time.monotonic() - self._written_at >= self._every:
            log(self._console, text)
            self._written_at = time.monotonic()
        return False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()


def arrived(arrivals: Arrivals) -> str:
    """Return what has come as text: '812 of 1024 patterns came, 790 used, 3 missing, 98.2 patterns/s'."""
    parts = [f"{arrivals.arrived} of {arrivals.planned} patterns came", f"{arrivals.admitted or 0} used"]
    parts += [text for text, _ in arrivals.remarks()]
    if arrivals.rate:
        parts.append(f"{arrivals.rate:.3g} patterns/s")
    return ", ".join(parts)
