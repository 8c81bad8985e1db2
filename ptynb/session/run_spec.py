"""RunSpec: the arguments needed to open a reconstruction on engines, or to attach to it later."""

from __future__ import annotations

import dataclasses
import pickle
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from ptynb.data.patterns import AbsentFrames
from ptynb.data.scan import Scan
from ptynb.exceptions import SettingsError
from ptynb.optimize.batching import patterns_of
from ptynb.physics.components.component import ModelComponent
from ptynb.physics.constraints import CustomConstraint
from ptynb.plugins import Plugin
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
    timeout: float = 30.0
    on_failure: OnFailure = "pause"
    opened: float = field(default_factory=time.time)
    ranks: tuple[int, ...] | None = None
    plan: StagePlan = WITHOUT_STAGES

    def patterns_of(self, rank: int, world: int) -> NDArray[np.int64]:
        """Return the patterns that an engine needs in the present and in later stages, ascending."""
        return patterns_of(self.scan, self.plan.settings_from(self.settings), rank, world)

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        """Plug-ins that the present and later stages use."""
        of_stages = (plugin for one in self.plan.settings_from(self.settings) for plugin in one.plugins)
        return (*dict.fromkeys((*self.scan.plugins, *of_stages)),)

    @property
    def extension_names(self) -> tuple[str, ...]:
        """Class names of the user's components and constraints."""
        return tuple(type(one).__qualname__ for one in pickle.loads(self.extensions))

    def without_patterns(self) -> RunSpec:
        """Return a copy for engines to store, without patterns if some are in memory."""
        frames = self.scan.frames
        if not frames.sent_bytes(np.arange(frames.shape[0])):
            return self
        return dataclasses.replace(self, scan=self.scan.with_frames(AbsentFrames(frames.shape, frames.dtype.str)))


def pickled(extensions: Sequence[Any], plan: StagePlan) -> bytes:
    """Return the user's components and constraints pickled (cloudpickle).

    Raises SettingsError if they are of another type, or would have to follow a change of the window.
    """
    for extension in extensions:
        if not isinstance(extension, ModelComponent | CustomConstraint):
            raise SettingsError(
                f"extensions has {extension!r:.80}; expected instances of ptynb.ModelComponent or "
                "ptynb.CustomConstraint (an instance, not the class).",
                code="argument.invalid-type",
            )
    own = [one for one in extensions if isinstance(one, ModelComponent)]
    if own and len({stage.pattern_size for stage in plan.stages}) > 1:
        raise SettingsError(
            f"The stages have different pattern_size, and the component {type(own[0]).__name__} of the user cannot be "
            "resampled; use one pattern_size, or leave the component out.",
            code="settings.unsupported-combination",
        )
    return cloudpickle.dumps(tuple(extensions))
