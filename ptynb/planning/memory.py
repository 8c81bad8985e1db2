"""Peak memory of an engine, counted item by item, and whether it fits.

    patterns of the engine, in their stored type (`loading.pattern_reader`)
  + copies of object (or of a tile) and probe: values, gradients, moments of the optimiser, messages, temporaries
  + intermediate arrays of each pattern of a batch until its gradient is computed
  + object and probe of the epoch before, or some of their rows (`engine.run_progress`)
  + thumbnails of epochs (`engine.run_progress`)
  + a checkpoint that is being written
  + the process itself

On a CPU items whose peaks differ in time are added too: object and batch are rarely both large. Measured peaks of
resident memory were 0.8 to 1.1 of the sum for arrays larger than `MAPPED`, 0.8 to 1.6 for smaller ones, once 2.1 with
slices, and 0.4 for L-BFGS with a short history.

On a GPU, whose memory torch uses again at once, copies of object and probe in a step count as far as they exceed the
waves of a batch. Peaks of torch operations, counted on a CPU, are 0.8 to 1 of the sum (`tests/planning/
test_update_peaks.py`); what CUDA, cuFFT, cuBLAS and NCCL take besides is not measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch

from ptynb.cluster.accelerators import find_accelerators, usable
from ptynb.cluster.devices import find_gpus
from ptynb.data.geometry import Geometry
from ptynb.data.scan import Scan
from ptynb.engine import initial_probe
from ptynb.engine.run_progress import MOST_PIXELS, bytes_of
from ptynb.exceptions import SettingsError
from ptynb.loading.engine_patterns import Storage, free_on_host, storage_for
from ptynb.loading.pattern_reader import PIECE_BYTES, narrowest
from ptynb.loading.prefetch import AHEAD
from ptynb.optimize.batching import can_share, patterns_of
from ptynb.optimize.covered_region import BLOCK
from ptynb.optimize.lbfgs import HISTORY
from ptynb.optimize.object_tiles import TileLayout
from ptynb.optimize.optimizers import moments
from ptynb.optimize.sampler import bands_of, layout_of, planned_order
from ptynb.optimize.update_graphs import can_be_recorded
from ptynb.physics.model_builder import detector_effects, model_window, object_frame
from ptynb.settings import BY_EXIT_WAVES, PROJECTIONS, WHOLE_PASSES, Settings
from ptynb.settings.regularizers import PACBED

MAPPED = 2**25
"""glibc returns larger arrays to the system at once [bytes]."""
HEAP = 1.5
"""Memory of the heap for smaller temporaries, relative to their size.

1.2 to 1.9 was measured, up to 3 with four slices. With MALLOC_MMAP_THRESHOLD_=1048576, which maps all of them, the
peaks equal the sizes, and runs take up to 8 times as long.
"""
RECORDED = 2
"""Arrays per step outside of the hot path for automatic differentiation: result and gradient."""
PADDED = 4
"""Pixels of waves that are propagated to a tilted detector, relative to those of the window."""
TILTED = 14
"""Arrays of the window's size for such a propagation: padded waves, their spectrum and both gradients."""
PROCESS = 200e6
"""Private memory of a process with torch loaded [bytes]."""
COPIES_OF_A_STATE = 2.2
"""Arrays of a checkpoint, and the bytes of its file, whose buffer grows by an eighth at a time."""
KEPT_WAVES = {"dm": 1, "raar": 2}
"""Exit waves that an optimiser keeps of each pattern."""
SIDE_OF_SEARCH = 2.5
"""Largest side of the object of the search for a probe, in windows."""
COMPARED = 3
"""Arrays by which changes of an epoch are computed: those at its start and its end, and the difference."""
CONTEXT = 600e6
"""Memory of CUDA and its libraries on a GPU [bytes]."""
WORK_SPACE = 2**25
"""Work space that torch allocates for cuBLAS on a GPU of the generation of the H100; 8 MiB on earlier ones [bytes]."""
MESSAGES = 4e8
"""Buffers of NCCL's channels on a GPU, as reported for several GPUs of one host; not measured [bytes]."""
USABLE = 0.95
"""Part of the memory of a GPU for one process."""
MOST_ENGINES = 64
"""Largest number of engines that a remedy names."""

Where = Literal["device", "host"]

