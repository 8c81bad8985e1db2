"""Free memory of a GPU: with what torch keeps, shared by the engines on it; and its release."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from ptynb.loading.device_memory import WHOLE_GPU, free_on_device, release_unused
from tests.parametrization import each

GPU = torch.device("cuda", 0)
TOTAL = 1000


@each(
    ("free", "reserved", "allocated", "engines", "expected"),
    [
        (900, 0, 0, 1, 900),
        (300, 600, 100, 1, 800),  # torch keeps 500 that no tensor has
        (900, 0, 0, 2, 500),
        (500, 0, 0, 2, 500),  # the other engine has its half already
        (200, 0, 0, 2, 200),  # and a third process some more
        (300, 600, 400, 2, 100),
        (100, 800, 700, 2, 0),
    ],
)
def test_an_engine_may_take_its_part_of_what_no_tensor_has(
    monkeypatch: pytest.MonkeyPatch, free: int, reserved: int, allocated: int, engines: int, expected: int
) -> None:
    for name, value in (
        ("mem_get_info", (free, TOTAL)),
        ("memory_reserved", reserved),
        ("memory_allocated", allocated),
    ):
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    assert free_on_device(GPU, engines) == expected


def test_memory_is_released_of_cycles_too_and_without_a_gpu_cuda_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cycle:
        pass

    one, asked = Cycle(), list[bool]()
    one.own = one  # type: ignore[attr-defined]
    known = weakref.ref(one)
    del one
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: asked.append(known() is None))
    gc.disable()
    try:
        release_unused()
        assert (known(), asked) == (None, [])
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        release_unused()
    finally:
        gc.enable()
    assert asked == [True]


def test_a_gpu_that_is_lost_stops_no_cleanup(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lost)
    release_unused()
    assert not WHOLE_GPU.locked()
