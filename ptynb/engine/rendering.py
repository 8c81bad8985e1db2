"""Pictures for the notebook, rendered on the engine so that little data is sent.

The training thread only copies, between two updates: 1.1 ms for 1024 x 1024 pixels. The requesting thread does the
rest, in about 13 ms: phases 3, amplitudes 1, limits of contrast 1, JPEG 7 (more for noise).
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ptynb.data import images
from ptynb.data.commands import ReduceObject
from ptynb.data.cut_pictures import cut_pictures
from ptynb.data.engine_records import Array, Picture, Pictures, RenderRequest, Snapshot, WatchedPictures
from ptynb.exceptions import InvalidValueError
from ptynb.kernels import image_kernels
from ptynb.kernels.runtime.thread_count import torch_alone
from ptynb.physics.model import Model
from ptynb.physics.torch_steps import product_of_slices

WIDE = (0.1, 99.9)
"""Percentiles that the grey levels span; the viewer can only narrow them."""
WATCHED_SIZE = 512

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
    """A row (slice, x) and a column (slice, y) of all slices, complex, at a pixel (y, x) of the area.

    distance: of two slices [m], a scalar on any device. ramps: of the phase of each slice, along y and x [rad], which
    are removed from it; (): none.
    """

    row: Tensor
    column: Tensor
    at: tuple[int, int]
    distance: Tensor
    ramps: tuple[tuple[Array, Array], ...] = ()

    def cuts(self) -> tuple[Array, Array]:
        """Return both without the ramps, on the host."""
        across, down = self.row.cpu().numpy().copy(), self.column.cpu().numpy().copy()
        for number, (along_y, along_x) in enumerate(self.ramps):
            across[number] *= np.exp(-1j * (along_y[self.at[0]] + along_x))
            down[number] *= np.exp(-1j * (along_y + along_x[self.at[1]]))
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
    values = model.object.amplitude if model.object.polar else model.object.parts
    height, width = (len(range(*part.indices(side))) for part, side in zip(area, values.shape[2:4], strict=True))
    buffer = torch.empty(height, width, dtype=values.dtype.to_complex(), device=values.device)
    if buffer.device.type == "cpu":
        buffer.numpy().fill(0)
    return buffer


@torch.no_grad()
def take(model: Model, request: RenderRequest, area: Area, buffer: Tensor, epoch: int, update: int) -> Taken:
    """Copy the requested slice of the object into `room`, and the probe; call it in the training thread.

    Raises ValueError if the slice or state does not exist.
    """
    # On a CPU other threads may use the core meanwhile; this time must not count as that of the copy.
    clock = time.thread_time if buffer.device.type == "cpu" else time.perf_counter
    started = clock()
    slices, states = check_request(model, request)
    seen = model.object.covered(request.state, area)
    if request.slice is None and slices > 1:
        product_of_slices(seen, buffer)
    else:
        buffer.copy_(seen[request.slice or 0])
    lines = None
    if request.cut is not None and model.slab is not None:
        y, x = (
            min(max(at - part.start, 0), side - 1)
            for at, part, side in zip(request.cut, area, buffer.shape, strict=True)
        )
        lines = CutLines(seen[:, y].clone(), seen[:, :, x].clone(), (y, x), model.slab.slices.thickness.clone())
    return Taken(buffer, model.probe.values.clone(), epoch, update, area, slices, states, clock() - started, lines)


def check_request(model: Model, request: RenderRequest) -> tuple[int, int]:
    """Return the numbers of slices and states of the object. Raises ValueError if those of the request do not exist."""
    states, slices = next(model.object.parameters()).shape[:2]
    if request.state >= states or (request.slice is not None and request.slice >= slices):
        raise InvalidValueError(
            f"The request is for slice {request.slice} of object mode {request.state}, and the object has {slices} "
            f"slices and {states} modes, counted from 0.",
            code="argument.invalid-value",
            fields=("slice", "state"),
        )
    return slices, states


@torch.no_grad()
def take_reduced(model: Model, wanted: ReduceObject, epoch: int, update: int) -> Taken:
    """Reduce an area of an object in tiles, and copy the probe; call it on all ranks, in the training thread."""
    started = time.perf_counter()
    states, slices = next(model.object.parameters()).shape[:2]
    top, bottom, left, right = wanted.area
    area = slice(top, bottom), slice(left, right)
    seen = model.object.covered(wanted.state, model.part.within(area))
    plane = product_of_slices(seen) if wanted.slice is None else seen[wanted.slice]
    object = model.part.reduced(plane, area, wanted.block)
    cost = time.perf_counter() - started
    probe = model.probe.values.clone()
    return Taken(object, probe, epoch, update, area, slices, states, cost, reduction=wanted.block)


@torch.no_grad()
def take_slice(model: Model, request: RenderRequest, number: int, area: Area, buffer: Tensor) -> float:
    """Copy another slice of the object into the buffer; call it in the training thread. Returns the time it took [s].

    Slices are copied one at a time, between different updates: for their ramps, which change little from one to the
    next, updates wait no longer than for a picture, and no memory for all slices is needed.
    """
    clock = time.thread_time if buffer.device.type == "cpu" else time.perf_counter
    started = clock()
    buffer.copy_(model.object.covered(request.state, area)[number])
    return clock() - started


def needs_ramps(request: RenderRequest) -> bool:
    """Return whether cuts through the slices need the ramp of the phase of each."""
    return request.flat and any(pane != "amplitude" for pane in request.panes)


def ramp_of(object: Tensor) -> tuple[Array, Array]:
    """Return the ramp of the phase of a copied slice (y, x), as it is removed from its picture."""
    with torch_alone():
        field = np.ascontiguousarray(object.cpu().numpy(), np.complex64)
        return images.ramp(field, _mean_steps, _turned_sum)


def make_pictures(taken: Taken, request: RenderRequest, pixel: tuple[float, float] | None = None) -> Pictures:
    """Render the requested pictures from the copies. pixel: pixel size of the object (y, x) [m]."""
    with torch_alone():
        object = taken.object.cpu().numpy()
        sides, reduction, seen = _sides(object), taken.reduction, object
        if reduction > 1:
            sides = taken.area[0].stop - taken.area[0].start, taken.area[1].stop - taken.area[1].start
        elif object.size:
            reduction = images.reduction_for(object.shape, request.size)
            seen = images.reduce_by(object, reduction)
        pictures = [_pane(name, seen, sides, reduction, request, pixel) for name in request.panes]
        if taken.lines is not None:
            shown = object if request.slice is not None else None
            pictures += _cut_panes(taken.lines, pictures, shown, request, pixel, taken.area)
        probe = taken.probe.cpu().numpy()
        powers = (np.abs(probe) ** 2).sum((1, 2))
        powers = powers / max(float(powers.sum()), 1e-30)
        pictures += [_mode(number, probe, float(powers[number]), request, pixel) for number in _modes(probe, request)]
    corner = taken.area[0].indices(2**62)[0], taken.area[1].indices(2**62)[0]
    return Pictures(
        taken.epoch,
        taken.update,
        tuple(pictures),
        tuple(float(power) for power in powers),
        corner,
        taken.slices,
        taken.states,
        taken.cost,
    )


def value_at(taken: Taken, name: str, y: int, x: int, request: RenderRequest) -> complex | float:
    """Return the value of pixel (y, x) of the array behind a picture of `make_pictures`, before its reduction.

    Raises ValueError if there is no such picture, or no such pixel.
    """
    with torch_alone():
        values = _values(taken, name, request)
    if name in request.panes:
        y, x = y // taken.reduction, x // taken.reduction
    if not (0 <= y < values.shape[0] and 0 <= x < values.shape[1]):
        raise InvalidValueError(
            f"'{name}' has {values.shape[0]} x {values.shape[1]} pixels, and none at ({y}, {x}).",
            code="argument.invalid-value",
        )
    value: complex | float = values[y, x].item()
    return value


def _values(taken: Taken, name: str, request: RenderRequest) -> Array:
    if taken.lines is not None and name.endswith((" xz", " yz")) and name[:-3] in request.panes:
        values = quantity_of(taken.lines.cuts()[name.endswith("yz")], name[:-3])
        return values.T if name.endswith("yz") else values
    if name in request.panes:
        object = taken.object.cpu().numpy()
        if name == "amplitude":
            return np.abs(object)
        return phase_of(object, request.flat) if name == "phase" else object
    probe = taken.probe.cpu().numpy()
    names = {f"probe {number + 1}": number for number in _modes(probe, request)}
    if name not in names:
        raise InvalidValueError(
            f"There is no picture '{name}'; there are {', '.join([*request.panes, *names])}.",
            code="argument.invalid-value",
        )
    mode = probe[names[name]]
    return np.abs(mode) if request.modes_as == "amplitude" else mode


def _modes(probe: Array, request: RenderRequest) -> range:
    return range(min(len(probe), request.modes))


def _pane(
    name: str,
    seen: Array,
    sides: tuple[int, int],
    reduction: int,
    request: RenderRequest,
    pixel: tuple[float, float] | None,
) -> Picture:
    if name == "amplitude":
        values, title, unit, colours = np.abs(seen), "object amplitude", "", "gray"
    else:
        values, title, unit, colours = phase_of(seen, request.flat), f"object {name}", "rad", "viridis"
    if name == "complex":
        return _in_colours(name, title, values, np.abs(seen), request, sides, reduction, pixel)
    limits = images.limits_of(values, *WIDE)
    note = "without mean and ramp" if name == "phase" and request.flat else ""
    image = images.jpeg(levels_of(values, limits), request.quality)
    return Picture(name, title, image, sides, reduction, limits, unit, pixel, colours, note, quantity=name)


def quantity_of(field: Array, pane: str) -> Array:
    """Return amplitude, phase [rad] or complex values of a field, by the name of the pane that shows them."""
    if pane == "complex":
        return field
    return np.abs(field) if pane == "amplitude" else np.angle(field)


def _cut_panes(
    lines: CutLines,
    panes: list[Picture],
    object: Array | None,
    request: RenderRequest,
    pixel: tuple[float, float] | None,
    area: Area,
) -> list[Picture]:
    """Return pictures of the cuts, in the contrast of the panes if these show one of the slices, `object`."""
    assert pixel is not None, "the distance of slices requires a geometry"
    pictures, (across, down) = list[Picture](), lines.cuts()
    for pane in panes:
        cuts = quantity_of(across, pane.name), quantity_of(down, pane.name)
        together = np.abs(np.concatenate(cuts, axis=1)) if pane.name == "complex" else np.concatenate(cuts, axis=1)
        limits = (
            None if pane.limits is None else pane.limits if object is not None else images.limits_of(together, *WIDE)
        )
        pictures += cut_pictures(
            pane.name,
            *cuts,
            at=(lines.at[0] + area[0].start, lines.at[1] + area[1].start),
            pixel_size=pixel,
            distance=float(lines.distance),
            limits=limits,
            largest=float(together.max() if object is None else np.abs(object).max()),
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
    seen = images.reduce_by(mode, reduction)
    name, amplitude = f"probe {number + 1}", np.abs(seen)
    if request.modes_as == "complex":
        return _in_colours(name, title, phase_of(seen, flat=False), amplitude, request, mode.shape, reduction, pixel)
    limits = (0.0, max(float(amplitude.max()), 1e-30))
    image = images.jpeg(levels_of(amplitude, limits), request.quality)
    return Picture(name, title, image, _sides(mode), reduction, limits, "√counts", pixel, "gray")


def _in_colours(
    name: str,
    title: str,
    phase: Array,
    amplitude: Array,
    request: RenderRequest,
    shape: tuple[int, ...],
    reduction: int,
    pixel: tuple[float, float] | None,
) -> Picture:
    image = images.jpeg(images.hues(phase, amplitude), request.quality)
    sides = (shape[0], shape[1])
    return Picture(name, title, image, sides, reduction, pixel_size=pixel)


def phase_of(field: Array, flat: bool) -> Array:
    """Return the phase (y, x) float32 [rad] in [-π, π]; flat: without mean and linear ramp, see `images.ramp`."""
    values = np.ascontiguousarray(field, np.complex64)
    down, across = (np.zeros(side) for side in values.shape)
    if flat:
        down, across = images.ramp(values, _mean_steps, _turned_sum)
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
    seen = object[area]
    seen = images.reduce_by(seen, images.reduction_for(seen.shape, WATCHED_SIZE))
    limits, files = {}, dict[str, bytes]()
    for name, values in (("amplitude", np.abs(seen)), ("phase", images.flat_phase(seen))):
        limits[name] = images.limits_of(values)
        files[name] = images.jpeg(images.levels(values, limits[name]))
    powers = (np.abs(probe) ** 2).sum((1, 2))
    modes = probe[: RenderRequest().modes]
    modes = images.reduce_by(modes, images.reduction_for(modes.shape, WATCHED_SIZE // 2))
    files["probe"] = images.jpeg(images.side_by_side([images.complex_colours(mode) for mode in modes]))
    limits["probe"] = (0.0, float(np.abs(probe[0]).max()))
    return WatchedPictures(epoch, update, files, limits, tuple(float(power) for power in powers / powers.sum()))