IN_TILES: dict[str, Any] = {"object": {"layout": "tiles"}, "batch_sampling": "cells"}
"""Changes of settings with which each engine holds a tile of the object."""
STREAMED: dict[str, Any] = {"object": {"layout": "streamed"}, "batch_sampling": "bands"}
"""Changes of settings with which a GPU holds the rows of the object for one band of the scan."""
MOST_BANDS = 256
"""Largest number of bands that a remedy names."""


@dataclass(frozen=True)
class Item:
    """Memory of one engine for one purpose. where: "device" or "host", which are the same on a CPU."""

    name: str
    where: Where
    bytes: float


@dataclass(frozen=True)
class Workload:
    """Settings on a number of engines of a cluster, or in this process (engines 1, cluster False).

    keep: whether checkpoints are written, which rank 0 copies and encodes. stages: settings of all stages, for whose
    patterns engines are sent those in memory at the beginning; none: of this one.
    """

    settings: Settings
    engines: int
    cluster: bool = True
    keep: bool = True
    stages: tuple[Settings, ...] = ()


@dataclass(frozen=True)
class Copies:
    """Arrays of the size of object and probe.

    lasting: as long as the run. updating: in addition, while the waves of a batch exist. stepping: in addition to the
    lasting ones while parameters change, when there are no waves any more.
    """

    lasting: float
    updating: float
    stepping: float

    @property
    def most(self) -> float:
        """The number that is allocated beside the waves on a CPU, which keeps their memory for the next batch."""
        return self.lasting + max(self.updating, self.stepping)


def copies_of_parameters(settings: Settings, engines: int, on_gpu: bool) -> Copies:
    """Return the number of arrays of the size of object and probe, without those of the epoch before."""
    moving = moments(settings)
    if settings.optimiser in BY_EXIT_WAVES:
        # Sums (numerator and denominator), the step, and its mean length; then what they are multiplied to, and the new
        # values. A message has all sums again.
        message = 2 * (engines > 1 or not on_gpu)
        if settings.optimiser == "lsqml":
            # The illumination by all patterns is real, and there with and without its damping; the numerator becomes
            # the step. Later the transforms that the illumination of the next epoch is computed by, or a velocity.
            sums = 2.5 - 0.5 * on_gpu  # there the damping is a part of the division
            return Copies(2 + moving, sums + message, sums + message)
        return Copies(1 + moving, 3 + message, 5 + message)
    if settings.optimiser == "lbfgs":
        # A step and a change of the gradient each, the direction, and the last gradient, evaluation and parameters.
        moving = 2 * HISTORY + 4
    # For the polar form: the complex values, their gradient, and a temporary one.
    polar = 3 if settings.object.parametrization == "amplitude_phase" else 0
    # Temporary arrays of a step; on a CPU also copies for a result and for a picture.
    stepping = 5 if settings.optimiser == "radam" and not on_gpu else 2
    # The gradient of a portion beside that of those before; of rPIE two real illuminations likewise.
    accumulated = (settings.gradient_accumulation > 1) * (1 + (settings.optimiser == "rpie"))
    return Copies(2 + moving + (engines > 1), polar + accumulated, polar + stepping)


@dataclass(frozen=True)
class UpdateArrays:
    """Numbers of arrays of each pattern at the same time.

    waves: (state, mode, y, x), complex. probes: (mode, y, x), complex. windows: (state, y, x), complex. patterns:
    (y, x), real.
    """

    waves: float
    probes: float
    windows: float
    patterns: float

    def in_windows(self, settings: Settings) -> float:
        """Return the sum in complex windows (y, x)."""
        modes, states = settings.probe.modes, settings.object.modes
        return self.waves * states * modes + self.probes * modes + self.windows * states + self.patterns / 2


