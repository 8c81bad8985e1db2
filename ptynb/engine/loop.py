"""The training loop on one engine: model, optimizer, one update at a time, and the records of epochs."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import platform
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptynb.data.admissions import Admission, Admissions, admissions_of
from ptynb.data.engine_records import Change, Epoch, Thumbnail
from ptynb.data.geometry import illuminated_area
from ptynb.data.pattern_r_factors import RFactorRecord
from ptynb.data.record import STOPPED, Annotation, RunRecord, RunSpan, fields_of, utc
from ptynb.data.result import squeezed
from ptynb.data.scan import Scan
from ptynb.distributed.group import Group, SingleGroup
from ptynb.engine import initial_probe, run_progress
from ptynb.engine.resampled_state import settings_in_window
from ptynb.exceptions import InvalidValueError, ReconstructionError, SettingsError
from ptynb.io.checkpoint_file import Array, ReconstructionState, identity, of_object
from ptynb.io.reading.large_array import is_large, write_piece
from ptynb.kernels.runtime import buffers
from ptynb.kernels.runtime.thread_count import count, torch_alone
from ptynb.kernels.window_sides import slow_window
from ptynb.loading.device_memory import free_on_device
from ptynb.loading.engine_patterns import EnginePatterns, detector_mask
from ptynb.optimize.algorithm import Algorithm, Problem
from ptynb.optimize.algorithm_choice import make_algorithm
from ptynb.optimize.live_sampler import LiveSampler
from ptynb.optimize.lsqml import illumination_of_all
from ptynb.optimize.object_tiles import ObjectTile
from ptynb.optimize.position_search import batches_of_search, search_positions
from ptynb.optimize.sampler import BatchSampler, Sampler, bands_of, layout_of, planned_order, reach_of
from ptynb.physics import triton_dispatch
from ptynb.physics.components.builtin import ObjectPart, Positions
from ptynb.physics.components.component import Batch, ModelComponent, overrides
from ptynb.physics.components.descan import plane_through
from ptynb.physics.constraints import CustomConstraint, Extension, impose
from ptynb.physics.losses import Loss, WeightedSum, amplitude_residuals, make_loss, poisson_below
from ptynb.physics.model import Model, Slab
from ptynb.physics.model_builder import components_of_plugins, corner_shift, initial_arrays, make_model, object_frame
from ptynb.physics.streamed_object import Bands, StreamedObject
from ptynb.physics.torch_steps import product_of_slices
from ptynb.preparation.crop_and_pad import in_window
from ptynb.settings import BY_EXIT_WAVES, POINTWISE, Settings
from ptynb.settings.recipe import WITHOUT_STAGES, StagePlan
from ptynb.settings.regularizers import PACBED, DataTerm

EVALUATION_BATCH = 32
"""Largest batch for the R-factor on a CPU; never more patterns than an update computes, which are known to fit."""
EVALUATION_BYTES = 2**28
"""Memory for one array of the waves of such a batch on a GPU, where each batch costs launches and a copy. Five such
arrays exist at the same time; if less than ten times as much is free, batches are as small as on a CPU."""
CHECKSUM_MODULUS = 2**53 - 111
"""A prime below 2^53: the remainder of a sum of bits is exact as a float, and all bits have an effect on it."""
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer types by their size [bytes]."""
ROUNDING = {"single": 1e-5, "double": 1e-12}
"""Largest relative difference of the same pixels on two engines: that of rounding in the updates of an epoch."""
GROWTH = 1.1
"""Growth of the number of patterns that have come after which the sums over them are determined again."""
NOT_CONVERGED = "The reconstruction has not converged"
SCAN_FACTS = {
    "patterns": "number of patterns",
    "window": "size of the patterns",
    "positions": "positions",
    "sample": "patterns",
    "is_far_field": "geometry (near or far field)",
}
"""Entries of a scan's identity that a checkpoint must match, and how an error message names them."""


def agree_on_triton(group: Group) -> None:
    """Use Triton on all engines or on none, whose results differ in the last digits; all ranks call it."""
    triton_dispatch.avoid_triton("", group.device.type)
    problem = triton_dispatch.check_triton(group.device.type)
    without = int(group.sum(torch.tensor(float(bool(problem)), dtype=torch.float64, device=group.device)))
    if without and not problem:
        triton_dispatch.avoid_triton(f"it does not work on {without} of {group.world} engines", group.device.type)


