"""Restores of a data directory, under the connections of those who use it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from memoree import erasures, limits
from memoree.assembly import embedded_service
from memoree.clock import stored
from memoree.data_directory import DATABASE_NAME, OBJECTS_NAME
from memoree.database import meta
from memoree.database.connection import open_reader
from memoree.embedded import LOCAL_TENANT, EmbeddedService
from memoree.erasures import Erasure
from memoree.errors import Code, MemoreeError
from memoree.jobs.embedded import EmbeddedTenancy
from memoree.jobs.erase import erase_in_directory
from memoree.jobs.restore import Options, Restored
from memoree.jobs.restore_directory import restore_directory
from memoree.objects.blobs import blob_prefix
from memoree.replication.layout import erasures_prefix
from test_embedded import call, put, write

from .kiln import elsewhere

REPLACE = Options(replace=True)
STORES = sorted(path for path in (Path(__file__).parents[1] / "fixtures").iterdir() if path.is_dir())
LARGE = "é" * 20_000
"""A blob."""


class Store:
    """A data directory in use, and backups of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.service: EmbeddedService = embedded_service(directory)

    def backed_up(self, path: Path) -> Path:
        made = call(self.service, "backup.create", {"destination": str(path)})
        assert made["ok"], made
        return path

    def restored(self, backup: Path, how: Options = REPLACE) -> Restored:
        return asyncio.run(restore_directory(self.service, self.directory, backup, how))

    def statements(self) -> set[str]:
        with closing(open_reader(self.directory / DATABASE_NAME, immutable=False)) as db:
            return {statement for (statement,) in db.execute("SELECT statement FROM claim_revisions")}

    def verified(self) -> list[str]:
        issues: list[str] = call(self.service, "verify", {})["result"]["issues"]
        return issues

    def left(self) -> list[str]:
        """What a restore may have left beside the store."""
        return [path.name for path in self.directory.iterdir() if path.name.startswith(".")]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "live")
    yield store
    store.service.close_sync()


@pytest.mark.proves("operations-33")
@pytest.mark.proves("operations-26")
@pytest.mark.proves("operations-27")
def test_a_living_store_needs_leave_and_is_replaced_under_its_users(store: Store, tmp_path: Path) -> None:
    """The file stays, and so do the connections of this process, of another, and of a reader in mid-sentence."""
    write(store.service, "kept")
    put(store.service, LARGE)
    backup = store.backed_up(tmp_path / "backup")
    undone = write(store.service, "undone", key="of the undone")
    with pytest.raises(MemoreeError, match="--replace") as refused:
        store.restored(backup, Options())
    assert refused.value.code is Code.CONFIG_ERROR
    assert store.statements() == {"kept", "undone"}

    inode = (store.directory / DATABASE_NAME).stat().st_ino
    other = embedded_service(store.directory)
    with closing(open_reader(store.directory / DATABASE_NAME, immutable=False)) as reading:
        reading.execute("BEGIN")
        assert meta.read(reading).commit_seq == 3
        restored = store.restored(backup)
        assert reading.execute("SELECT count(*) FROM claim_revisions").get == 2, "an open snapshot changed"
        reading.execute("ROLLBACK")
        assert meta.read(reading).history == 1

    assert (restored.history, restored.commit_seq, restored.replaced_commit_seq) == (1, 4, 3)
    assert restored.got == {"commit_seq": 2}
    assert (store.directory / DATABASE_NAME).stat().st_ino == inode
    assert store.statements() == {"kept"}
    assert call(other, "claim.get", {"claim_id": undone["result"]["claim_id"]})["error"]["code"] == Code.NOT_FOUND
    again = write(other, "undone", key="of the undone")
    assert (again["commit_seq"], again["result"]["created"]) == (5, True), "a replay of what was undone"
    assert store.verified() == []
    assert store.left() == []
    other.close_sync()


@pytest.mark.proves("operations-33")
def test_a_store_that_holds_nothing_needs_no_leave_and_its_blobs_are_brought(store: Store, tmp_path: Path) -> None:
    artifact = put(store.service, LARGE)["result"]
    backup = store.backed_up(tmp_path / "backup")
    new = Store(tmp_path / "new")
    restored = new.restored(backup, Options())

    assert (restored.history, restored.commit_seq, restored.blobs_copied) == (0, 2, 1)
    found = call(new.service, "artifact.get", {"artifact_id": artifact["artifact_id"]})["result"]
    assert found["content"]["data"] == LARGE
    assert new.verified() == []
    new.service.close_sync()


