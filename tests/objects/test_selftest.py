from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from memoree.errors import Code, MemoreeError
from memoree.objects import ObjectInfo, ObjectStoreError, PreconditionFailed, StoredObject, StoreUnavailable
from memoree.objects.filesystem import FilesystemStore
from memoree.objects.s3 import S3Settings, S3Store
from memoree.objects.selftest import PRESIGNED_SECONDS, prove_store, prove_writable

from .conftest import Stores
from .scripted_server import Answer, ScriptedServer


@pytest.mark.fault_class(46)
def test_a_store_that_keeps_its_promises_is_proven_and_left_clean(stores: Stores, prefix: str) -> None:
    async def run() -> None:
        async with stores() as store:
            await prove_store(store, key_prefix=f"{prefix}selftest")
            await prove_writable(store, key_prefix=f"{prefix}selftest")
            assert [info async for info in store.list(prefix)] == []

    asyncio.run(run())


class TwoCreatorsWin(FilesystemStore):
    """As one release did: the check and the write are two steps."""

    async def put(self, key: str, body: bytes, **options: object) -> str:
        if options.pop("if_absent", False):
            found = self.exists_sync(key)
            await asyncio.sleep(0)
            if found:
                raise PreconditionFailed(key)
        return await super().put(key, body, **options)  # type: ignore[arg-type]  # what is left of the options


class HeadNamesAnotherEtag(FilesystemStore):
    async def head(self, key: str) -> ObjectInfo:
        info = await super().head(key)
        return replace(info, etag=f"W/{info.etag}")


class IgnoresIfMatch(FilesystemStore):
    async def put(self, key: str, body: bytes, **options: object) -> str:
        options.pop("if_match", None)
        return await super().put(key, body, **options)  # type: ignore[arg-type]  # what is left of the options


class IgnoresIfMatchOfMissing(FilesystemStore):
    async def put(self, key: str, body: bytes, **options: object) -> str:
        if not self.exists_sync(key):
            options.pop("if_match", None)
        return await super().put(key, body, **options)  # type: ignore[arg-type]  # what is left of the options


class NeverAcceptsAnEtag(FilesystemStore):
    async def put(self, key: str, body: bytes, **options: object) -> str:
        if options.get("if_match"):
            raise PreconditionFailed(key)
        return await super().put(key, body, **options)  # type: ignore[arg-type]  # what is left of the options


class StoresNothing(FilesystemStore):
    async def get(self, key: str, *, if_none_match: str | None = None) -> StoredObject | None:
        stored = await super().get(key)
        return stored and replace(stored, body=b"")


class DeletesNothing(FilesystemStore):
    async def delete(self, key: str) -> None:
        return


class RefusesWrites(FilesystemStore):
    async def put(self, key: str, body: bytes, **options: object) -> str:
        raise ObjectStoreError("AccessDenied")


@pytest.mark.fault_class(46)
@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (TwoCreatorsWin, "exactly one wins"),
        (HeadNamesAnotherEtag, "the ETag that HEAD returns is accepted"),
        (IgnoresIfMatch, "needs an object to compare with|an outdated ETag is refused"),
        (IgnoresIfMatchOfMissing, "needs an object to compare with"),
        (NeverAcceptsAnEtag, "the ETag that PUT returns is accepted"),
        (StoresNothing, "what was written is read back|what a reader sees"),
        (DeletesNothing, "a deleted object is gone"),
        (RefusesWrites, "AccessDenied"),
    ],
)
def test_each_broken_promise_is_found_and_named(broken: type[FilesystemStore], promise: str, tmp_path: Path) -> None:
    with pytest.raises(MemoreeError, match=promise) as raised:
        asyncio.run(prove_store(broken(tmp_path)))
    assert raised.value.code is Code.CONFIG_ERROR


class DeletesForever(S3Store):
    """Takes a presigned DELETE long after it expired."""

    def presigned_delete(self, key: str, *, expires_seconds: int) -> str | None:
        return super().presigned_delete(key, expires_seconds=PRESIGNED_SECONDS)


class DeletesElsewhere(S3Store):
    def presigned_delete(self, key: str, *, expires_seconds: int) -> str | None:
        return super().presigned_delete(f"{key}-elsewhere", expires_seconds=expires_seconds)


@pytest.mark.stack
@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (DeletesForever, "an expired presigned DELETE is refused"),
        (DeletesElsewhere, "a presigned DELETE deletes"),
    ],
)
def test_a_delete_without_an_end_is_found(
    broken: type[S3Store], promise: str, seaweedfs: S3Settings, prefix: str
) -> None:
    async def run() -> None:
        async with broken(seaweedfs) as store:
            with pytest.raises(MemoreeError, match=promise):
                await prove_store(store, key_prefix=f"{prefix}selftest")

    asyncio.run(run())


def test_no_answer_is_an_outage_and_not_a_broken_promise() -> None:
    async def run() -> None:
        async with ScriptedServer([Answer(503)]) as server, S3Store(server.settings) as store:
            with pytest.raises(StoreUnavailable):
                await prove_writable(store)

    asyncio.run(run())
