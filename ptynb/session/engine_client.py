"""Connection of a session to its engines: commands, record of epochs, and recovery after a failure.

The loss of one engine ends the run on all engines. With `on_failure="continue"` a thread then reopens the
reconstruction from the latest checkpoint, on the remaining engines or on new ones; requests block meanwhile, and a
command that was not answered is repeated.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from ptynb.cluster.rpc import ENDING_SECONDS
from ptynb.data.commands import AdvanceRun, Annotate, Command, MeasureEvery, PauseRun, StartRun
from ptynb.data.engine_records import Epoch, Failure, Pictures, RenderRequest, Status
from ptynb.data.record import STOPPED, Annotation
from ptynb.distributed.timeouts import RunningTime
from ptynb.exceptions import ClusterError, ClusterStoppedError, EngineLostError, FileError, ReconstructionError
from ptynb.io.checkpoint_file import ReconstructionState, load_state, states
from ptynb.polling import wait_until
from ptynb.serial_executor import waiting
from ptynb.session.engines import ChangeNote, Engines
from ptynb.session.failure import Cause, find_cause
from ptynb.session.run_spec import RunSpec
from ptynb.supervised_thread import SupervisedThread

Answer = TypeVar("Answer")

ASKING_SECONDS = 5.0
"""Time without a status of a busy rank 0 after which it is asked, and time limit of its answer [s]."""
MOST_SILENCE = 60.0
LOOK_SECONDS = 0.25
"""Period of the checks whether the engines' processes live [s], which exchange no messages."""
MOST_RECOVERIES = 3
"""Largest number of consecutive automatic recoveries without a newer checkpoint."""


