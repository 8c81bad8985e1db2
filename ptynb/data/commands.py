"""Commands to running engines: rank 0 gets them, and all ranks apply each before the same update."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, get_args


@dataclass(frozen=True)
class StartRun:
    """Train so many more epochs."""

    epochs: int


@dataclass(frozen=True)
class AdvanceRun:
    """Train one epoch of a run that ends with epoch `last`."""

    last: int


@dataclass(frozen=True)
class RunTo:
    """Train until `epoch`, and `update` updates of the next one, are completed; `Settings.stop` does not apply.

    run: epochs completed at the beginning of the run that this is a part of, and its last epoch; empty: this is all.
    """

    epoch: int
    update: int
    run: tuple[int, ...] = ()


@dataclass(frozen=True)
class SetTarget:
    """Let the run end with this epoch."""

    epoch: int


@dataclass(frozen=True)
class PauseRun:
    """Suspend the run."""


@dataclass(frozen=True)
class ResumeRun:
    """Continue a run that is suspended."""


@dataclass(frozen=True)
class StopRun:
    """End the run."""


RunCommand = StartRun | AdvanceRun | RunTo | SetTarget | PauseRun | ResumeRun | StopRun
"""Commands that begin, suspend or end a run."""


@dataclass(frozen=True)
class ChangeSettings:
    """Change to these plain values of all or some settings."""

    values: dict[str, Any]


@dataclass(frozen=True)
class MakeResult:
    """Measure the R-factor and make a result.

    file: an empty file that the kernel has made, into which rank 0 writes a large object in tiles (`Loop.arrays`) if it
    sees that file, too; "": there is none.
    """

    file: str = ""


@dataclass(frozen=True)
class MeasureEvery:
    """Measure the R-factor after every so many epochs; 0: never."""

    epochs: int


@dataclass(frozen=True)
class Annotate:
    """Set the user's title and comments."""

    title: str
    comments: str


@dataclass(frozen=True)
class CheckpointRequest:
    """Write a checkpoint. Where and as what, rank 0 fills in when it gets the command.

    token: prefix of the tokens of this group's checkpoints, unique. stays: names of files that are not overwritten.
    """

    folder: str = ""
    run: str = ""
    token: str = ""
    stays: tuple[str, ...] = ()


@dataclass(frozen=True)
class AdmitPatterns:
    """Use further patterns, of which rank 0 tells itself. admission: by `Admission.plain`; None: it was applied."""

    admission: dict[str, Any] | None


@dataclass(frozen=True)
class ReduceObject:
    """Reduce an area of an object in tiles to a picture, for rank 0.

    state, slice: as in `RenderRequest`. area: (top, bottom, left, right) of the whole object. block: side of the blocks
    that are averaged [pixels]. cut: pixel (y, x) of the whole object through which a row and a column of all slices are
    wanted, too.
    """

    state: int
    slice: int | None
    area: tuple[int, ...]
    block: int
    cut: tuple[int, ...] | None = None


@dataclass(frozen=True)
class LeaveRun:
    """Write a checkpoint if anything changed since the last one, and close."""


@dataclass(frozen=True)
class CloseRun:
    """Leave the group and end."""


Command = (
    RunCommand
    | ChangeSettings
    | MakeResult
    | MeasureEvery
    | Annotate
    | CheckpointRequest
    | AdmitPatterns
    | ReduceObject
    | LeaveRun
    | CloseRun
)
_KINDS: dict[str, type[Command]] = {kind.__name__: kind for kind in get_args(Command)}


def plain_command(command: Command) -> list[Any]:
    """Return a command as values for JSON."""
    return [type(command).__name__, asdict(command)]


def command_of(plain: list[Any]) -> Command:
    """Return the command of `plain_command`; tuples are lists."""
    kind, values = plain
    return _KINDS[kind](**values)
