"""Cluster: engine processes, one for each GPU or share of the CPU, on one machine or several."""

from __future__ import annotations

import atexit
import contextlib
import secrets
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, Unpack

from ptynb.cluster import runtime_dir
from ptynb.cluster.addresses import address_towards
from ptynb.cluster.controller import LOOPBACK
from ptynb.cluster.devices import ClusterPlan, counted, plan_for, plan_of
from ptynb.cluster.errors import summarize
from ptynb.cluster.interrupts import PATIENCE_SECONDS, Errands, held_back
from ptynb.cluster.launchers import slurm_commands
from ptynb.cluster.launchers.launcher import Launcher, LocalLauncher
from ptynb.cluster.launchers.slurm_commands import Allocation
from ptynb.cluster.launchers.slurm_launcher import SlurmLauncher
from ptynb.cluster.launchers.ssh_launcher import Remote, SshLauncher, ask_hosts, place_engines
from ptynb.cluster.processes import Crew, Report
from ptynb.cluster.selftest import SelfTest, run_selftest
from ptynb.engine import keepalive as lease
from ptynb.engine import registry
from ptynb.exceptions import ClusterError, ClusterStoppedError, PtynbWarning
from ptynb.settings.cluster_options import (
    LocalCluster,
    LocalOptions,
    SlurmCluster,
    SlurmOptions,
    SshCluster,
    SshOptions,
    checked,
    documented,
)
from ptynb.table import gigabytes

LEASE_SECONDS = 3600.0
"""How long a run goes on without a notebook, unless told otherwise."""
JOIN_SECONDS = 5.0
"""How long engines that run already may take to answer."""

_held: weakref.WeakValueDictionary[Path, Cluster] = weakref.WeakValueDictionary()
"""The clusters that this process holds, by their folders."""

Launch = Callable[[str, Path], Launcher]
"""Makes the launcher of a cluster of this name, with its files in this folder."""


