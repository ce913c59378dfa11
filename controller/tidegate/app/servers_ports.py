"""Loopback ports: find a free one that no sibling process picks too, and say clearly when one is taken."""

import collections
import contextlib
import os
import secrets
import socket

from tidegate.terms.errors import BadInputError, RefusedError

LOOPBACK = "127.0.0.1"
# Below the kernel's range for outgoing connections (from 32768 by default): no client socket takes one meanwhile.
_FIRST_PORT = 20_000
_LAST_PORT = 32_000
_TRIES = 500
# A claim matters only until the server has bound its port; 64 start-ups at once are more than a demo or test needs.
_CLAIMS_KEPT = 64
_claims: collections.deque[int] = collections.deque()


class PortInUseError(BadInputError):
    """A port that must be ours is taken by another process."""


def free_port() -> int:
    """Return a TCP port, 20000 to 32000, that is free on loopback and that no other caller of this function was given.

    Two processes that ask at once get different ports: each claims its pick by a name in the kernel's abstract socket
    namespace, which goes away with the process.

    Raises:
        RefusedError: 500 random ports in a row were taken.
    """
    for _ in range(_TRIES):
        port = _FIRST_PORT + secrets.randbelow(_LAST_PORT - _FIRST_PORT)
        if is_free(port) and _claim(port):
            return port
    msg = f"no free port on {LOOPBACK} between {_FIRST_PORT} and {_LAST_PORT} in {_TRIES} tries"
    raise RefusedError(msg)


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Return whether a server could listen on this port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: connections of an earlier server that linger in TIME_WAIT are no reason to refuse.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def require_free(port: int, *, needed_by: str, host: str = LOOPBACK) -> None:
    """Check that a server can listen on this port.

    Envoy would not find out by itself: it listens with SO_REUSEPORT and would share the port with another Envoy.

    Raises:
        PortInUseError: Another process listens there, or the port may not be used by this user.
    """
    if not is_free(port, host):
        msg = f"port {port} on {host} is in use, but {needed_by} needs it: stop what listens there (see `ss -ltnp`)"
        raise PortInUseError(msg)


def _claim(port: int) -> bool:
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0tidegate-port-{port}")
    except OSError:
        claim.close()
        return False
    # Kept as a bare descriptor: the claim must live as long as the process, which a garbage-collected socket would not.
    _claims.append(claim.detach())
    if len(_claims) > _CLAIMS_KEPT:
        with contextlib.suppress(OSError):
            os.close(_claims.popleft())
    return True
