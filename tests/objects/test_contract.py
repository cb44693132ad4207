"""What every object store promises (`memoree.objects.ObjectStore`), asked of each adapter."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta

import pytest

from memoree.objects import ObjectMissing, ObjectStore, PreconditionFailed

from .conftest import Stores

RACERS = 8
RACES = 2
"""Few: SeaweedFS answers the losers of a race one by one, a second apart."""

AWKWARD_BODIES = {
    "a PNG": bytes.fromhex("89504e470d0a1a0a0000000d49484452"),
    "bytes that are no UTF-8": b"\xff\xfe",
    "UTF-16 text": "memory".encode("utf-16"),
    "nothing": b"",
    "one byte": b"\x00",
    "a BOM and CRLF": b"\xef\xbb\xbfline\r\nline\r\n",
    "what chunked transfer would rewrite": b"0\r\n\r\n",
    "more than one read": bytes(range(256)) * 12_000,
}


async def listed(store: ObjectStore, prefix: str, start_after: str | None = None) -> list[str]:
    return [info.key async for info in store.list(prefix, start_after=start_after)]


async def succeeded(attempts: list[Awaitable[str]]) -> list[str | None]:
    """Per attempt the new ETag, or `None` where the precondition failed; anything else is raised."""
    results = await asyncio.gather(*attempts, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, PreconditionFailed):
            raise result
    return [result if isinstance(result, str) else None for result in results]


@pytest.mark.fault_class(61)
@pytest.mark.parametrize("body", AWKWARD_BODIES.values(), ids=AWKWARD_BODIES)
def test_every_byte_comes_back(stores: Stores, prefix: str, body: bytes) -> None:
    async def run() -> None:
        async with stores() as store:
            etag = await store.put(f"{prefix}key", body)
            stored = await store.get(f"{prefix}key")
            assert stored is not None
            assert (stored.body, stored.info.size, stored.info.etag) == (body, len(body), etag)

    asyncio.run(run())


def test_an_object_tells_its_age_and_the_clock_of_its_store(stores: Stores, prefix: str) -> None:
    async def run() -> None:
        async with stores() as store:
            before = datetime.now(UTC) - timedelta(seconds=2)  # HTTP dates are whole seconds
            await store.put(f"{prefix}key", b"body")
            stored = await store.get(f"{prefix}key")
            info = await store.head(f"{prefix}key")
            assert stored is not None
            assert stored.info == info
            assert before <= info.last_modified <= datetime.now(UTC) + timedelta(seconds=1)
            assert before <= stored.date <= datetime.now(UTC) + timedelta(seconds=1)
            assert info.last_modified.utcoffset() == stored.date.utcoffset() == timedelta(0)

    asyncio.run(run())


def test_another_client_sees_what_was_written(stores: Stores, prefix: str) -> None:
    async def run() -> None:
        async with stores() as writer, stores() as reader:
            await writer.put(f"{prefix}key", b"body")
            stored = await reader.get(f"{prefix}key")
            assert stored is not None
            assert stored.body == b"body"

    asyncio.run(run())


def test_an_unchanged_object_is_not_sent_again(stores: Stores, prefix: str) -> None:
    async def run() -> None:
        async with stores() as store:
            first = await store.put(f"{prefix}key", b"first")
            assert await store.get(f"{prefix}key", if_none_match=first) is None
            await store.put(f"{prefix}key", b"second")
            changed = await store.get(f"{prefix}key", if_none_match=first)
            assert changed is not None
            assert changed.body == b"second"

    asyncio.run(run())


def test_a_missing_object_is_reported_as_missing(stores: Stores, prefix: str) -> None:
    async def run() -> None:
        async with stores() as store:
            await store.put(f"{prefix}directory/child", b"")
            for key in ("none", "none/below/it", "directory"):
                with pytest.raises(ObjectMissing):
                    await store.get(f"{prefix}{key}")
                with pytest.raises(ObjectMissing):
                    await store.head(f"{prefix}{key}")

    asyncio.run(run())


def test_deleting_twice_succeeds(stores: Stores, prefix: str) -> None:
    async def run() -> None:
        async with stores() as store:
            await store.put(f"{prefix}key", b"body")
            await store.delete(f"{prefix}key")
            await store.delete(f"{prefix}key")
            await store.delete(f"{prefix}never/was")
            with pytest.raises(ObjectMissing):
                await store.head(f"{prefix}key")

    asyncio.run(run())


def test_a_create_only_write_leaves_an_existing_object_alone(stores: Stores, prefix: str) -> None:
    async def run() -> None:
        async with stores() as store:
            await store.put(f"{prefix}key", b"first", if_absent=True)
            with pytest.raises(PreconditionFailed):
                await store.put(f"{prefix}key", b"second", if_absent=True)
            stored = await store.get(f"{prefix}key")
            assert stored is not None
            assert stored.body == b"first"

    asyncio.run(run())


def test_an_outdated_etag_does_not_overwrite(stores: Stores, prefix: str) -> None:
    async def run() -> None:
        async with stores() as store:
            first = await store.put(f"{prefix}key", b"first")
            second = await store.put(f"{prefix}key", b"second", if_match=first)
            with pytest.raises(PreconditionFailed):
                await store.put(f"{prefix}key", b"third", if_match=first)
            assert (await store.head(f"{prefix}key")).etag == second

    asyncio.run(run())


@pytest.mark.fault_class(46)
def test_no_etag_matches_a_missing_object(stores: Stores, prefix: str) -> None:
    async def run() -> None:
        async with stores() as store:
            etag = await store.put(f"{prefix}other", b"body")
            with pytest.raises(PreconditionFailed):
                await store.put(f"{prefix}key", b"body", if_match=etag)
            with pytest.raises(ObjectMissing):
                await store.head(f"{prefix}key")

    asyncio.run(run())


@pytest.mark.fault_class(46)
def test_the_etag_of_every_answer_is_accepted_in_a_conditional_write(stores: Stores, prefix: str) -> None:
    async def run() -> None:
        async with stores() as store:
            key = f"{prefix}key"
            etag = await store.put(key, b"0", if_absent=True)
            await store.put(key, b"1", if_match=etag)
            await store.put(key, b"2", if_match=(await store.head(key)).etag)
            stored = await store.get(key)
            assert stored is not None
            await store.put(key, b"3", if_match=stored.info.etag)
            [found] = [info async for info in store.list(prefix)]
            await store.put(key, b"4", if_match=found.etag)

    asyncio.run(run())


@pytest.mark.fault_class(46)
@pytest.mark.parametrize("key", ["", "a/", "/a", "a//b", "..", "a/..", "a/../b", ".", "a/./b", "a\0b", "a" * 2000])
def test_keys_on_which_stores_disagree_are_refused(stores: Stores, key: str) -> None:
    async def run() -> None:
        async with stores() as store:
            for attempt in (store.put(key, b""), store.get(key), store.head(key), store.delete(key)):
                with pytest.raises(ValueError, match="not a usable object key"):
                    await attempt

    asyncio.run(run())


@pytest.mark.fault_class(46)
def test_of_many_creators_exactly_one_wins_and_its_bytes_stay(stores: Stores, prefix: str) -> None:
    async def run() -> None:
        async with stores() as one, stores() as other:
            for race in range(RACES):
                key = f"{prefix}race-{race}"
                bodies = [f"racer {number}".encode() for number in range(RACERS)]
                won = await succeeded(
                    [(one, other)[number % 2].put(key, body, if_absent=True) for number, body in enumerate(bodies)]
                )
                [winner] = [number for number, etag in enumerate(won) if etag is not None]
                stored = await one.get(key)
                assert stored is not None
                assert (stored.body, stored.info.etag) == (bodies[winner], won[winner])

    asyncio.run(run())


@pytest.mark.fault_class(46)
def test_of_many_who_compare_and_swap_exactly_one_wins(stores: Stores, prefix: str) -> None:
    async def run() -> None:
        async with stores() as one, stores() as other:
            key = f"{prefix}head.json"
            etag = await one.put(key, b"0")
            for generation in range(RACES):
                won = await succeeded(
                    [
                        (one, other)[number % 2].put(key, f"{generation} {number}".encode(), if_match=etag)
                        for number in range(RACERS)
                    ]
                )
                [etag] = [found for found in won if found is not None]
                assert (await other.head(key)).etag == etag

    asyncio.run(run())


AWKWARD_SIBLINGS = ["B", "a", "a b", "a+b", "a-b", "a.b", "a0", "ab", "é", "\U0001f600"]
"""Around `/` in byte order: a store that sorts by path segment puts `a/x` before `a-b`."""


def test_keys_are_listed_in_byte_order_from_any_point(stores: Stores, prefix: str) -> None:
    async def run() -> None:
        async with stores() as store:
            top = prefix.removeprefix("tenants/")
            keys = sorted((f"{top}{name}/{leaf}" for name in AWKWARD_SIBLINGS for leaf in "xy"), key=str.encode)
            for key in keys:
                await store.put(key, b"")
            assert await listed(store, top) == keys
            assert await listed(store, top[:-1]) == keys
            for number, key in enumerate(keys):
                assert await listed(store, top, start_after=key) == keys[number + 1 :]
            assert await listed(store, top, start_after=f"{top}a-b/xx") == keys[keys.index(f"{top}a-b/y") :]

    asyncio.run(run())


def test_a_prefix_need_not_end_at_a_slash(stores: Stores, prefix: str) -> None:
    async def run() -> None:
        async with stores() as store:
            for key in ("ltx/00000001-a/1", "ltx/00000001-b/1", "ltx/00000002-a/1", "ltx-other"):
                await store.put(f"{prefix}{key}", b"")
            assert await listed(store, f"{prefix}ltx/00000001") == [
                f"{prefix}ltx/00000001-a/1",
                f"{prefix}ltx/00000001-b/1",
            ]
            assert await listed(store, f"{prefix}nothing/here/") == []

    asyncio.run(run())


def test_a_long_listing_is_complete(stores: Stores, prefix: str) -> None:
    async def run() -> None:
        async with stores() as store:
            keys = [f"{prefix}ltx/0000/{number:016x}" for number in range(1_100)]  # a page of S3 has 1000
            for start in range(0, len(keys), 50):
                await asyncio.gather(*(store.put(key, b"") for key in keys[start : start + 50]))
            assert await listed(store, f"{prefix}ltx/") == keys
            assert await listed(store, f"{prefix}ltx/", start_after=keys[1_049]) == keys[1_050:]

    asyncio.run(run())
