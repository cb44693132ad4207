"""Free ports for SeaweedFS: each server takes a port for HTTP and the one 10 000 above it for gRPC."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable

from memoree.errors import Code, MemoreeError

LOOPBACK = "127.0.0.1"
GRPC_OFFSET = 10_000
PORT_MIN = 10_240
PORT_MAX = 22_767
"""A gRPC port above 32 767 lies in the range from which the kernel takes ports for outgoing connections."""

CANDIDATES_MAX = 1_000


def free_ports(count: int) -> tuple[int, ...]:
    """That many distinct ports on loopback, free at this moment together with their gRPC ports.

    Nothing holds them until a server binds: whoever starts one picks again when it lost the race.
    """
    found: list[int] = []
    for port in random.SystemRandom().sample(range(PORT_MIN, PORT_MAX + 1), CANDIDATES_MAX):
        if are_free([port]):
            found.append(port)
        if len(found) == count:
            return tuple(found)
    raise MemoreeError(
        Code.CONFIG_ERROR,
        f"fewer than {count} free ports between {PORT_MIN} and {PORT_MAX} on {LOOPBACK}",
    )


def are_free(ports: Iterable[int]) -> bool:
    """Whether a server could listen on each of these ports and on its gRPC port."""
    return all(_can_listen(port) and _can_listen(port + GRPC_OFFSET) for port in ports)


def _can_listen(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as candidate:
        # As servers do: connections of a former owner that linger in TIME_WAIT do not count.
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind((LOOPBACK, port))
            candidate.listen(1)
        except OSError:
            return False
    return True
