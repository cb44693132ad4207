"""Services over empty stores: in this process, and as tenants of a running stack."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from contract.door import Door, EmbeddedDoor, HttpDoor, ManualClock

MEMORY = Path("/dev/shm")

OpenDoor = Callable[[], AbstractContextManager[tuple[Door, ManualClock | None]]]
"""A service over an empty store, and its clock when the caller holds it."""


@contextmanager
def embedded() -> Iterator[tuple[Door, ManualClock | None]]:
    """A service in this process, its store in memory where the machine offers that: fsync is not under test here."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as directory:
        clock = ManualClock()
        door = EmbeddedDoor(Path(directory) / "store", clock)
        try:
            yield door, clock
        finally:
            door.close()


class StrongDoor(HttpDoor):
    """Every read sees every write before it, whichever process answers."""

    def __init__(self, base_url: str, token: str) -> None:
        super().__init__(base_url, token)
        self._client.headers["Memoree-Consistency"] = "strong"


def tenants_of(url: str, tokens: Iterator[str]) -> OpenDoor:
    """Each time another tenant of a running stack."""

    @contextmanager
    def opened() -> Iterator[tuple[Door, ManualClock | None]]:
        door = StrongDoor(url, next(tokens))
        try:
            yield door, None
        finally:
            door.close()

    return opened
