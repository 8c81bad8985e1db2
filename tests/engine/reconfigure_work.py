"""Functions that ranks run in tests of reconfiguration, importable by other processes."""

from __future__ import annotations

import torch

from ptynb.data.scan import Scan
from ptynb.distributed.group import Membership, join
from ptynb.engine.loop import Loop
from ptynb.io.checkpoint_file import ReconstructionState
from ptynb.settings import Settings


def moved(membership: Membership, scan: Scan, state: ReconstructionState, epochs: int) -> set[str]:
    """The pieces that take part and have moved so many epochs after the state."""
    group = join(membership)
    loop = Loop(scan, Settings(**state.begun), group)
    loop.restore(state)
    before = {
        name: [one.detach().clone() for one in piece.parameters()] for name, piece in loop.model.components.items()
    }
    while loop.epoch < state.epoch + epochs:
        loop.step()
    found = {
        name
        for name, piece in loop.model.components.items()
        if piece.active and not all(map(torch.equal, piece.parameters(), before[name]))
    }
    loop.disconnect()
    group.close()
    return found
