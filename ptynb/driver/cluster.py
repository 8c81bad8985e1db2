"""Cluster: engine processes, one for each GPU or share of the CPU, started and ended with the notebook."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import ipyparallel
import psutil
from ipyparallel.error import EngineError, RemoteError
from jupyter_core.paths import jupyter_runtime_dir

from ptynb.driver import guardian
from ptynb.driver.devices import ClusterError, ClusterPlan, Device, counted, plan_for
from ptynb.engine import worker

NOTICE_SECONDS = 0.5
"""How soon a call that waits for an answer notices that the cluster was stopped."""


class EngineLostError(ClusterError):
    """An engine's process is gone."""


class Cluster:
    """Engines on this machine: one per GPU, or CPU engines that share the cores.

    n: how many engines; None: one per GPU, or two on the CPU. One that can't be had is an error.
    device: "auto", "cuda" or "cpu".
    threads: with which each engine computes on the CPU; None: its share of the cores.
    keep: let the engines live on when the notebook's kernel ends (else they are gone seconds after it).
    timeout: seconds to wait for the engines to start.

    Starts at once; `stop()` or the end of a `with` block stops it. Raises ClusterError.
    """

    def __init__(
        self,
        n: int | None = None,
        *,
        device: Device = "auto",
        threads: int | None = None,
        keep: bool = False,
        timeout: float = 120.0,
    ) -> None:
        self._plan = plan_for(n, device, threads)
        self._keep, self._timeout = keep, timeout
        self._cluster: ipyparallel.Cluster | None = None
        self._client: ipyparallel.Client | None = None
        self._engine_ids: list[int] = []
        self._guardian: subprocess.Popen[bytes] | None = None
        self.folder: Path | None = None
        """Where the running cluster's connection files and logs are, readable by this user only."""
        self.start()

    @property
    def plan(self) -> ClusterPlan:
        """What the cluster is made of."""
        return self._plan

    def __len__(self) -> int:
        return len(self._plan.engines)

    @property
    def running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._client is not None

    def start(self) -> Self:
        """Starts the engines and waits until all of them answer; does nothing where they run."""
        if self.running:
            return self
        name = f"ptynb-{secrets.token_hex(4)}"
        self.folder = Path(jupyter_runtime_dir()) / name
        self.folder.mkdir(parents=True, mode=0o700)
        try:
            self._start(name, self.folder)
        except BaseException as error:
            logs = self._log_tail()
            self.stop()
            if isinstance(error, TimeoutError):
                raise ClusterError(
                    f"{counted(len(self), 'engine')} did not start within {self._timeout:.0f} s. "
                    f"The last lines of their logs:\n{logs}"
                ) from None
            if isinstance(error, Exception) and not isinstance(error, ClusterError):
                raise ClusterError(f"The cluster did not start: {error}. Logs:\n{logs}") from error
            raise
        if not self._keep:
            atexit.register(self.stop)
        return self

    def _start(self, name: str, folder: Path) -> None:
        self._cluster = cluster = ipyparallel.Cluster(
            cluster_id=name,
            profile_dir=str(folder),
            controller_args=["--nodb"],
            engine_timeout=int(self._timeout),
            shutdown_atexit=not self._keep,
            log_level=40,
            load_profile=False,
        )
        cluster.start_controller_sync()
        self._record_processes(folder)
        if not self._keep:
            self._guardian = subprocess.Popen(
                [
                    sys.executable,
                    guardian.__file__,
                    str(os.getpid()),
                    str(psutil.Process().create_time()),
                    str(folder),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        for engine in self._plan.engines:
            cluster.start_engines_sync(n=1, engine_set_id=f"rank{engine.rank}", environment=dict(engine.environment))
            self._record_processes(folder)
        self._client = client = cluster.connect_client_sync()
        client.wait_for_engines(len(self), timeout=self._timeout, interactive=False)
        # Engines get their ids in the order they came; ranks are their own.
        found = {client[engine].apply_async(worker.describe): engine for engine in client.ids}
        ranks = {answer.get(self._timeout)["rank"]: engine for answer, engine in found.items()}
        if sorted(ranks) != list(range(len(self))):
            raise ClusterError(
                f"Engines of ranks {sorted(ranks)} answered; expected 0 to {len(self) - 1}. Start again."
            )
        self._engine_ids = [ranks[rank] for rank in range(len(self))]

    def _record_processes(self, folder: Path) -> None:
        """For the guardian: every process that belongs to the cluster, by id and start time."""
        assert self._cluster is not None
        launchers = [self._cluster.controller, *self._cluster.engines.values()]
        pids = [pid for launcher in launchers if launcher for pid in _pids(launcher)]
        known = []
        for pid in pids:
            with contextlib.suppress(psutil.NoSuchProcess):
                known.append((pid, psutil.Process(pid).create_time()))
        fresh = folder / "processes.json.part"
        fresh.write_text(json.dumps(known))
        fresh.replace(folder / "processes.json")

    def stop(self) -> None:
        """Ends engines and controller and removes their files; does nothing where none run."""
        atexit.unregister(self.stop)
        client, cluster, folder = self._client, self._cluster, self.folder
        self._client = self._cluster = None
        if client is not None:
            client.close()
        if folder is not None:
            guardian.end_processes(folder)
        if cluster is not None:
            with contextlib.suppress(Exception):  # its processes are gone already; only its own records are left
                cluster.stop_cluster_sync()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        self.folder = None
        if self._guardian is not None:
            self._guardian.terminate()
            self._guardian.wait()
            self._guardian = None

    def status(self) -> list[dict[str, Any]]:
        """What each engine says it is: rank, process id, device, threads, torch version; in order of ranks."""
        return [
            {**self.call(engine.rank, worker.describe), "identity": engine.identity} for engine in self._plan.engines
        ]

    def held_bytes(self) -> int:
        """Memory of the engines' processes that no other process shares: what their next reconstruction may use."""
        launchers = [] if self._cluster is None else self._cluster.engines.values()
        held = 0
        for pid in (pid for launcher in launchers for pid in _pids(launcher)):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                held += psutil.Process(pid).memory_full_info().uss
        return held

    def call(self, rank: int, function: Callable[..., Any], *arguments: Any, timeout: float = 60.0) -> Any:
        """Calls a function of an importable module on this rank's engine and returns what it returns.

        Raises EngineLostError when the engine is gone, ClusterError after `timeout` seconds without an answer.
        """
        return self.call_all([rank], function, [arguments], timeout=timeout)[0]

    def call_all(
        self,
        ranks: list[int],
        function: Callable[..., Any],
        arguments: list[tuple[Any, ...]],
        timeout: float = 60.0,
    ) -> list[Any]:
        """The same on several ranks at the same time, each with its own arguments."""
        client = self._client
        if client is None:
            raise ClusterError("The cluster is stopped; start() it, and make a new Reconstruction.")
        pending: list[tuple[int, Any]] = []
        failures: list[ClusterError] = []
        for rank, own in zip(ranks, arguments, strict=True):
            try:
                pending.append((rank, self._view(client, rank).apply_async(function, *own)))
            except EngineLostError as error:
                failures.append(error)
        until = time.monotonic() + timeout
        answers = []
        for rank, answer in pending:  # every one is waited for, also after one has failed
            try:
                self._wait(client, answer, until)
                answers.append(answer.get(0))
            except ClusterError as error:
                failures.append(error)
            except EngineError as error:
                failures.append(self._lost(rank, f" ({error})"))
            except RemoteError as error:
                if error.ename == "EngineError":  # the controller's word for it
                    failures.append(self._lost(rank))
                    continue
                told = f"On the engine of rank {rank}: {error.ename}: {error.evalue}\n{error.traceback}"
                failures.append(ClusterError(told))
            except TimeoutError:
                failures.append(ClusterError(f"The engine of rank {rank} did not answer within {timeout:.0f} s."))
            finally:
                _forget(client, answer)
        if failures:
            raise failures[0]
        return answers

    def _wait(self, client: ipyparallel.Client, answer: Any, until: float) -> None:
        """Waits for an answer, also while another thread stops the cluster: then nobody would ever receive it."""
        while not answer.wait(max(0.0, min(NOTICE_SECONDS, until - time.monotonic()))):
            if self._client is not client:
                raise ClusterError("The cluster was stopped while it was asked.")
            if time.monotonic() > until:
                return

    def alive(self) -> list[int]:
        """Ranks whose engines are known to the controller."""
        known = set(self._client.ids) if self._client is not None else set()
        return [rank for rank, engine in enumerate(self._engine_ids) if engine in known]

    def _view(self, client: ipyparallel.Client, rank: int) -> ipyparallel.DirectView:
        engine = self._engine_ids[rank]
        if engine not in client.ids:  # the controller has noticed before us
            raise self._lost(rank)
        return client[engine]

    def _lost(self, rank: int, how: str = "") -> EngineLostError:
        return EngineLostError(f"The engine of rank {rank} has died{how}.\n{self._log_tail(rank)}")

    def _log_tail(self, rank: int | None = None, lines: int = 12) -> str:
        if self.folder is None:
            return ""
        pattern = "*.log" if rank is None else f"*rank{rank}*.log"
        tails = []
        for log in sorted((self.folder / "log").glob(pattern)):
            text = log.read_text(errors="replace").splitlines()[-lines:]
            tails.append("\n".join([f"--- {log.name}", *text]))
        return "\n".join(tails)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "running" if self.running else "stopped"
        devices = ", ".join(engine.identity for engine in self._plan.engines)
        return f"<Cluster {state}: {counted(len(self), 'engine')}, backend {self._plan.backend}: {devices}>"


def _pids(launcher: Any) -> list[int]:
    """Process ids of an ipyparallel launcher: one, or one for each engine of a set."""
    if getattr(launcher, "launchers", None):
        return [pid for part in launcher.launchers.values() for pid in _pids(part)]
    return [launcher.pid] if getattr(launcher, "pid", -1) > 0 else []


def _forget(client: ipyparallel.Client, answer: Any) -> None:
    """Drops what the client keeps of a finished call (about 3 kB each, for ever)."""
    if answer.ready():
        for message in answer.msg_ids:
            client.results.pop(message, None)
            client.metadata.pop(message, None)
            client.session.digest_history.discard(message)
            with contextlib.suppress(ValueError):
                client.history.remove(message)
