"""Updates recorded as graphs on the pretended GPU, against the same updates without: prints JSON.

The recorder keeps each operation with its arguments: tensors by their memory, numbers as they are, as CUDA graphs do.
Replaying repeats the operations on this memory. So a number that should have changed, or an input that is not
copied into the graph, gives other results than an update without a graph.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from typing import Any, final
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

import ptynb as pt
from ptynb.distributed.group import SingleGroup
from ptynb.engine.loop import Loop
from ptynb.loading import engine_patterns
from ptynb.optimize import update_graphs
from ptynb.physics.gpu_line_operations import VARIABLE
from tests.gpu import pretended
from tests.gpu.pretended import GPU, LOG, Mode, Pretended

Change = Callable[[pt.Settings], pt.Settings]
S = pt.Settings
SMALL = {"batch": 8, "precision": "double"}
THIN = {"count": 2, "thickness": 2e-6}
CASES: dict[str, tuple[pt.Settings, dict[int, Change]]] = {
    "plain": (S(**SMALL), {}),
    "schedule": (S(**SMALL, schedule={"kind": "cosine", "epochs": 3, "end_factor": 0.1}), {}),
    "rates": (
        S(**SMALL),
        {
            1: lambda now: now.replace(object={"learning_rate": 0.05}),
            2: lambda now: now.replace(probe={"learning_rate": 0.0}),
        },
    ),
    "positions later": (S(**SMALL, positions={"learning_rate": 0.1, "start_epoch": 2}), {}),
    "detector": (
        S(
            **SMALL,
            positions={"learning_rate": 0.1},
            pattern_intensities={"learning_rate": 0.01},
            background={"learning_rate": 0.01},
        ),
        {},
    ),
    "opr": (S(**SMALL, opr={"modes": 2, "learning_rate": 0.1}), {}),
    "slices": (S(**SMALL, slices={"count": 3, "thickness": 2e-6, "learning_rate": 0.01}), {}),
    "sgd": (S(**SMALL, optimiser="sgd"), {1: lambda now: now.replace(object={"learning_rate": 0.001})}),
    "rpie": (S(**SMALL, optimiser="rpie"), {1: lambda now: now.replace(rpie_alpha=0.5)}),
    "poisson": (S(**SMALL, loss="poisson"), {}),
    "accumulated": (S(**SMALL, gradient_accumulation=3), {}),
    "regularizers": (
        S(**SMALL, regularizers=[{"kind": "total_variation", "weight": 0.1}]),
        {1: lambda now: now.replace(regularizers=[{"kind": "total_variation", "weight": 0.01}])},
    ),
    "lsqml": (
        S(**SMALL, optimiser="lsqml", momentum=0.5, schedule={"kind": "cosine", "epochs": 3, "end_factor": 0.1}),
        {1: lambda now: now.replace(object={"learning_rate": 0.5})},
    ),
    "lsqml, compact": (S(**SMALL, optimiser="lsqml", batch_sampling="compact", slices=THIN), {}),
    "lsqml, frozen": (S(**SMALL, optimiser="lsqml"), {1: lambda now: now.replace(probe={"learning_rate": 0.0})}),
    "lsqml, parts": (
        S(
            **SMALL,
            optimiser="lsqml",
            probe={"modes": 2},
            positions={"learning_rate": 0.5, "momentum": 0.5},
            opr={"modes": 2, "learning_rate": 0.1},
            pattern_intensities={"learning_rate": 0.3},
            background={"learning_rate": 0.3},
            schedule={"kind": "cosine", "epochs": 3, "end_factor": 0.1},
        ),
        {2: lambda now: now.replace(positions={"momentum": 0.1})},
    ),
    "constraints": (
        S(
            **SMALL,
            probe={"modes": 2},
            constraints=[
                {"kind": "orthogonal_modes", "after": "update"},
                {"kind": "gaussian_blur", "sigma": 1.0, "after": "update"},
            ],
        ),
        {},
    ),
}


class Recording:
    """The operations of an update, as `torch.cuda.CUDAGraph`."""

    now: Recording | None = None
    made = 0

    def __init__(self) -> None:
        self._steps = list[tuple[Any, Any, Any, list[Tensor]]]()
        self._before = list[tuple[Tensor, Tensor]]()

    def replay(self) -> None:
        """Repeat the operations."""
        for operation, args, kwargs, results in self._steps:
            found = [one for one in tree_leaves(operation(*args, **kwargs)) if isinstance(one, Tensor)]
            for memory, one in zip(results, found, strict=True):
                if memory.data_ptr() != one.data_ptr():
                    memory.copy_(one)

    def note(self, operation: Any, args: Any, kwargs: Any, carry_out: Callable[[], Any]) -> Any:
        """Carry out an operation, and keep it."""
        own = {name: one for name, one in kwargs.items() if name not in ("device", "pin_memory")}
        values, named = tree_map(_plain, args), tree_map(_plain, own)
        names = [argument.name for argument in operation._schema.arguments if pretended._is_written(argument)]
        given = dict(zip((one.name for one in operation._schema.arguments), values, strict=False)) | named
        for memory in tree_leaves([given.get(name) for name in names]):
            if isinstance(memory, Tensor):
                self._before.append((memory, memory.clone()))
        result = carry_out()
        self._steps.append((operation, values, named, [_plain(one) for one in tree_leaves(result) if _tensor(one)]))
        return result

    def undo(self) -> None:
        """Undo what the operations have changed, since a GPU does not execute while it records."""
        for memory, values in reversed(self._before):
            memory.copy_(values)


@final
class Recorder:
    """`update_graphs.CudaRecorder` for the pretended GPU."""

    def __init__(self, device: torch.device) -> None:
        pass

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Nothing: there is one stream."""
        yield

    @contextlib.contextmanager
    def recording(self) -> Iterator[Recording]:
        """Record what is inside."""
        waits = len(LOG.waits)
        Recording.now = recording = Recording()
        Recording.made += 1
        try:
            yield recording
        finally:
            Recording.now = None
            recording.undo()
        if LOG.waits[waits:]:
            raise RuntimeError(f"CUDA error: operation not permitted when stream is capturing ({LOG.waits[waits]})")

    def forget(self) -> None:
        """Nothing: each recording has memory of its own."""