@pytest.mark.proves("operations-33")
def test_a_failure_on_the_last_step_leaves_the_store_as_it_was(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store.service, "kept")
    backup = store.backed_up(tmp_path / "backup")
    write(store.service, "present")

    def full(db: apsw.Connection) -> None:
        raise apsw.FullError("the disk is full")

    monkeypatch.setattr("memoree.jobs.restore_directory.compact", full)
    with pytest.raises(MemoreeError, match="disk is full") as failed:
        store.restored(backup)
    assert failed.value.code is Code.INTERNAL_ERROR
    assert store.statements() == {"kept", "present"}
    assert write(store.service, "after")["commit_seq"] == 3
    assert store.left() == []


@pytest.mark.proves("operations-30")
@pytest.mark.parametrize("damage", ["deleted", "cut short", "flipped"])
def test_a_damaged_blob_of_the_backup_is_named(damage: str, store: Store, tmp_path: Path) -> None:
    put(store.service, LARGE)
    backup = store.backed_up(tmp_path / "backup")
    [blob] = [path for path in (backup / OBJECTS_NAME / blob_prefix(LOCAL_TENANT)).rglob("*") if path.is_file()]
    body = blob.read_bytes()
    blob.unlink()
    if damage != "deleted":
        blob.write_bytes(body[:-1] if damage == "cut short" else body[:-1] + bytes([body[-1] ^ 1]))
    new = Store(tmp_path / "new")
    with pytest.raises(MemoreeError, match=blob.name) as refused:
        new.restored(backup, Options())
    assert refused.value.code is Code.INTEGRITY_ERROR
    assert new.statements() == set() and new.left() == []

    restored = new.restored(backup, Options(allow_missing_blobs=True))
    assert (restored.blobs_missing, restored.missing_blobs) == (1, [blob.name])
    new.service.close_sync()


@pytest.mark.parametrize("damage", ["page", "empty", "missing"])
def test_a_damaged_database_is_not_restored(damage: str, store: Store, tmp_path: Path) -> None:
    for number in range(50):
        write(store.service, f"claim {number} of many, so that there are several pages")
    backup = store.backed_up(tmp_path / "backup")
    database = backup / DATABASE_NAME
    if damage == "missing":
        database.unlink()
    elif damage == "empty":
        database.write_bytes(b"")
    else:
        database.write_bytes(database.read_bytes().replace(b"claim 17 of many", b"claim 71 of many"))
    before = store.statements()
    with pytest.raises(MemoreeError) as refused:
        store.restored(backup)
    assert refused.value.code in (Code.INTEGRITY_ERROR, Code.CONFIG_ERROR)
    assert store.statements() == before and store.left() == []


@pytest.mark.proves("operations-15")
def test_what_was_erased_since_the_backup_is_erased_again(store: Store, tmp_path: Path) -> None:
    secret = write(store.service, "Xanthippe said so")["result"]["claim_id"]
    backup = store.backed_up(tmp_path / "backup")

    async def erase() -> None:
        order = {"entities": [secret], "reason": "asked for"}
        erased = await EmbeddedTenancy(store.service).submit("store.erase", order, key="the order")
        entry = Erasure(erased["erasure_id"], stored(store.service.clock()), erased["commit_seq"], (secret,), ())
        await erasures.record(store.service.store, LOCAL_TENANT, entry)

    asyncio.run(erase())
    assert store.restored(backup).erased_again == 1
    store.service.close_sync()
    for path in store.directory.rglob("*"):
        assert path.is_dir() or b"Xanthippe" not in path.read_bytes(), path
    store.service = embedded_service(store.directory)
    assert store.verified() == []


def erase(store: Store, entity_id: str) -> dict[str, Any]:
    return asyncio.run(erase_in_directory(EmbeddedTenancy(store.service), [entity_id], "asked for"))


def erase_unrecorded(store: Store, entity_id: str) -> None:
    order = {"entities": [entity_id], "reason": "asked for"}
    asyncio.run(EmbeddedTenancy(store.service).submit("store.erase", order, key="the order"))


@pytest.mark.proves("operations-13", "operations-15")
def test_what_is_erased_during_a_restore_stays_erased(store: Store, tmp_path: Path) -> None:
    """Given a restore that knows what was erased, when another process erases a blob before it is brought, and one that
    is killed before its record a text before the database is replaced, then neither is there; and the receipt did not
    say that nothing was."""
    said = write(store.service, "Xanthippe said so")["result"]["claim_id"]
    long = put(store.service, LARGE)["result"]["artifact_id"]
    backup = store.backed_up(tmp_path / "backup")
    receipts = []

    def meanwhile(step: str) -> None:
        if step == "copying its blobs":
            elsewhere(lambda: receipts.append(erase(store, long)))
        if step == "replacing the database":
            elsewhere(lambda: erase_unrecorded(store, said))

    restored = store.restored(backup, Options(replace=True, progress=meanwhile))
    assert restored.erased_again == 2
    assert store.statements() == {""}
    assert list(store.service.store.keys_sync(blob_prefix(LOCAL_TENANT))) == []
    assert store.verified() == []
    for line in ("database", "blobs"):
        assert receipts[0]["stores"][line].startswith("retained_until ")
    assert erase(store, said)["stores"]["database"] == "erased"


