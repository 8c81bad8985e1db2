"""Records that an engine sends: plain arrays and values, never a tensor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ptynb.data.arrivals import Arrivals
from ptynb.data.images import Picture as Picture
from ptynb.data.record import Array as Array
from ptynb.data.record import Change as Change
from ptynb.data.record import Epoch as Epoch
from ptynb.data.record import RunRecord as RunRecord
from ptynb.data.record import Thumbnail as Thumbnail
from ptynb.data.result import Result as Result
from ptynb.exceptions import InvalidValueError, check_choice

PANES = "amplitude", "phase", "complex"
"""Display modes of an object."""


@dataclass(frozen=True)
class Failure:
    """An exception on an engine.

    lost_group: whether it only reports that another engine has ended. code: of an error of ptynb; empty for others.
    ends_engine: whether the engine's process ends by it, so that another one has to be started. fields: of an error of
    ptynb.
    """

    rank: int
    message: str
    traceback: str
    lost_group: bool = False
    code: str = ""
    ends_engine: bool = False
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Status(RunRecord):
    """Status of an engine.

    number: grows from one status of a worker to the next.
    state: "loading", "ready", "running", "paused", "failed" or "closed".
    epoch, update: completed, of the reconstruction and of the running epoch. target: epoch at which the run ends.
    frames: storage of the patterns, "device", "host" or "disk" (see `Settings.frames`); empty while loading.
    rates: by component. applied: number of the last command applied. epochs: only the requested records.
    checkpoint: path of the newest checkpoint, in which `checkpoint_epoch` epochs are completed (rank 0 only).
    checkpoint_folder: the folder of checkpoints. checkpoint_counts: numbers of checkpoints that this engine has
    written, and failed to write; checkpoint_failure: why the last one failed; writes_checkpoint: whether one is under
    way. notices: messages about problems that did not stop the run, such as a full disk; each once. r_factors: the last
    ones measured, and those of the requested epochs, (epochs completed, amplitude R-factor). arrivals: what has come of
    a scan that is being measured (rank 0 only). live_epochs: completed epochs in which further patterns could come.
    """

    rank: int
    world: int
    state: str
    epoch: int
    updates_per_epoch: int
    target: int
    device: str
    backend: str
    threads: int
    rates: dict[str, float]
    applied: int
    failure: Failure | None = None
    frames: str = ""
    checkpoint: str | None = None
    checkpoint_epoch: int | None = None
    checkpoint_folder: str | None = None
    notices: tuple[str, ...] = ()
    checkpoint_counts: tuple[int, int] = (0, 0)
    checkpoint_failure: str = ""
    writes_checkpoint: bool = False
    arrivals: Arrivals | None = None
    live_epochs: int = 0
    number: int = 0


@dataclass(frozen=True, repr=False)
class Checkpoint:
    """A checkpoint file, to which a reconstruction can be restored.

    path: of the file. branch: the branch that contains it. epoch, update: completed, of the reconstruction and of the
    epoch after it. loss: of the last epoch completed; None before the first. written: time [s since 1970].
    size: of its files [bytes]. stays: whether it is permanent, rather than replaced by newer ones.
    """

    path: Path
    branch: str
    epoch: int
    update: int
    loss: float | None
    written: float
    size: int
    stays: bool = False

    def __repr__(self) -> str:
        updates = f" and {self.update} updates" if self.update else ""
        loss = "" if self.loss is None else f", loss {self.loss:.5g}"
        kept = ", stays" if self.stays else ""
        return f"<Checkpoint on {self.branch} after epoch {self.epoch}{updates}{loss}, {self.size / 1e6:.3g} MB{kept}>"


@dataclass(frozen=True, repr=False)
class Branch:
    """A named line of checkpoints of a reconstruction.

    newest: its newest checkpoint. checkpoints: their number; size: of all of them [bytes]. origin: the branch that it
    started from, at `epoch`; empty for the first. present: whether it is the reconstruction's current branch.
    """

    name: str
    folder: Path
    newest: Checkpoint
    checkpoints: int
    size: int
    origin: str = ""
    epoch: int | None = None
    present: bool = False

    def __repr__(self) -> str:
        origin = f", from {self.origin} at epoch {self.epoch}" if self.origin else ""
        here = ", present" if self.present else ""
        plural = "" if self.checkpoints == 1 else "s"
        return f"<Branch {self.name}: {self.checkpoints} state{plural} up to epoch {self.newest.epoch}{origin}{here}>"


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A preview for display, reduced on the engine.

    object: complex (y, x), averaged over blocks of `reduction` pixels; probe: complex (mode, y, x).
    """

    epoch: int
    update: int
    object: Array
    probe: Array
    reduction: int


