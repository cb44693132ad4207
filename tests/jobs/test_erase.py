"""`memoree erase` and `memoree tenant delete`: nothing is left, the receipt is true, and a kill changes neither."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from faults.site import Site
from memoree import clock, limits
from memoree.assembly import embedded_service, job_site
from memoree.backup.retention import Retention, prune
from memoree.backup.staging import claim_staging
from memoree.database.compaction import is_compact
from memoree.database.connection import open_reader
from memoree.embedded import EmbeddedService
from memoree.erasures import recorded
from memoree.errors import Code, MemoreeError
from memoree.ids import new_attempt_id
from memoree.jobs import backup_site, erase, prefixes, tenant_deletion
from memoree.jobs.embedded import EmbeddedTenancy
from memoree.jobs.replicated import JobSite, ReplicatedTenancy
from memoree.jobs.restore import Options, restore_found
from memoree.jobs.tenant_deletion import delete_tenant
from memoree.objects import ObjectStore
from memoree.objects.audit import DirectoryAudit
from memoree.objects.removal import Removal, remove_all
from memoree.objects.s3 import S3Store
from memoree.queue import QueueError, sqlite_store
from memoree.replication import layout
from memoree.replication.head import HeadFile, HeadLost
from memoree.replication.ltx import decode, parse_name
from memoree.verification.store import verify
from memoree.writer.reign import Reign

Json = dict[str, Any]

COMMAND = Path(sys.executable).with_name("memoree")
LETTERS = "bcdfghjklmnpqrstvwxz"
PIECE = 8
"""So many bytes of a marker are nowhere by chance."""
REPLACE = Options(replace=True)
STORES = {
    "database",
    "full_text_index",
    "vocabulary",
    "blobs",
    "idempotency_results",
    "attempts",
    "events",
    "parked_commands",
    "answers",
    "uploads",
    "queue",
    "replicas",
    "ltx_history",
    "backups",
    "second_bucket",
}


def marker() -> str:
    return "".join(secrets.choice(LETTERS) for _ in range(40))


def holds_piece(data: bytes, secret: str) -> bool:
    pieces = (secret[start : start + PIECE].encode() for start in range(len(secret) - PIECE + 1))
    return any(piece in data for piece in pieces)


def files_with(directory: Path, secret: str) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file() and holds_piece(path.read_bytes(), secret)]


def texts(secret: str) -> list[Json]:
    """Inputs of artifacts of every size that is stored in its own way."""
    bodies = (f"it says {secret}", f"{secret} and on, " * 900, f"{secret} and so on, " * 6500)
    return [
        {
            "kind": "note",
            "title": f"About {secret}",
            "provenance": {"from": secret},
            "actor": secret,
            "content": {"type": "text", "data": body},
        }
        for body in bodies
    ]


def told(claim: str, artifact: Json) -> Json:
    evidence = [{"artifact_id": artifact["artifact_id"], "revision_id": artifact["revision_id"]}]
    return {"claim_type": "fact", "statement": claim, "evidence": evidence, "actor": claim}


# --- a data directory ---------------------------------------------------------------------------------------------


class Directory:
    """An embedded store, and the shell over it in processes of their own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def run(self, *arguments: str, crash_at: str | None = None) -> subprocess.CompletedProcess[bytes]:
        environment = {**os.environ, "MEMOREE_DATA_DIR": str(self.path)}
        if crash_at is not None:
            environment["MEMOREE_TEST_CRASH_AT"] = crash_at
        return subprocess.run([str(COMMAND), *arguments], env=environment, capture_output=True, check=False)

    def filled(self, secret: str) -> list[str]:
        """The ids of everything that holds the marker, among other things."""
        service = embedded_service(self.path)
        ids = []

        def write(op: str, input: Json) -> Json:
            request = {
                "request_id": "req_1",
                "op": op,
                "idempotency_key": secrets.token_hex(8),
                "context": {"workspace_id": "wsp_lab", "project_id": "prj_kiln"},
                "input": input,
            }
            answer: Json = orjson.loads(service.call_bytes(orjson.dumps(request)))
            assert answer["ok"], answer
            result: Json = answer["result"]
            return result

        try:
            for number in range(40):
                body = " ".join(secrets.token_hex(5) for _ in range(80))
                write("artifact.put", {"kind": "log", "title": f"{number}", "content": {"type": "text", "data": body}})
            artifacts = [write("artifact.put", input) for input in texts(secret)]
            claim = write("claim.assert", told(f"It is {secret}.", artifacts[0]))
            ids = [*(each["artifact_id"] for each in artifacts), claim["claim_id"]]
        finally:
            service.close_sync()
        return ids

    def verified(self) -> list[str]:
        service = embedded_service(self.path)
        try:
            found, _ = service.snapshot(lambda db: verify(db, DirectoryAudit(service.store, "local")))
            return found.lines()
        finally:
            service.close_sync()


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path / "data")


