"""The record of erasures in the object store: what every restore and import has to erase again (design §8).

An entry names ids and digests and holds no content. It is written once and outlives every backup older than it. Beside
it, the lines that every receipt of an erasure has: where what was erased may still be, and until when.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import apsw
import orjson
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter

from memoree import clock, limits
from memoree.database import condemned, erasures
from memoree.errors import Code, MemoreeError
from memoree.objects import ObjectInfo, ObjectMissing, ObjectStore, PreconditionFailed
from memoree.replication import layout
from memoree.sealed import opened, sealed

if TYPE_CHECKING:
    from memoree.settings import StackSettings

HOW_TO_MEND = "`memoree erase`, also of what is erased already, writes the entries anew that the database tells of"


GONE = "erased"
IN_THE_COMMIT = (
    "database",
    "full_text_index",
    "vocabulary",
    "idempotency_results",
    "attempts",
    "events",
)
"""The stores that the writer's commit sees to, once its database was rewritten."""

Line = str | dict[str, str]
"""`erased`, or `retained_until` and an instant; of backups, by their ids."""


def _stored_instant(text: str) -> str:
    if clock.parse_timestamp(text) != text:
        raise ValueError("expected an instant in stored form")
    return text


def _id_of(types: str) -> object:
    return Field(pattern=f"^(?:{types})_[0-9A-Za-z]+$", max_length=limits.ID_BYTES_MAX)


@dataclass(frozen=True, slots=True)
class Erasure:
    """`entities` are ids of artifacts and claims, `blobs` hex digests of content that nothing else cited; `at` is in
    stored form, `commit_seq` the commit that erased them first."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")

    erasure_id: Annotated[str, _id_of("[a-z]+")]
    at: Annotated[str, AfterValidator(_stored_instant)]
    commit_seq: Annotated[int, Field(ge=1)]
    entities: tuple[Annotated[str, _id_of("art|clm")], ...]
    blobs: tuple[Annotated[str, Field(pattern="^[0-9a-f]{64}$")], ...]

    def to_bytes(self) -> bytes:
        return sealed(asdict(self))

    @classmethod
    def from_bytes(cls, body: bytes) -> Erasure:
        """Raises `INTEGRITY_ERROR` for a damaged entry."""
        try:
            if len(body) > limits.ERASURE_RECORD_BYTES_MAX:
                raise ValueError(f"it has {len(body)} bytes where {limits.ERASURE_RECORD_BYTES_MAX} are the most")
            return _SHAPE.validate_json(orjson.dumps(opened(body)))
        except ValueError as error:
            raise MemoreeError(Code.INTEGRITY_ERROR, f"an entry of the erasures is damaged: {error}") from error


_SHAPE = TypeAdapter(Erasure)


def told_by(db: apsw.Connection, *, with_blobs: bool = False) -> list[Erasure]:
    """Every erasure that a database itself tells of; `with_blobs` names those that are condemned because of it still,
    as many as an entry has room for."""
    own: dict[int, list[str]] = {}
    for row in condemned.rows(db) if with_blobs else ():
        own.setdefault(row.commit_seq, []).append(row.digest.hex())
    return [
        Erasure(
            erasure_id=each.erasure_id,
            at=each.created_at,
            commit_seq=each.row_id,
            entities=erasures.entities(db, each),
            blobs=tuple(islice(own.get(each.row_id, ()), limits.ERASURE_RECORD_BLOBS_MAX)),
        )
        for each in erasures.every(db)
    ]


def retained_until(instant: datetime) -> str:
    return f"retained_until {clock.wire(clock.stored(instant))}"


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a deployment keeps what its present no longer holds, and how often it removes what is over; seconds."""

    unused_blobs: float = limits.COLLECT_GRACE_SECONDS_MIN
    point_in_time: float = limits.POINT_IN_TIME_SECONDS
    collected_every: float = limits.DIRECTORY_COLLECTED_EVERY_SECONDS
    backed_up_every: float = limits.DIRECTORY_COLLECTED_EVERY_SECONDS
    has_second_bucket: bool = False

    @classmethod
    def of(cls, settings: StackSettings) -> Retention:
        return cls(
            unused_blobs=settings.gc_grace_seconds,
            point_in_time=settings.point_in_time_seconds,
            collected_every=settings.gc_every_seconds,
            backed_up_every=settings.backup_every_seconds,
            has_second_bucket=settings.backup_bucket is not None,
        )

    def lines(self, now: datetime, *, began: datetime) -> dict[str, Line]:
        """Of whatever was erased, without a look at the store; `began` is when the epoch has begun that holds nothing
        of it. What is in the first bucket may be on its way to the second."""
        history = began + timedelta(seconds=self.point_in_time + limits.CLOCK_SKEW_SECONDS_MAX + self.collected_every)
        backups = retained_until(now + self._backups)
        return {
            "queue": retained_until(now + timedelta(seconds=limits.QUEUE_SECONDS_MAX)),
            "replicas": retained_until(now + timedelta(seconds=limits.LOCAL_COPY_IDLE_SECONDS_MAX)),
            "ltx_history": retained_until(history),
            "backups": backups,
            "second_bucket": backups if self.has_second_bucket else GONE,
        }

    def blobs_until(self, now: datetime) -> datetime:
        """By when the last blob is gone of whatever was erased. It may wait for backups of a past that a restore gave
        up, or for that past itself."""
        past = timedelta(seconds=max(self.point_in_time, self.unused_blobs))
        return now + max(self._backups, past) + timedelta(seconds=2 * self.collected_every)

    def second_record_by(self, now: datetime) -> str | None:
        """When the schedule has brought the record to the second bucket, if there is one."""
        if not self.has_second_bucket:
            return None
        seconds = self.backed_up_every + limits.JOBS_SPREAD_SECONDS + limits.JOB_SECONDS_MAX
        return clock.wire(clock.stored(now + timedelta(seconds=seconds)))

    @property
    def _backups(self) -> timedelta:
        return timedelta(seconds=limits.ERASED_IN_BACKUPS_SECONDS + self.backed_up_every)


