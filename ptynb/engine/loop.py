"""The reconstruction's loop on one engine: state, one update at a time, and what is kept of every epoch."""

from __future__ import annotations

import math
import time

import torch
from torch import Tensor

from ptynb.engine.group import Group
from ptynb.engine.optim import make_optimiser, rates_of, set_rates
from ptynb.engine.order import Order
from ptynb.engine.shard import Shard, Totals, detector_mask
from ptynb.physics.initial import add_modes, flat_object, probe_from_mean_pattern, scale_to_counts
from ptynb.physics.losses import Loss, amplitude_residual, make_loss
from ptynb.physics.model import FarField
from ptynb.scan import ObjectFrame, Scan
from ptynb.settings import Settings
from ptynb.snapshot import Change, Epoch

EVALUATION_BATCH = 32
"""Patterns evaluated at once at most; never more than an update takes, which is known to fit."""


class Loop:
    """Object, probe and everything that moves them. Every method is called on all ranks in the same order."""

    def __init__(self, scan: Scan, settings: Settings, group: Group) -> None:
        """Reads this rank's patterns and builds the initial state, once, on rank 0; it is then sent to the others."""
        self.settings, self.group = settings, group
        dtype = torch.float64 if settings.precision == "double" else torch.float32
        self.order = Order(len(scan), settings.batch, settings.seed)
        self.frame = scan.object_frame(settings.object.padding)
        self.shard = Shard(scan, *self.order.owned(group.rank, group.world), self.frame, dtype)
        totals = self.shard.totals(group, len(scan))
        loss = make_loss(settings.loss, totals.counts / totals.mean_pattern.numel())
        self.normaliser = self.shard.prepare(loss, group)
        self.model = _initial_model(scan, settings, self.frame, totals, loss, group, dtype)
        self.optimiser = make_optimiser(self.model, settings)
        self._distributed = group.wrap(self.model)
        self.epoch, self.update = 0, 0
        self.epochs: list[Epoch] = []
        self.changes: list[Change] = []
        self._table = self.order.epoch(1)
        self._loss_sum = torch.zeros((), dtype=torch.float64, device=group.device)
        self._seconds = 0.0
        self._clock: float | None = None

    def step(self) -> None:
        """One update over all engines; ends the epoch after its last one.

        Raises FloatingPointError, on all ranks, when the loss of an epoch is not finite.
        """
        started = time.perf_counter() if self._clock is None else self._clock
        patterns = self.order.part(self._table, self.update, self.group.rank, self.group.world)
        members = int((self._table[:, self.update] >= 0).sum())
        self.optimiser.zero_grad(set_to_none=True)
        value = self._distributed(self.shard.batch(patterns))
        # DistributedDataParallel averages over ranks; the loss is a sum over all patterns of the batch.
        (value * (self.group.world * self._scale / members)).backward()
        self.optimiser.step()
        self._loss_sum += value.detach()
        self.update += 1
        if self.update == self.order.updates:
            self._end_epoch(started)
        else:
            self._clock = time.perf_counter()
            self._seconds += self._clock - started

    @property
    def _scale(self) -> float:
        """Makes the loss of one pattern a sum over its pixels in units of the mean count of a pixel: a pure number."""
        pixels = self.shard.window[0] * self.shard.window[1]
        return pixels * self.order.count / self.normaliser

    def _end_epoch(self, started: float) -> None:
        loss = float(self.group.sum(self._loss_sum)) / self.normaliser
        self._clock = time.perf_counter()
        seconds = self._seconds + self._clock - started
        self.epoch, self.update, self._seconds = self.epoch + 1, 0, 0.0
        self.epochs.append(Epoch(self.epoch, loss, seconds, self.order.count / seconds))
        self._table = self.order.epoch(self.epoch + 1)
        self._loss_sum.zero_()
        checksum = float(sum(parameter.detach().double().sum() for parameter in self.model.parameters()))
        if not (math.isfinite(loss) and math.isfinite(checksum)):
            raise FloatingPointError(
                f"The loss of epoch {self.epoch} is {loss}, or its last update not finite; "
                f"the rates ({rates_of(self.settings)}) are too high "
                "for this scan. Start again with lower ones."
            )
        if not self.group.all_equal(checksum):
            raise RuntimeError(
                f"After epoch {self.epoch} the engines hold different parameters; this is a fault of ptynb "
                "or of the hardware. The result up to here is not to be trusted."
            )

    def disconnect(self) -> None:
        """Lets go of the group; parameters can still be read, but no further update is made."""
        self._distributed = self.model

    def hold(self) -> None:
        """Time until the next update is a pause and counts for no epoch."""
        self._clock = None

    def change(self, settings: Settings) -> None:
        """Takes over new settings before the next update, and records what changed."""
        for name, (old, new) in self.settings.differences(settings).items():
            self.changes.append(Change(self.epoch, self.update, name, old, new))
        self.settings = settings
        set_rates(self.optimiser, settings)

    @torch.no_grad()
    def r_factor(self) -> float:
        """Amplitude R-factor Σ |√I - √M| / Σ √I of the present state over all patterns of all engines."""
        sums = torch.zeros(2, dtype=torch.float64, device=self.group.device)
        loss, mask = self.model.loss, self.model.mask
        indices = torch.arange(self.shard.start, self.shard.stop).numpy()
        size = min(EVALUATION_BATCH, -(-self.order.lanes // self.group.world))
        for first in range(0, len(indices), size):
            batch = self.shard.batch(indices[first : first + size])
            counts = loss.counts(batch.prepared)
            sums[0] += amplitude_residual(self.model.intensities(batch), counts, mask)
            sums[1] += counts.sqrt().sum(dtype=torch.float64)
        residual, total = self.group.sum(sums).tolist()
        return residual / total

    def arrays(self) -> dict[str, Tensor]:
        """Copies of object (y, x) and probe (mode, y, x), complex, on the CPU."""
        with torch.no_grad():
            return {"object": self.model.object.cpu().clone(), "probe": self.model.probe.cpu()}


def _initial_model(
    scan: Scan,
    settings: Settings,
    frame: ObjectFrame,
    totals: Totals,
    loss: Loss,
    group: Group,
    dtype: torch.dtype,
) -> FarField:
    complex_dtype = torch.complex128 if dtype == torch.float64 else torch.complex64
    object = flat_object(frame.shape, complex_dtype)
    probe = torch.empty((settings.probe.modes, *scan.window), dtype=complex_dtype)
    if group.rank == 0:
        if scan.object is not None:
            object = torch.from_numpy(scan.object).to(complex_dtype)
        if scan.probe is not None:
            guess = torch.from_numpy(scan.probe).to(complex_dtype)
        else:
            guess = probe_from_mean_pattern(totals.mean_pattern, complex_dtype)
        if scan.object is None or scan.probe is None:
            guess = scale_to_counts(guess, totals.counts)
        probe = add_modes(guess, settings.probe.modes)
    object = group.broadcast(object.contiguous().to(group.device))
    probe = group.broadcast(probe.contiguous().to(group.device))
    mask = detector_mask(scan, dtype)
    return FarField(object, probe, None if mask is None else mask.to(group.device), loss)
