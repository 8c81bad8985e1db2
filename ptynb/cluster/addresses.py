"""Addresses and interfaces of this machine on the route to another one, by the routing table; nothing is sent."""

from __future__ import annotations

import ipaddress
import socket

import psutil

from ptynb.exceptions import ClusterError
from ptynb.settings.site_file import site

ADDRESS = "PTYNB_ADDRESS"
"""Environment variable of an engine: its machine's address for the other ranks (`distributed.rendezvous`)."""
DISCARD_PORT = 9
OUTSIDE = "192.0.2.1"
"""An address of no machine, reserved for documentation."""


def address_towards(host: str) -> str:
    """Return the address of this machine on the route to `host` (a name or an address).

    IPv4 is preferred, since the controller of ipyparallel listens on no other. Raises ClusterError.
    """
    try:
        found = socket.getaddrinfo(host, DISCARD_PORT, type=socket.SOCK_DGRAM)
    except OSError:
        raise ClusterError(
            f"The name {host!r} has no address; check its spelling, or use the address.", code="cluster.no-address"
        ) from None
    for family, kind, protocol, _, place in sorted(found, key=lambda entry: entry[0] != socket.AF_INET):
        with socket.socket(family, kind, protocol) as asking:
            try:
                asking.connect(place)  # of a datagram socket: selects the route and sends nothing
            except OSError:
                continue
            return _bare(asking.getsockname()[0])
    raise ClusterError(
        f"There is no route from this machine to {host!r}; check its network connection.", code="cluster.no-address"
    )


def site_address() -> str | None:
    """Return the address of this machine on the interface that the site file names; None if it names none.

    Raises ClusterError if there is no such interface here, or it has no address.
    """
    name = site().cluster.interface
    if name is None:
        return None
    interfaces = psutil.net_if_addrs()
    found = sorted(
        (entry for entry in interfaces.get(name, ()) if entry.family in (socket.AF_INET, socket.AF_INET6)),
        key=lambda entry: entry.family != socket.AF_INET,
    )
    if not found:
        what = "has no address" if name in interfaces else f"is none of {', '.join(interfaces)}"
        raise ClusterError(
            f"The site file names the interface {name!r}, which {what}; correct it, or set address=.",
            code="cluster.no-address",
            fields=("address",),
        )
    return _bare(found[0].address)


def outward_address() -> str:
    """Return the address of this machine on its default route. Raises ClusterError if it has none."""
    try:
        return address_towards(OUTSIDE)
    except ClusterError:
        raise ClusterError(
            "This machine has no default route, by which engines could connect to it; set address=.",
            code="cluster.no-address",
            fields=("address",),
        ) from None


def interface_of(address: str) -> str:
    """Return the network interface with this address ("eth0"). Raises ClusterError if there is none."""
    wanted = ipaddress.ip_address(_bare(address))
    for name, entries in psutil.net_if_addrs().items():
        for entry in entries:
            if entry.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            own = ipaddress.ip_address(_bare(entry.address))
            if own == wanted or (own.is_loopback and wanted.is_loopback and own.version == wanted.version):
                return name
    raise ClusterError(
        f"No interface of this machine has the address {address}; use one of its addresses.",
        code="cluster.no-address",
    )


def environment_towards(host: str) -> dict[str, str]:
    """Return the environment variables that select the interface towards `host` for the group of an engine.

    Without them gloo uses the address of the host name, which is 127.0.1.1 on Debian.
    """
    address = address_towards(host)
    interface = interface_of(address)
    return {ADDRESS: address, "GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}


def _bare(address: str) -> str:
    """Remove the scope of a link-local address: 'fe80::1%eth0'."""
    return address.split("%")[0]
