"""Functions that ranks run in tests of diagnostics, importable by other processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ptynb.data.commands import CloseRun, MakeResult, MeasureEvery, StartRun
from ptynb.data.engine_records import Pictures, RenderRequest, Snapshot
from ptynb.data.pattern_r_factors import MeasuredRFactors
from ptynb.data.scan import Scan
from ptynb.distributed.group import Membership
from ptynb.distributed.rendezvous import find_store
from ptynb.engine.worker import Worker
from ptynb.exceptions import InvalidValueError
from ptynb.settings import Settings


def look(membership: Membership, scan: Scan, settings: Settings, epochs: int) -> dict[str, Any]:
    """Trains, and looks at all patterns that this rank holds, at positions, health and the kept state."""
    worker = Worker(scan, settings, membership)
    _wait(worker, "ready")
    if membership.rank == 0:
        worker.command(MeasureEvery(2))
        worker.command(StartRun(epochs))
    while worker.status().applied < 2 or worker.status().state != "ready":
        assert worker.status().failure is None, worker.status().failure
        time.sleep(0.01)
    r_factors = _measure_all(worker)
    _meet(membership, "measured")  # an evaluation begins on all ranks, and measures what another has yet to measure
    if membership.rank == 0:
        worker.command(MakeResult())
    while worker.status().applied < 3:
        time.sleep(0.01)
    answers = {
        "patterns": [worker.pattern(index) for index in range(len(scan))],
        "r_factors": r_factors,
        "evaluated": worker.pattern_r_factors(0.0, "", 0),
        "positions": worker.positions(),
        "health": worker.health(),
        "status": worker.status(),
        "measured": worker.measured(),
        "kept": worker.result(),
    }
    _meet(membership, "looked")  # what rank 0 closes is closed on all
    worker.close()
    return answers


Question = tuple[str, int, int, RenderRequest]
Shown = tuple[list[Pictures | None], list[complex | float | None], Snapshot | None]


def show(
    membership: Membership,
    scan: Scan,
    settings: Settings,
    epochs: int,
    requests: list[RenderRequest],
    questions: list[Question],
    size: int,
) -> Shown | None:
    """Trains, and answers these requests of pictures and values, and one of a snapshot, on rank 0."""
    worker = Worker(scan, settings, membership)
    _wait(worker, "ready")
    shown = None
    if membership.rank == 0:
        worker.command(StartRun(epochs))
        while worker.status().applied < 1 or worker.status().state != "ready":
            assert worker.status().failure is None, worker.status().failure
            time.sleep(0.01)
        shown = (
            [worker.pictures(request) for request in requests],
            [worker.value_at(*question) for question in questions],
            worker.snapshot(size),
        )
        worker.command(CloseRun())
    worker._thread.join(60)
    assert worker.status().failure is None, worker.status().failure
    return shown


def refused(membership: Membership, scan: Scan, settings: Settings) -> list[tuple[str, str]]:
    """Code and message of the errors of requests for what there is not, after which pictures are made, on rank 0."""
    worker = Worker(scan, settings, membership)
    _wait(worker, "ready")
    told = list[tuple[str, str]]()
    if membership.rank == 0:
        calls: list[Callable[[], object]] = [
            lambda: worker.pictures(RenderRequest(slice=3)),
            lambda: worker.pictures(RenderRequest(state=1)),
            lambda: worker.pictures(RenderRequest(region=(0, 1000, 0, 5))),
            lambda: worker.value_at("phase", 0, 1000, RenderRequest()),
        ]
        for call in calls:
            try:
                call()
            except InvalidValueError as error:
                told.append((error.code, str(error)))
        assert worker.pictures(RenderRequest()) is not None
        assert worker.status().applied == 0
        worker.command(CloseRun())
    worker._thread.join(60)
    assert worker.status().failure is None, worker.status().failure
    return told


def _measure_all(worker: Worker) -> list[MeasuredRFactors]:
    """Measures the R-factors of this rank's patterns, a portion at a time."""
    answers = list[MeasuredRFactors]()
    while not answers or not answers[-1].current:
        known = (answers[-1].source, answers[-1].total) if answers else ("", 0)
        measured = worker.pattern_r_factors(0.0, *known)
        assert measured is not None
        answers.append(measured)
    return answers


def _meet(membership: Membership, place: str) -> None:
    """Waits until all ranks have come to this place."""
    if membership.world > 1:
        store = find_store(membership.store, membership.rank, membership.world, membership.timeout)
        store.set(f"{place} {membership.rank}", "")
        store.wait([f"{place} {rank}" for rank in range(membership.world)])


def _wait(worker: Worker, state: str) -> None:
    while worker.status().state != state:
        assert worker.status().failure is None, worker.status().failure
        time.sleep(0.01)
