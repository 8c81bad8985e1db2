"""What it takes to open a reconstruction on engines, and to open or join it again later."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from ptynb.data.patterns import AbsentFrames
from ptynb.data.scan import Scan
from ptynb.settings import Checkpointing, Settings

OnFailure = Literal["pause", "continue"]


@dataclass(frozen=True)
class Opening:
    """A reconstruction that can be opened. Engines remember it for who joins them later.

    extensions: pieces and constraints of the user's, by value (cloudpickle). keep: how states are kept; None: not.
    timeout: seconds after which engines give up waiting for each other. opened: when, seconds since 1970.
    ranks: those of the cluster that it is confined to, in the order of the group's; None: all of them.
    """

    scan: Scan
    settings: Settings
    extensions: bytes
    keep: Checkpointing | None
    timeout: float
    on_failure: OnFailure
    opened: float
    ranks: tuple[int, ...] | None = None

    def for_memory(self) -> Opening:
        """The same for engines to remember: patterns that are in no file stay behind."""
        frames = self.scan.frames
        if frames.in_file:
            return self
        return dataclasses.replace(self, scan=self.scan.with_frames(AbsentFrames(frames.shape, frames.dtype.str)))