@pytest.mark.proves("fault-16", "operations-8", "operations-13")
def test_nothing_is_left_in_a_data_directory_and_the_receipt_says_so(directory: Directory) -> None:
    secret = marker()
    ids = directory.filled(secret)
    (directory.path / "memoree.sqlite3.before-schema-3").write_text(f"an old copy with {secret}")
    assert files_with(directory.path, secret)
    done = directory.run("erase", *ids, "--reason", "asked for")
    assert done.returncode == 0, done.stderr
    receipt = json.loads(done.stdout)["result"]
    assert receipt["stores"] == dict.fromkeys(STORES, "erased")
    assert sorted(receipt["entities"]) == sorted(ids)
    assert files_with(directory.path, secret) == []
    assert directory.verified() == []


@pytest.mark.proves("fault-16", "operations-12")
@pytest.mark.parametrize("point", ["erasure_committed", "erasure_recorded", "erasure_scrubbed"])
def test_a_killed_erasure_is_finished_by_the_same_command(directory: Directory, point: str) -> None:
    secret = marker()
    ids = directory.filled(secret)
    command = ("erase", *ids, "--reason", "asked for")
    assert directory.run(*command, crash_at=point).returncode == -signal.SIGKILL
    done = directory.run(*command)
    assert done.returncode == 0, done.stderr
    receipt = json.loads(done.stdout)["result"]
    assert receipt["stores"]["database"] == "erased"
    assert files_with(directory.path, secret) == []
    recorded_ones = [(entry["erasure_id"], entry["entities"]) for entry in entries(directory)]
    assert recorded_ones == [(receipt["erasure_id"], sorted(ids))]
    assert directory.verified() == []


def entries(directory: Directory) -> list[Json]:
    """The record of erasures, as it lies in the directory."""
    service = embedded_service(directory.path)
    try:
        found = asyncio.run(recorded(service.store, "local"))
    finally:
        service.close_sync()
    return [json.loads(each.to_bytes()) for each in found]


@pytest.mark.proves("fault-16", "operations-12")
def test_another_command_records_what_a_killed_one_erased(directory: Directory) -> None:
    """Whatever it is about: a restore must not depend on the same words being used again."""
    secret = marker()
    first, *others = directory.filled(secret)
    assert directory.run("erase", first, "--reason", "a", crash_at="erasure_committed").returncode == -signal.SIGKILL
    assert entries(directory) == []
    assert directory.run("erase", *others, "--reason", "b").returncode == 0
    assert [entry["entities"] for entry in entries(directory)] == [[first], sorted(others)]


@pytest.mark.proves("fault-16")
def test_a_dry_run_tells_what_would_go_and_changes_nothing(directory: Directory) -> None:
    ids = directory.filled(marker())
    done = directory.run("erase", *ids, "--dry-run")
    described = json.loads(done.stdout)["result"]
    assert [each["id"] for each in described["entities"]] == ids
    assert {each["type"] for each in described["entities"]} == {"artifact", "claim"}
    assert entries(directory) == []
    wrong = directory.run("erase", "src_1", "--dry-run")
    assert (wrong.returncode, json.loads(wrong.stdout)["error"]["code"]) == (2, "INVALID_REQUEST")
    assert directory.run("erase", ids[0]).returncode == 2


@pytest.mark.proves("fault-16", "operations-13")
def test_an_erasure_waits_for_who_reads_an_earlier_state_and_is_finished_later(directory: Directory) -> None:
    """The log cannot be emptied under a reader. The receipt is not given before it is true."""
    secret = marker()
    ids = directory.filled(secret)
    service = embedded_service(directory.path)
    service._db.set_busy_timeout(0)  # or the test would wait for as long as it does
    reader = open_reader(directory.path / "memoree.sqlite3", immutable=False)
    reader.execute("BEGIN; SELECT count(*) FROM artifacts").fetchall()
    try:
        with pytest.raises(MemoreeError) as refused:
            asyncio.run(erase.erase_in_directory(EmbeddedTenancy(service), ids, "asked for"))
        assert (refused.value.code, refused.value.retryable) == (Code.TRANSPORT_ERROR, True)
        reader.close()
        receipt = asyncio.run(erase.erase_in_directory(EmbeddedTenancy(service), ids, "asked for"))
    finally:
        service.close_sync()
    assert receipt["stores"]["database"] == "erased"
    assert files_with(directory.path, secret) == []


