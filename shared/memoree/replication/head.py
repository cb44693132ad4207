"""`head.json`: the small object whose compare-and-swap is the commit point and the fence (design §5.3).

Whoever moves head owns the tenant. A state of the database is *covered*, and only then may anybody see it, when
it comes from head's prefix and its batch is at most head's. Lease ages are judged by the store's clock alone.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict, dataclass, replace
from datetime import timedelta

import orjson

from memoree import limits
from memoree.clock import stored, utc_now
from memoree.crashpoints import reach
from memoree.errors import Code, MemoreeError
from memoree.ids import new_ulid
from memoree.objects import ObjectMissing, ObjectStore, ObjectStoreError, StoredObject

HEAD_FORMAT = 1
RETRY_SECONDS_MIN = 0.02
RETRY_SECONDS_MAX = 1.0
STALE_READS_MAX = 20
"""So many answers in a row that are older than what was confirmed before: then head was replaced by hand."""
CLOCK_RESOLUTION = timedelta(seconds=1)
"""HTTP dates count whole seconds, so an age may look this much shorter than it is."""

log = logging.getLogger(__name__)


class HeadLost(Exception):
    """Somebody else moved head: this writer's reign is over."""


@dataclass(frozen=True, slots=True)
class Head:
    """The body of head.json. `prefix` is relative to the tenant, null for a tenant that never committed;
    `txid` is a hint where to fetch, never a token; `integrity` is hex."""

    write_id: str
    revision: int
    history: int
    epoch: int
    owner: str | None
    released_at: str | None
    prefix: str | None
    txid: int
    batch: int
    commit_seq: int
    hlc: int
    schema_version: int
    integrity: str
    updated_at: str
    format: int = HEAD_FORMAT

    def to_bytes(self) -> bytes:
        return orjson.dumps(asdict(self), option=orjson.OPT_SORT_KEYS)

    @classmethod
    def from_bytes(cls, body: bytes) -> Head:
        """Raises `INTEGRITY_ERROR` for a damaged head and `CONFIG_ERROR` for one of a later format."""
        try:
            document = orjson.loads(body)
            if document["format"] > HEAD_FORMAT:
                raise MemoreeError(Code.CONFIG_ERROR, f"head has format {document['format']}; upgrade this program")
            return cls(**document)
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise MemoreeError(Code.INTEGRITY_ERROR, f"head.json is damaged: {error}") from error


@dataclass(frozen=True, slots=True)
class HeadReading:
    """A head as it was read or written, with the ETag the next write must name."""

    head: Head
    etag: str
    age: timedelta = timedelta(0)
    """Time since the last write, by the store's clock."""

    def lease_seconds_left(self, ttl_seconds: float) -> float:
        """How long the owner's lease may still hold; zero when it is over or was released."""
        if self.head.owner is None or self.head.released_at is not None:
            return 0.0
        return max(0.0, (timedelta(seconds=ttl_seconds) + CLOCK_RESOLUTION - self.age).total_seconds())