class Loop:
    """Model, patterns and update algorithm of one engine. All ranks call every method in the same order."""

    def __init__(
        self,
        scan: Scan,
        settings: Settings,
        group: Group,
        extensions: Sequence[Extension] = (),
        plan: StagePlan = WITHOUT_STAGES,
        first: Admission | None = None,
        *,
        find_probe: bool = True,
    ) -> None:
        """Read this rank's patterns and create the model; rank 0 broadcasts the initial guess to the others.

        extensions: the user's own components and constraints. plan: stages, with the size of patterns.
        first: of a scan that is being measured, the patterns to begin with, from which the probe is guessed.
        find_probe: whether to search for the probe of a scan without one (`initial_probe`), which a run that is
        restored has.
        """
        self.begun, self.group = settings, group
        if group.device.type == "cuda":
            agree_on_triton(group)
        self.plan, self.pattern_size = plan, plan.pattern_size
        dtype = torch.float64 if settings.precision == "double" else torch.float32
        self._planned = scan.positions
        self._admitted = [] if first is None else [first]
        self._admitted_at = [0] * len(self._admitted)
        """Updates completed before each admission."""
        self.live_epochs = 0
        """Completed epochs in which further patterns could come: the schedule begins after them."""
        order = planned_order(scan, settings, group.world)
        self.order: Sampler = order if first is None else _begun(order, first)
        whole, scan = scan, scan if self.pattern_size is None else in_window(scan, self.pattern_size)
        self._windows = whole.pattern_shape, scan.pattern_shape
        self.settings = settings
        """The present settings, with lengths in pixels of whole patterns."""
        in_pixels = self._in_window(settings)
        self.pixel_size = scan.pixel_size
        self.frame = object_frame(scan, settings)
        self._margin = None if scan.object is not None else scan.margin(settings.margin)
        """Margin of the object around the windows [object pixels]; None: the object is an initial guess."""
        self.spans = scan.spans
        """The patterns of each scan that this one is made of."""
        layout = layout_of(whole, settings, group.world, scan)
        self.tile = None if layout is None else ObjectTile(layout, group)
        """This engine's part of the object; None: it holds all of it."""
        own = self.order.owned(group.rank, group.world)
        present = own if first is None else np.intersect1d(own, first.patterns)
        self.bands: Bands | None = None
        """Of the scan, if batches are from bands."""
        if isinstance(self.order, BatchSampler) and self.order.kind == "bands":
            self.bands = bands_of(scan, settings, self.order)
        self.shard = EnginePatterns(scan, own, group, dtype, settings.pattern_storage, present)
        mean_pattern, self._sums = self.shard.totals(self.order.count)
        self.mean_count = float(mean_pattern.mean())
        """Mean count of a pixel."""
        self.plugins = (*dict.fromkeys((*whole.plugins, *settings.plugins)),)
        """Plug-ins that the run has used up to now."""
        self.scan = {**identity(whole), "counts": self._sums.counts}
        """Identity of the scan, which is stored in checkpoints and compared on resuming."""
        self._environment = _environment(group)
        self._poisson_below = poisson_below(scan.geometry)
        loss = self._make_loss(settings)
        self._custom_constraints = [extension for extension in extensions if isinstance(extension, CustomConstraint)]
        if self.tile is not None or settings.object.layout == "streamed":
            _check_reach(self._custom_constraints, settings.object.layout)
        custom = [extension for extension in extensions if isinstance(extension, ModelComponent)]
        components = [*components_of_plugins(scan, settings), *custom]
        self.model = self._make_model(scan, mean_pattern, loss, dtype, components, find_probe=find_probe)
        positions = self.model.components["positions"]
        assert isinstance(positions, Positions)
        positions.limit = in_pixels.positions.max_shift
        self._corner_shift = corner_shift(scan, settings)
        if first is not None:
            self.scan["mean_count"] = self.mean_count
            self._place(first)
        self._update_hooks = [
            (component, [*component.parameters()])
            for component in self.model.components.values()
            if overrides(component, "update_done")
        ]
        normaliser = loss.normaliser(self._sums)
        search = settings.positions
        restarts = search.search_trials > 0 and search.search_restarts > 0
        self.problem = Problem(
            self.model,
            self.shard,
            self.order,
            group,
            in_pixels,
            normaliser,
            self.order.count,
            tile=self.tile,
            bands=self.bands,
            imposed=tuple(self._custom_constraints),
            custom_components=tuple(components),
            initial_object=self.model.object.values.detach().clone() if restarts else None,
        )
        self.algorithm: Algorithm = make_algorithm(self.problem)
        self.epoch, self.update = 0, 0
        self.updates_done = 0
        """Updates completed in all epochs."""
        self.epochs: list[Epoch] = []
        self.changes: list[Change] = []
        self.runs: list[RunSpan] = []
        """As in `RunRecord`; first and last epochs are those of schedules."""
        self.r_factors: list[tuple[int, float]] = []
        """R-factors measured between epochs: (epochs completed, R-factor)."""
        bands = None if self.model.streamed is None else self.model.streamed.bands.of_pattern[self.shard.present]
        self.pattern_r_factors = RFactorRecord(self.shard.present, bands)
        """R-factors of single patterns of this engine."""
        self.history: tuple[Thumbnail, ...] = ()
        """Thumbnails of a few epochs; on rank 0 only."""
        self.annotation = Annotation()
        """The user's title and comments."""
        self.area = illuminated_area(scan.positions - self.frame.origin, scan.pattern_shape)
        """Slices (y, x) of the object's illuminated area."""
        self.started = utc(time.time())
        self.agreed = 0
        """The last epoch after which all engines had bitwise equal parameters; 0: none yet."""
        self._seconds = 0.0
        self._clock: float | None = None
        self._loss_sum = torch.zeros((), dtype=torch.float64, device=group.device)
        takes_part = group.rank == 0 or self.tile is not None
        self._changes = run_progress.StateChanges(self.model, self.area) if takes_part else None
        self._begin_epoch()
        self.shard.follow(self._upcoming_batches())

    def _load_rows(self) -> None:
        """Let the device have the rows of the object that the present update needs, if it is streamed."""
        if self.model.streamed is not None:
            bands = self._bands[self.update :]
            others = bands[bands != bands[0]]
            self.model.load_band(int(bands[0]), int(others[0]) if len(others) else None, changing=True)

    def _upcoming_batches(self) -> Iterator[NDArray[np.int64]]:
        """Yield the batches that this engine will request from the patterns, from the next update on."""
        if self.order.open:
            for batch in self.order.upcoming():
                yield from self.algorithm.asks(batch[:, None], 0)
        first, done = self.epoch + 1, self.update
        for number in itertools.count(first):
            table = self.order.epoch(number)
            for update in range(done if number == first else 0, self.updates):
                yield from self.algorithm.asks(table, update)
            yield from batches_of_search(self.problem, number - self.live_epochs)

    def _make_model(
        self,
        scan: Scan,
        mean_pattern: Tensor,
        loss: Loss,
        dtype: torch.dtype,
        components: Sequence[ModelComponent],
        *,
        find_probe: bool,
    ) -> Model:
        complex_dtype = torch.complex128 if dtype == torch.float64 else torch.complex64
        if scan.probe_of_pattern is not None:
            mean_pattern = self.shard.mean_patterns(scan.probe_of_pattern)
        mask, descan = detector_mask(scan, dtype), None
        start = initial_probe.Start({})
        if find_probe and any(one.probe is None for one in scan.probe_scans):
            present = np.concatenate([one.patterns for one in self._admitted] or [np.arange(len(scan))])
            start = initial_probe.find_start(
                scan, self.settings, self.shard.gathered, mask, present, short_result, self.group.rank
            )
        area = slice(None), slice(None)
        if self.tile is not None:
            area = self.tile.area
            start = start._replace(object=self._shared_guess(start.object))
        object, probe = initial_arrays(scan, self.settings, mean_pattern, complex_dtype, *start, area)
        part = None if self.tile is None else self.tile.own
        streamed = None
        if self.settings.object.layout == "streamed":
            assert self.bands is not None
            polar = self.settings.object.parametrization == "amplitude_phase"
            part, streamed = (
                ObjectPart.whole(object),
                StreamedObject(object.contiguous(), polar, self.bands, self.group.device),
            )
        if self.settings.descan.start == "plane":
            centres = self.shard.centres_of_mass(len(scan))
            plane = np.concatenate([plane_through(centres[span], scan.positions[span]) for span in scan.spans])
            descan = self.group.broadcast(torch.from_numpy(plane).to(self.group.device))
        object = object.contiguous()
        if streamed is None:
            object = object.to(self.group.device)
            if self.tile is None:
                object = self.group.broadcast(object)
        model = make_model(
            scan,
            self.settings,
            object,
            self.group.broadcast(probe.contiguous().to(self.group.device)),
            loss,
            mean_count=self.mean_count,
            mask=None if mask is None else mask.to(self.group.device),
            descan=descan,
            extensions=components,
            part=part,
            streamed=streamed,
        )
        if self.tile is not None:
            with torch.no_grad():  # a loop over vectors rounds its rest differently, which others have elsewhere
                self.tile.refresh(*model.object.parameters())
        model.mean_pattern_weight = _mean_pattern_weight(self.settings)
        of_tile = dict.fromkeys(() if self.tile is None else model.object.parameters())
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor not in of_tile:
                self.group.broadcast(tensor.data)
        return model

    def _shared_guess(self, guess: Array | None) -> Array | None:
        """Return rank 0's initial object (y, x), from which each rank takes its tile; None: there is none."""
        kind = self.group.broadcast_object(None if guess is None else [guess.dtype.str, *guess.shape])
        if kind is None:
            return None
        values = np.empty(kind[1:], kind[0]) if guess is None else np.ascontiguousarray(guess)
        return self.group.broadcast(torch.from_numpy(values)).numpy()

    @property
    def updates(self) -> int:
        """Number of updates in an epoch."""
        return self.algorithm.updates

    def step(self) -> None:
        """Perform one update over all engines, and complete the epoch after its last update.

        Raises FloatingPointError on all ranks if the loss of the epoch, or a parameter, is not finite.
        """
        started = time.perf_counter() if self._clock is None else self._clock
        self.order.fill(self._table, self.update)
        self._load_rows()
        self._loss_sum += self.algorithm.update(self._table, self.update)
        self.update += 1
        self.updates_done += 1
        ended = self.update == self.updates
        self.after_update(ended)
        if ended:
            with torch_alone(self.model.compiled):
                self._end_epoch(started)
        else:
            self._clock = time.perf_counter()
            self._seconds += self._clock - started

    @torch.no_grad()
    def after_update(self, epoch_ended: bool) -> None:
        """Call `update_done` of components that define it, and impose the constraints that are due."""
        streamed = self.model.streamed
        for component, parameters in self._update_hooks:
            if any(parameter.requires_grad for parameter in parameters):
                component.update_done()
        for constraint in (*self.problem.settings.constraints, *self._custom_constraints):
            if constraint.due(self.scheduled) and (epoch_ended or constraint.after == "update"):
                if streamed is not None and isinstance(constraint, POINTWISE):
                    impose(constraint, self.model.in_host_memory())
                elif isinstance(constraint, CustomConstraint):
                    constraint.impose(self.model)
                else:
                    impose(constraint, self.model)
                if self.tile is not None:
                    # Also where pixels are independent: a loop over vectors rounds its rest differently.
                    self.tile.refresh(*self.model.object.parameters())

    @property
    def scheduled(self) -> int:
        """Number of the present epoch in schedules; 1 as long as further patterns may come."""
        return max(1, self.epoch + 1 - self.live_epochs)

    def begin_run(self, last: int, before: int | None = None) -> None:
        """Begin a run up to an epoch, or continue the one that ends there; `last` and `before` are those of schedules.

        All stages are one run. before: epochs completed at its beginning; None: at that of the continued run, or now.
        """
        present, last = self.runs[-1] if self.runs else None, max(last, self.plan.epochs)
        if before is None:
            before = present.first if present is not None and present.last == last else self.scheduled - 1
        if present is None or (present.first, present.last) != (before, last):
            self.problem.run = RunSpan(self.epoch, self.update, before, last, time.time())
            self.runs.append(self.problem.run)
            self.algorithm.prepare()

    def _begin_epoch(self, table: NDArray[np.int64] | None = None) -> None:
        """Begin an epoch, or continue in one. table: its order of patterns, if it is known."""
        self._table = self.order.begin_epoch(self.epoch + 1) if table is None else table
        if (streamed := self.model.streamed) is not None:
            self._bands = streamed.bands.of_pattern[self._table.max(0)]
        self.problem.epoch = self.scheduled
        self.algorithm.prepare()

    def _end_epoch(self, started: float) -> None:
        loss, *changes = self._summed_record()
        live, used = self.order.open, self.order.count
        if live:
            assert isinstance(self.order, LiveSampler)
            used = self.order.used
            loss *= self.problem.count / used
        self._clock = time.perf_counter()
        seconds = self._seconds + self._clock - started
        self.epoch, self.update, self._seconds = self.epoch + 1, 0, 0.0
        self.epochs.append(Epoch(self.epoch, loss, seconds, used / seconds, time.time(), *changes))
        self._loss_sum = torch.zeros_like(self._loss_sum)
        of_tile = dict.fromkeys(() if self.tile is None else self.model.object.parameters())
        checksum, finite = _checksum(one for one in self.model.parameters() if one not in of_tile)
        if self.tile is not None:
            finite_tiles = self.group.sum(torch.tensor([float(_checksum(of_tile)[1])]))
            finite = finite and float(finite_tiles) == self.group.world
        if self.model.streamed is not None:  # of which the device has some rows
            finite = finite and _checksum(self.model.whole_object.parameters())[1]
        if not (math.isfinite(loss) and finite):
            raise FloatingPointError(
                f"The loss of epoch {self.epoch} is {loss}, or its last update is not finite: the learning rates "
                f"({self.algorithm.rates()}) are too high for this scan. Start again with lower ones, or restore a "
                "checkpoint and lower them there."
            )
        self._check_windows()
        apart = 0.0
        if self.tile is not None:
            with torch.no_grad():
                apart = self.tile.agree(*of_tile)
        if not self.group.all_equal(checksum) or apart > ROUNDING[self.problem.settings.precision]:
            raise ReconstructionError(
                f"After epoch {self.epoch} the engines hold different parameters, by a bug of ptynb or a fault of the "
                "hardware; do not use the result.",
                code="engine.parameters-differ",
            )
        self.agreed = self.epoch
        if (self.group.rank == 0 or self.tile is not None) and run_progress.thumbnail_due(self.epoch):
            thumbnail = run_progress.take_thumbnail(self.model, self.area, self.epoch)
            if self.group.rank == 0:
                self.history = run_progress.first_and_newest((*self.history, thumbnail))
            self._clock = time.perf_counter()  # exclude the thumbnail from the time of the next epoch
        if not live:
            search_positions(self.problem)
        self.live_epochs += live
        self._begin_epoch()
        if live != self.order.open:
            self.shard.follow(self._upcoming_batches())

    @torch.no_grad()
    def _check_windows(self) -> None:
        """Raise ReconstructionError on all ranks if the window of a pattern is not in the part of the object it reads.

        That is the tile of its engine, or the rows of its band.
        """
        model, streamed = self.model, self.model.streamed
        if (self.tile is None and streamed is None) or not model.movers:
            return
        batch = model.all_patterns()
        origins = model.window_origins(batch)
        if streamed is None:
            inside = (model.window_origins_and_shifts(batch)[0] == origins).all(1)
            own = self.shard.patterns
            left = torch.zeros(len(batch), dtype=torch.float64, device=self.group.device)
            left[torch.from_numpy(own)] = (~inside)[torch.from_numpy(own)].double()
            gone = np.flatnonzero(self.group.sum(left).cpu().numpy())
            part = "the tiles of their engines"
        else:
            bands, rows = streamed.bands, origins[:, 0].cpu().numpy() + model.top
            tops = np.array(bands.tops)[bands.of_pattern]
            gone = np.flatnonzero((rows < tops) | (rows > tops + bands.height - model.window[0]))
            part = "the rows of the object for their bands"
        if len(gone):
            raise ReconstructionError(
                f"The windows of {len(gone)} patterns (the first: {gone[0]}) have moved beyond {part}, whose margin is "
                f"{self.problem.settings.margin} pixels; raise object.padding, or resume with object.layout='whole'.",
                code="reconstruction.window-left-tile",
            )

    def _summed_record(self) -> tuple[float, float | None, float | None, float | None]:
        """Return the loss of the epoch and the changes of object, probe and positions, bitwise equal on all ranks."""
        changes = self._loss_sum.new_zeros(3) if self._changes is None else self._changes.take()
        own = torch.cat([self._loss_sum[None], changes if self.group.rank == 0 else torch.zeros_like(changes)])
        loss, *known = (None if math.isnan(value) else value for value in self.group.sum(own).tolist())
        return math.nan if loss is None else loss / self.problem.normaliser, known[0], known[1], known[2]

    def stop_if_done(self, target: int) -> bool:
        """Return whether `Settings.stop` ends the run here, before its epoch `target`, and record it.

        The decision depends only on the record, which is equal on all ranks. A stage that others follow is not ended.
        """
        if self.epoch >= target or self.plan.end is not None or self.order.open:
            return False
        reason = run_progress.reason_to_stop(self.settings, *self._record_after_arrivals, self.problem.run.first)
        if reason:
            self.note(STOPPED, target, reason)
        return bool(reason)

    def not_converged(self) -> str:
        """Return a sentence if the run that ends here has not converged, or an empty text; on rank 0.

        Call it on all ranks if the object is in tiles.
        """
        present = functools.partial(run_progress.take_thumbnail, self.model, self.area, self.epoch)
        if self.tile is not None:
            taken = present()
            if self.group.rank:
                return ""
            present = functools.partial(lambda: taken)
        found = run_progress.still_progressing(
            self.settings, *self._record_after_arrivals, self.problem.run.first, self.history, present
        )
        return f"{NOT_CONVERGED} after epoch {self.epoch}: {found}; continue the run." if found else ""

    @property
    def notices(self) -> tuple[str, ...]:
        """What takes more time than it need, as known before the first update: the size of the patterns."""
        return slow_window(self._windows[1]) if self.model.compiled else ()

    @property
    def _record_after_arrivals(self) -> tuple[Sequence[Epoch], Sequence[Change]]:
        """The epochs in which no further patterns could come, and the changes, counted from their beginning."""
        before = self.live_epochs
        changes = [dataclasses.replace(one, epoch=max(0, one.epoch - before)) for one in self.changes]
        return self.epochs[before:], changes

    def disconnect(self) -> None:
        """Release the process group, the file of patterns and gradients; parameters remain readable.

        Updates are not possible afterwards.
        """
        self.algorithm.disconnect()
        self.model.zero_grad(set_to_none=True)
        self.shard.close()

    def hold(self) -> None:
        """Stop the clock until the next update, so that a pause does not count as time of the epoch."""
        self._clock = None

    def why_not_live(self, settings: Settings) -> str:
        """Return why this model cannot change to other settings, only live ones of which differ; empty if it can.

        Beyond the margin, the window of a pattern would stay at the edge, and the probe be shifted in it periodically.
        """
        new, streamed = self._in_window(settings), self.model.streamed
        if self.tile is not None:
            layout, needed = self.tile.layout, (new.margin, reach_of(new))
            if needed[0] > layout.margin or needed[1] > layout.reach:
                return (
                    f"Windows that move by {needed[0]} object pixels, and constraints that reach {needed[1]}, need "
                    f"more of the object on each engine than there is ({layout.margin} and {layout.reach}); "
                    "reconfigure(settings) changes that and continues."
                )
        if streamed is not None and new.margin > streamed.bands.margin:
            return (
                f"Windows that move by {new.margin} object pixels need more rows of the object for each band of the "
                f"scan than the device has (a margin of {streamed.bands.margin}); reconfigure(settings) changes that "
                "and continues."
            )
        if self._margin is None or new.margin <= self._margin:
            return ""
        return (
            f"Refined positions may move by {new.positions.max_shift:g} object pixels, which requires a "
            f"margin of {new.margin} around the scanned area, and the object has {self._margin}; reconfigure(settings) "
            "enlarges it and continues."
        )

    def change(self, settings: Settings) -> None:
        """Apply new settings before the next update, and record what changed.

        Raises SettingsError for those of `why_not_live`.
        """
        if problem := self.why_not_live(settings):
            raise SettingsError(problem, code="settings.not-live")
        for name, (old, new) in self.settings.differences(settings).items():
            self.note(name, old, new)
        self._apply_settings(settings)
        self.algorithm.prepare()

    def note(self, name: str, old: Any, new: Any) -> None:
        """Append an entry to the record of changes, with the present epoch, update and time."""
        self.changes.append(Change(self.epoch, self.update, name, old, new, time.time()))

    def _in_window(self, settings: Settings) -> Settings:
        """Return settings whose lengths are in pixels of the present window of the patterns."""
        return settings if self.pattern_size is None else settings_in_window(settings, *self._windows)

    def _apply_settings(self, settings: Settings) -> None:
        self.plugins = (*dict.fromkeys((*self.plugins, *settings.plugins)),)
        data_terms_changed = _data_terms(settings) != _data_terms(self.settings)
        self.settings, self.problem.settings = settings, self._in_window(settings)
        if data_terms_changed:
            self.model.loss = self._make_loss(settings)
            self.problem.normaliser = self.model.loss.normaliser(self._sums)
        self.model.mean_pattern_weight = _mean_pattern_weight(settings)

    # Patterns that come during the run

    def admit(self, admission: Admission) -> None:
        """Use further patterns from the next update on; on all ranks before the same update."""
        self._admitted_at.append(self.updates_done)
        self._admitted.append(admission)
        self._use(admission)
        if self.update == 0:
            self._begin_epoch()
        else:
            self.algorithm.prepare()
        self.shard.follow(self._upcoming_batches())

    def _use(self, admission: Admission) -> None:
        order = self.order
        assert isinstance(order, LiveSampler)
        if len(admission):
            self.shard.admit(admission.patterns)
            self.pattern_r_factors = RFactorRecord(self.shard.present)
            order.admit(admission.patterns)
            self._place(admission)
        order.ended = admission.ended is not None
        if order.ended or order.count >= GROWTH * self.problem.count:
            self._renew_sums()

    def _place(self, admission: Admission) -> None:
        """Set the positions of patterns that have come, which may differ from the planned ones."""
        order, patterns, positions = self.order, admission.patterns, admission.positions
        assert isinstance(order, LiveSampler)
        if not np.array_equal(positions, self._planned[patterns]):
            corners = positions - np.array(self.frame.origin) - np.array(self._corner_shift)
            self.model.place(torch.from_numpy(patterns), torch.from_numpy(corners))
        self.model.set_admitted(None if order.count == order.planned else torch.from_numpy(order.members))

    def _make_loss(self, settings: Settings) -> Loss:
        damped, name = settings.optimiser in ("rpie", *BY_EXIT_WAVES), str(settings.loss)
        if name == "auto":
            few_counts = self._sums.whole and self.mean_count < self._poisson_below
            name = "poisson" if few_counts and not damped else "amplitude"
        loss, terms = make_loss(name, self.mean_count, damped), _data_terms(settings)
        if not terms:
            return loss
        others = [make_loss(term.loss, self.mean_count) for term in terms]
        return WeightedSum([loss, *others], [1.0, *(term.weight for term in terms)], self._sums)

    def _renew_sums(self) -> None:
        """Determine the sums over all patterns again, to which losses are relative."""
        _, self._sums = self.shard.totals(self.order.count)
        self.scan["counts"] = self._sums.counts
        if _data_terms(self.settings):
            self.model.loss = self._make_loss(self.settings)
        self.problem.normaliser, self.problem.count = self.model.loss.normaliser(self._sums), self.order.count

    def _admissions(self) -> Admissions | None:
        """Return the record of the admissions; None for a scan that was measured before the run."""
        if not self._admitted:
            return None
        return admissions_of(self._planned, self._admitted, self._admitted_at, self.live_epochs)

    # Saving and restoring

    def loss_sums(self) -> NDArray[np.float64]:
        """Return each engine's sum of losses in the running epoch, shape (rank,). Collective: call it on all ranks."""
        sums = torch.zeros(self.group.world, dtype=torch.float64)
        sums[self.group.rank] = float(self._loss_sum)
        return self.group.sum(sums).numpy()

    @torch.no_grad()
    def state(self, loss_sums: NDArray[np.float64], target: int = 0) -> ReconstructionState:
        """Return a copy of what this rank stores of all that is needed to continue from here.

        That is its rows, of an object in tiles its own pixels, and on rank 0 all else. loss_sums: from `loss_sums`. It
        does not communicate.
        """
        on_rank_0 = self.group.rank == 0
        algorithm_state = self._stored(self.algorithm.state())
        rows = {name: _copy(values) for name, values in self.algorithm.rows().items()}
        model_state = self._stored({f"model/{name}": one for name, one in self.model.arrays().items()})
        return ReconstructionState(
            **fields_of(RunRecord, self.record()),
            begun=self.begun.model_dump(mode="json"),
            scan=dict(self.scan),
            epoch=self.epoch,
            target=target,
            seconds=self._seconds,
            active={name: piece.active for name, piece in self.model.components.items()},
            power=self.model.probe.power,
            numbers={name: value for name, value in algorithm_state.items() if not isinstance(value, Tensor)},
            batch=self.order.batch,
            loss_sums=loss_sums,
            scale=_copy(self.model.probe.scale),
            model={name.removeprefix("model/"): _copy(values) for name, values in model_state.items()},
            algorithm={name: _copy(value) for name, value in algorithm_state.items() if isinstance(value, Tensor)},
            patterns=self.shard.patterns.copy() if rows else self.shard.patterns[:0].copy(),
            rows=rows,
            parts=self.group.world if rows or self.tile is not None else 1,
            tile=np.zeros(0, dtype=np.int64) if self.tile is None else np.array([*self.tile.owned, *self.frame.shape]),
            epoch_start={} if self._changes is None or self.update == 0 else self._changes.arrays(),
            updates_done=self.updates_done,
            order=self.order.state(),
            placement=self._placement() if on_rank_0 else {},
        )

    def _stored(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Return what this rank stores: of an object in tiles its own pixels, and rank 0 all else."""
        if self.tile is None:
            return dict(arrays) if self.group.rank == 0 else {}
        found = dict[str, Any]()
        for name, values in arrays.items():
            if isinstance(values, Tensor) and of_object(name, values.ndim):
                found[name] = self.tile.own_pixels(values)
            elif self.group.rank == 0:
                found[name] = values
        return found

    def _placement(self) -> dict[str, NDArray[Any]]:
        """Return where the object is, so that a checkpoint can be shown without its scan."""
        placement = {"positions": self.model.all_positions().numpy().copy(), "origin": np.array(self.frame.origin)}
        return placement if self.pixel_size is None else placement | {"pixel_size": np.array(self.pixel_size)}

    def record(self) -> RunRecord:
        """Return the record of the run up to now."""
        return RunRecord(
            **vars(self.annotation),
            epochs=(*self.epochs,),
            update=self.update,
            r_factors=(*self.r_factors,),
            changes=(*self.changes,),
            runs=(*self.runs,),
            settings=self.settings.model_dump(mode="json"),
            stages=self.plan.plain,
            stage=self.plan.number,
            metadata=self._environment,
            started=self.started,
            history=self.history,
            admissions=self._admissions(),
            plugins=self.plugins,
        )

    def restore(self, state: ReconstructionState, settings: Settings | None = None) -> None:
        """Continue from a checkpointed state of this scan; call it before the first update.

        The number of engines may differ from that which wrote the state. state: with the rows of this engine's
        patterns. settings: to continue with; differences from those of the state are recorded as changes. The loop must
        have been created with the settings that the state's reconstruction was `begun` with.

        With the same number of engines the run continues bit for bit. Where batches differ (`batch_per="engine"`), the
        interrupted epoch starts again. Raises ValueError if the state belongs to another scan or model.
        """
        if state.admissions is not None:
            for admission in state.admissions.all()[1:]:
                self._admitted.append(admission)
                self._use(admission)
            self._admitted_at, self.live_epochs = state.admissions.updates.tolist(), state.admissions.epochs
        self._check_state(state)
        self.plugins = (*dict.fromkeys((*state.plugins, *self.plugins)),)
        self.begun = Settings(**state.begun)
        same_batches = state.batch == self.order.batch
        self.epoch, self.update = state.epoch, state.update if same_batches else 0
        self.updates_done = state.updates_done
        self.epochs, self.changes, self.runs = [*state.epochs], [*state.changes], [*state.runs]
        if self.runs:
            self.problem.run = self.runs[-1]
        self.r_factors = [*state.r_factors]
        self.history = state.history if self.group.rank == 0 else ()
        self.annotation = Annotation.of(state)
        self.started = state.started or self.started
        self._seconds, self._clock = state.seconds if same_batches else 0.0, None
        for name, component in self.model.components.items():
            component.active = state.active[name]
        self._apply_settings(Settings(**state.settings))
        self._begin_epoch(self._table_of(state) if same_batches else None)
        self._copy_values(state)
        sums = state.loss_sums if len(state.loss_sums) == self.group.world else state.loss_sums.sum()[None]
        if self._changes is not None:
            self._changes.restore(state.epoch_start if same_batches else {}, state.update)
        own_sum = float(sums[self.group.rank]) if same_batches and self.group.rank < len(sums) else 0.0
        self._loss_sum.fill_(own_sum)
        if settings is not None and settings != self.settings:
            self.change(settings)
        self.shard.follow(self._upcoming_batches())

    def _table_of(self, state: ReconstructionState) -> NDArray[np.int64] | None:
        """Return the order of patterns in the epoch of a state in which further ones could come; None: any other."""
        if not state.order:
            return None
        assert isinstance(self.order, LiveSampler)
        return self.order.resume_epoch(state.order)

    @torch.no_grad()
    def _copy_values(self, state: ReconstructionState) -> None:
        """Copy the values of the state into the existing tensors, in place."""
        self.model.probe.set_scale(torch.from_numpy(state.scale))
        self.model.probe.power = state.power
        self.model.set_arrays(state.model)
        if (slab := self.model.slab) is not None:
            # The old slab caches the propagation kernel of the old parameters.
            self.model.slab = Slab(slab.slices, slab.tilt, slab.pixel, slab.wavelength)
        algorithm_state: dict[str, Tensor | float] = {
            name: torch.from_numpy(one) for name, one in state.algorithm.items()
        }
        rows = {name: torch.from_numpy(values) for name, values in state.rows.items()}
        self.algorithm.restore(algorithm_state | state.numbers, rows)

    def _check_state(self, state: ReconstructionState) -> None:
        """Raise InvalidValueError if the state belongs to another scan, or to a model with other components."""
        own, other = self.scan, state.scan
        differ = [word for name, word in SCAN_FACTS.items() if own[name] != other.get(name)]
        if not math.isclose(own["counts"], other.get("counts", math.nan), rel_tol=1e-9):
            differ.append("sum of all counts")
        if differ:
            raise InvalidValueError(
                f"The checkpoint was created from another scan ({_description(other)}), and this is "
                f"{_description(own)}; they differ in {', '.join(differ)}. Resume with the same scan, prepared "
                "(cropped, flipped, masked) in the same way.",
                code="checkpoint.other-scan",
            )
        model = {name: tuple(one.shape) for name, one in self.model.arrays().items()}
        stored = {name: one.shape for name, one in state.model.items()}
        if model != stored or set(state.active) != set(self.model.components):
            wrong = sorted(name for name in {*model, *stored} if model.get(name) != stored.get(name))
            raise InvalidValueError(
                f"The checkpoint has another model, which differs in {', '.join(wrong[:4]) or 'its components'}; "
                "resume with the same settings and the same extensions.",
                code="checkpoint.other-model",
            )
        if not np.array_equal(state.patterns, self.shard.patterns[: None if state.rows else 0]):
            raise InvalidValueError(
                f"The checkpoint has rows of {len(state.patterns)} patterns, and this engine has {len(self.shard)}; "
                "read those of its patterns with load_rows.",
                code="checkpoint.other-model",
            )

    @torch.no_grad()
    def r_factor(self) -> tuple[float, tuple[float, ...] | None]:
        """Return the amplitude R-factor Σ |√I - √M| / Σ √I of the present state, over all patterns of all engines.

        Also return that of each scan, if this one is made of several; else None.
        """
        buffers.forget()  # the buffers of updates have another size
        sums = torch.zeros((2, len(self.spans)), dtype=torch.float64, device=self.group.device)
        size, of_patterns, order = self.evaluation_batch(), list[Tensor](), list[NDArray[np.int64]]()
        for places in self.by_band(self.shard.present):
            order.append(places)
            for patterns in (self.shard.present[places[first : first + size]] for first in range(0, len(places), size)):
                residuals, totals = self.residuals(self.shard.batch(patterns, size))
                of_patterns.append(residuals / totals)
                for number, span in enumerate(self.spans):
                    own = slice(*np.searchsorted(patterns, (span.start, span.stop)).tolist())  # ascending
                    sums[0, number] += residuals[own].sum()
                    sums[1, number] += totals[own].sum()
        sums = self.group.sum(sums)
        values = torch.cat([sums.flatten(), *of_patterns]).cpu().numpy()  # one copy, for which a GPU is waited for
        scans = values[: sums.numel()].reshape(2, -1)
        self.pattern_r_factors.replace(values[sums.numel() :][np.argsort(np.concatenate(order))], self.moment)
        residual, total = scans.sum(1).tolist()
        return residual / total, tuple((scans[0] / scans[1]).tolist()) if len(self.spans) > 1 else None

    def by_band(self, patterns: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Yield the places of patterns that can be evaluated together: all, or those of each band of a streamed object.

        While they are evaluated, the device has the rows of the object that they need.
        """
        if (streamed := self.model.streamed) is None:
            yield np.arange(len(patterns))
            return
        bands = streamed.bands.of_pattern[patterns]
        for band in np.unique(bands).tolist():
            self.model.load_band(band)
            yield np.flatnonzero(bands == band)

    def residuals(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return `amplitude_residuals` of patterns of this engine."""
        with torch_alone(self.model.compiled):
            return amplitude_residuals(self.model.intensities(batch), batch.counts, self.model.mask)

    @property
    def moment(self) -> tuple[int, int, int]:
        """Numbers of epochs, of updates and of changes, by which to recognise a state of the parameters."""
        return self.epoch, self.update, len(self.changes)

    def evaluation_batch(self) -> int:
        """Return the number of patterns that are compared at once for the R-factor."""
        of_update = -(-self.order.share(self.group.world) // self.settings.gradient_accumulation)
        device = self.group.device
        if device.type == "cpu" or free_on_device(device, self.group.engines_per_gpu) < 10 * EVALUATION_BYTES:
            return min(EVALUATION_BATCH, of_update)
        modes = len(self.model.probe.parts) // self.model.probe.count * self.settings.fly_scan.steps
        modes *= self.model.object.states
        of_pattern = modes * math.prod(self.model.window) * self.model.probe.parts.element_size() * 2
        return max(of_update, EVALUATION_BYTES // of_pattern)

    @torch.no_grad()
    def arrays(self, file: str = "") -> dict[str, Tensor]:
        """Return copies of object ((state,) (slice,) y, x) and probe (mode, y, x), complex, on the CPU.

        An object in tiles is sent to rank 0, and on others than it their own tile: call it on all ranks. A large one
        (`is_large`) in tiles or streamed is written to this file instead, piece by piece by rank 0, if it sees it, and
        the array is empty.

        Raise FileError on rank 0 if it cannot be written.
        """
        streamed = self.model.streamed
        object = self.model.whole_object.values
        shape = *object.shape[:2], *self.frame.shape
        is_written = is_large(math.prod(shape) * object.itemsize) and Path(file).is_file()
        if self.tile is not None:
            if is_written := self.group.broadcast_object(is_written):
                own = self.tile.own_pixels(object)
                self.tile.collect(own, lambda place, values: write_piece(Path(file), shape, place, values.numpy()))
            else:
                object = self.tile.gathered(self.tile.own_pixels(object))
        elif streamed is None:
            object, is_written = object.cpu().clone(), False
        elif is_written:
            for plane in np.ndindex(shape[:2]):
                write_piece(Path(file), shape, plane, object[plane].numpy())
        else:
            object = object.clone()
        if is_written:
            object = torch.empty((*shape[:2], 0, 0), dtype=object.dtype)
        return {"object": squeezed(object), "probe": self.model.probe.values.cpu()}

    @torch.no_grad()
    def projection(self) -> Tensor:
        """Return the product of the slices of the first object state (y, x), for display."""
        return product_of_slices(self.model.whole_object.values[0]).cpu()

    def parameters(self) -> dict[str, Tensor]:
        """Return copies of the parameters of all active components, by "component/name", and of the positions."""
        return {"positions": self.model.all_positions(), **self.model.optimised_arrays()}


@torch.no_grad()
def _checksum(parameters: Iterable[Tensor]) -> tuple[float, bool]:
    """Return a number that depends on every bit of the parameters, and whether all of them are finite.

    The bits are summed as integers, whose order has no effect: on GPUs it is not fixed.
    """
    values = [one.detach() for one in parameters]
    bits = torch.stack([one.view(INTEGERS[one.element_size()]).sum(dtype=torch.int64) for one in values]).sum()
    finite = torch.stack([one.sum(dtype=torch.float64) for one in values]).isfinite().all()
    total, all_finite = torch.stack([bits, finite.to(torch.int64)]).tolist()
    return float(total % CHECKSUM_MODULUS), bool(all_finite)


def _begun(order: BatchSampler, first: Admission) -> LiveSampler:
    """Return the order of a scan of which these patterns have come. order: that of its plan."""
    begun = LiveSampler(order)
    begun.admit(first.patterns)
    begun.ended = first.ended is not None
    return begun


def _environment(group: Group) -> dict[str, str]:
    """Return versions of software and a description of the engines, for the record of the run."""
    versions = {name: version(name) for name in ("ptynb", "torch", "numpy", "h5py")}
    engines = {"engines": str(group.world), "backend": group.backend, "device": str(group.device)}
    return {**versions, "python": platform.python_version(), **engines, "threads": str(count())}


def _check_reach(constraints: Sequence[CustomConstraint], layout: str) -> None:
    """Raise SettingsError if a user's constraint may need pixels of the object that a tile or a band does not hold."""
    for constraint in constraints:
        if layout == "streamed":
            raise SettingsError(
                f"object.layout is 'streamed', and the constraint {type(constraint).__name__} is the user's own, for "
                "which the device may lack rows of the object; remove it, or use object.layout='whole'.",
                code="settings.unsupported-combination",
                fields=("object.layout",),
            )
        if constraint.reach is None or constraint.reach > 1:
            name = type(constraint).__name__
            raise SettingsError(
                f"object.layout is 'tiles', and the constraint {name} has reach={constraint.reach}; expected 0 or 1, "
                "the distance of the pixels on which one depends after it. Set it in the class, or use "
                "object.layout='whole'.",
                code="settings.unsupported-combination",
                fields=("object.layout",),
            )


def _copy(values: Tensor) -> Array:
    """Return a copy in host memory, which shares nothing with the original."""
    copied: Array = values.detach().resolve_conj().to("cpu", copy=True).numpy()
    return copied


def _description(scan: dict[str, Any]) -> str:
    window = " x ".join(str(side) for side in scan.get("window", ()))
    return f"'{scan.get('name')}' ({scan.get('patterns')} patterns of {window} pixels, {scan.get('counts'):.6g} counts)"


def _data_terms(settings: Settings) -> list[DataTerm]:
    return [term for term in settings.regularizers if isinstance(term, DataTerm)]


def short_result(scan: Scan, settings: Settings, device: torch.device, epochs: int) -> initial_probe.ShortResult | None:
    """Return the result after so many epochs on this device alone; None if the loss is not finite.

    Of the phase and scale that only probe and object together have, the probe has the mean counts of the patterns, as
    an initial probe has, and the mean of the object is real.
    """
    loop = Loop(scan, settings.replace(object={"layout": "whole"}), SingleGroup(device))
    try:
        for _ in range(epochs * loop.updates):
            loop.step()
        light, object = illumination_of_all(loop.model), loop.model.object.values.detach()[0, 0]
        probe, mean = loop.model.probe.values.detach(), (light * object).sum()
        phase = mean / mean.abs().clamp(min=torch.finfo(light.dtype).tiny)
        scale = (loop.scan["counts"] / len(scan) / probe.abs().square().sum()).sqrt() * phase
        object = torch.where(light > initial_probe.LIT * light.max(), object / scale, 1)
        probe = probe * scale
        return initial_probe.ShortResult(
            probe.cpu().numpy(), object.cpu().numpy(), loop.frame.origin, loop.r_factor()[0]
        )
    except FloatingPointError:
        return None
    finally:
        loop.disconnect()


def _mean_pattern_weight(settings: Settings) -> float:
    return float(np.sum([term.weight for term in settings.regularizers if isinstance(term, PACBED)]))