class EngineClient:
    """Send commands to the engines of a session, and record their epochs. Used by several threads.

    Rank 0 sends its status after each change, other ranks a failure; whoever waits for something waits for the next
    status.
    """

    def __init__(
        self, engines: Engines, spec: RunSpec, epochs: Sequence[Epoch] = (), start: Path | None = None
    ) -> None:
        """epochs: records of the previous epochs, if the engines continue from the checkpoint `start`."""
        self.engines, self.spec = engines, spec
        self.lock = threading.RLock()
        self.news = threading.Condition(self.lock)
        """Notified after each status, and when a failure, a recovery or the end of the connection is known.

        It is held as `lock`: an interrupt may leave a Condition locked that is entered itself.
        """
        self.epochs = [*epochs]
        self.last_status: Status | None = None
        """Of rank 0."""
        self._silence = RunningTime()
        """Time since the last status [s]."""
        self._no_answer: ClusterError | None = None
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
        self._failures: dict[int, Failure] = {}
        """The failures that ranks have sent."""
        self._generation = 0
        self._recovery: SupervisedThread | None = None
        self._recoveries: list[str | None] = []
        self._unfollow: weakref.finalize[..., EngineClient] | None = None
        self._looking: threading.Event | None = None
        """Ends the present thread that looks after the engines."""
        try:
            self._follow()
        except EngineLostError as error:
            self.fail(error, self._generation)
        self._look_on()

    # Status

    def _look_on(self) -> None:
        """Look after the engines until the reconstruction has failed or is closed."""
        if self._looking is not None:
            self._looking.set()
        self._looking = threading.Event()
        SupervisedThread("ptynb follower", _look_now_and_then, weakref.ref(self), self._looking, restarts=True).start()

    def _follow(self) -> None:
        """Let the engines send the status of rank 0. Raises EngineLostError."""
        generation, reference = self._generation, weakref.ref(self)

        def receive(status: Status, known: int) -> None:  # must not keep a session alive that is not used any more
            client = reference()
            if client is None or generation != client._generation:
                return
            if status.failure is not None:
                client._failures[status.rank] = status.failure
            if status.rank == 0:
                client._receive(status, known, generation)
            elif status.failure is not None:
                client.fail(None, generation)

        def ended() -> None:
            if (client := reference()) is not None and client._generation == generation:
                client.look(ENDING_SECONDS)

        if self._unfollow is not None:
            self._unfollow.detach()  # it holds the previous engines
        self._unfollow = weakref.finalize(self, self.engines.unfollow)
        self.engines.follow(receive, len(self.epochs), ended)

    def _receive(self, status: Status, known: int, generation: int) -> None:
        """Record a status with the records after `known` epochs, and note a failure."""
        own = len(self.epochs)
        if known > own and generation == self._generation:  # what was sent between was lost
            try:
                status, known = self.engines.call(0, "status", own, timeout=ASKING_SECONDS), own
            except EngineLostError as error:
                self.fail(error, generation)
                return
            except ClusterError:
                return  # the next status shows it again
        if self._record_status(status, known, generation) and status.failure is not None:
            self.fail(None, generation)

    def _record_status(self, status: Status, known: int, generation: int) -> bool:
        """Record a status, in the order of their numbers; return False if it precedes a recovery."""
        with self.lock:
            if generation != self._generation:
                return False
            self.epochs += status.epochs[len(self.epochs) - known :]
            self.r_factors.update(status.r_factors)
            stops = sum(change.name == STOPPED for change in status.changes)
            if stops > self._stops:
                self.target_epoch = None
            self._stops = max(self._stops, stops)
            before = self.last_status
            if before is None or status.number >= before.number:
                self.last_status, self.live_epochs = status, status.live_epochs
            self._silence.restart()
            self._no_answer = None
            self.news.notify_all()
            return True

    def wait_for(self, condition: Callable[[], Answer | None], until: float = float("inf")) -> Answer:
        """Wait until a condition, evaluated after each status, is true, and return its value.

        until: when TimeoutError is raised, by `time.monotonic`. Raises ReconstructionError after a failure or `close`,
        ClusterError if rank 0 does not answer or the cluster was stopped.
        """
        with waiting(), self.lock:
            while True:
                self.alive()
                if value := condition():
                    return value
                if not self.engines.reachable:
                    raise ClusterStoppedError("The cluster was stopped.", code="cluster.stopped")
                if self._no_answer is not None:
                    raise self._no_answer
                left = until - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                self.news.wait(None if until == float("inf") else left)

    def status(self) -> Status:
        """Return the last status of rank 0; waits for the first one."""
        return self.wait_for(lambda: self.last_status)

    def settled(self) -> Status:
        """Return the status once all commands sent so far are applied; while the engines load, the last one."""

        def settled() -> Status | None:
            status = self.last_status
            known = status is not None and (status.applied >= self.sent or status.state == "loading")
            return status if known else None

        return self.wait_for(settled)

    def look(self, patience: float = 0.0) -> None:
        """Look whether the engines' processes live, and ask for the status if nothing was heard of a busy engine.

        patience: time within which a process ends whose connection has ended [s].
        """
        with self.lock:
            engines, generation, status = self.engines, self._generation, self.last_status
            busy = status is None or status.applied < self.sent or status.state in ("loading", "running")
            if not busy:
                self._silence.restart()
            silence = self._silence.seconds
        wait_until(lambda: self.closed or self.failure or self._recovery or engines.lost(), patience, 0.01)
        if why := engines.lost():
            self.fail(EngineLostError(why, code="engine.lost"), generation)
        if status is not None and status.failure is not None:
            self.fail(None, generation)  # it was sent during a recovery that has ended
        if why or not engines.reachable:
            with self.lock:
                self.news.notify_all()
        elif busy and silence > ASKING_SECONDS and self.failure is None:
            self._ask(engines, generation)

    def _ask(self, engines: Engines, generation: int) -> None:
        """Ask rank 0 for its status; after `MOST_SILENCE` without one, what waits for it ends with an error."""
        known = len(self.epochs)
        try:
            status: Status = engines.call(0, "status", known, timeout=ASKING_SECONDS)
        except EngineLostError as error:
            self.fail(error, generation)
        except ClusterStoppedError:
            pass  # `wait_for` looks
        except ClusterError as error:
            if generation != self._generation or error.code != "engine.no-answer":
                return
            with self.lock:
                if self._silence.seconds > ASKING_SECONDS + MOST_SILENCE and not engines.suspended(0):
                    self._no_answer = error
                    self.news.notify_all()
        else:
            self._receive(status, known, generation)

    # Requests

    def alive(self) -> None:
        """Wait until a recovery has ended. Raises ReconstructionError after a failure (the failure) or `close`."""
        with waiting(), self.lock:
            while self._recovery not in (None, threading.current_thread()):
                self.news.wait()
        if self.failure is not None:
            raise self.failure
        self.check_open()

    def check_open(self) -> None:
        """Raise ReconstructionError after `close`."""
        if self.closed:
            raise ReconstructionError("It is closed; make a new Reconstruction.", code="reconstruction.closed")

    def close(self) -> None:
        """End the workers, if they are reachable, and all requests of other threads."""
        with self.lock:
            self.closed = True
            self.news.notify_all()
        if self._looking is not None:
            self._looking.set()
        if self.engines.reachable:
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
                self.check_open()  # engines that were closed meanwhile do not know the reconstruction any more
                if self._recovery is None and generation == self._generation:
                    raise

    def look_at(self, request: RenderRequest) -> Pictures | None:
        """Request pictures from rank 0, and record the status in the same answer."""
        generation, known = self._generation, len(self.epochs)
        pictures: Pictures | None
        pictures, status = self.call(0, "look", request, known)
        if status.failure is None:
            self._record_status(status, known, generation)
        return pictures

    # Commands

    def command(self, command: Command) -> int:
        """Send a command and return its number."""
        number: int = self.call(0, "command", command)
        self._note_sent(number)
        return number

    def _note_sent(self, number: int) -> None:
        with self.lock:
            self.sent = max(self.sent, number)

    def begin(self, epochs: int, last: int | None = None) -> None:
        """Send the command to run this number of additional epochs; with `last`, one of a run that ends with it.

        Waits until it is applied, except while the engines read the patterns, and with `last`.
        """
        status = self.status()
        self.target_epoch, self.paused = status.epoch - status.live_epochs + epochs, False
        generation = self._generation
        order = StartRun(epochs) if last is None else AdvanceRun(last)
        try:
            number: int = self.engines.call(0, "command", order)
        except EngineLostError as error:
            self.fail(error, generation)  # a recovery starts the run
            self.alive()
            return
        self._note_sent(number)
        if last is None and status.state != "loading":
            self._applied(number, generation)

    def order(self, command: Command) -> None:
        """Send a command and wait until rank 0 has applied it; send it again after a recovery.

        The other ranks apply it before the same update, possibly some milliseconds later.
        """
        while True:
            generation = self._generation
            if self._applied(self.command(command), generation):
                return

    def _applied(self, number: int, generation: int) -> bool:
        """Wait until a command is applied; return False if the engines were replaced meanwhile."""

        def known() -> bool:
            status = self.last_status
            return generation != self._generation or (status is not None and status.applied >= number)

        self.wait_for(known)
        return generation == self._generation

    # Failure and recovery

    def fail(self, lost: Exception | None, generation: int) -> None:
        """Determine the cause of a failure, once, and recover if `on_failure` is "continue".

        lost: the error raised by the session's request. generation: number of recoveries before that request.
        """
        with self.lock:
            if self.failure is not None or self._recovery is not None or generation != self._generation or self.closed:
                return
            cause = find_cause(self.engines, lost, self._failures)
            if cause.lost and self.spec.on_failure == "continue" and self._may_recover():
                self._begin_recovery(cause)
                return
            self.can_recover = cause.lost
            text = f"{cause.text}\n\n{self.offer()}" if cause.lost else cause.text
            self.failure = cause.error(text)
            self.news.notify_all()

    def offer(self) -> str:
        """Return a message that describes the effect of `recover`."""
        checkpoint = self._latest_intact_checkpoint()
        place = "starts from the beginning (there is no checkpoint yet)"
        if checkpoint is not None:
            place = f"continues from the checkpoint of epoch {checkpoint[1].epoch}"
        return f"recover() {place}, on the remaining and on new engines."

    def _may_recover(self) -> bool:
        """Whether a recovery is allowed: at most `MOST_RECOVERIES` in a row without a newer checkpoint."""
        latest = None if self.last_status is None else self.last_status.checkpoint
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
            self._look_on()
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
            self.failure = cause.error(f"{cause.text}\n\nThe recovery failed: {why}")
            self.can_recover = True
        finally:
            self._end_recovery()

    def _end_recovery(self) -> None:
        with self.lock:
            self._recovery = None
            self.news.notify_all()

    def _switch_to(self, engines: Engines, state: ReconstructionState | None, status: Status | None = None) -> None:
        """Use these engines, opened from this state (None: from the beginning), and start the requested run, if any.

        status: theirs, if it is known.
        """
        with self.lock:
            self.engines, self.sent = engines, 0
            self.epochs = [] if state is None else [*state.epochs]
            self.last_status, self._failures = status, {}
            self._silence.restart()
            self._stops = 0 if state is None else sum(change.name == STOPPED for change in state.changes)
            self._generation += 1
            self.live_epochs = 0 if state is None or state.admissions is None else state.admissions.epochs
            self._follow()
            self._send_annotation_and_run(0 if state is None else state.epoch)

    def _send_annotation_and_run(self, epoch: int) -> None:
        if self.annotation != Annotation():
            self.sent = self.engines.call(0, "command", Annotate(**vars(self.annotation)))
        self.r_factors = {at: value for at, value in self.r_factors.items() if at <= epoch}
        if self.r_factor_every:
            self.sent = self.engines.call(0, "command", MeasureEvery(self.r_factor_every))
        done = epoch - self.live_epochs
        if self.target_epoch is None or self.target_epoch <= done:
            return
        self.sent = self.engines.call(0, "command", StartRun(self.target_epoch - done))
        if self.paused:
            self.sent = self.engines.call(0, "command", PauseRun())

    def _latest_intact_checkpoint(self) -> tuple[Path, ReconstructionState] | None:
        """Return the newest readable checkpoint, or None."""
        folder = self.checkpoint_folder()
        for path in reversed(states(folder)) if folder else ():
            with contextlib.suppress(FileError):
                return path, load_state(path)
        return None

    def checkpoint_folder(self) -> str | None:
        """Return the checkpoint folder, from any engine that answers: rank 0 may be lost before its first status.

        Before the first checkpoint rank 0 is asked alone: views ask every second, and each request takes milliseconds
        of an engine.
        """
        known = self.last_status
        if folder := (None if known is None else known.checkpoint_folder) or self._last_folder:
            return folder
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
        """Run a function while all other commands and requests wait, in a thread that an interrupt does not end.

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
            self._end_recovery()  # before the result: the caller may send requests at once
            outcome.set_result(None) if problem is None else outcome.set_exception(problem)

        with contextlib.suppress(*([ReconstructionError] if failed else [])):
            self.alive()
        with self.lock:
            if self._recovery is not None:
                raise ReconstructionError(
                    "It is being opened again; try again when that is done.", code="reconstruction.busy"
                )
            before, self.failure = self.failure, None
            if before is not None:
                self._look_on()
            self._recovery = SupervisedThread("ptynb recovery", do)
            self._recovery.start()
        outcome.result()

    def wait_inside(self, condition: Callable[[Status], bool], until: float = float("inf")) -> Status:
        """Wait for a status, in a function run by `apart`. Raises ReconstructionError if an engine failed."""

        def holds() -> Status | None:
            if why := self.engines.lost():
                raise ReconstructionError(why, code="engine.lost")
            status = self.last_status
            if status is not None and status.failure is not None:
                failure = status.failure
                raise ReconstructionError(failure.message, code=failure.code or "engine.failed", fields=failure.fields)
            return status if status is not None and condition(status) else None

        return self.wait_for(holds, until)

    def command_inside(self, command: Command) -> None:
        """Send a command in a function run by `apart`, and wait until it is applied."""
        number = self.engines.call(0, "command", command)
        self._note_sent(number)
        self.wait_inside(lambda status: status.applied >= number)

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
            status = _loaded(engines)
            if status.failure is not None:
                cause = find_cause(engines, None, {})
                raise cause.error()
        except Exception:
            with contextlib.suppress(ClusterError, TimeoutError):
                engines.abandon() if engines.lost() else engines.close()
            raise
        self._switch_to(engines, state, status)


def _loaded(engines: Engines) -> Status:
    """Return the status once the engines have read the patterns. Raises EngineLostError."""
    come, silence = queue.SimpleQueue[Status](), RunningTime()
    engines.follow(lambda status, _: come.put(status), 0)
    while True:
        status: Status | None = None
        with contextlib.suppress(queue.Empty):
            status = come.get(timeout=LOOK_SECONDS)
        if why := engines.lost():
            raise EngineLostError(why, code="engine.lost")
        if status is None and silence.seconds > ASKING_SECONDS:
            status = engines.call(0, "status", 10**9, timeout=MOST_SILENCE)
        if status is not None:
            silence.restart()
            if status.state != "loading":
                return status


def _look_now_and_then(reference: weakref.ref[EngineClient], end: threading.Event) -> None:
    """Look after the engines of a session, until they were stopped or have failed or it is not used any more."""
    while not end.wait(LOOK_SECONDS) and (client := reference()) is not None:
        client.look()
        if client.failure is not None or not client.engines.reachable:
            return
        del client