def arrays_of_an_update(scan: Scan, settings: Settings, on_gpu: bool) -> UpdateArrays:
    """Return the arrays that `physics.hotpath` and the loss store until the gradient of a pattern is known.

    Of torch operations these are the counts of `tests/planning/test_update_peaks.py`.
    """
    still = settings.slices.learning_rate == 0 and settings.tilt.learning_rate == 0
    weighted = settings.pattern_intensities.learning_rate > 0
    plane = scan.geometry is None or isinstance(scan.geometry, Geometry)
    # Intermediate results of automatic differentiation.
    waves = RECORDED * (settings.descan.start != "none") + TILTED * (not plane)
    several, lens = len(scan.probe_scans) > 1, settings.aberrations.order > 0
    probes = RECORDED * ((settings.opr.modes > 0) + several + (several and lens))
    effects = detector_effects(settings)
    if not on_gpu and (still or settings.optimiser == "lsqml"):
        behind = (settings.background.learning_rate > 0) + weighted + len(effects)
        # LSQML: waves incident on each slice, and corrections behind it. Others: moved probes and waves behind each
        # slice, of which the last become those at the detector; or one sum per thread, if less (`compiled.steps`).
        own = 2.0 * settings.slices.count if settings.optimiser == "lsqml" else 1.0 + settings.slices.count
        # Counts, and the intensity, which is replaced by its derivative.
        return _in_steps(UpdateArrays(own + waves + probes, 0.0, 0.0, 2.0 + RECORDED * behind), settings, not plane)
    # On the detector some are gone when the gradient is back at the object; they have its own pixels. The point spread
    # is computed along y and along x; what pixels add up are waves of the model.
    patterns = float(weighted + len({*effects} - {"pixels"}) + ("point spread" in effects))
    patterns /= settings.detector.oversampling**2
    if settings.optimiser == "lsqml" or _in_one_step(scan, settings, still and plane):
        return max(_arrays_of_chain(settings, several), key=lambda one: one.in_windows(settings))
    found = [
        _in_steps(replace(one, probes=one.probes + probes, patterns=one.patterns + patterns), settings, not plane)
        for one in _arrays_of_steps(settings, waves)
    ]
    return max(found, key=lambda one: one.in_windows(settings))


def _arrays_of_steps(settings: Settings, recorded: float) -> Iterator[UpdateArrays]:
    """Yield the arrays of `physics.torch_steps` where gradients are at the detector, and where they are at the object.

    recorded: waves between object and detector.
    """
    slices, states = settings.slices.count, settings.object.modes
    behind = slices - 1.0  # waves behind each slice but the last
    # Waves at the detector and their gradient; moved probes; windows, and the ramps that shift the probes; counts,
    # intensity, its derivative, and a temporary array.
    ramps = 2.0
    yield UpdateArrays(behind + 2.0 + recorded, 1.0, slices, ramps + 4.0 + 2.0 * (recorded > 0))
    if slices == states == 1 and settings.optimiser not in ("dm", "raar"):
        return
    if settings.optimiser in ("dm", "raar"):
        # Differences of exit waves from the kept ones and from those with the measured amplitudes.
        yield UpdateArrays(4.0 + (settings.optimiser == "raar"), 1.0, 1.0, ramps + 2.0)
        return
    # Their gradients before and behind the object and one product; a product for the window.
    waves, patterns = behind + 3.0, ramps + 2.0
    if slices > 1 and (settings.slices.learning_rate > 0 or settings.tilt.learning_rate > 0):
        waves += 3.0  # from which the gradient of the propagator follows
    if slices > 1 and settings.tilt.per_position:
        patterns += 8.0  # a propagator of each pattern, in double precision, and its gradient
    yield UpdateArrays(waves, 1.0, slices + (slices > 1), patterns)


def _in_one_step(scan: Scan, settings: Settings, simple: bool) -> bool:
    """Whether `physics.chain` computes the gradient; simple: the propagations are neither tilted nor refined."""
    thick = settings.slices.count > 1
    recorded = (settings.descan.start != "none" and thick) or (settings.fly_scan.steps > 1 and not scan.is_far_field)
    alone = settings.object.modes == 1 and settings.optimiser not in PROJECTIONS
    averaged = any(isinstance(one, PACBED) for one in settings.regularizers)
    return simple and alone and not detector_effects(settings) and not recorded and not averaged


