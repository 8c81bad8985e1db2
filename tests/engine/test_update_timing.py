"""Which updates of a GPU are measured, by a clock of a device that works while the host launches."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch

from ptynb.distributed.group import SingleGroup
from ptynb.engine import update_timing
from ptynb.engine.loop import Loop
from ptynb.engine.update_timing import (
    GPU_BLOCK_SECONDS,
    GPU_WARM_UPS,
    LEAST_ROUNDS,
    beyond_launches,
    median_seconds,
    synchronize,
    time_updates,
)
from ptynb.planning.performance import Compute
from ptynb.settings import Settings
from tests.cases import a_scan

PATTERN = 2e-6
"""What a device needs for a pattern [s]: 128 x 128 pixels of 570 bytes at some TB/s."""


@dataclass
class Device:
    """Takes work from the host and does it later, one update after the other, as CUDA's stream does.

    launches: time of the host to launch an update. fixed, each: of the device for one, and for each of its patterns.
    first: of the host for the first update, which loads libraries.
    """

    launches: float
    fixed: float = 0.0
    each: float = PATTERN
    first: float = 1.0
    now: float = 0.0
    done: float = 0.0
    sizes: list[int] = field(default_factory=list)

    def update(self, patterns: int) -> None:
        self.now += self.launches + (0 if self.sizes else self.first)
        self.sizes.append(patterns)
        self.done = max(self.done, self.now) + self.work(patterns)

    def work(self, patterns: int) -> float:
        return self.fixed + self.each * patterns

    def finish(self) -> None:
        self.now = max(self.now, self.done)

    def seconds(self, patterns: int) -> float:
        return median_seconds(
            lambda: self.update(patterns), GPU_WARM_UPS, self.finish, GPU_BLOCK_SECONDS, lambda: self.now
        )

    def truth(self, patterns: int) -> float:
        """Time of an update in a run, where the host does not wait."""
        return max(self.launches, self.work(patterns))


@pytest.mark.parametrize("launches", [1e-5, 2e-4, 1.5e-3])
@pytest.mark.parametrize("patterns", [1, 7, 16, 64, 100, 256, 3000])
def test_the_time_of_an_update_is_foreseen_on_a_gpu_however_long_its_launches_take(
    launches: float, patterns: int
) -> None:
    device = Device(launches)
    line = Compute.through(*beyond_launches(device.seconds, patterns))
    assert line.seconds(patterns) == pytest.approx(device.truth(patterns), rel=0.05)


@pytest.mark.parametrize(("launches", "fixed"), [(2e-4, 0.0), (1.28e-3, 0.0), (1.5e-3, 0.0), (1e-4, 5e-4)])
def test_the_slope_is_that_of_a_pattern_where_not_all_are_measured(launches: float, fixed: float) -> None:
    """A hundred thousand patterns of an update by all of them, as difference map has it."""
    device = Device(launches, fixed)
    line = Compute.through(*beyond_launches(device.seconds, 100_000))
    assert max(device.sizes) < 10_000, "the others follow"
    assert line.seconds(100_000) == pytest.approx(device.truth(100_000), rel=0.05)


def test_a_device_that_bandwidth_limits_from_the_start_measures_few_sizes() -> None:
    device = Device(1e-5, each=1e-4)
    fewer, more = beyond_launches(device.seconds, 3000)
    assert (fewer[0], more[0]) == (32, 64)
    assert (fewer[1], more[1]) == pytest.approx((3.2e-3, 6.4e-3), rel=0.01)
    assert sorted(set(device.sizes)) == [1, 32, 64]


def test_a_gpu_is_waited_for_after_many_updates_and_its_first_ones_do_not_count() -> None:
    device = Device(1e-3, fixed=9e-4, each=0.0)
    assert device.seconds(1) == pytest.approx(1e-3, rel=0.05), "host and device work at the same time"
    alone = median_seconds(lambda: device.update(1), 0, device.finish, 0.0, lambda: device.now)
    assert alone == pytest.approx(1.9e-3, rel=0.01), "one by one they do not"


@pytest.mark.parametrize(("free", "most"), [(1e12, 100), (8e6, 20), (10.0, 1)])
def test_no_more_patterns_are_measured_than_fit_in_the_free_memory(
    free: float, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(1.0, first=0.0)

    def seconds(scan: object, settings: Settings, size: int, place: torch.device) -> float:
        assert place == torch.device("cuda:0")
        device.update(size)
        return device.truth(size)

    monkeypatch.setattr(update_timing, "free_on_device", lambda place: free)
    monkeypatch.setattr(update_timing, "_time_update", seconds)
    time_updates(a_scan(), (64, 64), Settings(), 100, 1e5, "cuda:0", 1)
    assert max(device.sizes) == most


def test_the_clock_of_a_gpu_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop itself computes on the CPU here."""
    waited: list[torch.device] = []
    monkeypatch.setattr(update_timing, "synchronize", waited.append)
    monkeypatch.setattr(update_timing, "SECONDS", 0.0)
    monkeypatch.setattr(update_timing, "GPU_BLOCK_SECONDS", 0.01)
    cpu = SingleGroup(torch.device("cpu"))
    monkeypatch.setattr(
        update_timing, "Loop", lambda scan, settings, _, **options: Loop(scan, settings, cpu, **options)
    )
    gpu = torch.device("cuda:0")
    assert update_timing._time_update(a_scan(), Settings(), 8, gpu) > 0
    assert waited == [gpu] * (2 + LEAST_ROUNDS), "after the warm-up, one update alone, and each block"


def test_patterns_are_taken_several_times_where_a_gpu_needs_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same code on the CPU, which has no launches to get beyond."""
    monkeypatch.setattr(update_timing, "SECONDS", 0.0)
    scan = a_scan()
    assert len(scan) < 80
    assert update_timing._time_update(scan, Settings(), 80, torch.device("cpu")) > 0
    synchronize(torch.device("cpu"))
