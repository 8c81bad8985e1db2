"""Result: everything worth keeping of a reconstruction, with the record of how it came about."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.record import Array, Change, Epoch, Moment


@dataclass(frozen=True)
class ScanIdentity:
    """Which scan it was, and how to open it again.

    name, patterns, window (y, x): as in `Scan`.
    path: of the file or folder that `load` was given, absolute; empty for arrays and simulations.
    size [bytes] and modified [s since 1970, UTC]: of that file when the scan was opened; None for a folder and where
        there is none.
    given: the words that `load` was given beside the path, as plain values ({"energy": 8000.0}).
    arrays: names of those words that were arrays, and so can't be written down ("mask", "positions").
    digest: SHA-256 of positions, mask, geometry, guesses and shape, hexadecimal: the same only for the same metadata.
    counts: sum of all counts where the mask is True; None: not known.
    fourier: whether the patterns lie in Fourier space (far field). wavelength [m], distance [m], detector_pixel (y, x)
        [m]: where they are known.
    """

    name: str
    patterns: int = 0
    window: tuple[int, int] = (0, 0)
    path: str = ""
    size: int | None = None
    modified: float | None = None
    given: dict[str, Any] = field(default_factory=dict)
    arrays: tuple[str, ...] = ()
    digest: str = ""
    counts: float | None = None
    fourier: bool = True
    wavelength: float | None = None
    distance: float | None = None
    detector_pixel: tuple[float, float] | None = None


@dataclass(frozen=True)
class Software:
    """Versions that it ran with. system: operating system and processor. Empty: not known."""

    ptynb: str = ""
    torch: str = ""
    numpy: str = ""
    h5py: str = ""
    python: str = ""
    system: str = ""


@dataclass(frozen=True)
class Machines:
    """What it ran on at the end.

    engines: how many; threads: of each on a CPU. devices: name of each engine's, by rank ("node1 cuda:0 (H200)").
    kind: number and kind in words ("2 engines on CPU"). backend: of torch.distributed ("gloo", "nccl", "none").
    frames: where the patterns were, "device", "host" or "disk". batch: the effective one, in words.
    extensions: names of the classes of the user's own pieces and constraints, which a file can't hold.
    """

    engines: int = 0
    threads: int = 0
    devices: tuple[str, ...] = ()
    kind: str = ""
    backend: str = ""
    frames: str = ""
    batch: str = ""
    extensions: tuple[str, ...] = ()


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
    r_factors: the same on the way, (epochs completed, R-factor), where it was measured.
    settings: as they were at the end, as plain values; began_with: at the start. changes: what was changed on the way.
    update: updates of an epoch that is not complete, where it was stopped in the middle of one.
    started: when it was opened first; ended: when this was taken; both ISO 8601 in UTC, empty where not known.
    moments: how it looked at a few epochs on the way, the earliest first.
    scan, software, machines: which data, versions and devices; empty ones where they are not known.
    failure: what ended it, if something did.
    title: one line, comments: text in Markdown, of the user's.
    about: the same facts as words, by name, for lists of them.
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
    r_factors: tuple[tuple[int, float], ...] = ()
    began_with: dict[str, Any] = field(default_factory=dict)
    update: int = 0
    started: str = ""
    ended: str = ""
    moments: tuple[Moment, ...] = ()
    scan: ScanIdentity = ScanIdentity("")
    software: Software = Software()
    machines: Machines = Machines()
    failure: str = ""
    title: str = ""
    comments: str = ""

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

    @property
    def seed(self) -> int | None:
        """Of all that is random: the order of patterns, and new modes; None where the settings don't say."""
        found = self.settings.get("seed")
        return found if isinstance(found, int) else None

    def __repr__(self) -> str:
        loss = f", loss {self.epochs[-1].loss:.5g}" if self.epochs else ""
        return (
            f"<Result: object {' x '.join(str(side) for side in self.object.shape)}, {len(self.probe)} probe modes, "
            f"{len(self.epochs)} epochs{loss}, R-factor {self.r_factor:.4f}>"
        )
