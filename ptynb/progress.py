"""How far a run is, for a terminal (a bar) or a log (a line now and then)."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, final

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from ptynb.data.snapshot import Epoch

# numpy, which the records of ptynb.data.snapshot are made with, is loaded by whoever has epochs to show.

LOOK_SECONDS = 0.05
LINE_SECONDS = 3.0
"""A log gets a line at most this often, and one of the last epoch."""


class SupportsProgress(Protocol):
    """What `follow` needs of a reconstruction."""

    @property
    def epochs(self) -> tuple[Epoch, ...]: ...  # noqa: D102
    @property
    def state(self) -> str: ...  # noqa: D102
    @property
    def failure(self) -> Exception | None: ...  # noqa: D102
    def start(self, epochs: int) -> None: ...  # noqa: D102


class ProgressDisplay(ABC):
    """What shows how far a run is; used with `with`."""

    @abstractmethod
    def show(self, epoch: Epoch) -> None:
        """Shows the newest epoch."""

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class _WholeRows(Progress):
    """Rich's bar, which its own thread draws column by column: never one epoch's number beside another's loss."""

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

    def show(self, epoch: Epoch) -> None:
        """Moves the bar."""
        with self._progress.row:
            self._progress.update(
                self._task, completed=epoch.number, loss=f"{epoch.loss:.5f}", speed=epoch.patterns_per_second
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


@final
class LogProgress(ProgressDisplay):
    """Lines in a log, every few seconds, and one of the last epoch."""

    def __init__(self, console: Console, target: int, every: float = LINE_SECONDS) -> None:
        self._console, self._target, self._every = console, target, every
        self._written_at = float("-inf")
        self._waiting: Epoch | None = None

    def show(self, epoch: Epoch) -> None:
        """Writes a line, if the last one is long enough ago or this is the last epoch."""
        self._waiting = epoch
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
    """A bar where the console is a terminal, lines where it is a log."""
    return Bar(console, target, done) if console.is_terminal else LogProgress(console, target)


def line(epoch: Epoch, target: int) -> str:
    """An epoch for a log: 'epoch 12/200 loss 0.0123 0.52 s (940 patterns/s)'."""
    speed = f"{epoch.seconds:.3g} s ({epoch.patterns_per_second:.0f} patterns/s)"
    return f"epoch {epoch.number}/{target} loss {epoch.loss:.5g} {speed}"


def log(console: Console, text: str) -> None:
    """Prints a line as it is, never wrapped; in a log with the local time before it."""
    stamp = "" if console.is_terminal else f"{time.strftime('%Y-%m-%dT%H:%M:%S')} "
    console.print(f"{stamp}{text}", markup=False, highlight=False, soft_wrap=True)


def follow(
    recon: SupportsProgress, target: int, console: Console, meanwhile: Callable[[], None] = lambda: None
) -> None:
    """Runs until so many epochs are done in all, and shows how far it is.

    meanwhile: called again and again.
    Returns once the run has ended, also where it was stopped or closed from elsewhere. Raises what ended it otherwise.
    """
    done = len(recon.epochs)
    if done >= target:
        return
    with shown_on(console, target, done) as shown:
        recon.start(target - done)
        while True:
            state = recon.state  # before the epochs: those of a run that has ended are all there then
            epochs = recon.epochs
            if len(epochs) > done:
                done = len(epochs)
                shown.show(epochs[-1])
            meanwhile()
            if recon.failure is not None:
                raise recon.failure
            if state in ("ready", "closed"):
                return
            time.sleep(LOOK_SECONDS)
