"""Reigns over a real SeaweedFS with real Litestream children."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import apsw
import orjson
import pytest

from memoree.clock import utc_now
from memoree.command import Command
from memoree.database import meta, schema
from memoree.errors import Code, MemoreeError
from memoree.ids import new_attempt_id
from memoree.objects import StoreUnavailable
from memoree.objects.s3 import S3Settings, S3Store
from memoree.process_directory import ProcessDirectory
from memoree.replication import layout
from memoree.replication.head import Head, HeadFile, HeadLost
from memoree.replication.litestream import Credentials, Litestream, LitestreamGone, ReplicaTarget, SyncAmbiguous
from memoree.replication.replicator import LitestreamReplicator
from memoree.writer.environment import WriterEnvironment, WriterTimings
from memoree.writer.reign import BatchFailed, LeaseHeld, Reign
from memoree.writer.staging import ProvedBlobs
from operations.bench import FACTS

from .scripted import until
from .test_staging import command

pytestmark = pytest.mark.stack

NO_BLOBS = ProvedBlobs()
WORK_OF_MILLISECONDS = """
    WITH RECURSIVE numbers (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM numbers WHERE n < 20000)
    SELECT count(*) FROM numbers
"""


class Site:
    """A tenant of its own in the shared bucket."""

    def __init__(self, settings: S3Settings, store: S3Store, directory: Path) -> None:
        self.tenant = f"t-{uuid.uuid4().hex[:12]}"
        self.store = store
        self.directory = ProcessDirectory(directory)
        keys = Credentials(settings.access_key_id or "", settings.secret_access_key or "")
        self.environment = WriterEnvironment(
            store=store,
            replicator=LitestreamReplicator(
                lambda prefix: ReplicaTarget(
                    f"s3://{settings.bucket}/{prefix}", settings.endpoint_url, settings.region, keys
                )
            ),
            directory=self.directory,
            facts=FACTS,
            executor=ThreadPoolExecutor(2),
        )

    def command(self, statement: str = "s") -> Command:
        made, _ = command("claim.assert", {"claim_type": "fact", "statement": statement})
        return replace(
            made, attempt_id=new_attempt_id(), tenant=self.tenant, received_at_ms=round(utc_now().timestamp() * 1000)
        )

    async def head(self) -> Head:
        reading = await HeadFile(self.store, layout.tenant_prefix(self.tenant)).read()
        assert reading is not None
        return reading.head

    async def begin(self, **how: bool) -> Reign:
        return await Reign.begin(self.tenant, self.environment, **how)  # type: ignore[arg-type]

    async def take_from(self, reign: Reign) -> Reign:
        """Take over from a reign that keeps renewing its lease: a claim that meets a renewal is made again."""
        while True:
            try:
                return await self.begin(unleased=True)
            except HeadLost:
                assert reign.head.owner == (await self.head()).owner, "nobody else is about"

    async def write(self, reign: Reign, statement: str = "s") -> Command:
        made = self.command(statement)
        await reign.commit([made], NO_BLOBS)
        return made

    async def ledger(self) -> list[dict[str, object]]:
        prefix = f"{layout.tenant_prefix(self.tenant)}epochs/"
        bodies = [await self.store.get(info.key) async for info in self.store.list(prefix)]
        return [orjson.loads(found.body) for found in bodies if found is not None]


@asynccontextmanager
async def opened(settings: S3Settings, directory: Path) -> AsyncIterator[Site]:
    async with S3Store(settings) as store:
        site = Site(settings, store, directory)
        try:
            yield site
        finally:
            await asyncio.to_thread(site.environment.executor.shutdown)
            site.directory.remove()


def run(settings: S3Settings, directory: Path, body: Callable[[Site], Awaitable[None]]) -> None:
    async def main() -> None:
        async with opened(settings, directory) as site:
            await body(site)

    asyncio.run(main())


def test_a_tenants_life_from_birth_over_rest_to_the_next_reign(seaweedfs: S3Settings, tmp_path: Path) -> None:
    async def body(site: Site) -> None:
        first = await site.begin()
        born = await site.head()
        assert (born.epoch, born.prefix, born.batch, born.commit_seq) == (1, first.prefix, 0, 0)
        await site.write(first)
        covered = await site.head()
        assert (covered.batch, covered.commit_seq) == (1, 1)

        await first.settle()
        settled = await site.head()
        assert settled.released_at is not None and settled.batch == 1
        await first.resume()
        assert (await site.head()).released_at is None
        await site.write(first)
        await first.settle()
        await first.abandon()

        second = await site.begin()
        after = await site.head()
        assert (after.epoch, after.batch, after.commit_seq) == (2, 2, 2)
        assert [(entry["kind"], entry["parent_epoch"]) for entry in await site.ledger()] == [
            ("birth", 0),
            ("takeover", 1),
        ]
        await second.abandon()

    run(seaweedfs, tmp_path, body)


def test_a_held_lease_is_respected_except_for_ones_own_and_by_a_supervisor(
    seaweedfs: S3Settings, tmp_path: Path
) -> None:
    async def body(site: Site) -> None:
        first = await site.begin()
        with pytest.raises(LeaseHeld) as held:
            await site.begin()
        assert 10 < held.value.seconds <= 16
        owner = first.head.owner
        await first.abandon()
        second = await Reign.begin(site.tenant, site.environment, reaped_owner=owner)
        third = await site.begin(unleased=True)
        assert third.head.epoch == 3
        with pytest.raises(HeadLost):
            await site.write(second)
        await second.abandon()
        await third.abandon()

    run(seaweedfs, tmp_path, body)


@pytest.mark.fault_class(47)
def test_a_zombie_acknowledges_nothing_and_its_child_is_dead_before_it_knows(
    seaweedfs: S3Settings, tmp_path: Path
) -> None:
    async def body(site: Site) -> None:
        zombie = await site.begin()
        await site.write(zombie, "covered")
        successor = await site.begin(unleased=True)
        with pytest.raises(HeadLost):
            await site.write(zombie, "never acknowledged")
        assert not zombie._litestream.is_alive
        assert (await site.head()).commit_seq == 1
        await zombie.abandon()
        await site.write(successor, "goes on")
        assert (await site.head()).commit_seq == 2
        await successor.abandon()

    run(seaweedfs, tmp_path, body)


def test_the_heartbeat_renews_an_idle_lease_and_notices_that_it_was_lost(seaweedfs: S3Settings, tmp_path: Path) -> None:
    async def body(site: Site) -> None:
        site.environment = replace(site.environment, timings=WriterTimings(lease_renew=0.2))
        reign = await site.begin()
        begun = reign.head.revision
        await until(lambda: reign.head.revision >= begun + 2)
        successor = await site.take_from(reign)
        await until(lambda: not reign._litestream.is_alive)
        await reign.abandon()
        await successor.abandon()

    run(seaweedfs, tmp_path, body)


def test_a_reign_whose_work_hangs_lets_its_lease_go(seaweedfs: S3Settings, tmp_path: Path) -> None:
    async def body(site: Site) -> None:
        site.environment = replace(site.environment, timings=WriterTimings(lease_renew=0.1, watchdog=0.3))
        reign = await site.begin()
        reign._progress()  # as a piece of work does when it begins, and this one never gets on
        await until(lambda: reign._loop.time() - reign._head_moved_at > 1.0)
        await reign.abandon()

    run(seaweedfs, tmp_path, body)


@pytest.mark.fault_class(47)
def test_a_migration_keeps_the_lease_for_longer_than_the_watchdog_waits(
    seaweedfs: S3Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the next writer would begin it again, and the one after that."""
    timings = WriterTimings(lease_renew=0.1, watchdog=0.3)
    real_migration = schema.create_or_migrate

    async def body(site: Site) -> None:
        loop = asyncio.get_running_loop()

        def revision() -> int:
            return asyncio.run_coroutine_threadsafe(site.head(), loop).result(10).revision

        def long_migration(db: apsw.Connection) -> None:
            real_migration(db)
            began = time.monotonic()
            while time.monotonic() < began + 3 * timings.watchdog:
                db.execute(WORK_OF_MILLISECONDS)
            reached = revision()
            while revision() < reached + 2:
                assert time.monotonic() < began + 10, "the lease is renewed no more"
                db.execute(WORK_OF_MILLISECONDS)

        monkeypatch.setattr(schema, "create_or_migrate", long_migration)
        site.environment = replace(site.environment, timings=timings)
        reign = await site.begin()
        await site.write(reign)
        await reign.abandon()

    run(seaweedfs, tmp_path, body)


