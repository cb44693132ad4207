"""A generation: one state of a tenant, frozen in a local file that nobody writes while it is open (design §6.1).

Immutable connections do not notice changes, so they belong to one generation and are never used across a swap.
"""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import apsw

from memoree.database import meta, quota
from memoree.database.connection import open_reader
from memoree.database.meta import Meta

CONNECTIONS_KEPT_MAX = 8

Result = TypeVar("Result")


class Copy:
    """A local database file and the position it is at. Written only while `is_free`."""

    def __init__(self, path: Path, position: int) -> None:
        self.path = path
        self.position = position
        """The Litestream TXID up to which changes were applied."""
        self._users = 0
        self._discarded = False
        self._lock = threading.Lock()

    @property
    def is_free(self) -> bool:
        """Whether no connection has the file open, pooled ones included, and no request is about to."""
        return self._users == 0

    def opened(self) -> None:
        with self._lock:
            self._users += 1

    def closed(self) -> None:
        with self._lock:
            self._users -= 1
            self._unlink_if_done()

    def duplicate(self, path: Path) -> Copy:
        """A third copy, made by reading this one; this one is never written meanwhile."""
        shutil.copyfile(self.path, path)
        return Copy(path, self.position)

    def size_bytes(self) -> int:
        """0 once it is unlinked."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def discard(self) -> None:
        """Remove the file once nobody uses it. It is never truncated."""
        with self._lock:
            self._discarded = True
            self._unlink_if_done()

    def _unlink_if_done(self) -> None:
        if self._discarded and self._users == 0:
            self.path.unlink(missing_ok=True)


class Generation:
    """A copy at one state, and a small pool of connections to it."""

    def __init__(self, copy: Copy) -> None:
        self.copy = copy
        self._pool: list[apsw.Connection] = []
        self._lock = threading.Lock()
        self._retired = False
        try:
            with self.connection() as db:
                self.meta: Meta = meta.read(db)
                self.quota = quota.read(db) if self.meta.schema_version >= quota.FIRST_SCHEMA_VERSION else quota.NONE
        except BaseException:
            self.retire()
            raise

    def read(self, executor: Executor, work: Callable[[apsw.Connection], Result]) -> Awaitable[Result]:
        """Run `work` on a connection in a thread. Call it in the event loop while the generation is the newest: from
        the call on the file is not written, also if the thread begins only after the next swap, or outlives a
        cancelled caller."""
        assert not self._retired, "a retired generation's file may be written at any moment"

        def run() -> Result:
            with self.connection() as db:
                return work(db)

        self.copy.opened()
        try:
            running = executor.submit(run)
        except BaseException:
            self.copy.closed()
            raise
        running.add_done_callback(lambda _: self.copy.closed())
        return asyncio.wrap_future(running)

    @contextmanager
    def connection(self) -> Iterator[apsw.Connection]:
        """A connection, for whoever keeps the generation from being retired meanwhile."""
        db = self._take()
        try:
            yield db
        finally:
            self._give_back(db)

    def retire(self) -> None:
        """Close what is pooled now and the rest as it comes back; then the copy is free."""
        with self._lock:
            self._retired = True
            pool, self._pool = self._pool, []
        for db in pool:
            self._close(db)

    def _take(self) -> apsw.Connection:
        with self._lock:
            if self._pool:
                return self._pool.pop()
            self.copy.opened()
        try:
            return open_reader(self.copy.path, immutable=True)
        except BaseException:
            self.copy.closed()
            raise

    def _give_back(self, db: apsw.Connection) -> None:
        with self._lock:
            if not self._retired and len(self._pool) < CONNECTIONS_KEPT_MAX:
                self._pool.append(db)
                return
        self._close(db)

    def _close(self, db: apsw.Connection) -> None:
        db.close()
        self.copy.closed()


async def wait_until_free(copy: Copy, seconds: float) -> bool:
    """Whether the copy became free in time."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not copy.is_free:
        if asyncio.get_running_loop().time() >= deadline:
            return False
        await asyncio.sleep(0.002)
    return True
