"""The files a replica is made of are missing, cut, flipped, or those of another tenant: no reader shows what it cannot
prove, and none stays blind once the damage is undone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from itertools import accumulate, chain, repeat
from pathlib import Path

import pytest

from faults.checker import Checker
from faults.site import Acknowledged, Clients, Site, until
from memoree.objects.s3 import S3Store
from memoree.writer.tenant import FAULT_BACK_OFF_SECONDS

RECOVERY_SECONDS_MAX = 15.0
BURNING_SECONDS = 3.0
"""Within that time, by a writer whose every takeover fails; without a growing pause it is two a second and more."""
RARELY = 3600.0
"""A reader with this staleness looks when it is asked to, and never by itself."""


def missing(body: bytes, other: bytes) -> bytes | None:
    return None


def truncated(body: bytes, other: bytes) -> bytes | None:
    return body[: len(body) // 2]


def flipped(body: bytes, other: bytes) -> bytes | None:
    middle = len(body) // 2
    return body[:middle] + bytes([body[middle] ^ 0x10]) + body[middle + 1 :]


def foreign(body: bytes, other: bytes) -> bytes | None:
    """Sound in itself, with the same TXIDs, applied to the same pages: the other tenant's."""
    return other


@pytest.mark.parametrize(
    ("damage", "which"),
    [(missing, -2), (truncated, -2), (flipped, -2), (foreign, -1)],
    ids=["missing", "truncated", "flipped", "of another lineage"],
)
def test_a_reader_never_shows_a_state_built_of_a_damaged_file(
    damage: Callable[[bytes, bytes], bytes | None], which: int, site: Site, tmp_path: Path
) -> None:
    async def run() -> None:
        other = f"{site.tenant}-other"
        async with (
            site.clients() as clients,
            site.clients(staleness_seconds_max=RARELY) as warm,
            S3Store(site.s3) as store,
        ):
            with site.writer():
                for tenant in (site.tenant, other):
                    first = await clients.write("0", tenant=tenant)
                    assert await error_code(warm, first) is None
                    for number in range(1, 4):
                        await clients.write(f"{number}", tenant=tenant)
                await count_alike(clients, Checker(site, tmp_path), Checker(site, tmp_path, other))
            last = max(
                (written for written in clients.acknowledged if written.tenant == site.tenant),
                key=lambda written: written.commit_seq,
            )
            files = await raw_files(store, site.tenant)
            others = await raw_files(store, other)
            name = sorted(files)[which]
            key, body = files[name]
            if (damaged := damage(body, others[name][1])) is None:
                await store.delete(key)
            else:
                await store.put(key, damaged)
            async with site.clients() as fresh:
                for reader in (warm, fresh):
                    assert await error_code(reader, last) == "INDEX_NOT_READY"
                await store.put(key, body)
                for reader in (warm, fresh):
                    await until_read(reader, last)
            Checker(site, tmp_path).check(clients.acknowledged)

    asyncio.run(run())


def claims_by(seconds: float) -> int:
    """Claims that the pauses between them leave room for, were each made and refused in no time."""
    longest = FAULT_BACK_OFF_SECONDS[-1]
    pauses = chain(FAULT_BACK_OFF_SECONDS, repeat(longest, int(seconds / longest)))
    return 1 + sum(at <= seconds for at in accumulate(pauses))


def test_a_takeover_from_a_damaged_prefix_is_refused_and_burns_no_epochs(site: Site, tmp_path: Path) -> None:
    async def run() -> None:
        async with site.clients() as clients, S3Store(site.s3) as store:
            with site.writer():
                await clients.write_many("before", 5, concurrency=1)
            checker = Checker(site, tmp_path)
            epoch = checker.head()["epoch"]
            files = await raw_files(store, site.tenant)
            key, body = files[sorted(files)[2]]
            await store.put(key, flipped(body, b"") or b"")
            began = time.monotonic()
            with site.writer() as writer:
                pending = asyncio.create_task(clients.write("meanwhile"))
                await until(lambda: "given back" in writer.log(), 20, what="a refusal to write")
                await asyncio.sleep(BURNING_SECONDS)
                claimed = checker.head()["epoch"] - epoch
                assert claimed <= claims_by(time.monotonic() - began), "epochs are claimed without a pause"
                assert not pending.done()
                await store.put(key, body)
                await pending
            checker.check(clients.acknowledged)

    asyncio.run(run())


