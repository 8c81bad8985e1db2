"""What other threads read of a reconstruction: they request it, and the training thread answers between two updates."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import torch

from ptynb.data import images
from ptynb.data.commands import ReduceObject
from ptynb.data.engine_records import Array, PatternPair, PhaseRamp, Pictures, RenderRequest, Result, Snapshot
from ptynb.data.pattern_r_factors import MeasuredRFactors
from ptynb.data.provenance import Machines, ScanIdentity
from ptynb.data.record import RunRecord, fields_of
from ptynb.engine import diagnostics
from ptynb.engine.gpu import loses_gpu
from ptynb.engine.loop import Loop
from ptynb.engine.rendering import (
    COPIED,
    Area,
    Taken,
    allocate_area,
    check_pixel,
    check_request,
    contrast_of,
    make_pictures,
    make_snapshot,
    needs_ramps,
    numbers_of,
    pixel_value,
    prepare_rendering,
    probe_value,
    ramp_of,
    take,
    take_lines,
    take_reduced,
)
from ptynb.kernels.runtime.thread_count import count
from ptynb.supervised_thread import SupervisedThread

Value = TypeVar("Value")
PIECE = 2**26
"""Pixels of an object that the training thread averages between two updates: in 0.08 s on a CPU."""


class StateReader(ABC):
    """The requests of a worker, whose training thread alone uses tensors. All of them return None while it loads."""

    _loop: Loop | None = None
    _thread: SupervisedThread

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._requests: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._reductions = collections.deque[Future[Taken]]()
        """The answers to `ReduceObject`, in the order of these commands, on rank 0."""
        self._wake = threading.Event()
        """Wakes the training thread while no update is made."""

    @property
    @abstractmethod
    def _state(self) -> str:
        """The state of the worker, as in `Status`."""

    @abstractmethod
    def _reduce(self, wanted: ReduceObject) -> Future[Taken]:
        """Let all ranks reduce the object before the same update; return what rank 0 will have of it."""

    def snapshot(self, size: int, region: tuple[int, int, int, int] | None = None) -> Snapshot | None:
        """Return a preview of the object, or of a region of it as in `RenderRequest`."""
        loop = self._loop
        if loop is None:
            return None
        height, width = loop.frame.shape
        request = RenderRequest(size=size, region=region or (0, height, 0, width))
        taken = self._take(loop, request, shown_area(loop, request))
        if taken is None:
            return None
        object, probe = taken.object.cpu().numpy(), taken.probe.cpu().numpy()
        if taken.reduction > 1:
            return Snapshot(taken.epoch, taken.update, object, probe, taken.reduction)
        return make_snapshot(object, probe, taken.epoch, taken.update, size)

    def pictures(self, request: RenderRequest) -> Pictures | None:
        """Return pictures."""
        loop = self._loop
        if loop is None:
            prepare_rendering()
            return None
        taken, contrast = self._take(loop, request, shown_area(loop, request)), request.contrast
        if taken is None:
            return None
        if contrast is None and request.region is not None:
            overview = self._take(loop, dataclasses.replace(request, cut=None), loop.area)
            if overview is None:
                return None
            contrast = contrast_of(overview, request)
            taken = dataclasses.replace(taken, cost=taken.cost + overview.cost)
        ramps = () if contrast is None else contrast.slice_ramps
        if taken.lines is not None and needs_ramps(request) and not ramps:
            found = self._slice_ramps(loop, request, taken)
            if found is None:
                return None
            ramps, cost = found
            taken = dataclasses.replace(taken, cost=taken.cost + cost)
        return make_pictures(taken, request, loop.pixel_size, contrast, ramps)

    def value_at(self, name: str, y: int, x: int, request: RenderRequest) -> complex | float | None:
        """Return the value at pixel (y, x) of the array behind the picture `name`, before its reduction.

        Raises ValueError if there is no such picture, or no such pixel.
        """
        loop = self._loop
        if loop is None:
            return None
        area, (slices, _) = shown_area(loop, request), numbers_of(loop.model)
        (top, left), (height, width) = (area[0].start, area[1].start), sides_of(area)
        cuts = (" xz", " yz") if request.cut is not None and loop.model.slab is not None else ()
        pane, cut = (name[:-3], name[-3:]) if name.endswith(cuts) else (name, "")
        if pane not in request.panes:
            probe = self._read(lambda loop: loop.model.probe.values.detach().clone())
            return None if probe is None else probe_value(probe.cpu().numpy(), name, y, x, request)
        check_pixel(name, (y, x), {" xz": (slices, width), " yz": (height, slices)}.get(cut, (height, width)))
        number, row, column = request.slice, top + y, left + x
        if cut:
            assert request.cut is not None, "there are cuts"
            row, column = (min(max(at, side.start), side.stop - 1) for at, side in zip(request.cut, area, strict=True))
            number, row, column = (y, row, left + x) if cut == " xz" else (x, top + y, column)
        request = dataclasses.replace(request, slice=number, cut=None)
        ramp = None
        # The complex value of a pane is that of the array.
        if request.flat and (pane == "phase" or (cut and pane == "complex")):
            contrast = request.contrast
            if contrast is None or (cut and not contrast.slice_ramps):
                overview = self._take(loop, request, loop.area)
                if overview is None:
                    return None
                ramp = ramp_of(overview, request.size)
            else:
                ramp = contrast.slice_ramps[number or 0] if cut else contrast.ramp
        taken = self._take(loop, request, (slice(row, row + 1), slice(column, column + 1)))
        return None if taken is None else pixel_value(taken, pane, ramp)

    def pattern(self, index: int) -> PatternPair | None:
        """Return a measured and modelled pattern; None also if another engine has it."""
        return self._read(lambda loop: diagnostics.pattern(loop, index))

    def pattern_r_factors(self, seconds: float, source: str, total: int) -> MeasuredRFactors | None:
        """Measure R-factors of this engine's patterns for so many seconds at most.

        Returns those after the first `total` measurements of `source`, as a previous answer names them.
        """
        return self._read(lambda loop: diagnostics.pattern_r_factors(loop, seconds, source, total))

    def positions(self) -> tuple[Array, Array] | None:
        """Return the top-left corners of the probe windows at the start and now."""
        return self._read(diagnostics.positions)

    def _take(self, loop: Loop, request: RenderRequest, area: Area, buffer: torch.Tensor | None = None) -> Taken | None:
        """Return an area of the object for pictures of the request's size, and the probe; None if no engine runs.

        buffer: what an earlier copy of an area of this shape is in, which is not needed any more.
        """
        height, width = sides_of(area)
        block = images.reduction_for((height, width), request.size)
        wanted = ReduceObject(request.state, request.slice, edges_of(area), block, request.cut)
        if loop.tile is not None:
            return self._take_from_all(wanted)
        if block > 1 and height * width > COPIED:
            return self._take_in_pieces(loop, wanted)
        room = allocate_area(loop.model, area) if buffer is None else buffer
        return self._call_in_thread(lambda: take(loop.model, request, area, room, loop.epoch, loop.update))

    def _take_in_pieces(self, loop: Loop, wanted: ReduceObject) -> Taken:
        """Average the object in pieces, between different updates, so that each of them waits little."""
        top, bottom, left, right = wanted.area
        rows = max(1, PIECE // (right - left) // wanted.block) * wanted.block
        pieces = list[Taken]()
        for start in range(top, bottom, rows):
            stop = min(start + rows, bottom)
            if pieces and stop - start < wanted.block:
                break  # blocks that are not whole are cut off
            part = dataclasses.replace(wanted, area=(start, stop, left, right), cut=None)
            piece = self._call_in_thread(functools.partial(_take_piece, loop, part))
            pieces.append(piece)
        area = slice(top, bottom), slice(left, right)
        return dataclasses.replace(
            pieces[0],
            object=torch.cat([piece.object for piece in pieces]),
            area=area,
            lines=self._call_in_thread(lambda: take_lines(loop.model, wanted.state, wanted.cut, area)),
            cost=sum(piece.cost for piece in pieces),
        )

    def _take_from_all(self, wanted: ReduceObject) -> Taken | None:
        """Return an area of an object in tiles as all engines have it before one update; None if they do not run."""
        answer = self._reduce(wanted)
        while self._thread.is_alive() and self._state not in ("failed", "closed"):
            with contextlib.suppress(TimeoutError):
                return answer.result(timeout=0.5)
        return None

    def _slice_ramps(
        self, loop: Loop, request: RenderRequest, taken: Taken
    ) -> tuple[tuple[PhaseRamp, ...], float] | None:
        """Return the ramps of the phases of all slices, each taken between other updates, and what that has cost [s].

        They change little from one update to the next, which so waits no longer than for a picture.
        """
        ramps, cost, spare = list[PhaseRamp](), 0.0, None
        for number in range(taken.slices):
            if number == request.slice and request.region is None:
                ramps.append(ramp_of(taken, request.size))
                continue
            one = dataclasses.replace(request, slice=number, cut=None)
            overview = self._take(loop, one, loop.area, spare)
            if overview is None:
                return None
            ramps.append(ramp_of(overview, request.size))
            cost, spare = cost + overview.cost, overview.object
        return tuple(ramps), cost

    def _read(self, read: Callable[[Loop], Value]) -> Value | None:
        """Return what a function reads from the loop, in the training thread."""
        loop = self._loop
        return None if loop is None else self._call_in_thread(lambda: read(loop))

    def _call_in_thread(self, request: Callable[[], Value]) -> Value:
        answer: Future[Value] = Future()
        self._requests.put((request, answer))
        self._wake.set()
        while True:
            if not self._thread.is_alive():
                self._answer_requests()
            with contextlib.suppress(TimeoutError):
                return answer.result(timeout=0.5)

    def _answer_requests(self) -> None:
        while True:
            try:
                request, answer = self._requests.get_nowait()
            except queue.Empty:
                return
            try:
                answer.set_result(request())
            except BaseException as error:  # goes to the caller
                answer.set_exception(error)
                training = threading.current_thread() is self._thread and self._state not in ("failed", "closed")
                if training and loses_gpu(error, self._device):
                    raise


def _take_piece(loop: Loop, wanted: ReduceObject) -> Taken:
    return take_reduced(loop.model, wanted, loop.epoch, loop.update)


def shown_area(loop: Loop, request: RenderRequest) -> Area:
    """Return what a request shows. Raises ValueError if the object has no such slice, state or region."""
    check_request(loop.model, request)
    if request.region is None:
        return loop.area
    top, bottom, left, right = request.region
    return slice(top, bottom), slice(left, right)


def sides_of(area: Area) -> tuple[int, int]:
    """Return the size (y, x) of an area."""
    return area[0].stop - area[0].start, area[1].stop - area[1].start


def edges_of(area: Area) -> tuple[int, int, int, int]:
    """Return (top, bottom, left, right) of an area."""
    return int(area[0].start), int(area[0].stop), int(area[1].start), int(area[1].stop)


@torch.no_grad()
def object_and_probe(loop: Loop) -> tuple[Array, Array]:
    """Return the product of the object's slices (y, x), and the probe (mode, y, x), in host memory."""
    return loop.projection().numpy(), loop.model.probe.values.cpu().numpy()


def present_result(loop: Loop, r_factor: float, of_scans: tuple[float, ...] | None, file: str = "") -> Result:
    """Return the present state, with these R-factors. file: for a large object in tiles, see `Loop.arrays`."""
    arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in loop.arrays(file).items()}
    optimised = {name: tensor.numpy() for name, tensor in loop.parameters().items()}
    return Result(
        **fields_of(RunRecord, loop.record()),
        **arrays,
        positions=optimised.pop("positions"),
        parameters=optimised,
        origin=loop.frame.origin,
        r_factor=r_factor,
        scan_r_factors=of_scans,
        scan=ScanIdentity(counts=loop.scan["counts"]),
        machines=Machines(frames=loop.shard.place, threads=count()),
    )
