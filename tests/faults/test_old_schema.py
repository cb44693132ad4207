"""A tenant that an older program left: nobody reads it before a writer migrated it, and a writer does so unasked."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import apsw
import pytest

from faults.checker import Checker
from faults.site import Clients, Site, until
from memoree.assembly import replica_target
from memoree.clock import stored, utc_now
from memoree.database import meta
from memoree.database.schema import SCHEMA_VERSION, stored_version
from memoree.ids import new_ulid
from memoree.objects.s3 import S3Store
from memoree.replication import layout
from memoree.replication.head import Head
from memoree.replication.litestream import Litestream, LitestreamSettings

FIXTURES = Path(__file__).parents[1] / "fixtures"
MIGRATED_SECONDS_MAX = 30


@dataclass(frozen=True, slots=True)
class Left:
    """A tenant that a program of an older schema left."""

    prefix: str
    commit_seq: int
    blobs: int


async def leave_old_tenant(site: Site, store: S3Store, scratch: Path, fixture: Path, *, released: bool) -> Left:
    owner = new_ulid()
    prefix = layout.epoch_prefix(1, owner)
    database = scratch / "old.sqlite3"
    shutil.copy(fixture / "memoree.sqlite3", database)
    db = apsw.Connection(str(database))
    db.execute("UPDATE meta SET epoch = 1")
    counters, version = meta.read(db), stored_version(db)
    target = replica_target(site.settings)(layout.tenant_prefix(site.tenant) + prefix)
    litestream = Litestream(database, target, LitestreamSettings())
    await litestream.start()
    txid = (await litestream.sync(10)).replicated_txid
    await litestream.stop()
    db.close()
    blobs = [path for path in (fixture / "objects").rglob("*") if path.is_file()]
    for blob in blobs:
        key = f"{layout.tenant_prefix(site.tenant)}blobs/b3/{blob.name[:2]}/{blob.name}"
        await store.put(key, blob.read_bytes())
    ledger = {"kind": "birth", "prefix": prefix, "parent_epoch": 0, "parent_txid": 0, "parent_batch": 0}
    entry = {**ledger, "base_commit_seq": 0, "at": stored(utc_now())}
    await store.put(layout.epoch_ledger_key(site.tenant, 1), json.dumps(entry).encode())
    head = Head(
        write_id=new_ulid(),
        revision=1,
        history=0,
        epoch=1,
        owner=owner,
        released_at=stored(utc_now()) if released else None,
        prefix=prefix,
        txid=txid,
        batch=counters.batch,
        commit_seq=counters.commit_seq,
        hlc=counters.hlc,
        schema_version=version,
        integrity=counters.integrity.hex(),
        updated_at=stored(utc_now()),
    )
    await store.put(f"{layout.tenant_prefix(site.tenant)}head.json", head.to_bytes())
    return Left(prefix, counters.commit_seq, len(blobs))


async def must_wait(clients: Clients, operation: str, payload: dict[str, object], *, key: str | None = None) -> None:
    reply = await clients.call(operation, payload, key=key)
    error = reply.envelope["error"]
    assert (reply.status, error["code"], error["retryable"]) == (503, "TRANSPORT_ERROR", True), error
    assert "waits for its writer to migrate it" in error["message"]
    assert reply.retry_after_seconds is not None


@pytest.mark.fault_class(50)
@pytest.mark.fault_class(51)
@pytest.mark.parametrize(
    ("schema", "released"),
    [
        pytest.param("schema-1", True, id="schema 1, settled"),
        pytest.param("schema-2", False, id="schema 2, whose writer still holds its lease"),
    ],
)
def test_an_idle_tenant_of_an_older_schema_is_migrated_by_a_writer_that_starts(
    site: Site, tmp_path: Path, schema: str, released: bool
) -> None:
    claim = {"claim_type": "fact", "statement": "written before the migration"}

    async def run() -> None:
        async with S3Store(site.s3) as store, site.clients() as clients:
            left = await leave_old_tenant(site, store, tmp_path, FIXTURES / schema, released=released)
            checker = Checker(site, tmp_path)
            keys = checker.keys(left.prefix)
            await must_wait(clients, "search", {"query": "cone"})
            await must_wait(clients, "doctor", {})
            await must_wait(clients, "claim.assert", claim, key="early")
            with site.writer(leased=True):
                migrated = lambda: checker.head()["schema_version"] == SCHEMA_VERSION  # noqa: E731
                await until(migrated, MIGRATED_SECONDS_MAX, what="the migration")
                reply = await clients.call("verify", {}, strong=True)
                verified = reply.envelope["result"]
                assert (verified["issues"], verified["schema_version"]) == ([], SCHEMA_VERSION)
                assert verified["last_commit_seq"] == left.commit_seq
                assert verified["checked_external_blobs"] == left.blobs > 0
                assert (await clients.decided("claim.assert", claim, key="early"))["commit_seq"] == left.commit_seq + 1
            head = checker.head()
            assert (head["epoch"], head["commit_seq"]) == (2, left.commit_seq + 1)
            assert checker.keys(left.prefix) == keys, "the old epoch stays as it was"

    asyncio.run(run())