def _arrays_of_chain(settings: Settings, several: bool) -> Iterator[UpdateArrays]:
    """Yield the arrays of `physics.chain`, whose operations are kernels, and of the patterns of an R-factor.

    several: whether there are several probes.
    """
    slices, corrected = settings.slices.count, settings.optimiser == "lsqml"
    rates = settings.positions, settings.pattern_intensities, settings.background
    moved, weighted, lit = (one.learning_rate > 0 for one in rates)
    # Waves incident on each slice; those behind the last, their spectra and the transform's result; LSQML: corrections
    # behind each slice, and the waves that the steps of object and probe add.
    waves = 2.0 * slices + 2.0 if corrected else slices + 3.25 + (slices > 1) + 0.5 * (settings.optimiser == "rpie")
    if settings.opr.modes > 0 or several or settings.fly_scan.steps > 1 or settings.descan.start != "none":
        waves += 4.5  # probes of each pattern, their spectra, and three arrays for their gradient
    # Sums; the derivatives by the intensity, and the intensity.
    patterns = 0.75 + 2.25 * (weighted or lit or (corrected and moved))
    yield UpdateArrays(settings.fly_scan.steps * waves, 0.0, 0.0, patterns)
    yield UpdateArrays(2.0, 0.0, 2.0 * slices, 0.5)


def _in_steps(found: UpdateArrays, settings: Settings, tilted: bool) -> UpdateArrays:
    """Return the arrays with the steps of a fly scan, each of which has its own modes and ramps."""
    steps = settings.fly_scan.steps
    if steps == 1:
        return found
    recorded = RECORDED * (1 + tilted)
    waves, probes = steps * (found.waves + recorded), steps * found.probes
    ramps = 2.0 * steps * (found.probes > 0)
    return UpdateArrays(waves, probes, found.windows, found.patterns + ramps)


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


def own_patterns(scan: Scan, settings: Settings, engines: int) -> int:
    """Return the largest number of patterns of one engine."""
    return int(np.bincount(planned_order(scan, settings, engines).owner(engines)).max())


def sent_bytes(scan: Scan, asked: Workload) -> int:
    """Return the largest size of patterns in memory that are sent to one engine, before they are cropped [bytes]."""
    stages = asked.stages or (asked.settings,)
    return max(scan.frames.sent_bytes(patterns_of(scan, stages, rank, asked.engines)) for rank in range(asked.engines))


