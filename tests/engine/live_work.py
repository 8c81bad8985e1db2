"""What ranks do in the tests of scans that are measured while they are reconstructed; importable by other processes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ptynb.data.admissions import Admissions
from ptynb.data.arrivals import Acquisition
from ptynb.data.commands import CheckpointRequest, CloseRun, PauseRun, ResumeRun, StartRun
from ptynb.data.scan import Scan
from ptynb.distributed.group import Membership, join
from ptynb.engine.loop import Loop
from ptynb.engine.worker import Worker
from ptynb.settings import Checkpointing, Settings
from tests.engine.work import leave, loaded, obeyed
from tests.live_source import call


def live(
    membership: Membership,
    scan: Scan,
    settings: Settings,
    epochs: int,
    keep: Checkpointing | None = None,
    start: Path | None = None,
    keep_at: int | None = None,
    pause_at: int | None = None,
) -> dict[str, Any]:
    """A run of so many epochs from the end of the scan on.

    keep_at: number of admitted patterns from which on a checkpoint is written, the only one. pause_at: number from
    which on the run is suspended for some time.
    """
    worker = Worker(scan, settings, membership, checkpointing=keep, start=start)
    kept = None
    if membership.rank == 0:
        worker.command(StartRun(epochs))
        loaded(worker)
        if isinstance(scan.acquisition, Acquisition):
            call(scan.acquisition.folder)
        until = time.monotonic() + 90
        begun = False  # by two statuses: the one with the state before the start may be followed by one after it
        while not begun or worker.status().state not in ("ready", "failed"):
            assert time.monotonic() < until, worker.status()
            begun = begun or worker.status().applied >= 1
            loop = worker._loop
            if keep_at is not None and loop is not None and loop.order.count >= keep_at:
                keep_at = None
                worker.command(CheckpointRequest())
            if pause_at is not None and loop is not None and loop.order.count >= pause_at:
                pause_at = None
                obeyed(worker, worker.command(PauseRun()))
                time.sleep(0.3)
                worker.command(ResumeRun())
            time.sleep(0.002)
        kept = worker.status().checkpoint
        worker.command(CloseRun())
    worker._thread.join(60)
    status, loop = worker.status(), worker._loop
    assert status.failure is None, status.failure
    assert loop is not None
    return {**_numbers(loop), "status": status, "kept": kept}


def _numbers(loop: Loop) -> dict[str, Any]:
    record = loop.record()
    return {
        "losses": [epoch.loss for epoch in loop.epochs],
        "admissions": record.admissions,
        "live_epochs": loop.live_epochs,
        "updates": loop.updates_done,
        "counts": loop.scan["counts"],
        **{name: tensor.numpy() for name, tensor in (loop.arrays() | loop.parameters()).items()},
    }


def repeat(
    membership: Membership, scan: Scan, settings: Settings, admissions: Admissions, updates: int
) -> dict[str, Any]:
    """The loop alone, with patterns admitted before the same updates."""
    group = join(membership)
    events = [*zip(admissions.updates.tolist(), admissions.all(), strict=True)]
    loop = Loop(scan, settings, group, first=events.pop(0)[1])
    try:
        while loop.updates_done < updates:
            while events and events[0][0] <= loop.updates_done:
                loop.admit(events.pop(0)[1])
            loop.step()
        ahead = loop.shard._ahead
        unexpected = ahead.unexpected if ahead else 0
        return _numbers(loop) | {"unexpected": unexpected, "r_factor": loop.r_factor()[0]}
    finally:
        leave(loop, group)
