"""What of a result is exported: object or probe, amplitude or phase, one layer of it or all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ptynb.data.result import Result
from ptynb.exceptions import FileError

Of = Literal["object", "probe"]
What = Literal["amplitude", "phase", "complex"]
Array = NDArray[Any]


@dataclass(frozen=True)
class Chosen:
    """A choice; see `ptynb.io.export.export`. Raises FileError for words that are none."""

    of: Of = "object"
    what: What | None = None
    slice: int | None = None

    def __post_init__(self) -> None:
        if self.of not in get_args(Of):
            raise FileError(f"of is {self.of!r}; expected 'object' or 'probe'.", code="argument.invalid-value")
        if self.what is not None and self.what not in get_args(What):
            raise FileError(
                f"what is {self.what!r}; expected 'amplitude', 'phase' or 'complex'.", code="argument.invalid-value"
            )

    @property
    def word(self) -> str:
        """What a layer is called."""
        return "slice" if self.of == "object" else "mode"

    def layers(self, result: Result) -> Array:
        """Complex (layer, y, x): all slices or modes, or the one that was chosen."""
        found = result.slices if self.of == "object" else result.probe
        return found if self.slice is None else found[self._index(found)][None]

    def picture(self, result: Result) -> Array:
        """Complex (y, x): the one that was chosen; else the object as if it were thin, or the first mode."""
        if self.slice is None:
            return result.projection if self.of == "object" else result.probe[0]
        layer: Array = self.layers(result)[0]
        return layer

    def _index(self, found: Array) -> int:
        assert self.slice is not None
        if not 0 <= self.slice < len(found):
            raise FileError(
                f"{self.word} {self.slice} was asked for, and the {self.of} has {len(found)}; count from 0.",
                code="argument.invalid-value",
            )
        return self.slice


def real(field: Array, what: str) -> NDArray[np.float32]:
    """Amplitude or phase [rad] of complex values."""
    return (np.abs(field) if what == "amplitude" else np.angle(field)).astype(np.float32)
