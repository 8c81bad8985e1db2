"""Pictures for the notebook, rendered on the engine so that little data is sent.

The training thread only copies, between two updates: 1.1 ms for 1024 x 1024 pixels. The requesting thread does the
rest, in about 13 ms: phases 3, amplitudes 1, limits of contrast 1, JPEG 7 (more for noise). Of large areas, and of an
object in tiles, the training thread makes means over blocks of pixels instead: 0.3 s for 16384 x 16384.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ptynb.data import images
from ptynb.data.commands import ReduceObject
from ptynb.data.cut_pictures import cut_pictures
from ptynb.data.engine_records import (
    Array,
    Contrast,
    PhaseRamp,
    Picture,
    Pictures,
    RenderRequest,
    Snapshot,
    WatchedPictures,
)
from ptynb.exceptions import InvalidValueError
from ptynb.kernels import image_kernels
from ptynb.kernels.runtime.thread_count import torch_alone
from ptynb.physics.components.builtin import ObjectPart
from ptynb.physics.model import Model
from ptynb.physics.torch_steps import product_of_slices

WIDE = (0.1, 99.9)
"""Percentiles that the grey levels span; the viewer can only narrow them."""
WATCHED_SIZE = 512
COPIED = 2**22
"""Pixels of the largest area that is copied rather than averaged by the training thread."""

Area = tuple[slice, slice]


@dataclass(frozen=True, eq=False)
class Taken:
    """Copies of object and probe, taken between two updates, on the model's device.

    object: complex (y, x), cropped to `area`, and averaged over blocks of `reduction` pixels. probe: complex (mode, y,
    x). slices, states: of the whole object.
    cost: time that copying took the training thread [s]. lines: of all slices, if they were requested.
    """

    object: Tensor
    probe: Tensor
    epoch: int
    update: int
    area: Area
    slices: int
    states: int
    cost: float
    lines: CutLines | None = None
    reduction: int = 1


@dataclass(frozen=True, eq=False)
class CutLines:
    """A row (slice, x) and a column (slice, y) of all slices of an area, complex.

    at: pixel (y, x) of the object where they cross. distance: of two slices [m], a scalar on any device.
    """

    row: Tensor
    column: Tensor
    at: tuple[int, int]
    distance: Tensor

    def cuts(self, area: Area, ramps: tuple[PhaseRamp, ...]) -> tuple[Array, Array]:
        """Return both without the ramps of the slices, on the host; (): with them."""
        across, down = self.row.cpu().numpy().copy(), self.column.cpu().numpy().copy()
        y, x = _centres(area, (1, 1))
        for number, ramp in enumerate(ramps):
            across[number] *= np.exp(-1j * sum(ramp.along(self.at[0], x)))
            down[number] *= np.exp(-1j * sum(ramp.along(y, self.at[1])))
        return across, down


def make_snapshot(object: Array, probe: Array, epoch: int, update: int, size: int) -> Snapshot:
    """Return a preview whose object has at most `size` pixels a side."""
    reduction = images.reduction_for(object.shape, size)
    return Snapshot(epoch, update, images.reduce_by(object, reduction), probe, reduction)


def allocate_area(model: Model, area: Area) -> Tensor:
    """Allocate the array (y, x) into which `take` copies the object's area; call it in the requesting thread.

    The memory is written once, since otherwise the training thread would be the first to touch it, and would wait 5 ms
    for the system to provide 1024 x 1024 pixels.
    """
    object = model.object if model.streamed is None else model.streamed.whole
    values = object.amplitude if object.polar else object.parts
    height, width = (len(range(*part.indices(side))) for part, side in zip(area, values.shape[2:4], strict=True))
    buffer = torch.empty(height, width, dtype=values.dtype.to_complex(), device=values.device)
    if buffer.device.type == "cpu":
        buffer.numpy().fill(0)
    return buffer


@torch.no_grad()
def take(model: Model, request: RenderRequest, area: Area, buffer: Tensor, epoch: int, update: int) -> Taken:
    """Copy the requested slice of the object into the buffer, and the probe; call it in the training thread."""
    # On a CPU other threads may use the core meanwhile; this time must not count as that of the copy.
    clock = time.thread_time if buffer.device.type == "cpu" else time.perf_counter
    started = clock()
    layers = model.whole_object.covered(request.state, area)
    slices, states = numbers_of(model)
    if request.slice is None and slices > 1:
        product_of_slices(layers, buffer)
    else:
        buffer.copy_(layers[request.slice or 0])
    lines = take_lines(model, request.state, request.cut, area)
    return Taken(buffer, model.probe.values.clone(), epoch, update, area, slices, states, clock() - started, lines)


def numbers_of(model: Model) -> tuple[int, int]:
    """Return the numbers of slices and states of the object."""
    states, slices = next(model.object.parameters()).shape[:2]
    return slices, states


def check_request(model: Model, request: RenderRequest) -> None:
    """Raise ValueError if the object has no such slice, state or region."""
    _check(model, request.state, request.slice, request.region)


def check_reduction(model: Model, wanted: ReduceObject) -> None:
    """Raise ValueError if the object has no such slice, state or area, equally on all ranks."""
    _check(model, wanted.state, wanted.slice, wanted.area)


def _check(model: Model, state: int, slice: int | None, region: Sequence[int] | None) -> None:
    slices, states = numbers_of(model)
    if state >= states or (slice is not None and slice >= slices):
        raise InvalidValueError(
            f"The request is for slice {slice} of object mode {state}, and the object has {slices} "
            f"slices and {states} modes, counted from 0.",
            code="argument.invalid-value",
            fields=("slice", "state"),
        )
    height, width = model.part.shape
    if region is not None and (region[1] > height or region[3] > width):
        raise InvalidValueError(
            f"The request is for the region (top, bottom, left, right) = {tuple(region)}, and the object has "
            f"{height} x {width} pixels.",
            code="argument.invalid-value",
            fields=("region",),
        )


@torch.no_grad()
def take_reduced(model: Model, wanted: ReduceObject, epoch: int, update: int) -> Taken:
    """Average the object over blocks of pixels, and copy the probe; call it in the training thread.

    Of an object in tiles it is this engine's part of them: the sum over engines is that of the whole object.
    """
    top, bottom, left, right = wanted.area
    area = slice(top, bottom), slice(left, right)
    on_cpu = model.probe.parts.device.type == "cpu"
    clock = time.thread_time if on_cpu else time.perf_counter
    started = clock()

    def covered(here: Area) -> Tensor:
        slices = model.whole_object.covered(wanted.state, here)
        return product_of_slices(slices) if wanted.slice is None and len(slices) > 1 else slices[wanted.slice or 0]

    with torch_alone(on_cpu):
        object = _own(model).reduced(covered, area, wanted.block)
    lines = take_lines(model, wanted.state, wanted.cut, area)
    slices, states = numbers_of(model)
    probe, cost = model.probe.values.clone(), clock() - started
    return Taken(object, probe, epoch, update, area, slices, states, cost, lines, wanted.block)


@torch.no_grad()
def take_lines(model: Model, state: int, cut: Sequence[int] | None, area: Area) -> CutLines | None:
    """Copy a row and a column of all slices, through the pixel of the area that is nearest to one of the object."""
    if cut is None or model.slab is None:
        return None
    y, x = (min(max(at, side.start), side.stop - 1) for at, side in zip(cut, area, strict=True))
    row, column = (_take_line(model, state, line) for line in ((slice(y, y + 1), area[1]), (area[0], slice(x, x + 1))))
    return CutLines(row, column, (y, x), model.slab.slices.thickness.clone())


def _take_line(model: Model, state: int, line: Area) -> Tensor:
    """Return all slices (slice, pixel) of an area of one row or column; 0 where others own the pixels."""
    own = model.part.within(line)
    values = model.whole_object.covered(state, own)
    found = values.new_zeros(len(values), *(side.stop - side.start for side in line))
    if values.numel():
        firsts = (one.start + at - side.start for one, at, side in zip(own, model.part.origin, line, strict=True))
        y, x = firsts
        found[:, y : y + values.shape[1], x : x + values.shape[2]] = values
    return found.flatten(1)


def _own(model: Model) -> ObjectPart:
    """Return the engine's own pixels, without sums over others."""
    return model.part._replace(total=lambda tensor: tensor)


