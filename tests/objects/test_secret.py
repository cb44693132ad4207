"""The key that all processes of a deployment share."""

from __future__ import annotations

import asyncio

import pytest

from memoree.errors import Code, MemoreeError
from memoree.objects.secret import SECRET_BYTES, shared_secret

from .conftest import Stores

MAKERS = 4


def test_of_many_makers_one_wins_and_all_have_its_key(stores: Stores, prefix: str) -> None:
    async def make() -> bytes:
        async with stores() as store:
            return await shared_secret(store, f"{prefix}key")

    async def run() -> None:
        found = await asyncio.gather(*(make() for _ in range(MAKERS)))
        assert len(set(found)) == 1
        assert len(found[0]) == SECRET_BYTES
        assert await make() == found[0]

    asyncio.run(run())


def test_every_key_is_another(stores: Stores, prefix: str) -> None:
    async def run() -> None:
        async with stores() as store:
            assert await shared_secret(store, f"{prefix}one") != await shared_secret(store, f"{prefix}other")

    asyncio.run(run())


def test_what_is_no_key_is_not_used_as_one(stores: Stores, prefix: str) -> None:
    async def run() -> None:
        async with stores() as store:
            await store.put(f"{prefix}key", b"short")
            with pytest.raises(MemoreeError) as refused:
                await shared_secret(store, f"{prefix}key")
            assert refused.value.code is Code.INTEGRITY_ERROR

    asyncio.run(run())
