"""The worker: trains in a thread of the engine's process and answers the kernel meanwhile.

Only this thread uses tensors and communicates with other ranks. Each turn of its loop:

    agree on rank 0's newest command  ->  an update, if running  ->  apply commands  ->  answer requests to this engine

The agreement is under way during the update, so it costs next to nothing, and since all ranks learn the same number
after the same update, they apply a command before the same next one. While paused or idle a turn begins every
`IDLE_SECONDS`, or with a command or a request, so a dead rank is noticed without training.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import itertools
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Literal, NoReturn

import torch
import torch.distributed as dist

from ptynb.data import images
from ptynb.data.admissions import Admission, RecordedArrivals
from ptynb.data.commands import (
    AdmitPatterns,
    AdvanceRun,
    Annotate,
    ChangeSettings,
    CheckpointRequest,
    CloseRun,
    Command,
    LeaveRun,
    MakeResult,
    MeasureEvery,
    ReduceObject,
    RunCommand,
    SetTarget,
    command_of,
    plain_command,
)
from ptynb.data.engine_records import (
    Failure,
    Health,
    Pictures,
    RenderRequest,
    Result,
    Status,
)
from ptynb.data.record import Annotation, RunRecord
from ptynb.data.scan import Scan
from ptynb.distributed.group import Group, Membership, is_echo, join
from ptynb.distributed.sockets import Connections
from ptynb.engine import checkpoint_loading, diagnostics, precompilation, stages
from ptynb.engine.checkpoint_writer import CheckpointWriter, Progress
from ptynb.engine.gpu import loses_gpu, memory_advice
from ptynb.engine.loop import Loop
from ptynb.engine.rendering import WATCHED_SIZE, Taken, check_reduction, summed, take_reduced
from ptynb.engine.run_progress import RunTarget
from ptynb.engine.state_reader import StateReader, edges_of, object_and_probe, present_result
from ptynb.engine.status_publisher import Deliver, StatusPublisher
from ptynb.exceptions import FileError, InvalidValueError, PtynbError, ReconstructionError, ScanError, SettingsError
from ptynb.io.checkpoint_file import ReconstructionState
from ptynb.kernels.runtime.thread_count import count
from ptynb.loading.arrival_watch import ScanArrivals, missing_at_end
from ptynb.loading.device_memory import release_unused
from ptynb.physics.triton_dispatch import found_problems
from ptynb.process_state import ProcessState, switch_interval
from ptynb.settings import Checkpointing, Settings
from ptynb.settings.recipe import WITHOUT_STAGES, StagePlan
from ptynb.supervised_thread import SupervisedThread, problems

IDLE_SECONDS = 2.0
"""Longest time between idle turns of rank 0, of which there are at least four within the group's timeout [s]."""
ARRIVAL_SECONDS = 0.05
"""How often rank 0 looks for patterns of a scan that is being measured, while no update is made."""
SWITCH_SECONDS = 0.0001
"""How long the training thread waits for the interpreter's lock while another thread of the process is in Python.

With Python's own 5 ms each picture for a screen cost an update 7 ms more, most of them spent in waiting.
"""
QUICK_SWITCHING = ProcessState(lambda: switch_interval(SWITCH_SECONDS))
LATEST_R_FACTORS = 100
"""Number of the newest R-factors in every status, besides those of the epochs that are requested."""
TELLING_SECONDS = 1.0
"""How long a failure is not told because a checkpoint is being written."""
WRITING_SECONDS = 120.0
"""How long an engine that ends waits for a checkpoint that is being written."""

REDUCED = ReduceObject(0, None, (), 1)
"""Stands for the commands of this kind that were applied."""
GPU_LOST = "This process cannot use its GPU after such an error; it ends, so that another engine can take its place."
RESTART = (
    "\nThis process cannot use its GPU after such an error: restart it (in a notebook: the kernel), and resume(...) "
    "from the latest checkpoint. With a Cluster only an engine would have ended."
)
"""Advice where the worker is in the user's own process."""

State = Literal["loading", "ready", "running", "paused", "failed", "closed"]


