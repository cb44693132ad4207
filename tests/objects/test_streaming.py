"""Large objects on every store: ranges, streams, copies inside the store, presigned writes, unfinished ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from memoree.errors import Code, MemoreeError
from memoree.objects import ObjectMissing, ObjectStore, ObjectStoreError, OutOfRange, PreconditionFailed
from memoree.objects.blobs import BlobStore, blob_digest, blob_key
from memoree.objects.filesystem import PRIVATE_DIRECTORY, FilesystemStore
from memoree.objects.s3 import COPY_PART_BYTES, PUT_PART_BYTES, S3Settings, S3Store
from memoree.objects.streaming import blob_windows, windows
from stack_support import unique_prefix

from .conftest import Stores

MIB = 1024 * 1024


async def pieces(body: bytes, size: int = 300_001) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


async def body_of(store: ObjectStore, key: str) -> bytes:
    stored = await store.get(key)
    assert stored is not None
    return stored.body


def patterned(size: int) -> bytes:
    return (b"0123456789abcdef" * (size // 16 + 1))[:size]


def test_a_range_is_these_bytes_and_tells_the_whole_size(stores: Stores, prefix: str) -> None:
    async def run() -> None:
        async with stores() as store:
            await store.put(f"{prefix}key", b"0123456789")
            for start, stop, expected in ((0, 10, b"0123456789"), (3, 4, b"3"), (8, 99, b"89")):
                found = await store.get_range(f"{prefix}key", start, stop)
                assert (found.body, found.object_size) == (expected, 10)
            with pytest.raises(OutOfRange):
                await store.get_range(f"{prefix}key", 10, 11)
            with pytest.raises(ObjectMissing):
                await store.get_range(f"{prefix}none", 0, 1)

    asyncio.run(run())


def test_a_range_of_another_version_is_refused(stores: Stores, prefix: str) -> None:
    async def run() -> None:
        async with stores() as store:
            first = await store.put(f"{prefix}key", b"first")
            assert (await store.get_range(f"{prefix}key", 0, 2, if_match=first)).body == b"fi"
            await store.put(f"{prefix}key", b"other")
            with pytest.raises(PreconditionFailed):
                await store.get_range(f"{prefix}key", 0, 2, if_match=first)
            with pytest.raises(ObjectMissing):
                await store.get_range(f"{prefix}none", 0, 2, if_match=first)

    asyncio.run(run())


@pytest.mark.parametrize("size", [0, 1, PUT_PART_BYTES, PUT_PART_BYTES + 1, 2 * PUT_PART_BYTES + 77])
def test_a_stream_is_stored_byte_for_byte(stores: Stores, prefix: str, size: int) -> None:
    async def run() -> None:
        async with stores() as store:
            body = patterned(size)
            await store.put_stream(f"{prefix}key", pieces(body), size=size)
            assert await body_of(store, f"{prefix}key") == body
            assert (await store.head(f"{prefix}key")).size == size

    asyncio.run(run())


class Interrupted(Exception):
    pass


async def broken(body: bytes) -> AsyncIterator[bytes]:
    async for piece in pieces(body):
        yield piece
    raise Interrupted


@pytest.mark.proves("fault-43")
@pytest.mark.parametrize("size", [1000, PUT_PART_BYTES + MIB])
def test_a_stream_that_breaks_off_leaves_what_was_there_before(stores: Stores, prefix: str, size: int) -> None:
    async def run() -> None:
        async with stores() as store:
            await store.put(f"{prefix}key", b"before")
            body = patterned(size)
            with pytest.raises(Interrupted):
                await store.put_stream(f"{prefix}key", broken(body), size=size)
            for declared in (size - 1, size + 1):
                with pytest.raises(ObjectStoreError):
                    await store.put_stream(f"{prefix}key", pieces(body), size=declared)
            assert await body_of(store, f"{prefix}key") == b"before"
            tomorrow = datetime.now(UTC) + timedelta(days=1)
            assert await store.abort_unfinished(prefix, before=tomorrow) == 0, "parts of it were left behind"

    asyncio.run(run())


def test_a_stream_that_is_cancelled_stores_nothing(stores: Stores, prefix: str) -> None:
    async def run() -> None:
        async with stores() as store:
            begun = asyncio.Event()

            async def endless() -> AsyncIterator[bytes]:
                yield bytes(PUT_PART_BYTES + 1)
                begun.set()
                await asyncio.Event().wait()

            writing = asyncio.create_task(store.put_stream(f"{prefix}key", endless(), size=2 * PUT_PART_BYTES))
            await begun.wait()
            writing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await writing
            with pytest.raises(ObjectMissing):
                await store.head(f"{prefix}key")

    asyncio.run(run())


@pytest.mark.parametrize("size", [5, COPY_PART_BYTES + 7], ids=["small", "in parts"])
def test_a_copy_holds_the_version_that_was_named(stores: Stores, prefix: str, size: int) -> None:
    async def run() -> None:
        async with stores() as store:
            source, target = f"{prefix}source", f"{prefix}target"
            body = patterned(size)
            await store.put_stream(source, pieces(body, MIB), size=size)
            info = await store.head(source)
            before = datetime.now(UTC) - timedelta(seconds=2)
            await store.copy(info, target)
            copied = await store.head(target)
            assert copied.size == size
            assert copied.last_modified >= before
            assert await body_of(store, target) == body
            await store.put(source, b"replaced")
            with pytest.raises(PreconditionFailed):
                await store.copy(info, f"{prefix}other")
            await store.delete(source)
            with pytest.raises(ObjectMissing):
                await store.copy(info, f"{prefix}other")
            with pytest.raises(ObjectMissing):
                await store.head(f"{prefix}other")
            assert await body_of(store, target) == body, "the copy does not depend on its source"

    asyncio.run(run())


def test_one_level_of_names_is_told(stores: Stores, prefix: str) -> None:
    async def run() -> None:
        async with stores() as store:
            for key in ("a", "b/1", "b/2/3", "c.d"):
                await store.put(f"{prefix}{key}", b"")
            assert {name async for name in store.children(prefix)} == {
                f"{prefix}a",
                f"{prefix}b/",
                f"{prefix}c.d",
            }
            assert [name async for name in store.children(f"{prefix}none/")] == []

    asyncio.run(run())


async def collected(found: Any) -> list[bytes]:
    async with aclosing(found):
        return [window if isinstance(window, bytes) else window.body async for window in found]


@pytest.mark.parametrize(("start", "stop"), [(0, 1000), (0, 1), (1, 300), (299, 601), (999, 1000)])
def test_windows_are_the_bytes_in_order(stores: Stores, prefix: str, start: int, stop: int) -> None:
    async def run() -> None:
        async with stores() as store:
            body = bytes(number % 251 for number in range(1000))
            await store.put(f"{prefix}key", body)
            found = await collected(windows(store, f"{prefix}key", start, stop, window_bytes=300))
            assert b"".join(found) == body[start:stop]
            assert all(len(window) <= 300 for window in found)

    asyncio.run(run())


async def damaged_blob(store: ObjectStore, tenant: str, body: bytes, damaged: bytes | None) -> str:
    digest = await BlobStore(store, tenant).put(body)
    if damaged is None:
        await store.delete(blob_key(tenant, digest))
    else:
        await store.put(blob_key(tenant, digest), damaged)
    return digest


@pytest.mark.proves("fault-43")
def test_a_damaged_blob_never_ends_well(stores: Stores) -> None:
    """Missing or cut: known before the first byte. Of the right size: before the last ones."""
    tenant = unique_prefix().split("/")[1]

    async def run() -> None:
        async with stores() as store:
            body = patterned(1000)
            for damaged, seen_at_most in ((None, 0), (body[:999], 0), (b"", 0), (body[:999] + b"!", 900)):
                digest = await damaged_blob(store, tenant, body, damaged)
                seen = 0
                found = blob_windows(store, tenant, digest, 1000, 0, 1000, window_bytes=300)
                with pytest.raises(MemoreeError) as refused:
                    async with aclosing(found):
                        async for window in found:
                            seen += len(window)
                assert refused.value.code is Code.INTEGRITY_ERROR
                assert seen == seen_at_most

    asyncio.run(run())


def test_a_sound_blob_is_read_whole_and_in_part(stores: Stores) -> None:
    tenant = unique_prefix().split("/")[1]

    async def run() -> None:
        async with stores() as store:
            body = patterned(1000)
            digest = await BlobStore(store, tenant).put(body)
            assert digest == blob_digest(body)
            for start, stop in ((0, 1000), (300, 600), (1, 1000)):
                found = blob_windows(store, tenant, digest, 1000, start, stop, window_bytes=300)
                assert b"".join(await collected(found)) == body[start:stop]

    asyncio.run(run())


@pytest.mark.stack
def test_a_presigned_put_takes_exactly_the_signed_length(seaweedfs: S3Settings, prefix: str) -> None:
    async def run() -> None:
        key = f"{prefix}key"
        async with S3Store(seaweedfs) as store, httpx.AsyncClient(trust_env=False) as client:
            signed = store.presigned_put(key, size=1000, expires_seconds=60)
            for body in (b"x" * 999, b"x" * 1001):
                assert (await client.put(signed.url, content=body)).status_code == 403
            with pytest.raises(ObjectMissing):
                await store.head(key)
            for body in (b"x" * 1000, b"y" * 1000):
                assert (await client.put(signed.url, content=body, headers=signed.headers)).status_code == 200
                assert await body_of(store, key) == body
            elsewhere = signed.url.replace("key?", "other?")
            assert (await client.put(elsewhere, content=b"x" * 1000)).status_code == 403

    asyncio.run(run())


@pytest.mark.stack
@pytest.mark.fault_class(48)
def test_a_presigned_put_is_signed_for_its_whole_life_and_no_longer(seaweedfs: S3Settings, prefix: str) -> None:
    """A slow sender is not refused as skewed: the signature says for how long it holds."""
    import time_machine

    async def put(signed_at: datetime, expires_seconds: int) -> int:
        async with S3Store(seaweedfs) as store:
            with time_machine.travel(signed_at, tick=True):
                signed = store.presigned_put(f"{prefix}key", size=1, expires_seconds=expires_seconds)
        async with httpx.AsyncClient(trust_env=False) as client:
            return (await client.put(signed.url, content=b"x")).status_code

    hours_ago = datetime.now(UTC) - timedelta(hours=3)
    assert asyncio.run(put(hours_ago, 4 * 3600)) == 200
    assert asyncio.run(put(hours_ago, 2 * 3600)) == 403


@pytest.mark.stack
def test_unfinished_writes_are_given_up_by_age(seaweedfs: S3Settings, prefix: str) -> None:
    """Somebody else's, of any client: here one that was begun and never went on."""

    async def run() -> None:
        async with S3Store(seaweedfs) as store:
            client: Any = store._repeating
            await client.create_multipart_upload(Bucket=seaweedfs.bucket, Key=f"{prefix}key")
            hour = timedelta(hours=1)
            assert await store.abort_unfinished(prefix, before=datetime.now(UTC) - hour) == 0
            assert await store.abort_unfinished(prefix, before=datetime.now(UTC) + hour) == 1
            assert await store.abort_unfinished(prefix, before=datetime.now(UTC) + hour) == 0

    asyncio.run(run())


def test_what_a_killed_process_left_of_a_write_is_removed_by_age(tmp_path: Path) -> None:
    store = FilesystemStore(tmp_path)

    async def run() -> None:
        await store.put("key", b"whole")
        left = tmp_path / PRIVATE_DIRECTORY / "temporary" / "left"
        left.write_bytes(b"half of")
        hour = timedelta(hours=1)
        assert await store.abort_unfinished("", before=datetime.now(UTC) - hour) == 0
        assert left.exists(), "somebody may still be writing it"
        assert await store.abort_unfinished("", before=datetime.now(UTC) + hour) == 1
        assert not left.exists()
        assert await store.get("key") is not None

    asyncio.run(run())
