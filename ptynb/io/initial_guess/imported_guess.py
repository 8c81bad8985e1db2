"""An initial guess from another package, in ptynb's conventions (axes, signs, corners of windows)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.exceptions import FileError, PtynbWarning

Array = NDArray[Any]


class InitialGuessWarning(PtynbWarning):
    """An initial guess was applied, but was incomplete or does not fit the patterns."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ImportedGuess:
    """Object, probe and positions of another package's result.

    package: name for messages. path: file it was read from; None: in memory.
    probe: complex (mode, y, x), centred in its window (index n // 2); any scale.
    object: complex (y, x) or (slice, y, x); None if its position is unknown.
    positions: (pattern, yx) float64, top-left corners of the probe's windows in pixels of `object`; None: not stored.
    pixel_size: (y, x) of an object pixel [m]; None: not stored.
    origin: (y, x) scan coordinates of the object's first pixel; only of ptynb's own results.
    thickness: distance between two slices [m]. curved: whether the package multiplies the exit wave by the phase
        exp(iπ r² / (λ z)) of the propagation to the detector, which in ptynb is part of the probe.
    notes: messages about what could not be imported.
    """

    package: str
    probe: Array
    path: Path | None = None
    object: Array | None = None
    positions: NDArray[np.float64] | None = None
    pixel_size: tuple[float, float] | None = None
    origin: tuple[int, int] | None = None
    thickness: float | None = None
    curved: bool = False
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, values, dimensions in (("probe", self.probe, (3,)), ("object", self.object, (2, 3))):
            if values is None:
                continue
            found = f"{self.label} has {name} of shape {values.shape}"
            if values.ndim not in dimensions or values.size == 0:
                expected = " or ".join(map(str, dimensions))
                raise FileError(f"{found}; expected {expected} dimensions, not empty.", code="file.unexpected-content")
            if not np.isfinite(values).all():
                count = int((~np.isfinite(values)).sum())
                raise FileError(f"{found} with {count} values that are not finite.", code="array.not-finite")
        places, problem = self.positions, ""
        if min(self.window) < 4:
            problem = f"a probe of {self.window[0]} x {self.window[1]} pixels; expected at least 4 x 4"
        elif not np.abs(self.probe).any():
            problem = "a probe that is zero everywhere; expected the result of a reconstruction"
        elif places is not None and (places.ndim != 2 or places.shape[1] != 2 or not np.isfinite(places).all()):
            problem = f"positions of shape {places.shape}; expected finite numbers (pattern, 2)"
        elif self.pixel_size is not None and not all(0 < size < 1 for size in self.pixel_size):
            problem = f"object pixels of {self.pixel_size} m; expected two lengths between 0 and 1 m"
        elif self.thickness is not None and not 0 < abs(self.thickness) < 1:
            problem = f"a slice distance of {self.thickness} m; expected a length between 0 and 1 m"
        if problem:
            raise FileError(f"{self.label} has {problem}.", code="file.unexpected-content")

    @property
    def window(self) -> tuple[int, int]:
        """Shape (y, x) of the probe's window [pixels]."""
        return self.probe.shape[-2], self.probe.shape[-1]

    @property
    def label(self) -> str:
        """Path or package, for messages."""
        return self.package if self.path is None else f"{self.path} ({self.package})"

    def __repr__(self) -> str:
        object = "no object" if self.object is None else f"object {' x '.join(map(str, self.object.shape))}"
        places = "no positions" if self.positions is None else f"{len(self.positions)} positions"
        return f"<ImportedGuess from {self.label}: {object}, probe {' x '.join(map(str, self.probe.shape))}, {places}>"
