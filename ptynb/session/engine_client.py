"""The link between a reconstruction's session and its engines: commands, the record, and what becomes of a failure.

An engine that is lost ends the work on all of them. Where that is wanted, a thread opens the reconstruction again, from
the last kept state on the engines that are left or on fresh ones; whoever asks something meanwhile waits for it, and a
command that was on its way is given again.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from ptynb.data.record import Words
from ptynb.data.snapshot import Epoch, Pictures, RenderRequest, Status
from ptynb.distributed.timeouts import RunningTime
from ptynb.engine.worker import Command
from ptynb.exceptions import ClusterError, ClusterStoppedError, EngineLostError, FileError, ReconstructionError
from ptynb.io.checkpoint_file import ReconstructionState, load_state, states
from ptynb.session.engines import ChangeNote, Engines
from ptynb.session.failure import Cause, find_cause
from ptynb.session.spec import Opening
from ptynb.settings import Settings

ASKING_SECONDS = 5.0
"""How long rank 0 may be silent before the others are asked what they know of it."""
MOST_SILENCE = 60.0
MOST_RECOVERIES = 3
"""Times in a row that a reconstruction goes on by itself without having kept a newer state meanwhile."""


class EngineClient:
    """What the session knows of its engines, and how it speaks to them. Used by several threads."""

    def __init__(
        self, engines: Engines, opening: Opening, epochs: Sequence[Epoch] = (), start: Path | None = None
    ) -> None:
        """epochs: the record so far, where the engines go on from the state `start`."""
        self.engines, self.opening = engines, opening
        self.lock = threading.RLock()
        self.epochs = [*epochs]
        self.statuses: dict[int, Status] = {}
        self._heard_at = 0.0
        self.r_factors: dict[int, float] = {}
        """By the epochs completed."""
        self.r_factor_every = 0
        self.words = Words()
        """The user's title and comments."""
        self.sent = 0
        self.failure: ReconstructionError | None = None
        self.can_recover = False
        """Whether the failure is one after which `recover` can go on."""
        self.wanted: int | None = None
        """Epoch at which the run is to end; None while none is wanted."""
        self.suspended = False
        self._line = None if start is None else str(start.absolute().parent)
        """Folder of the state that it was last opened from on purpose; known before an engine tells."""
        self.activity = threading.Event()
        """Set when a command was given: engines that were idle may be so no more."""
        self._generation = 0
        self._recovery: threading.Thread | None = None
        self._recoveries: list[str | None] = []

    # Asking

    def alive(self) -> None:
        """Waits while it is opened again. Raises what ended it, if something did."""
        while (recovery := self._recovery) is not None and recovery is not threading.current_thread():
            if recovery.ident is None:  # about to be started
                time.sleep(0.001)
            else:
                recovery.join(0.1)
        if self.failure is not None:
            raise self.failure

    def call(self, rank: int, method: str, *arguments: Any, timeout: float = MOST_SILENCE) -> Any:
        """Calls a method of this rank's worker, after a recovery again. Raises ReconstructionError where it ended."""
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
        """Rank 0's pictures; its status, which comes with them, is taken over."""
        generation, known = self._generation, len(self.epochs)
        pictures: Pictures | None
        pictures, status = self.call(0, "look", request, known)
        if status.failure is None:
            self._take_over(status, known, generation)
        return pictures

    def fetch(self, within: float = 0.0) -> Status:
        """Rank 0's status, with the records of new epochs taken over; one heard in the last `within` seconds will do.

        Waits as long as rank 0's process, or the controller's, is known to be stopped. Raises what ended the
        reconstruction.
        """
        silence = RunningTime(ASKING_SECONDS * (self.engines.world + 1))
        while True:
            self.alive()
            generation = self._generation
            if why := self.engines.lost():
                self.fail(EngineLostError(why), generation)
                continue
            if (heard := self._heard(within)) is not None:
                return heard
            known = len(self.epochs)
            try:
                status: Status = self.call(0, "status", known, timeout=ASKING_SECONDS)
            except ClusterStoppedError:
                raise
            except ClusterError:
                if generation != self._generation:
                    continue
                self._ask_others(generation)
                if silence.seconds > MOST_SILENCE and not self.engines.held(0):
                    raise
                continue
            if not self._take_over(status, known, generation):
                continue
            if status.failure is None:
                return status
            self.fail(None, generation)

    def _heard(self, within: float) -> Status | None:
        with self.lock:
            return self.statuses.get(0) if time.monotonic() - self._heard_at < within else None

    def _take_over(self, status: Status, known: int, generation: int) -> bool:
        """Of what several threads may have asked at the same time; False where it is from before a recovery."""
        with self.lock:
            if generation != self._generation:
                return False
            self.epochs += status.epochs[len(self.epochs) - known :]
            self.r_factors.update(status.r_factors)
            before = self.statuses.get(0)
            if before is None or status.applied >= before.applied:
                self.statuses[0], self._heard_at = status, time.monotonic()
            return True

    def _ask_others(self, generation: int) -> None:
        """Rank 0 is silent: perhaps the others have given it up already."""
        for rank in range(1, self.engines.world):
            try:
                status: Status = self.engines.call(rank, "status", 10**9, timeout=ASKING_SECONDS)
            except ClusterStoppedError:
                raise
            except EngineLostError as error:
                self.fail(error, generation)
                return
            except ClusterError:
                continue  # as silent: the machine may be busy, and rank 0 is asked again
            if status.failure is not None:
                self.fail(None, generation)
                return

    # Commanding

    def command(self, kind: Any, value: Any = None) -> int:
        """Gives a command and returns its number."""
        number: int = self.call(0, "command", Command(kind, value))
        self._note_sent(number)
        return number

    def _note_sent(self, number: int) -> None:
        with self.lock:
            self.sent = max(self.sent, number)
        self.activity.set()

    @property
    def idle(self) -> bool:
        """Whether nothing runs and no command is on its way, as far as is known."""
        status = self.statuses.get(0)
        known = status is not None and status.state in ("ready", "paused") and status.applied >= self.sent
        return known and self._recovery is None

    def begin(self, epochs: int) -> None:
        """Commands a run of that many more epochs."""
        generation = self._generation
        self.wanted, self.suspended = self.fetch().epoch + epochs, False
        try:
            number: int = self.engines.call(0, "command", Command("start", epochs))
        except EngineLostError as error:
            self.fail(error, generation)  # a recovery begins what is wanted
            self.alive()
        else:
            self._note_sent(number)

    def order(self, kind: Any, value: Any = None) -> None:
        """Gives a command and waits until all engines have obeyed; after a recovery it is given again."""
        while True:
            generation = self._generation
            number = self.command(kind, value)
            if self._obeyed(number, generation):
                return

    def caught_up(self) -> None:
        """Waits until all commands given so far are obeyed."""
        self._obeyed(self.sent, self._generation)

    def _obeyed(self, number: int, generation: int) -> bool:
        pause = 0.001
        while self.fetch().applied < number:
            if generation != self._generation:
                return False
            time.sleep(pause)
            pause = min(1.5 * pause, 0.02)
        return generation == self._generation

    # Failing, and going on

    def fail(self, lost: Exception | None, generation: int) -> None:
        """Finds out what ended the work, and goes on by itself where that is wanted; once for each failure.

        lost: what the session met itself.
        """
        with self.lock:
            if self.failure is not None or self._recovery is not None or generation != self._generation:
                return
            cause = find_cause(self.engines, lost)
            error = ReconstructionError(cause.text)
            if cause.lost and self.opening.on_failure == "continue" and self._may_go_on():
                self._begin_recovery(cause)
                return
            self.can_recover = cause.lost
            if cause.lost:
                error = ReconstructionError(f"{cause.text}\n\n{self.offer()}")
            self.failure = error

    def offer(self) -> str:
        """What `recover` would do, as a sentence."""
        found = self._last_good_state()
        place = "from the beginning (no state was kept yet)"
        if found is not None:
            place = f"from the state after epoch {found[1].epoch}"
        return f"recover() goes on {place}, on the engines that are left and fresh ones."

    def _may_go_on(self) -> bool:
        """Not again and again without getting any further."""
        kept = self.statuses[0].kept if 0 in self.statuses else None
        self._recoveries = [*self._recoveries, kept][-MOST_RECOVERIES - 1 :]
        return len(self._recoveries) <= MOST_RECOVERIES or len(set(self._recoveries)) > 1

    def recover(self) -> None:
        """Goes on after a failure that lost an engine. Raises ReconstructionError where that can't be done."""
        with self.lock:
            if self.failure is None:
                return
            if not self.can_recover:
                raise ReconstructionError(
                    "It did not lose an engine, so the same would end it again; restore to one of its states, or start "
                    f"a new Reconstruction, with what its failure says changed. ({str(self.failure).splitlines()[0]})"
                )
            cause, self.failure = Cause(str(self.failure).split("\n", 1)[0], True), None
            self._begin_recovery(cause)
        self.alive()

    def _begin_recovery(self, cause: Cause) -> None:
        self._recovery = threading.Thread(target=self._recover, args=(cause,), name="ptynb recovery", daemon=True)
        self._recovery.start()

    @property
    def recovering(self) -> bool:
        """Whether the reconstruction is being opened again."""
        return self._recovery is not None

    def _recover(self, cause: Cause) -> None:
        try:
            kept = self._last_good_state()
            start = None if kept is None else kept[0]
            engines = self.engines.again(self.opening, start, cause.text.split("\n", 1)[0])
            self._take_up(engines, None if kept is None else kept[1])
        except Exception as error:  # noqa: BLE001 - whatever it is, the user is to see it beside the first cause
            why = (str(error) or type(error).__name__).splitlines()[0]
            self.failure = ReconstructionError(f"{cause.text}\n\nIt could not go on by itself: {why}")
            self.can_recover = True
        finally:
            self._recovery = None

    def _take_up(self, engines: Engines, state: ReconstructionState | None) -> None:
        """From now on these are the engines, which were opened from this state; the run goes on, if one is wanted."""
        with self.lock:
            self.engines, self.sent = engines, 0
            self.epochs = [] if state is None else [*state.epochs]
            self.statuses = {}
            self._generation += 1
            self._go_on(0 if state is None else state.epoch)

    def _go_on(self, epoch: int) -> None:
        if self.words != Words():
            self.sent = self.engines.call(0, "command", Command("words", vars(self.words)))
        self.r_factors = {at: value for at, value in self.r_factors.items() if at <= epoch}
        if self.r_factor_every:
            self.sent = self.engines.call(0, "command", Command("measure", self.r_factor_every))
        if self.wanted is None or self.wanted <= epoch:
            return
        self.sent = self.engines.call(0, "command", Command("start", self.wanted - epoch))
        if self.suspended:
            self.sent = self.engines.call(0, "command", Command("pause"))

    def _last_good_state(self) -> tuple[Path, ReconstructionState] | None:
        """The newest state of this reconstruction that is whole; None where there is none."""
        folder = self.folder_of_states()
        for path in reversed(states(folder)) if folder else ():
            try:
                return path, load_state(path)
            except FileError:
                continue
        return None

    def folder_of_states(self) -> str | None:
        """From any engine that still answers, since it may be rank 0 that is lost, before anything was heard of it."""
        known = self.statuses.get(0)
        if known is not None and known.kept_in is not None:
            return known.kept_in
        if self._line is not None:
            return self._line
        for rank in range(self.engines.world):
            with contextlib.suppress(ClusterError):
                status: Status = self.engines.call(rank, "status", 10**9, timeout=ASKING_SECONDS)
                if status.kept_in is not None:
                    return status.kept_in
        return None

    # Being opened again on purpose: see `ptynb.session.reopen`

    def apart(self, work: Callable[[], None], failed: bool = False) -> None:
        """Does this work on the engines while everybody else waits, in a thread that goes on if the waiting is cut.

        failed: whether it may have failed, which is over then if the work succeeds.
        """
        outcome: Future[None] = Future()
        before: ReconstructionError | None = None

        def do() -> None:
            problem: Exception | None = None
            try:
                work()
            except Exception as error:  # noqa: BLE001 - goes to who asked for it
                problem = error
                self.failure = self.failure or before
            self._recovery = None  # first: whoever waits for the outcome may ask something at once
            outcome.set_result(None) if problem is None else outcome.set_exception(problem)

        with contextlib.suppress(*([ReconstructionError] if failed else [])):
            self.alive()
        with self.lock:
            if self._recovery is not None:
                raise ReconstructionError("It is being opened again just now; wait until it is, and try again.")
            before, self.failure = self.failure, None
            self._recovery = threading.Thread(target=do, name="ptynb recovery", daemon=True)
            self._recovery.start()
        outcome.result()

    def ask(self) -> Status:
        """Rank 0's status, from inside such work. Raises ReconstructionError where an engine failed."""
        status: Status = self.engines.call(0, "status", 10**9, timeout=MOST_SILENCE)
        if status.failure is not None or (why := self.engines.lost()):
            raise ReconstructionError(status.failure.message if status.failure is not None else why)
        return status

    def open_from(
        self, opening: Opening, start: Path, state: ReconstructionState, note: ChangeNote | None, instead_of: str = ""
    ) -> None:
        """Opens engines in the place of closed ones, from this state; once they have read it, they are taken up.

        instead_of: how those before ended, if they failed or one was lost; fresh ones come in the place of lost ones.
        Raises what kept them from it.
        """
        self.opening, self._line = opening, str(start.parent)
        if instead_of:
            engines = self.engines.again(opening, start, instead_of, note)
        else:
            engines = self.engines.anew(opening, start, note)
        try:
            while (status := engines.call(0, "status", 10**9, timeout=MOST_SILENCE)).state == "loading":
                time.sleep(0.01)
                if why := engines.lost():
                    raise EngineLostError(why)
            if status.failure is not None:
                raise ReconstructionError(find_cause(engines, None).text)
        except Exception:
            with contextlib.suppress(ClusterError, TimeoutError):
                engines.abandon() if engines.lost() else engines.close()
            raise
        self._take_up(engines, state)

    def settings_are(self, settings: Settings) -> None:
        """From now on it is opened again with these."""
        self.opening = replace(self.opening, settings=settings)