@pytest.mark.proves("fault-16", "operations-13")
def test_what_killed_processes_left_goes_and_what_living_ones_make_is_told(directory: Directory) -> None:
    """Given a half-written object and half a restore of killed processes, and then the same of living ones."""
    secret = marker()
    first, *others = directory.filled(secret)
    left = [directory.path / ".memoree-backup-01M8PH26EJXJ6FX1M8AXJ6N993", directory.path / "objects/.store/temporary"]
    left[0].mkdir()
    (left[0] / "memoree.sqlite3").write_text(secret)
    (left[1] / "half").write_text(secret)
    service = embedded_service(directory.path)
    try:
        receipt = asyncio.run(erase.erase_in_directory(EmbeddedTenancy(service), [first], "asked for"))
        assert receipt["stores"] == dict.fromkeys(STORES, "erased")
        assert not left[0].exists() and list(left[1].iterdir()) == []

        staging, lock = claim_staging(directory.path)
        asyncio.run(receipts_while_writing(service, others))
        os.close(lock)
        assert staging.exists()
    finally:
        service.close_sync()
    assert directory.run("gc").returncode == 0
    assert not staging.exists()


async def receipts_while_writing(service: EmbeddedService, ids: list[str]) -> None:
    """An erasure while a restore and an upload are under way, neither of which is disturbed."""
    receipts = []

    async def pieces() -> AsyncIterator[bytes]:
        yield b"one, "
        receipts.append(await erase.erase_in_directory(EmbeddedTenancy(service), ids, "asked for"))
        yield b"two"

    await service.store.put_stream("tenants/local/elsewhere", pieces(), size=8)
    stores = receipts[0]["stores"]
    retained = {name for name, line in stores.items() if line != "erased"}
    assert retained == {*erase.IN_THE_COMMIT, "blobs"}
    assert clock.utc_now() < until(stores["database"]) < until(stores["blobs"])
    stored = service.store.get_sync("tenants/local/elsewhere")
    assert stored is not None and stored.body == b"one, two"


@pytest.mark.proves("fault-16", "operations-12")
def test_a_damaged_entry_is_named_and_written_anew_by_the_next_erasure(directory: Directory) -> None:
    first, second, *_ = directory.filled(marker())
    directory.run("erase", first, "--reason", "a")
    [key] = (entry := directory.path / "objects/tenants/local/erasures").iterdir()
    sound = key.read_bytes()
    key.write_bytes(sound[:-2])
    with pytest.raises(MemoreeError, match=key.name) as refused:
        entries(directory)
    assert refused.value.code is Code.INTEGRITY_ERROR
    assert directory.run("erase", second, "--reason", "b").returncode == 0
    assert key.read_bytes() == sound
    key.rename(entry / "ers_01M8PH26EJXJ6FX1M8AXJ6N993.json")
    with pytest.raises(MemoreeError, match=r"ers_01M8PH26EJXJ6FX1M8AXJ6N993\.json: it is of"):
        entries(directory)


@pytest.mark.proves("fault-16", "operations-13")
def test_a_queue_that_is_being_read_is_not_said_to_be_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "BUSY_MILLISECONDS_MAX", 0)
    path = tmp_path / "queue.sqlite3"
    reader = sqlite_store.open_database(path)
    reader.execute("BEGIN; SELECT count(*) FROM message").fetchall()
    with pytest.raises(QueueError, match="in use"):
        sqlite_store.scrub(path)
    reader.close()
    sqlite_store.scrub(path)


# --- a deployment -------------------------------------------------------------------------------------------------


async def objects_with(store: S3Store, tenant: str, secret: str) -> set[str]:
    """The folders of a tenant in which an object holds a piece of a marker, change files page by page."""
    found = set()
    prefix = layout.tenant_prefix(tenant)
    async for info in store.list(prefix):
        stored = await store.get(info.key)
        assert stored is not None
        pages: Iterator[bytes] = iter([stored.body])
        if (name := parse_name(info.key)) is not None:
            pages = (page for _, page in decode(stored.body, name).pages())
        if any(holds_piece(page, secret) for page in pages):
            found.add(info.key.removeprefix(prefix).partition("/")[0])
    return found


