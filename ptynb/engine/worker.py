"""The worker: trains in a thread of the engine's process and answers the kernel meanwhile.

The thread is the only one that touches tensors or speaks to other ranks. It turns in one circle:

    agree on rank 0's newest command  ->  an update, if running  ->  obey  ->  answer questions of this engine

The agreement is under way during the update, so it costs next to nothing, and since all ranks learn the same number
after the same update, they act on a command before the same next one. Paused or idle, the circle turns every
`IDLE_SECONDS`, so no collective waits longer than that and a dead rank is noticed without training.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import pickle
import queue
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Literal

import torch
import torch.distributed as dist

from ptynb.compiled.threads import count
from ptynb.engine.group import Group, Membership, join
from ptynb.engine.loop import Loop
from ptynb.engine.pictures import make_pictures, make_snapshot
from ptynb.geometry import lit_area
from ptynb.scan import Scan
from ptynb.settings import Settings
from ptynb.snapshot import Array, Failure, Kept, PictureRequest, Pictures, Snapshot, Status

IDLE_SECONDS = 0.02

State = Literal["loading", "ready", "running", "paused", "failed", "closed"]


@dataclasses.dataclass(frozen=True)
class Command:
    """What all ranks are to do before their next update.

    start: train `value` more epochs. pause, resume, stop. settings: take over `value`, as plain values.
    evaluate: keep a result. close: leave the group and end.
    """

    kind: Literal["start", "pause", "resume", "stop", "settings", "evaluate", "close"]
    value: Any = None


class Worker:
    """One engine's part in one reconstruction."""

    def __init__(self, scan: Scan, settings: Settings, membership: Membership, extensions: Sequence[Any] = ()) -> None:
        """Starts the thread; joining the group and reading the patterns go on there."""
        self._settings, self._membership = settings, membership
        self._state: State = "loading"
        self._failure: Failure | None = None
        self._target = 0
        self._loop: Loop | None = None
        self._commands: list[Command] = []
        self._applied = 0
        self._questions: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._kept: Kept | None = None
        self._area = (slice(None), slice(None))
        self._threads = count()
        self._thread = threading.Thread(target=self._run, args=(scan, extensions), name="ptynb training", daemon=True)
        self._thread.start()

    # What the kernel calls

    def command(self, command: Command) -> int:
        """Takes a command (on rank 0 only) and returns its number; `Status.applied` tells when all have obeyed."""
        assert self._membership.rank == 0, "commands go to rank 0, which tells the others"
        self._commands.append(command)
        self._wake.set()
        return len(self._commands)

    def status(self, epochs_from: int = 0) -> Status:
        """Where this engine stands, with the records of epochs after the first `epochs_from`. Never waits."""
        loop, membership = self._loop, self._membership
        return Status(
            rank=membership.rank,
            world=membership.world,
            state=self._state,
            epoch=loop.epoch if loop else 0,
            update=loop.update if loop else 0,
            updates_per_epoch=loop.updates if loop else 0,
            target=self._target,
            device=membership.identity,
            backend=membership.backend,
            threads=self._threads,
            rates=loop.algorithm.rates() if loop else {},
            applied=self._applied,
            epochs=tuple(loop.epochs[epochs_from:]) if loop else (),
            changes=tuple(loop.changes) if loop else (),
            failure=self._failure,
            frames=loop.shard.place if loop else "",
        )

    def snapshot(self, size: int) -> Snapshot | None:
        """A preview, taken between two updates; None while still loading."""
        taken = self._arrays()
        if taken is None:
            return None
        arrays, epoch, update = taken
        return make_snapshot(arrays["object"], arrays["probe"], epoch, update, size)

    def pictures(self, request: PictureRequest) -> Pictures | None:
        """Pictures, taken between two updates; None while still loading."""
        taken = self._arrays()
        if taken is None:
            return None
        arrays, epoch, update = taken
        return make_pictures(arrays["object"], arrays["probe"], self._area, epoch, update, request)

    def result(self) -> Kept | None:
        """The state that the last `evaluate` kept, on rank 0; after a failure the state as it is, on any rank."""
        loop = self._loop
        if self._state == "failed" and loop is not None:
            kept: Kept = self._ask(lambda: _keep(loop, float("nan")))
            return kept
        return self._kept

    def close(self) -> None:
        """Ends the thread, on all ranks: rank 0 tells the others; waits until this one's has ended."""
        if self._membership.rank == 0:
            self.command(Command("close"))
        self._thread.join(timeout=self._membership.timeout)
        if self._thread.is_alive():
            raise TimeoutError(
                f"Rank {self._membership.rank} did not end within {self._membership.timeout:g} s "
                f"(it is {self._state}); stop the cluster and start a new one."
            )

    # What the thread does

    def _run(self, scan: Scan, extensions: Sequence[Any]) -> None:
        group: Group | None = None
        try:
            # When a thread first asks, torch gives it the number of that moment, which another one at work may have
            # lowered for itself: this one asks before it sets its own.
            torch.get_num_threads()
            torch.set_num_threads(self._threads)
            self._threads = torch.get_num_threads()
            group = join(self._membership)
            self._loop = Loop(scan, self._settings, group, extensions)
            self._area = lit_area(scan.positions - self._loop.frame.origin, scan.window)
            del scan  # its patterns are in the loop now, the way that wants them
            self._state = "ready"
            while self._turn(group, self._loop):
                pass
        except Exception as error:  # noqa: BLE001 - whatever it is, the user is to see it with this rank's number
            self._failure = Failure(
                self._membership.rank,
                f"{type(error).__name__}: {error}",
                traceback.format_exc(),
                _lost_group(error),
            )
            self._state = "failed"
            # The frames of the traceback hold the distributed module, and with it the group's connections.
            error.__traceback__ = None
            del error
        finally:
            if self._loop is not None:
                self._loop.disconnect()
            gc.collect()
            if group is not None:
                with contextlib.suppress(RuntimeError):
                    group.close()
            self._answer()

    def _turn(self, group: Group, loop: Loop) -> bool:
        """Once around the circle; False when told to close."""
        agreed = group.agree(len(self._commands))
        if self._state == "running":
            loop.step()
        else:
            loop.hold()
        self._obey(agreed(), group, loop)
        if self._state == "running" and loop.epoch >= self._target:
            self._state = "ready"
        self._answer()
        if self._state not in ("running", "closed") and group.rank == 0:
            self._wake.wait(IDLE_SECONDS)
            self._wake.clear()
        return self._state != "closed"

    def _obey(self, newest: int, group: Group, loop: Loop) -> None:
        if newest == self._applied:
            return
        loop.settle()
        for command in group.tell([dataclasses.asdict(command) for command in self._commands[self._applied : newest]]):
            self._act(Command(**command), loop)
        self._applied = newest

    def _act(self, command: Command, loop: Loop) -> None:
        match command.kind:
            case "start":
                self._target = loop.epoch + command.value
                self._state = "running"
            case "pause" if self._state == "running":
                self._state = "paused"
            case "resume" if self._state == "paused":
                self._state = "running"
            case "stop":
                self._target = loop.epoch
                self._state = "ready"
            case "settings":
                loop.change(Settings(**command.value))
            case "evaluate":
                r_factor = loop.r_factor()
                if self._membership.rank == 0:
                    self._kept = _keep(loop, r_factor)
                loop.hold()
            case "close":
                self._state = "closed"

    # Questions of the kernel that need tensors: asked by the process's main thread, answered between two updates

    def _arrays(self) -> tuple[dict[str, Array], int, int] | None:
        loop = self._loop
        if loop is None:
            return None
        return self._ask(lambda: (_for_looking(loop), loop.epoch, loop.update))

    def _ask(self, question: Callable[[], Any]) -> Any:
        answer: Future[Any] = Future()
        self._questions.put((question, answer))
        self._wake.set()
        while True:
            if not self._thread.is_alive():
                self._answer()
            with contextlib.suppress(TimeoutError):
                return answer.result(timeout=0.5)

    def _answer(self) -> None:
        while True:
            try:
                question, answer = self._questions.get_nowait()
            except queue.Empty:
                return
            try:
                answer.set_result(question())
            except Exception as error:  # noqa: BLE001 - goes to whoever asked
                answer.set_exception(error)