class Worker(StateReader):
    """One engine's part in one reconstruction."""

    def __init__(
        self,
        scan: Scan,
        settings: Settings,
        membership: Membership,
        extensions: Sequence[Any] = (),
        checkpointing: Checkpointing | None = None,
        start: Path | None = None,
        note: tuple[str, str, str] | None = None,
        plan: StagePlan = WITHOUT_STAGES,
        end_process: Callable[[str], NoReturn] | None = None,
    ) -> None:
        """Start the thread, which joins the group and reads the patterns.

        checkpointing: None: no checkpoints. start: checkpoint to continue from, a file that rank 0 can read (all ranks,
        with DM, RAAR or an object in tiles); one of another scan or with other fixed settings is a failure.
        note: (name, old, new) of an entry in `changes`, such as that an engine was lost. plan: the stages of the run,
        and the one that `settings` belong to; if it has none, those of the checkpoint continue.
        end_process: called with a message after an error that makes the GPU unusable for this process. None: the
        process is not an engine's and stays.

        Raises ValueError where the folder has checkpoints of another reconstruction, or `transfer` cannot be imported.
        """
        super().__init__(torch.device(membership.device))
        precompilation.start(self._device)
        self._first_settings, self._membership, self._start = settings, membership, start
        self._note, self._plan, self._extensions = note, plan, tuple(extensions)
        self._end_process = end_process
        self._readable = True
        """Whether the present state can be read after a failure."""
        self._source: Scan | None = scan
        """The scan, until its patterns are in the loop, and as long as a stage follows, which needs them again."""
        self._between: RunRecord | None = None
        """The record while there is no loop: between two stages, and at the end."""
        self._notices: tuple[str, ...] = ()
        """Messages for the user, besides those about checkpoints; each once."""
        self._verdict: tuple[str, ...] = ()
        """A notice if the run that has ended did not converge, until another begins; on rank 0."""
        self._arrivals: ScanArrivals | None = None
        self._waiting: list[Command] = []
        """Commands to execute once the first patterns have come."""
        self._connections: Connections | None = None
        self._abandoned = False
        self._writer = (
            None
            if checkpointing is None
            else CheckpointWriter(checkpointing, membership.rank, membership.world, scan.name, start, self._changed)
        )
        self._initial_progress: Progress = (0, 0, 0)
        self._annotation_changes = 0
        self._initial_settings: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._scan = scan.name
        self._publisher: StatusPublisher | None = None
        self._ended = False
        self._numbers = itertools.count(1)
        self._phase: Literal["loading", "open", "failed", "closed"] = "loading"
        self._failure: Failure | None = None
        self._target = RunTarget()
        self._commands: list[Command] = []
        self._applied = 0
        self._uncounted = self._uncounted_applied = 0
        """Numbers of `ReduceObject` among the commands, which change nothing and have no number for others."""
        self._result: Result | FileError | None = None
        self._area = (slice(None), slice(None))
        self._measure_every = 0
        self._threads = count()
        self._vitals = diagnostics.Vitals(membership.device, self._threads)
        self._thread = SupervisedThread("ptynb training", self._run)
        self._thread.start()

    # Called by the kernel

    def command(self, command: Command) -> int:
        """Queue a command (on rank 0 only) and return its number, which `Status.applied` reaches on all ranks."""
        assert self._membership.rank == 0, "commands go to rank 0, which broadcasts them"
        training = threading.current_thread() is self._thread
        with self._lock:
            if isinstance(command, CheckpointRequest):
                if self._writer is None:
                    raise InvalidValueError(
                        "This reconstruction writes no checkpoints; make it with checkpointing=Checkpointing(...).",
                        code="checkpoint.disabled",
                    )
                command = self._writer.order(look=not training)
            self._commands.append(command)
            self._wake.set()
            return len(self._commands) - self._uncounted

    def _reduce(self, wanted: ReduceObject) -> Future[Taken]:
        """Let all ranks reduce the object before the same update; return what rank 0 will have of it."""
        answer: Future[Taken] = Future()
        with self._lock:
            self._reductions.append(answer)
            self._commands.append(wanted)
            self._uncounted += 1
            self._wake.set()
        return answer

    def follow(self, deliver: Deliver, epochs_from: int = 0) -> None:
        """Call `deliver` with the status now and after each change, until the worker has ended, from another thread.

        Other ranks than 0, whose states are the same, deliver a failure only. epochs_from: as for `status`, of the
        first one. Replaces the function of an earlier call.
        """
        others = self._membership.rank > 0
        before, self._publisher = self._publisher, StatusPublisher(self.status, deliver, epochs_from, others)
        self._publisher.changed()  # what changed between its first look and this assignment
        if before is not None:
            before.end()
        if self._ended:
            self._publisher.end()

    def _changed(self, now: bool = False) -> None:
        """Let the status be delivered. now: before the next step of this thread, as somebody may wait for it."""
        publisher = self._publisher
        if publisher is not None:
            publisher.now() if now else publisher.changed()

    @property
    def _state(self) -> State:
        return self._target.state if self._phase == "open" else self._phase

    def _enter(self, phase: Literal["loading", "open", "failed", "closed"]) -> None:
        self._phase = phase
        if phase != "failed":  # see `_tell_failure`
            self._changed()

    def status(self, epochs_from: int = 0) -> Status:
        """Return the status of this engine, with the records of epochs after the first `epochs_from`. Never waits.

        R-factors: those of these epochs, at least the latest ones.
        """
        number = next(self._numbers)  # first: a status with a larger one has nothing older
        membership, writer, loop = self._membership, self._writer, self._loop
        between = None if loop is not None else self._between
        if loop is None and between is None:
            loop = self._loop  # that of the next stage, if it was made since the first look
        record = loop or between
        # Read before the state: if a command is applied between the two, "ready" must not be taken for its end.
        applied = self._applied - self._uncounted_applied
        return Status(
            number=number,
            rank=membership.rank,
            world=membership.world,
            state=self._state,
            epoch=len(record.epochs) if record else 0,
            update=record.update if record else 0,
            updates_per_epoch=loop.updates if loop else 0,
            target=self._target.epoch,
            device=membership.identity,
            backend=membership.backend,
            threads=self._threads,
            rates=loop.algorithm.rates() if loop else {},
            applied=applied,
            epochs=tuple(record.epochs[epochs_from:]) if record else (),
            changes=tuple(record.changes) if record else (),
            stages=loop.plan.plain if loop else between.stages if between else self._plan.plain,
            stage=loop.plan.number if loop else between.stage if between else self._plan.number,
            failure=self._failure,
            frames=loop.shard.place if loop else "",
            checkpoint=writer.checkpoint if writer else None,
            checkpoint_epoch=writer.checkpoint_epoch if writer else None,
            checkpoint_folder=writer.checkpoint_folder if writer else None,
            notices=(*self._notices, *self._verdict, *(writer.notices if writer else ()), *problems()),
            checkpoint_counts=(writer.successes, writer.failures) if writer else (0, 0),
            checkpoint_failure=writer.failure if writer else "",
            writes_checkpoint=writer is not None and writer.busy("state"),
            r_factors=_r_factors_since(record.r_factors, epochs_from) if record else (),
            arrivals=None if self._arrivals is None else self._arrivals.summary(),
            live_epochs=loop.live_epochs if loop else 0,
        )

    @property
    def settings(self) -> Settings:
        """The present settings, with all changes."""
        return Settings(**self.stage_settings()[1])

    def stage_settings(self) -> tuple[int, dict[str, Any]]:
        """Return the index of the present stage, and the present settings as plain values."""
        loop, between = self._loop, self._between
        if loop is not None:
            return loop.plan.number, loop.settings.model_dump(mode="json")
        if between is not None:
            return between.stage, between.settings
        return self._plan.number, self._first_settings.model_dump(mode="json")

    def why_not_live(self, values: dict[str, Any]) -> str:
        """Return why these live settings (plain values) require another model; empty if not, and while loading."""
        loop = self._loop
        return "" if loop is None else loop.why_not_live(loop.settings.replace(**values))

    def active(self) -> dict[str, bool]:
        """Return whether each component of the model has been active; empty while loading."""
        return {} if self._loop is None else {name: piece.active for name, piece in self._loop.model.components.items()}

    def look(self, request: RenderRequest, epochs_from: int = 0) -> tuple[Pictures | None, Status]:
        """Return `pictures` and then `status`, in one call."""
        return self.pictures(request), self.status(epochs_from)

    def measured(self) -> tuple[int, list[tuple[int, float]]]:
        """Return the number of epochs between measurements of the R-factor, and all R-factors measured so far."""
        return self._measure_every, [*self._loop.r_factors] if self._loop else []

    def annotation(self) -> Annotation:
        """Return the user's title and comments."""
        return Annotation() if self._loop is None else self._loop.annotation

    def health(self) -> Health:
        """Return speed, memory, load and temperature of this engine. Never waits for the training thread."""
        return diagnostics.health(
            self._membership.rank, self._membership.identity, self._state, self._loop, self._vitals
        )

    def result(self) -> Result | FileError | None:
        """Return the result of the last `MakeResult`, on rank 0; after a failure the present state, on any rank.

        Or why its object could not be written; None after a failure with the object in tiles.
        """
        loop = self._loop
        if self._state == "failed" and self._first_settings.object.layout == "tiles":
            return None  # no engine has the whole object
        if self._state == "failed" and loop is not None and self._readable:
            data: Result = self._call_in_thread(lambda: present_result(loop, float("nan"), None))
            return data
        return self._result

    def close(self) -> None:
        """End the thread on all ranks (rank 0 broadcasts the command), and wait until this one has ended."""
        if self._membership.rank == 0:
            self.command(CloseRun())
        self._thread.join(timeout=self._membership.timeout)
        if self._thread.is_alive() and self._state in ("closed", "failed"):
            self._thread.join(timeout=WRITING_SECONDS)
        if self._thread.is_alive():
            raise TimeoutError(
                f"Rank {self._membership.rank} did not end within {self._membership.timeout:g} s "
                f"(its state is {self._state}); stop the cluster and start a new one."
            )
        if self._publisher is not None:
            self._publisher.join(TELLING_SECONDS)

    def release(self) -> None:
        """Free the model and the patterns of a worker that was closed; its record remains.

        Otherwise the engine that is opened next, from a checkpoint, would find the memory of this one taken.
        """
        loop = self._loop
        if loop is not None:
            self._between = loop.record()
            self._loop = None
            del loop
        release_unused()

    def abandon(self, seconds: float) -> None:
        """End the thread of this rank alone, which may wait for a lost rank. Raises TimeoutError."""
        self._abandoned = True  # first: the thread checks it once it has made its connections
        if self._connections is not None:
            self._connections.abort()
        self._thread.join(seconds)
        if self._thread.is_alive():
            raise TimeoutError(f"Rank {self._membership.rank} does not end; it is {self._state}.")

    def leave(self, seconds: float) -> None:
        """Write a checkpoint and end the thread, on all ranks; for a process about to end. Waits `seconds` at most."""
        if self._membership.rank == 0:
            self.command(LeaveRun())
        self._thread.join(seconds)

    # The thread

    def _run(self) -> None:
        group: Group | None = None
        scan = self._source
        assert scan is not None, "no loop has its patterns yet"
        try:
            # On its first request a thread gets torch's number of that moment, which another thread may have lowered
            # for itself: this thread requests it before it sets its own.
            torch.get_num_threads()
            torch.set_num_threads(self._threads)
            self._threads = torch.get_num_threads()
            start = checkpoint_loading.read_start(self._start, self._membership.rank)
            if self._membership.world > 1:
                self._connections = Connections()
                if self._abandoned:
                    self._connections.abort()
            group = join(self._membership, self._connections)
            state = checkpoint_loading.shared(start, group)
            del start
            if state is not None and (scan.acquisition is None) != (state.admissions is None):
                raise InvalidValueError(
                    "The checkpoint is of a scan that was measured during the run, and this one was not, or the other "
                    "way round; resume(path, scan) with the scan of the run, or without a scan.",
                    code="checkpoint.other-scan",
                )
            arrivals = ScanArrivals(scan, None if state is None else state.admissions, self._first_settings, group.rank)
            self._arrivals = arrivals
            self._changed()
            first = None if state is not None else self._first_patterns(scan, group, arrivals)
            if self._state != "closed":
                self._loop = self._begin(scan, group, state, first)
                del state
                if self._note is not None:
                    self._loop.note(*self._note)
                self._area = self._loop.area
                if self._writer is not None:
                    self._writer.begin(self._initial_progress, self._start, self._initial_settings)
                self._source = scan if self._loop.plan.end is not None else None
                del scan  # its patterns are in the loop now
                if self._target.span is not None:
                    self._begin_run(self._loop)
                for command in self._waiting:
                    self._execute(command, group, self._loop)
                self._enter("open")
                while self._turn(group, self._loop, arrivals):
                    self._begin_stages(group)
                self._update_status_file(self._loop, look=True)
        except BaseException as error:  # noqa: BLE001 - any error is shown to the user with this rank's number
            loses = loses_gpu(error, self._device)
            ends = loses and self._end_process is not None
            advice = RESTART if loses and not ends else memory_advice(error)
            self._failure = Failure(
                self._membership.rank,
                f"{type(error).__name__}: {error}{advice}",
                traceback.format_exc(),
                not loses and _lost_group(error),
                _code(error),
                ends,
                error.fields if isinstance(error, PtynbError) else (),
            )
            # After an abort of NCCL the last sums, and what was computed from them, are not valid.
            self._readable = not loses and not (self._failure.lost_group and self._membership.backend == "nccl")
            self._enter("failed")
            self._tell_failure()
            if ends:
                self._end(self._failure)
            # The frames of the traceback hold the distributed module, and with it the group's connections.
            error.__traceback__ = None
            del error
        finally:
            if self._loop is not None:
                self._loop.disconnect()
            if group is not None:
                with contextlib.suppress(RuntimeError):
                    group.close()
            self._answer_requests()
            # Also of the last update, whose arrays may have filled the memory; last, as no other thread runs meanwhile.
            release_unused()
            # The group is closed by now, so no rank waits for a slow disk.
            if self._writer is not None:
                if self._state == "failed" and self._loop is not None:
                    self._update_status_file(self._loop, look=False)
                self._writer.close(self._answer_requests, WRITING_SECONDS)
                self._answer_requests()
            self._ended = True
            if self._publisher is not None:
                self._publisher.end()

    def _tell_failure(self) -> None:
        """Deliver the failure once the checkpoints under way are written, which an offer to recover names."""
        if self._writer is not None:
            self._writer.close(self._answer_requests, TELLING_SECONDS)
        self._changed(now=True)

    def _end(self, failure: Failure) -> None:
        """End this process, whose GPU is lost, once its last checkpoint is written; the others notice at once.

        Nothing else is cleaned up: to free what is on the GPU would raise the same error, outside of Python.
        """
        if self._connections is not None:
            self._connections.close()
        if self._writer is not None:
            self._writer.close(self._answer_requests, WRITING_SECONDS)
        if self._end_process is not None:
            first = failure.message.splitlines()[0]  # the last lines of a log are shown, and torch's are hints
            self._end_process(f"{failure.traceback.rstrip()}\nRank {failure.rank}: {first}\n{GPU_LOST}")

    def _begin(
        self,
        scan: Scan,
        group: Group,
        state: ReconstructionState | None,
        first: Admission | None,
    ) -> Loop:
        if state is None or self._start is None:
            return Loop(scan, self._first_settings, group, self._extensions, self._plan, first)
        plan, settings = checkpoint_loading.plan_and_settings(state, self._plan, self._first_settings)
        begun = checkpoint_loading.settings_to_begin_with(state, settings)
        first = None if state.admissions is None else state.admissions.all()[0]
        loop = Loop(scan, begun, group, self._extensions, plan, first, find_probe=False)
        held = None if loop.tile is None else loop.tile.held
        state = checkpoint_loading.with_object(state, held, group, self._start)
        loop.restore(checkpoint_loading.with_rows(state, self._start, loop.shard.patterns), settings)
        self._target.epoch = state.target
        self._initial_progress, self._initial_settings = (state.epoch, state.update, len(state.changes)), state.settings
        return loop

    def _begin_stages(self, group: Group) -> None:
        """Begin the next stage if it is due, before the next update; on all ranks at the same time."""
        while (loop := self._loop) is not None and (end := loop.plan.end) is not None and loop.scheduled > end:
            if self._state != "running":
                return
            plan, scan = loop.plan.following, self._source
            assert scan is not None, "it is kept as long as a stage follows"
            if not stages.change_in_place(loop, plan):
                found = stages.state_of_next(loop, plan, scan, self._target.epoch)
                self._answer_requests()
                self._between = loop.record()
                self._enter("loading")
                self._loop = None
                previous = stages.PreviousStage.of(loop)
                loop.disconnect()
                del loop
                release_unused()
                state = checkpoint_loading.shared(found, group)
                assert state is not None, "rank 0 has it"
                del found
                self._loop = stages.loop_of_next(state, previous, plan, scan, group, self._extensions)
                del state
                self._area = self._loop.area
                self._between = None
                self._enter("open")
            self._source = scan if plan.end is not None else None
            del scan

    def _turn(self, group: Group, loop: Loop, arrivals: ScanArrivals) -> bool:
        """Perform one turn of the loop, and wait if there is nothing to do; return False after the command to close."""
        with QUICK_SWITCHING if self._state == "running" else contextlib.nullcontext():
            self._work(group, loop, arrivals)
        if self._state not in ("running", "closed") and group.rank == 0:
            self._wake.wait(ARRIVAL_SECONDS if arrivals.expected else min(IDLE_SECONDS, self._membership.timeout / 4))
            self._wake.clear()
        return self._state != "closed"

    def _work(self, group: Group, loop: Loop, arrivals: ScanArrivals) -> None:
        if self._writer is not None and group.rank == 0:
            self._checkpoint_if_due(loop, self._writer)
        self._order_admission(arrivals.come())
        agreed = group.agree(len(self._commands))
        idle = self._state != "running"
        if self._state == "running":
            for admission in arrivals.repeated(loop.updates_done):
                loop.admit(admission)  # without a notice: the earlier run gave it
            self._step(loop, arrivals)
            if loop.update == 0:
                self._changed()
            self._notify(*found_problems(), *loop.algorithm.notices)
            if loop.update == 0 and self._measure_every and loop.epoch % self._measure_every == 0:
                self._measure(loop)
            if loop.update == 0 and self._target.reach is None and loop.stop_if_done(self._target.last):
                self._target.epoch = loop.epoch
        else:
            loop.hold()
        # The others wait here until rank 0, which gets the commands, begins its turn.
        self._apply(agreed(self._wake, self._answer_requests) if idle and group.rank else agreed(), group, loop)
        if self._state == "running" and self._target.reached(loop.epoch, loop.update):
            # Neither stopped nor an epoch of a longer run; all ranks have a part in the picture of an object in tiles.
            if (group.rank == 0 or loop.tile is not None) and loop.epoch == self._target.last:
                self._verdict = tuple(filter(None, [loop.not_converged()]))
            self._target.end(loop.epoch)
            self._changed(now=True)
            self._update_status_file(loop, look=True)
        self._answer_requests()

    def _step(self, loop: Loop, arrivals: ScanArrivals) -> None:
        """Perform an update; epochs of a scan that is still being measured are added to those of the run."""
        before = loop.live_epochs
        loop.step()
        if self._target.from_end and arrivals.will_end and loop.live_epochs != before:
            self._target.epoch, self._target.last = self._target.epoch + 1, self._target.last + 1

    def _begin_run(self, loop: Loop) -> None:
        """Begin the run of the target, or continue it to another end."""
        assert self._target.span is not None, "a command has begun it"
        before, last = self._target.span
        loop.begin_run(last, before)
        self._notify(*loop.notices)
        self._verdict = ()

    def _shared(self, newest: int, group: Group) -> list[Command]:
        """Return the commands up to this number that were not applied yet, which rank 0 has, on all ranks."""
        if newest == self._applied:
            return []
        plain = group.broadcast_object([plain_command(one) for one in self._commands[self._applied : newest]])
        return [command_of(one) for one in plain]

    def _apply(self, newest: int, group: Group, loop: Loop) -> None:
        if newest == self._applied:
            return
        commands = self._shared(newest, group)
        for command in commands:
            self._execute(command, group, loop)
        self._forget_applied(newest)
        self._uncounted_applied += sum(isinstance(command, ReduceObject) for command in commands)
        self._applied = newest
        # Who runs epoch by epoch waits for the end of the epoch.
        self._changed(now=not all(isinstance(command, AdvanceRun | ReduceObject) for command in commands))

    def _forget_applied(self, newest: int) -> None:
        """Forget the patterns and areas in commands that were applied, on rank 0, which keeps all commands."""
        for number in range(self._applied, min(newest, len(self._commands))):
            if isinstance(self._commands[number], AdmitPatterns):
                self._commands[number] = AdmitPatterns(None)
            elif isinstance(self._commands[number], ReduceObject):
                self._commands[number] = REDUCED

    def _execute(self, command: Command, group: Group, loop: Loop) -> None:
        match command:
            case ChangeSettings(values):
                self._change(loop, values)
            case MakeResult(file):
                self._result, r_factors = None, self._measure(loop)
                if self._membership.rank == 0 or loop.tile is not None:
                    try:
                        result: Result | FileError = present_result(loop, *r_factors, file)
                    except FileError as error:
                        result = error
                    except OSError as error:
                        result = FileError(f"The result cannot be written: {error}.", code="file.not-writable")
                    self._result = result if self._membership.rank == 0 else None
            case MeasureEvery(epochs):
                self._measure_every = epochs
            case Annotate(title, comments):
                self._annotate(loop, Annotation(title=title, comments=comments))
            case CheckpointRequest():
                self._write_checkpoint(loop, command)
            case AdmitPatterns(admission):
                assert admission is not None, "it was not applied yet"
                admitted = Admission.from_plain(admission)
                loop.admit(admitted)
                self._notify(*missing_at_end(admitted, loop.order.count))
            case ReduceObject():
                self._answer_reduction(command, group, loop)
            case LeaveRun():
                self._leave(group, loop)
            case CloseRun():
                self._enter("closed")
            case _:
                self._direct(command, loop)

    def _answer_reduction(self, wanted: ReduceObject, group: Group, loop: Loop) -> None:
        """Reduce the object with all ranks; an error of one of them goes to who asked, and the run continues."""
        own: Taken | None = None
        error: Exception | None = None
        try:
            # The object may have another structure than when it was asked for: another stage has begun.
            check_reduction(loop.model, wanted)
            own = take_reduced(loop.model, wanted, loop.epoch, loop.update)
        except Exception as raised:  # noqa: BLE001 - it goes to who asked
            error = raised
        failed = int(group.sum(torch.tensor([int(own is None)])))
        answer = self._reductions.popleft() if group.rank == 0 else None
        if own is not None and not failed:
            taken = summed(own, group.sum)
            if answer is not None:
                answer.set_result(taken)
        elif answer is not None:
            answer.set_exception(
                error or ReconstructionError("The picture failed on another engine.", code="engine.failed")
            )
        if error is not None and loses_gpu(error, self._device):
            raise error

    def _direct(self, command: RunCommand, loop: Loop) -> None:
        """Begin, suspend or end a run, or let it end elsewhere."""
        if isinstance(command, SetTarget):
            loop.note("target", self._target.epoch, command.epoch)
        if self._target.direct(command, loop.epoch, loop.live_epochs, loop.problem.run.first):
            self._begin_run(loop)
        self._changed()

    def _first_patterns(self, scan: Scan, group: Group, arrivals: ScanArrivals) -> Admission | None:
        """Return the patterns to begin with; None for an ordinary scan, or if the reconstruction is closed before.

        Waits until they have come; commands are applied meanwhile, as far as they need no patterns.
        """
        if scan.acquisition is None:
            return None
        if isinstance(scan.acquisition, RecordedArrivals):
            return scan.acquisition.admissions.all()[0]
        rehearsed = False
        while True:
            self._order_admission(arrivals.come(begun=False))
            agreed = group.agree(len(self._commands))
            newest = agreed(self._wake, self._answer_requests) if group.rank else agreed()
            for command in self._shared(newest, group):
                self._forget_applied(self._applied + 1)
                self._applied += 1
                self._changed()
                match command:
                    case AdmitPatterns(admission):
                        assert admission is not None, "it was not applied yet"
                        first = Admission.from_plain(admission)
                        if not len(first):
                            raise ScanError(f"The scan ended without a pattern: {first.ended}.", code="scan.empty")
                        self._notify(*missing_at_end(first, len(first)))
                        return first
                    case LeaveRun() | CloseRun():
                        self._enter("closed")
                        return None
                    case ChangeSettings() | MeasureEvery() | Annotate() | CheckpointRequest():
                        self._waiting.append(command)
                    case MakeResult():
                        pass  # there is nothing to measure
                    case ReduceObject():
                        raise AssertionError("an object in tiles is not reconstructed while it is measured")
                    case _:
                        self._target.direct(command, 0, 0, 0)
                        self._changed()
            self._answer_requests()
            if not rehearsed:
                precompilation.rehearse(scan, self._first_settings, group.device)
                release_unused()
                rehearsed = True
            if group.rank == 0:
                self._wake.wait(ARRIVAL_SECONDS)
                self._wake.clear()

    def _order_admission(self, admission: Admission | None) -> None:
        """Order the admission of what has come, on rank 0."""
        if admission is not None:
            self.command(AdmitPatterns(admission.plain()))

    def _notify(self, *sentences: str) -> None:
        """Add notices that are new to the status."""
        if new := tuple(sentence for sentence in sentences if sentence not in self._notices):
            self._notices += new
            self._changed()

    def _change(self, loop: Loop, values: dict[str, Any]) -> None:
        """Change settings, unless a stage has begun meanwhile with which they are not supported."""
        try:
            loop.change(loop.settings.replace(**values))
        except SettingsError as error:
            self._notify(f"A change of settings was not made: {error}")

    def _annotate(self, loop: Loop, annotation: Annotation) -> None:
        """Set the user's title and comments, for the next checkpoint; if no run is under way, write one now."""
        if annotation == loop.annotation:
            return
        loop.annotation = annotation
        self._annotation_changes += 1
        if self._writer is not None and self._writer.checkpoint is not None and self._state != "running":
            self.command(CheckpointRequest())  # set on rank 0 only

    def _measure(self, loop: Loop) -> tuple[float, tuple[float, ...] | None]:
        """Measure the R-factor, and that of each scan, on all ranks; its time is not counted in an epoch."""
        r_factor, of_scans = loop.r_factor()
        if loop.update == 0 and (not loop.r_factors or loop.r_factors[-1][0] < loop.epoch):
            loop.r_factors.append((loop.epoch, r_factor))
        loop.hold()
        return r_factor, of_scans

    # Checkpoints

    def _progress(self, loop: Loop) -> Progress:
        return loop.epoch, loop.update, len(loop.changes) + self._annotation_changes

    def _checkpoint_if_due(self, loop: Loop, writer: CheckpointWriter) -> None:
        running = self._state == "running"
        if writer.due(self._progress(loop), running and loop.update == loop.updates - 1):
            self.command(CheckpointRequest())
        if writer.pictures_due():
            self._update_status_file(loop, look=True)

    def _write_checkpoint(self, loop: Loop, request: CheckpointRequest) -> None:
        """Exchange the sums of the loss between ranks, then write each rank's part."""
        if self._writer is None:
            return
        sums, target = loop.loss_sums(), self._target.epoch
        self._writer.take(lambda: loop.state(sums, target), request, self._progress(loop))

    def _leave(self, group: Group, loop: Loop) -> None:
        request = None
        if self._writer is not None and group.rank == 0 and self._writer.changed(self._progress(loop)):
            request = dataclasses.asdict(self._writer.order())
        shared_request = group.broadcast_object(request)
        if shared_request is not None:
            self._write_checkpoint(loop, CheckpointRequest(**shared_request))
        self._enter("closed")

    def _update_status_file(self, loop: Loop, look: bool) -> None:
        """Update the status file in the checkpoint folder, with pictures if `look`."""
        if self._writer is None:
            return
        writer, status = self._writer, dataclasses.replace(self.status(), **vars(loop.annotation))
        if loop.tile is None or not look:
            writer.show(status, (lambda: object_and_probe(loop)) if look else None, self._area)
        elif loop.group.rank == 0 and self._phase != "open":
            writer.show(status, None, self._area)  # others take part in no picture any more
        elif loop.group.rank == 0:
            area = edges_of(loop.area)
            block = images.reduction_for((area[1] - area[0], area[3] - area[2]), WATCHED_SIZE)

            def show(answer: Future[Taken]) -> None:
                taken = None if answer.exception() else answer.result()
                arrays = None if taken is None else (taken.object.cpu().numpy(), taken.probe.cpu().numpy())
                writer.show(status, None if arrays is None else lambda: arrays, (slice(None), slice(None)))

            self._reduce(ReduceObject(0, None, area, block)).add_done_callback(show)


def _r_factors_since(measured: Sequence[tuple[int, float]], epoch: int) -> tuple[tuple[int, float], ...]:
    # That of the epoch itself may have been measured after its record was sent.
    since = bisect.bisect_left(measured, epoch, key=lambda one: one[0])
    return tuple(measured[max(0, min(since, len(measured) - LATEST_R_FACTORS)) :])


def _code(error: BaseException) -> str:
    if isinstance(error, FloatingPointError):
        return "reconstruction.not-finite"
    if isinstance(error, PtynbError):
        return error.code
    return "memory.insufficient" if memory_advice(error) else ""


def _lost_group(error: BaseException) -> bool:
    """Return whether the error only says that another rank has ended, or did not answer."""
    return isinstance(error, RuntimeError) and is_echo(str(error), of_group=isinstance(error, dist.DistError))
