"""The interface of a reconstruction that the live view uses; `ptynb.Reconstruction` has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ptynb.data.engine_records import Array, Change, Epoch, Health, PatternPair, Pictures, RenderRequest, Result, Status
from ptynb.data.pattern_r_factors import PatternRFactors
from ptynb.data.standard_error import ErrorMap
from ptynb.settings import Settings

Tell = Callable[[str], None]
"""Called with the line of Python equivalent to a click."""

Moment = tuple[tuple[Epoch, ...], tuple[Change, ...]]


class Watched(Protocol):
    """A reconstruction that a view shows. `scan` has a length and a `pattern_shape` (y, x)."""

    scan: Any
    settings: Settings
    r_factor_every: int

    @property
    def epochs(self) -> tuple[Epoch, ...]: ...  # noqa: D102
    @property
    def changes(self) -> tuple[Change, ...]: ...  # noqa: D102
    @property
    def r_factors(self) -> tuple[tuple[int, float], ...]: ...  # noqa: D102
    @property
    def failure(self) -> Exception | None: ...  # noqa: D102
    @property
    def can_recover(self) -> bool: ...  # noqa: D102
    @property
    def recovering(self) -> bool: ...  # noqa: D102
    @property
    def notices(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def engines(self) -> str: ...  # noqa: D102
    @property
    def batch(self) -> str: ...  # noqa: D102
    @property
    def closed(self) -> bool: ...  # noqa: D102
    @property
    def positions(self) -> tuple[Array, Array]: ...  # noqa: D102
    @property
    def result(self) -> Result: ...  # noqa: D102
    def last_status(self) -> Status | None: ...  # noqa: D102
    def pictures(self, request: RenderRequest) -> Pictures | None: ...  # noqa: D102
    def value_at(self, name: str, y: int, x: int, request: RenderRequest) -> complex | float: ...  # noqa: D102
    def pattern(self, index: int) -> PatternPair: ...  # noqa: D102
    def pattern_r_factors(self, seconds: float | None = None) -> PatternRFactors: ...  # noqa: D102
    def error_map(  # noqa: D102
        self,
        epochs: int | None = None,
        *,
        engines: int = 0,
        progress: Callable[[int, int], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> ErrorMap: ...
    def health(self) -> tuple[Health, ...]: ...  # noqa: D102
    def start(self, epochs: int) -> None: ...  # noqa: D102
    def pause(self) -> None: ...  # noqa: D102
    def resume(self) -> None: ...  # noqa: D102
    def stop(self) -> None: ...  # noqa: D102
    def recover(self) -> None: ...  # noqa: D102


def moment_of(recon: Watched) -> Moment:
    """Return a key of states of equal epoch and update, such as those of two branches or before and after a change."""
    return recon.epochs[-1:], recon.changes[-1:]
