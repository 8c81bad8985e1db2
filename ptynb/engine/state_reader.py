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
from ptynb.data.engine_records import Array, PatternPair, Pictures, RenderRequest, Result, Snapshot
from ptynb.data.pattern_r_factors import MeasuredRFactors
from ptynb.data.provenance import Machines, ScanIdentity
from ptynb.data.record import RunRecord, fields_of
from ptynb.engine import diagnostics
from ptynb.engine.gpu import loses_gpu
from ptynb.engine.loop import Loop
from ptynb.engine.rendering import (
    Area,
    Taken,
    allocate_area,
    check_request,
    make_pictures,
    make_snapshot,
    needs_ramps,
    ramp_of,
    take,
    take_slice,
    value_at,
)
from ptynb.kernels.runtime.thread_count import count
from ptynb.supervised_thread import SupervisedThread

Value = TypeVar("Value")


class StateReader(ABC):
    """The requests of a worker, whose training thread alone uses tensors. All of them return None while it loads."""

    _loop: Loop | None = None
    _thread: SupervisedThread

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._requests: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._looks = collections.deque[Callable[[Taken], None]]()
        """What takes the answers to `ReduceObject`, in the order of these commands, on rank 0."""
        self._wake = threading.Event()
        """Wakes the training thread while no update is made."""

    @property
    @abstractmethod
    def _state(self) -> str:
        """The state of the worker, as in `Status`."""

    @abstractmethod
    def _reduce(self, wanted: ReduceObject, take: Callable[[Taken], None]) -> None:
        """Let all ranks reduce the object before the same update, and then call `take`."""

    def snapshot(self, size: int) -> Snapshot | None:
        """Return a preview."""
        loop = self._loop
        if loop is not None and loop.tile is not None:
            found = self._reduced_images(loop, RenderRequest(size=size), whole=True)
            if found is None:
                return None
            object, probe = found.object.cpu().numpy(), found.probe.cpu().numpy()
            return Snapshot(found.epoch, found.update, object, probe, found.reduction)
        taken = self._read(lambda loop: (object_and_probe(loop), loop.epoch, loop.update))
        if taken is None:
            return None
        (object, probe), epoch, update = taken
        return make_snapshot(object, probe, epoch, update, size)

    def pictures(self, request: RenderRequest) -> Pictures | None:
        """Return pictures."""
        loop, taken = self._loop, self._copy_images(request)
        return None if taken is None or loop is None else make_pictures(taken, request, loop.pixel_size)

    def value_at(self, name: str, y: int, x: int, request: RenderRequest) -> complex | float | None:
        """Return the value at pixel (y, x) of the picture `name`."""
        if not name.endswith((" xz", " yz")):
            request = dataclasses.replace(request, cut=None)
        taken = self._copy_images(request)
        return None if taken is None else value_at(taken, name, y, x, request)

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

    def _copy_images(self, request: RenderRequest) -> Taken | None:
        loop = self._loop
        if loop is None:
            return None
        if loop.tile is not None:
            return self._reduced_images(loop, request)
        area, out = loop.area, allocate_area(loop.model, loop.area)
        taken = self._call_in_thread(lambda: take(loop.model, request, area, out, loop.epoch, loop.update))
        return (
            taken if taken.lines is None or not needs_ramps(request) else self._with_ramps(loop, request, taken, area)
        )

    def _reduced_images(self, loop: Loop, request: RenderRequest, whole: bool = False) -> Taken | None:
        """Return an area of an object in tiles as all engines have it before the same update; None if they do not run.

        whole: whether of all of it; else the illuminated area.
        """
        check_request(loop.model, request)
        sides = (slice(0, loop.frame.shape[0]), slice(0, loop.frame.shape[1])) if whole else loop.area
        area = edges_of(sides)
        block = images.reduction_for((area[1] - area[0], area[3] - area[2]), request.size)
        answer: Future[Taken] = Future()
        self._reduce(ReduceObject(request.state, request.slice, area, block), answer.set_result)
        while self._thread.is_alive() and self._state not in ("failed", "closed"):
            with contextlib.suppress(TimeoutError):
                return answer.result(timeout=0.5)
        return None

    def _with_ramps(self, loop: Loop, request: RenderRequest, taken: Taken, area: Area) -> Taken:
        """Add the ramps of the phases of all slices, for which each is copied between other updates."""
        assert taken.lines is not None
        buffer, ramps, cost = allocate_area(loop.model, area), [], taken.cost
        for number in range(taken.slices):
            if number != request.slice:
                cost += self._call_in_thread(functools.partial(take_slice, loop.model, request, number, area, buffer))
            ramps.append(ramp_of(taken.object if number == request.slice else buffer))
        lines = dataclasses.replace(taken.lines, ramps=tuple(ramps))
        return dataclasses.replace(taken, lines=lines, cost=cost)

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
