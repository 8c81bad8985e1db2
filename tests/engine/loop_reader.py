"""What a worker answers about its state, without its thread: requests are answered where they are made."""

from __future__ import annotations

from concurrent.futures import Future

import torch

from ptynb.data.commands import ReduceObject
from ptynb.engine.loop import Loop
from ptynb.engine.rendering import Area, Taken
from ptynb.engine.state_reader import StateReader
from ptynb.supervised_thread import SupervisedThread


class LoopReader(StateReader):
    """Reads a loop whose object is not in tiles."""

    def __init__(self, loop: Loop, area: Area | None = None) -> None:
        """area: taken for the illuminated one."""
        super().__init__(torch.device("cpu"))
        self._loop, self._thread = loop, SupervisedThread("never started", lambda: None)
        if area is not None:
            loop.area = area

    @property
    def _state(self) -> str:
        return "ready"

    def _reduce(self, wanted: ReduceObject) -> Future[Taken]:
        raise AssertionError("this object is not in tiles")