@dataclass(frozen=True, slots=True)
class ErasureReceipt:
    """What is true of an erasure once it is on record: `stores` are lines by name. Where there is a second bucket, the
    record is there by `second_record_by`."""

    stores: dict[str, Line]
    second_record_by: str | None = None

    def to_wire(self) -> dict[str, Any]:
        by = self.second_record_by
        return {"stores": self.stores, **({} if by is None else {"recorded_in_second_bucket_by": by})}


def deployment_receipt(retention: Retention, now: datetime, *, blobs: int) -> ErasureReceipt:
    """Of an erasure that the writer has committed and will have rewritten its database after; without a look at the
    store, which would need further rights. `blobs` only the erased text had."""
    rewritten = now + timedelta(seconds=limits.ERASED_FROM_COPIES_SECONDS)
    stores: dict[str, Line] = {
        **dict.fromkeys(IN_THE_COMMIT, retained_until(rewritten)),
        "blobs": retained_until(retention.blobs_until(now)) if blobs else GONE,
        **_made_for_one(now, retention.collected_every),
        **retention.lines(now, began=rewritten),
    }
    return ErasureReceipt(stores, retention.second_record_by(now))


def directory_receipt(now: datetime, *, blobs: int, rewritten: bool, restores: bool, writes: bool) -> ErasureReceipt:
    """As `deployment_receipt`, of a data directory: `rewritten` unless somebody still reads an earlier state, and with
    `restores` and `writes` under way there."""
    collected_every = limits.DIRECTORY_COLLECTED_EVERY_SECONDS
    read = timedelta(seconds=limits.ERASED_FROM_COPIES_SECONDS)
    restored = timedelta(seconds=limits.RESTORE_DIRECTORY_SECONDS_MAX + collected_every)
    collected = timedelta(seconds=limits.BACKUP_INTENT_REMOVAL_SECONDS + collected_every)
    in_files = retained_until(now + restored) if restores else GONE if rewritten else retained_until(now + read)
    kept_blobs = bool(blobs) or restores or writes
    stores: dict[str, Line] = {
        **dict.fromkeys(IN_THE_COMMIT, in_files),
        "blobs": retained_until(now + max(restored, collected)) if kept_blobs else GONE,
        **_made_for_one(now, collected_every),
        **dict.fromkeys(("queue", "replicas", "ltx_history", "backups", "second_bucket"), GONE),
    }
    return ErasureReceipt(stores)


def _made_for_one(now: datetime, collected_every: float) -> dict[str, Line]:
    """Objects made for one command or one answer, which nobody lived to remove. No upload is an episode."""
    removed = retained_until(now + timedelta(seconds=limits.LEFTOVERS_SECONDS_MIN + collected_every))
    return {"parked_commands": removed, "answers": removed, "uploads": GONE}


async def record(store: ObjectStore, tenant: str, erasure: Erasure) -> None:
    """Write the entry, once: a repeat leaves the first one. Raises `StoreUnavailable`, after which nothing is known."""
    try:
        await store.put(layout.erasure_key(tenant, erasure.erasure_id), erasure.to_bytes(), if_absent=True)
    except PreconditionFailed:
        return


async def record_missing(store: ObjectStore, tenant: str, found: Sequence[Erasure]) -> None:
    """As `record` of each of them; an entry of one of them that is damaged is written anew."""
    missing = {layout.erasure_key(tenant, erasure.erasure_id): erasure for erasure in found}
    async for info in store.list(layout.erasures_prefix(tenant)):
        if info.key not in missing:
            continue
        try:
            await _read(store, tenant, info)
        except MemoreeError:
            await store.put(info.key, missing[info.key].to_bytes())
        del missing[info.key]
    for erasure in missing.values():
        await record(store, tenant, erasure)


async def recorded(store: ObjectStore, tenant: str) -> list[Erasure]:
    """Every entry of a tenant, in the order of their commits. Raises `StoreUnavailable`, and `INTEGRITY_ERROR` for a
    damaged one, naming it: restoring past it would bring back what was erased."""
    read = [await _read(store, tenant, info) async for info in store.list(layout.erasures_prefix(tenant))]
    found = [erasure for erasure in read if erasure is not None]
    return sorted(found, key=lambda erasure: (erasure.commit_seq, erasure.erasure_id))


async def _read(store: ObjectStore, tenant: str, info: ObjectInfo) -> Erasure | None:
    """`None` for an entry that was removed meanwhile, with the last backup that predates it."""
    try:
        if info.size > limits.ERASURE_RECORD_BYTES_MAX:
            raise _damaged(info.key, f"it has {info.size} bytes")
        entry = await store.get(info.key)
    except ObjectMissing:
        return None
    assert entry is not None, "a GET without a condition always has a body"
    try:
        erasure = Erasure.from_bytes(entry.body)
    except MemoreeError as error:
        raise _damaged(info.key, error.message) from error
    if layout.erasure_key(tenant, erasure.erasure_id) != info.key:
        raise _damaged(info.key, f"it is of {erasure.erasure_id}")
    return erasure


def _damaged(key: str, why: str) -> MemoreeError:
    return MemoreeError(Code.INTEGRITY_ERROR, f"{key}: {why}; {HOW_TO_MEND}, any other one is put back from a copy")
