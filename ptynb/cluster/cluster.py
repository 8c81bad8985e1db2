"""Cluster: engine processes, one for each GPU or share of the CPU, on one machine or several."""

from __future__ import annotations

import atexit
import contextlib
import math
import secrets
import shutil
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, Unpack, get_args

import psutil

from ptynb.cluster import runtime_dir
from ptynb.cluster.addresses import address_towards, outward_address, site_address
from ptynb.cluster.controller import LOOPBACK, await_controller, listed, start_controller
from ptynb.cluster.devices import ClusterPlan, plan_for, plan_of
from ptynb.cluster.error_messages import log_end, summarize
from ptynb.cluster.launchers import slurm_commands
from ptynb.cluster.launchers.job_launcher import JobLauncher
from ptynb.cluster.launchers.launcher import Launcher, LocalLauncher, begin, is_alive, is_held
from ptynb.cluster.launchers.scheduler_commands import SCHEDULERS
from ptynb.cluster.launchers.slurm_launcher import SlurmLauncher
from ptynb.cluster.launchers.ssh_launcher import Remote, SshLauncher, ask_hosts, place_engines
from ptynb.cluster.lifetime import watchdog
from ptynb.cluster.rpc import Caller
from ptynb.cluster.runtime_dir import client_file
from ptynb.cluster.selftest import SelfTest, run_selftest
from ptynb.distributed import rendezvous
from ptynb.engine import keepalive, run_registry
from ptynb.exceptions import ClusterError, ClusterStoppedError, PluginError, PtynbWarning
from ptynb.plugins import Plugin, guarded, named, or_of_plugins, unfit, used
from ptynb.polling import wait_until
from ptynb.serial_executor import PATIENCE_SECONDS, SerialExecutor, held_back
from ptynb.settings.cluster_options import (
    ClusterSection,
    EngineOptions,
    LauncherPlugin,
    LocalCluster,
    SlurmCluster,
    SlurmOptions,
    SshCluster,
    SshOptions,
    checked,
    section_of_kind,
)
from ptynb.settings.field_docs import documented_by
from ptynb.settings.site_file import with_site_defaults
from ptynb.supervised_thread import SupervisedThread
from ptynb.table import gigabytes
from ptynb.text import counted, natural_order

LEASE_SECONDS = 3600.0
"""Default time that a run continues without a notebook [s]."""
_interactive = False
JOIN_SECONDS = 5.0
"""Time limit for the answer of running engines [s]."""
REPLACE_SECONDS = 20.0
"""Time limit for the answer of an engine that replaces a lost one [s]."""
RENEW_SECONDS = 10.0
"""Period of messages to engines on other machines that the holder of the cluster is alive [s]."""

_held: weakref.WeakValueDictionary[Path, Cluster] = weakref.WeakValueDictionary()
"""The clusters that this process holds, by folder."""

Report = Callable[[str], None]
"""Called with a line of text on what a launcher waits for."""
OwnLauncher = Literal["local", "pbs", "lsf", "sge", "htcondor"]
"""Launchers of `Cluster(...)`; `Cluster.slurm` and `Cluster.ssh` have arguments of their own."""
LAUNCHERS: dict[str, type[Launcher]] = {
    "local": LocalLauncher,
    "ssh": SshLauncher,
    **dict.fromkeys(SCHEDULERS, JobLauncher),
    "slurm": SlurmLauncher,
}
Launch = Callable[[str, Path], Launcher]
"""Function that creates the launcher of the cluster with this name and folder."""


