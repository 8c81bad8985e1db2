"""Hosts for tests: network namespaces with cables and a switch between them, and an ssh server in some.

    head 10.77.0.1   one 10.77.0.2   two 10.77.0.3     (and fd77::1 to 3)
      |                |               |
      +------------- switch -----------+               (a namespace of its own with a bridge: it sees all that passes)

What runs on a host has the host's own name and /etc/hosts, where as on Debian that name means 127.0.1.1. Files are
shared with the test, as on a common file system. What ssh starts on a host sees the processes of that host only.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

ADDRESSES = {"head": "10.77.0.1", "one": "10.77.0.2", "two": "10.77.0.3"}
ADDRESSES_6 = {"head": "fd77::1", "one": "fd77::2", "two": "fd77::3"}
ENGINE_HOSTS = ("one", "two")
SWITCH = "switch"
PREFIX = "ptynb-test-"
ANSWER_SECONDS = 60
ROOT = Path(__file__).resolve().parents[2]

SSHD = """
Port 22
ListenAddress {address}
HostKey {folder}/key-{host}
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UsePAM no
MaxStartups 100
LogLevel VERBOSE
"""

SSH = """
Host one two
  User {user}
  IdentityFile {folder}/key-user
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile none
  StrictHostKeyChecking yes
"""


def command(*words: str) -> str:
    """Runs a command of the system; what it printed."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


def wait_until(true: Callable[[], Any], seconds: float, what: str) -> Any:
    """What `true` returns as soon as that is something."""
    until = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < until, f"not within {seconds} s: {what}"
        time.sleep(0.02)
    return found


class Hosts:
    """Three hosts and their network; `close` ends everything that runs on them and removes them."""

    def __init__(self) -> None:
        assert os.geteuid() == 0, "tests with several hosts make network namespaces: run them as root"
        _remove_those_of_dead_tests()
        self._name = f"{PREFIX}{os.getpid()}"
        self.folder = Path(tempfile.mkdtemp(prefix=f"{self._name}-"))
        self._made_run_folder = not Path("/run/sshd").exists()
        self._servers: list[subprocess.Popen[bytes]] = []
        try:
            self._lay_cables()
            self._start_servers()
        except BaseException:
            self.close()
            raise

    def namespace(self, host: str) -> str:
        return f"{self._name}-{host}"

    def _lay_cables(self) -> None:
        for host in (SWITCH, *ADDRESSES):
            command("ip", "netns", "add", self.namespace(host))
            command("ip", "-n", self.namespace(host), "link", "set", "lo", "up")
        switch = self.namespace(SWITCH)
        command("ip", "-n", switch, "link", "add", "bridge", "type", "bridge", "stp_state", "0")
        command("ip", "-n", switch, "link", "set", "bridge", "up")
        for host, address in ADDRESSES.items():
            own = self.namespace(host)
            ends = ["link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", own]
            command("ip", "-n", switch, *ends)
            command("ip", "-n", switch, "link", "set", host, "master", "bridge", "up")
            command("ip", "-n", own, "addr", "add", f"{address}/24", "dev", "eth0")
            command("ip", "-n", own, "addr", "add", f"{ADDRESSES_6[host]}/64", "dev", "eth0", "nodad")
            command("ip", "-n", own, "link", "set", "eth0", "up")
        for host in (SWITCH, *ADDRESSES):
            lines = ["127.0.0.1 localhost", "::1 localhost", f"127.0.1.1 {host}"]
            lines += [f"{there} {name}" for name, there in ADDRESSES.items() if name != host]
            (self.folder / f"hosts-{host}").write_text("\n".join(lines) + "\n")

    def _start_servers(self) -> None:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        for key in ("user", *ENGINE_HOSTS):
            command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(self.folder / f"key-{key}"))
        shutil.copy(self.folder / "key-user.pub", self.folder / "authorized_keys")
        known = [f"{host} {(self.folder / f'key-{host}.pub').read_text()}" for host in ENGINE_HOSTS]
        (self.folder / "known_hosts").write_text("".join(known))
        (self.folder / "ssh_config").write_text(SSH.format(folder=self.folder, user=getpass.getuser()))
        sshd = shutil.which("sshd") or "/usr/sbin/sshd"
        for host in ENGINE_HOSTS:
            settings = self.folder / f"sshd_config-{host}"
            settings.write_text(SSHD.format(folder=self.folder, host=host, address=ADDRESSES[host]))
            with (self.folder / f"sshd-{host}.log").open("wb") as log:
                own_processes = ("unshare", "--pid", "--fork", "--mount-proc")
                serving = [*own_processes, sshd, "-D", "-e", "-f", str(settings)]
                self._servers.append(self.start(host, *serving, stdout=log, stderr=log))
        for host in ENGINE_HOSTS:
            text = self.folder / f"sshd-{host}.log"
            wait_until(lambda text=text: "listening" in text.read_text(), 10, f"ssh server on {host}")

    @property
    def ssh(self) -> list[str]:
        """The ssh command with which `one` and `two` are reached, from any host."""
        return ["ssh", "-F", str(self.folder / "ssh_config"), "-o", "BatchMode=yes", "-o", "ConnectTimeout=2"]

    def words(self, host: str, *words: str) -> list[str]:
        """The command that runs these words on a host."""
        inside = f'hostname {host} && mount --bind {self.folder}/hosts-{host} /etc/hosts && exec "$@"'
        namespace = ["ip", "netns", "exec", self.namespace(host)]
        return [*namespace, "unshare", "--uts", "--mount", "sh", "-c", inside, "sh", *words]

    def start(self, host: str, *words: str, **how: Any) -> subprocess.Popen[Any]:
        """Starts a process on a host."""
        return subprocess.Popen(self.words(host, *words), **how)

    def python(self, host: str, script: Path, *arguments: str, **how: Any) -> subprocess.Popen[str]:
        """Starts a script on a host, with this Python and this package; its output is captured, errors with it."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "JUPYTER_RUNTIME_DIR": str(self.folder / "runtime"),
        }
        how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": environment, **how}
        return self.start(host, sys.executable, str(script), *arguments, **how)

    def notebook(self) -> Far:
        """A new one on the head."""
        return Far(self, "head", Path(__file__).with_name("notebook.py"), json.dumps(self.ssh))

    def cut(self, host: str) -> None:
        """Pulls the host's cable out of the switch: nothing arrives, nobody is told."""
        command("ip", "-n", self.namespace(SWITCH), "link", "set", host, "down")

    def mend(self, host: str) -> None:
        command("ip", "-n", self.namespace(SWITCH), "link", "set", host, "up")

    def processes(self, host: str) -> list[psutil.Process]:
        """What runs on a host, its ssh server aside."""
        found = []
        for pid in command("ip", "netns", "pids", self.namespace(host)).split():
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(int(pid))
                if process.name() not in ("sshd", "unshare") and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def engines(self) -> list[psutil.Process]:
        """What runs on the hosts beyond the head."""
        return [process for host in ENGINE_HOSTS for process in self.processes(host)]

    def listening(self, host: str) -> set[tuple[str, int]]:
        """(address, port) of every TCP socket that waits for connections on a host, as `ss` tells."""
        found = set()
        for line in self.run(host, "ss", "-H", "-l", "-t", "-n").splitlines():
            address, port = line.split()[3].rsplit(":", 1)
            found.add((re.sub(r"%.*", "", address.strip("[]")), int(port)))
        return found

    def run(self, host: str, *words: str) -> str:
        return command(*self.words(host, *words))

    def close(self) -> None:
        for host in (SWITCH, *ADDRESSES):
            _remove_namespace(self.namespace(host))
        for server in self._servers:
            server.wait(10)
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._made_run_folder:
            with contextlib.suppress(OSError):
                Path("/run/sshd").rmdir()


