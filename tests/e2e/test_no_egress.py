"""Writing and reading talk to this machine and to nobody else."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e import bucket
from e2e.client import claim, in_parallel, note
from e2e.deployment import Deployment, processes_of

pytestmark = pytest.mark.stack

TABLES = ("tcp", "tcp6", "udp", "udp6")
LOOK_SECONDS = 0.005
CLIENTS = 4
WRITES = 10


class Watch:
    """The remote addresses of every socket that a set of processes holds, looked at again and again."""

    def __init__(self, pids: list[int]) -> None:
        self.seen: set[str] = set()
        self._pids = pids
        self._enough = threading.Event()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        thread = threading.Thread(target=self._look_on)
        thread.start()
        try:
            yield
        finally:
            self._enough.set()
            thread.join()

    def _look_on(self) -> None:
        while not self._enough.wait(LOOK_SECONDS):
            mine = {inode for pid in self._pids for inode in _socket_inodes(pid)}
            self.seen |= {remote for inode, remote in _remotes() if inode in mine}


def _socket_inodes(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                target = str(entry.readlink())
                if target.startswith("socket:["):
                    found.add(target.removeprefix("socket:[").removesuffix("]"))
    return found


def _remotes() -> Iterator[tuple[str, str]]:
    for table in TABLES:
        path = Path("/proc/net", table)
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            fields = line.split()
            yield fields[9], _address(fields[2].partition(":")[0])


def _address(digits: str) -> str:
    """The kernel prints each 32-bit word in the machine's order."""
    words = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    return socket.inet_ntop(socket.AF_INET if len(words) == 1 else socket.AF_INET6, packed)


def _is_elsewhere(address: str) -> bool:
    ip = ipaddress.ip_address(address)
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return not ((mapped or ip).is_loopback or (mapped or ip).is_unspecified)


@pytest.mark.fault_class(56)
def test_writes_and_reads_connect_to_this_machine_only(stack: Deployment, tenant: str) -> None:
    def work(number: int) -> None:
        with stack.client(tenant) as client:
            for count in range(WRITES):
                client.note(f"large {number} {count} " + "x" * 50_000)
                client.claim(f"small {number} {count}")
                client.ok("search", {"query": f"small {number}"})

    with stack.client(tenant) as client:
        client.ok("artifact.put", note("the tenant's Litestream child runs now"))
    watch = Watch(processes_of(stack.data_dir))
    with watch.watching():
        in_parallel(CLIENTS, work)
    assert any(ipaddress.ip_address(address).is_loopback for address in watch.seen), "the watch saw nothing at all"
    assert not [address for address in watch.seen if _is_elsewhere(address)]


def test_the_watch_sees_a_connection_to_another_machine() -> None:
    """An address of the documentation range: nobody answers there, but the attempt is a socket like any other."""
    assert _is_elsewhere("192.0.2.1") and _is_elsewhere("::ffff:192.0.2.1") and _is_elsewhere("2001:db8::1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, socket.create_server(("127.0.0.1", 0)) as server:
        probe.connect(server.getsockname())
        inodes = _socket_inodes(os.getpid())
        assert "127.0.0.1" in {remote for inode, remote in _remotes() if inode in inodes}


@pytest.mark.fault_class(56)
def test_a_claim_costs_a_bounded_number_of_objects(stack: Deployment, tenant: str) -> None:
    with stack.client(tenant) as client:
        client.ok("claim.assert", claim("first"))
        before = len(bucket.keys(stack, tenant, ""))
        for number in range(WRITES):
            client.ok("claim.assert", claim(f"claim {number}"))
    assert len(bucket.keys(stack, tenant, "")) - before <= 2 * WRITES