def summed(own: Taken, total: Callable[[Tensor], Tensor]) -> Taken:
    """Return the sum over engines of what each has of an object in tiles. total: collective call that sums a tensor."""

    def sum_of(values: Tensor) -> Tensor:
        return torch.view_as_complex(total(torch.view_as_real(values).contiguous()))

    lines = own.lines
    if lines is not None:
        lines = replace(lines, row=sum_of(lines.row), column=sum_of(lines.column))
    return replace(own, object=sum_of(own.object), lines=lines)


def needs_ramps(request: RenderRequest) -> bool:
    """Return whether ramps are removed from the phases of the panes."""
    return request.flat and any(pane != "amplitude" for pane in request.panes)


def contrast_of(overview: Taken, request: RenderRequest) -> Contrast:
    """Return the contrast of the illuminated area, with which its regions are shown."""
    with torch_alone():
        reduced, blocks = _reduced(overview, request.size)
        ramp = _ramp(reduced, overview.area, blocks) if needs_ramps(request) else None
        return _contrast(*_quantities(reduced, overview.area, blocks, request, ramp), request, ramp)


def ramp_of(overview: Taken, size: int) -> PhaseRamp:
    """Return the ramp of the phase of the illuminated area, as it is removed from pictures of this size."""
    with torch_alone():
        reduced, blocks = _reduced(overview, size)
        return _ramp(reduced, overview.area, blocks)


