"""Answers that wait for their reader: a queue of bytes whose end lies in a file once it grows.

Many clients send a whole body before they read the first answer. Whoever only held answers in memory, or stopped
taking lines while nobody reads, would have to choose between growing without bound and waiting for each other forever.
"""

from __future__ import annotations

import asyncio
import tempfile
from typing import BinaryIO

from memoree import limits


class Spool:
    """One writer, one reader. `put` waits while `bytes_max` bytes lie unread, `get` while there are none."""

    def __init__(
        self, *, memory_bytes_max: int = limits.BULK_MEMORY_BYTES_MAX, bytes_max: int = limits.BULK_SPOOL_BYTES_MAX
    ) -> None:
        self._memory_bytes_max = memory_bytes_max
        self._bytes_max = bytes_max
        self._memory = bytearray()
        self._file: BinaryIO | None = None
        self._written = 0
        self._read = 0
        self._ended = False
        self._changed = asyncio.Condition()

    async def put(self, data: bytes) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._written < self._bytes_max)
            if self._written == 0 and len(self._memory) + len(data) <= self._memory_bytes_max:
                self._memory += data
            else:
                await asyncio.to_thread(self._append, data)
            self._changed.notify_all()

    async def end(self) -> None:
        """Nothing more will be put."""
        async with self._changed:
            self._ended = True
            self._changed.notify_all()

    async def get(self) -> bytes:
        """What comes next, in the order it was put; `b""` at the end."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._memory or self._written or self._ended)
            if self._memory:
                data, self._memory = bytes(self._memory), bytearray()
            elif self._written:
                data = await asyncio.to_thread(self._take)
            else:
                data = b""
            self._changed.notify_all()
            return data

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _append(self, data: bytes) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the spool
        self._file.seek(self._written)
        self._file.write(data)
        self._written += len(data)

    def _take(self) -> bytes:
        assert self._file is not None
        self._file.seek(self._read)
        data = self._file.read(self._memory_bytes_max)
        self._read += len(data)
        if self._read == self._written:
            self._file.truncate(0)
            self._read = self._written = 0
        return data