@pytest.mark.proves("operations-15")
def test_an_erasure_whose_process_was_killed_before_it_was_recorded_is_not_undone(store: Store, tmp_path: Path) -> None:
    secret = write(store.service, "secret")["result"]["claim_id"]
    backup = store.backed_up(tmp_path / "backup")
    erase_unrecorded(store, secret)
    assert store.restored(backup).erased_again == 1
    assert store.statements() == {""}


@pytest.mark.proves("operations-15")
def test_a_backup_carries_the_record_of_erasures_to_wherever_it_is_restored_or_used(
    store: Store, tmp_path: Path
) -> None:
    """Given a store that was restored to before what it had erased was written, so that no row tells of that."""
    empty = store.backed_up(tmp_path / "empty")
    secret = write(store.service, "secret")["result"]["claim_id"]
    full = store.backed_up(tmp_path / "full")
    erase(store, secret)
    store.restored(empty)
    late = store.backed_up(tmp_path / "late")

    new, used = Store(tmp_path / "new"), Store(late)
    new.restored(late, Options())
    for each in (new, used, store):
        assert each.restored(full).erased_again == 1
        assert each.statements() == {""}
        assert each.verified() == []
    new.service.close_sync()
    used.service.close_sync()


@pytest.mark.proves("operations-15")
def test_what_only_rows_told_of_is_on_record_once_they_are_replaced(store: Store, tmp_path: Path) -> None:
    """As after backups of versions that did not copy the record."""
    empty = store.backed_up(tmp_path / "empty")
    secret = write(store.service, "secret")["result"]["claim_id"]
    full = store.backed_up(tmp_path / "full")
    erase(store, secret)
    late = store.backed_up(tmp_path / "late")
    shutil.rmtree(late / OBJECTS_NAME / erasures_prefix(LOCAL_TENANT))

    new = Store(tmp_path / "new")
    for backup, erased_again in ((late, 0), (empty, 0), (full, 1)):
        assert new.restored(backup).erased_again == erased_again
    assert new.statements() == {""}
    new.service.close_sync()


@pytest.mark.proves("operations-13")
def test_a_restore_that_takes_too_long_is_given_up(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Receipts of erasures say until when a copy may be in the directory."""
    write(store.service, "kept")
    backup = store.backed_up(tmp_path / "backup")
    write(store.service, "present")
    monkeypatch.setattr(limits, "RESTORE_DIRECTORY_SECONDS_MAX", 0.0)
    with pytest.raises(MemoreeError, match="too long"):
        store.restored(backup)
    assert store.statements() == {"kept", "present"} and store.left() == []


@pytest.mark.fault_class(50)
@pytest.mark.parametrize("origin", STORES, ids=lambda origin: origin.name)
def test_a_backup_of_every_schema_is_restored_and_stays_as_it_was(origin: Path, store: Store, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    shutil.copytree(origin, backup)
    before = (backup / DATABASE_NAME).read_bytes()
    with closing(open_reader(backup / DATABASE_NAME, immutable=True)) as db:
        held = {statement for (statement,) in db.execute("SELECT statement FROM claim_revisions")}

    write(store.service, "undone")
    store.restored(backup)
    assert store.statements() == held
    assert store.verified() == []
    assert (backup / DATABASE_NAME).read_bytes() == before


@pytest.mark.fault_class(51)
def test_a_backup_of_a_newer_program_is_refused_and_nothing_is_changed(store: Store, tmp_path: Path) -> None:
    write(store.service, "kept")
    backup = store.backed_up(tmp_path / "backup")
    with closing(apsw.Connection(str(backup / DATABASE_NAME))) as db:
        db.execute("UPDATE meta SET schema_version = 999")
    with pytest.raises(MemoreeError, match="upgrade") as refused:
        store.restored(backup)
    assert refused.value.code is Code.CONFIG_ERROR
    assert store.statements() == {"kept"} and store.left() == []


def test_what_a_killed_restore_left_is_removed_by_the_next(store: Store, tmp_path: Path) -> None:
    write(store.service, "kept")
    backup = store.backed_up(tmp_path / "backup")
    left = store.directory / ".memoree-backup-01M8PH26EJXJ6FX1M8AXJ6N993"
    left.mkdir()
    shutil.copy(backup / DATABASE_NAME, left)
    store.restored(backup)
    assert store.left() == []