def make_pictures(
    taken: Taken,
    request: RenderRequest,
    pixel: tuple[float, float] | None = None,
    contrast: Contrast | None = None,
    slice_ramps: tuple[PhaseRamp, ...] = (),
) -> Pictures:
    """Render the requested pictures from the copies.

    pixel: pixel size of the object (y, x) [m]. contrast: None: what suits what was taken. slice_ramps: for cuts.
    """
    with torch_alone():
        reduced, blocks = _reduced(taken, request.size)
        sides = taken.area[0].stop - taken.area[0].start, taken.area[1].stop - taken.area[1].start
        fitted = contrast is None and needs_ramps(request) and reduced.size > 0
        ramp = _ramp(reduced, taken.area, blocks) if fitted else None if contrast is None else contrast.ramp
        amplitude, phase = _quantities(reduced, taken.area, blocks, request, ramp)
        contrast = contrast or _contrast(amplitude, phase, request, ramp)
        if slice_ramps:
            contrast = replace(contrast, slice_ramps=slice_ramps)
        shown = sides, max(blocks)
        pictures = [_pane(name, amplitude, phase, contrast, request, shown, pixel) for name in request.panes]
        if taken.lines is not None:
            pictures += _cut_panes(taken.lines, pictures, contrast, request, pixel, taken.area)
        probe = taken.probe.cpu().numpy()
        powers = (np.abs(probe) ** 2).sum((1, 2))
        powers = powers / max(float(powers.sum()), 1e-30)
        pictures += [_mode(number, probe, float(powers[number]), request, pixel) for number in _modes(probe, request)]
    return Pictures(
        taken.epoch,
        taken.update,
        tuple(pictures),
        tuple(float(power) for power in powers),
        (taken.area[0].start, taken.area[1].start),
        taken.slices,
        taken.states,
        taken.cost,
        contrast,
    )


@functools.cache
def prepare_rendering() -> None:
    """Load what pictures are rendered with: the first ones take 0.2 s longer, and 1.5 s where it has to be compiled."""
    field = torch.ones(2, 2, dtype=torch.complex64)
    taken = Taken(field, field[None], 0, 0, (slice(0, 2), slice(0, 2)), slices=1, states=1, cost=0.0)
    make_pictures(taken, RenderRequest())


def pixel_value(taken: Taken, quantity: str, ramp: PhaseRamp | None) -> complex | float:
    """Return amplitude, phase [rad] or complex value, by the name of a pane, of the only pixel that was taken.

    ramp: is removed from the phase.
    """
    value: complex = taken.object.cpu().numpy().item()
    if ramp is not None:
        value *= np.exp(-1j * float(sum(ramp.along(taken.area[0].start, taken.area[1].start))))
    found: complex | float = quantity_of(np.array(value), quantity).item()
    return found


def probe_value(probe: Array, name: str, y: int, x: int, request: RenderRequest) -> complex | float:
    """Return the value of pixel (y, x) of a mode of the probe (mode, y, x), by the name of its picture.

    Raises ValueError if there is no such picture, or no such pixel.
    """
    names = {f"probe {number + 1}": number for number in _modes(probe, request)}
    if name not in names:
        raise InvalidValueError(
            f"There is no picture '{name}'; there are {', '.join([*request.panes, *names])}.",
            code="argument.invalid-value",
        )
    check_pixel(name, (y, x), _sides(probe[0]))
    value: complex | float = quantity_of(probe[names[name], y, x], request.modes_as).item()
    return value


def check_pixel(name: str, pixel: tuple[int, int], sides: tuple[int, int]) -> None:
    """Raise ValueError if a picture of an array with these sides has no such pixel (y, x)."""
    if not all(0 <= at < side for at, side in zip(pixel, sides, strict=True)):
        raise InvalidValueError(
            f"'{name}' has {sides[0]} x {sides[1]} pixels, and none at {pixel}.", code="argument.invalid-value"
        )


