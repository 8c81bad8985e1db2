"""What an engine's process runs: `python -m ptynb.cluster.engine_main FOLDER`, or `-` in place of the cluster's folder.

With `-` the connection (JSON, as ipyparallel's controller writes it) comes on the standard input, so that its keys are
in no file, no command line and no environment of a machine that the notebook does not run on.

The environment decides rank and device, and is completed before torch loads, which reads it once:

PTYNB_RANK, or SLURM_PROCID               which engine of the cluster this is
CUDA_VISIBLE_DEVICES, SLURM_LOCALID       the GPU: the only visible one, or of several the one of this task (or of the
                                          one that it takes the place of: PTYNB_LOCALID)

The process ends by TERM, when told to by the cluster, when the controller is gone, or when nobody holds it any more
(`ptynb.engine.keepalive`); what it reconstructs is kept before.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import MutableMapping
from pathlib import Path
from urllib.parse import urlsplit

from ptynb.cluster.addresses import environment_towards
from ptynb.cluster.launchers.slurm_commands import own_gpu
from ptynb.exceptions import InvalidValueError

CONNECTION_SECONDS = 60.0
"""How long an engine waits for the file that says where the controller is."""
REGISTRATION_SECONDS = 60.0
"""How long an engine waits for the controller's answer: a busy machine starts many at the same time."""
REMEMBERED_SIGNATURES = 4096
"""Of messages, against repeated ones: by default 65,536 in each process, 10 MB."""
MISSED_BEATS = 10
"""An engine leaves after so many heartbeats of the controller that did not come, where nothing listens there either."""
CONNECT_SECONDS = 3.0
"""How long it waits for a connection to it."""
LOOP_STOPPED = "Event loop stopped before Future completed"
"""Tornado's complaint where ipyparallel ends its loop in order, as it does on TERM (seen with ipykernel 7.4)."""


def complete(environment: MutableMapping[str, str]) -> None:
    """Adds to an engine's environment what follows from the rest of it.

    Raises ValueError where neither PTYNB_RANK nor SLURM_PROCID says which engine this is, or has no GPU of its own.
    """
    rank = environment.get("PTYNB_RANK") or environment.get("SLURM_PROCID")
    if rank is None:
        raise InvalidValueError(
            "Neither PTYNB_RANK nor SLURM_PROCID is set; an engine is started by a ptynb.Cluster.",
            code="argument.missing",
        )
    environment["PTYNB_RANK"] = rank
    if "SLURM_LOCALID" in environment and "PTYNB_GPU" not in environment:
        environment["CUDA_VISIBLE_DEVICES"] = own_gpu(environment)
    threads = environment.get("OMP_NUM_THREADS") or environment.get("SLURM_CPUS_PER_TASK")
    if threads is not None:
        environment["OMP_NUM_THREADS"] = environment["MKL_NUM_THREADS"] = threads
    # numpy only makes pictures there; its threads would wait, spinning, on the cores that torch computes on.
    environment["OPENBLAS_NUM_THREADS"] = "1"


def connection(source: str) -> str:
    """The connection as JSON, from a cluster's folder or, for '-', from the standard input.

    Waits for the file: controller and engines start at the same time, and a shared file system shows it late.
    """
    if source == "-":
        return sys.stdin.read()
    file = Path(source) / "security" / "ipcontroller-engine.json"
    until = time.monotonic() + CONNECTION_SECONDS
    while True:
        try:
            text = file.read_text()
            json.loads(text)
        except (OSError, ValueError):
            if time.monotonic() > until:
                raise
            time.sleep(0.02)
        else:
            return text


def address_of(text: str) -> tuple[str, int]:
    """Host and port on which the controller accepts engines, by the connection."""
    described = json.loads(text)
    return urlsplit(described["interface"]).hostname or "", int(described["registration"])


def meet(environment: MutableMapping[str, str], host: str) -> None:
    """Adds on which interface and address this engine's group meets: where the way to the controller's host begins.

    torch reads it when a group is formed.
    """
    if "GLOO_SOCKET_IFNAME" not in environment:
        environment.update(environment_towards(host))


def accepts(host: str, port: int) -> bool:
    """Whether a process listens there: one that is stopped still does, one that ended or whose cable is cut doesn't."""
    try:
        with socket.create_connection((host, port), CONNECT_SECONDS):
            return True
    except OSError:
        return False


def main(source: str) -> None:
    """Runs an engine until it is told to end."""
    complete(os.environ)
    from ipyparallel.engine.app import IPEngine

    class Engine(IPEngine):
        """Stays while the controller is only stopped, though it sends no heartbeats."""

        _hb_missed_beats: int

        def _hb_monitor(self) -> None:
            if self._hb_missed_beats + 1 >= self.max_heartbeat_misses and accepts(*controller):
                self._hb_missed_beats = 0
            super()._hb_monitor()

    # Before registering: who sees the engine in the cluster can use it at once.
    from ptynb.engine import keepalive

    text = connection(source)
    controller = address_of(text)
    meet(os.environ, controller[0])
    keepalive.begin()
    # In the cluster's folder, where there is one: it is removed with that, however this process ends.
    place = None if source == "-" else source
    with tempfile.TemporaryDirectory(prefix="ptynb-engine-", dir=place, ignore_cleanup_errors=True) as own:
        try:
            Engine.launch_instance(
                argv=[f"--profile-dir={own}", f"--Session.digest_history_size={REMEMBERED_SIGNATURES}"],
                connection_info_env=text,
                timeout=REGISTRATION_SECONDS,
                max_heartbeat_misses=MISSED_BEATS,
            )
        except RuntimeError as error:
            if LOOP_STOPPED not in str(error):
                raise
        finally:
            keepalive.leave()


if __name__ == "__main__":
    main(sys.argv[1])
