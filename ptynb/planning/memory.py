"""Peak memory of an engine, counted item by item, and whether it fits.

    patterns of the engine, in their stored type (`loading.pattern_reader`)
  + copies of object and probe: values, gradients, moments of the optimiser, messages, temporaries
  + intermediate arrays of each pattern of a batch until its gradient is computed
  + object and probe of the epoch before, or some of their rows (`engine.state_changes`)
  + thumbnails of epochs (`engine.thumbnails`)
  + a checkpoint that is being written
  + the process itself

Items whose peaks differ in time are added too: object and batch are rarely both large. Measured peaks of
resident memory on a CPU were 0.8 to 1.1 of the sum for arrays larger than `MAPPED`, 0.8 to 1.6 for smaller ones, once
2.1 with slices, and 0.4 for L-BFGS with a short history.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch

from ptynb.cluster.devices import find_gpus
from ptynb.data.geometry import Geometry
from ptynb.data.scan import Scan
from ptynb.engine.state_changes import MOST_PIXELS
from ptynb.engine.thumbnails import bytes_of
from ptynb.exceptions import SettingsError
from ptynb.loading.engine_patterns import Storage, free_on_host, storage_for
from ptynb.loading.pattern_reader import PIECE_BYTES, narrowest
from ptynb.loading.prefetch import AHEAD
from ptynb.optimize.batching import can_share
from ptynb.optimize.lbfgs import HISTORY
from ptynb.optimize.optimizers import moments
from ptynb.optimize.sampler import BatchSampler
from ptynb.physics.hotpath import compiled_for
from ptynb.physics.model_builder import model_window, object_frame
from ptynb.settings import BY_EXIT_WAVES, WHOLE_PASSES, Settings

MAPPED = 2**25
"""glibc returns larger arrays to the system at once [bytes]."""
HEAP = 1.5
"""Memory of the heap for smaller temporaries, relative to their size.

