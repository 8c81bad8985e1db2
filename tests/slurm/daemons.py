"""A real Slurm of two nodes (and one that is aside) on this machine: its own munged, slurmctld and slurmd, in one
folder, for as long as they are needed. No systemd, no cgroups, no accounting, and no user but the present one.
"""

from __future__ import annotations

import getpass
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil

NODES = ("n1", "n2")
PARTITIONS = "long,short"
CPUS = 8
"""Of each node, whatever the machine has."""
PRETENDED_GPUS = ("/dev/null", "/dev/zero")
"""Of each node: Slurm wants devices, hands out their numbers, and never opens them."""
START_SECONDS = 40.0

CONFIGURATION = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=bf_interval=1,batch_sched_delay=1
SlurmdParameters=config_overrides
GresTypes=gpu
ReturnToService=2
SlurmdTimeout=300
KillWait=1
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs={cpus} RealMemory=4000 Gres=gpu:{gpus}
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs={cpus} RealMemory=4000 Gres=gpu:{gpus}
PartitionName=long Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
NodeName=n3 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[3]} CPUs={cpus} RealMemory=4000
PartitionName=limited Nodes=n3 State=UP
PartitionName=short Nodes=n1,n2 MaxTime=10 State=UP
"""


class Slurm:
    """The daemons, children of this process, and the environment in which Slurm's commands find them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.chmod(0o755)
        host = socket.gethostname().split(".")[0]
        ports = free_ports(4)
        (folder / "slurm.conf").write_text(
            CONFIGURATION.format(
                host=host, ports=ports, folder=folder, cpus=CPUS, gpus=len(PRETENDED_GPUS), user=getpass.getuser()
            )
        )
        for gpu, device in enumerate(PRETENDED_GPUS):
            (folder / f"gpu{gpu}").symlink_to(device)
        (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-{len(PRETENDED_GPUS) - 1}]\n")
        (folder / "state").mkdir()
        key = folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(128))
        self.environment = {
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": f"{os.environ['PATH']}:/usr/sbin",
        }
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Starts the daemons and waits until both nodes are idle."""
        until = time.monotonic() + START_SECONDS
        socket_file = self.folder / "munge.socket"
        # No files beside the socket that other users could write are looked for: the folder may be below /tmp.
        options = [f"--{name}={self.folder}/munged.{name[:3]}" for name in ("pid-file", "log-file", "seed-file")]
        self._run("munged", "--foreground", "--force", f"--key-file={self.folder}/munge.key", *options,
                  f"--socket={socket_file}")  # fmt: skip
        self._until(socket_file.is_socket, until)
        self._run("slurmctld", "-D")
        for node in (*NODES, "n3"):
            self._run("slurmd", "-D", "-N", node)
        self._until(lambda: self.nodes_in("idle") == len(NODES), until)

    def nodes_in(self, state: str) -> int:
        """How many nodes are in this state."""
        return self.command("sinfo", "--noheader", "--Node", "--partition=long", "--format=%T").split().count(state)

    def command(self, *command: str) -> str:
        """What one of Slurm's commands prints; nothing where it fails."""
        return subprocess.run(
            command, env={**os.environ, **self.environment}, capture_output=True, text=True, timeout=30, check=False
        ).stdout

    def clear(self) -> None:
        """Cancels the jobs of both nodes and waits until both nodes are idle again."""
        for partition in PARTITIONS.split(","):
            self.command("scancel", f"--partition={partition}")
        self.command("scontrol", "update", f"nodename={','.join(NODES)}", "state=resume")
        self._until(lambda: self.nodes_in("idle") == len(NODES), time.monotonic() + 20)

    def stop(self) -> list[str]:
        """Ends the daemons and returns the command lines of processes that were left (and are ended now)."""
        for daemon in reversed(self._daemons):
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        left = [process for process in psutil.process_iter() if self._belongs(process)]
        names = [" ".join(process.cmdline()) for process in left]
        for process in left:
            process.kill()
        return names

    def _belongs(self, process: psutil.Process) -> bool:
        """Whether it was started by this Slurm: its nodes' processes have other parents than this one."""
        try:
            own = process.environ().get("SLURM_CONF") == self.environment["SLURM_CONF"]
            return own and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False

    def _run(self, name: str, *arguments: str) -> None:
        program = shutil.which(name, path=self.environment["PATH"])
        assert program is not None, f"{name} is missing: install slurm-wlm and munge"
        with (self.folder / f"{name}.out").open("ab") as output:
            self._daemons.append(
                subprocess.Popen(
                    [program, *arguments],
                    env={**os.environ, **self.environment},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            )

    def _until(self, condition: Callable[[], bool], until: float) -> None:
        while not condition():
            for daemon in self._daemons:
                assert daemon.poll() is None, f"{daemon.args} ended:\n{self._outputs()}"
            assert time.monotonic() < until, f"too slow:\n{self.command('sinfo', '-N', '-l')}\n{self._outputs()}"
            time.sleep(0.1)

    def _outputs(self) -> str:
        return "\n".join(f"--- {file.name}\n{file.read_text()[-3000:]}" for file in sorted(self.folder.glob("*.out")))


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at now."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