def test_a_slow_reader_keeps_its_state_while_others_go_on(site: Site, tmp_path: Path) -> None:
    async def run() -> None:
        async with site.clients() as clients:
            with site.writer():
                await clients.write_many("before", 3)
                async with clients.service._replicas.ready(site.tenant, strong=True) as replica:
                    slow = replica.generation
                    with slow.connection() as db:
                        db.execute("BEGIN")
                        for number in range(12):
                            await clients.write(f"meanwhile-{number}")
                            counts = list(db.execute("SELECT count(*), (SELECT commit_seq FROM meta) FROM claims"))
                            assert counts == [(3, 3)], "the file was changed under a reader"
                        assert list(db.execute("PRAGMA integrity_check")) == [("ok",)]
                        assert replica.generation is not slow
                assert await error_code(clients, clients.acknowledged[-1]) is None
            Checker(site, tmp_path).check(clients.acknowledged)

    asyncio.run(run())


def test_a_deleted_head_stops_writers_and_readers_instead_of_starting_anew(site: Site, tmp_path: Path) -> None:
    async def run() -> None:
        async with site.clients() as clients, S3Store(site.s3) as store:
            with site.writer() as writer:
                await clients.write_many("before", 3)
                head_key = f"tenants/{site.tenant}/head.json"
                found = await store.get(head_key)
                assert found is not None
                await store.delete(head_key)
                pending = asyncio.create_task(clients.call("claim.assert", CLAIM, key="lost", wait_seconds=20))
                await until(lambda: "head missing" in writer.log(), 20, what="the writer's refusal")
                async with site.clients() as fresh:
                    for reader in (clients, fresh):
                        assert await error_code(reader, clients.acknowledged[0]) == "INTEGRITY_ERROR"
                refused = await pending
                assert refused.envelope["error"]["code"] == "INTEGRITY_ERROR", refused.envelope
                assert await keys_of_head(store, site.tenant) == []
                await store.put(head_key, found.body)
                await clients.write("after")
            Checker(site, tmp_path).check(clients.acknowledged)

    asyncio.run(run())


CLAIM: Mapping[str, str] = {"claim_type": "fact", "statement": "lost"}


async def count_alike(clients: Clients, *tenants: Checker) -> None:
    """Write until the tenants are at the same TXID: Litestream adds one of its own now and then."""
    while len({tenant.head()["txid"] for tenant in tenants}) > 1:
        behind = min(tenants, key=lambda tenant: int(tenant.head()["txid"]))
        await clients.write(f"after TXID {behind.head()['txid']}", tenant=behind.tenant)


async def error_code(reader: Clients, written: Acknowledged) -> str | None:
    """What a strong read of an acknowledged claim is refused with, if it is."""
    reply = await reader.call("claim.get", {"claim_id": written.claim_id}, tenant=written.tenant, strong=True)
    if reply.status == 200:
        assert reply.envelope["result"]["statement"] == written.statement
        return None
    code: str = reply.envelope["error"]["code"]
    return code


async def until_read(reader: Clients, written: Acknowledged) -> None:
    deadline = time.monotonic() + RECOVERY_SECONDS_MAX
    while (code := await error_code(reader, written)) is not None:
        assert time.monotonic() < deadline, f"still {code} after the damage was undone"
        await asyncio.sleep(0.1)


async def raw_files(store: S3Store, tenant: str) -> dict[str, tuple[str, bytes]]:
    """The tenant's raw files by name, once every compacted one, which could make up for them, is removed."""
    found = {}
    for key in [info.key async for info in store.list(f"tenants/{tenant}/ltx/")]:
        if "/0000/" not in key:
            await store.delete(key)
            continue
        stored = await store.get(key)
        assert stored is not None
        found[key.rpartition("/")[2]] = (key, stored.body)
    return found


async def keys_of_head(store: S3Store, tenant: str) -> list[str]:
    return [info.key async for info in store.list(f"tenants/{tenant}/head.json")]