1.2 to 1.9 was measured, up to 3 with four slices. With MALLOC_MMAP_THRESHOLD_=1048576, which maps all of them, the
peaks equal the sizes, and runs take up to 8 times as long.
"""
RECORDED = 2
"""Arrays per step outside of the hot path for automatic differentiation: result and gradient."""
PROCESS = 200e6
"""Private memory of a process with torch loaded [bytes]."""
COPIES_OF_A_STATE = 2.2
"""Arrays of a checkpoint, and the bytes of its file, whose buffer grows by an eighth at a time."""
COMPARED = 3
"""Arrays by which changes of an epoch are computed: those at its start and its end, and the difference."""
CONTEXT = 600e6
"""Memory of CUDA and its libraries on a GPU [bytes]."""

USABLE = 0.95
"""Part of the memory of a GPU for one process."""
MOST_ENGINES = 64
"""Largest number of engines that a remedy names."""

Where = Literal["device", "host"]


@dataclass(frozen=True)
class Item:
    """Memory of one engine for one purpose. where: "device" or "host", which are the same on a CPU."""

    name: str
    where: Where
    bytes: float


@dataclass(frozen=True)
class Workload:
    """Settings on a number of engines of a cluster, or in this process (engines 1, cluster False).

    keep: whether checkpoints are written, which rank 0 copies and encodes.
    """

    settings: Settings
    engines: int
    cluster: bool = True
    keep: bool = True


def copies_of_parameters(settings: Settings, engines: int) -> float:
    """Return the largest number of arrays of the size of object and probe in use at the same time."""
    if settings.optimiser in BY_EXIT_WAVES:
        # Parameters, sums (numerator, denominator) and their received message, the step, and its mean length; of LSQML
        # the illumination by all patterns, which is real.
        return 8 + moments(settings) + 0.5 * (settings.optimiser == "lsqml")
    # Copies for a result and for a picture; only one optimiser has more temporary arrays in a step.
    passing = 5 if settings.optimiser == "radam" else 2
    kept = moments(settings)
    if settings.optimiser == "lbfgs":
        # A step and a change of the gradient each, the direction, and the last gradient, evaluation and parameters.
        kept = 2 * HISTORY + 4
    # For the polar form: the complex values, their gradient, and a temporary one.
    polar = 3 if settings.object.parametrization == "amplitude_phase" else 0
    return 2 + kept + passing + polar + (1 if engines > 1 else 0)


def arrays_of_an_update(scan: Scan, settings: Settings, on_gpu: bool) -> tuple[float, float, float]:
    """Return the numbers of arrays per pattern that `physics.hotpath` and the loss store until its gradient is known.

    They are (waves, windows, patterns). waves: (state, mode, y, x), complex. windows: (state, y, x), complex.
    patterns: (y, x), real.
    """
    still = settings.slices.learning_rate == 0 and settings.tilt.learning_rate == 0
    if settings.optimiser == "lsqml":
        waves, windows, patterns = _arrays_of_corrections(scan, settings, on_gpu)
    elif on_gpu or not (still and compiled_for(torch.device("cpu"), model_window(scan, settings))):
        # Moved probes, waves behind each slice, waves at the detector.
        waves = 2.0 + settings.slices.count
        # Windows of the object, and the phase ramps that shift the probe.
        windows = settings.slices.count + 1.0
        # Counts, intensity, its derivative, and a temporary one.
        patterns = 4.0
        if any(settings.part(name).learning_rate > 0 for name in ("positions", "affine", "probe_offset")):
            waves += 1  # the product from which the derivatives by shifts are summed
    else:
        # Moved probes and waves behind each slice, the last of which become those at the detector; or one sum per
        # thread, if that is less (`compiled.steps`).
        waves, windows = 1.0 + settings.slices.count, 0.0
        # Counts, and the intensity, which is replaced by its derivative.
        patterns = 2.0
    plane = scan.geometry is None or isinstance(scan.geometry, Geometry)
    waves += RECORDED * (
        (settings.opr.modes > 0) + (settings.descan.start != "none") + (not plane) + (len(scan.probe_scans) > 1)
    )
    if settings.fly_scan.steps > 1:  # the modes of each step, and the waves of all of them
        waves = settings.fly_scan.steps * (waves + RECORDED * (1 + (not plane)))
    detector = settings.detector
    patterns += RECORDED * (
        (settings.pattern_intensities.learning_rate > 0)
        + (settings.background.learning_rate > 0)
        + (detector.psf_sigma > 0)
        + (detector.oversampling > 1)
        + (detector.saturation is not None)
    )
    return waves, windows, patterns


def _arrays_of_corrections(scan: Scan, settings: Settings, on_gpu: bool) -> tuple[float, float, float]:
    """Return `arrays_of_an_update` of `physics.exit_wave_corrections`."""
    # Waves incident on each slice, and corrections behind it.
    waves = 2.0 * settings.slices.count
    if not on_gpu and compiled_for(torch.device("cpu"), model_window(scan, settings)):
        return waves, 0.0, 2.0
    # Waves at the detector, their products with others, and those that the steps add; windows of object and step.
    return waves + 5, 2.0 * settings.slices.count + 1, 4.0


def memory_of(scan: Scan, asked: Workload, place: Storage, on_gpu: bool) -> tuple[Item, ...]:
    """Return the items of one engine with this storage of the patterns."""
    return tuple(item for item in _items(scan, asked, place, on_gpu) if item.bytes > 0)


def totals(items: tuple[Item, ...]) -> dict[Where, float]:
    """Return the sums of one engine by "device" and "host" [bytes]."""
    return {
        "device": sum(item.bytes for item in items if item.where == "device"),
        "host": sum(item.bytes for item in items if item.where == "host"),
    }


def patterns_bytes(scan: Scan, settings: Settings, patterns: float) -> float:
    """Return the bytes of stored patterns; integers of more than 16 bits are assumed to fit in 16."""
    working = torch.float64 if settings.precision == "double" else torch.float32
    return patterns * scan.pattern_shape[0] * scan.pattern_shape[1] * narrowest(scan.frames.dtype, working).itemsize


def own_patterns(scan: Scan, engines: int) -> int:
    """Return the largest number of patterns of one engine."""
    return -(-len(scan) // engines)


def portion(scan: Scan, asked: Workload) -> int:
    """Return the largest number of patterns that one engine computes at once."""
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
        # Patterns of an array are sent to the engine, which frees the message once it has stored them.
        sent = own * scan.pattern_shape[0] * scan.pattern_shape[1] * scan.frames.dtype.itemsize
        yield Item("patterns as they were sent", "host", sent)
    yield Item("pieces in which patterns are read", "host", 2 * PIECE_BYTES)
    rows, columns = object_frame(scan, settings).shape
    object = float(complex_bytes * rows * columns * settings.slices.count * states)
    yield Item("pictures of epochs on the way", "host", bytes_of((rows, columns), (height, width)))
    compared = min(object, complex_bytes * MOST_PIXELS) + min(wave, complex_bytes * MOST_PIXELS)
    yield Item("object and probe of the epoch before", where, _taken(COMPARED, compared, on_gpu))
    copies = copies_of_parameters(settings, asked.engines)
    # LSQML: numerator, illumination and mean step length of the patterns of each further probe.
    sums = 2 * (len(scan.probe_scans) - 1) if settings.optimiser == "lsqml" else 0
    yield Item("object, gradient and optimiser", where, _taken(copies + sums, object, on_gpu))
    probes = wave * len(scan.probe_scans)
    yield Item("probe, gradient and optimiser", where, _taken(copies, probes + ways, on_gpu))
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
        state = (1 + lasting) * (object + probes + ways) + kept * own * wave
        yield Item("a state on its way to the disk", "host", COPIES_OF_A_STATE * state)
    if on_gpu:
        yield Item("CUDA", where, CONTEXT)
    if asked.cluster:
        yield Item("process", "host", PROCESS)


def _where(on_gpu: bool) -> Where:
    return "device" if on_gpu else "host"


def _taken(arrays: float, size: float, on_gpu: bool) -> float:
    """Return the memory of so many temporary arrays of this size [bytes]."""
    return arrays * size * (HEAP if size < MAPPED and not on_gpu else 1)


@dataclass(frozen=True)
class Room:
    """Available memory [bytes]: of all engines together on the host, and of each engine on its GPU (None on a CPU).

    engines_per_gpu: number of engines that share a GPU, each of which has an equal part of it.
    """

    host: float
    device: float | None = None
    engines_per_gpu: int = 1

    def shared_by(self, engines_per_gpu: int) -> Room:
        """Return it for another number of engines that share a GPU."""
        device = None if self.device is None else self.device * self.engines_per_gpu / engines_per_gpu
        return Room(self.host, device, engines_per_gpu)


def room_for(on_gpu: bool, held: float = 0, engines_per_gpu: int = 1) -> Room:
    """Return the free memory of the host and that of the smallest GPU. held: by running engines [bytes].

    By nvidia-smi: the kernel does not use CUDA. Unknown sizes are infinite.
    """
    sizes = [gpu.memory * 2.0**20 * USABLE for gpu in find_gpus() if gpu.memory] if on_gpu else []
    room = Room(free_on_host() + held, min(sizes, default=float("inf")) if on_gpu else None)
    return room.shared_by(engines_per_gpu)


def check_room(scan: Scan, asked: Workload, room: Room) -> None:
    """Raise SettingsError with a remedy if the memory does not suffice."""
    problem = refusal(scan, asked, room)
    if problem is not None:
        raise SettingsError(problem, code="memory.insufficient")


def place_of_patterns(scan: Scan, asked: Workload, room: Room) -> Storage:
    """Return the storage of the patterns."""
    own, everybody = (
        patterns_bytes(scan, asked.settings, count) for count in (own_patterns(scan, asked.engines), len(scan))
    )
    return storage_for(asked.settings.pattern_storage, own, everybody, scan.frames.in_file, room.host, room.device)


def lacks(scan: Scan, asked: Workload, room: Room) -> Where | None:
    """Return "device" or "host" if its memory does not suffice, or None."""
    needed = totals(memory_of(scan, asked, place_of_patterns(scan, asked, room), room.device is not None))
    if room.device is not None and needed["device"] > room.device:
        return "device"
    return "host" if asked.engines * needed["host"] > room.host else None


def refusal(scan: Scan, asked: Workload, room: Room) -> str | None:
    """Return what does not fit, with the smallest change that helps, or None."""
    where = lacks(scan, asked, room)
    if where is None:
        return None
    place = place_of_patterns(scan, asked, room)
    items = [item for item in memory_of(scan, asked, place, room.device is not None) if item.where == where]
    largest = max(items, key=lambda item: item.bytes)
    needed = sum(item.bytes for item in items)
    there, times = (room.device, 1) if where == "device" else (room.host, asked.engines)
    assert there is not None, "only a GPU's memory is the device's"
    whose = "of memory"
    if where == "device":
        whose = "on its GPU" if room.engines_per_gpu == 1 else f"on a GPU that {room.engines_per_gpu} engines share"
    engines = "the engine needs" if asked.engines == 1 or where == "device" else f"{asked.engines} engines need"
    return (
        f"The memory does not suffice: {engines} about {times * needed / 1e9:.3g} GB {whose}, most of it for "
        f"'{largest.name}' ({times * largest.bytes / 1e9:.3g} GB), and {there / 1e9:.3g} GB are available; "
        f"{_remedy(scan, asked, room)}."
    )


def _remedy(scan: Scan, asked: Workload, room: Room) -> str:
    for count, changes, words in _remedies(scan, asked, room):
        try:
            settings = asked.settings.replace(**changes)
        except SettingsError:  # the settings are incompatible with this change
            continue
        if lacks(scan, Workload(settings, count, asked.cluster or count > 1), room) is None:
            return words
    for shared in range(room.engines_per_gpu - 1, 0, -1):
        count = max(1, asked.engines * shared // room.engines_per_gpu)
        fewer = Workload(asked.settings, count, asked.cluster, asked.keep)
        if can_share(scan, asked.settings, count) and lacks(scan, fewer, room.shared_by(shared)) is None:
            return f"let fewer engines share a GPU: Cluster({count}, engines_per_gpu={shared})"
    return "crop or bin the patterns first (ptynb.preparation)"


def _remedies(scan: Scan, asked: Workload, room: Room) -> Iterator[tuple[int, dict[str, Any], str]]:
    """Yield (engines, changes of settings, instruction) by cost, first those that do not change the result."""
    settings, engines = asked.settings, asked.engines
    for accumulate in (
        settings.gradient_accumulation * 2**power for power in range(1, portion(scan, asked).bit_length())
    ):
        change = {"gradient_accumulation": accumulate}
        yield engines, change, f"compute each batch in parts: gradient_accumulation={accumulate}"
    if settings.pattern_storage == "device" and room.device is not None:
        yield engines, {"pattern_storage": "host"}, "store the patterns elsewhere: pattern_storage='host'"
    if settings.pattern_storage != "disk" and scan.frames.in_file:
        yield engines, {"pattern_storage": "disk"}, "store the patterns elsewhere: pattern_storage='disk'"
    if room.device is not None:
        for count in range(engines + 1, MOST_ENGINES + 1):
            if can_share(scan, settings, count):
                yield count, {}, f"use {count} engines, each on its own GPU"
    else:
        for count in range(engines - 1, 0, -1):
            yield count, {}, f"use fewer engines, each of which stores the object: {count}"
    batch = settings.batch // 2
    while batch >= (1 if settings.batch_per == "engine" else engines):
        smaller = {"batch": batch, "gradient_accumulation": min(settings.gradient_accumulation, batch)}
        yield engines, smaller, f"use smaller batches: batch={batch}"
        batch //= 2
    if settings.optimiser in WHOLE_PASSES:
        adam = {"optimiser": "adam", "object": {"learning_rate": 0.01}, "probe": {"learning_rate": 0.01}}
        yield engines, adam, "use the optimiser 'adam'"
