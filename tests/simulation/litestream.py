"""A simulated Litestream: it reads the real write-ahead log, writes real LTX bytes, and dies like the real one.

Its child is a process of its own. It uploads unasked, adds changes of its own, compacts and removes what it compacted,
answers ambiguously, and goes on for a while after its writer died, or for good while its writer is frozen.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import fastcrc
import lz4.block

from memoree.objects import ObjectMissing, ObjectStoreError
from memoree.replication.litestream import LitestreamGone, NotRestorable, SyncAmbiguous, Synced
from simulation.loop import Process
from simulation.store import Bucket, StoreClient

PAGE_BYTES = 4096
WAL_HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
UPLOAD_PAUSE_SECONDS = 1.0
RETRY_PAUSE_SECONDS = 0.1
ANSWER_GRACE_SECONDS = 2.0
RAW_FILES_KEPT_MIN = 2

Pages = dict[int, bytes]


@dataclass(frozen=True, slots=True)
class Change:
    """The pages that a file holds, and the size of the database after them."""

    pages: Pages
    database_pages: int

    def then(self, later: Change) -> Change:
        return Change({**self.pages, **later.pages}, later.database_pages)


@dataclass(frozen=True, slots=True)
class Habits:
    """What a child does in a run; shares of the occasions."""

    own_change: float = 0.0
    compaction: float = 0.0
    ambiguous: float = 0.0
    death: float = 0.0
    orphan_seconds_max: float = 0.5


@dataclass(slots=True)
class Files:
    """What the LTX bodies of a run hold, so that nobody has to decode them again."""

    changes: dict[bytes, Change] = field(default_factory=dict)

    def encode(self, change: Change, first: int, last: int) -> bytes:
        body = encode(change, first, last)
        self.changes[body] = change
        return body


class SimulatedReplicator:
    """`Replicator`, for one process."""

    def __init__(self, bucket: Bucket, files: Files, process: Process, habits: Habits) -> None:
        self._bucket, self._files, self._process, self._habits = bucket, files, process, habits
        self._store = bucket.client(process)
        self.children: list[SimulatedChild] = []

    def child(self, database: Path, prefix: str) -> SimulatedChild:
        child = SimulatedChild(self._bucket, self._files, self._process, self._habits, database, prefix)
        self.children.append(child)
        return child

    async def restore(self, prefix: str, txid: int, output: Path) -> None:
        """Raises `NotRestorable`, and `StoreUnavailable`."""
        names = [info.key async for info in self._store.list(prefix)]
        restored = Change({}, 0)
        for key in chain(names, txid):
            try:
                found = await self._store.get(key)
            except ObjectMissing:
                raise NotRestorable(f"{key} is gone") from None
            assert found is not None
            restored = restored.then(self._files.changes[found.body])
        output.write_bytes(database_bytes(restored))  # noqa: ASYNC240 - nothing else runs while time stands still


class SimulatedChild:
    """`Child`. What it knows outlives its process, as the files beside the database do."""

    def __init__(
        self, bucket: Bucket, files: Files, parent: Process, habits: Habits, database: Path, prefix: str
    ) -> None:
        self._bucket, self._files, self._parent, self._habits = bucket, files, parent, habits
        self._loop, self._random = bucket.loop, bucket.random
        self._database, self._prefix = database, prefix
        self._process: Process | None = None
        self._store: StoreClient
        self._reading = asyncio.Lock()
        self._log: IO[bytes] | None = None
        self._log_position = WAL_HEADER_BYTES
        self._txid = 0
        self._raw: dict[int, Change] = {}
        """By TXID, since the last compaction."""
        self._unsent: dict[int, bytes] = {}

    # --- what writers ask of it ---------------------------------------------------------------------------------

    async def start(self) -> None:
        assert self._process is None, "the Litestream child was started before and not stopped"
        await asyncio.sleep(0.01 + self._random.random() * 0.02)
        if self._random.random() < self._habits.death:
            raise LitestreamGone("it does not start")
        self._process = self._loop.process(f"{self._parent.name}.ls")
        self._store = self._bucket.client(self._process)
        self._reading = asyncio.Lock()
        self._process.task(self._upload_unasked())

    async def sync(self, timeout_seconds: int) -> Synced:
        if self._process is None or not self._process.is_alive:
            raise LitestreamGone("it is not running")
        luck = self._random.random()
        if luck < self._habits.death:
            self._process.after(1 + int(self._random.random() * 20), self._process.kill)
        elif luck < self._habits.death + self._habits.ambiguous:
            self._process.task(self._upload())
            raise SyncAmbiguous("/sync answered 500")
        uploading = self._process.task(self._upload())
        done, _ = await asyncio.wait((uploading,), timeout=timeout_seconds + ANSWER_GRACE_SECONDS)
        if not done:
            raise SyncAmbiguous("no answer to /sync")
        return Synced(uploading.result(), uploading.result())

    async def stop(self) -> bool:
        if self._process is not None and self._process.is_alive:
            uploading = self._process.task(self._upload())
            await asyncio.wait((uploading,), timeout=5.0)
        await self.kill()
        return True

    async def kill(self) -> None:
        """Before the first await: nothing more is sent. What was sent already may still arrive."""
        process, self._process = self._process, None
        if process is not None and process.is_alive:
            process.kill()
        await asyncio.sleep(0.001)

    async def restart(self) -> None:
        await self.kill()
        await self.start()

    def orphan(self) -> None:
        """Its writer is dead; the launcher notices in a while."""
        if (process := self._process) is not None:
            self._loop.in_world(self._random.random() * self._habits.orphan_seconds_max, process.kill)

    @property
    def is_uploading(self) -> bool:
        return self._process is not None and self._process.is_alive

    def freeze(self) -> None:
        """As its writer is, when a whole machine stands still."""
        if self._process is not None:
            self._process.freeze()

    def thaw(self) -> None:
        if self._process is not None:
            self._process.thaw()

    def close(self) -> None:
        if self._log is not None:
            self._log.close()

    # --- what it does -------------------------------------------------------------------------------------------

    async def _upload_unasked(self) -> None:
        while True:
            await asyncio.sleep(UPLOAD_PAUSE_SECONDS * (0.5 + self._random.random()))
            await self._upload()
            if self._random.random() < self._habits.own_change and self._txid > 0:
                async with self._reading:
                    self._note(Change({1: self._page_one()}, self._raw_size()))
            if self._random.random() < self._habits.compaction:
                await self._compact()

    async def _upload(self) -> int:
        """Everything committed is in the prefix; returns its TXID. It tries until it is."""
        async with self._reading:
            if (change := self._committed()) is not None:
                self._note(change)
            while self._unsent:
                txid = min(self._unsent)
                try:
                    await self._store.put(self._key(0, txid, txid), self._unsent[txid])
                except ObjectStoreError:
                    await asyncio.sleep(RETRY_PAUSE_SECONDS)
                else:
                    del self._unsent[txid]
            return self._txid

    def _note(self, change: Change) -> None:
        self._txid += 1
        self._raw[self._txid] = change
        self._unsent[self._txid] = self._files.encode(change, self._txid, self._txid)

    def _committed(self) -> Change | None:
        """What was committed since the last look; at first the whole database."""
        log = self._changes_of_log()
        if self._txid > 0:
            return log
        whole = self._database.read_bytes()
        pages = {n + 1: whole[n * PAGE_BYTES : (n + 1) * PAGE_BYTES] for n in range(len(whole) // PAGE_BYTES)}
        snapshot = Change(pages, len(pages))
        return snapshot if log is None else snapshot.then(log)

    def _changes_of_log(self) -> Change | None:
        if self._log is None:
            try:
                self._log = self._database.with_name(self._database.name + "-wal").open("rb")
            except FileNotFoundError:
                return None
        self._log.seek(self._log_position)
        frames = self._log.read()
        found: Change | None = None
        pending: Pages = {}
        step = FRAME_HEADER_BYTES + PAGE_BYTES
        read_to = 0
        for position in range(0, len(frames) - step + 1, step):
            number, size_after_commit = struct.unpack_from(">II", frames, position)
            pending[number] = frames[position + FRAME_HEADER_BYTES : position + step]
            if size_after_commit:
                found = Change(pending if found is None else {**found.pages, **pending}, size_after_commit)
                pending, read_to = {}, position + step
        self._log_position += read_to
        return found

    def _page_one(self) -> bytes:
        newest = max(txid for txid, change in self._raw.items() if 1 in change.pages)
        return self._raw[newest].pages[1]

    def _raw_size(self) -> int:
        return self._raw[self._txid].database_pages

    async def _compact(self) -> None:
        """One larger file in place of several raw ones, which vanish a little later."""
        async with self._reading:
            if self._unsent or len(self._raw) <= RAW_FILES_KEPT_MIN:
                return
            txids = sorted(self._raw)
            merged = self._raw[txids[0]]
            for txid in txids[1:]:
                merged = merged.then(self._raw[txid])
            level = 1 if self._random.random() < 0.7 else 2
            body = self._files.encode(merged, txids[0], txids[-1])
            try:
                await self._store.put(self._key(level, txids[0], txids[-1]), body)
                self._raw = {txids[-1]: merged}
                for txid in txids[:-1] if self._random.random() < 0.5 else txids:
                    await self._store.delete(self._key(0, txid, txid))
            except ObjectStoreError:
                return

    def _key(self, level: int, first: int, last: int) -> str:
        return f"{self._prefix}{level:04x}/{first:016x}-{last:016x}.ltx"


def chain(keys: list[str], txid: int) -> list[str]:
    """The files that lead from nothing to exactly that TXID. Raises `NotRestorable`."""
    files = [(*_txids(key), key) for key in keys]
    found, reached = [], 0
    while reached < txid:
        following = [(last, key) for first, last, key in files if first <= reached + 1 and reached < last <= txid]
        if not following:
            raise NotRestorable(f"no matching backup files available for {txid}")
        reached, key = max(following)
        found.append(key)
    return found


def file_ends(keys: list[str]) -> list[int]:
    """The TXIDs to which a chain of files leads, ascending."""
    ends: list[int] = []
    for last, first in sorted((last, first) for first, last in map(_txids, keys)):
        reached = ends[-1] if ends else 0
        if first <= reached + 1 and last > reached:
            ends.append(last)
    return ends


def _txids(key: str) -> tuple[int, int]:
    first, last = key.rsplit("/", 1)[1].removesuffix(".ltx").split("-")
    return int(first, 16), int(last, 16)


def database_bytes(change: Change) -> bytes:
    """The file that a change from nothing makes."""
    return b"".join([change.pages[number] for number in range(1, change.database_pages + 1)])


def encode(change: Change, first: int, last: int) -> bytes:
    """The bytes of an LTX file (design §6.1)."""
    header = struct.pack(">4sIIIQQQQ", b"LTX1", 2, PAGE_BYTES, change.database_pages, first, last, 0, 0)
    stored = [header.ljust(100, b"\0")]
    covered = [stored[0]]
    pages: Mapping[int, bytes] = change.pages
    for number in sorted(pages):
        if number > change.database_pages:
            continue
        block = lz4.block.compress(pages[number], store_size=False)
        head = struct.pack(">IHI", number, 1, len(block))
        stored += (head, block)
        covered += (head, pages[number])
    tail = bytes(6) + b"\0" + struct.pack(">Q", 1) + bytes(8)
    checksum = fastcrc.crc64.go_iso(b"".join((*covered, tail))) | 1 << 63
    return b"".join((*stored, tail, struct.pack(">Q", checksum)))
