"""Result: everything worth keeping of a reconstruction, with the record of how it came about."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.data.provenance import Machines, ScanIdentity, Software
from ptynb.data.record import Array, RunRecord, at


@dataclass(frozen=True, eq=False)
class Result(RunRecord):
    """Everything worth keeping of a reconstruction.

    object: complex (y, x); of a thick one (slice, y, x); of one with several states (state, slice, y, x).
    probe: complex (mode, y, x), in square roots of counts.
    positions: float64 (pattern, yx): top-left corners of the probe windows in pixels of `object`, as they were found.
    parameters: what else was found, by "part/name": "weights/weights", "background/background" (counts of a pixel, with
        the zero frequency at index n // 2 as in centred patterns), "slices/thickness" ...
        and, where positions may move, what they began as: "positions/start", like `positions`.
    origin: (y, x) of the object's first pixel in the scan's own coordinates [object pixels].
    losses: float64 (epoch,): the loss of each epoch (see `Epoch`).
    pixel_size: (y, x) of an object pixel [m]; None where the geometry is unknown.
    r_factor: amplitude R-factor, sum |sqrt(I) - sqrt(model)| / sum sqrt(I), of the final state over all patterns.
    r_factors: the same on the way, (epochs completed, R-factor), where it was measured.
    settings: as they were at the end, as plain values; initial_settings: at the start. changes: what was changed on
    the way.
    update: updates of an epoch that is not complete, where it was stopped in the middle of one.
    started: when it was opened first; ended: when this was taken; both ISO 8601 in UTC, empty where not known.
    history: how it looked at a few epochs on the way, the earliest first.
    scan, software, machines: which data, versions and devices; empty ones where they are not known.
    failure: what ended it, if something did.
    title: one line, comments: text in Markdown, of the user's.
    metadata: the same facts as words, by name, for lists of them.
    """

    object: Array
    probe: Array
    positions: Array
    origin: tuple[int, int] = field(metadata=at("object@origin"))
    _: KW_ONLY
    r_factor: float = field(metadata=at("@r_factor"))
    pixel_size: tuple[float, float] | None = field(default=None, metadata=at("object@pixel_size"))
    parameters: dict[str, Array] = field(default_factory=dict, metadata=at("optimised"))
    initial_settings: dict[str, Any] = field(default_factory=dict, metadata=at("settings/at_start", required=True))
    ended: str = field(default="", metadata=at("entry/end_time", required=True))
    scan: ScanIdentity = field(default_factory=ScanIdentity, metadata=at("scan", required=True))
    software: Software = field(default_factory=Software, metadata=at("software", required=True))
    machines: Machines = field(default_factory=Machines, metadata=at("machines", required=True))
    failure: str = field(default="", metadata=at("entry/failure", required=True))

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