@pytest.mark.proves("fault-16", "operations-13", "operations-14")
def test_nothing_is_left_of_a_tenant_once_the_receipt_says_so(site: Site) -> None:
    """Given a marker in a live tenant that a writer holds, when it is erased, then the readers and the new epoch hold
    nothing of it, the receipt tells when the history goes, and then it is nowhere below the tenant's prefix."""

    async def scenario() -> None:
        secret = marker()
        with site.writer():
            async with site.clients() as clients:
                artifacts = [
                    (await clients.decided("artifact.put", input, key=f"put {number}"))["result"]
                    for number, input in enumerate(texts(secret))
                ]
                claim = (await clients.decided("claim.assert", told(f"It is {secret}.", artifacts[0]), key="c"))[
                    "result"
                ]
                kept = await clients.write("kept")
                ids = [*(each["artifact_id"] for each in artifacts), claim["claim_id"]]
                async with job_site(site.settings) as jobs:
                    before = await backup_site.back_up(jobs, site.tenant)
                    assert await objects_with(jobs.store, site.tenant, secret) == {"blobs", "ltx"}
                    began = clock.utc_now()
                    async with clients.traffic("meanwhile"):
                        receipt = await erase.erase_in_deployment(jobs, site.tenant, ids, "asked for")
                    check_receipt(receipt["stores"], began, jobs, before["backup_id"])
                    found = await clients.call("claim.get", {"claim_id": claim["claim_id"]}, strong=True)
                    assert found.envelope["error"]["details"] == {"kind": "erased"}
                    rewritten, _ = await jobs.tenancy(site.tenant).snapshot(is_compact)
                    assert rewritten
                    shown = await clients.call("claim.get", {"claim_id": kept.claim_id}, strong=True)
                    assert shown.envelope["result"]["statement"] == kept.statement
                    assert files_with(site.directory / "runtime" / "replicas", secret) == []
                    assert [path for path in files_with(site.directory, secret) if "queue" in path.name] == []
                    later = clock.utc_now() + timedelta(seconds=2 * limits.CLOCK_SKEW_SECONDS_MAX)
                    await prefixes.clean(jobs.store, site.tenant, later, point_in_time_seconds=0)
                    assert await objects_with(jobs.store, site.tenant, secret) == set()
                await clients.write("afterwards")
                await clients.repeat_all()

    asyncio.run(scenario())


def check_receipt(stores: Json, began: Any, jobs: JobSite, backup_id: str) -> None:
    assert stores.keys() == STORES
    retained = {name for name, line in stores.items() if line != "erased"}
    assert retained == {"queue", "replicas", "ltx_history", "backups"}
    history = timedelta(seconds=jobs.settings.point_in_time_seconds)
    assert began + history <= until(stores["ltx_history"])
    assert stores["backups"].keys() == {backup_id}
    in_backups = timedelta(seconds=limits.ERASED_IN_BACKUPS_SECONDS + jobs.settings.backup_every_seconds)
    assert began + in_backups <= until(stores["backups"][backup_id]) <= clock.utc_now() + in_backups


def until(line: str) -> Any:
    name, instant = line.split(" ")
    assert name == "retained_until"
    return clock.from_stored(clock.parse_timestamp(instant))


