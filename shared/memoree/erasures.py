"""The record of erasures in the object store: what every restore and import has to erase again (design §8).

An entry names ids and digests and holds no content. It is written once and outlives every backup older than it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Annotated

import apsw
import orjson
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter

from memoree import clock, limits
from memoree.database import condemned, erasures
from memoree.errors import Code, MemoreeError
from memoree.objects import ObjectInfo, ObjectMissing, ObjectStore, PreconditionFailed
from memoree.replication import layout
from memoree.sealed import opened, sealed

HOW_TO_MEND = "`memoree erase`, also of what is erased already, writes the entries anew that the database tells of"


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
