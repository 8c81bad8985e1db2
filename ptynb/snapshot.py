"""What leaves an engine: plain arrays and records, never a tensor."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Epoch:
    """One pass over every pattern.

    number: 1 for the first.
    loss: over all patterns of all engines, as they were met during the epoch; 0 is a perfect fit. Amplitude and Poisson
        losses are divided by the total counts, the intensity loss by the sum of squared counts.
    seconds: wall time of the epoch [s], pauses left out.
    patterns_per_second: over all engines together [1/s].
    """

    number: int
    loss: float
    seconds: float
    patterns_per_second: float

    def __str__(self) -> str:
        speed = f"{self.seconds:.3g} s ({self.patterns_per_second:.0f} patterns/s)"
        return f"epoch {self.number}: loss {self.loss:.5g}, {speed}"


@dataclass(frozen=True)
class Change:
    """A setting that was changed while the reconstruction ran.

    epoch: epochs completed before it; update: updates of the running epoch completed before it.
    """

    epoch: int
    update: int
    name: str
    old: Any
    new: Any


@dataclass(frozen=True)
class Failure:
    """An exception on an engine.

    lost_group: it only says that another engine left in the middle of something.
    """

    rank: int
    message: str
    traceback: str
    lost_group: bool = False


@dataclass(frozen=True)
class Status:
    """Where an engine stands.

    state: "loading", "ready", "running", "paused", "failed" or "closed".
    epoch, update: completed, of the reconstruction and of the running epoch. target: epoch at which the run ends.
    frames: where they are, "device", "host" or "disk" (see `Settings.frames`); empty while loading.
    rates: by part. applied: number of the last command obeyed. epochs: the records asked for only.
    kept: path of the newest whole state, in which `kept_epoch` epochs are completed (rank 0 only); kept_in: the folder
    of states. keeps: how many were kept by this
    engine, and how many could not be. notices: sentences about what went wrong without stopping anything, such as a
    full disk; each once.
    """

    rank: int
    world: int
    state: str
    epoch: int
    update: int
    updates_per_epoch: int
    target: int
    device: str
    backend: str
    threads: int
    rates: dict[str, float]
    applied: int
    epochs: tuple[Epoch, ...] = ()
    changes: tuple[Change, ...] = ()
    failure: Failure | None = None
    frames: str = ""
    kept: str | None = None
    kept_epoch: int | None = None
    kept_in: str | None = None
    notices: tuple[str, ...] = ()
    keeps: tuple[int, int] = (0, 0)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A preview for looking at, reduced on the engine.

    object: complex (y, x), every `reduction`-th pixel by averaging; probe: complex (mode, y, x).
    """

    epoch: int
    update: int
    object: Array
    probe: Array
    reduction: int


@dataclass(frozen=True, eq=False)
class Kept:
    """A state of the reconstruction, all of one moment: what a `Result` is made from.

    object: complex (y, x), (slice, y, x) or (state, slice, y, x); probe: complex (mode, y, x).
    positions, origin, optimised: as in `Result`. settings: as plain values. frames: as in `Status`.
    """

    object: Array
    probe: Array
    positions: Array
    optimised: dict[str, Array]
    origin: tuple[int, int]
    r_factor: float
    epochs: tuple[Epoch, ...]
    changes: tuple[Change, ...]
    settings: dict[str, Any]
    frames: str = ""


@dataclass(frozen=True, eq=False)
class Picture:
    """One picture for a screen: grey levels that stand for values, or colours that stand for themselves.

    name: what it shows, unique among those shown together ("amplitude"); title: the same for a reader.
    image: a PNG or JPEG file, of `shape` divided by `reduction` pixels.
    shape: (y, x) of the array behind it; reduction: how many of its pixels a side one of the picture stands for.
    limits: values of grey 0 and grey 255; None: the image is in colours (hue for phase, brightness for amplitude).
    unit: of the values. pixel_size: (y, x) of a pixel of the array [m]; None: unknown. colours: colour map at first.
    note: a sentence beneath it.
    """

    name: str
    title: str
    image: bytes
    shape: tuple[int, int]
    reduction: int = 1
    limits: tuple[float, float] | None = None
    unit: str = ""
    pixel_size: tuple[float, float] | None = None
    colours: str = "gray"
    note: str = ""


@dataclass(frozen=True)
class PictureRequest:
    """What a live view wants to see.

    size: longest side of the object's pictures [screen pixels]; modes: probe modes at most.
    colours: look-up tables (256, 3) uint8 by the pictures' names: "amplitude", "phase", "probe".
    quality: of the JPEG encoding, 1 to 95.
    """

    size: int = 512
    modes: int = 4
    colours: dict[str, Array] = field(default_factory=dict)
    quality: int = 85


@dataclass(frozen=True, eq=False)
class Pictures:
    """Pictures made on rank 0, as JPEG: object amplitude, object phase, probe modes side by side.

    limits: (low, high) of each picture's colours; powers: each probe mode's part of the total.
    """

    epoch: int
    update: int
    amplitude: bytes
    phase: bytes
    probe: bytes
    limits: dict[str, tuple[float, float]]
    powers: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Result:
    """Everything worth keeping of a reconstruction.

    object: complex (y, x); of a thick one (slice, y, x); of one with several states (state, slice, y, x).
    probe: complex (mode, y, x), in square roots of counts.
    positions: float64 (pattern, yx): top-left corners of the probe windows in pixels of `object`, as they were found.
    optimised: what else was found, by "part/name": "weights/weights", "background/background", "slices/thickness" ...
    origin: (y, x) of the object's first pixel in the scan's own coordinates [object pixels].
    losses: float64 (epoch,): the loss of each epoch (see `Epoch`).
    pixel_size: (y, x) of an object pixel [m]; None where the geometry is unknown.
    r_factor: amplitude R-factor, sum |sqrt(I) - sqrt(model)| / sum sqrt(I), of the final state over all patterns.
    settings: as they were at the end, as plain values; changes: what was changed on the way.
    about: scan, versions, engines, devices, backend, effective batch, where the frames were.
    """

    object: Array
    probe: Array
    positions: Array
    origin: tuple[int, int]
    epochs: tuple[Epoch, ...]
    r_factor: float
    settings: dict[str, Any]
    changes: tuple[Change, ...] = ()
    pixel_size: tuple[float, float] | None = None
    about: dict[str, str] = field(default_factory=dict)
    optimised: dict[str, Array] = field(default_factory=dict)

    @property
    def slices(self) -> Array:
        """The slices (slice, y, x) of the object, of its first state; one of a thin object."""
        object = self.object[0] if self.object.ndim == 4 else self.object
        return object.reshape(-1, *object.shape[-2:])

    @property
    def projection(self) -> Array:
        """The object as if it were thin (y, x): the product of its slices, of its first state."""
        projection: Array = self.slices.prod(0)
        return projection

    @property
    def losses(self) -> NDArray[np.float64]:
        """The loss of each epoch."""
        return np.array([epoch.loss for epoch in self.epochs], dtype=np.float64)

    def __repr__(self) -> str:
        loss = f", loss {self.epochs[-1].loss:.5g}" if self.epochs else ""
        return (
            f"<Result: object {' x '.join(str(side) for side in self.object.shape)}, {len(self.probe)} probe modes, "
            f"{len(self.epochs)} epochs{loss}, R-factor {self.r_factor:.4f}>"
        )


def as_plain(record: Any) -> dict[str, Any]:
    """A record's fields as a dictionary of plain values."""
    return dataclasses.asdict(record)
