"""A run that is out of memory in the middle of an update goes on from its last checkpoint, with other settings."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import ptynb as pt
from ptynb.engine.loop import Loop
from ptynb.exceptions import ReconstructionError
from ptynb.physics.components.component import Batch, ModelComponent
from tests.waiting import until

EPOCHS, BEFORE = 5, 2
MESSAGE = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 0.1 GiB is free"
)


class Memory:
    """Memory for this number of patterns at once, and until so many more portions; tensors of updates, weakly."""

    patterns = 10**9
    portions = -1
    tensors: ClassVar[list[weakref.ref[Any]]] = []


class Filling(ModelComponent):
    """Needs memory for the patterns of a batch where it takes part in the model: in the middle of an update."""

    name = "filling"

    def __init__(self) -> None:
        super().__init__()
        self.amounts = torch.nn.Parameter(torch.ones(()))

    def detect(self, intensity: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the intensity, with a temporary array, if there is memory for it."""
        twice = intensity * (2 * self.amounts)
        Memory.tensors += [weakref.ref(intensity), weakref.ref(twice)]
        Memory.portions -= 1
        if len(batch) > Memory.patterns or Memory.portions == 0:
            raise torch.OutOfMemoryError(MESSAGE)
        return twice / 2


@pytest.fixture(autouse=True)
def memory() -> Iterator[None]:
    yield
    Memory.patterns, Memory.portions, Memory.tensors = 10**9, -1, []


def opened(scan: pt.Scan, folder: Path, **settings: Any) -> pt.Reconstruction:
    keep = pt.Checkpointing(folder=folder, epochs=1, seconds=None)
    filling = Filling()
    filling.active = True
    chosen = pt.Settings(batch=8, **settings)
    return pt.Reconstruction(scan, chosen, device="cpu", checkpointing=keep, extensions=[filling])


def run(recon: pt.Reconstruction, epochs: int) -> None:
    recon.start(epochs)
    recon.wait()


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For each loop that is made, the number of earlier ones that were alive then."""
    found, loops, made = list[int](), list[weakref.ref[Loop]](), Loop.__init__

    def observed(loop: Loop, *arguments: Any, **options: Any) -> None:
        found.append(sum(known() is not None for known in loops))
        made(loop, *arguments, **options)
        loops.append(weakref.ref(loop))

    monkeypatch.setattr(Loop, "__init__", observed)
    return found


@pytest.mark.parametrize("storage", ["host", "disk"])
def test_the_run_goes_on_in_smaller_parts_and_ends_as_if_they_had_been_set_before(
    tmp_path: Path, storage: str, alive: list[int]
) -> None:
    scan = pt.simulate(patterns=24, window=32, seed=4, path=tmp_path / "scan.h5")
    with opened(scan, tmp_path / "one", pattern_storage=storage) as recon:
        run(recon, BEFORE)
        recon.reconfigure(recon.settings.replace(gradient_accumulation=2))
        run(recon, EPOCHS - BEFORE)
        expected = recon.result

    with opened(scan, tmp_path / "other", pattern_storage=storage) as recon:
        run(recon, BEFORE)
        checkpoint = recon.save_checkpoint()
        Memory.patterns, Memory.tensors = 4, []
        with pytest.raises(ReconstructionError, match="OutOfMemoryError"):
            run(recon, EPOCHS - BEFORE)
        assert len(Memory.tensors) == 2, "in the first update"
        until(lambda: [known() for known in Memory.tensors] == [None, None])
        recon.restore(checkpoint)
        recon.reconfigure(recon.settings.replace(gradient_accumulation=2))
        run(recon, EPOCHS - BEFORE)
        found = recon.result
    assert alive == [0] * 5, "model and patterns of the failed worker would take the memory of the next one"
    np.testing.assert_array_equal(found.object, expected.object)
    np.testing.assert_array_equal(found.probe, expected.probe)
    np.testing.assert_array_equal(found.losses, expected.losses)


@pytest.mark.parametrize("portion", [1, 2])
def test_a_failed_update_leaves_no_gradient_nor_pictures_of_its_own(tmp_path: Path, portion: int) -> None:
    """Also in its second part, when gradients of the first one exist; the state before it can still be shown."""
    scan = pt.simulate(patterns=24, window=32, seed=4)
    recon = opened(scan, tmp_path, gradient_accumulation=2)
    run(recon, BEFORE)
    before = recon.result
    Memory.portions = portion
    with pytest.raises(ReconstructionError, match="OutOfMemoryError"):
        run(recon, 1)
    loop = recon._client.engines._worker._loop  # type: ignore[attr-defined]
    until(lambda: all(parameter.grad is None for parameter in loop.model.parameters()))
    until(lambda: not any(known() is not None for known in Memory.tensors))
    np.testing.assert_array_equal(recon.result.object, before.object)
    recon.close()
