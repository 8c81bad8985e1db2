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

from ptynb.batch.exit_statuses import COMPLETED, FAILED, exit_status, status_of_code
from ptynb.batch.rank_env import Place, Seat
from ptynb.batch.run_job import RunJob
from ptynb.batch.signals import Leaving, signals_are_noted, signals_raise, status_of, status_of_end
from ptynb.data.engine_records import Failure
from ptynb.distributed.group import Membership
from ptynb.distributed.rendezvous import await_ranks, find_store
from ptynb.engine.worker import Worker
from ptynb.exceptions import ClusterError, PtynbError, ReconstructionError
from ptynb.io.run_file_scan import scan_of
from ptynb.optimize.batching import patterns_of
from ptynb.plugins import Plugin, check_installed
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

    def claim(self, code: str = "", message: str = "") -> bool:
        """Record that the run has failed; return whether this rank is the first, and so reports the error."""
        try:
            first = self._store.add("failed", 1) == 1
            if first:
                self._store.set("cause", json.dumps([code, message]))
        except RuntimeError:
            first = True
        self._first = self._first or first  # it may be called again with what follows from the failure
        return first

    def cause(self) -> ReconstructionError | None:
        """Return the error that another rank has reported; None without one."""
        if self.failed and wait_until(lambda: self._has("cause"), CAUSE_SECONDS, LOOK_SECONDS):
            with contextlib.suppress(RuntimeError):
                code, message = json.loads(self._store.get("cause"))
                return ReconstructionError(message, code=code) if message else None
        return None

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

    def ask_to_leave(self, number: int) -> None:
        """Record that a rank was requested to end, by this signal."""
        with contextlib.suppress(RuntimeError):
            self._store.set("leave", str(number))

    @property
    def left_by(self) -> int | None:
        """The signal that requested the end of a rank; None without one."""
        if self._has("leave"):
            with contextlib.suppress(RuntimeError):
                return int(self._store.get("leave"))
        return None


def run(plan: RunFile, place: Place, seat: Seat, resume: bool, job: RunJob) -> int:
    """Run this rank, which is recorded by rank 0 in the job, and return its exit status."""
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
            job.error, job.exit_status = error, exit_status(error)
            return job.exit_status
        try:
            if own.rank == 0:
                _lead(plan, place, seat, board, came, resume, job)
            else:
                job.exit_status = _serve(plan, board, came)
        except Leaving as error:
            job.error, job.exit_status = error, error.exit_status
        except Exception as error:  # noqa: BLE001 - reported by one rank, and every rank ends
            _report(error, None, board)
            job.error = board.cause() or error
            job.exit_status = exit_status(job.error)
    return job.exit_status


def _lead(
    plan: RunFile, place: Place, seat: Seat, board: Board, came: Sequence[int], resume: bool, job: RunJob
) -> None:
    """Run rank 0: the whole run, with all ranks."""
    # Not imported by the other ranks: it loads what a cluster needs.
    from ptynb.batch import batch_run
    from ptynb.session.engines import OwnRank
    from ptynb.session.run_spec import RunSpec

    def announce(spec: RunSpec, start: Path | None) -> None:
        stages, settings = spec.plan, spec.settings.model_dump(mode="json")
        used = [vars(one) for one in spec.plugins]
        board.publish(json.dumps([None if start is None else str(start), settings, stages.plain, stages.number, used]))

    def check() -> None:
        if came or board.left_by is not None:
            signal.raise_signal(signal.SIGTERM)  # so that a signal that follows does not interrupt the checkpoint

    def ended(error: BaseException, failure: Failure | None) -> None:
        if isinstance(error, Leaving):
            board.ask_to_leave(left_by(error))
        else:
            _report(error, failure, board)

    def left_by(error: Leaving) -> int:
        return came[0] if came else board.left_by or error.number

    own = OwnRank(
        board.own,
        description=f"{counted(place.world, 'engine')} on {seat.kind}",
        devices=board.devices,
        one_host=place.one_host,
        announce=announce,
        lost=lambda: "Another rank has failed." if board.failed else "",
    )
    try:
        with signals_raise():
            batch_run.run(plan, resume, job, own, check, ended)
    except Leaving as error:
        board.ask_to_leave(left_by(error))  # the others may wait for rank 0 to begin
        board.claim()
        raise Leaving(left_by(error)) from None
    except TimeoutError as error:  # a worker that does not end
        left = board.left_by
        if left is None:
            _report(error, None, board)
        failed = (
            error.__context__
            if isinstance(error.__context__, PtynbError)
            else ReconstructionError(str(error), code="engine.no-answer")
        )
        reason = failed if left is None else Leaving(left)
        job.exit_status = status_of_end(reason)
        job.finish(reason)
        _end_at_once(job.exit_status)


def _serve(plan: RunFile, board: Board, came: Sequence[int]) -> int:
    """Run another rank: wait until rank 0 has ended its worker."""
    scan, own = scan_of(plan), board.own

    def begins() -> bool:
        if came:
            board.ask_to_leave(came[0])
        return board.published() is not None or board.failed

    wait_until(begins, math.inf, LOOK_SECONDS)
    found = board.published()
    if found is None:
        return _status(board)
    start, values, plain, number, used = json.loads(found)
    check_installed([Plugin(**one) for one in used], f"On rank {own.rank}: ")
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

    left_by: int | None = None

    def is_over() -> bool:
        nonlocal left_by
        if came:
            board.ask_to_leave(came[0])
        left_by = left_by or board.left_by  # its store ends with rank 0
        return worker.status(NONE).state in ("failed", "closed") or board.failed

    wait_until(is_over, math.inf, LOOK_SECONDS)
    status = worker.status(NONE)
    if status.failure is not None:
        _report(RuntimeError(status.failure.message), status.failure, board)
        code = status_of_code(status.failure.code) or FAILED
    elif board.failed:
        code = _status(board)
    else:
        left_by = left_by or (came[0] if came else None)
        code = COMPLETED if left_by is None else status_of(left_by)
    # It may wait for a rank that has failed.
    if worker.status(NONE).state == "loading" or not wait_until(
        lambda: worker.status(NONE).state in ("failed", "closed"), END_SECONDS, LOOK_SECONDS
    ):
        _end_at_once(code)
    try:
        worker.close()
    except TimeoutError as error:
        _tell(own, str(error))
        _end_at_once(code or FAILED)
    return code


def _status(board: Board) -> int:
    """Return the exit status of a rank that ends since another one has."""
    if board.left_by is not None:
        return status_of(board.left_by)
    cause = board.cause()
    return FAILED if cause is None else exit_status(cause)


def _report(error: BaseException, failure: Failure | None, board: Board) -> None:
    """Report the error that ended the run, on one rank only: the first that failed, not one that lost another.

    failure: that of this rank's worker, if it failed.
    """
    lost = failure is not None and failure.lost_group
    if lost and wait_until(lambda: board.failed, CAUSE_SECONDS, LOOK_SECONDS):
        return
    code = error.code if isinstance(error, PtynbError) else ""
    if failure is not None:
        code = failure.code or ("engine.lost" if lost else "engine.failed")
    if not board.claim(code, str(error) if failure is None else failure.message):
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
