"""Windows of positions that move, as the host of a GPU knows them: never fewer blocks than they cover."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ptynb.distributed.group import SingleGroup
from ptynb.engine.loop import Loop
from ptynb.optimize.covered_region import Windows, largest_step, touched_blocks
from ptynb.optimize.gradient_descent import Gradient
from ptynb.optimize.optimizers import RowAdam
from ptynb.settings import Affine, Positions, ProbeOffset, Settings
from tests.cases import sparse_scan

ROWS = Positions(learning_rate=2.0, max_shift=30.0)
# name -> settings, and whether less than the whole object has to be known to be covered
MOVING: dict[str, tuple[Settings, bool]] = {
    "fixed": (Settings(batch=3), True),
    "positions": (Settings(batch=3, positions=ROWS), True),
    "positions without momentum": (Settings(batch=3, positions=ROWS.model_copy(update={"momentum": 0.0})), True),
    "offset": (Settings(batch=3, probe_offset=ProbeOffset(learning_rate=0.5)), True),
    "affine": (Settings(batch=3, affine=Affine(learning_rate=0.5)), True),
    "all": (
        Settings(
            batch=3, positions=ROWS, affine=Affine(learning_rate=0.1), probe_offset=ProbeOffset(learning_rate=0.1)
        ),
        True,
    ),
    "sgd": (Settings(batch=3, optimiser="sgd", positions=Positions(learning_rate=10.0, max_shift=5.0)), True),
    "sgd, offset": (Settings(batch=3, optimiser="sgd", probe_offset=ProbeOffset(learning_rate=1.0)), False),
    "radam": (Settings(batch=3, optimiser="radam", affine=Affine(learning_rate=0.5)), False),
}


@pytest.mark.parametrize("case", MOVING)
def test_blocks_hold_the_windows_of_every_update(case: str) -> None:
    settings, known = MOVING[case]
    loop = Loop(sparse_scan(), settings, SingleGroup(torch.device("cpu")))
    assert isinstance(loop.algorithm, Gradient)
    windows, copies, farthest = Windows(loop.model, loop.algorithm.optimisers, on_gpu=True), 0, 0
    start = loop.model.initial_positions.round().numpy()
    found = list[float]()
    for update in range(3 * loop.updates):
        if update % loop.updates == 0:
            windows.forget()  # as `Gradient.prepare`
            table = loop.order.epoch(1 + update // loop.updates)
        before = windows._copied
        members = table[:, update % loop.updates]
        members = members[members >= 0]
        blocks = windows.blocks(members, update % loop.updates)
        copies += windows._copied is not before
        origins = loop.model.window_origins_and_shifts(loop.model.all_patterns())[0].numpy()[members]
        farthest = max(farthest, int(np.abs(origins - start[members]).max()))
        assert not (touched_blocks(origins, loop.model.window, windows.shape) & ~blocks).any(), (case, update)
        found.append(blocks.mean())
        _push(loop, members, update)
    loop.disconnect()
    assert copies <= 3, "the host waits once an epoch"
    assert (min(found) < 0.9) == known
    assert farthest > 2 or case == "fixed", "windows have to move farther than the rounding"


def _push(loop: Loop, members: NDArray[np.int64], update: int) -> None:
    """An update by gradients that grow as fast as is worst for Adam, all in one direction."""
    assert isinstance(loop.algorithm, Gradient)
    for mover in loop.model.movers:
        for parameter in mover.parameters():
            parameter.grad = torch.full_like(parameter, -(1.11**update))
    for optimiser in loop.algorithm.optimisers:
        if isinstance(optimiser, RowAdam):
            optimiser.batch = torch.from_numpy(members)
        optimiser.step()
    with torch.no_grad():
        for mover in loop.model.movers:
            mover.update_done()


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9, 0.99])
def test_no_gradients_make_a_larger_step_of_adam(momentum: float) -> None:
    """The worst ones grow by b/c; random ones do not reach them."""
    squares, most = 0.999, 0.0
    bound = largest_step(momentum, squares)
    for gradients in (*np.random.default_rng(0).standard_normal((5, 4000)), _worst(momentum, squares, 4000)):
        mean = square = 0.0
        for step, gradient in enumerate(gradients, start=1):
            mean = momentum * mean + (1 - momentum) * gradient
            square = squares * square + (1 - squares) * gradient**2
            corrected = abs(mean) / (1 - momentum**step) / np.sqrt(square / (1 - squares**step))
            most = max(most, float(corrected))
    assert 0.5 * bound < most <= bound


def _worst(momentum: float, squares: float, count: int) -> list[float]:
    """Nearly nothing for long, so that the corrections have no effect, then growing ones."""
    return [1e-30] * (count - 200) + [max(1e-30, (momentum / squares) ** (200 - step)) for step in range(1, 201)]