@documented_by(LocalCluster, engines="n")
class Cluster:
    """Engines on this machine: one per GPU; without a GPU, one that uses all cores of the CPU (one per NUMA node).

    The engines start at once and test each other: devices, gradients, bandwidth; what makes them slower than possible
    is a warning. `stop()` or the end of a `with` block stops them.

    Parameters
    ----------
    {options}
    launcher : {"local", "pbs", "lsf", "sge", "htcondor"} or the name of a plug-in, default "local"
        What starts the engines: this machine, or a scheduler. `Cluster.slurm` and `Cluster.ssh` are others. A plug-in
        has options of its own.
    engines_per_gpu : int, default 1
        Number of engines that may share a GPU; they exchange gradients by gloo.
    report : callable, optional
        Function of a line of text: what a scheduler's jobs wait for. None: no report.
    cancel : threading.Event, optional
        Setting it in another thread ends the wait for a scheduler's jobs ("cluster.start-cancelled") and cancels them.

    Raises
    ------
    ClusterError
        An option is not valid, or the engines cannot be started.

    Notes
    -----
    A run that continues without its process (`detached_timeout`) is found by `ptynb.attach`. At the end of that time,
    or of the run, a checkpoint is written and the engines end.

    With a scheduler each of the `n` engines (None: 1) is a job of its own, which requests a GPU unless `device` is
    "cpu", and a lost one is replaced by a new job. The cluster's folder, below Jupyter's runtime folder, must be on a
    file system that the nodes share. Instead of `threads` the options are those of
    `ptynb.settings.cluster_options.JobOptions`: cpus_per_engine, time, queue, account, memory, extra, template (a file
    with the site's script of a job, with {header} and {command}), and address. Waiting in the queue has no time limit;
    Ctrl-C cancels the jobs.
    """

    folder: Path | None
    """Folder of connection files and logs, readable by this user only; None if the cluster is stopped."""
    selftest: SelfTest | None
    """Result of the engines' self-test at the start; None for a cluster that was started by another process."""

    def __init__(
        self,
        n: int | None = None,
        *,
        launcher: str = "local",
        engines_per_gpu: int = 1,
        report: Report | None = print,
        cancel: threading.Event | None = None,
        **options: Unpack[EngineOptions],
    ) -> None:
        section = section_of_kind(launcher) if isinstance(launcher, str) else None
        of_plugin = section is not None and issubclass(section, LauncherPlugin)
        if section is None or (launcher not in get_args(OwnLauncher) and not of_plugin):
            raise ClusterError(
                f"launcher is {launcher!r}; expected one of {', '.join(get_args(OwnLauncher))}"
                f"{or_of_plugins('launchers')}, or use Cluster.slurm or Cluster.ssh.",
                code="argument.invalid-value",
            )
        given = options if n is None and of_plugin else {"engines": n, **options}
        chosen = with_site_defaults(checked(section, **given))
        if launcher != "local" and engines_per_gpu != 1:
            raise ClusterError(
                f"engines_per_gpu is {engines_per_gpu} and launcher is {launcher!r}, which gives each job a GPU of its "
                "own; omit one of them.",
                code="argument.conflict",
                fields=("engines_per_gpu",),
            )
        if launcher == "local":
            plan = plan_for(chosen.engines, chosen.device, chosen.threads, engines_per_gpu)
            self._set_up(chosen, partial(LocalLauncher, plan), len(plan.engines), plan, LOOPBACK)
        elif isinstance(chosen, LauncherPlugin):
            here = launcher_class(launcher).here
            address = chosen.address or (LOOPBACK if here else site_address() or outward_address())
            self._set_up(chosen, partial(_launched, chosen), chosen.engines, None, address, report, cancel)
        else:
            address = chosen.address or site_address() or outward_address()
            self._set_up(chosen, partial(JobLauncher, chosen), chosen.engines or 1, None, address, report, cancel)
        self.start()
        if launcher != "local" and not of_plugin and chosen.device != "cpu":
            self._require_gpus(f"Each job of {launcher} requested a GPU")

    def _require_gpus(self, given: str) -> None:
        """Stop, and raise ClusterError, if engines that were given GPUs have found none."""
        if not self.plan.on_gpu:
            self.stop()
            raise ClusterError(
                f"{given}, and engines there found none: CUDA_VISIBLE_DEVICES is not set, or torch there has no CUDA; "
                "or ask for device='cpu'.",
                code="gpu.not-found",
            )

    @classmethod
    @documented_by(SlurmCluster)
    def slurm(
        cls,
        nodes: int | None = None,
        *,
        within: bool | None = None,
        report: Report | None = print,
        cancel: threading.Event | None = None,
        **options: Unpack[SlurmOptions],
    ) -> Self:
        """Engines on nodes of a Slurm cluster, in a new job or in the present one (salloc).

        Without arguments the engines use all that the present job has. The cluster's folder, below Jupyter's runtime
        folder, must be on a file system that the nodes share. Waiting in the queue has no time limit; Ctrl-C cancels
        the job.

        Parameters
        ----------
        {options}
        within : bool, optional
            Whether to use the present job. None: if there is one.
        report : callable, optional
            Function of a line of text: what the launcher waits for. None: no report.
        cancel : threading.Event, optional
            Setting it in another thread ends the wait ("cluster.start-cancelled") and cancels the job, as Ctrl-C does.

        Returns
        -------
        Cluster
            The running cluster.

        Raises
        ------
        ClusterError
            An option is not valid, the present job lacks what is requested, or Slurm reports an error.
        """
        chosen = with_site_defaults(checked(SlurmCluster, nodes=nodes, **options))
        allocation, job = slurm_commands.choose(chosen, within)
        address = chosen.address or site_address() or slurm_commands.own_address(allocation.partition)
        cluster = cls.__new__(cls)
        launch = partial(SlurmLauncher, allocation, job=job)
        cluster._set_up(chosen, launch, allocation.engines, None, address, report, cancel)
        cluster.start()
        if allocation.gpus_per_node:
            cluster._require_gpus(f"Slurm gave {counted(allocation.gpus_per_node, 'GPU')} of each node")
        return cluster

    @classmethod
    @documented_by(SshCluster)
    def ssh(
        cls,
        hosts: Mapping[str, int | None] | Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        **options: Unpack[SshOptions],
    ) -> Self:
        """Engines on other hosts, accessible by ssh without a password and with the same file paths as here.

        A host without a number of engines gets one per GPU, or on its CPU one per NUMA node.

        Parameters
        ----------
        {options}
        environment : mapping of str to str, optional
            Additional environment variables of the engines.

        Returns
        -------
        Cluster
            The running cluster.

        Raises
        ------
        ClusterError
            An option is not valid, a host cannot be reached or lacks ptynb, or the engines cannot be started.

        Notes
        -----
        Messages between notebook and engines are encrypted (CURVE). Gradients between engines are not: the network
        between the hosts must be trusted.
        """
        chosen = checked(SshCluster, hosts=[hosts] if isinstance(hosts, str) else hosts, **options)
        remote = Remote.of(chosen, environment)
        found = ask_hosts([*chosen.hosts], remote)
        plan, homes = place_engines(found, chosen.hosts, chosen.device, chosen.threads)
        address = chosen.address or site_address() or address_towards(found[0].answers["address"] or found[0].name)
        cluster = cls.__new__(cls)
        cluster._set_up(chosen, partial(SshLauncher, plan, homes, remote), len(homes), plan, address)
        return cluster.start()

    @classmethod
    def joined(cls, folder: Path | str) -> Cluster | None:
        """Connect to a running cluster. If this process holds it, return the same object.

        Parameters
        ----------
        folder : Path or str
            Folder of the cluster, or its name in `ptynb ps`.

        Returns
        -------
        Cluster or None
            The cluster; None if it does not answer.
        """
        folder = runtime_dir.folder_of(folder) if isinstance(folder, str) else folder
        if (own := _held.get(folder)) is not None:
            return own
        described, holder = runtime_dir.read(folder, "cluster.json"), runtime_dir.read(folder, "holder.json")
        if not described.get("plan") or not holder:
            return None
        plan = ClusterPlan.from_plain(described["plan"])
        launch = partial(launcher_class(described["kind"]).again, plan, described)
        cluster = cls.__new__(cls)
        as_held = checked(LocalCluster, detached_timeout=holder["lease"], timeout=JOIN_SECONDS)
        cluster._set_up(as_held, launch, len(plan.engines), plan, described["address"])
        cluster._make_launcher(folder)
        try:
            cluster._join(*cluster._running())
        except ClusterError:
            cluster.detach()
            return None
        except KeyboardInterrupt:
            cluster.detach()
            raise
        return cluster

    def _set_up(
        self,
        options: ClusterSection,
        launch: Launch,
        count: int,
        plan: ClusterPlan | None,
        address: str,
        report: Report | None = None,
        cancel: threading.Event | None = None,
    ) -> None:
        """plan: None until the engines have sent their descriptions. address: address on which the controller listens.

        report: called with a line of text whenever the launcher's reason for waiting changes. cancel: ends the wait
        for the engines when another thread sets it.
        """
        lease = options.detached_timeout
        self._launch, self._count, self._plan, self._address = launch, count, plan, address
        self._lease = lease if lease is not None else LEASE_SECONDS if _interactive or _in_notebook() else 0.0
        self._timeout, self._report, self._cancel = options.timeout, report, cancel
        self.selftest = None
        self._executor = SerialExecutor("ptynb stopping", finish=True)
        self._replacing = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        """Remove all references to processes, files and connection."""
        self.folder = None
        self._launcher: Launcher | None = None
        self._caller: Caller | None = None
        self._controller: psutil.Process | None = None
        self._children: list[subprocess.Popen[bytes]] = []
        self._ended = threading.Event()

    def _make_launcher(self, folder: Path) -> None:
        self._reset()
        self._launcher, self.folder = self._launch(folder.name, folder), folder

    # Ownership

    @property
    def held_here(self) -> bool:
        """Whether this process holds the cluster."""
        return self.folder is not None and _held.get(self.folder) is self

    @staticmethod
    def holder(folder: Path) -> keepalive.Holder | None:
        """Return the process that holds a cluster, which may be this one.

        Parameters
        ----------
        folder : Path
            Folder of the cluster.

        Returns
        -------
        Holder or None
            The process; None if it has ended.
        """
        known = runtime_dir.read(folder, "holder.json")
        holder = keepalive.Holder(**known) if known else None
        return None if holder is None or holder.alive() is False else holder

    def hold(self) -> None:
        """Make this process the holder of the cluster.

        Raises
        ------
        ClusterError
            If another running process is the holder ("cluster.held-elsewhere").
        """
        folder, _ = self._running()
        if self.held_here:
            return
        holder, own = keepalive.Holder(**runtime_dir.read(folder, "holder.json")), keepalive.Holder.this(self._lease)
        if holder.alive() and (holder.pid, holder.machine) != (own.pid, own.machine):
            raise ClusterError(
                f"The cluster {self.name!r} is held by the process {holder.pid}, which still runs; end that one (shut "
                "down its notebook's kernel) and attach again.",
                code="cluster.held-elsewhere",
            )
        self._hold(folder)

    def _hold(self, folder: Path) -> None:
        runtime_dir.write(folder, "holder.json", vars(keepalive.Holder.this(self._lease)))
        _held[folder] = self
        self._renew_lease()
        if self._launcher is not None and not self._launcher.here:
            SupervisedThread("ptynb lease renewal", self._keep_renewing, self._ended, restarts=True).start()
        atexit.register(self._at_exit)

    def _renew_lease(self) -> None:
        """Send the identity of the holder to the engines."""
        if ranks := self.alive():
            self.call_all(ranks, keepalive.hold, [(keepalive.Holder.this(self._lease),)] * len(ranks))

    def _keep_renewing(self, ended: threading.Event) -> None:
        while not ended.wait(RENEW_SECONDS):
            with contextlib.suppress(ClusterError):  # a lost engine is noticed by the next call to it
                self._renew_lease()

    def detach(self) -> None:
        """Disconnect from the cluster, which continues to run without this process."""
        atexit.unregister(self._at_exit)
        folder, caller = self.folder, self._caller
        if folder is not None:
            _held.pop(folder, None)
        self._ended.set()
        self._reset()
        if caller is not None:
            caller.close()

    @property
    def plan(self) -> ClusterPlan:
        """Engines, devices and backend of the cluster."""
        if self._plan is None:
            raise ClusterError(
                "The cluster is not started, and its engines report their devices when they start; start() it.",
                code="cluster.stopped",
            )
        return self._plan

    @property
    def name(self) -> str:
        """Name for `ptynb ps` and `ptynb.attach`; empty if the cluster is stopped."""
        return "" if self.folder is None else self.folder.name

    def __len__(self) -> int:
        return self._count

    @property
    def launched_by(self) -> tuple[Plugin, ...]:
        """The plug-in that starts the engines, if one does."""
        kind = "" if self._launcher is None else self._launcher.kind
        plugin = None if not kind or kind in LAUNCHERS else named("launchers", kind)
        return () if plugin is None else (plugin,)

    @property
    def running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._caller is not None

    def _running(self) -> tuple[Path, Launcher]:
        if self.folder is None or self._launcher is None:
            raise _stopped()
        return self.folder, self._launcher

    # Start and stop

    def start(self) -> Self:
        """Start the engines and wait until all of them answer; does nothing while they run.

        Returns
        -------
        Cluster
            This one.

        Raises
        ------
        ClusterError
            If they cannot be started ("cluster.start-failed").
        """
        self._executor.wait()
        if self.running:
            return self
        try:
            self._start_or_stop()
        except KeyboardInterrupt:  # a second one may come before the first was handled
            self._stop_soon()
            raise
        return self

    def _start_or_stop(self) -> None:
        try:
            with held_back():
                self._make_launcher(runtime_dir.make_folder(f"{runtime_dir.PREFIX}{secrets.token_hex(4)}"))
            self._start(*self._running())
        except KeyboardInterrupt:
            self._stop_soon()
            raise
        except BaseException as error:
            message = ""
            if isinstance(error, TimeoutError):
                message = f"{counted(len(self), 'engine')} did not start within {self._timeout:.0f} s."
            elif isinstance(error, Exception) and not isinstance(error, ClusterError | PluginError):
                by = f" by {self.launched_by[0]}" if self.launched_by else ""
                message = f"The cluster did not start{by}: {error}."
            message = message and summarize(message, logs=self.logs())  # before their folder is removed
            self.stop()
            if message:
                raise ClusterError(message, code="cluster.start-failed") from (
                    None if isinstance(error, TimeoutError) else error
                )
            raise

    def _stop_soon(self) -> None:
        """Stop, and wait at most `PATIENCE_SECONDS` for it: the user has pressed Ctrl-C."""
        with contextlib.suppress(TimeoutError):  # the stop continues in its thread
            self._executor.run(self._stop, PATIENCE_SECONDS)

    def _start(self, folder: Path, launcher: Launcher) -> None:
        runtime_dir.write(folder, "holder.json", vars(keepalive.Holder.this(self._lease)))
        self._describe(folder, launcher)
        found = self._start_processes(folder, launcher)
        if self._plan is None:
            self._plan = plan_of([found[rank] for rank in range(len(self))])
        self._describe(folder, launcher)
        self._hold(folder)
        self.selftest = run_selftest(self)
        for note in self._plan.notes:
            warnings.warn(note, PtynbWarning, stacklevel=5)

    def _start_processes(self, folder: Path, launcher: Launcher) -> dict[int, dict[str, Any]]:
        """Start controller, watchdog and engines; return the engines' descriptions by rank.

        Raises TimeoutError, ClusterError.
        """
        until = time.monotonic() + self._timeout
        here = self._address == LOOPBACK
        with held_back():  # started processes are recorded too, otherwise they would never be ended
            controller = start_controller(folder.name, folder, self._address)
            self._children.append(controller)
            self._controller = psutil.Process(controller.pid)
            self._record(folder, launcher)
            command = [sys.executable, "-P", watchdog.__file__, str(folder)]
            self._children.append(begin(command, folder.name, folder / "log" / "guardian.log"))
            if here:
                launcher.start(range(self._count))  # they load what they need while the controller starts
                self._record(folder, launcher)
        await_controller(controller, folder, until - time.monotonic())
        if not here:
            with held_back():
                launcher.start(range(self._count))
                self._record(folder, launcher)
        self._caller = Caller(client_file(folder), self._timeout, self.why_lost)
        found = self._await_engines(launcher, self._caller, until)
        self._record(folder, launcher)
        return found

    def _await_engines(self, launcher: Launcher, caller: Caller, until: float) -> dict[int, dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}
        reported = ""

        def all_are_there() -> bool:
            nonlocal until, reported
            found.update(caller.find(until - time.monotonic()))
            if len(found) >= self._count:
                return True
            if failure := launcher.failed():
                raise ClusterError(summarize(failure, logs=self.logs()), code="cluster.start-failed")
            if dead := launcher.dead():
                message = f"The engine of rank {dead[0]} ended while it started.{log_end(self.logs(dead[0]))}"
                raise ClusterError(summarize(message, logs=self.logs()), code="cluster.start-failed")
            if self._cancel is not None and self._cancel.is_set():
                raise ClusterError("The start of the cluster was cancelled.", code="cluster.start-cancelled")
            if launcher.waiting():
                until = time.monotonic() + self._timeout
            if time.monotonic() > until:
                raise TimeoutError
            if self._report is not None and (news := launcher.news()):
                news = f"{news}; {len(found)} of {counted(self._count, 'engine')} are there" if found else news
                if news != reported:
                    reported = news
                    self._report(news)
            return False

        wait_until(all_are_there, math.inf)
        if sorted(found) != list(range(self._count)):
            raise ClusterError(
                f"Engines of ranks {sorted(found)} answered; expected 0 to {self._count - 1}. Start again.",
                code="cluster.start-failed",
            )
        return found

    def _join(self, folder: Path, launcher: Launcher) -> None:
        """Connect to processes that another process has started. Raises ClusterError if they do not answer."""
        described = runtime_dir.read(folder, "cluster.json")
        try:
            self._controller = psutil.Process(int(runtime_dir.read(folder, "processes.json")["others"][0][0]))
            if not is_alive(self._controller) or described["machine"] != keepalive.machine():
                raise ClusterError(
                    f"The controller of {self.name} has ended, or runs on another machine.",
                    code="cluster.not-reachable",
                )
            self._caller = Caller(client_file(folder), JOIN_SECONDS, self.why_lost)
            found = self._caller.find(JOIN_SECONDS)
            launcher.join({rank: description["pid"] for rank, description in found.items()}, described)
        except (OSError, KeyError, IndexError, psutil.NoSuchProcess, TimeoutError) as error:
            raise ClusterError(
                f"The cluster {self.name} does not answer ({error}).", code="cluster.not-reachable"
            ) from None

    def _at_exit(self) -> None:
        """Stop the cluster, unless a run is active that may continue without this process."""
        with contextlib.suppress(ClusterError):
            if self._lease > 0 and any(
                self.call_all(self.alive(), run_registry.at_work, [()] * len(self.alive()), 5.0)
            ):
                return
        self.stop()

    def stop(self) -> None:
        """End engines and controller and remove their files; does nothing if the cluster is stopped."""
        self._executor.run(self._stop)

    def _stop(self) -> None:
        atexit.unregister(self._at_exit)
        folder, launcher = self.folder, self._launcher
        if folder is None or launcher is None:
            return
        _held.pop(folder, None)
        self._ended.set()
        caller, self._caller = self._caller, None
        if caller is not None:
            if not launcher.here:
                caller.shut_down()
            caller.close()
        watchdog.end_processes(folder)
        launcher.stop()
        shutil.rmtree(folder, ignore_errors=True)
        for process in self._children:  # the watchdog ends when the folder is gone
            process.terminate()
            process.wait()
        self._reset()

    # Files for other processes

    def _describe(self, folder: Path, launcher: Launcher) -> None:
        """Write the description of the cluster; its plan may not be known yet."""
        content = {
            "name": folder.name,
            "kind": launcher.kind,
            "machine": keepalive.machine(),
            "started": time.time(),
            "engines": self._count,
            "address": self._address,
            "plan": None if self._plan is None else self._plan.to_plain(),
            **launcher.describe(),
        }
        runtime_dir.write(folder, "cluster.json", content)

    def _record(self, folder: Path, launcher: Launcher) -> None:
        """Write every process of the cluster, for the watchdog, `ptynb ps` and `ptynb stop`."""
        launched = launcher.record()
        alive = self._controller is not None and is_alive(self._controller)
        others = listed(self._controller) if self._controller is not None and alive else []
        content = {"engines": launched["processes"], "others": others, "end": launched["end"]}
        runtime_dir.write(folder, "processes.json", content)

    @property
    def ended_from_outside(self) -> bool:
        """Whether `ptynb stop` ends or has ended the cluster; its engines write a checkpoint then."""
        folder = self.folder
        return folder is not None and ((folder / "stopping.json").exists() or not folder.exists())

    # Engines

    def status(self) -> list[dict[str, Any]]:
        """Request a description of each engine.

        Returns
        -------
        list of dict
            Rank, process id, device, threads, version of torch; in order of ranks.
        """
        return [
            {**self.call(engine.rank, run_registry.describe), "identity": engine.identity, "device": engine.kind}
            for engine in self.plan.engines
        ]

    def held_bytes(self) -> int:
        """Memory of the engines' processes that no other process shares; the next reconstruction reuses it.

        Returns
        -------
        int
            Memory [bytes].
        """
        total = 0
        for pid, _ in [] if self._launcher is None else self._launcher.record()["processes"]:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                total += psutil.Process(pid).memory_full_info().uss
        return total

    @property
    def caller(self) -> Caller:
        """The connection to the engines. Raises ClusterStoppedError if the cluster is stopped."""
        if self._caller is None:
            raise _stopped()
        return self._caller

    def call(self, rank: int, function: Callable[..., Any], *arguments: Any, timeout: float = 60.0) -> Any:
        """Call a function on an engine.

        Parameters
        ----------
        rank : int
            Rank of the engine.
        function : callable
            Function from a module that can be imported there.
        *arguments : object
            Arguments of the function.
        timeout : float
            Longest time to wait for the answer [s].

        Returns
        -------
        object
            Return value of the function.

        Raises
        ------
        EngineLostError
            If the engine is lost ("engine.lost").
        ClusterError
            If it did not answer in time ("engine.no-answer"), or the function raised an error (its
            code, or "engine.failed").
        """
        return self.caller.call_all([rank], function, [arguments], timeout)[0]

    def call_all(
        self,
        ranks: list[int],
        function: Callable[..., Any],
        arguments: list[tuple[Any, ...]],
        timeout: float = 60.0,
    ) -> list[Any]:
        """Call a function on several engines at the same time.

        Parameters
        ----------
        ranks : list of int
            Ranks of the engines.
        function : callable
            As for `call`.
        arguments : list of tuple
            Arguments for each rank.
        timeout : float
            Longest time to wait for the answers [s].

        Returns
        -------
        list
            Return value of each rank.

        Raises
        ------
        ClusterError
            As for `call`; the first error, once all have answered.
        """
        return self.caller.call_all(ranks, function, arguments, timeout)

    def alive(self) -> list[int]:
        """List the ranks whose engines can be reached.

        Returns
        -------
        list of int
            In ascending order.
        """
        caller = self._caller
        return [] if caller is None else [rank for rank in caller.ranks() if not self.why_lost(rank)]

    def why_lost(self, rank: int) -> str:
        """Return why an engine is lost.

        Parameters
        ----------
        rank : int
            Of the engine.

        Returns
        -------
        str
            Empty if it is not lost, or if the cluster is stopped.
        """
        launcher, controller = self._launcher, self._controller
        if launcher is None:
            return ""
        if not 0 <= rank < self._count:
            return f"There is no engine of rank {rank}."
        dead = rank in launcher.dead()
        if self._caller is None:  # read last: processes that an orderly stop has ended are not lost
            return ""
        if dead:
            if self.ended_from_outside:
                return f"The engine of rank {rank} is gone: the cluster was ended by 'ptynb stop'."
            return f"The engine of rank {rank} has died: its process is gone.{log_end(self.logs(rank))}"
        if controller is None or not is_alive(controller):
            return f"The cluster's controller has died, and rank {rank} cannot be reached; stop() and start() again."
        return ""

    def logs(self, rank: int | None = None) -> list[Path]:
        """List the log files, which are removed when the cluster is stopped.

        Parameters
        ----------
        rank : int, optional
            Rank of an engine, for its log files. None: those of all processes.

        Returns
        -------
        list of Path
            Sorted by name, ranks in their order.
        """
        pattern = "*.log" if rank is None else f"*rank{rank}.log"
        found = [] if self.folder is None else (self.folder / "log").glob(pattern)
        return sorted(found, key=lambda path: natural_order(path.name))

    def suspended(self, rank: int) -> str:
        """Return whether a signal suspends an engine's process or the controller's.

        Parameters
        ----------
        rank : int
            Of the engine.

        Returns
        -------
        str
            A message; empty if neither is suspended.
        """
        if self._launcher is None:
            return ""
        if self._launcher.held(rank):
            who = f"The engine of rank {rank}"
        elif self._controller is not None and is_held(self._controller):
            who = "The cluster's controller"
        else:
            return ""
        return f"{who} does not answer: its process is suspended by a signal (SIGSTOP) or a debugger."

    def kill(self, rank: int) -> None:
        """Kill the process of an engine that does not respond.

        Parameters
        ----------
        rank : int
            Of the engine.
        """
        self._running()[1].kill(rank)

    def replace_lost(self) -> None:
        """Start a new engine for each that is lost; one that does not answer in time stays lost."""
        with self._replacing:  # several reconstructions may request this at the same time
            folder, launcher = self._running()
            caller = self._caller
            lost = sorted({*range(self._count)} - {*self.alive()})
            if not lost or caller is None:
                return
            for rank in lost:
                caller.give_up(rank)
            try:
                launcher.start(lost)
            except ClusterError:
                return  # its machine is lost: the others continue without it

            def decided() -> bool:
                caller.find(REPLACE_SECONDS)
                return bool(launcher.failed()) or {*lost} - {*self.alive()} <= {*launcher.dead()}

            wait_until(decided, REPLACE_SECONDS)
            self._record(folder, launcher)
            self._renew_lease()

    def complete(self) -> None:
        """Replace engines that are lost.

        Raises
        ------
        ClusterError
            If one cannot be replaced ("engine.lost").
        """
        self.replace_lost()
        if missing := sorted({*range(len(self))} - {*self.alive()}):
            raise ClusterError(
                f"The engines of ranks {missing} are lost, and no new ones could be started; stop() the cluster and "
                f"start() it, or start one with fewer engines. {self.why_lost(missing[0])}",
                code="engine.lost",
            )

    def open_store(self, rank: int) -> str:
        """Open the rendezvous of a group of engines.

        Parameters
        ----------
        rank : int
            First engine of the group.

        Returns
        -------
        str
            Address of a file, or of a store that this engine serves.
        """
        if self._address == LOOPBACK:
            return f"file://{self._running()[0] / f'group-{secrets.token_hex(4)}'}"
        store: str = self.call(rank, rendezvous.open_store)
        return store

    def close_store(self, store: str) -> None:
        """Remove the rendezvous file; a store that an engine serves ends with its group.

        Parameters
        ----------
        store : str
            From `open_store`.
        """
        if store.startswith("file://"):
            Path(store.removeprefix("file://")).unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if kind is None or not issubclass(kind, KeyboardInterrupt):
            self.stop()
            return
        self._stop_soon()

    def __repr__(self) -> str:
        state = "running" if self.running else "stopped"
        if self._plan is None:
            return f"<Cluster {state}: {counted(len(self), 'engine')}>"
        devices = ", ".join(engine.identity for engine in self._plan.engines)
        return f"<Cluster {state}: {counted(len(self), 'engine')}{self._exchange()}: {devices}>"

    def _exchange(self) -> str:
        """Backend of the gradients, and its bandwidth."""
        if len(self) == 1:
            return ""
        bandwidth = None if self.selftest is None else self.selftest.bandwidth
        speed = "" if bandwidth is None else f" ({gigabytes(bandwidth)}/s)"
        return f", {self.plan.reason or self.plan.backend}{speed}"


