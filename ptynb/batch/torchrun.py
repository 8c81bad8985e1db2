"""A run on ranks started by torchrun, Kubernetes, or a shell (one rank). No kernel, no cluster.

Rank 0 runs a reconstruction as `ptynb run` does, in this process; each other rank has a worker, as an engine does, and
waits for its end.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from torch.distributed import HashStore, Store  # type: ignore[attr-defined]  # public, but not declared as exported

from ptynb.batch.rank_env import Place, Seat
from ptynb.batch.signals import INTERRUPTED, Leaving, signals_are_noted
from ptynb.data.engine_records import Failure
from ptynb.distributed.group import Membership
from ptynb.distributed.rendezvous import await_ranks, find_store
from ptynb.engine.worker import Worker
from ptynb.exceptions import ClusterError
from ptynb.io.run_file_scan import scan_of
from ptynb.optimize.batching import patterns_of
from ptynb.polling import wait_until
from ptynb.settings import Settings
from ptynb.settings.recipe import StagePlan
from ptynb.settings.run_files.run_file import RunFile
from ptynb.text import counted

LOOK_SECONDS = 0.05
"""Period of the looks for a signal, or for flags of other ranks [s]."""
CAUSE_SECONDS = 3.0
"""Longest wait of a rank that lost another for the error message of the one that failed [s]."""
END_SECONDS = 5.0
"""Time limit for a worker that waits for a failed rank to end [s]."""
MEET_SECONDS = 600.0
"""Longest wait of the ranks for each other at the start [s]: pods of one job may start minutes apart."""
NONE = 10**9
"""Number of known epochs for which a status includes no further ones."""


class Board:
    """Flags that every rank can read: which failed first, and whether one was requested to end.

    They are keys in a store at MASTER_ADDR and MASTER_PORT (env://), or of this process if it is the only rank. After
    the end of the store's process none is set. own: membership of this rank. devices: identity of that of each rank.
    """

    def __init__(self, own: Membership) -> None:
        """Raises RuntimeError if some ranks do not start."""
        self.own, world = own, own.world
        self._store: Store = HashStore() if world == 1 else find_store(own.store, own.rank, world, MEET_SECONDS)
        self._first = False
        """Whether this rank was the first that failed."""
        self._store.set(f"device {own.rank}", own.identity)
        if late := await_ranks(self._store, "device", world, MEET_SECONDS):
            raise ClusterError(
                f"Ranks {late} of {world} did not come within {MEET_SECONDS:.0f} s.", code="group.join-failed"
            )
        self.devices = tuple(self._store.get(f"device {rank}").decode() for rank in range(world))

    def _has(self, key: str) -> bool:
        try:
            return bool(self._store.check([key]))
        except RuntimeError:  # the process that served the store has ended; the group notices by itself
            return False

    def claim(self) -> bool:
        """Record that the run has failed; return whether this rank is the first, and so reports the error."""
        try:
            self._first = self._store.add("failed", 1) == 1
        except RuntimeError:
            self._first = True
        return self._first

    @property
    def failed(self) -> bool:
        """Whether another rank has recorded a failure."""
        return not self._first and self._has("failed")

    def publish(self, text: str) -> None:
        """Publish what all ranks are to open, on rank 0."""
        self._store.set("run", text)

    def published(self) -> str | None:
        """Return what all ranks are to open; None: not known yet. Raises ClusterError if rank 0 has ended."""
        try:
            return self._store.get("run").decode() if self._store.check(["run"]) else None
        except RuntimeError:
            raise ClusterError("Rank 0 has ended before the run began.", code="engine.lost") from None

    def ask_to_leave(self) -> None:
        """Record that a rank was requested to end."""
        with contextlib.suppress(RuntimeError):
            self._store.set("leave", "1")

    @property
    def asked_to_leave(self) -> bool:
        """Whether a rank was requested to end."""
        return self._has("leave")


def run(plan: RunFile, place: Place, seat: Seat, resume: bool, again: str) -> int:
    """Run this rank and return its exit status: 0, 1, or 130 if a signal ended it.

    again: the command that continues the run, for messages.
    """
    own = Membership(
        rank=place.rank,
        world=place.world,
        store="env://",
        backend=seat.backend,
        device=seat.device,
        identity=seat.identity,
    )
    with signals_are_noted() as came:
        try:
            board = Board(own)
        except (ValueError, RuntimeError, OSError) as error:
            _tell(own, str(error))
            return 1
        try:
            if own.rank == 0:
                return _lead(plan, place, seat, board, came, resume, again)
            return _serve(plan, board, came)
        except Exception as error:  # noqa: BLE001 - reported by one rank, and every rank ends
            _report(error, None, board)
            return 1


def _lead(plan: RunFile, place: Place, seat: Seat, board: Board, came: Sequence[int], resume: bool, again: str) -> int:
    """Run rank 0: the whole run, with all ranks."""
    # Not imported by the other ranks: it loads what a cluster needs.
    from ptynb.batch import batch_run
    from ptynb.session.engines import OwnRank
    from ptynb.session.run_spec import RunSpec

    def announce(spec: RunSpec, start: Path | None) -> None:
        stages, settings = spec.plan, spec.settings.model_dump(mode="json")
        board.publish(json.dumps([None if start is None else str(start), settings, stages.plain, stages.number]))

    def check() -> None:
        if came or board.asked_to_leave:
            signal.raise_signal(signal.SIGTERM)  # so that a signal that follows does not interrupt the checkpoint

    def ended(error: BaseException, failure: Failure | None) -> None:
        if isinstance(error, Leaving):
            board.ask_to_leave()
        else:
            _report(error, failure, board)

    own = OwnRank(
        board.own,
        description=f"{counted(place.world, 'engine')} on {seat.kind}",
        devices=board.devices,
        one_host=place.one_host,
        announce=announce,
        lost=lambda: "Another rank has failed." if board.failed else "",
    )
    try:
        status = batch_run.run(plan, resume, again, own, check, ended)
    except TimeoutError as error:  # a worker that does not end
        if not board.asked_to_leave:
            _report(error, None, board)
        _end_at_once(INTERRUPTED if board.asked_to_leave else 1)
    if status == INTERRUPTED:  # the others may wait for rank 0 to begin
        board.ask_to_leave()
        board.claim()
    return status


def _serve(plan: RunFile, board: Board, came: Sequence[int]) -> int:
    """Run another rank: wait until rank 0 has ended its worker."""
    scan, own = scan_of(plan), board.own

    def begins() -> bool:
        if came:
            board.ask_to_leave()
        return board.published() is not None or board.failed

    wait_until(begins, math.inf, LOOK_SECONDS)
    found = board.published()
    if found is None:
        return INTERRUPTED if board.asked_to_leave else 1
    start, values, plain, number = json.loads(found)
    settings, stages = Settings(**values), StagePlan.of(plain, number)
    worker = Worker(
        scan.part(patterns_of(scan, stages.settings_from(settings), own.rank, own.world)),
        settings,
        own,
        checkpointing=plan.checkpointing,
        start=None if start is None else Path(start),
        plan=stages,
    )
    del scan  # frees the patterns of others that are in memory

    leaving = False

    def is_over() -> bool:
        nonlocal leaving
        if came:
            board.ask_to_leave()
        leaving = leaving or board.asked_to_leave  # its store ends with rank 0
        return worker.status(NONE).state in ("failed", "closed") or board.failed

    wait_until(is_over, math.inf, LOOK_SECONDS)
    status = worker.status(NONE)
    if status.failure is not None:
        _report(RuntimeError(status.failure.message), status.failure, board)
        code = 1
    elif board.failed:
        code = INTERRUPTED if board.asked_to_leave else 1
    else:
        code = INTERRUPTED if came or leaving else 0
    # It may wait for a rank that has failed.
    if worker.status(NONE).state == "loading" or not wait_until(
        lambda: worker.status(NONE).state in ("failed", "closed"), END_SECONDS, LOOK_SECONDS
    ):
        _end_at_once(code)
    try:
        worker.close()
    except TimeoutError as error:
        _tell(own, str(error))
        _end_at_once(code or 1)
    return code


def _report(error: BaseException, failure: Failure | None, board: Board) -> None:
    """Report the error that ended the run, on one rank only: the first that failed, not one that lost another.

    failure: that of this rank's worker, if it failed.
    """
    lost = failure is not None and failure.lost_group
    if lost and wait_until(lambda: board.failed, CAUSE_SECONDS, LOOK_SECONDS):
        return
    if not board.claim():
        return
    if failure is not None:
        text = f"{failure.message}\n\n{failure.traceback}"
    elif isinstance(error, ValueError | RuntimeError | OSError):
        text = str(error)
    else:
        text = "".join(traceback.format_exception(error))
    _tell(board.own, text)


def _end_at_once(status: int) -> NoReturn:
    """End the process while a thread still waits."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _tell(own: Membership, text: str) -> None:
    """Print a message on the error stream, with the rank if there are several."""
    rank = f"rank {own.rank} on {socket.gethostname()}: " if own.world > 1 else ""
    Console(stderr=True).print(f"ptynb: {rank}{text}", style="red", markup=False, highlight=False, soft_wrap=True)
