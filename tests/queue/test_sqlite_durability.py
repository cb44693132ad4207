"""What the SQLite queue makes wait for the disk: sends, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from memoree.queue import OutgoingMessage
from memoree.queue.sqlite import SqliteQueue


class CountedFile(apsw.VFSFile):
    """A file that says when it is synced."""

    syncs = 0

    def xSync(self, flags: int) -> None:
        type(self).syncs += 1
        super().xSync(flags)


class CountingVfs(apsw.VFS):
    """Becomes the default of the process, for as long as it is registered."""

    def __init__(self, before: str) -> None:
        self._before = before
        super().__init__("counting", before, makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return CountedFile(self._before, name, flags)


@pytest.fixture
def syncs() -> Iterator[type[CountedFile]]:
    """Counts the syncs of every database that the test opens."""
    before = apsw.vfs_names()[0]
    vfs = CountingVfs(before)
    yield CountedFile
    apsw.set_default_vfs(before)
    vfs.unregister()


def test_a_send_waits_for_the_disk_and_a_delivery_and_an_acknowledgement_do_not(
    tmp_path: Path, syncs: type[CountedFile]
) -> None:
    async def counts() -> list[int]:
        queue = SqliteQueue(tmp_path / "queue.sqlite3")
        found = []
        try:
            await queue.send(OutgoingMessage("first", "group", "d0"))  # opens the file
            for number in range(1, 4):
                before = syncs.syncs
                await queue.send(OutgoingMessage("body", "group", f"d{number}"))
                sent = syncs.syncs
                messages = await queue.receive(max_messages=10, wait_seconds=1.0, visibility_seconds=30.0)
                await queue.ack(messages)
                found += [sent - before, syncs.syncs - sent]
        finally:
            await queue.close()
        return found

    assert asyncio.run(counts()) == [1, 0] * 3
