"""Tells whether a request comes from this machine itself."""

from pager.host_names import is_loopback
from pager.proxy.relay import Scope

FORWARDED = frozenset({b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"})
"""Headers that a reverse proxy adds, behind which everybody seems to come from this machine."""


def is_local(scope: Scope) -> bool:
    """Whether a request was sent over a loopback address, and by no reverse proxy for somebody else."""
    client = scope.get("client")
    names = {name for name, _ in scope["headers"]}
    return client is not None and is_loopback(client[0]) and names.isdisjoint(FORWARDED)
