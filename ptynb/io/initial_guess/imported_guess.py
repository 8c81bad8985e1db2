"""What another package found, in ptynb's conventions: axes, signs, and corners of windows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.exceptions import FileError, PtynbWarning

Array = NDArray[Any]


class InitialGuessWarning(PtynbWarning):
    """Something about a start that stops nothing, and that the user should know of."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Start:
    """Object, probe and positions that a package found.

    package: its name for a reader. path: the file it came from; None: from memory.
    probe: complex (mode, y, x), centred in its window (index n // 2); any scale.
    object: complex (y, x) or (slice, y, x); None where it can't be placed.
    positions: (pattern, yx) float64, top-left corners of the probe's windows in pixels of `object`; None: not stored.
    pixel_size: (y, x) of an object pixel [m]; None: not stored.
    origin: (y, x) scan coordinates of the object's first pixel; known of ptynb's own results only.
    thickness: distance between two slices [m]. curved: whether the package multiplies the exit wave by the phase
        exp(iπ r² / (λ z)) of the way to the detector, which ptynb leaves with the probe.
    notes: what could not be taken over, as sentences.
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
        self._check("probe", self.probe, (3,))
        if self.object is not None:
            self._check("object", self.object, (2, 3))
        if min(self.probe.shape[-2:]) < 4:
            self._refuse(f"a probe of {self.probe.shape[-2]} x {self.probe.shape[-1]} pixels; expected at least 4 x 4")
        if not np.abs(self.probe).any():
            self._refuse("a probe that is zero everywhere; expected a result, not an empty file")
        places = self.positions
        if places is not None and (places.ndim != 2 or places.shape[1] != 2 or not np.isfinite(places).all()):
            self._refuse(f"positions of shape {places.shape}; expected finite numbers (pattern, 2)")
        if self.pixel_size is not None and not all(0 < size < 1 for size in self.pixel_size):
            self._refuse(f"object pixels of {self.pixel_size} m; expected two lengths between 0 and 1 m")
        if self.thickness is not None and not 0 < abs(self.thickness) < 1:
            self._refuse(f"slices {self.thickness} m apart; expected a length between 0 and 1 m")

    @property
    def window(self) -> tuple[int, int]:
        """Pixels (y, x) of the probe's window."""
        return self.probe.shape[-2], self.probe.shape[-1]

    @property
    def label(self) -> str:
        """Where it came from, for sentences."""
        return self.package if self.path is None else f"{self.path} ({self.package})"

    def _check(self, name: str, values: Array, dimensions: tuple[int, ...]) -> None:
        if values.ndim not in dimensions or values.size == 0:
            expected = " or ".join(str(number) for number in dimensions)
            self._refuse(f"{name} of shape {values.shape}; expected {expected} dimensions and some pixels")
        if not np.isfinite(values).all():
            self._refuse(f"{name} with {int((~np.isfinite(values)).sum())} values that are not finite")

    def _refuse(self, what: str) -> None:
        raise FileError(f"{self.label} has {what}.")

    def __repr__(self) -> str:
        object = "no object" if self.object is None else f"object {' x '.join(map(str, self.object.shape))}"
        places = "no positions" if self.positions is None else f"{len(self.positions)} positions"
        return f"<Start from {self.label}: {object}, probe {' x '.join(map(str, self.probe.shape))}, {places}>"
