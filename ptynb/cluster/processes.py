"""The processes of a running cluster: controller, engines, guardian; and the connection to them."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from ptynb.cluster import runtime_dir
from ptynb.cluster.controller import LOOPBACK, await_controller, client_file, listed, start_controller
from ptynb.cluster.devices import ClusterPlan, counted
from ptynb.cluster.errors import log_end, summarize
from ptynb.cluster.interrupts import held_back
from ptynb.cluster.launchers.launcher import Launcher, begin, is_alive, is_held
from ptynb.cluster.lifetime import watchdog
from ptynb.cluster.rpc import Caller
from ptynb.distributed import rendezvous
from ptynb.engine import keepalive
from ptynb.exceptions import ClusterError, ClusterStoppedError

REPLACE_SECONDS = 20.0
"""How long a fresh engine may take to come in the place of a lost one."""
RENEW_SECONDS = 10.0
"""How often engines on other machines hear that their holder lives."""
POLL_SECONDS = 0.02

Report = Callable[[str], None]
"""Told, line by line, what a launcher waits for."""


class Crew:
    """What belongs to one running cluster; from its start to its end, and never again.

    count: engines, with the ranks 0 to count - 1. address: on which the controller listens. folder: its files.
    """

    def __init__(self, folder: Path, launcher: Launcher, count: int, address: str) -> None:
        self.folder, self.launcher, self.count, self.address = folder, launcher, count, address
        self.caller: Caller | None = None
        self._controller: psutil.Process | None = None
        self._own: list[subprocess.Popen[bytes]] = []
        self._ended = threading.Event()

    @property
    def name(self) -> str:
        """Of the cluster."""
        return self.folder.name

    # From its start on

    def start(self, timeout: float, report: Report | None) -> dict[int, dict[str, Any]]:
        """Starts all of it and waits until every engine has answered; what they say of themselves, by rank.

        Raises TimeoutError, ClusterError.
        """
        until = time.monotonic() + timeout
        with held_back():  # what is started is recorded too, or nobody would end it
            controller = start_controller(self.name, self.folder, self.address)
            self._own.append(controller)
            self._controller = psutil.Process(controller.pid)
            self.record()
            self._guard()
            if self.address == LOOPBACK:
                self.launcher.start(range(self.count))  # they load what they need while the controller starts
                self.record()
        await_controller(controller, self.folder, until - time.monotonic())
        if self.address != LOOPBACK:
            with held_back():
                self.launcher.start(range(self.count))
                self.record()
        self.caller = Caller(client_file(self.folder), timeout, self.why_lost)
        found = self._await_engines(self.caller, until, timeout, report)
        self.record()
        return found

    def _await_engines(
        self, caller: Caller, until: float, timeout: float, report: Report | None
    ) -> dict[int, dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}
        news = ""
        while True:
            found |= caller.find(until - time.monotonic())
            if len(found) >= self.count:
                break
            if failure := self.launcher.failed():
                raise ClusterError(summarize(failure, logs=self.logs()))
            if dead := self.launcher.dead():
                told = f"The engine of rank {dead[0]} ended while it started.{log_end(self.logs(dead[0]))}"
                raise ClusterError(summarize(told, logs=self.logs()))
            if self.launcher.waiting():
                until = time.monotonic() + timeout
            if time.monotonic() > until:
                raise TimeoutError
            if report is not None and (told := self._news(len(found))) not in ("", news):
                news = told
                report(told)
            time.sleep(POLL_SECONDS)
        if sorted(found) != list(range(self.count)):
            raise ClusterError(
                f"Engines of ranks {sorted(found)} answered; expected 0 to {self.count - 1}. Start again."
            )
        return found

    def _news(self, there: int) -> str:
        told = self.launcher.news()
        return f"{told}; {there} of {counted(self.count, 'engine')} are there" if told and there else told

    def _guard(self) -> None:
        command = [sys.executable, watchdog.__file__, str(self.folder)]
        self._own.append(begin(command, self.name, self.folder / "log" / "guardian.log"))

    def join(self, timeout: float) -> None:
        """Connects to one that another process has started. Raises ClusterError where it does not answer."""
        described = runtime_dir.read(self.folder, "cluster.json")
        try:
            self._controller = psutil.Process(int(runtime_dir.read(self.folder, "processes.json")["others"][0][0]))
            if not is_alive(self._controller) or described["machine"] != keepalive.machine():
                raise ClusterError(f"The controller of {self.name} is gone, or on another machine.")
            self.caller = Caller(client_file(self.folder), timeout, self.why_lost)
            found = self.caller.find(timeout)
            self.launcher.join({rank: said["pid"] for rank, said in found.items()}, described)
        except (OSError, KeyError, IndexError, psutil.NoSuchProcess, TimeoutError) as error:
            raise ClusterError(f"The cluster {self.name} does not answer ({error}).") from None

    # What others may know of it

    def describe(self, plan: ClusterPlan | None) -> None:
        """Writes what it is; plan: None while that is not known."""
        content = {
            "name": self.name,
            "kind": self.launcher.kind,
            "machine": keepalive.machine(),
            "started": time.time(),
            "engines": self.count,
            "address": self.address,
            "plan": None if plan is None else plan.to_plain(),
            **self.launcher.describe(),
        }
        runtime_dir.write(self.folder, "cluster.json", content)

    def record(self) -> None:
        """For the guardian, `ptynb ps` and `ptynb stop`: every process that belongs to it."""
        launched = self.launcher.record()
        alive = self._controller is not None and is_alive(self._controller)
        others = listed(self._controller) if self._controller is not None and alive else []
        content = {"engines": launched["processes"], "others": others, "end": launched["end"]}
        runtime_dir.write(self.folder, "processes.json", content)

    def hold(self, seconds: float) -> None:
        """Tells the engines that this process holds them, with this lease; those elsewhere again and again."""
        self._renew(seconds)
        if not self.launcher.here:
            self._ended.clear()
            threading.Thread(
                target=self._go_on_renewing, args=(seconds,), name="ptynb lease renewal", daemon=True
            ).start()

    def _renew(self, seconds: float) -> None:
        ranks = self.alive()
        if ranks:
            self.call_all(ranks, keepalive.hold, [(keepalive.Holder.this(seconds),)] * len(ranks))

    def _go_on_renewing(self, seconds: float) -> None:
        while not self._ended.wait(RENEW_SECONDS):
            with contextlib.suppress(ClusterError):  # an engine that is lost is noticed by who needs it
                self._renew(seconds)

    # Its end

    def leave(self) -> None:
        """Lets go of it; it runs on without this process."""
        self._ended.set()
        if self.caller is not None:
            self.caller.close()

    def end(self) -> None:
        """Ends all of it and removes its files."""
        self._ended.set()
        caller, self.caller = self.caller, None
        if caller is not None:
            if not self.launcher.here:
                caller.shut_down()
            caller.close()
        watchdog.end_processes(self.folder)
        self.launcher.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        for process in self._own:  # the guardian leaves when the folder is gone
            process.terminate()
            process.wait()
        self._own.clear()

    @property
    def ended_from_outside(self) -> bool:
        """Whether `ptynb stop` ends it, or has ended it: its engines are keeping their state, and are to be let."""
        return (self.folder / "stopping.json").exists() or not self.folder.exists()

    # Its engines

    def call_all(
        self,
        ranks: list[int],
        function: Callable[..., Any],
        arguments: list[tuple[Any, ...]],
        timeout: float = 60.0,
    ) -> list[Any]:
        """Calls a function on several ranks at the same time, each with its own arguments."""
        caller = self.caller
        if caller is None:
            raise ClusterStoppedError("The cluster is stopped; start() it, and make a new Reconstruction.")
        return caller.call_all(ranks, function, arguments, timeout)

    def alive(self) -> list[int]:
        """Ranks whose engines can be reached."""
        return [] if self.caller is None else [rank for rank in self.caller.ranks() if not self.why_lost(rank)]

    def why_lost(self, rank: int) -> str:
        """Why the engine of this rank is known to be gone; empty while it is not."""
        if not 0 <= rank < self.count:
            return f"There is no engine of rank {rank}."
        dead = rank in self.launcher.dead()
        if self.caller is None:  # looked at last: it was stopped in order, and that is why
            return ""
        if dead:
            if self.ended_from_outside:
                return f"The engine of rank {rank} is gone: the cluster was ended by 'ptynb stop'."
            return f"The engine of rank {rank} has died: its process is gone.{log_end(self.logs(rank))}"
        if self._controller is None or not is_alive(self._controller):
            return f"The cluster's controller has died, and with it the way to rank {rank}; stop() and start() again."
        return ""

    def held(self, rank: int) -> str:
        """A sentence where a signal holds this rank's process or the controller's, so that nothing answers; or ""."""
        if self.launcher.held(rank):
            who = f"The engine of rank {rank}"
        elif self._controller is not None and is_held(self._controller):
            who = "The cluster's controller"
        else:
            return ""
        return f"{who} does not answer: its process is held by a signal (SIGSTOP) or a debugger."

    def replace_lost(self, seconds: float) -> None:
        """Starts an engine in the place of each that is lost; those that don't come in time stay lost.

        seconds: of the lease that fresh ones are held with.
        """
        lost = sorted({*range(self.count)} - {*self.alive()})
        if not lost or self.caller is None:
            return
        for rank in lost:
            self.caller.give_up(rank)
        try:
            self.launcher.start(lost)
        except ClusterError:
            return  # its machine is gone: the others go on without it
        until = time.monotonic() + REPLACE_SECONDS
        while set(lost) - set(self.alive()) and time.monotonic() < until and not self.launcher.failed():
            if set(lost) - set(self.alive()) <= set(self.launcher.dead()):
                break
            self.caller.find(REPLACE_SECONDS)
            time.sleep(POLL_SECONDS)
        self.record()
        self._renew(seconds)

    def held_bytes(self) -> int:
        """Memory of the engines' processes that no other process shares."""
        held = 0
        for pid, _ in self.launcher.record()["processes"]:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                held += psutil.Process(pid).memory_full_info().uss
        return held

    def open_store(self, rank: int) -> str:
        """Where the engines of one group will meet, rank's being the first: a file, or a store that it serves."""
        if self.address == LOOPBACK:
            return f"file://{self.folder / f'group-{secrets.token_hex(4)}'}"
        store: str = self.call_all([rank], rendezvous.open_store, [()])[0]
        return store

    def logs(self, rank: int | None = None) -> list[Path]:
        """Of all its processes, or of one engine."""
        return sorted((self.folder / "log").glob("*.log" if rank is None else f"*rank{rank}*.log"))