def launcher_class(kind: str) -> type[Launcher]:
    """Return the launcher of a kind of cluster. Raises ClusterError."""
    section = None if kind in LAUNCHERS else section_of_kind(kind)
    if section is not None and issubclass(section, LauncherPlugin):
        found = getattr(section, "launcher_class", None)
        if not (isinstance(found, type) and issubclass(found, Launcher)):
            raise unfit(used("launchers", kind), f"has launcher_class={found!r}; expected a class from Launcher")
        return found
    if kind not in LAUNCHERS:
        raise ClusterError(
            f"The cluster is of the kind {kind!r}; this version of ptynb can join {', '.join(LAUNCHERS)}"
            f"{or_of_plugins('launchers')}.",
            code="cluster.unknown-kind",
        )
    return LAUNCHERS[kind]


def _launched(chosen: LauncherPlugin, name: str, folder: Path) -> Launcher:
    """Return the launcher of a plug-in, whose errors name it."""
    with guarded(used("launchers", chosen.kind)):
        found = chosen.launcher(name, folder)
    if not isinstance(found, launcher_class(chosen.kind)):
        raise unfit(used("launchers", chosen.kind), f"made a {type(found).__name__}; expected its launcher_class")
    return found


def _stopped() -> ClusterStoppedError:
    return ClusterStoppedError(
        "The cluster is stopped; start() it, and make a new Reconstruction.", code="cluster.stopped"
    )


def set_interactive() -> None:
    """Let runs of this process continue without it by default, as those of a notebook's kernel do."""
    global _interactive
    _interactive = True


def _in_notebook() -> bool:
    """Whether this process is a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")