@documented(LocalCluster, engines="n")
class Cluster:
    """Engines on this machine: one per GPU, or CPU engines that share the cores.

    The engines start at once and test each other: devices, gradients, bandwidth; what makes them slower than possible
    is a warning. `stop()` or the end of a `with` block stops them.

    Parameters
    ----------
    {options}
    engines_per_gpu : int, default 1
        Number of engines that may share a GPU; they exchange gradients by gloo.

    Raises
    ------
    ClusterError
        An option is not valid, or the engines cannot be started.

    Notes
    -----
    A run that continues without its process (`detached_timeout`) is found by `ptynb.attach`. At the end of that time,
    or of the run, a checkpoint is written and the engines end.
    """

    _crew: Crew | None
    _selftest: SelfTest | None

    def __init__(
        self,
        n: int | None = None,
        *,
        engines_per_gpu: int = 1,
        **options: Unpack[LocalOptions],
    ) -> None:
        chosen = checked(LocalCluster, engines=n, **options)
        plan = plan_for(chosen.engines, chosen.device, chosen.threads, engines_per_gpu)
        self._set_up(
            lambda name, folder: LocalLauncher(plan, name, folder),
            len(plan.engines),
            plan,
            LOOPBACK,
            chosen.detached_timeout,
            chosen.timeout,
        )
        self.start()

    @classmethod
    @documented(SlurmCluster)
    def slurm(
        cls,
        nodes: int | None = None,
        *,
        within: bool | None = None,
        report: Report | None = print,
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

        Returns
        -------
        Cluster
            The running cluster.

        Raises
        ------
        ClusterError
            An option is not valid, the present job lacks what is requested, or Slurm reports an error.
        """
        chosen = checked(SlurmCluster, nodes=nodes, **options)
        wanted = slurm_commands.requested(chosen.nodes, chosen.device, Allocation.of(chosen))
        allocation, job = slurm_commands.choose(wanted, within)
        address = chosen.address or slurm_commands.own_address(allocation.partition)
        cluster = cls._elsewhere(
            lambda name, folder: SlurmLauncher(allocation, name, folder, job=job),
            allocation.engines,
            address,
            chosen.detached_timeout,
            chosen.timeout,
            report,
        )
        if allocation.gpus_per_node and not cluster.plan.on_gpu:
            cluster.stop()
            raise ClusterError(
                f"Slurm gave {counted(allocation.gpus_per_node, 'GPU')} of each node, and engines there found none: "
                "CUDA_VISIBLE_DEVICES is not set, or torch there has no CUDA; or ask for device='cpu'."
            )
        return cluster

    @classmethod
    @documented(SshCluster)
    def ssh(
        cls,
        hosts: Mapping[str, int | None] | Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        **options: Unpack[SshOptions],
    ) -> Self:
        """Engines on other hosts, which ssh reaches without a password and where files have the same paths as here.

        A host without a number of engines gets one per GPU, or two on its CPU.

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
        names, counts = [*chosen.hosts], chosen.hosts
        remote = Remote(
            ssh=("ssh",) if chosen.ssh is None else chosen.ssh,
            python=chosen.python or sys.executable,
            environment=dict(environment or {}),
        )
        found = ask_hosts(names, remote)
        plan, homes = place_engines(found, counts, chosen.device, chosen.threads)
        made = cls.__new__(cls)
        made._set_up(
            lambda name, folder: SshLauncher(plan, homes, remote, name, folder),
            len(homes),
            plan,
            chosen.address or address_towards(found[0].answers["address"] or found[0].name),
            chosen.detached_timeout,
            chosen.timeout,
        )
        return made.start()

    @classmethod
    def _elsewhere(
        cls,
        launch: Launch,
        count: int,
        address: str,
        lease: float | None,
        timeout: float,
        report: Report | None,
    ) -> Self:
        """A cluster of `count` engines that a launcher starts on other machines; they say themselves what they are."""
        cluster = cls.__new__(cls)
        cluster._set_up(launch, count, None, address, lease, timeout, report)
        return cluster.start()

    @classmethod
    def joined(cls, folder: Path) -> Cluster | None:
        """The running cluster with this folder; None where it does not answer. One held here is that very object."""
        if (own := _held.get(folder)) is not None:
            return own
        described, holder = runtime_dir.read(folder, "cluster.json"), runtime_dir.read(folder, "holder.json")
        if not described.get("plan") or not holder:
            return None
        plan = ClusterPlan.from_plain(described["plan"])
        cluster = cls.__new__(cls)
        launch = rejoining(described, plan)
        cluster._set_up(launch, len(plan.engines), plan, described["address"], holder["lease"], JOIN_SECONDS)
        cluster._crew = crew = Crew(folder, launch(folder.name, folder), len(plan.engines), described["address"])
        try:
            crew.join(JOIN_SECONDS)
        except ClusterError:
            cluster.detach()
            return None
        except KeyboardInterrupt:
            cluster.detach()
            raise
        return cluster

    def _set_up(
        self,
        launch: Launch,
        count: int,
        plan: ClusterPlan | None,
        address: str,
        lease: float | None,
        timeout: float,
        report: Report | None = None,
    ) -> None:
        """plan: None where only the engines themselves know what they are. address: on which the controller listens.

        report: told what the launcher waits for.
        """
        if lease is not None and not lease >= 0:
            raise ClusterError(f"detached_timeout is {lease}; expected seconds, at least 0.")
        self._launch, self._count, self._plan, self._address = launch, count, plan, address
        self._lease = lease if lease is not None else LEASE_SECONDS if _in_notebook() else 0.0
        self._timeout, self._report = timeout, report
        self._crew, self._selftest = None, None
        self._errands = Errands("ptynb stopping", finish=True)
        self._replacing = threading.Lock()

    @property
    def held_here(self) -> bool:
        """Whether this process holds it."""
        return self.folder is not None and _held.get(self.folder) is self

    @staticmethod
    def holder(folder: Path) -> lease.Holder | None:
        """The process that holds the cluster with this folder, this one too; None where it lives no more."""
        known = runtime_dir.read(folder, "holder.json")
        holder = lease.Holder(**known) if known else None
        return None if holder is None or holder.alive() is False else holder

    def hold(self) -> None:
        """Makes this process the one that holds it. Raises ClusterError where another one does that still lives."""
        crew = self._running_crew()
        if self.held_here:
            return
        holder, own = lease.Holder(**runtime_dir.read(crew.folder, "holder.json")), lease.Holder.this(self._lease)
        if holder.alive() and (holder.pid, holder.machine) != (own.pid, own.machine):
            raise ClusterError(
                f"The cluster {self.name!r} is held by the process {holder.pid}, which still runs; end that one (shut "
                "down its notebook's kernel) and attach again."
            )
        self._hold(crew)

    def _hold(self, crew: Crew) -> None:
        runtime_dir.write(crew.folder, "holder.json", vars(lease.Holder.this(self._lease)))
        _held[crew.folder] = self
        crew.hold(self._lease)
        atexit.register(self._at_exit)

    def detach(self) -> None:
        """Lets go of a cluster that runs on without this process."""
        atexit.unregister(self._at_exit)
        crew, self._crew = self._crew, None
        if crew is not None:
            _held.pop(crew.folder, None)
            crew.leave()

    @property
    def plan(self) -> ClusterPlan:
        """What the cluster is made of."""
        if self._plan is None:
            raise ClusterError("The cluster is not started, and only its engines know what they are; start() it.")
        return self._plan

    @property
    def selftest(self) -> SelfTest | None:
        """What its engines found out about each other when they were started; None for one that was joined."""
        return self._selftest

    @property
    def folder(self) -> Path | None:
        """Where the running cluster's connection files and logs are, readable by this user only."""
        return None if self._crew is None else self._crew.folder

    @property
    def name(self) -> str:
        """Under which `ptynb ps` lists it and `ptynb.attach` finds it; empty where it is stopped."""
        return "" if self._crew is None else self._crew.name

    def __len__(self) -> int:
        return self._count

    @property
    def running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._crew is not None and self._crew.caller is not None

    def _running_crew(self) -> Crew:
        crew = self._crew
        if crew is None:
            raise ClusterStoppedError("The cluster is stopped; start() it, and make a new Reconstruction.")
        return crew

    def start(self) -> Self:
        """Starts the engines and waits until all of them answer; does nothing where they run."""
        self._errands.wait()
        if self.running:
            return self
        try:
            self._start_or_stop()
        except KeyboardInterrupt:  # a second one may have come before anything was done about the first
            self._stop_soon()
            raise
        return self

    def _start_or_stop(self) -> None:
        try:
            with held_back():
                folder = runtime_dir.make_folder(f"{runtime_dir.PREFIX}{secrets.token_hex(4)}")
                self._crew = Crew(folder, self._launch(folder.name, folder), self._count, self._address)
            self._start(self._crew)
        except KeyboardInterrupt:
            self._stop_soon()
            raise
        except BaseException as error:
            told = ""
            if isinstance(error, TimeoutError):
                told = f"{counted(len(self), 'engine')} did not start within {self._timeout:.0f} s."
            elif isinstance(error, Exception) and not isinstance(error, ClusterError):
                told = f"The cluster did not start: {error}."
            told = told and summarize(told, logs=self.logs())  # before their folder is removed
            self.stop()
            if told:
                raise ClusterError(told) from (None if isinstance(error, TimeoutError) else error)
            raise

    def _stop_soon(self) -> None:
        """Ends it, and waits for that only as long as somebody who interrupted wants to wait."""
        with contextlib.suppress(TimeoutError):  # it goes on without being waited for
            self._errands.run(self._stop, PATIENCE_SECONDS)

    def _start(self, crew: Crew) -> None:
        runtime_dir.write(crew.folder, "holder.json", vars(lease.Holder.this(self._lease)))
        crew.describe(self._plan)
        found = crew.start(self._timeout, self._report)
        if self._plan is None:
            self._plan = plan_of([found[rank] for rank in range(len(self))])
        crew.describe(self._plan)
        self._hold(crew)
        self._selftest = run_selftest(self)
        for remark in self._plan.notes:
            warnings.warn(remark, PtynbWarning, stacklevel=5)

    def _at_exit(self) -> None:
        """Where a run is under way and somebody may come back to it, it goes on."""
        with contextlib.suppress(ClusterError):
            if self._lease > 0 and any(self.call_all(self.alive(), registry.at_work, [()] * len(self.alive()), 5.0)):
                return
        self.stop()

    def stop(self) -> None:
        """Ends engines and controller and removes their files; does nothing where none run."""
        self._errands.run(self._stop)

    def _stop(self) -> None:
        atexit.unregister(self._at_exit)
        crew = self._crew
        if crew is not None:
            _held.pop(crew.folder, None)
            crew.end()
        self._crew = None

    def status(self) -> list[dict[str, Any]]:
        """What each engine says it is: rank, process id, device, threads, torch version; in order of ranks."""
        return [
            {**self.call(engine.rank, registry.describe), "identity": engine.identity} for engine in self.plan.engines
        ]

    def held_bytes(self) -> int:
        """Memory of the engines' processes that no other process shares: what their next reconstruction may use."""
        return 0 if self._crew is None else self._crew.held_bytes()

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
        return self._running_crew().call_all(ranks, function, arguments, timeout)

    def alive(self) -> list[int]:
        """Ranks whose engines can be reached."""
        return [] if self._crew is None else self._crew.alive()

    def why_lost(self, rank: int) -> str:
        """Why the engine of this rank is known to be gone; empty while it is not, or where the cluster is stopped."""
        return "" if self._crew is None else self._crew.why_lost(rank)

    def logs(self) -> list[Path]:
        """The files that its processes write to; they are removed when it is stopped."""
        return [] if self.folder is None else sorted((self.folder / "log").glob("*.log"))

    def held(self, rank: int) -> str:
        """A sentence where a signal holds this rank's process or the controller's, so that nothing answers; or ""."""
        return "" if self._crew is None else self._crew.held(rank)

    def kill(self, rank: int) -> None:
        """Ends an engine that does not listen to anything else."""
        self._running_crew().launcher.kill(rank)

    @property
    def ended_from_outside(self) -> bool:
        """Whether `ptynb stop` ends it, or has ended it."""
        return self._crew is not None and self._crew.ended_from_outside

    def replace_lost(self) -> None:
        """Starts an engine in the place of each that is lost; those that don't come in time stay lost."""
        with self._replacing:  # several reconstructions may each have lost one
            self._running_crew().replace_lost(self._lease)

    def complete(self) -> None:
        """Replaces engines that are lost. Raises ClusterError where one can't be had."""
        self.replace_lost()
        if missing := sorted({*range(len(self))} - {*self.alive()}):
            raise ClusterError(
                f"The engines of ranks {missing} are lost, and no others came in their place; stop() the cluster and "
                f"start() it, or start one with fewer engines. {self.why_lost(missing[0])}"
            )

    def open_store(self, rank: int) -> str:
        """Where the engines of one group will meet, rank's being the first."""
        return self._running_crew().open_store(rank)

    def close_store(self, store: str) -> None:
        """Removes what is left of it; one that an engine serves ends with its group."""
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
        """How gradients travel, and how fast."""
        if len(self) == 1:
            return ""
        bandwidth = None if self._selftest is None else self._selftest.bandwidth
        speed = "" if bandwidth is None else f" ({gigabytes(bandwidth)}/s)"
        return f", {self.plan.reason or self.plan.backend}{speed}"


def rejoining(described: dict[str, Any], plan: ClusterPlan) -> Launch:
    """Makes the launcher of a cluster that runs already, from what its file says."""
    match described["kind"]:
        case "local":
            return lambda name, folder: LocalLauncher(plan, name, folder)
        case "ssh":
            return lambda name, folder: SshLauncher.again(plan, described, name, folder)
        case "slurm":
            return lambda name, folder: SlurmLauncher.again(described, name, folder)
        case kind:
            raise ClusterError(f"A cluster of the kind {kind!r} can't be joined by this version of ptynb.")


def _in_notebook() -> bool:
    """Whether this process is a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")