class Far:
    """A script on a host that takes commands: lines of JSON, [method, argument ...], each answered by another."""

    def __init__(self, hosts: Hosts, host: str, script: Path, *arguments: str, **how: Any) -> None:
        self._process = hosts.python(host, script, *arguments, stdin=subprocess.PIPE, **how)
        self._read("READY")

    def _read(self, first: str) -> str:
        assert self._process.stdout is not None
        lines = []
        silence = threading.Timer(ANSWER_SECONDS, self._process.kill)
        silence.start()
        try:
            while not (line := self._process.stdout.readline()).startswith(first):
                lines.append(line)
                assert line, f"it ended, or was silent for {ANSWER_SECONDS} s: {''.join(lines)}"
        finally:
            silence.cancel()
        return line.removeprefix(first)

    def ask(self, method: str, *arguments: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([method, *arguments]) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        return json.loads(self._read("ANSWER"))

    def call(self, method: str, *arguments: Any) -> Any:
        self.ask(method, *arguments)
        return self.answer()

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def _remove_namespace(name: str) -> None:
    if name not in _namespaces():
        return
    for pid in command("ip", "netns", "pids", name).split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    wait_until(lambda: not command("ip", "netns", "pids", name), 10, f"the processes of {name} end")
    command("ip", "netns", "delete", name)


def _namespaces() -> list[str]:
    return [line.split()[0] for line in command("ip", "netns", "list").splitlines() if line]


def _remove_those_of_dead_tests() -> None:
    """Of a test run that was killed before it could clean up."""
    for name in _namespaces():
        if (match := re.fullmatch(rf"{PREFIX}(\d+)-\w+", name)) and not psutil.pid_exists(int(match[1])):
            _remove_namespace(name)
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        match = re.match(rf"{PREFIX}(\d+)-", folder.name)
        if match and not psutil.pid_exists(int(match[1])):
            shutil.rmtree(folder, ignore_errors=True)
