"""Proving every blob of a tenant: nothing is believed, nothing is forgotten, and little is in memory at a time."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from blake3 import blake3

from memoree import limits
from memoree.objects import ObjectRange, ObjectStore, StoreUnavailable
from memoree.objects.audit import BlobFault, BlobRef, DirectoryAudit
from memoree.objects.blobs import BlobStore, blob_key
from memoree.objects.filesystem import FilesystemStore
from memoree.objects.remote_audit import RemoteAudit

from .conftest import Stores

PIECE = 1000
SIZES = (1, PIECE - 1, PIECE, PIECE + 1, 7 * PIECE, 7 * PIECE + 5)
BODIES = {BlobRef(blake3(body).digest(), len(body)): body for body in (b"x" * size for size in SIZES)}
REFERENCED = sorted(BODIES)
LONG = next(ref for ref in REFERENCED if ref.size == SIZES[-1])

Damage = Callable[[bytes], bytes | None]
DAMAGES: dict[str, tuple[Damage, str]] = {
    "gone": (lambda body: None, "is missing"),
    "flipped at the start": (lambda body: b"y" + body[1:], "digest mismatch"),
    "flipped at the end": (lambda body: body[:-1] + b"y", "digest mismatch"),
    "one byte short": (lambda body: body[:-1], f"has {LONG.size - 1} bytes where {LONG.size} were recorded"),
    "a piece short": (lambda body: body[: 3 * PIECE], f"has {3 * PIECE} bytes"),
    "one byte long": (lambda body: body + b"x", f"has {LONG.size + 1} bytes"),
    "empty": (lambda body: b"", "is missing"),
}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "VERIFY_PIECE_BYTES", PIECE)


@pytest.fixture
def tenant() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


async def audited(store: ObjectStore, tenant: str, referenced: Sequence[BlobRef]) -> list[BlobFault]:
    """As an operation does it: in a thread, while the loop fetches."""
    audit = RemoteAudit(store, tenant, asyncio.get_running_loop())
    return await asyncio.to_thread(lambda: list(audit.faults(iter(referenced))))


async def filled(store: ObjectStore, tenant: str) -> None:
    for body in BODIES.values():
        await BlobStore(store, tenant).put(body)


def test_blobs_of_any_number_of_pieces_are_proved(stores: Stores, tenant: str) -> None:
    async def run() -> None:
        async with stores() as store:
            await filled(store, tenant)
            assert await audited(store, tenant, REFERENCED) == []
            assert await audited(store, tenant, []) == []

    asyncio.run(run())


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_is_told_once_and_by_name(stores: Stores, tenant: str, damage: str) -> None:
    inflict, expected = DAMAGES[damage]

    async def run() -> None:
        async with stores() as store:
            await filled(store, tenant)
            key = blob_key(tenant, LONG.digest.hex())
            damaged = inflict(BODIES[LONG])
            if damaged is None:
                await store.delete(key)
            else:
                await store.put(key, damaged)
            [fault] = await audited(store, tenant, REFERENCED)
            assert fault.name == LONG.digest.hex()
            assert expected in fault.detail

    asyncio.run(run())


def test_a_directory_is_held_against_its_references_from_both_sides(tmp_path: Path) -> None:
    store = FilesystemStore(tmp_path)
    present, unreferenced = REFERENCED[::2], REFERENCED[1]
    for ref in (*present, unreferenced):
        store.put_sync(blob_key("t", ref.digest.hex()), BODIES[ref])
    store.put_sync("tenants/t/blobs/b3/zz/stray", b"x")
    wanted = [ref for ref in REFERENCED if ref != unreferenced]
    found = {fault.name: fault.detail for fault in DirectoryAudit(store, "t").faults(iter(wanted))}
    missing = {ref.digest.hex(): "is missing from the store" for ref in wanted if ref not in present}
    assert found == {**missing, "tenants/t/blobs/b3/zz/stray": "is not the name of a blob"}


class CountingStore(FilesystemStore):
    """Counts the pieces that were asked for."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.pieces = 0

    async def get_range(self, key: str, start: int, stop: int, *, if_match: str | None = None) -> ObjectRange:
        self.pieces += 1
        return await super().get_range(key, start, stop, if_match=if_match)


def test_only_a_few_pieces_are_fetched_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first fault is told when its piece came, with the next two on their way and no others asked for."""
    monkeypatch.setattr(limits, "VERIFY_PIECES_AHEAD", 2)

    async def run() -> None:
        store = CountingStore(tmp_path)
        audit = RemoteAudit(store, "t", asyncio.get_running_loop())
        faults = audit.faults(iter([BlobRef(bytes(32), 90 * PIECE)]))
        fault = await asyncio.to_thread(next, faults)
        assert fault == BlobFault("0" * 64, "is missing from the store")
        assert store.pieces <= 3
        faults.close()

    asyncio.run(run())


class DeadStore(FilesystemStore):
    async def get_range(self, key: str, start: int, stop: int, *, if_match: str | None = None) -> ObjectRange:
        raise StoreUnavailable("no answer")


def test_a_store_that_does_not_answer_is_no_fault_of_its_blobs(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        asyncio.run(audited(DeadStore(tmp_path), "t", REFERENCED))
