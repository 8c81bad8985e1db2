"""Updates recorded as graphs on the pretended GPU, against the same updates without: prints JSON.

The recorder keeps each operation with its arguments: tensors by their memory, numbers as they are, as CUDA graphs do.
Replaying repeats the operations on this memory. So a number that should have changed, or an input that is not
copied into the graph, gives other results than an update without a graph.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any, final

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

import ptynb as pt
from ptynb.loading import engine_patterns
from ptynb.optimize import update_graphs
from tests.gpu import pretended
from tests.gpu.pretended import GPU, LOG, Mode, Pretended
from tests.gpu.recorded_cases import CASES, LIVE, Change, run_epochs


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

    @staticmethod
    def memory(tensor: Tensor) -> tuple[int, Callable[[], bool]]:
        """Memory of the pretended GPU, where the recording, which keeps it in order to repeat, does not count."""
        storage = _plain(tensor).untyped_storage()
        key = storage.data_ptr() or id(storage)
        entry = pretended._storages[key]
        return key, lambda: pretended._storages.get(key) is not entry

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


def run(graphs: bool, *case: Any, **options: Any) -> dict[str, Any]:
    """Return what a run on the pretended GPU ends with. graphs: whether its updates are recorded."""
    update_graphs.RECORDERS.pop("gpu", None)
    if graphs:
        update_graphs.RECORDERS["gpu"] = Recorder
    return run_epochs(*case, GPU, **options)


def compare(settings: pt.Settings, changes: dict[int, Change], **options: Any) -> dict[str, Any]:
    """Return how many graphs were recorded, and what differs from the run without any. options: of `run_epochs`."""
    plain = run(False, settings, changes, **{**options, "resume_after": 9})
    Recording.made = 0
    other = run(True, settings, changes, **options)
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
        found |= {f"{name}, live": compare(*CASES[name], live=True) for name in LIVE}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
