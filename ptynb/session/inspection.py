"""Looking at a reconstruction while it runs: pictures, single patterns, positions, and how its engines are."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ptynb.data.scan import Scan
from ptynb.data.snapshot import Array, Health, PatternPair, Pictures, RenderRequest, Snapshot
from ptynb.exceptions import ClusterError, ReconstructionError
from ptynb.session.engine_client import EngineClient

HEALTH_SECONDS = 1.0
"""How long an engine is given to say how it is; one that is in the middle of something says so later."""
MOST_AT_ONCE = 16


class InspectionMixin(ABC):
    """What can be asked of a running reconstruction; engines answer between two updates."""

    scan: Scan
    _link: EngineClient
    _holder: tuple[int, int] | None = None
    """The pattern that was looked at last, and the rank that holds it."""
    _health: tuple[Health, ...] = ()

    @abstractmethod
    def _alive(self) -> None:
        """Raises where there is nothing any more that could be asked."""

    @abstractmethod
    def _call(self, rank: int, method: str, *arguments: Any) -> Any:
        """Calls a method of this rank's worker."""

    @abstractmethod
    def _loaded(self) -> None:
        """Waits until the engines have read the scan."""

    @abstractmethod
    def _order(self, kind: str, value: Any) -> None:
        """Gives a command to all engines and waits until they have obeyed."""

    def snapshot(self, size: int = 512) -> Snapshot:
        """A preview of object and probe from rank 0, the object reduced to at most `size` pixels a side."""
        if size < 1:
            raise ReconstructionError(f"snapshot got a size of {size} pixels; expected at least 1.")
        self._loaded()
        snapshot: Snapshot = self._call(0, "snapshot", size)
        return snapshot

    def pictures(self, request: RenderRequest | None = None) -> Pictures | None:
        """Pictures for a screen, made on rank 0; None while the engines are still loading."""
        self._alive()
        return self._link.look(request or RenderRequest())

    def value_at(self, name: str, y: int, x: int, request: RenderRequest | None = None) -> complex | float:
        """The exact value behind pixel (y, x) of a picture: of its array, without reduction and grey levels.

        name, request: as of the pictures ("amplitude", "phase", "complex", "probe 1" ...); complex for what is shown in
        colours. Raises ClusterError or ValueError where there is no such picture or pixel.
        """
        self._loaded()
        value: complex | float = self._call(0, "value_at", name, y, x, request or RenderRequest())
        return value

    def pattern(self, index: int) -> PatternPair:
        """A diffraction pattern as it was measured, and what the present state makes of it; from whoever holds it."""
        if not 0 <= index < len(self.scan):
            raise ReconstructionError(f"pattern got {index}; expected 0 to {len(self.scan) - 1}.")
        self._loaded()
        ranks = [*range(self._link.engines.world)]
        if self._holder is not None and self._holder[0] == index and self._holder[1] in ranks:
            ranks.insert(0, self._holder[1])
        for rank in ranks:
            found: PatternPair | None = self._call(rank, "pattern", index)
            if found is not None:
                self._holder = index, rank
                return found
        raise ReconstructionError(f"No engine holds pattern {index}; this is a fault of ptynb.")

    @property
    def positions(self) -> tuple[Array, Array]:
        """Top-left corners of the probe windows at the start and now, (pattern, yx) float64 [object pixels]."""
        self._loaded()
        positions: tuple[Array, Array] = self._call(0, "positions")
        return positions

    def health(self) -> tuple[Health, ...]:
        """How each engine is, by rank: speed, memory, load, temperature, and when all were last found equal.

        Waits for none that is busy: what that one said last is told again, as not `answered`.
        """
        ranks = range(self._link.engines.world)
        before = {one.rank: one for one in self._health}
        with ThreadPoolExecutor(min(len(ranks), MOST_AT_ONCE), "ptynb health") as pool:
            self._health = tuple(pool.map(lambda rank: self._ask_health(rank, before.get(rank)), ranks))
        return self._health

    def _ask_health(self, rank: int, before: Health | None) -> Health:
        try:
            health: Health = self._link.engines.call(rank, "health", timeout=HEALTH_SECONDS)
        except ClusterError:
            known = before or Health(rank, host="", device="", state="unknown")
            return dataclasses.replace(known, answered=False)
        return health

    @property
    def r_factors(self) -> tuple[tuple[int, float], ...]:
        """(epochs completed, amplitude R-factor over all patterns), as far as measured: see `r_factor_every`."""
        return tuple(sorted(self._link.r_factors.items()))

    @property
    def r_factor_every(self) -> int:
        """Epochs from one measurement of the R-factor to the next, each a pass over all patterns without gradients.

        0: none but with `result`. Assigning takes effect before the next update.
        """
        return self._link.r_factor_every

    @r_factor_every.setter
    def r_factor_every(self, epochs: int) -> None:
        if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 0:
            raise ReconstructionError(f"r_factor_every is {epochs!r}; expected a number of epochs, or 0 for never.")
        self._link.r_factor_every = epochs
        self._order("measure", epochs)
