"""Rendezvous of the ranks of a group: a file on one machine, or a store that one process serves.

    file:///path         a file, on one machine
    tcp://address:port   a store served by `open_store`, usually on rank 0's machine; a new one for every group
    env://               variables of torchrun or Kubernetes pods: MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE

Neither stores nor messages between ranks are authenticated or encrypted: the network between them must be trusted. Our
stores listen on one address only; those of torch would listen on all.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from urllib.parse import urlsplit

import torch.distributed as dist

# The stores are public in torch but not declared as exported.
from torch.distributed import FileStore, PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from ptynb.exceptions import ClusterError, InvalidValueError
from ptynb.polling import PERIOD, wait_while

ADDRESS = "PTYNB_ADDRESS"
"""Environment variable of an engine: the address of its machine for the other engines."""
WAITING_CONNECTIONS = 1024
USE_LIBUV = sys.platform != "win32"
"""Whether stores use libuv, torch's default, which its builds for Windows lack."""

_served: dict[str, TCPStore] = {}
"""Stores that this process serves, by name."""
_groups = 0
"""Number of groups that this process has formed by `env://`, which share one store."""


def open_store(address: str | None = None) -> str:
    """Serve a store on a free port of this machine's `address` (None: PTYNB_ADDRESS) and return its "tcp://...".

    Called in one process, that of rank 0, before each group; served until `close_store`, or until the group that this
    process formed by it is closed. Raises ValueError if the address is not one of this machine.
    """
    address = address or os.environ.get(ADDRESS)
    assert address, "an engine of a cluster knows its address: ptynb.cluster.engine_main"
    try:
        waiting = _listen(address, 0)
    except OSError as error:
        raise InvalidValueError(
            f"A store cannot listen on {address}: {error}; use an address of this machine.",
            code="group.address-invalid",
        ) from None
    port = waiting.getsockname()[1]
    name = f"tcp://[{address}]:{port}" if ":" in address else f"tcp://{address}:{port}"
    _served[name] = _serve(waiting, address, port)
    return name


def close_store(store: str) -> None:
    """Close a store that this process serves; does nothing if there is none of this name."""
    _served.pop(store, None)


def find_store(store: str, rank: int, world: int, timeout: float) -> Store:
    """Connect to the store of this name. Raises InvalidValueError, and ClusterError if it does not answer."""
    global _groups
    if store.startswith("file:///"):
        return FileStore(store.removeprefix("file://"), world)
    url = urlsplit(store)
    if url.scheme == "tcp" and url.hostname and url.port:
        return _served.get(store) or _reach(url.hostname, url.port, timeout)
    if store == "env://":
        served = _store_of_environment(os.environ, rank, world, timeout)
        _groups += 1
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return PrefixStore(f"ptynb group {attempt}.{_groups}", served)
    raise InvalidValueError(
        f"The store is {store!r}; expected 'file:///path', 'tcp://address:port' or 'env://'.",
        code="argument.invalid-value",
    )


def _store_of_environment(environment: Mapping[str, str], rank: int, world: int, timeout: float) -> Store:
    """Return the store of torchrun if it serves one (and sets a variable); otherwise rank 0 serves it until it ends."""
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not environment.get(name)]
    if missing:
        raise InvalidValueError(
            f"{' and '.join(missing)} must be set for the ranks to find each other; start with torchrun, or set them.",
            code="group.address-invalid",
        )
    for name, own in (("RANK", rank), ("WORLD_SIZE", world)):
        if environment.get(name, str(own)) != str(own):
            raise InvalidValueError(
                f"{name} is {environment[name]} in the environment and {own} in the group; expected equal values.",
                code="group.address-invalid",
            )
    address, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    if rank != 0 or environment.get("TORCHELASTIC_USE_AGENT_STORE") == str(True):
        return _reach(address, port, timeout)
    name = f"env://{address}:{port}"
    if name not in _served:
        try:
            waiting = _listen(address, port)
        except OSError:  # the address of a service, which Kubernetes forwards to this pod
            waiting = _listen("", port)
        _served[name] = _serve(waiting, address, port)
    return _served[name]


def _listen(address: str, port: int) -> socket.socket:
    address_info = socket.getaddrinfo(address or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    waiting = socket.socket(address_info[0], socket.SOCK_STREAM)
    try:
        waiting.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        waiting.bind(address_info[4])
        waiting.listen(WAITING_CONNECTIONS)
    except OSError:
        waiting.close()
        raise
    return waiting


def _serve(waiting: socket.socket, address: str, port: int) -> TCPStore:
    """Serve a store on this socket, which the store then owns."""
    listening = waiting.detach()
    return TCPStore(
        address, port, is_master=True, wait_for_workers=False, master_listen_fd=listening, use_libuv=USE_LIBUV
    )


def _reach(address: str, port: int, timeout: float) -> TCPStore:
    try:
        limit = timedelta(seconds=timeout)
        return TCPStore(address, port, is_master=False, wait_for_workers=False, timeout=limit, use_libuv=USE_LIBUV)
    except dist.DistError:
        raise ClusterError(
            f"The engine of rank 0 did not answer on {address}, port {port}, within {timeout:g} s; check that it runs "
            "and that no firewall between the machines blocks the connection.",
            code="group.no-answer",
        ) from None


def await_ranks(
    store: Store, word: str, world: int, seconds: float, period: float = PERIOD, check: Callable[[], object] = bool
) -> list[int]:
    """Wait until each rank has set its key of this word, and return those that have not after so many seconds.

    A rank that has come is not looked up again: it may end, and the store with it. check: called before each look; may
    raise an error.
    """
    missing = [*range(world)]

    def late() -> list[int]:
        check()
        missing[:] = [rank for rank in missing if not store.check([f"{word} {rank}"])]
        return missing

    return wait_while(late, seconds, period)
