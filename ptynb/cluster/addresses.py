"""Which of this machine's addresses and interfaces lead to another machine. Asks the routing table; sends nothing."""

from __future__ import annotations

import ipaddress
import socket

import psutil

from ptynb.exceptions import ClusterError

ADDRESS = "PTYNB_ADDRESS"
"""In an engine's environment: its machine's address towards the controller, where ranks meet (`engine.rendezvous`)."""
DISCARD_PORT = 9


def address_towards(host: str) -> str:
    """This machine's address on the way to `host` (a name or an address): the one under which that can answer.

    Where both are possible it is of IPv4, the only one that ipyparallel's controller listens on. Raises ClusterError.
    """
    try:
        found = socket.getaddrinfo(host, DISCARD_PORT, type=socket.SOCK_DGRAM)
    except OSError:
        raise ClusterError(
            f"The name {host!r} has no address here; write it right, or give the address.", code="cluster.no-address"
        ) from None
    for family, kind, protocol, _, place in sorted(found, key=lambda entry: entry[0] != socket.AF_INET):
        with socket.socket(family, kind, protocol) as asking:
            try:
                asking.connect(place)  # of a datagram socket: chooses the way, and that is all
            except OSError:
                continue
            return _bare(asking.getsockname()[0])
    raise ClusterError(
        f"There is no way from this machine to {host!r}; look at its network connection.", code="cluster.no-address"
    )


def interface_of(address: str) -> str:
    """The network interface that has this address ("eth0"). Raises ClusterError where none has."""
    wanted = ipaddress.ip_address(_bare(address))
    for name, entries in psutil.net_if_addrs().items():
        for entry in entries:
            if entry.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            own = ipaddress.ip_address(_bare(entry.address))
            if own == wanted or (own.is_loopback and wanted.is_loopback and own.version == wanted.version):
                return name
    raise ClusterError(
        f"No interface of this machine has the address {address}; give one of its own addresses.",
        code="cluster.no-address",
    )


def environment_towards(host: str) -> dict[str, str]:
    """What an engine's environment needs so that its group meets and talks on the interface that leads to `host`.

    Without it gloo takes the address of the machine's name, which is 127.0.1.1 on Debian.
    """
    address = address_towards(host)
    interface = interface_of(address)
    return {ADDRESS: address, "GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}


def _bare(address: str) -> str:
    """Without the scope of a link-local one: 'fe80::1%eth0'."""
    return address.split("%")[0]
