"""The second bucket: everything a restore needs, once more, and no more than that."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memoree import erasures
from memoree.backup.record import in_use, intents, published, records
from memoree.backup.retention import Retention, prune
from memoree.backup.second import Copied, copy_missing, sweep
from memoree.erasures import Erasure
from memoree.jobs.backup_check import Checked, verify
from memoree.objects import StoreUnavailable
from memoree.objects.blobs import blob_digest, blob_key, blob_prefix
from memoree.objects.filesystem import FilesystemStore
from memoree.objects.removal import Removal
from memoree.replication import layout
from mixed_mutations import LONG_TEXT

from .workshop import Workshop


class Second(FilesystemStore):
    """Counts what is written to it, and loses the connection where it is told to."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.written: list[str] = []
        self.lost_at = ""
        self.before_write: Callable[[str], None] = lambda _: None

    async def put(self, key: str, body: bytes, **how: Any) -> str:
        self._write(key)
        return await super().put(key, body, **how)

    async def put_stream(self, key: str, chunks: Any, *, size: int) -> None:
        self._write(key)
        await super().put_stream(key, chunks, size=size)

    def _write(self, key: str) -> None:
        if self.lost_at and key.endswith(self.lost_at):
            raise StoreUnavailable("no answer")
        self.before_write(key)
        self.written.append(key)

    @property
    def blobs(self) -> list[str]:
        return [key.rpartition("/")[2] for key in self.keys_sync(blob_prefix("local"))]

    def delete_tenant(self) -> None:
        for key in list(self.keys_sync(layout.tenant_prefix("local"))):
            self.delete_sync(key)


@pytest.fixture
def second(tmp_path: Path) -> Second:
    return Second(tmp_path / "second")


def copied(workshop: Workshop, second: Second) -> Copied:
    return asyncio.run(copy_missing(workshop.store, second, "local", workshop.scratch, lambda step: None))


def verified(workshop: Workshop, second: Second, backup_id: str) -> Checked:
    return asyncio.run(verify(second, "local", backup_id, workshop.scratch, full=True))


def swept(workshop: Workshop, second: Second) -> Removal:
    """As if everything there were a day older."""
    return asyncio.run(sweep(second, "local", workshop.scratch, datetime.now(UTC) + timedelta(days=1)))


def digest(text: str) -> str:
    return blob_digest(text.encode())


@pytest.mark.proves("operations-23")
def test_when_the_first_bucket_is_lost_every_backup_is_verified_from_the_second(
    filled: Workshop, second: Second
) -> None:
    made = [filled.back_up()]
    filled.put(LONG_TEXT + "and more\n")
    made.append(filled.back_up())
    done = copied(filled, second)
    assert (done.backups, done.blobs, done.failures) == ([each.backup_id for each in made], 2, {})
    shutil.rmtree(filled.store.root)
    assert asyncio.run(records(second, "local")) == made
    for each in made:
        checked = verified(filled, second, each.backup_id)
        assert (checked.faults, checked.drill) == ([], "same")


def test_only_what_is_missing_is_copied(filled: Workshop, second: Second) -> None:
    filled.back_up()
    copied(filled, second)
    first_time = len(second.written)
    assert copied(filled, second) == Copied()
    assert len(second.written) == first_time
    filled.put(LONG_TEXT + "and more\n")
    filled.back_up()
    assert (copied(filled, second).blobs, len(second.blobs)) == (1, 2)


@pytest.mark.parametrize("lost_at", ["intent.json", "checkpoint.db.zst", "manifest.jsonl.zst", "backup.json", "blob"])
def test_a_copy_that_broke_off_is_none_and_is_made_good_by_the_next_run(
    filled: Workshop, second: Second, lost_at: str
) -> None:
    made = filled.back_up()
    second.lost_at = digest(LONG_TEXT) if lost_at == "blob" else lost_at
    with pytest.raises(StoreUnavailable):
        copied(filled, second)
    assert asyncio.run(published(second, "local")) == []
    second.lost_at = ""
    assert copied(filled, second).backups == [made.backup_id]
    assert verified(filled, second, made.backup_id).ok