@dataclass(frozen=True)
class PhaseRamp:
    """A linear phase over an object: at the centre of pixel (0, 0) of its array [rad], and its steps [rad/pixel]."""

    start: float
    step_y: float
    step_x: float

    def along(self, y: Array | int, x: Array | int) -> tuple[Array, Array]:
        """Return the phase along y at x = 0, and what is added to it along x [rad]; y, x: centres [pixels]."""
        return np.asarray(self.start + self.step_y * y), np.asarray(self.step_x * x)


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """How pictures of an object show its values, so that a picture of a part of it can show them alike.

    amplitude, phase: values of black and white, (low, high). largest: amplitude of full brightness in colours. None:
    there was no such picture. ramp: what is removed from phases; slice_ramps: the same of each slice, for cuts.
    """

    amplitude: tuple[float, float] | None = None
    phase: tuple[float, float] | None = None
    largest: float | None = None
    ramp: PhaseRamp | None = None
    slice_ramps: tuple[PhaseRamp, ...] = ()

    def shows(self, pane: str, flat: bool) -> bool:
        """Return whether it is that of a pane. flat: phases without mean and ramp."""
        if pane == "amplitude":
            return self.amplitude is not None
        return (self.phase if pane == "phase" else self.largest) is not None and (self.ramp is not None) == flat


@dataclass(frozen=True, kw_only=True)
class RenderRequest:
    """What to render of a running reconstruction.

    Parameters
    ----------
    panes : tuple of str, optional
        Pictures of the object: any of "amplitude", "phase" and "complex" (phase as hue, amplitude as brightness).
    slice : int, optional
        Slice of a thick object, 0 for the first; None: the product of all slices.
    state : int, optional
        Object mode, 0 for the first.
    modes : int, optional
        Probe modes at most; 0: none.
    modes_as : str, optional
        "complex" or "amplitude".
    flat : bool, optional
        Whether mean and linear ramp are removed from phases; diffraction patterns do not determine them.
    size : int, optional
        Longest side of the object's pictures [pixels].
    quality : int, optional
        Of the JPEG encoding, 1 to 95.
    cut : tuple of int, optional
        Pixel (y, x) of the object array at which cuts through all slices cross, of an object with several: each pane
        has two more pictures, such as "phase xz" and "phase yz". A pixel outside of what is shown is the nearest one in
        it.
    region : tuple of int, optional
        What is shown: (top, bottom, left, right), pixels [top, bottom) x [left, right) of the object array; None: the
        illuminated area. Contrast and ramp are those of the illuminated area in pictures of this size in any case, so
        that a region is its part with more pixels.
    contrast : Contrast, optional
        That of earlier pictures with the same panes (`Pictures.contrast`): a region is then shown as these were, and
        the illuminated area is not looked at again. None: what suits the present state.

    Raises
    ------
    InvalidValueError
        A value is out of range or not among the choices, or the contrast is that of other panes
        ("argument.invalid-value").
    """

    panes: tuple[str, ...] = ("amplitude", "phase")
    slice: int | None = None
    state: int = 0
    modes: int = 4
    modes_as: str = "complex"
    flat: bool = True
    size: int = 1024
    quality: int = 85
    cut: tuple[int, int] | None = None
    region: tuple[int, int, int, int] | None = None
    contrast: Contrast | None = None

    def __post_init__(self) -> None:
        wrong = [pane for pane in self.panes if pane not in PANES]
        if wrong or len(set(self.panes)) < len(self.panes):
            raise InvalidValueError(
                f"panes is {self.panes}; expected some of {', '.join(PANES)}, each once.", code="argument.invalid-value"
            )
        check_choice(self.modes_as, "modes_as", ("complex", "amplitude"))
        for name, low in (("size", 1), ("modes", 0), ("state", 0), ("slice", 0)):
            value = getattr(self, name)
            if value is not None and value < low:
                raise InvalidValueError(f"{name} is {value}; expected at least {low}.", code="argument.invalid-value")
        if self.cut is not None and (len(self.cut) != 2 or min(self.cut) < 0):
            raise InvalidValueError(
                f"cut is {self.cut}; expected a row and a column of the object array, or None.",
                code="argument.invalid-value",
            )
        self._check_region()
        if not 1 <= self.quality <= 95:
            raise InvalidValueError(f"quality is {self.quality}; expected 1 to 95.", code="argument.invalid-value")

    def _check_region(self) -> None:
        region, contrast = self.region, self.contrast
        if region is not None and not (len(region) == 4 and 0 <= region[0] < region[1] and 0 <= region[2] < region[3]):
            raise InvalidValueError(
                f"region is {region}; expected (top, bottom, left, right) in pixels of the object array, with "
                "0 <= top < bottom and 0 <= left < right, or None.",
                code="argument.invalid-value",
            )
        if contrast is not None and not all(contrast.shows(pane, self.flat) for pane in self.panes):
            raise InvalidValueError(
                f"contrast is that of other pictures than {', '.join(self.panes)} with flat={self.flat}; expected that "
                "of pictures with the same panes, or None.",
                code="argument.invalid-value",
            )