def _plain(one: Any) -> Any:
    return one.elem if isinstance(one, Pretended) else one


def _tensor(one: Any) -> bool:
    return isinstance(one, Tensor)


_carry_out = pretended._run


def _recorded(operation: Any, args: Any, kwargs: Any) -> Any:
    recording = Recording.now
    if recording is None:
        return _carry_out(operation, args, kwargs)
    return recording.note(operation, args, kwargs, lambda: _carry_out(operation, args, kwargs))


def run(
    settings: pt.Settings, changes: dict[int, Change], graphs: bool, resume_after: int = 9, engines: int = 1
) -> dict[str, Any]:
    """Return what three epochs end with.

    resume_after: epochs after which another loop continues from the state. engines: this is the first of so many, of
    which the others contribute nothing to sums.
    """
    update_graphs.RECORDERS.pop("gpu", None)
    if graphs:
        update_graphs.RECORDERS["gpu"] = Recorder
    scan = pt.simulate(patterns=70, window=32, seed=0)
    group = SingleGroup(GPU)
    group.world = engines
    loop = Loop(scan, settings, group)
    for epoch in range(3):
        if epoch in changes:
            loop.change(changes[epoch](loop.settings))
        for _ in range(loop.updates):
            loop.step()
        if epoch + 1 == resume_after:
            loop.restore(loop.state(loop.loss_sums()))
    found = {name: tensor.numpy().copy() for name, tensor in (loop.arrays() | loop.parameters()).items()}
    loop.disconnect()
    return found | {"losses": np.array([epoch.loss for epoch in loop.epochs])}


def compare(
    settings: pt.Settings, changes: dict[int, Change], resume_after: int = 9, engines: int = 1
) -> dict[str, Any]:
    """Return how many graphs were recorded, and what differs from the run without any."""
    plain = run(settings, changes, graphs=False, engines=engines)
    Recording.made = 0
    other = run(settings, changes, graphs=True, resume_after=resume_after, engines=engines)
    return {
        "graphs": Recording.made,
        "differ": [name for name in plain if not np.array_equal(plain[name], other[name])],
    }


def main() -> None:
    """Print the comparisons of all cases."""
    torch.set_num_threads(1)
    pretended._run = _recorded
    engine_patterns.free_on_device = lambda device, engines: 10**11  # type: ignore[attr-defined]
    with Mode():
        found = {name: compare(*case) for name, case in CASES.items()}
        found["restored"] = compare(*CASES["rates"], resume_after=2)
        found["lsqml, restored"] = compare(*CASES["lsqml, parts"], resume_after=1)
        found["one of two"] = compare(*CASES["detector"], engines=2)
        found["lsqml, one of two"] = compare(*CASES["lsqml, parts"], engines=2)
        with mock.patch.dict(os.environ, {VARIABLE: "triton"}):
            found |= {f"{name}, own transforms": compare(*CASES[name]) for name in ("plain", "detector", "slices")}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
