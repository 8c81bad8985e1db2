"""Measures computing and link on the engines of a real cluster, in a few seconds, with a small part of the scan."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from ptynb.cluster.cluster import Cluster
from ptynb.cluster.devices import Device
from ptynb.cluster.groups import joining
from ptynb.data.patterns import ArrayFrames
from ptynb.data.scan import Scan
from ptynb.engine.update_timing import time_messages, time_updates
from ptynb.physics.model_builder import model_window, object_frame
from ptynb.planning.performance_model import Compute, Interconnect, Measured, own_patterns
from ptynb.settings import Settings

MOST_PATTERNS = 64
"""Patterns of the largest update that is measured; larger ones follow from the straight line."""
MOST_BYTES = 2**27
"""Of its exit waves."""
TIMEOUT = 300.0
"""Seconds for all that is measured with one number of engines."""


@contextmanager
def running(engines: int | Cluster | None, device: Device) -> Iterator[Cluster]:
    """The cluster that was given, or one of so many engines for the time being."""
    if isinstance(engines, Cluster):
        yield engines
    else:
        with Cluster(engines, device=device) as cluster:
            yield cluster


def measure(cluster: Cluster, scan: Scan, settings: Settings, counts: Sequence[int]) -> dict[int, Measured]:
    """What updates and messages take with the first 1, 2 ... of the cluster's engines at work at the same time.

    counts: numbers of engines, at most the cluster's. On a CPU fewer engines have more threads each, as they would have
    in a cluster of their own. Raises ClusterError where a reconstruction is open on the engines.
    """
    part = part_of(scan, settings)
    return {count: _measure(cluster, part, scan, settings, count) for count in counts}


def _measure(cluster: Cluster, part: Scan, scan: Scan, settings: Settings, count: int) -> Measured:
    plan = cluster.plan.engines[:count]
    cores = sum(engine.threads for engine in cluster.plan.engines)
    threads = plan[0].threads if cluster.plan.on_gpu else max(1, cores // count)
    most = max(1, min(round(own_patterns(scan, settings, count)), len(part)))
    sizes, shape = [max(1, most // 2), most], object_frame(scan, settings).shape
    arguments = [(part, shape, settings, sizes, engine.device, threads) for engine in plan]
    answers = cluster.call_all([*range(count)], time_updates, [*arguments], timeout=TIMEOUT)
    # The slowest one is waited for.
    fewer, more = zip(sizes, map(max, zip(*answers, strict=True)), strict=True)
    return Measured(Compute.through(fewer, more), _measure_link(cluster, count) if count > 1 else None)


def _measure_link(cluster: Cluster, count: int) -> Interconnect:
    with joining(cluster, count) as memberships:
        answers = cluster.call_all([*range(count)], time_messages, [(one,) for one in memberships], timeout=TIMEOUT)
    small, large = answers[0]
    return Interconnect.through(small, large, count)


def part_of(scan: Scan, settings: Settings) -> Scan:
    """Some patterns, evenly from all over the scan, in memory, all at the middle of the object (in its pixels).

    Their positions keep what they have beside whole pixels, which decides how much there is to compute; where they are
    does not, nor what they show.
    """
    height, width = model_window(scan, settings)
    one = 8 * height * width * settings.probe.modes * settings.object.modes * settings.slices.count
    count = min(len(scan), MOST_PATTERNS, max(2, MOST_BYTES // one))
    chosen = np.linspace(0, len(scan) - 1, count).round().astype(np.int64)
    frames = np.empty((count, *scan.pattern_shape), scan.frames.dtype)
    scan.frames.take(chosen, frames)
    own = scan.positions[chosen]
    middle = (np.array(object_frame(scan, settings).shape) - scan.pattern_shape) // 2
    positions = middle + own - np.rint(own)
    return dataclasses.replace(scan, frames=ArrayFrames.of(frames), positions=positions, object=None, ground_truth=None)