def _reduced(taken: Taken, size: int) -> tuple[Array, tuple[int, int]]:
    """Return what was taken with at most `size` pixels a side, and the blocks (y, x) of which they are means."""
    object = taken.object.cpu().numpy()
    reduction = taken.reduction
    if reduction == 1 and object.size:
        reduction = images.reduction_for(object.shape, size)
        object = images.reduce_by(object, reduction)
    height, width = (max(1, min(reduction, side.stop - side.start)) for side in taken.area)
    return object, (height, width)


def _centres(area: Area, blocks: tuple[int, int]) -> tuple[Array, Array]:
    """Return the centres (y,) and (x,) of the blocks of an area [pixels of the object]."""
    y, x = (
        side.start + (block - 1) / 2 + block * np.arange((side.stop - side.start) // block)
        for side, block in zip(area, blocks, strict=True)
    )
    return y, x


def _ramp(reduced: Array, area: Area, blocks: tuple[int, int]) -> PhaseRamp:
    """Return the ramp of the phase of an area, whose means over blocks are given."""
    down, across = images.ramp(np.ascontiguousarray(reduced, np.complex64), _mean_steps, _turned_sum)
    step_y, step_x = (
        float(angles[1] - angles[0]) / block if len(angles) > 1 else 0.0
        for angles, block in zip((down, across), blocks, strict=True)
    )
    y, x = _centres(area, blocks)
    return PhaseRamp(float(down[0] - step_y * y[0] - step_x * x[0]), step_y, step_x)


def _quantities(
    reduced: Array, area: Area, blocks: tuple[int, int], request: RenderRequest, ramp: PhaseRamp | None
) -> tuple[Array | None, Array | None]:
    """Return amplitude, and phase without the ramp, as far as the panes need them."""
    amplitude = np.abs(reduced) if {"amplitude", "complex"} & {*request.panes} else None
    phase = None
    if {"phase", "complex"} & {*request.panes}:
        phase = phase_of(reduced, None if ramp is None else ramp.along(*_centres(area, blocks)))
    return amplitude, phase


def _contrast(amplitude: Array | None, phase: Array | None, request: RenderRequest, ramp: PhaseRamp | None) -> Contrast:
    shown = {*request.panes}
    return Contrast(
        amplitude=None if amplitude is None or "amplitude" not in shown else images.limits_of(amplitude, *WIDE),
        phase=None if phase is None or "phase" not in shown else images.limits_of(phase, *WIDE),
        largest=None if amplitude is None or "complex" not in shown else float(amplitude.max()),
        ramp=ramp,
    )


def _modes(probe: Array, request: RenderRequest) -> range:
    return range(min(len(probe), request.modes))


def _pane(
    name: str,
    amplitude: Array | None,
    phase: Array | None,
    contrast: Contrast,
    request: RenderRequest,
    shown: tuple[tuple[int, int], int],
    pixel: tuple[float, float] | None,
) -> Picture:
    """Return a picture of the object. shown: sides of the area [pixels], and reduction."""
    title = f"object {name}"
    if name == "complex":
        assert amplitude is not None, "the pane needs both"
        assert phase is not None, "the pane needs both"
        return _in_colours(name, title, phase, amplitude, request, *shown, pixel, contrast.largest)
    if name == "amplitude":
        values, limits, unit, colours = amplitude, contrast.amplitude, "", "gray"
    else:
        values, limits, unit, colours = phase, contrast.phase, "rad", "viridis"
    assert values is not None, "the pane needs it"
    assert limits is not None, "they are those of the pane"
    note = "without mean and ramp" if name == "phase" and request.flat else ""
    image = images.jpeg(levels_of(values, limits), request.quality)
    return Picture(name, title, image, *shown, limits, unit, pixel, colours, note, quantity=name)


def quantity_of(field: Array, pane: str) -> Array:
    """Return amplitude, phase [rad] or complex values of a field, by the name of the pane that shows them."""
    if pane == "complex":
        return field
    return np.abs(field) if pane == "amplitude" else np.angle(field)


def _cut_panes(
    lines: CutLines,
    panes: list[Picture],
    contrast: Contrast,
    request: RenderRequest,
    pixel: tuple[float, float] | None,
    area: Area,
) -> list[Picture]:
    """Return pictures of the cuts, in the contrast of the panes if these show one of the slices."""
    assert pixel is not None, "the distance of slices requires a geometry"
    pictures, (across, down) = list[Picture](), lines.cuts(area, contrast.slice_ramps)
    of_slice = request.slice is not None
    for pane in panes:
        cuts = quantity_of(across, pane.name), quantity_of(down, pane.name)
        together = np.abs(np.concatenate(cuts, axis=1)) if pane.name == "complex" else np.concatenate(cuts, axis=1)
        limits = None if pane.limits is None else pane.limits if of_slice else images.limits_of(together, *WIDE)
        largest = contrast.largest if of_slice else None
        pictures += cut_pictures(
            pane.name,
            *cuts,
            at=lines.at,
            pixel_size=pixel,
            distance=float(lines.distance),
            limits=limits,
            largest=float(together.max()) if largest is None else largest,
            size=request.size,
            unit=pane.unit,
            colours=pane.colours,
        )
    return pictures


def _mode(
    number: int, probe: Array, power: float, request: RenderRequest, pixel: tuple[float, float] | None
) -> Picture:
    mode, title = probe[number], f"mode {number + 1} ({power:.1%})"
    reduction = images.reduction_for(mode.shape, request.size)
    reduced = images.reduce_by(mode, reduction)
    name, amplitude = f"probe {number + 1}", np.abs(reduced)
    if request.modes_as == "complex":
        return _in_colours(name, title, phase_of(reduced), amplitude, request, _sides(mode), reduction, pixel)
    limits = (0.0, max(float(amplitude.max()), 1e-30))
    image = images.jpeg(levels_of(amplitude, limits), request.quality)
    return Picture(name, title, image, _sides(mode), reduction, limits, "√counts", pixel, "gray")


def _in_colours(
    name: str,
    title: str,
    phase: Array,
    amplitude: Array,
    request: RenderRequest,
    sides: tuple[int, int],
    reduction: int,
    pixel: tuple[float, float] | None,
    largest: float | None = None,
) -> Picture:
    image = images.jpeg(images.hues(phase, amplitude, largest), request.quality)
    return Picture(name, title, image, sides, reduction, pixel_size=pixel)


def phase_of(field: Array, ramp: tuple[Array, Array] | None = None) -> Array:
    """Return the phase (y, x) float32 [rad] in [-π, π], less a ramp along y (y,) and x (x,)."""
    values = np.ascontiguousarray(field, np.complex64)
    down, across = (np.zeros(side) for side in values.shape) if ramp is None else ramp
    phase = np.empty(values.shape, np.float32)
    image_kernels.phases(_as_reals(values), _wrapped(down), _wrapped(across), phase)
    return phase


def levels_of(values: Array, limits: tuple[float, float]) -> Array:
    """Return grey levels uint8 as `images.levels`, in single precision."""
    grey = np.empty(values.shape, np.uint8)
    low, high = (np.float32(limit) for limit in limits)
    image_kernels.greys(
        np.ascontiguousarray(values, np.float32), low, np.maximum(high, np.nextafter(low, np.float32(np.inf))), grey
    )
    return grey


def _as_reals(field: Array) -> Array:
    return field.view(np.float32)


def _mean_steps(field: Array) -> tuple[complex, complex]:
    down, across = image_kernels.mean_steps(_as_reals(field))
    return down, across


def _turned_sum(field: Array, down: Array, across: Array) -> complex:
    # Not by numpy's matrix product, which would use threads of its own on the cores that updates need.
    total: complex = image_kernels.turned_sum(_as_reals(field), down, _as_reals(across))
    return total


def _wrapped(angles: Array) -> Array:
    turned: Array = (angles - 2 * np.pi * np.rint(angles / (2 * np.pi))).astype(np.float32)
    return turned


def _sides(values: Array) -> tuple[int, int]:
    return values.shape[0], values.shape[1]


def make_watched(object: Array, probe: Array, area: Area, epoch: int, update: int) -> WatchedPictures:
    """Return JPEG pictures of the object's scanned area (amplitude, phase) and of the probe's modes, side by side."""
    inside = object[area]
    reduced = images.reduce_by(inside, images.reduction_for(inside.shape, WATCHED_SIZE))
    limits, files = {}, dict[str, bytes]()
    for name, values in (("amplitude", np.abs(reduced)), ("phase", images.flat_phase(reduced))):
        limits[name] = images.limits_of(values)
        files[name] = images.jpeg(images.levels(values, limits[name]))
    powers = (np.abs(probe) ** 2).sum((1, 2))
    modes = probe[: RenderRequest().modes]
    modes = images.reduce_by(modes, images.reduction_for(modes.shape, WATCHED_SIZE // 2))
    files["probe"] = images.jpeg(images.side_by_side([images.complex_colours(mode) for mode in modes]))
    limits["probe"] = (0.0, float(np.abs(probe[0]).max()))
    return WatchedPictures(epoch, update, files, limits, tuple(float(power) for power in powers / powers.sum()))
