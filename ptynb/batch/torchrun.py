"""A run on ranks started by torchrun, Kubernetes, or a shell (one rank). No kernel, no cluster.

Every process has a worker, as an engine does. Rank 0's main thread does the work of a kernel: it starts the worker,
shows progress and writes the result. The others' main threads wait for the end of their worker and forward signals.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

from ptynb.batch.rank_env import Place, Seat
from ptynb.batch.shared_flags import Board, meet
from ptynb.batch.signals import TerminationRequest, signals_are_noted
from ptynb.data.engine_records import Failure, Status
from ptynb.data.provenance import Machines
from ptynb.data.record import stop_reason
from ptynb.data.scan import Scan
from ptynb.distributed.group import Membership
from ptynb.engine.worker import Command, Worker
from ptynb.exceptions import FileError, SettingsError
from ptynb.io import checkpoint_branches
from ptynb.io.checkpoint_file import newest_state, states
from ptynb.io.result_file import save_result
from ptynb.io.run_file_scan import scan_of
from ptynb.optimize.batching import batch_text, check_shares, patterns_of
from ptynb.planning.memory import Workload, check_room, room_for
from ptynb.polling import wait_until
from ptynb.preparation.pattern_window import in_window
from ptynb.progress import ProgressDisplay, log, shown_on
from ptynb.session.run_result import make_result
from ptynb.settings.recipe import StagePlan
from ptynb.settings.run_files.run_file import RunFile
from ptynb.text import counted

LOOK_SECONDS = 0.05
"""Period of the looks for a signal, or for flags of other ranks [s]."""
CAUSE_SECONDS = 3.0
"""Longest wait of a rank that lost another for the error message of the one that failed [s]."""
CLOSE_SECONDS = 60.0
"""Time limit for workers to end together, also while they read patterns [s]."""
END_SECONDS = 5.0
"""Time limit for a worker that waits for a failed rank to end [s]."""
INTERRUPTED = 130
NONE = 10**9
"""Number of known epochs for which a status includes no further ones."""


class FailedError(RuntimeError):
    """This rank's worker has failed."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class ElsewhereError(RuntimeError):
    """Another rank has failed, and reports the error itself."""


def run(plan: RunFile, place: Place, seat: Seat, resume: bool, again: str) -> int:
    """Run this rank and return its exit status: 0, 1, or 130 if a signal ended it.

    again: the command that continues the run, for messages.
    """
    with signals_are_noted() as asked:
        try:
            board = meet(place)
            board.introduce(place.rank, seat.identity)
        except (ValueError, RuntimeError, OSError) as error:
            tell(place, str(error))
            return 1
        rank = Rank(plan, place, seat, board, asked, again)
        try:
            status = rank.lead(resume) if place.rank == 0 else rank.serve()
        except Exception as error:  # noqa: BLE001 - reported by one rank, and every rank ends
            _report(error, place, board)
            status = 1
        rank.end(status)
        return status