@dataclass(frozen=True, eq=False)
class Pictures:
    """Pictures rendered on rank 0, between two updates.

    pictures: the requested panes by name, their cuts through the slices, such as "phase xz" and "phase yz", if they
    were requested and there are several slices, then the probe's modes: "probe 1", "probe 2" ...
    powers: fraction of the total power in each probe mode, of all modes.
    corner: (y, x) of the first pixel of the object's pictures in the object's array; the part that was not illuminated
    is omitted, or all but the region. slices, states: their numbers in the object. cost: duration of the interruption
    of updates [s]; on a CPU without the time that other processes used its core. contrast: that of the panes, for later
    requests of regions.
    """

    epoch: int
    update: int
    pictures: tuple[Picture, ...]
    powers: tuple[float, ...]
    corner: tuple[int, int] = (0, 0)
    slices: int = 1
    states: int = 1
    cost: float = 0.0
    contrast: Contrast | None = None


@dataclass(frozen=True, eq=False)
class WatchedPictures:
    """Pictures for a watched folder, JPEG files by name: "amplitude", "phase", "probe" (its modes side by side).

    limits: (low, high) of each picture's grey levels or colours; powers: fraction of the total power per probe mode.
    """

    epoch: int
    update: int
    files: dict[str, bytes]
    limits: dict[str, tuple[float, float]]
    powers: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class PatternPair:
    """A measured diffraction pattern, and the modelled one of the current state.

    index: in the whole scan. measured, modelled: (y, x) counts, centred. mask: (y, x) bool, True at working pixels.
    position: (y, x) of the probe window's top-left corner at present [object pixels].
    """

    index: int
    epoch: int
    update: int
    measured: Array
    modelled: Array
    mask: Array
    position: tuple[float, float]

    @property
    def r_factor(self) -> float:
        """Amplitude R-factor Σ |√I - √M| / Σ √I of this pattern alone."""
        measured, modelled = (np.sqrt(counts[self.mask]) for counts in (self.measured, self.modelled))
        return float(np.abs(measured - modelled).sum() / max(measured.sum(), 1e-30))


@dataclass(frozen=True)
class Health:
    """Load, memory and state of an engine.

    patterns: number on this engine; patterns_per_second: rate in the last epoch.
    memory, memory_total: used and total, of its GPU (all processes) or, on a CPU, of its process and of the machine
    [bytes]. load: 0 to 1, of its GPU, or of the cores available to its threads. temperature: of its GPU [°C].
    agreed: the last epoch after which all engines had bitwise equal parameters; 0: none yet.
    problems: errors in background threads of its process. None: unknown. answered: False if it was too busy to answer
    in time, and these are its last values.
    """

    rank: int
    host: str
    device: str
    state: str
    patterns: int = 0
    patterns_per_second: float | None = None
    memory: int | None = None
    memory_total: int | None = None
    load: float | None = None
    temperature: float | None = None
    agreed: int = 0
    problems: tuple[str, ...] = ()
    answered: bool = True
