"""What is known of a reconstruction by following it: asks no engine, so it is at hand also while they are busy."""

from __future__ import annotations

from pathlib import Path

from ptynb.data.snapshot import Change, Epoch, Status
from ptynb.exceptions import ReconstructionError
from ptynb.session.engine_client import EngineClient


class StatusMixin:
    """What of a `Reconstruction` was told by its engines, at most 0.1 s ago."""

    _link: EngineClient

    @property
    def epoch(self) -> int:
        """Epochs completed."""
        return len(self._link.epochs)

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """The record of all epochs completed, as far as it has come here (at most 0.1 s ago)."""
        return tuple(self._link.epochs)

    @property
    def changes(self) -> tuple[Change, ...]:
        """Settings changed so far, with the epoch and update before which all engines took them over."""
        status = self.last_status()
        return status.changes if status else ()

    @property
    def failure(self) -> ReconstructionError | None:
        """What ended it, if something did."""
        return self._link.failure

    @property
    def notices(self) -> tuple[str, ...]:
        """What went wrong without stopping anything, such as a full disk; each once, as a sentence."""
        status = self.last_status()
        return status.notices if status else ()

    @property
    def latest_checkpoint(self) -> Path | None:
        """The file with the newest state kept so far: what `recover`, and `ptynb.resume`, go on from."""
        status = self.last_status()
        return None if status is None or status.kept is None else Path(status.kept)

    @property
    def can_recover(self) -> bool:
        """Whether it failed in a way after which `recover` can go on."""
        return self._link.failure is not None and self._link.can_recover

    @property
    def recovering(self) -> bool:
        """Whether it is being opened again after an engine was lost."""
        return self._link.recovering

    @property
    def engines(self) -> str:
        """What reconstructs: number and kind of engines, the backend between them, and whether frames are on disk."""
        status = self.last_status()
        joined = f", {status.backend}" if status and status.world > 1 else ""
        streamed = ", frames read from disk" if status and status.frames == "disk" else ""
        return f"{self._link.engines.description}{joined}{streamed}"

    def last_status(self) -> Status | None:
        """Where rank 0 stood at most 0.1 s ago; asks nobody."""
        return self._link.statuses.get(0)
