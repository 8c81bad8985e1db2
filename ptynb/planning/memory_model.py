"""How much memory an engine takes at its peak, item by item: what the code holds at the same time, counted.

    the engine's patterns, in the type they are kept in (`engine.source`)
  + copies of object and probe: themselves, gradients, moments of the optimiser, messages, and what comes and goes
  + what is kept of each pattern of a batch until its gradient is there
  + small pictures of epochs on the way (`engine.moments`)
  + a state that is being written to a file
  + the process itself

What is not there at the same time by a few copies is added all the same: object and batches hardly ever matter both.
Resident memory at the peak of real runs on a CPU was 0.8 to 1.1 of the sum where the arrays are larger than `MAPPED`,
0.8 to 1.6 where they are smaller, and 2.1 once with slices. (L-BFGS keeps less where the curvature says nothing new:
0.4 was seen.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch

from ptynb.data.geometry import Geometry
from ptynb.data.scan import Scan
from ptynb.engine.thumbnails import bytes_of
from ptynb.loading.engine_patterns import Storage
from ptynb.loading.pattern_reader import PIECE_BYTES, narrowest
from ptynb.loading.prefetch import AHEAD
from ptynb.optimize.lbfgs import HISTORY
from ptynb.optimize.optimizers import moments
from ptynb.optimize.sampler import BatchSampler
from ptynb.physics.hotpath import compiled_for
from ptynb.physics.model_builder import model_window, object_frame
from ptynb.settings import THIN_ONLY, Settings

MAPPED = 2**25
"""glibc gives larger arrays back at once [bytes]."""
HEAP = 1.5
"""How much it takes for smaller ones that come and go, where they need 1.

