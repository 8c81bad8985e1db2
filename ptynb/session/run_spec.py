"""RunSpec: the arguments needed to open a reconstruction on engines, or to attach to it later."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ptynb.data.patterns import AbsentFrames
from ptynb.data.scan import Scan
from ptynb.optimize.batching import patterns_of
from ptynb.settings import Checkpointing, Settings
from ptynb.settings.recipe import WITHOUT_STAGES, StagePlan

OnFailure = Literal["pause", "continue"]


@dataclass(frozen=True)
class RunSpec:
    """Arguments of a reconstruction; engines store them for `attach`.

    extensions: the user's components and constraints, pickled (cloudpickle). checkpointing: None: no checkpoints.
    timeout: longest time that engines wait for each other [s]. opened: time of opening [s since 1970].
    ranks: ranks of the engines in the cluster, in the order of the ranks in the group; None: all.
    plan: the stages, and the one that `settings` belong to.
    """

    scan: Scan
    settings: Settings
    extensions: bytes
    checkpointing: Checkpointing | None
    timeout: float
    on_failure: OnFailure
    opened: float
    ranks: tuple[int, ...] | None = None
    plan: StagePlan = WITHOUT_STAGES

    def patterns_of(self, rank: int, world: int) -> NDArray[np.int64]:
        """Return the patterns that an engine needs in the present and in later stages, ascending."""
        return patterns_of(self.scan, self.plan.settings_from(self.settings), rank, world)

    def without_patterns(self) -> RunSpec:
        """Return a copy for engines to store, without patterns if some are in memory."""
        frames = self.scan.frames
        if not frames.sent_bytes(np.arange(frames.shape[0])):
            return self
        return dataclasses.replace(self, scan=self.scan.with_frames(AbsentFrames(frames.shape, frames.dtype.str)))
