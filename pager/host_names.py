"""Host names: the name that a request is addressed to, and whether it is this machine's own.

A page of a stranger's can make its own name point to this machine and then speaks to us as if we were its server (DNS
rebinding). The name it was opened by stays in the Host header; an address, or a name that no stranger can own, is safe.
"""

from collections.abc import Collection
from ipaddress import IPv4Address, IPv6Address, ip_address

# Names that only this machine, or its containers, resolve.
OWN = frozenset({"localhost", "host.docker.internal", "gateway.docker.internal", "host.containers.internal"})


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens on this address."""
    if host == "localhost":
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def is_ours(host: str, names: Collection[str]) -> bool:
    """Whether a Host header is an address, a name of this machine's own, or one of these names."""
    name, colon, port = host.rpartition(":")
    name = name if colon and port.isdecimal() else host
    name = name.removeprefix("[").removesuffix("]").removesuffix(".").lower()
    return name in OWN or name.endswith(".localhost") or name in names or _address(name) is not None


def _address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(name)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None  # as a socket for both has clients
    return mapped or address
