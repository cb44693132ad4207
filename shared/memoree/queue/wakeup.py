"""Waking the thread that serves a SQLite queue: from its own process, and from every other one that shares the file.

A listening process binds a unix datagram socket in the directory `<database>-wake`; whoever changes the queue sends
one byte to each socket there. It is a hint only: a bell that cannot be rung costs its owner one poll.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

DRAIN_BYTES = 4096


class Wakeup:
    """`ring` may be called from any thread; everything else belongs to the thread that waits."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._name = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._ear, self._bell = socket.socketpair()
        self._messenger = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._listener: socket.socket | None = None
        self._selector = selectors.DefaultSelector()
        for end in (self._ear, self._bell, self._messenger):
            end.setblocking(False)
        self._selector.register(self._ear, selectors.EVENT_READ)

    def ring(self) -> None:
        """Wake the waiting thread of this process."""
        with contextlib.suppress(BlockingIOError):  # a full buffer wakes just as well
            self._bell.send(b"\0")

    def listen(self) -> None:
        """From now on be woken by other processes too; where a socket cannot be bound, their changes are polled for."""
        if self._listener is not None:
            return
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._listener.setblocking(False)
        with contextlib.suppress(OSError):
            self._directory.mkdir(exist_ok=True)
            with _opened(self._directory) as directory:
                self._listener.bind(self._address(directory, self._name))
        self._selector.register(self._listener, selectors.EVENT_READ)

    def ring_others(self) -> None:
        """Wake every other process that listens."""
        with contextlib.suppress(FileNotFoundError), _opened(self._directory) as directory:
            for name in os.listdir(directory):  # noqa: PTH208  # of the open directory, not of a path
                if name != self._name:
                    self._ring_other(directory, name)

    def wait(self, timeout_seconds: float | None) -> None:
        """Return when rung, or after the timeout."""
        for key, _ in self._selector.select(timeout_seconds):
            with contextlib.suppress(BlockingIOError):
                while key.fileobj.recv(DRAIN_BYTES):  # type: ignore[union-attr]  # only sockets are registered
                    pass

    def close(self) -> None:
        self._selector.close()
        for end in (self._ear, self._bell, self._messenger):
            end.close()
        if self._listener is not None:
            self._listener.close()
            with contextlib.suppress(OSError):
                (self._directory / self._name).unlink()

    def _ring_other(self, directory: int, name: str) -> None:
        try:
            self._messenger.sendto(b"\0", self._address(directory, name))
        except ConnectionRefusedError:  # its process died without closing
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=directory)
        except OSError:  # full (about to wake anyway), just closed, or another user's
            pass

    def _address(self, directory: int, name: str) -> str:
        """The socket's path; through the open directory on Linux, because an address holds only 107 bytes."""
        if sys.platform == "linux":
            return f"/proc/self/fd/{directory}/{name}"
        return str(self._directory / name)


@contextlib.contextmanager
def _opened(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