@pytest.mark.parametrize("name", ["blob", "checkpoint.db.zst", "manifest.jsonl.zst", "backup.json"])
def test_what_is_damaged_is_not_copied_and_named_while_others_are(filled: Workshop, second: Second, name: str) -> None:
    """Nothing is shown in the second bucket that does not hash to what it should."""
    good = filled.back_up()
    copied(filled, second)
    filled.put(LONG_TEXT + "and more\n")
    bad, later = filled.back_up(), None
    key = blob_key("local", digest(LONG_TEXT + "and more\n")) if name == "blob" else bad.key_of(name)
    body = bytearray(filled.path(key).read_bytes())
    body[len(body) // 2] ^= 1
    filled.path(key).write_bytes(body)
    done = copied(filled, second)
    assert done.backups == [] and list(done.failures) == [bad.backup_id]
    assert (key.rpartition("/")[2] if name == "blob" else key) in done.failures[bad.backup_id]
    assert asyncio.run(published(second, "local")) == [good.backup_id]
    assert verified(filled, second, good.backup_id).ok and later is None


def test_erasures_are_copied_and_what_they_name_is_not(filled: Workshop, second: Second) -> None:
    made = filled.back_up()
    erasure = Erasure("era_1", made.created_at, made.commit_seq + 1, filled.blob_artifacts(), (digest(LONG_TEXT),))
    asyncio.run(erasures.record(filled.store, "local", erasure))
    filled.path(blob_key("local", digest(LONG_TEXT))).unlink()
    assert copied(filled, second).backups == [made.backup_id]
    assert asyncio.run(erasures.recorded(second, "local")) == [erasure]
    assert second.blobs == []
    assert verified(filled, second, made.backup_id).ok


def test_blobs_go_from_the_second_bucket_with_the_last_backup_that_needs_them(filled: Workshop, second: Second) -> None:
    filled.back_up()
    filled.clock.advance(hours=1)
    copied(filled, second)
    orphan = blob_key("local", digest("of a copy that broke off"))
    asyncio.run(second.put(orphan, b"of a copy that broke off"))
    assert sorted(second.blobs) == sorted([digest(LONG_TEXT), digest("of a copy that broke off")])
    fresh = datetime.now(UTC) - timedelta(days=1)
    assert asyncio.run(sweep(second, "local", filled.scratch, fresh)).removed == 0
    assert (swept(filled, second).removed, second.blobs) == (1, [digest(LONG_TEXT)])


def test_what_was_erased_goes_from_the_second_bucket_at_once_unless_it_was_stored_anew(
    filled: Workshop, second: Second
) -> None:
    one = filled.back_up()
    copied(filled, second)
    erasure = Erasure("era_1", one.created_at, one.commit_seq + 1, filled.blob_artifacts(), (digest(LONG_TEXT),))
    asyncio.run(erasures.record(second, "local", erasure))
    fresh = datetime.now(UTC) - timedelta(days=1)
    assert asyncio.run(sweep(second, "local", filled.scratch, fresh)).removed == 1
    assert second.blobs == []
    for _ in range(2):
        filled.put(LONG_TEXT)  # anew, and later than its erasure
    again = filled.back_up()
    copied(filled, second)
    assert swept(filled, second).removed == 0
    assert second.blobs == [digest(LONG_TEXT)] and verified(filled, second, again.backup_id).ok


@pytest.mark.proves("operations-23")
def test_a_blob_that_something_else_cites_is_copied_and_kept_however_often_it_was_erased(
    filled: Workshop, second: Second
) -> None:
    """Of another past, an erased artifact and a kept one may have one blob; that of this backup has both."""
    erased = filled.blob_artifacts()
    filled.put(LONG_TEXT)
    made = filled.back_up()
    erasure = Erasure("era_1", made.created_at, made.commit_seq + 1, erased, (digest(LONG_TEXT),))
    asyncio.run(erasures.record(filled.store, "local", erasure))
    copied(filled, second)
    assert swept(filled, second).removed == 0
    assert second.blobs == [digest(LONG_TEXT)]
    assert verified(filled, second, made.backup_id).ok
    filled.path(blob_key("local", digest(LONG_TEXT))).unlink()
    (fault,) = filled.verify(made.backup_id).faults
    assert fault.object == blob_key("local", digest(LONG_TEXT))


@pytest.mark.proves("operations-16")
def test_a_tenant_that_is_deleted_while_its_backup_is_copied_leaves_nothing_in_the_second_bucket(
    filled: Workshop, second: Second
) -> None:
    made = filled.back_up()
    blob = digest(LONG_TEXT)

    def delete(key: str) -> None:
        if key.endswith(blob):
            second.delete_tenant()

    second.before_write = delete
    assert "given up" in copied(filled, second).failures.get(made.backup_id, "it was copied")
    assert list(second.keys_sync(layout.tenant_prefix("local"))) == []


def test_nothing_is_swept_while_a_backup_is_being_copied(filled: Workshop, second: Second) -> None:
    made = filled.back_up()
    second.lost_at = "checkpoint.db.zst"
    with pytest.raises(StoreUnavailable):
        copied(filled, second)
    assert second.blobs == [digest(LONG_TEXT)]
    assert (swept(filled, second).removed, second.blobs) == (0, [digest(LONG_TEXT)])
    for intent in asyncio.run(intents(second, "local")):
        key = layout.backup_key("local", intent.backup_id, "intent.json")
        path = second.root / key
        asyncio.run(second.delete(key))
        assert not path.exists() and intent.backup_id == made.backup_id
    assert swept(filled, second).removed == 1


def test_the_second_bucket_has_its_own_readers(filled: Workshop, second: Second) -> None:
    old = filled.back_up()
    filled.clock.advance(hours=1)
    filled.back_up()
    copied(filled, second)

    async def reading() -> list[str]:
        async with in_use(second, old):
            return (await prune(second, "local", Retention(1, 0, 0))).in_use

    assert asyncio.run(reading()) == [old.backup_id]
