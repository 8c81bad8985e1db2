"""What an update costs, by hand: the table at the end of the traps of multi-GPU ptychography, and small cases."""

import numpy as np
import pytest

import ptynb as pt
from ptynb.data.scan import Scan
from ptynb.planning.performance import (
    Compute,
    Interconnect,
    Measured,
    cost_of,
    exchanged_bytes,
    patterns_per_update,
    touched_part,
    wire_bytes,
)
from ptynb.settings import Settings

NVLINK, PCIE, ETHERNET = 400e9, 25e9, 12.5e9
"""[bytes/s]"""


def object_of(side, slices=1):
    """A scan whose object has `side` pixels along y and x, and settings for it; windows of 256 x 256, 64 a batch."""
    steps = np.linspace(0, side - 256, 20)
    places = np.stack(np.meshgrid(steps, steps, indexing="ij"), -1).reshape(-1, 2)
    scan = Scan.from_arrays(
        np.broadcast_to(np.uint8(1), (len(places), 256, 256)),
        places,
        geometry=pt.Geometry(wavelength=1e-10, distance=1.0, detector_pixel=(5e-5, 5e-5)),
    )
    thick = {"count": slices, "thickness": 1e-6 if slices > 1 else None}
    return scan, Settings(batch=64, object={"padding": 0}, slices=thick)


@pytest.mark.parametrize(
    ("side", "slices", "megabytes", "milliseconds"),
    [(2048, 1, 34, (0.13, 2, 4)), (1024, 30, 252, (0.9, 15, 30))],
)
def test_the_whole_object_over_four_gpus_takes_what_the_table_of_the_model_says(side, slices, megabytes, milliseconds):
    scan, settings = object_of(side, slices)
    probe = 8 * 256 * 256
    count = exchanged_bytes(scan, settings.replace(gradient_sync="dense"), 4) - probe
    assert count / 1e6 == pytest.approx(megabytes, rel=0.02)
    for bandwidth, expected in zip((NVLINK, PCIE, ETHERNET), milliseconds, strict=True):
        assert 1e3 * Interconnect(0, bandwidth).seconds(count, 4) == pytest.approx(expected, rel=0.06)


def test_the_largest_object_of_the_table():
    for bandwidth, expected in ((NVLINK, 2), (PCIE, 32), (ETHERNET, 64)):
        assert 1e3 * Interconnect(0, bandwidth).seconds(8 * 8192**2, 4) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(("side", "slices", "milliseconds"), [(2048, 1, 1.0), (1024, 30, 20.0)])
def test_over_pcie_a_thin_slice_is_slower_on_two_gpus_than_on_one(side, slices, milliseconds):
    """64 patterns of 256 x 256 take about 1 ms with one slice, 20 ms with 30."""
    scan, settings = object_of(side, slices)
    compute = Compute(0.0, 1e-3 * milliseconds / 64)
    alone = cost_of(scan, settings, 1, Measured(compute, None)).epoch

    def part(engines, bandwidth):
        found = Measured(compute, Interconnect(1e-5, bandwidth))
        return cost_of(scan, settings.replace(gradient_sync="dense"), engines, found).epoch / alone

    assert part(2, NVLINK) < 0.7
    assert (part(2, PCIE) > 1.2) is (slices == 1)
    assert (part(8, NVLINK) < 0.25) is (slices == 30), "to 2-4 GPUs, and to 8"


def test_an_all_reduce_sends_all_but_one_part_twice():
    assert [wire_bytes(1200, engines) for engines in (1, 2, 3, 4)] == [0, 1200, 1600, 1800]
    assert Interconnect(0.5, 100).seconds(1200, 3) == 0.5 + 16


def test_straight_lines_go_through_what_was_measured_and_never_below_zero():
    line = Compute.through((8, 0.006), (16, 0.010))
    assert (line.fixed, line.each) == pytest.approx((0.002, 0.0005))
    assert line.seconds(32) == pytest.approx(0.018)
    assert Compute.through((8, 0.004), (16, 0.016)) == Compute(0, 0.001), "steeper than in proportion"
    assert Compute.through((8, 0.003), (16, 0.002)) == Compute(0.002, 0)
    assert Compute.through((1, 0.5), (1, 0.6)) == Compute(0, 0.6)
    link = Interconnect.through((4000, 1e-4), (4_004_000, 1e-4 + 0.002), 2)
    assert (link.latency, link.bandwidth) == pytest.approx((1e-4, 2e9))


def test_what_is_exchanged_by_hand():
    scan, settings = object_of(1024)
    plane, window = 1024**2, 256**2

    def numbers(**changes):
        return exchanged_bytes(scan, settings.replace(gradient_sync="dense", **changes), 2) / 4

    assert numbers() == 2 * plane + 2 * window
    assert numbers(probe={"modes": 3}) == 2 * plane + 6 * window
    assert numbers(object={"modes": 2}) == 4 * plane + 2 * window
    assert numbers(precision="double") == 2 * (2 * plane + 2 * window)
    assert numbers(optimiser="rpie") == 3 * plane + 3 * window
    assert numbers(optimiser="lsqml") == 4 * plane + 3 * window
    parts = {"opr": {"modes": 2}, "background": {"learning_rate": 1}}
    assert numbers(optimiser="lsqml", **parts) == 4 * plane + 9 * window
    assert numbers(optimiser="raar") == 3 * plane + 3 * window


def test_the_touched_part_is_that_of_the_tiles_below_a_batch():
    """Sixteen batches of 25 neighbours in a grid of 20 x 20: each touches about 5 x 5 steps and a window."""
    scan, settings = object_of(2048)
    compact = settings.replace(batch=25, batch_sampling="compact")
    step = (2048 - 256) / 19
    side = 4 * step + 256
    part = touched_part(scan, compact, 2)
    assert (side / 2048) ** 2 < part < ((side + 64) / 2048) ** 2
    assert touched_part(scan, settings.replace(batch=200), 2) == 1.0, "a spread batch touches nearly all"
    small, own = object_of(512)
    assert touched_part(small, own.replace(batch=1), 1) == 1.0, "a small object is not worth packing"
    whole, touched = (exchanged_bytes(scan, compact.replace(gradient_sync=way), 2) for way in ("dense", "sparse"))
    assert whole - touched == pytest.approx(8 * 2048**2 * (1 - part))


def test_updates_and_own_patterns_follow_the_batch():
    scan, settings = object_of(1024)
    assert patterns_per_update(scan, settings.replace(batch=50), 2) == 25
    assert patterns_per_update(scan, settings.replace(batch=50, batch_per="engine"), 2) == 50
    assert patterns_per_update(scan, settings.replace(optimiser="lbfgs"), 4) == 100
    found = Measured(Compute(1.0, 0.1), Interconnect(0.25, 1e30))
    for changes, computing, exchanging, updates in (
        ({}, 3.5, 0.25, 8),
        ({"batch_per": "engine"}, 6, 0.25, 4),
    ):
        cost = cost_of(scan, settings.replace(batch=50, **changes), 2, found)
        assert (cost.computing, cost.exchanging) == pytest.approx((computing, exchanging))
        assert cost.epoch == pytest.approx(updates * (computing + exchanging))
    alone = cost_of(scan, settings, 1, Measured(Compute(1.0, 0.1), None))
    assert (alone.exchanging, alone.wire) == (0, 0)