class HeadFile:
    """head.json of one tenant. One writer at a time uses `swap`; anybody may `read`."""

    def __init__(self, store: ObjectStore, tenant_prefix: str) -> None:
        self._store = store
        self._tenant_prefix = tenant_prefix
        self.key = f"{tenant_prefix}head.json"

    async def read(self) -> HeadReading | None:
        """The present head, or `None` when there is none. Raises `StoreUnavailable`."""
        try:
            found = await self._store.get(self.key)
        except ObjectMissing:
            return None
        assert found is not None, "only a conditional read can be unchanged"
        return _reading(found)

    async def read_if_changed(self, etag: str) -> HeadReading | None:
        """The head, or `None` while its ETag is still `etag`. Raises `ObjectMissing` and `StoreUnavailable`."""
        found = await self._store.get(self.key, if_none_match=etag)
        return None if found is None else _reading(found)

    async def has_remains(self) -> bool:
        """Whether the tenant has history: then a missing head is damage, not a birth."""
        for folder in ("ltx/", "epochs/", "backups/"):
            async for _ in self._store.list(self._tenant_prefix + folder):
                return True
        return False

    async def is_missing(self) -> bool:
        """Whether a head that was just not found is damage. A birth makes head before everything else, so one that is
        there by now explains what lies beside it."""
        return await self.has_remains() and await self.read() is None

    async def create(self, schema_version: int, integrity: str, *, history: int = 0) -> HeadReading:
        """Birth: the head of an empty tenant; `history` is not 0 for one that was deleted before. Raises
        `INTEGRITY_ERROR` when there are remains of the tenant."""
        if await self.is_missing():
            raise head_missing(self.key)
        body = Head(
            write_id=new_ulid(),
            revision=0,
            history=history,
            epoch=0,
            owner=None,
            released_at=None,
            prefix=None,
            txid=0,
            batch=0,
            commit_seq=0,
            hlc=0,
            schema_version=schema_version,
            integrity=integrity,
            updated_at=stored(utc_now()),
        )
        delay = RETRY_SECONDS_MIN
        while True:
            try:
                etag = await self._store.put(
                    self.key, body.to_bytes(), if_absent=True, timeout_seconds=limits.HEAD_PUT_TIMEOUT_SECONDS
                )
                return HeadReading(body, etag)
            except ObjectStoreError as error:
                log.info("creating head met %r; looking at what is there", error)
            if (present := await self._read_surely()) is not None:
                return present
            delay = await _back_off(delay)

    async def swap(self, current: HeadReading, new: Head) -> HeadReading:
        """Replace `current` by `new`, which gets a fresh write id and the next revision. Returns only when it is
        certain that it did. Raises `HeadLost` when it is certain that somebody else's write is head now, and
        `INTEGRITY_ERROR` for a damaged head. Cancelled, it leaves undecided whether head moved."""
        new = replace(new, write_id=new_ulid(), revision=current.head.revision + 1, updated_at=stored(utc_now()))
        body = new.to_bytes()
        delay = RETRY_SECONDS_MIN
        stale_reads_left = STALE_READS_MAX
        while True:
            try:
                reach("head_put")
                etag = await self._store.put(
                    self.key, body, if_match=current.etag, timeout_seconds=limits.HEAD_PUT_TIMEOUT_SECONDS
                )
                reach("head_moved")
                return HeadReading(new, etag)
            except ObjectStoreError as error:
                log.info("moving head met %r; looking at what is there", error)
            present = await self._read_surely()
            if present is None:
                raise HeadLost("head.json is gone")
            if present.head.write_id == new.write_id:
                return HeadReading(new, present.etag)
            if present.head.revision < current.head.revision and stale_reads_left:
                stale_reads_left -= 1
            elif present.head.write_id != current.head.write_id:
                raise HeadLost(f"head is at revision {present.head.revision}, moved by {present.head.owner}")
            delay = await _back_off(delay)

    async def _read_surely(self) -> HeadReading | None:
        """Read head, however long the store takes or refuses: until then nothing may be decided."""
        delay = RETRY_SECONDS_MIN
        while True:
            try:
                return await self.read()
            except ObjectStoreError as error:
                log.warning("cannot read head while its last write is undecided: %s", error)
                delay = await _back_off(delay)


def _reading(found: StoredObject) -> HeadReading:
    return HeadReading(Head.from_bytes(found.body), found.info.etag, found.date - found.info.last_modified)


async def _back_off(delay: float) -> float:
    await asyncio.sleep(delay)
    return min(delay * 2, RETRY_SECONDS_MAX)


def head_missing(key: str) -> MemoreeError:
    return MemoreeError(
        Code.INTEGRITY_ERROR,
        f"head missing: {key} does not exist although the tenant has history; `memoree head rebuild` makes it again",
    )