1.2 to 1.9 was seen, up to 3 with four slices. With MALLOC_MMAP_THRESHOLD_=1048576, which maps them all, the same peaks
are those of plain counting, and runs take up to 8 times as long.
"""
RECORDED = 2
"""Arrays that a step outside of the hot path keeps for automatic differentiation: its result and the gradient of it."""
PROCESS = 200e6
"""Of a process with torch loaded [bytes], beside what it shares with others; there already without a cluster."""
COPIES_OF_A_STATE = 2.2
"""Its arrays, and the bytes of the file, whose room grows by an eighth at a time."""
CONTEXT = 600e6
"""What CUDA and its libraries take of a GPU [bytes]."""

Where = Literal["device", "host"]


@dataclass(frozen=True)
class Item:
    """What memory of one engine is for. where: "device" or "host", which are one on a CPU; bytes."""

    name: str
    where: Where
    bytes: float


@dataclass(frozen=True)
class Workload:
    """What is to be run: settings on this many engines of a cluster, or in this process (engines 1, cluster False).

    keep: whether states are kept, which rank 0 copies and turns into the bytes of a file.
    """

    settings: Settings
    engines: int
    cluster: bool = True
    keep: bool = True


def copies_of_parameters(settings: Settings, engines: int) -> float:
    """Arrays as large as object and probe that there are of each at the same time."""
    if settings.optimiser in THIN_ONLY:
        # Itself, the sums above and below with the message that brought them, the step, and the mean of its lengths.
        return 8
    # Copies for a result and for a picture, which all optimisers but one surpass in no step.
    passing = 5 if settings.optimiser == "radam" else 2
    kept = moments(settings)
    if settings.optimiser == "lbfgs":
        # A step and a change of the gradient each, the direction, and the last gradient, evaluation and parameters.
        kept = 2 * HISTORY + 4
    # Of the polar form: the complex values, their gradient, and one in passing.
    polar = 3 if settings.object.parametrization == "amplitude_phase" else 0
    return 2 + kept + passing + polar + (1 if engines > 1 else 0)


def arrays_of_an_update(scan: Scan, settings: Settings, on_gpu: bool) -> tuple[float, float, float]:
    """(waves, windows, patterns) of each pattern that `physics.hotpath` and the loss hold until its gradient is there.

    waves: (state, mode, y, x), complex. windows: (state, y, x), complex. patterns: (y, x), real.
    """
    still = settings.slices.learning_rate == 0 and settings.tilt.learning_rate == 0
    if on_gpu or not (still and compiled_for(torch.device("cpu"), model_window(scan, settings))):
        # Moved probes, waves behind each slice, waves at the detector.
        waves = 2.0 + settings.slices.count
        # Those of the object, and the ramps that move the probe.
        windows = settings.slices.count + 1.0
        # Counts, intensity, its slope, and one in passing.
        patterns = 4.0
        if any(settings.part(name).learning_rate > 0 for name in ("positions", "affine", "probe_offset")):
            waves += 1  # the product from which the slopes of shifts are summed
    else:
        # Moved probes and waves behind each slice, the last of which become those at the detector; or a sum for each
        # thread, where that is less (`compiled.steps`).
        waves, windows = 1.0 + settings.slices.count, 0.0
        # Counts, and the intensity, which becomes its slope.
        patterns = 2.0
    plane = scan.geometry is None or isinstance(scan.geometry, Geometry)
    waves += RECORDED * ((settings.opr.modes > 0) + (not plane))
    detector = settings.detector
    patterns += RECORDED * (
        (settings.pattern_intensities.learning_rate > 0)
        + (settings.background.learning_rate > 0)
        + (detector.psf_sigma > 0)
        + (detector.oversampling > 1)
        + (detector.saturation is not None)
    )
    return waves, windows, patterns


def memory_of(scan: Scan, asked: Workload, place: Storage, on_gpu: bool) -> tuple[Item, ...]:
    """What one engine takes at its peak, with the patterns at this place."""
    return tuple(item for item in _items(scan, asked, place, on_gpu) if item.bytes > 0)


def totals(items: tuple[Item, ...]) -> dict[Where, float]:
    """Of one engine, by where [bytes]."""
    return {
        "device": sum(item.bytes for item in items if item.where == "device"),
        "host": sum(item.bytes for item in items if item.where == "host"),
    }


def patterns_bytes(scan: Scan, settings: Settings, patterns: float) -> float:
    """Of so many patterns as engines keep them; integers of more than 16 bits are taken to fit in those."""
    working = torch.float64 if settings.precision == "double" else torch.float32
    return patterns * scan.pattern_shape[0] * scan.pattern_shape[1] * narrowest(scan.frames.dtype, working).itemsize


def own_patterns(scan: Scan, engines: int) -> int:
    """Patterns that one engine has at most."""
    return -(-len(scan) // engines)


def portion(scan: Scan, asked: Workload) -> int:
    """Patterns that one engine computes at once at most."""
    share = BatchSampler.of(scan, asked.settings, asked.engines).share(asked.engines)
    return -(-share // asked.settings.gradient_accumulation)


def _items(scan: Scan, asked: Workload, place: Storage, on_gpu: bool) -> Iterator[Item]:
    settings, where = asked.settings, _where(on_gpu)
    own, at_once = own_patterns(scan, asked.engines), portion(scan, asked)
    height, width = model_window(scan, settings)
    complex_bytes = 16 if settings.precision == "double" else 8
    window = float(complex_bytes * height * width)
    wave = window * settings.probe.modes
    ways = window * settings.opr.modes
    states = settings.object.modes

    if place == "disk" or (place == "host" and on_gpu):
        yield Item("patterns on their way", where, (1 + AHEAD) * at_once * window / 2)
    if place != "disk":
        yield Item("patterns", where if place == "device" else "host", patterns_bytes(scan, settings, own))
    if asked.cluster and not scan.frames.in_file:
        # Those of an array are sent to the engine, which lets go of them when it has taken them over.
        sent = own * scan.pattern_shape[0] * scan.pattern_shape[1] * scan.frames.dtype.itemsize
        yield Item("patterns as they were sent", "host", sent)
    yield Item("pieces in which patterns are read", "host", 2 * PIECE_BYTES)
    rows, columns = object_frame(scan, settings).shape
    object = float(complex_bytes * rows * columns * settings.slices.count * states)
    yield Item("pictures of epochs on the way", "host", bytes_of((rows, columns), (height, width)))
    copies = copies_of_parameters(settings, asked.engines)
    yield Item("object, gradient and optimiser", where, _taken(copies, object, on_gpu))
    yield Item("probe, gradient and optimiser", where, _taken(copies, wave + ways, on_gpu))
    waves, windows, patterns = arrays_of_an_update(scan, settings, on_gpu)
    yield Item(
        "waves of a batch",
        where,
        _taken(waves, at_once * states * wave, on_gpu)
        + _taken(windows, at_once * states * window, on_gpu)
        + _taken(patterns, at_once * window / 2, on_gpu),
    )
    kept = {"dm": 1, "raar": 2}.get(settings.optimiser, 0)
    yield Item("exit waves of all patterns", where, kept * own * wave)
    if asked.keep:
        lasting = 2 * HISTORY + 4 if settings.optimiser == "lbfgs" else moments(settings)
        state = (1 + lasting) * (object + wave + ways) + kept * own * wave
        yield Item("a state on its way to the disk", "host", COPIES_OF_A_STATE * state)
    if on_gpu:
        yield Item("CUDA", where, CONTEXT)
    if asked.cluster:
        yield Item("process", "host", PROCESS)


def _where(on_gpu: bool) -> Where:
    return "device" if on_gpu else "host"


def _taken(arrays: float, size: float, on_gpu: bool) -> float:
    """By so many arrays of so many bytes that come and go."""
    return arrays * size * (HEAP if size < MAPPED and not on_gpu else 1)
