"""Time of an update on several engines: a model, and the measurement of its parameters on a real cluster.

    t(P) = a + b n / P + exchange        n patterns per batch, P engines; a: independent of the patterns
    exchange = l + 2 (P - 1) / P · N / w     all-reduce of N bytes in a ring: latency l, bandwidth w

Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 117 (2009), for the ring. Overlap with
computing is not considered.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptynb.cluster.cluster import Cluster
from ptynb.cluster.devices import Device
from ptynb.cluster.engine_groups import joining
from ptynb.data.patterns import ArrayFrames
from ptynb.data.scan import Scan
from ptynb.engine.update_timing import time_messages, time_updates
from ptynb.optimize.covered_region import Region, saves_enough, touched_blocks
from ptynb.optimize.object_tiles import TileLayout
from ptynb.optimize.sampler import bands_of, layout_of, planned_order
from ptynb.physics.model_builder import model_window, object_frame, window_positions
from ptynb.planning.memory import arrays_of_an_update
from ptynb.settings import BY_EXIT_WAVES, GLOBAL_STEPS, WHOLE_PASSES, Settings

UPDATES_LOOKED_AT = 64
"""Number of updates of an epoch from which the touched part of the object is estimated."""
MOST_PATTERNS = 64
"""Patterns that are sent to the engines, and of the largest measured update on a CPU, from which larger ones are
extrapolated linearly. A GPU, which launches limit up to there, takes them several times (`engine.update_timing`)."""
MOST_BYTES = 2**27
"""Limit of the exit waves of this update [bytes]."""
TIMEOUT = 300.0
"""Longest time of all measurements with one number of engines [s]."""


@dataclass(frozen=True)
class Compute:
    """Time of an update of one engine [s]: `fixed`, and `each` per pattern."""

    fixed: float
    each: float

    @classmethod
    def through(cls, fewer: tuple[int, float], more: tuple[int, float]) -> Compute:
        """Return the line through two of (patterns, seconds), with parts of at least 0."""
        (few, short), (many, long) = fewer, more
        each = max(long - short, 0) / (many - few) if many > few else long / many
        return cls(max(long - each * many, 0), min(each, long / many))

    def seconds(self, patterns: float) -> float:
        """Return the time with so many patterns [s]."""
        return self.fixed + self.each * patterns


@dataclass(frozen=True)
class Interconnect:
    """Connection of engines: latency of an all-reduce [s], bandwidth [bytes/s]."""

    latency: float
    bandwidth: float

    @classmethod
    def through(cls, small: tuple[int, float], large: tuple[int, float], engines: int) -> Interconnect:
        """Return the latency by a small message and the bandwidth by a large one, of (bytes, seconds)."""
        more = wire_bytes(large[0] - small[0], engines)
        return cls(small[1], more / max(large[1] - small[1], 1e-9))

    def seconds(self, count: float, engines: int) -> float:
        """Return the time of an all-reduce of so many bytes [s]."""
        return self.latency + wire_bytes(count, engines) / self.bandwidth


@dataclass(frozen=True)
class Measured:
    """Measurements with a number of engines at the same time.

    compute: of the slowest engine, for which each update waits. link: None for one engine. unequal: time of an update
    of the slowest engine, divided by that of the fastest.
    """

    compute: Compute
    link: Interconnect | None
    unequal: float = 1.0


@dataclass(frozen=True)
class Cost:
    """Mean times of an update [s]. wire: sent by each engine [bytes]. epoch: time of an epoch [s]."""

    computing: float
    exchanging: float
    wire: float
    epoch: float


def cost_of(scan: Scan, settings: Settings, engines: int, found: Measured) -> Cost:
    """Return the cost of settings on a number of engines."""
    computing, exchanging, wire = found.compute.seconds(patterns_per_update(scan, settings, engines)), 0.0, 0.0
    if found.link is not None:
        count = exchanged_bytes(scan, settings, engines)
        exchanging, wire = found.link.seconds(count, engines), wire_bytes(count, engines)
    return Cost(computing, exchanging, wire, updates(scan, settings, engines) * (computing + exchanging))


def wire_bytes(count: float, engines: int) -> float:
    """Return the bytes that each engine sends in an all-reduce: 2 (P - 1) / P of them."""
    return 2 * (engines - 1) / engines * count


def updates(scan: Scan, settings: Settings, engines: int) -> int:
    """Return the number of updates in an epoch."""
    return 1 if settings.optimiser in WHOLE_PASSES else planned_order(scan, settings, engines).updates


def patterns_per_update(scan: Scan, settings: Settings, engines: int) -> float:
    """Return the mean number of patterns of one engine in an update."""
    return len(scan) / updates(scan, settings, engines) / engines


def exchanged_bytes(scan: Scan, settings: Settings, engines: int) -> float:
    """Return the mean size of an exchange in an epoch [bytes], of gradients or sums of the algorithm."""
    rows, columns = object_frame(scan, settings).shape
    layout = layout_of(scan, settings, engines)
    if layout is None:
        plane = rows * columns * touched_part(scan, settings, engines)
    else:  # as many pixels as in an all-reduce that sends as much
        plane = _sent_pixels(scan, settings, layout) / wire_bytes(1, engines)
    window = float(np.prod(model_window(scan, settings)))
    object, probe = 2.0 * plane * settings.slices.count * settings.object.modes, 2.0 * window * settings.probe.modes
    numbers = object + probe
    if settings.optimiser in ("rpie", *BY_EXIT_WAVES):
        numbers += plane * settings.slices.count + window  # the illumination of both
    if settings.optimiser == "lsqml":
        numbers += plane * settings.slices.count  # step lengths
        numbers += 2 * window * (settings.opr.modes + (settings.background.learning_rate > 0))
    return numbers * (8 if settings.precision == "double" else 4)


def _sent_pixels(scan: Scan, settings: Settings, layout: TileLayout) -> float:
    """Return the mean number of pixels of a plane that an engine sends to others in an update."""
    engines = len(layout.held)
    halos = [(rank, area) for rank in range(engines) for area in layout.overlaps(rank).values()]
    if settings.regularizers:  # their gradients are everywhere
        return sum(math.prod(area.shape) for _, area in halos) / engines
    margin = 1 + (layout.margin if settings.positions.learning_rate > 0 else 0)
    found = list[int]()
    for batch in planned_order(scan, settings, engines).epoch(1)[:, :UPDATES_LOOKED_AT].T:
        members = batch[batch >= 0]
        sent = [layout.covered(area, members[layout.owner[members] == rank], margin) for rank, area in halos]
        found.append(sum(math.prod(one.shape) for areas in sent for one in areas))
    return float(np.mean(found)) / engines


def touched_part(scan: Scan, settings: Settings, engines: int) -> float:
    """Return the mean part of the object that is sent: blocks that the windows of a batch touch, or all."""
    if settings.gradient_sync == "dense" or settings.optimiser in GLOBAL_STEPS:
        return 1.0
    window, shape = model_window(scan, settings), object_frame(scan, settings).shape
    corners = np.rint(window_positions(scan, settings)).astype(np.int64)
    layers = settings.slices.count * settings.object.modes
    nbytes = (16 if settings.precision == "double" else 8) * layers * shape[0] * shape[1]
    table = planned_order(scan, settings, engines).epoch(1)[:, :UPDATES_LOOKED_AT]

    def part(patterns: NDArray[np.int64]) -> float:
        found = Region(shape, touched_blocks(corners[patterns[patterns >= 0]], window, shape))
        return found.pixels / (shape[0] * shape[1]) if saves_enough(found, nbytes) else 1.0

    return float(np.mean([part(batch) for batch in table.T]))


@contextmanager
def running(engines: int | Cluster | None, device: Device) -> Iterator[Cluster]:
    """Yield the cluster itself, or a temporary one with so many engines."""
    if isinstance(engines, Cluster):
        yield engines
    else:
        with Cluster(engines, device=device) as cluster:
            yield cluster


def measure(cluster: Cluster, scan: Scan, settings: Settings, counts: Sequence[int]) -> dict[int, Measured]:
    """Measure updates and messages with several numbers of engines of a cluster.

    counts: numbers of engines. On a CPU fewer engines have more threads each, as in a cluster of that size. Raises
    ClusterError if a reconstruction is open on the engines.
    """
    part = part_of(scan, settings)
    return {count: _measure(cluster, part, scan, settings, count) for count in counts}


def _measure(cluster: Cluster, part: Scan, scan: Scan, settings: Settings, count: int) -> Measured:
    plan = cluster.plan.engines[:count]
    cores = sum(engine.threads for engine in cluster.plan.engines)
    threads = plan[0].threads if cluster.plan.on_gpu else max(1, cores // count)
    patterns = patterns_per_update(scan, settings, count)
    needed = _pattern_bytes(scan, settings, cluster.plan.on_gpu)
    shape = _shape_on_device(scan, settings)
    arguments = [(part, shape, settings, max(1, round(patterns)), needed, engine.device, threads) for engine in plan]
    answers = cluster.call_all([*range(count)], time_updates, [*arguments], timeout=TIMEOUT)
    found = sorted((Compute.through(*answer) for answer in answers), key=lambda compute: compute.seconds(patterns))
    unequal = found[-1].seconds(patterns) / found[0].seconds(patterns)
    return Measured(found[-1], _measure_link(cluster, count) if count > 1 else None, unequal)


def _shape_on_device(scan: Scan, settings: Settings) -> tuple[int, int]:
    """Return the size (y, x) of the object, or of what the device has of it if it is streamed."""
    shape = object_frame(scan, settings).shape
    if settings.object.layout != "streamed":
        return shape
    return bands_of(scan, settings, planned_order(scan, settings, 1)).height, shape[1]


def _pattern_bytes(scan: Scan, settings: Settings, on_gpu: bool) -> float:
    """Return the memory of an update for each of its patterns, with the stored one [bytes]."""
    height, width = model_window(scan, settings)
    each = arrays_of_an_update(scan, settings, on_gpu).in_windows(settings) + 1 / 2
    return each * height * width * (16 if settings.precision == "double" else 8)


def _measure_link(cluster: Cluster, count: int) -> Interconnect:
    with joining(cluster, count) as memberships:
        answers = cluster.call_all([*range(count)], time_messages, [(one,) for one in memberships], timeout=TIMEOUT)
    small, large = answers[0]
    return Interconnect.through(small, large, count)


def part_of(scan: Scan, settings: Settings) -> Scan:
    """Return some patterns from all over the scan, in memory, at the centre of the object.

    Positions keep their subpixel part, on which the amount of computing depends.
    """
    height, width = model_window(scan, settings)
    one = 8 * height * width * settings.probe.modes * settings.object.modes * settings.slices.count
    count = min(len(scan), MOST_PATTERNS, max(2, MOST_BYTES // one))
    chosen = np.linspace(0, len(scan) - 1, count).round().astype(np.int64)
    frames = np.empty((count, *scan.pattern_shape), scan.frames.dtype)
    scan.frames.take(chosen, frames)
    own = scan.positions[chosen]
    middle = (np.array(_shape_on_device(scan, settings)) - scan.pattern_shape) // 2
    positions = middle + own - np.rint(own)
    return dataclasses.replace(
        scan,
        frames=ArrayFrames.of(frames),
        positions=positions,
        motion=None if scan.motion is None else scan.motion[chosen],
        object=None,
        ground_truth=None,
    )