def test_settling_covers_a_batch_that_was_committed_and_not_covered(seaweedfs: S3Settings, tmp_path: Path) -> None:
    async def body(site: Site) -> None:
        reign = await site.begin()
        assert reign._committer is not None
        reign._committer.commit([site.command("uncovered")], NO_BLOBS)

        await reign.settle()

        head = await site.head()
        assert (head.batch, head.commit_seq) == (1, 1), (
            "head names a TXID that holds the batch, so it must vouch for it"
        )
        await reign.abandon()

    run(seaweedfs, tmp_path, body)


def test_a_takeover_keeps_uncovered_commits_and_decides_them_only_once(seaweedfs: S3Settings, tmp_path: Path) -> None:
    async def body(site: Site) -> None:
        first = await site.begin()
        made = site.command("synced and not covered")
        assert first._committer is not None
        first._committer.commit([made], NO_BLOBS)
        await first._sync()
        await first.abandon()

        second = await site.begin(unleased=True)
        assert (await site.head()).commit_seq == 1
        await second.commit([made], NO_BLOBS)
        assert (await site.head()).commit_seq == 1
        await second.abandon()

    run(seaweedfs, tmp_path, body)


def test_a_batch_that_fails_is_rolled_back_and_the_reign_goes_on(
    seaweedfs: S3Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(site: Site) -> None:
        reign = await site.begin()
        for fault, raised in ((ZeroDivisionError(), BatchFailed), (StoreUnavailable("a blob"), StoreUnavailable)):
            with monkeypatch.context() as broken:
                broken.setattr("memoree.writer.group_commit.decide", _raiser(fault))
                with pytest.raises(raised):
                    await site.write(reign)
        await site.write(reign)
        assert (await site.head()).commit_seq == 1
        await reign.abandon()

    run(seaweedfs, tmp_path, body)


def _raiser(fault: Exception) -> Callable[..., None]:
    def decide(*_: object) -> None:
        raise fault

    return decide


def test_a_fault_of_the_database_ends_the_reign(
    seaweedfs: S3Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(site: Site) -> None:
        reign = await site.begin()
        with monkeypatch.context() as broken:
            broken.setattr("memoree.writer.group_commit.decide", _raiser(apsw.IOError("scripted")))
            with pytest.raises(apsw.IOError):
                await site.write(reign)
        await reign.abandon()

    run(seaweedfs, tmp_path, body)


def test_a_sync_without_a_certain_answer_is_repeated_until_there_is_one(
    seaweedfs: S3Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(site: Site) -> None:
        reign = await site.begin()
        faults = [SyncAmbiguous("scripted"), LitestreamGone("scripted"), SyncAmbiguous("scripted")]
        sync = Litestream.sync

        async def faulty(self: Litestream, timeout_seconds: int) -> object:
            if faults:
                raise faults.pop(0)
            return await sync(self, timeout_seconds)

        monkeypatch.setattr(Litestream, "sync", faulty)
        await site.write(reign)
        assert faults == []
        assert (await site.head()).commit_seq == 1
        await reign.abandon()

    run(seaweedfs, tmp_path, body)


def test_a_killed_child_is_replaced_and_the_commit_covered(seaweedfs: S3Settings, tmp_path: Path) -> None:
    async def body(site: Site) -> None:
        reign = await site.begin()
        await site.write(reign)
        await reign._litestream.kill()
        await site.write(reign)
        assert (await site.head()).commit_seq == 2
        await reign.abandon()

    run(seaweedfs, tmp_path, body)


def test_a_cancelled_commit_leaves_nothing_running_and_nothing_to_go_on_with(
    seaweedfs: S3Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(site: Site) -> None:
        reign = await site.begin()
        swapping = asyncio.Event()
        swap = HeadFile.swap

        async def slow(self: HeadFile, *arguments: object) -> object:
            swapping.set()
            await asyncio.sleep(30)
            return await swap(self, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(HeadFile, "swap", slow)
        committing = asyncio.create_task(site.write(reign))
        await swapping.wait()
        committing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await committing
        monkeypatch.undo()
        with pytest.raises(HeadLost):
            await reign.settle()
        assert (await site.head()).batch == 0
        await reign.abandon()

    run(seaweedfs, tmp_path, body)


@pytest.mark.parametrize("wrong", ["history", "epoch", "batch", "commit_seq"])
def test_a_prefix_that_does_not_restore_to_what_head_covers_is_damage(
    wrong: str, seaweedfs: S3Settings, tmp_path: Path
) -> None:
    async def body(site: Site) -> None:
        reign = await site.begin()
        await site.write(reign)
        await reign.settle()
        await reign.abandon()
        head_file = HeadFile(site.store, layout.tenant_prefix(site.tenant))
        reading = await head_file.read()
        assert reading is not None
        head = reading.head
        changes = {"history": head.history + 1, "batch": head.batch + 1, "commit_seq": head.commit_seq + 1}
        if wrong == "epoch":
            db = reign.head  # the copy says epoch 1; a prefix named after another epoch is not its own
            assert db.epoch == 1
            names = [info async for info in site.store.list(layout.tenant_prefix(site.tenant) + str(head.prefix))]
            for info in names:
                found = await site.store.get(info.key)
                assert found is not None
                await site.store.put(info.key.replace("/00000001-", "/00000007-"), found.body)
            await head_file.swap(reading, replace(head, prefix=str(head.prefix).replace("00000001", "00000007")))
        else:
            await head_file.swap(reading, replace(head, **{wrong: changes[wrong]}))  # type: ignore[arg-type]

        with pytest.raises(MemoreeError, match="restores to") as refused:
            await site.begin(unleased=True)
        assert refused.value.code is Code.INTEGRITY_ERROR

    run(seaweedfs, tmp_path, body)


@pytest.mark.fault_class(51)
def test_an_older_program_does_not_fence_out_a_newer_one(seaweedfs: S3Settings, tmp_path: Path) -> None:
    async def body(site: Site) -> None:
        reign = await site.begin()
        await reign.settle()
        await reign.abandon()
        head_file = HeadFile(site.store, layout.tenant_prefix(site.tenant))
        reading = await head_file.read()
        assert reading is not None
        newer = await head_file.swap(reading, replace(reading.head, schema_version=999))

        with pytest.raises(MemoreeError, match="upgrade") as refused:
            await site.begin(unleased=True)
        assert refused.value.code is Code.CONFIG_ERROR
        assert await site.head() == newer.head

    run(seaweedfs, tmp_path, body)


def test_an_ended_reign_leaves_no_file_no_process_and_no_connection(seaweedfs: S3Settings, tmp_path: Path) -> None:
    async def body(site: Site) -> None:
        reign = await site.begin()
        await site.write(reign)
        pid = reign._litestream.pid
        await reign.abandon()
        await reign.abandon()

        assert pid is not None
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        assert _traces(site.directory.path) == []

    run(seaweedfs, tmp_path, body)


def _traces(directory: Path) -> list[Path]:
    """Files below a directory, and files of it that this process still has open."""
    open_files = [fd.resolve() for fd in Path("/proc/self/fd").iterdir()]
    return [path for path in (*directory.rglob("*"), *open_files) if directory in path.parents and not path.is_dir()]


def test_the_database_says_which_epoch_made_it(seaweedfs: S3Settings, tmp_path: Path) -> None:
    async def body(site: Site) -> None:
        reign = await site.begin()
        assert meta.read(reign._connection).epoch == 1
        await reign.abandon()

    run(seaweedfs, tmp_path, body)
