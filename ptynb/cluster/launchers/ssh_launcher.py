"""Engines on other hosts by ssh: checks of the hosts, assignment of engines, start and end."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import json
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, final

import psutil

from ptynb.cluster.devices import GPU, ClusterPlan, EnginePlan, choose_backend, plan_cluster
from ptynb.cluster.launchers import host_probe
from ptynb.cluster.launchers.launcher import ProcessLauncher
from ptynb.cluster.lifetime import watchdog
from ptynb.cluster.lifetime.watchdog import ENGINES, MARK
from ptynb.cluster.runtime_dir import engine_file, engine_log
from ptynb.exceptions import ClusterError
from ptynb.settings.cluster_options import ClusterSection
from ptynb.text import counted, has_control_characters, quoted

ASK_SECONDS = 40.0
OPTIONS = (
    "BatchMode=yes",
    "ConnectTimeout=5",
    "ServerAliveInterval=2",
    "ServerAliveCountMax=3",
    "ControlMaster=no",
)
"""Without prompts; ssh ends if the host is silent for 6 s, and its engines are lost.
It may use a shared connection of the user, and never becomes one: `ptynb stop` would end it with the cluster."""
OWN_INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
"""Loopback in a plan for one machine; on a host the engine selects the one towards the controller."""
REMEDIES = (
    ("Registration timed out", "its engine cannot connect to the controller; check for a firewall between them"),
    ("REMOTE HOST IDENTIFICATION HAS CHANGED", "its host key has changed; check why, then run ssh-keygen -R {host}"),
    ("Host key verification failed", "its host key is not known here; connect once by hand: {by_hand}"),
    ("Permission denied", "it accepts none of your keys; install one: ssh-copy-id {host}"),
    ("Could not resolve hostname", "its name is not known here; check its spelling, or add it to ~/.ssh/config"),
    ("Connection refused", "no ssh server answers there; start it, or set the port in ~/.ssh/config"),
    ("No route to host", "there is no route to it; check that it is switched on and connected"),
    ("Network is unreachable", "there is no route to it; check that this machine is connected"),
    ("Connection timed out", "it does not answer; check that it is switched on and connected"),
    ("not responding", "it stopped answering; check that it is switched on and connected"),
    ("kex_exchange_identification", "its ssh server closed the connection; see its log"),
)
"""Messages of ssh, with cause and remedy."""
NOT_FOUND, SSH_FAILED = (126, 127), 255
HOST = re.compile(r"(ssh://)?(\w[\w.+@-]*@)?[\w:\[][\w.:%\]-]*/?")
"""Host names that cannot be parsed as options of ssh and contain no special characters of a shell."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Remote:
    """Connection to hosts, and the program there.

    ssh: the command with options. python: path of Python on the hosts. environment: additional variables of the
    engines; not for secrets, since it is part of a command line.
    """

    ssh: tuple[str, ...] = ("ssh",)
    python: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise ClusterError for values that would be parsed as options."""
        if not self.ssh or self.ssh[0].startswith("-") or any(map(has_control_characters, self.ssh)):
            raise ClusterError(
                f"ssh is {quoted(self.ssh)}; expected a command and its options, such as ('ssh', '-J', 'gate').",
                code="argument.invalid-value",
                fields=("ssh",),
            )
        if not self.python or self.python.startswith("-") or "=" in self.python or has_control_characters(self.python):
            raise ClusterError(
                f"python is {quoted(self.python)}; expected a path, without '=', that does not begin with '-'.",
                code="argument.invalid-value",
                fields=("python",),
            )
        for name, value in self.environment.items():
            if not VARIABLE.fullmatch(name) or has_control_characters(str(value)):
                raise ClusterError(
                    f"environment has {quoted(name)}: {quoted(value)}; expected a name of letters, digits and '_', and "
                    "a value in one line.",
                    code="argument.invalid-value",
                )

    @classmethod
    def of(cls, options: ClusterSection, environment: Mapping[str, str] | None = None) -> Self:
        """Create the connection from options of `Cluster.ssh`."""
        return cls(
            ssh=("ssh",) if options.ssh is None else options.ssh,
            python=options.python or sys.executable,
            environment=dict(environment or {}),
        )

    def command(self, host: str, environment: Mapping[str, str], *arguments: str) -> list[str]:
        """Return the command that starts Python on a host."""
        options = [word for option in OPTIONS for word in ("-o", option)]
        given = [f"{name}={value}" for name, value in {**self.environment, **environment}.items()]
        remote = shlex.join(["exec", "env", *given, self.python, *arguments])
        return [*self.ssh, "-T", *options, "--", host, remote]

    def by_hand(self, host: str) -> str:
        """Return the command for a user to test the connection."""
        return shlex.join([*self.ssh, host])


@dataclass(frozen=True)
class Host:
    """A host by its name for ssh, with the answers of `host_probe`."""

    name: str
    answers: Mapping[str, Any]


def ask_hosts(names: Sequence[str], remote: Remote) -> tuple[Host, ...]:
    """Query all hosts at the same time.

    Raises ClusterError if one cannot be reached, lacks ptynb, or has other versions than this machine.
    """
    for name in names:
        if not HOST.fullmatch(name):
            raise ClusterError(
                f"hosts has {quoted(name)}; expected a name for ssh, of letters, digits and . _ : @ - (not first); "
                "define such a name in ~/.ssh/config.",
                code="argument.invalid-value",
                fields=("hosts",),
            )
    with ThreadPoolExecutor(len(names)) as pool:
        hosts = tuple(pool.map(lambda name: _ask(name, remote), names))
    for host in hosts:
        _check_versions(host, remote)
    return hosts


def _ask(name: str, remote: Remote) -> Host:
    command = remote.command(name, {}, "-")
    try:
        done = subprocess.run(
            command, input=Path(host_probe.__file__).read_bytes(), capture_output=True, timeout=ASK_SECONDS, check=False
        )
    except FileNotFoundError:
        raise ClusterError(
            f"The command {remote.ssh[0]!r} is missing; install OpenSSH.",
            code="ssh.not-installed",
            fields=("ssh",),
        ) from None
    except subprocess.TimeoutExpired:
        message = f"{name} did not answer within {ASK_SECONDS:g} s; try by hand: {remote.by_hand(name)}"
        raise ClusterError(message, code="ssh.unreachable", fields=("hosts",)) from None
    for line in done.stdout.decode(errors="replace").splitlines():
        if line.startswith(host_probe.MARK):
            return Host(name, json.loads(line.removeprefix(host_probe.MARK)))
    raise ClusterError(
        explain(name, remote, done.returncode, done.stderr.decode(errors="replace")),
        code="ssh.unreachable",
        fields=("python",) if done.returncode in NOT_FOUND else ("hosts",),
    )


def explain(host: str, remote: Remote, status: int, said: str) -> str:
    """Return host, cause and remedy of a failed ssh command."""
    if status == SSH_FAILED:
        for words, remedy in REMEDIES:
            if words in said:
                return f"{host} cannot be used: {remedy.format(host=host, by_hand=remote.by_hand(host))}."
    if status in NOT_FOUND:
        return f"{host} has no Python at {remote.python}; set the path: Cluster.ssh(..., python=...)."
    lines = [line for line in said.splitlines() if line.strip()]
    last = f": {lines[-1].strip()}" if lines else ""
    ended = f"ssh ended with status {status}"
    return f"{host} did not answer as expected ({ended}){last}; try by hand: {remote.by_hand(host)}"


def _check_versions(host: Host, remote: Remote) -> None:
    here = {package: importlib.metadata.version(package) for package in host_probe.PACKAGES}
    here["python"] = ".".join(platform.python_version_tuple()[:2])
    for package, own in here.items():
        there = host.answers[package]
        expected = own.partition("+")[0]  # a build for another device (2.13.0+cu126) is the same version
        if there is None:
            raise ClusterError(
                f"{host.name} has no {package} for {remote.python}; install it there "
                f"({remote.python} -m pip install {package}=={expected}), or use another Python: "
                "Cluster.ssh(..., python=...).",
                code="ssh.version-mismatch",
                fields=("python",),
            )
        if there.partition("+")[0] != expected:
            raise ClusterError(
                f"{host.name} has {package} {there}, and this machine has {own}; expected the same version.",
                code="ssh.version-mismatch",
                fields=("python",),
            )


def place_engines(
    hosts: Sequence[Host], counts: Mapping[str, int | None], device: str, threads: int | None
) -> tuple[ClusterPlan, tuple[str, ...]]:
    """Return the engines of all hosts, with ranks in the order of the hosts, and the host of each.

    counts: engines by host; None: one per GPU, or on the CPU one per NUMA node. Raises ClusterError if the request
    cannot be met, or if some hosts have GPUs and others not.
    """
    engines: list[EnginePlan] = []
    homes: list[str] = []
    for host in hosts:
        if device != "cpu" and host.answers["gpu_problem"]:
            raise ClusterError(f"On {host.name}: {host.answers['gpu_problem']}", code="gpu.driver-failed")
        gpus = () if device == "cpu" else tuple(GPU(**gpu) for gpu in host.answers["gpus"])
        try:
            plan = plan_cluster(
                counts[host.name], device, gpus, host.answers["cores"], threads, nodes=host.answers["numa_nodes"]
            )
        except ClusterError as error:
            raise error.retold(ClusterError, f"On {host.name}: {error}") from None
        for engine in plan.engines:
            environment = {name: value for name, value in engine.environment.items() if name not in OWN_INTERFACES}
            rank = len(engines)
            environment |= {"PTYNB_RANK": str(rank), "PTYNB_GPU": "chosen"}
            identity = f"{host.name}: {engine.identity}"
            engines.append(dataclasses.replace(engine, rank=rank, identity=identity, environment=environment))
            homes.append(host.name)
    kinds = {home: engine.kind for home, engine in zip(homes, engines, strict=True)}
    without = [home for home, kind in kinds.items() if kind == "CPU"]
    if without and len(without) < len(kinds):
        raise ClusterError(
            f"{' and '.join(without)} would compute on the CPU and others on GPUs; omit them.",
            code="cluster.mixed-devices",
        )
    backend = _choose_backend(hosts, len(engines), 0 if without else len(engines))
    return ClusterPlan(tuple(engines), *backend), tuple(homes)


def _choose_backend(hosts: Sequence[Host], engines: int, gpus: int) -> tuple[str, str, tuple[str, ...]]:
    """Return the backend that all hosts have, the reason, and notes: this machine may be another system than they."""
    for host in hosts:
        backend, reason, notes = choose_backend(engines, gpus, host.answers["platform"], host.answers["nccl"])
        if backend != "nccl":
            break
    return backend, reason, tuple(f"On {host.name}: {note}" for note in notes)


@final
class SshLauncher(ProcessLauncher):
    """Engines on hosts, with one ssh process here for each. homes: the host of each rank."""

    kind, here = "ssh", False

    def __init__(self, plan: ClusterPlan, homes: Sequence[str], remote: Remote, name: str, folder: Path) -> None:
        super().__init__(plan, name, folder)
        self._homes, self._remote = homes, remote
        self._started: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, ranks: Sequence[int]) -> None:
        """Start all at the same time, with the connection file of the controller on the standard input."""
        connection = engine_file(self._folder).read_bytes()
        for rank in ranks:
            environment = {**self._plan.engines[rank].environment, MARK: self._name}
            command = self._remote.command(self._homes[rank], environment, "-m", "ptynb.cluster.engine_main", "-")
            self._started[rank] = process = self._begin(rank, command, stdin=subprocess.PIPE)
            assert process.stdin is not None
            with process.stdin:  # fits into the buffer of a pipe, so the write does not block
                process.stdin.write(connection)

    @classmethod
    def again(cls, plan: ClusterPlan, described: Mapping[str, Any], name: str, folder: Path) -> Self:
        """Return the launcher of a running cluster, from `describe`."""
        remote = {**described["remote"], "ssh": tuple(described["remote"]["ssh"])}
        return cls(plan, described["homes"], Remote(**remote), name, folder)

    def describe(self) -> dict[str, Any]:
        """Return the hosts, how to reach them, and the ssh processes."""
        pids = {str(rank): process.pid for rank, process in self._processes.items()}
        return {"homes": [*self._homes], "remote": dataclasses.asdict(self._remote), "ssh_processes": pids}

    def join(self, processes: Mapping[int, int], described: Mapping[str, Any]) -> None:
        """Take over the ssh processes."""
        for rank, pid in described["ssh_processes"].items():
            with contextlib.suppress(psutil.NoSuchProcess):
                self._processes[int(rank)] = psutil.Process(pid)

    def kill(self, rank: int) -> None:
        """End the ssh process, and then the engine on its host."""
        self._processes[rank].kill()
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            sweep = self._sweep(self._homes[rank], str(rank))
            subprocess.run(sweep, timeout=ASK_SECONDS, check=False, capture_output=True)

    def _sweep(self, host: str, *rank: str) -> list[str]:
        """Return the command that ends the engines on a host, or one of them."""
        return self._remote.command(host, {}, "-P", "-m", watchdog.__name__, ENGINES, self._name, *rank)

    def news(self) -> str:
        """Return the hosts that are starting engines."""
        return f"{counted(len(self._homes), 'engine')} starting on {', '.join(dict.fromkeys(self._homes))}"

    def failed(self) -> str:
        """Return why ssh could not start an engine."""
        for rank, process in self._started.items():
            if process.poll() in (SSH_FAILED, *NOT_FOUND):
                said = engine_log(self._folder, rank).read_text(encoding="utf-8", errors="replace")
                return explain(self._homes[rank], self._remote, process.returncode, said)
        return ""

    def record(self) -> dict[str, Any]:
        """Return the ssh processes here, and for each host the command that ends its engines."""
        hosts = dict.fromkeys(self._homes if self._processes else ())
        return {**super().record(), "end": [self._sweep(host) for host in hosts]}
