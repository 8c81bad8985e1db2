"""Connection of a session to its engines: commands, record of epochs, and recovery after a failure.

The loss of one engine ends the run on all engines. With `on_failure="continue"` a thread then reopens the
reconstruction from the latest checkpoint, on the remaining engines or on new ones; requests block meanwhile, and a
command that was not answered is repeated.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from ptynb.data.engine_records import Epoch, Pictures, RenderRequest, Status
from ptynb.data.record import STOPPED, Annotation
from ptynb.distributed.timeouts import RunningTime
from ptynb.engine.worker import Command
from ptynb.exceptions import ClusterError, ClusterStoppedError, EngineLostError, FileError, ReconstructionError
from ptynb.io.checkpoint_file import ReconstructionState, load_state, states
from ptynb.session.engines import ChangeNote, Engines
from ptynb.session.failure import Cause, find_cause
from ptynb.session.run_spec import RunSpec
from ptynb.supervised_thread import SupervisedThread

ASKING_SECONDS = 5.0
"""Time limit for the answer of rank 0 before the status of the other ranks is requested [s]."""
MOST_SILENCE = 60.0
MOST_RECOVERIES = 3
"""Largest number of consecutive automatic recoveries without a newer checkpoint."""


class EngineClient:
    """Send commands to the engines of a session, and record their epochs. Used by several threads."""

    def __init__(
        self, engines: Engines, spec: RunSpec, epochs: Sequence[Epoch] = (), start: Path | None = None
    ) -> None:
        """epochs: records of the previous epochs, if the engines continue from the checkpoint `start`."""
        self.engines, self.spec = engines, spec
        self.lock = threading.RLock()
        self.epochs = [*epochs]
        self.statuses: dict[int, Status] = {}
        self._received_at = 0.0
        self.r_factors: dict[int, float] = {}
        """R-factor by number of completed epochs."""
        self.r_factor_every = 0
        self.annotation = Annotation()
        """The user's title and comments."""
        self.sent = 0
        self.failure: ReconstructionError | None = None
        self.closed = False
        self.can_recover = False
        """Whether `recover` can continue after the failure."""
        self.target_epoch: int | None = None
        """Epoch at which the requested run ends, without those in which further patterns could come; None: no run."""
        self.live_epochs = 0
        """Completed epochs in which further patterns could come, by the last status."""
        self.paused = False
        self._stops = 0
        """Number of times that `Settings.stop` ended a run, as far as known."""
        self._last_folder = None if start is None else str(start.absolute().parent)
        """Folder of the checkpoint from which the engines were last opened."""
        self.activity = threading.Event()
        """Set by each command: idle engines may become active."""
        self._generation = 0
        self._recovery: SupervisedThread | None = None
        self._recoveries: list[str | None] = []

    # Requests

    def alive(self) -> None:
        """Wait until a recovery has ended. Raises ReconstructionError after a failure (the failure) or `close`."""
        while (recovery := self._recovery) is not None and recovery is not threading.current_thread():
            if recovery.ident is None:  # not started yet
                time.sleep(0.001)
            else:
                recovery.join(0.1)
        if self.failure is not None:
            raise self.failure
        self.check_open()

    def check_open(self) -> None:
        """Raise ReconstructionError after `close`."""
        if self.closed:
            raise ReconstructionError("It is closed; make a new Reconstruction.", code="reconstruction.closed")

    def close(self, reachable: bool) -> None:
        """End the workers, if they are reachable, and all requests of other threads."""
        self.closed = True
        self.activity.set()
        if reachable:
            self.engines.close()

    def call(self, rank: int, method: str, *arguments: Any, timeout: float = MOST_SILENCE) -> Any:
        """Call a method of this rank's worker, again after a recovery. Raises ReconstructionError after a failure."""
        while True:
            self.alive()
            engines, generation = self.engines, self._generation
            try:
                return engines.call(rank, method, *arguments, timeout=timeout)
            except EngineLostError as error:
                self.fail(error, generation)
            except ClusterStoppedError:
                raise
            except ClusterError:
                if self._recovery is None and generation == self._generation:
                    raise

    def look(self, request: RenderRequest) -> Pictures | None:
        """Request pictures from rank 0, and record the status in the same answer."""
        generation, known = self._generation, len(self.epochs)
        pictures: Pictures | None
        pictures, status = self.call(0, "look", request, known)
        if status.failure is None:
            self._record_status(status, known, generation)
        return pictures

    def fetch(self, within: float = 0.0) -> Status:
        """Return the status of rank 0 and record its new epochs; reuse a status of the last `within` seconds.

        Waits while the process of rank 0 or of the controller is suspended. Raises the failure, if there is one.
        """
        silence = RunningTime(ASKING_SECONDS * (self.engines.world + 1))
        while True:
            self.alive()
            generation = self._generation
            if why := self.engines.lost():
                self.fail(EngineLostError(why, code="engine.lost"), generation)
                continue
            if (recent := self._recent(within)) is not None:
                return recent
            known = len(self.epochs)
            try:
                status: Status = self.call(0, "status", known, timeout=ASKING_SECONDS)
            except ClusterStoppedError:
                raise
            except ClusterError:
                if generation != self._generation:
                    continue
                self._check_other_ranks(generation)
                if silence.seconds > MOST_SILENCE and not self.engines.suspended(0):
                    raise
                continue
            if not self._record_status(status, known, generation):
                continue
            if status.failure is None:
                return status
            self.fail(None, generation)

    def _recent(self, within: float) -> Status | None:
        with self.lock:
            return self.statuses.get(0) if time.monotonic() - self._received_at < within else None

    def _record_status(self, status: Status, known: int, generation: int) -> bool:
        """Record a status, which several threads may have requested; return False if it precedes a recovery."""
        with self.lock:
            if generation != self._generation:
                return False
            self.epochs += status.epochs[len(self.epochs) - known :]
            self.r_factors.update(status.r_factors)
            before, self.live_epochs = self.statuses.get(0), status.live_epochs
            stops = sum(change.name == STOPPED for change in status.changes)
            if stops > self._stops:
                self.target_epoch = None
            self._stops = max(self._stops, stops)
            if before is None or status.applied >= before.applied:
                self.statuses[0], self._received_at = status, time.monotonic()
            return True

    def _check_other_ranks(self, generation: int) -> None:
        """Check whether another rank has failed or lost its connection to rank 0, which does not answer."""
        for rank in range(1, self.engines.world):
            try:
                status: Status = self.engines.call(rank, "status", 10**9, timeout=ASKING_SECONDS)
            except ClusterStoppedError:
                raise
            except EngineLostError as error:
                self.fail(error, generation)
                return
            except ClusterError:
                continue  # no answer either: the machine may be busy
            if status.failure is not None:
                self.fail(None, generation)
                return

    # Commands

    def command(self, kind: Any, value: Any = None) -> int:
        """Send a command and return its number."""
        number: int = self.call(0, "command", Command(kind, value))
        self._note_sent(number)
        return number

    def _note_sent(self, number: int) -> None:
        with self.lock:
            self.sent = max(self.sent, number)
        self.activity.set()

    @property
    def waiting(self) -> bool:
        """Whether, by the last status, a command that was sent is not applied yet."""
        status = self.statuses.get(0)
        return status is not None and status.applied < self.sent

    @property
    def idle(self) -> bool:
        """Whether, by the last status, no run is active and no command is pending."""
        status = self.statuses.get(0)
        done = status is not None and status.state in ("ready", "paused") and status.applied >= self.sent
        return done and self._recovery is None

    def begin(self, epochs: int, last: int | None = None) -> None:
        """Send the command to run this number of additional epochs; with `last`, one of a run that ends with it."""
        status = self.fetch()
        self.target_epoch, self.paused = status.epoch - status.live_epochs + epochs, False
        generation, known = self._generation, len(self.epochs)
        try:
            order = Command("start", epochs) if last is None else Command("advance", last)
            number: int
            number, status = self.engines.call(0, "obey", order, known)
        except EngineLostError as error:
            self.fail(error, generation)  # a recovery starts the run
            self.alive()
        else:
            self._note_obeyed(number, status, generation, known)

    def order(self, kind: Any, value: Any = None) -> None:
        """Send a command and wait until rank 0 has applied it; send it again after a recovery.

        The other ranks apply it before the same update, possibly some milliseconds later.
        """
        while True:
            generation, known = self._generation, len(self.epochs)
            number, status = self.call(0, "obey", Command(kind, value), known)
            self._note_obeyed(number, status, generation, known)
            at_once = status.failure is None and status.applied >= number and generation == self._generation
            if at_once or self._applied(number, generation):
                return

    def _note_obeyed(self, number: int, status: Status, generation: int, known: int) -> None:
        """Note a command that was sent, and the status that came with its number."""
        if status.failure is None:
            self._record_status(status, known, generation)
        self._note_sent(number)

    def caught_up(self) -> None:
        """Wait until all commands sent so far are applied."""
        self._applied(self.sent, self._generation)

    def _applied(self, number: int, generation: int) -> bool:
        pause = 0.001
        while self.fetch().applied < number:
            if generation != self._generation:
                return False
            time.sleep(pause)
            pause = min(1.5 * pause, 0.02)
        return generation == self._generation

    # Failure and recovery

    def fail(self, lost: Exception | None, generation: int) -> None:
        """Determine the cause of a failure, once, and recover if `on_failure` is "continue".

        lost: the error raised by the session's request. generation: number of recoveries before that request.
        """
        with self.lock:
            if self.failure is not None or self._recovery is not None or generation != self._generation:
                return
            cause = find_cause(self.engines, lost)
            if cause.lost and self.spec.on_failure == "continue" and self._may_recover():
                self._begin_recovery(cause)
                return
            self.can_recover = cause.lost
            text = f"{cause.text}\n\n{self.offer()}" if cause.lost else cause.text
            self.failure = ReconstructionError(text, code=cause.code)

    def offer(self) -> str:
        """Return a message that describes the effect of `recover`."""
        checkpoint = self._latest_intact_checkpoint()
        place = "starts from the beginning (there is no checkpoint yet)"
        if checkpoint is not None:
            place = f"continues from the checkpoint of epoch {checkpoint[1].epoch}"
        return f"recover() {place}, on the remaining and on new engines."

    def _may_recover(self) -> bool:
        """Whether a recovery is allowed: at most `MOST_RECOVERIES` in a row without a newer checkpoint."""
        latest = self.statuses[0].checkpoint if 0 in self.statuses else None
        self._recoveries = [*self._recoveries, latest][-MOST_RECOVERIES - 1 :]
        return len(self._recoveries) <= MOST_RECOVERIES or len(set(self._recoveries)) > 1

    def recover(self) -> None:
        """Recover after a failure. Raises ReconstructionError if no engine was lost, or none is available."""
        with self.lock:
            if self.failure is None:
                return
            if not self.can_recover:
                raise ReconstructionError(
                    "recover() is for lost engines, and none was lost: the same failure would come again. restore(...) "
                    "an earlier checkpoint, or make a new Reconstruction without the cause of the failure "
                    f"({str(self.failure).splitlines()[0]})",
                    code="reconstruction.not-recoverable",
                )
            cause = Cause(str(self.failure).split("\n", 1)[0], True, self.failure.code)
            self.failure = None
            self._begin_recovery(cause)
        self.alive()

    def _begin_recovery(self, cause: Cause) -> None:
        self._recovery = SupervisedThread("ptynb recovery", self._recover, cause)
        self._recovery.start()

    @property
    def recovering(self) -> bool:
        """Whether the reconstruction is being reopened."""
        return self._recovery is not None

    def _recover(self, cause: Cause) -> None:
        try:
            path, state = self._latest_intact_checkpoint() or (None, None)
            engines = self.engines.replaced(self.spec, path, cause.text.split("\n", 1)[0])
            self._switch_to(engines, state)
        except BaseException as error:  # noqa: BLE001 - any error is shown to the user beside the first cause
            why = (str(error) or type(error).__name__).splitlines()[0]
            self.failure = ReconstructionError(f"{cause.text}\n\nThe recovery failed: {why}", code=cause.code)
            self.can_recover = True
        finally:
            self._recovery = None

    def _switch_to(self, engines: Engines, state: ReconstructionState | None) -> None:
        """Use these engines, opened from this state (None: from the beginning), and start the requested run, if any."""
        with self.lock:
            self.engines, self.sent = engines, 0
            self.epochs = [] if state is None else [*state.epochs]
            self.statuses = {}
            self._stops = 0 if state is None else sum(change.name == STOPPED for change in state.changes)
            self._generation += 1
            self.live_epochs = 0 if state is None or state.admissions is None else state.admissions.epochs
            self._send_annotation_and_run(0 if state is None else state.epoch)

    def _send_annotation_and_run(self, epoch: int) -> None:
        if self.annotation != Annotation():
            self.sent = self.engines.call(0, "command", Command("annotate", vars(self.annotation)))
        self.r_factors = {at: value for at, value in self.r_factors.items() if at <= epoch}
        if self.r_factor_every:
            self.sent = self.engines.call(0, "command", Command("measure", self.r_factor_every))
        done = epoch - self.live_epochs
        if self.target_epoch is None or self.target_epoch <= done:
            return
        self.sent = self.engines.call(0, "command", Command("start", self.target_epoch - done))
        if self.paused:
            self.sent = self.engines.call(0, "command", Command("pause"))

    def _latest_intact_checkpoint(self) -> tuple[Path, ReconstructionState] | None:
        """Return the newest readable checkpoint, or None."""
        folder = self.checkpoint_folder()
        for path in reversed(states(folder)) if folder else ():
            try:
                return path, load_state(path)
            except FileError:
                continue
        return None

    def checkpoint_folder(self) -> str | None:
        """Return the checkpoint folder, from any engine that answers: rank 0 may be lost before its first status.

        Before the first checkpoint rank 0 is asked alone: views ask every second, and each request takes milliseconds
        of an engine.
        """
        known = self.statuses.get(0)
        if known is not None and known.checkpoint_folder is not None:
            return known.checkpoint_folder
        if self._last_folder is not None:
            return self._last_folder
        for rank in range(self.engines.world):
            with contextlib.suppress(ClusterError):
                status: Status = self.engines.call(rank, "status", 10**9, timeout=ASKING_SECONDS)
                if status.checkpoint_folder is not None:
                    return status.checkpoint_folder
                if rank == 0 and status.failure is None:
                    return None  # all engines write at the same update
        return None

    # Requested reopening: see `ptynb.session.reopen`

    def apart(self, work: Callable[[], None], failed: bool = False) -> None:
        """Run a function while all other requests to the engines wait, in a thread that an interrupt does not end.

        failed: whether the reconstruction may have failed; the failure is cleared if the work succeeds.
        """
        outcome: Future[None] = Future()
        before: ReconstructionError | None = None

        def do() -> None:
            problem: BaseException | None = None
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - goes to the caller
                problem = error
                self.failure = self.failure or before
            self._recovery = None  # before the result: the caller may send requests at once
            outcome.set_result(None) if problem is None else outcome.set_exception(problem)

        with contextlib.suppress(*([ReconstructionError] if failed else [])):
            self.alive()
        with self.lock:
            if self._recovery is not None:
                raise ReconstructionError(
                    "It is being opened again; try again when that is done.", code="reconstruction.busy"
                )
            before, self.failure = self.failure, None
            self._recovery = SupervisedThread("ptynb recovery", do)
            self._recovery.start()
        outcome.result()

    def status_inside(self) -> Status:
        """Return the status of rank 0, in a function run by `apart`. Raises ReconstructionError if an engine failed."""
        status: Status = self.engines.call(0, "status", 10**9, timeout=MOST_SILENCE)
        if status.failure is not None:
            raise ReconstructionError(status.failure.message, code=status.failure.code or "engine.failed")
        if why := self.engines.lost():
            raise ReconstructionError(why, code="engine.lost")
        return status

    def open_from(
        self, spec: RunSpec, start: Path, state: ReconstructionState, note: ChangeNote | None, instead_of: str = ""
    ) -> None:
        """Open workers from this checkpoint in place of closed ones, and use them once they have loaded it.

        instead_of: message of the failure that ended the previous workers; if not empty, lost engines are replaced.
        """
        self.spec, self._last_folder = spec, str(start.parent)
        if instead_of:
            engines = self.engines.replaced(spec, start, instead_of, note)
        else:
            engines = self.engines.reopened(spec, start, note)
        try:
            while (status := engines.call(0, "status", 10**9, timeout=MOST_SILENCE)).state == "loading":
                time.sleep(0.01)
                if why := engines.lost():
                    raise EngineLostError(why, code="engine.lost")
            if status.failure is not None:
                cause = find_cause(engines, None)
                raise ReconstructionError(cause.text, code=cause.code)
        except Exception:
            with contextlib.suppress(ClusterError, TimeoutError):
                engines.abandon() if engines.lost() else engines.close()
            raise
        self._switch_to(engines, state)
