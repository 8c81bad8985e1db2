"""Main program of an engine's process: `python -m ptynb.cluster.engine_main FOLDER`, or `-` instead of the folder.

With `-` the connection (JSON, as written by ipyparallel's controller) is read from standard input, so that its keys
are in no file, command line or environment of a machine other than the notebook's.

The environment determines rank and device, and is completed before torch is loaded, which reads it once:

PTYNB_RANK, or SLURM_PROCID               rank of the engine in the cluster
PTYNB_CORES                               cores of the CPU, if the engine has a NUMA node of its own
CUDA_VISIBLE_DEVICES, SLURM_LOCALID       the GPU: the only visible one, or of several that of this task (or of the
                                          task that this one replaces: PTYNB_LOCALID)

The process ends on TERM, on request of the cluster, if the controller has ended, or if no process holds the cluster
any more (`ptynb.engine.keepalive`); a checkpoint of its reconstruction is written before.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import socket
import sys
import tempfile
from collections.abc import MutableMapping
from pathlib import Path
from urllib.parse import urlsplit

from ptynb.cluster import direct_calls
from ptynb.cluster.addresses import ADDRESS, environment_towards
from ptynb.cluster.launchers.slurm_commands import own_gpu
from ptynb.cluster.lifetime.watchdog import rank_of
from ptynb.cluster.runtime_dir import engine_file
from ptynb.exceptions import InvalidValueError
from ptynb.polling import wait_until

CONNECTION_SECONDS = 60.0
"""Time limit for the connection file of the controller [s]."""
REGISTRATION_SECONDS = 60.0
"""Time limit for the controller's answer [s]: a busy machine may start many engines at the same time."""
REMEMBERED_SIGNATURES = 4096
"""Number of message signatures stored against replays: by default 65,536 in each process, 10 MB."""
MISSED_BEATS = 20
"""Missed heartbeats of the controller after which an engine ends, if nothing listens at its address either."""
M_ARENA_MAX, MOST_ARENAS = -8, 2
"""Number of the option in malloc.h, and its value."""
CONNECT_SECONDS = 3.0
"""Time limit of a connection to the controller [s]."""
LOOP_STOPPED = "Event loop stopped before Future completed"
"""Error message of Tornado when ipyparallel ends its loop normally, as on TERM (seen with ipykernel 7.4)."""


def complete(environment: MutableMapping[str, str]) -> None:
    """Add the variables to an engine's environment that follow from the others.

    Raises ValueError if neither PTYNB_RANK nor SLURM_PROCID is set, or if the engine has no GPU of its own.
    """
    rank = rank_of(environment)
    if rank is None:
        raise InvalidValueError(
            "Neither PTYNB_RANK nor SLURM_PROCID is set; an engine is started by a ptynb.Cluster.",
            code="argument.missing",
        )
    environment["PTYNB_RANK"] = rank
    if (cores := environment.get("PTYNB_CORES")) and hasattr(os, "sched_setaffinity"):
        # Memory belongs to the NUMA node of the thread that first writes it, so the engine has to stay there.
        os.sched_setaffinity(0, [int(core) for core in cores.split(",")])
    if "SLURM_LOCALID" in environment and "PTYNB_GPU" not in environment:
        environment["CUDA_VISIBLE_DEVICES"] = own_gpu(environment)
        # Slurm numbers the files /dev/nvidia0, ...; CUDA counts from the fastest GPU unless it is told otherwise, and
        # would use the GPU of another job on a node with different ones.
        environment.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    threads = environment.get("OMP_NUM_THREADS") or environment.get("SLURM_CPUS_PER_TASK")
    if threads is not None:
        environment["OMP_NUM_THREADS"] = environment["MKL_NUM_THREADS"] = threads
    # numpy only renders pictures there; its threads would spin on the cores that torch uses.
    environment["OPENBLAS_NUM_THREADS"] = "1"


def share_memory_of_threads() -> None:
    """Let all threads allocate from few arenas, where the system is glibc's.

    It gives each thread one of up to 8 a core, and what is freed in one serves the others not: of a run that is begun
    and ended again and again, 100 kB each time in an engine that several threads serve, instead of 35.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):  # another C library; Windows has no library of all
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, MOST_ARENAS)


def connection(source: str) -> str:
    """Return the connection as JSON, from a cluster's folder or, for '-', from standard input.

    Waits for the file: controller and engines start at the same time, and a shared file system shows it late.
    """
    if source == "-":
        return sys.stdin.read()
    file = engine_file(Path(source))
    wait_until(lambda: is_whole(file), CONNECTION_SECONDS)
    return file.read_text(encoding="utf-8")


def is_whole(file: Path) -> bool:
    """Return whether a connection file is there, and written to its end."""
    try:
        return bool(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return False


def address_of(text: str) -> tuple[str, int]:
    """Return host and port on which the controller accepts engines."""
    described = json.loads(text)
    return urlsplit(described["interface"]).hostname or "", int(described["registration"])


def meet(environment: MutableMapping[str, str], host: str) -> None:
    """Add the address and interface on the route to the controller's host, for the engine's group.

    torch reads them when a group is formed. What the user has set stays.
    """
    if ADDRESS not in environment or "GLOO_SOCKET_IFNAME" not in environment:
        environment.update({**environment_towards(host), **environment})


def accepts(host: str, port: int) -> bool:
    """Whether a process listens there, which may be suspended; not if it has ended or the network is interrupted."""
    try:
        with socket.create_connection((host, port), CONNECT_SECONDS):
            return True
    except OSError:
        return False


def main(source: str) -> None:
    """Run an engine until it is requested to end."""
    complete(os.environ)
    share_memory_of_threads()
    from ipyparallel.engine.app import IPEngine

    class Engine(IPEngine):
        """An engine that continues while the controller is only suspended and sends no heartbeats."""

        _hb_missed_beats: int

        def _hb_monitor(self) -> None:
            if self._hb_missed_beats + 1 >= self.max_heartbeat_misses and accepts(*controller):
                self._hb_missed_beats = 0
            super()._hb_monitor()

    # Before registration: a registered engine can be used at once.
    from ptynb.engine import keepalive, run_registry

    text = connection(source)
    controller = address_of(text)
    meet(os.environ, controller[0])
    keepalive.begin()
    # These modules stay: to collect the garbage of a run takes 0.07 s without them, not 0.2, in which no thread runs.
    gc.freeze()
    # In the cluster's folder, if there is one: it is removed with the folder, however this process ends.
    place = None if source == "-" else source
    if place is not None:
        path = direct_calls.socket_of(Path(place), os.environ["PTYNB_RANK"])
        direct_calls.serve(path, run_registry.call_worker, run_registry.follow_worker)
    with tempfile.TemporaryDirectory(prefix="ptynb-engine-", dir=place, ignore_cleanup_errors=True) as own:
        os.environ["IPYTHONDIR"] = own  # otherwise its shell makes one in the user's home, as the umask allows
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