@pytest.mark.proves("fault-16", "operations-12", "operations-15")
def test_a_restore_between_the_commit_and_its_record_does_not_undo_an_erasure(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a restore that claims the tenant and looks for erasures when the commit is there and its record is not."""

    async def scenario() -> None:
        with site.writer():
            async with site.clients() as clients, job_site(site.settings) as jobs:
                written = await clients.write("secret")
                made = await backup_site.back_up(jobs, site.tenant)
                undone: list[int] = []

                async def restore_first(tenancy: ReplicatedTenancy, result: Json, **how: bool) -> None:
                    if not undone:
                        done = await restore_found(jobs, site.tenant, made["backup_id"], "first", site.tenant, REPLACE)
                        undone.append(done.erased_again)
                    await record_all(tenancy, result, **how)

                record_all = erase._record_all
                monkeypatch.setattr(erase, "_record_all", restore_first)
                receipt = await erase.erase_in_deployment(jobs, site.tenant, [written.claim_id], "asked for")
                assert (undone, receipt["entities"]) == ([0], [written.claim_id])
                found = await clients.call("claim.get", {"claim_id": written.claim_id}, strong=True)
                assert not found.envelope["ok"], "it was brought back"
                assert found.envelope["error"]["details"] == {"kind": "erased"}
                on_record = await recorded(jobs.store, site.tenant)
                assert [each.entities for each in on_record] == [(written.claim_id,)] * 2
                assert on_record[-1].erasure_id == receipt["erasure_id"]

    asyncio.run(scenario())


@pytest.mark.proves("fault-16", "operations-14")
def test_a_backup_that_holds_what_was_erased_is_pruned_in_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """But not before a younger one is there: it would be all there is."""

    async def scenario() -> None:
        with site.writer():
            async with site.clients() as clients, job_site(site.settings) as jobs:
                written = await clients.write("secret")
                old = await backup_site.back_up(jobs, site.tenant)
                await erase.erase_in_deployment(jobs, site.tenant, [written.claim_id], "asked for")
                monkeypatch.setattr(limits, "ERASED_IN_BACKUPS_SECONDS", 0.0)
                keeps_all = Retention(last=10, daily=10, weekly=10)
                assert (await prune(jobs.store, site.tenant, keeps_all)).pruned == []
                young = await backup_site.back_up(jobs, site.tenant)
                pruned = await prune(jobs.store, site.tenant, keeps_all)
                assert (pruned.pruned, pruned.kept) == ([old["backup_id"]], [young["backup_id"]])

    asyncio.run(scenario())


@pytest.mark.proves("fault-19", "operations-16")
def test_a_deleted_tenant_leaves_nothing_and_no_other_tenant_is_touched(site: Site) -> None:

    async def scenario() -> None:
        other = f"{site.tenant}-other"
        with site.writer():
            async with site.clients() as clients, job_site(site.settings) as jobs:
                await clients.write_cited("gone")
                await backup_site.back_up(jobs, site.tenant)
                kept = await clients.write_cited("kept", tenant=other)
                done = await delete_tenant(jobs, site.tenant)
                assert (done["complete"], done["objects_left"], done["failures"]) == (True, 0, {})
                assert [info.key async for info in jobs.store.list(layout.tenant_prefix(site.tenant))] == []
                with pytest.raises(MemoreeError, match="does not exist"):
                    await delete_tenant(jobs, site.tenant)
                shown = await clients.call("claim.get", {"claim_id": kept.claim_id}, tenant=other, strong=True)
                assert shown.envelope["ok"], shown.envelope
                assert shown.envelope["result"]["statement"] == kept.statement

    asyncio.run(scenario())


@pytest.mark.proves("fault-19", "operations-16")
def test_no_writer_takes_a_tenant_that_is_being_deleted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a deletion that lasts longer than a lease, and a command that waits for the tenant's writer."""
    epochs: list[int] = []

    async def slowly(store: ObjectStore, keys: AsyncIterator[str]) -> Removal:
        if not epochs:
            await asyncio.sleep(5 * site.settings.lease_ttl_seconds)
            epochs.append(await epoch_of(store, site.tenant))
        return await remove_all(store, keys)

    monkeypatch.setattr(tenant_deletion, "remove_all", slowly)

    async def scenario() -> None:
        with site.writer(leased=True):
            async with site.clients() as clients, job_site(site.settings) as jobs:
                await clients.write("gone")
                before = await epoch_of(jobs.store, site.tenant)
                deletion = asyncio.create_task(delete_tenant(jobs, site.tenant))
                await asyncio.sleep(0.5)
                await clients.entrust("late", tenant=site.tenant)
                assert (await deletion)["complete"]
                assert epochs == [before + 1], "a writer took over what was being deleted"

    asyncio.run(scenario())


async def epoch_of(store: ObjectStore, tenant: str) -> int:
    reading = await HeadFile(store, layout.tenant_prefix(tenant)).read()
    assert reading is not None
    return reading.head.epoch


@pytest.mark.proves("fault-19", "operations-16")
def test_a_tenant_that_was_taken_over_while_it_was_deleted_is_deleted_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a reign that asks for no lease: nothing of it stays beside a head that is gone."""
    taken: list[Reign] = []

    async def scenario() -> None:
        async with site.clients() as clients, job_site(site.settings) as jobs:
            with site.writer() as writer:
                await clients.write("gone")
                writer.stop()

            async def take_over(store: ObjectStore, keys: AsyncIterator[str]) -> Removal:
                if taken:
                    return await remove_all(store, keys)
                taken.append(await Reign.begin(site.tenant, jobs.writer, unleased=True))
                removal = await remove_all(store, keys)
                await taken[0].refuse(new_attempt_id(), MemoreeError(Code.INVALID_REQUEST, "acknowledged"))
                return removal

            monkeypatch.setattr(tenant_deletion, "remove_all", take_over)
            try:
                done = await delete_tenant(jobs, site.tenant)
                assert (done["complete"], done["objects_left"]) == (True, 0)
                with pytest.raises(HeadLost):
                    await taken[0].settle()
            finally:
                await taken[0].abandon()
            assert [info.key async for info in jobs.store.list(layout.tenant_prefix(site.tenant))] == []

    asyncio.run(scenario())
