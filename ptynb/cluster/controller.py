"""The controller of a cluster: the process that connects the notebook and its engines."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

import psutil

from ptynb.cluster.engine_main import REMEMBERED_SIGNATURES, is_whole
from ptynb.cluster.error_messages import log_end, summarize
from ptynb.cluster.launchers.launcher import begin
from ptynb.cluster.runtime_dir import client_file, engine_file
from ptynb.exceptions import ClusterError
from ptynb.polling import wait_until

LOOPBACK = "127.0.0.1"
EVERYWHERE = ("", "*", "0.0.0.0", "::")
SETTINGS = "ipcontroller_config.py"
BEAT_SECONDS = 0.25
"""Period of the heartbeats [s]. An engine is registered at the second one after it has connected."""
MISSED_BEATS_BEYOND, MISSED_BEATS_HERE = 20, 10**7
"""Missed heartbeats after which an engine is lost. On one machine its process is checked instead, so that a suspended
one (a debugger, a stopped job) is not lost."""


def start_controller(name: str, folder: Path, address: str = LOOPBACK) -> subprocess.Popen[bytes]:
    """Start the controller, which listens on one address; messages to other machines are encrypted (CURVE).

    Raises ClusterError for a wildcard address.
    """
    if address in EVERYWHERE:
        raise ClusterError(
            f"address is {address!r}; expected one address of this machine to which engines connect.",
            code="argument.invalid-value",
        )
    beyond = address != LOOPBACK
    misses = MISSED_BEATS_BEYOND if beyond else MISSED_BEATS_HERE
    command = [
        *(sys.executable, "-P", "-m", "ipyparallel.controller"),
        f"--profile-dir={folder}",
        f"--ip={address}",
        f"--location={address}",
        "--nodb",
        f"--Session.digest_history_size={REMEMBERED_SIGNATURES}",
        f"--HeartMonitor.period={int(1000 * BEAT_SECONDS)}",
        f"--HeartMonitor.max_heartmonitor_misses={misses}",
    ]
    if beyond:
        _encrypt(folder)
    return begin(command, name, folder / "log" / "controller.log")


def _encrypt(folder: Path) -> None:
    """Configure encryption, and signatures, which the controller omits by default if it encrypts.

    The key is passed in a file that only this user can read, not on a command line.
    """
    settings = f"c.IPController.enable_curve = True\nc.Session.key = {secrets.token_hex(32).encode()!r}\n"
    with open(folder / SETTINGS, "x", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(settings)


def await_controller(process: subprocess.Popen[bytes], folder: Path, timeout: float) -> None:
    """Wait for the connection files. Raises ClusterError if the controller ended, or TimeoutError."""

    def is_there() -> bool:
        if all(is_whole(file) for file in (engine_file(folder), client_file(folder))):
            return True
        if process.poll() is not None:
            logs = [folder / "log" / "controller.log"]
            message = f"The controller of the cluster ended with status {process.returncode}.{log_end(logs)}"
            raise ClusterError(summarize(message, logs=logs), code="cluster.start-failed")
        return False

    if not wait_until(is_there, timeout):
        raise TimeoutError


def listed(controller: psutil.Process) -> list[list[float]]:
    """Return the controller and its schedulers as [process id, start time]."""
    return [[one.pid, one.create_time()] for one in (controller, *controller.children(recursive=True))]
