from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from blake3 import blake3

from memoree.errors import Code, MemoreeError
from memoree.objects.blobs import (
    BlobCache,
    BlobStore,
    LocalBlobStore,
    blob_digest,
    blob_key,
    check_tenant,
    tenant_directory_name,
)
from memoree.objects.filesystem import FilesystemStore

from .conftest import Stores
from .test_contract import AWKWARD_BODIES

BODY = b"evidence" * 1000


def tenant_of(prefix: str) -> str:
    return prefix.split("/")[1]


def test_a_blob_lies_under_its_tenant_and_its_digest() -> None:
    digest = blake3(BODY).hexdigest()
    assert blob_key("acme", digest) == f"tenants/acme/blobs/b3/{digest[:2]}/{digest}"


@pytest.mark.fault_class(61)
@pytest.mark.parametrize("body", AWKWARD_BODIES.values(), ids=AWKWARD_BODIES)
def test_a_blob_comes_back_byte_for_byte(stores: Stores, prefix: str, body: bytes) -> None:
    async def run() -> None:
        async with stores() as store:
            blobs = BlobStore(store, tenant_of(prefix))
            digest = await blobs.put(body)
            assert digest == blake3(body).hexdigest()
            assert await blobs.exists(digest)
            assert await blobs.read(digest, size=len(body)) == body

    asyncio.run(run())


def test_a_missing_blob_is_an_integrity_error(stores: Stores, prefix: str) -> None:
    async def run() -> None:
        async with stores() as store:
            blobs = BlobStore(store, tenant_of(prefix))
            assert not await blobs.exists(blob_digest(b"never stored"))
            with pytest.raises(MemoreeError, match="missing") as raised:
                await blobs.read(blob_digest(b"never stored"))
            assert raised.value.code is Code.INTEGRITY_ERROR

    asyncio.run(run())


def test_damaged_bytes_are_never_returned(stores: Stores, prefix: str) -> None:
    async def run() -> None:
        async with stores() as store:
            blobs = BlobStore(store, tenant_of(prefix), cache=BlobCache())
            digest = await blobs.put(BODY)
            key = blob_key(tenant_of(prefix), digest)
            for damage in (b"", BODY[:-1], bytes([BODY[0] ^ 1]) + BODY[1:]):
                await store.put(key, damage)
                with pytest.raises(MemoreeError, match="damaged") as raised:
                    await blobs.read(digest)
                assert raised.value.code is Code.INTEGRITY_ERROR
            await blobs.put(BODY)  # writes although something is there, and so heals
            assert await blobs.read(digest) == BODY

    asyncio.run(run())


def test_a_recorded_size_must_agree_also_in_the_cache(tmp_path: Path) -> None:
    async def run() -> None:
        blobs = BlobStore(FilesystemStore(tmp_path), "acme", cache=BlobCache())
        digest = await blobs.put(BODY)
        for _ in range(2):
            assert await blobs.read(digest, size=len(BODY)) == BODY
            with pytest.raises(MemoreeError, match="bytes where") as raised:
                await blobs.read(digest, size=len(BODY) + 1)
            assert raised.value.code is Code.INTEGRITY_ERROR

    asyncio.run(run())


def test_a_cached_blob_needs_no_second_request(tmp_path: Path) -> None:
    async def run() -> None:
        store, cache = FilesystemStore(tmp_path), BlobCache()
        blobs = BlobStore(store, "acme", cache=cache)
        digest = await blobs.put(BODY)
        assert await blobs.read(digest) == BODY
        await store.delete(blob_key("acme", digest))
        assert await blobs.read(digest) == BODY
        assert not await blobs.exists(digest)
        cache.forget("acme", digest)
        with pytest.raises(MemoreeError, match="missing"):
            await blobs.read(digest)

    asyncio.run(run())


@pytest.mark.fault_class(25)
def test_what_one_tenant_read_is_not_served_to_another(tmp_path: Path) -> None:
    async def run() -> None:
        store, cache = FilesystemStore(tmp_path), BlobCache()
        one, other = BlobStore(store, "acme", cache=cache), BlobStore(store, "acme1", cache=cache)
        digest = await one.put(BODY)
        assert await one.read(digest) == BODY
        for _ in range(2):
            assert not await other.exists(digest)
            with pytest.raises(MemoreeError, match="missing"):
                await other.read(digest)

    asyncio.run(run())


def test_the_cache_forgets_the_least_recently_used_and_stays_in_bounds() -> None:
    cache = BlobCache(bytes_max=100)
    for name in "abc":
        cache.put("acme", name, name.encode() * 30)
    assert cache.get("acme", "a") is not None
    cache.put("acme", "d", b"d" * 30)
    assert cache.get("acme", "b") is None
    assert [name for name in "acd" if cache.get("acme", name)] == ["a", "c", "d"]
    cache.put("acme", "a", b"a" * 30)
    assert cache.bytes_held == 90
    cache.put("acme", "huge", b"x" * 101)
    assert cache.get("acme", "huge") is None
    assert cache.bytes_held == 90


def test_the_synchronous_store_reads_what_the_other_wrote(tmp_path: Path) -> None:
    store = FilesystemStore(tmp_path)
    blobs = LocalBlobStore(store, "local")
    digest = asyncio.run(BlobStore(store, "local").put(BODY))
    assert blobs.exists(digest)
    assert blobs.read(digest, size=len(BODY)) == BODY
    store.put_sync(blob_key("local", digest), b"damage")
    with pytest.raises(MemoreeError, match="damaged"):
        blobs.read(digest)
    blobs.delete(digest)
    assert not blobs.exists(digest)
    with pytest.raises(MemoreeError, match="missing"):
        blobs.read(digest)


@pytest.mark.fault_class(26)
@pytest.mark.parametrize("name", ["a", "local", "A", "a_", "a.b", "..a", "-", "0" * 128])
def test_a_tenants_name_may_be(name: str) -> None:
    assert check_tenant(name) == name


@pytest.mark.fault_class(26)
@pytest.mark.parametrize("name", ["", ".", "..", "...", "a/b", "a b", "a%", "á", "a\n", "a\0", "../a", "0" * 129, "*"])
def test_a_tenants_name_may_not_be(name: str) -> None:
    with pytest.raises(MemoreeError, match="cannot name a tenant") as raised:
        check_tenant(name)
    assert raised.value.code is Code.CONFIG_ERROR
    with pytest.raises(MemoreeError):
        BlobStore(FilesystemStore(Path("unused")), name)


@pytest.mark.fault_class(26)
def test_tenants_that_differ_in_case_have_directories_that_differ_in_more() -> None:
    names = ["test_user", "test_user1", "a", "a1", "a_", "A", "Test_User"]
    directories = {tenant_directory_name(name) for name in names}
    assert len({directory.lower() for directory in directories}) == len(names)
    assert all(set(directory) <= set("0123456789abcdef") for directory in directories)


@pytest.mark.parametrize("digest", ["", "0" * 63, "0" * 65, "A" * 64, "../" + "0" * 61, "0" * 64 + "\n"])
def test_only_a_digest_names_a_blob(digest: str) -> None:
    with pytest.raises(ValueError, match="not a BLAKE3 digest"):
        blob_key("acme", digest)
