"""The record of erasures in the object store: what every restore and import has to erase again (design §8).

An entry names ids and digests and holds no content. It is written once and outlives every backup older than it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from memoree.errors import Code, MemoreeError
from memoree.objects import ObjectMissing, ObjectStore, PreconditionFailed
from memoree.replication import layout
from memoree.sealed import opened, sealed


@dataclass(frozen=True, slots=True)
class Erasure:
    """`entities` are ids of artifacts and claims, `blobs` hex digests of content that nothing else cited; `at` is in
    stored form, `commit_seq` the commit that erased them first."""

    erasure_id: str
    at: str
    commit_seq: int
    entities: tuple[str, ...]
    blobs: tuple[str, ...]

    def to_bytes(self) -> bytes:
        return sealed(asdict(self))

    @classmethod
    def from_bytes(cls, body: bytes) -> Erasure:
        """Raises `INTEGRITY_ERROR` for a damaged entry."""
        try:
            document = opened(body)
            return cls(**{**document, "entities": tuple(document["entities"]), "blobs": tuple(document["blobs"])})
        except (KeyError, TypeError, ValueError) as error:
            raise MemoreeError(Code.INTEGRITY_ERROR, f"an entry of the erasures is damaged: {error}") from error


async def record(store: ObjectStore, tenant: str, erasure: Erasure) -> None:
    """Write the entry, once: a repeat leaves the first one. Raises `StoreUnavailable`, after which nothing is known."""
    try:
        await store.put(layout.erasure_key(tenant, erasure.erasure_id), erasure.to_bytes(), if_absent=True)
    except PreconditionFailed:
        return


async def recorded(store: ObjectStore, tenant: str) -> list[Erasure]:
    """Every entry of a tenant, in the order of their commits. Raises `StoreUnavailable`, and `INTEGRITY_ERROR` for a
    damaged one: restoring past it would bring back what was erased."""
    found = []
    async for info in store.list(layout.erasures_prefix(tenant)):
        try:
            entry = await store.get(info.key)
        except ObjectMissing:
            continue  # removed with the last backup that predates it
        assert entry is not None, "a GET without a condition always has a body"
        found.append(Erasure.from_bytes(entry.body))
    return sorted(found, key=lambda erasure: (erasure.commit_seq, erasure.erasure_id))