class Rank:
    """This process: its worker, and the flags shared with the other ranks."""

    def __init__(
        self, plan: RunFile, place: Place, seat: Seat, board: Board, asked: TerminationRequest, again: str
    ) -> None:
        self._plan, self._place, self._seat, self._board = plan, place, seat, board
        self._asked, self._again = asked, again
        self._console = Console()
        self._worker: Worker | None = None
        self._sent = 0
        self._told = set[str]()
        self._news = threading.Event()

    def lead(self, resume: bool) -> int:
        """Run rank 0: control all ranks until the last epoch and write the result."""
        plan = self._plan
        check_not_live(plan)
        check_folder(plan)
        start = first_state(plan, resume, self._console)
        self._board.publish("" if start is None else str(start))
        scan = scan_of(plan)
        for settings, stage in plan.recipe.each_stage:
            check_shares(scan, settings, self._place.world)
            seen = in_window(scan, stage.pattern_size)
            if self._place.one_host:
                asked = Workload(settings, self._place.world, self._place.world > 1, stages=plan.recipe.stage_settings)
                check_room(seen, asked, room_for(self._seat.kind != "CPU"))
        scan = self._open(scan, start)
        status = self._settle()
        batch = batch_text(plan.settings, self._place.world, len(scan))
        engines = f"{counted(self._place.world, 'engine')} on {self._seat.kind}"
        log(self._console, f"{scan.name}: {engines}, backend {status.backend}, batch {batch}")
        if status.epoch < plan.epochs and not self._leaving():
            with shown_on(self._console, plan.epochs, status.epoch) as shown:
                self._command("start", plan.epochs - status.epoch)
                status = self._settle(shown)
            if reason := stop_reason(status.changes, status.epoch):
                log(self._console, f"Stopped after epoch {status.epoch} of {plan.epochs}: {reason}.")
        if self._leaving():
            return INTERRUPTED
        self._command("evaluate")
        self._settle()
        kept = self._opened.result()
        if kept is None:
            return INTERRUPTED  # a signal came meanwhile
        machines = Machines(
            engines=self._place.world,
            threads=kept.machines.threads,
            devices=self._board.devices,
            kind=engines,
            backend=status.backend,
            frames=kept.machines.frames,
            batch=batch,
        )
        result = make_result(scan, kept, machines, None)
        path = save_result(result, plan.result)
        log(self._console, f"Loss {result.losses[-1]:.5g}, R-factor {result.r_factor:.4f}. Result: {path}")
        return 0

    def serve(self) -> int:
        """Run another rank: wait until rank 0 has ended its worker."""
        check_not_live(self._plan)
        scan = scan_of(self._plan)
        while (found := self._board.published()) is None:
            if self._board.failed:
                raise ElsewhereError
            self._pause()
        scan = self._open(scan, Path(found) if found else None)
        told = False
        while self._look(NONE).state != "closed":
            if self._asked.leave and not told:
                self._board.ask_to_leave()
                told = True
            self._pause()
        return INTERRUPTED if self._leaving() else 0

    def end(self, status: int) -> None:
        """End the worker, or the whole process if the worker waits for a failed rank."""
        if self._worker is None:
            return
        if self._place.rank == 0:
            self._command("leave")  # with a checkpoint, for a --resume with more epochs too
        until = time.monotonic() + (END_SECONDS if self._board.failed else CLOSE_SECONDS)
        while (state := self._worker.status(NONE).state) not in ("failed", "closed"):
            if time.monotonic() > until or (state == "loading" and self._board.failed):
                _end_at_once(status or 1)
            self._pause()
        try:
            self._worker.close()
        except TimeoutError as error:
            tell(self._place, str(error))
            _end_at_once(status or 1)
        if self._place.rank == 0:
            self._say_how_to_go_on(self._worker.status(NONE), status)

    def _say_how_to_go_on(self, standing: Status, status: int) -> None:
        self._tell_notices(standing)
        if status != 0:
            log(self._console, go_on(standing.checkpoint, standing.checkpoint_epoch, self._again))

    def _tell_notices(self, standing: Status) -> None:
        for notice in standing.notices:
            if notice not in self._told:
                self._told.add(notice)
                log(self._console, notice)

    def _open(self, scan: Scan, start: Path | None) -> Scan:
        """Open the worker; return the scan with its patterns only, so that those in memory of others are freed."""
        place, seat, plan = self._place, self._seat, self._plan
        membership = Membership(
            rank=place.rank,
            world=place.world,
            store="env://",
            backend=seat.backend,
            device=seat.device,
            identity=seat.identity,
        )
        stages, settings = StagePlan(plan.stages), plan.recipe.stage_settings
        part = scan.part(patterns_of(scan, settings, place.rank, place.world))
        self._worker = Worker(part, settings[0], membership, checkpointing=plan.checkpointing, start=start, plan=stages)
        self._worker.follow(lambda status, known: self._news.set())
        return part

    @property
    def _opened(self) -> Worker:
        assert self._worker is not None, "it is opened first of all"
        return self._worker

    def _leaving(self) -> bool:
        return self._asked.leave or self._board.asked_to_leave

    def _command(self, kind: Any, value: Any = None) -> None:
        self._sent = self._opened.command(Command(kind, value))

    def _look(self, known: int) -> Status:
        """Return the status of the worker. Raises the error that ended it, or ElsewhereError."""
        status = self._opened.status(known)
        if status.failure is not None:
            raise FailedError(status.failure)
        if self._board.failed:
            raise ElsewhereError
        return status

    def _settle(self, shown: ProgressDisplay | None = None) -> Status:
        """Wait until all ranks are idle, or one is requested to end; show epochs meanwhile."""
        known = 0
        while True:
            leaving = self._leaving()
            status = self._look(known if shown is not None else NONE)
            self._tell_notices(status)
            if shown is not None and status.epochs:
                known += len(status.epochs)
                shown.show(status.epochs[-1])
            if leaving or (status.state == "ready" and status.applied >= self._sent):
                return status
            self._pause()

    def _pause(self) -> None:
        """Wait for the next status of the worker, and not too long, for signals and flags of other ranks."""
        self._news.wait(LOOK_SECONDS)
        self._news.clear()


