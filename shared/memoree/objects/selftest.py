"""Proof, before a writer dares to run, that the object store keeps the promises the commit protocol rests on.

Stores have broken each of them in some release (field fault 46): a create-only PUT with two winners, or an ETag
that a conditional PUT does not accept, would make two writers both believe in their reign. A timed-out DELETE
still executes later, so the garbage collector depends on presigned ones expiring (design §5.3, §8).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from secrets import token_hex

from memoree.errors import Code, MemoreeError
from memoree.objects import (
    ObjectMissing,
    ObjectStore,
    ObjectStoreError,
    PreconditionFailed,
    StoreUnavailable,
)
from memoree.objects.presigned import sending

RACERS = 8
PRESIGNED_SECONDS = 600
EXPIRED_SECONDS = 1
EXPIRY_WAIT_SECONDS = 2.5
"""Signatures carry whole seconds: one second of life is over, on any clock, after two."""

KEY_PREFIX = "selftest"


async def prove_store(store: ObjectStore, *, key_prefix: str = KEY_PREFIX) -> None:
    """Returns when every promise held; takes about three seconds where deletes can be presigned.

    Raises `CONFIG_ERROR` naming the broken promise, `StoreUnavailable` when the store could not be asked.
    Works under `<key_prefix>/<random>/` and leaves nothing behind.
    """
    prefix = f"{key_prefix}/{token_hex(16)}"
    try:
        async with asyncio.TaskGroup() as proofs:
            for number, proof in enumerate((_canary, _one_creator_wins, _etags_compare, _deletes_expire)):
                proofs.create_task(proof(store, f"{prefix}/{number}"))
    except ExceptionGroup as group:
        raise _first(group) from group


async def prove_writable(store: ObjectStore, *, key_prefix: str = KEY_PREFIX) -> None:
    """The canary alone, a few milliseconds: what a readiness check asks. Raises as `prove_store` does."""
    await _canary(store, f"{key_prefix}/{token_hex(16)}")


async def _canary(store: ObjectStore, key: str) -> None:
    body = token_hex(16).encode()
    async with _promise("an object can be written, read and deleted"):
        await store.put(key, body)
        stored = await store.get(key)
        if stored is None or stored.body != body:
            raise _broken("what was written is read back")
        await store.delete(key)
        if await _exists(store, key):
            raise _broken("a deleted object is gone")


async def _one_creator_wins(store: ObjectStore, key: str) -> None:
    bodies = [f"racer {number}".encode() for number in range(RACERS)]
    async with _promise("a create-only write to a new key is answered"), _removed(store, key):
        won = await asyncio.gather(*(_created(store, key, body) for body in bodies))
        if sum(won) != 1:
            raise _broken(f"of {RACERS} concurrent create-only writes exactly one wins ({sum(won)} did)")
        stored = await store.get(key)
        if stored is None or stored.body != bodies[won.index(True)]:
            raise _broken("the winner of a create-only write is what a reader sees")


async def _etags_compare(store: ObjectStore, key: str) -> None:
    async with _promise("a conditional write with the current ETag is accepted"), _removed(store, key):
        if await _replaced(store, key, "0" * 32):
            raise _broken("a conditional write needs an object to compare with")
        first = await store.put(key, b"first", if_absent=True)
        if not await _replaced(store, key, first):
            raise _broken("the ETag that PUT returns is accepted as If-Match")
        if await _replaced(store, key, first):
            raise _broken("an outdated ETag is refused as If-Match")
        if not await _replaced(store, key, (await store.head(key)).etag):
            raise _broken("the ETag that HEAD returns is accepted as If-Match")


async def _deletes_expire(store: ObjectStore, key: str) -> None:
    """Skipped for stores without presigning: their deletes are local and cannot arrive late."""
    async with _promise("a presigned DELETE is obeyed until it expires, and not after"), _removed(store, key):
        expiring = store.presigned_delete(key, expires_seconds=EXPIRED_SECONDS)
        expired_at = time.monotonic() + EXPIRY_WAIT_SECONDS
        valid = store.presigned_delete(key, expires_seconds=PRESIGNED_SECONDS)
        if expiring is None or valid is None:
            return
        await store.put(key, b"to be deleted")
        await _send_delete(valid)
        if await _exists(store, key):
            raise _broken("a presigned DELETE deletes")
        await store.put(key, b"to be kept")
        await asyncio.sleep(expired_at - time.monotonic())
        await _send_delete(expiring)
        if not await _exists(store, key):
            raise _broken("an expired presigned DELETE is refused")


async def _created(store: ObjectStore, key: str, body: bytes) -> bool:
    try:
        await store.put(key, body, if_absent=True)
    except PreconditionFailed:
        return False
    return True


async def _replaced(store: ObjectStore, key: str, etag: str) -> bool:
    try:
        await store.put(key, token_hex(8).encode(), if_match=etag)
    except PreconditionFailed:
        return False
    return True


async def _exists(store: ObjectStore, key: str) -> bool:
    try:
        await store.head(key)
    except ObjectMissing:
        return False
    return True


async def _send_delete(url: str) -> None:
    """A refusal does not matter, only what became of the object."""
    async with sending() as send:
        try:
            await send(url)
        except StoreUnavailable:
            raise
        except ObjectStoreError:
            return


@asynccontextmanager
async def _removed(store: ObjectStore, key: str) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await store.delete(key)


@asynccontextmanager
async def _promise(promise: str) -> AsyncIterator[None]:
    """An outright refusal breaks the promise; no answer leaves it open."""
    try:
        yield
    except StoreUnavailable:
        raise
    except ObjectStoreError as error:
        raise _broken(f"{promise} ({error})") from error


def _broken(promise: str) -> MemoreeError:
    return MemoreeError(
        Code.CONFIG_ERROR,
        f"the object store breaks a promise Memoree depends on: {promise}",
        details={"promise": promise},
    )


def _first(group: ExceptionGroup[Exception]) -> Exception:
    """One plain error out of the group; a broken promise says more than a missing answer."""
    found = list(group.exceptions)
    return next((error for error in found if isinstance(error, MemoreeError)), found[0])