def _for_looking(loop: Loop) -> dict[str, Array]:
    return {"object": loop.projection().numpy(), "probe": loop.arrays()["probe"].numpy()}


def _keep(loop: Loop, r_factor: float) -> Kept:
    settings = loop.settings.model_dump(mode="json")
    arrays = {name: tensor.numpy() for name, tensor in loop.arrays().items()}
    optimised = {name: tensor.numpy() for name, tensor in loop.optimised().items()}
    return Kept(
        **arrays,
        positions=optimised.pop("positions"),
        optimised=optimised,
        origin=loop.frame.origin,
        r_factor=r_factor,
        epochs=(*loop.epochs,),
        changes=(*loop.changes,),
        settings=settings,
        frames=loop.shard.place,
    )


def _lost_group(error: Exception) -> bool:
    """Whether the error only says that another rank went away."""
    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError) and any(word in str(error) for word in ("gloo", "Connection closed", "NCCL"))
    )


# An engine's process holds the worker of the reconstruction that is open on it, under that one's name.

_workers: dict[str, Worker] = {}


def open_worker(name: str, scan: Scan, settings: Settings, extensions: bytes, membership: Membership) -> None:
    """Makes the worker of the reconstruction `name` in this process; one that nobody closed makes way for it.

    extensions: pieces and constraints of the user's, by value (cloudpickle), from the kernel over its signed messages.
    """
    for forgotten in [*_workers]:
        close_worker(forgotten)
    _workers[name] = Worker(scan, settings, membership, pickle.loads(extensions))


def open_names() -> list[str]:
    """The reconstructions that are open on this engine."""
    return [*_workers]


def call_worker(name: str, method: str, *arguments: Any) -> Any:
    """Calls a method of the worker of the reconstruction `name`."""
    return getattr(_workers[name], method)(*arguments)


def close_worker(name: str) -> None:
    """Ends the worker and frees its memory. To be called on all ranks at the same time."""
    worker = _workers.pop(name, None)
    if worker is not None:
        worker.close()


def describe() -> dict[str, Any]:
    """What this engine process is: for the cluster's status and the doctor."""
    cuda = torch.cuda.is_available()
    return {
        "pid": os.getpid(),
        "rank": int(os.environ.get("PTYNB_RANK", "0")),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(0) if cuda else "CPU",
    }