def check_not_live(plan: RunFile) -> None:
    """Raise SettingsError if the scan is to be received: nothing distributes its patterns among hosts."""
    if plan.listen is not None:
        raise SettingsError(
            "The run file has a section 'listen', and ranks that torchrun or a pod starts receive no scan; use 'ptynb "
            "run', which starts engines on this machine, or give the scan that was received: --scan and no 'listen'.",
            code="argument.conflict",
        )


def check_folder(plan: RunFile) -> None:
    """Raise FileError if the result could not be written, before hours of computing."""
    folder = plan.result.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise FileError(
            f"The result is to be written to {folder}, which is not a writable folder; create it first.",
            code="file.not-writable",
        )


def first_state(plan: RunFile, resume: bool, console: Console) -> Path | None:
    """Return the checkpoint to continue from, or None. Raises FileError if unrequested checkpoints exist."""
    folder = plan.checkpointing.folder
    line = None if folder is None else checkpoint_branches.last_line(folder.expanduser())
    if line is None:
        return None
    if not resume:
        raise FileError(
            f"{folder} contains checkpoints of an earlier run, the newest {states(line)[-1].name}; continue from it "
            "with --resume, or choose another folder with --keep.",
            code="checkpoint.exists",
        )
    newest = newest_state(line)
    log(console, f"Continuing from {newest}.")
    return newest


def go_on(kept: str | None, epoch: int | None, again: str) -> str:
    """Return the message for an unfinished run."""
    if kept is None:
        return f"No checkpoint was written. Start again with: {again}"
    return f"The checkpoint of epoch {epoch} is in {kept}. Continue with: {again}"


def _report(error: Exception, place: Place, board: Board) -> None:
    """Report the error that ended the run, on one rank only: the first that failed, not one that lost another."""
    if isinstance(error, ElsewhereError):
        return
    lost = isinstance(error, FailedError) and error.failure.lost_group
    if lost and wait_until(lambda: board.failed, CAUSE_SECONDS, LOOK_SECONDS):
        return
    if not board.claim():
        return
    if isinstance(error, FailedError):
        text = f"{error.failure.message}\n\n{error.failure.traceback}"
    elif isinstance(error, ValueError | RuntimeError | OSError):
        text = str(error)
    else:
        text = "".join(traceback.format_exception(error))
    tell(place, text)


def _end_at_once(status: int) -> NoReturn:
    """End the process while a thread still waits."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def tell(place: Place, text: str) -> None:
    """Print a message on the error stream, with the rank if there are several."""
    rank = f"rank {place.rank} on {socket.gethostname()}: " if place.world > 1 else ""
    Console(stderr=True).print(f"ptynb: {rank}{text}", style="red", markup=False, highlight=False, soft_wrap=True)