def portion(scan: Scan, asked: Workload) -> int:
    """Return the largest number of patterns that one engine computes at once."""
    share = planned_order(scan, asked.settings, asked.engines).share(asked.engines)
    return -(-share // asked.settings.gradient_accumulation)


def _items(scan: Scan, asked: Workload, place: Storage, on_gpu: bool) -> Iterator[Item]:
    settings, where = asked.settings, _where(on_gpu)
    own, at_once = own_patterns(scan, settings, asked.engines), portion(scan, asked)
    height, width = model_window(scan, settings)
    complex_bytes = 16 if settings.precision == "double" else 8
    window = float(complex_bytes * height * width)
    wave = window * settings.probe.modes
    ways = window * settings.opr.modes
    states = settings.object.modes

    if place == "disk" or (place == "host" and on_gpu):
        # The one in use, those ahead of it, and one that is begun before that in use is released.
        coming = (2 + AHEAD) * patterns_bytes(scan, settings, at_once)
        yield Item("patterns on their way", where, coming)
        if on_gpu:
            # torch allocates powers of two of page-locked memory.
            buffer = 2.0 ** math.ceil(math.log2(patterns_bytes(scan, settings, at_once)))
            yield Item("buffers of patterns on their way", "host", (1 + AHEAD) * buffer)
    if place != "disk":
        yield Item("patterns", where if place == "device" else "host", patterns_bytes(scan, settings, own))
    if asked.cluster:
        # The engine frees the message once it has stored the patterns of the last stage.
        yield Item("patterns as they were sent", "host", sent_bytes(scan, asked))
    yield Item("pieces in which patterns are read", "host", 2 * PIECE_BYTES)
    layout = layout_of(scan, settings, asked.engines)
    rows, columns = object_frame(scan, settings).shape if layout is None else layout.largest
    whole = float(complex_bytes * rows * columns * settings.slices.count * states)
    object, compared = whole, min(whole, complex_bytes * MOST_PIXELS)
    if settings.object.layout == "streamed":
        lsqml = settings.optimiser == "lsqml"
        object = whole * bands_of(scan, settings, planned_order(scan, settings, 1)).height / rows
        # Moments of LSQML are in host memory only. Its illumination is real, and there with and without damping, twice
        # where it is computed anew; on the device it is damped.
        yield Item(
            "object and moments in host memory", "host", _taken(1 + moments(settings) + 2 * lsqml, whole, on_gpu)
        )
        coming = _taken(1 + (0.5 if lsqml else moments(settings)), object, on_gpu)
        yield Item("object and moments of the next band", where, coming)
        yield Item("object of the epoch before", "host", _taken(COMPARED, compared, on_gpu))
        compared = 0.0
    yield Item("pictures of epochs on the way", "host", bytes_of((rows, columns), (height, width)))
    compared += min(wave, complex_bytes * MOST_PIXELS)
    yield Item("object and probe of the epoch before", where, _taken(1 if on_gpu else COMPARED, compared, on_gpu))
    if layout is not None:
        # Sent and received; LSQML: the illumination, too.
        message = object * _shared_pixels(layout, settings, at_once) / (rows * columns)
        messages = _taken(3 if settings.optimiser == "lsqml" else 2, message, on_gpu)
        yield Item("messages between tiles", where, messages)
    # No message has a whole tile.
    copies = copies_of_parameters(settings, asked.engines if layout is None else 1, on_gpu)
    lasting = copies.lasting if on_gpu else copies.most
    # LSQML: numerator, illumination and mean step length of the patterns of each further probe.
    sums = 2 * (len(scan.probe_scans) - 1) if settings.optimiser == "lsqml" else 0
    of_run = _taken(lasting + sums, object, on_gpu)
    yield Item("object, gradient and optimiser", where, of_run)
    probes = wave * len(scan.probe_scans)
    # A plane for each term of order n, of which there are n + 2, a constant, and two tilts.
    order = settings.aberrations.order
    figures = window / 2 * (3 + sum(n + 2 for n in range(1, order + 1))) if order else 0.0
    yield Item("probe, gradient and optimiser", where, _taken(lasting, probes + ways, on_gpu) + figures)
    arrays = arrays_of_an_update(scan, settings, on_gpu)
    waves = (
        _taken(arrays.waves, at_once * states * wave, on_gpu)
        + _taken(arrays.probes, at_once * wave, on_gpu)
        + _taken(arrays.windows, at_once * states * window, on_gpu)
        + _taken(arrays.patterns, at_once * window / 2, on_gpu)
    )
    if settings.optimiser == "rpie":
        # The illumination: moved probes twice, windows with their squares, and one array of indices.
        lit = at_once * (2 * wave + (1.5 * states * settings.slices.count + 0.5 + on_gpu) * window)
        waves = max(waves, lit * (1 if on_gpu else HEAP))
    yield Item("waves of a batch", where, waves)
    # The search has ended before the run takes its memory.
    yield Item("search for the probe", where, _of_search(scan, settings, on_gpu) - of_run - waves)
    recorded = settings.optimiser not in WHOLE_PASSES and place == "device"
    if on_gpu and recorded and can_be_recorded(settings, (height, width), at_once):
        # The last, smaller batch of an epoch is computed while the graph of the others has its memory.
        yield Item("recorded updates", where, waves)
    if on_gpu:
        # Here arrays of an update, of a step, and of a comparison of epochs take the same memory one after the other.
        parameters = object + probes + ways
        needed = waves + copies.updating * parameters, copies.stepping * parameters, (COMPARED - 1) * compared
        yield Item("copies of object and probe in a step", where, max(needed) - waves)
        if asked.engines > 1:
            yield Item("messages of NCCL", where, MESSAGES)
        # cuFFT may need as much as the array that it transforms.
        plane = scan.geometry is None or isinstance(scan.geometry, Geometry)
        pixels = settings.fly_scan.steps * (1 if plane else PADDED)
        yield Item("work space of Fourier transforms", where, at_once * states * wave * pixels)
    kept = KEPT_WAVES.get(settings.optimiser, 0)
    yield Item("exit waves of all patterns", where, kept * own * wave)
    if asked.keep:
        stored = 2 * HISTORY + 4 if settings.optimiser == "lbfgs" else moments(settings)
        state = (1 + stored) * ((object if layout is not None else whole) + probes + ways) + kept * own * wave
        yield Item("a state on its way to the disk", "host", COPIES_OF_A_STATE * state)
    if on_gpu:
        yield Item("CUDA", where, CONTEXT + WORK_SPACE)
    if asked.cluster:
        yield Item("process", "host", PROCESS)


def _shared_pixels(layout: TileLayout, settings: Settings, at_once: int) -> float:
    """Return the number of pixels that an engine sends to others at once, and receives.

    at_once: its patterns of a batch.
    """
    moves = max(settings.affine.learning_rate, settings.probe_offset.learning_rate) > 0
    if settings.regularizers or settings.constraints or moves:
        return layout.most_shared
    return min(layout.most_shared, at_once * math.prod(side + 2 * layout.margin + BLOCK for side in layout.window))


def _of_search(scan: Scan, settings: Settings, on_gpu: bool) -> float:
    """Return the most that the short reconstruction takes which finds the probe of a scan without one [bytes]."""
    if not initial_probe.searches(scan, settings):
        return 0
    height, width = (min(side, initial_probe.WIDEST) for side in scan.pattern_shape)
    pixels = float(height * width)
    complex_bytes = 16 if settings.precision == "double" else 8
    patterns = min(initial_probe.PATTERNS, len(scan))
    # The counts as they were gathered, as patterns of an engine, and in the memory of the host as a scan.
    counts = (2 if on_gpu else 3) * patterns * pixels * complex_bytes / 2

    def reconstruction(own: Settings) -> float:
        copies, frame = copies_of_parameters(own, 1, on_gpu), object_frame(scan, own).shape
        sides = [
            min(SIDE_OF_SEARCH * size, whole * size / window)
            for size, whole, window in zip((height, width), frame, scan.pattern_shape, strict=True)
        ]
        parameters = (copies.lasting + copies.updating) * (pixels + sides[0] * sides[1])
        waves = own.batch * arrays_of_an_update(scan, own, on_gpu).in_windows(own)
        kept = patterns * KEPT_WAVES.get(own.optimiser, 0)
        return _taken(1, complex_bytes * (parameters + pixels * (waves + kept)), on_gpu)

    return counts + max(
        map(reconstruction, (initial_probe.run_settings(settings), initial_probe.dm_settings(settings)))
    )


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

    By nvidia-smi: the kernel does not use CUDA. Without GPUs of NVIDIA that of the GPU of Intel that an engine uses.
    Unknown sizes are infinite.
    """
    device = USABLE * _smallest_gpu() if on_gpu else None
    room = Room(free_on_host() + held, device)
    return room.shared_by(engines_per_gpu)


def _smallest_gpu() -> float:
    """Return the memory of the GPU with the least of it [bytes]."""
    gpus = find_gpus()
    if not gpus and (other := usable(find_accelerators())) is not None:
        return other.memory or float("inf")
    return min((gpu.memory * 2.0**20 for gpu in gpus if gpu.memory), default=float("inf"))


def check_room(scan: Scan, asked: Workload, room: Room) -> None:
    """Raise SettingsError with a remedy if the memory does not suffice."""
    problem = refusal(scan, asked, room)
    if problem is not None:
        raise SettingsError(problem, code="memory.insufficient")


def place_of_patterns(scan: Scan, asked: Workload, room: Room) -> Storage:
    """Return the storage of the patterns."""
    counts = own_patterns(scan, asked.settings, asked.engines), len(scan)
    own, everybody = (patterns_bytes(scan, asked.settings, count) for count in counts)
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
        changed = replace(asked, settings=settings, engines=count, cluster=asked.cluster or count > 1)
        if lacks(scan, changed, room) is None:
            return words
    for shared in range(room.engines_per_gpu - 1, 0, -1):
        count = max(1, asked.engines * shared // room.engines_per_gpu)
        fewer = replace(asked, engines=count)
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
        divisible = settings.object.layout == "whole" and scan.acquisition is None
        bands = settings.batch_bands
        while divisible and engines == 1 and bands <= MOST_BANDS:
            more = f", batch_bands={bands}" if bands > settings.batch_bands else ""
            more += " (Adam then needs more epochs, LSQML does not)" if settings.optimiser == "adam" else ""
            words = (
                "store the object in host memory: object.layout='streamed', batch_sampling='bands'"
                f"{more}; or use more engines, each on its own GPU, and divide the object over them: "
                "object.layout='tiles', batch_sampling='cells'"
            )
            yield 1, {**STREAMED, "batch_bands": bands}, words
            bands *= 2
        for count in range(max(2, engines), MOST_ENGINES + 1) if divisible else ():
            more = f"use {count} engines, each on its own GPU, and " if count > engines else ""
            yield count, IN_TILES, f"{more}divide the object over them: object.layout='tiles', batch_sampling='cells'"
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
