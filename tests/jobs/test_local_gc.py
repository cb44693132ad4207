"""Garbage collection in a data directory: rows are checked and files removed under the writer's lock."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from memoree.assembly import embedded_facts
from memoree.clock import stored, utc_now
from memoree.data_directory import LOCK_NAME
from memoree.database import condemned
from memoree.database.condemned import Condemned
from memoree.embedded import LOCAL_TENANT, EmbeddedService
from memoree.jobs.embedded import EmbeddedTenancy
from memoree.jobs.gc import Collection
from memoree.jobs.local_gc import collect
from memoree.jobs.tenancy import request_of
from memoree.objects import ObjectStoreError
from memoree.objects.blobs import blob_digest, blob_key, blob_prefix
from memoree.objects.filesystem import FilesystemStore

TEXT = "kept ".ljust(20_000, ".")


class Directory:
    def __init__(self, path: Path) -> None:
        self.now = utc_now()
        self.path = path
        self.service = EmbeddedService(path, facts=embedded_facts(running=False), clock_now=lambda: self.now)

    def collect(self) -> Collection:
        return asyncio.run(collect(EmbeddedTenancy(self.service)))

    def orphan(self, text: str, *, hours: float = 0) -> str:
        """A blob whose command never came, written that long ago."""
        data = text.ljust(20_000, ".").encode()
        key = blob_key(LOCAL_TENANT, blob_digest(data))
        self.service.store.put_sync(key, data)
        written = (self.now - timedelta(hours=hours)).timestamp()
        os.utime(self.service.store.root / key, (written, written))
        return blob_digest(data)

    def cite(self, text: str) -> str:
        content = {"kind": "note", "title": "t", "content": {"type": "text", "data": text}}
        reply = self.service.answer(request_of("artifact.put", content, text[:9]))
        assert reply.envelope["ok"], reply.envelope
        return blob_digest(text.encode())

    def blobs(self) -> set[str]:
        return {key.rpartition("/")[2] for key in self.service.store.keys_sync(blob_prefix(LOCAL_TENANT))}


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    opened = Directory(tmp_path / "store")
    yield opened
    opened.service.close_sync()


@pytest.mark.proves("operations-36")
def test_only_old_blobs_that_no_row_needs_are_removed(directory: Directory) -> None:
    cited = directory.cite(TEXT)
    young, old = directory.orphan("young", hours=23), directory.orphan("old", hours=25)
    directory.now += timedelta(seconds=1)
    os.utime(directory.service.store.root / blob_key(LOCAL_TENANT, cited), (0, 0))
    report = directory.collect()
    assert directory.blobs() == {cited, young}
    assert old not in directory.blobs()
    assert (report.deletes.removed, report.bytes) == (1, 20_000)


def test_rows_are_looked_at_and_files_removed_while_no_writer_can_write(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory.orphan("old", hours=25)
    held: list[bool] = []

    def look(db: apsw.Connection, digest: bytes) -> bool:
        held.append(db.in_transaction and not is_free(directory.path / LOCK_NAME))
        return is_cited(db, digest)

    is_cited = condemned.is_cited
    monkeypatch.setattr(condemned, "is_cited", look)
    directory.collect()
    assert held == [True]
    assert is_free(directory.path / LOCK_NAME)


@pytest.mark.proves("operations-38")
def test_an_erased_blob_goes_at_once_and_may_be_stored_again_at_once(directory: Directory) -> None:
    """Files are removed under the writer's lock: no DELETE can still be on its way, as it can in a bucket."""
    blob = directory.orphan(TEXT)
    erase(directory, blob)
    report = directory.collect()
    assert (report.deletes.removed, report.released, report.condemned) == (1, 1, 0)
    assert directory.blobs() == set()
    assert directory.cite(TEXT) == blob
    directory.collect()
    assert directory.blobs() == {blob}


@pytest.mark.proves("operations-41")
def test_an_erased_blob_whose_file_cannot_be_removed_stays_condemned(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    erase(directory, directory.orphan("stubborn"))

    def refuse(self: FilesystemStore, key: str) -> None:
        raise ObjectStoreError(f"{key} is on a disk that is read-only")

    monkeypatch.setattr(FilesystemStore, "delete_sync", refuse)
    report = directory.collect()
    assert (report.deletes.failed, report.released, report.condemned) == (1, 0, 1)


@pytest.mark.proves("operations-41")
def test_a_file_that_cannot_be_removed_is_told(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    blob = directory.orphan("stubborn", hours=25)

    def refuse(self: FilesystemStore, key: str) -> None:
        raise ObjectStoreError(f"{key} is on a disk that is read-only")

    monkeypatch.setattr(FilesystemStore, "delete_sync", refuse)
    report = directory.collect()
    assert (report.deletes.removed, report.deletes.failed, report.bytes) == (0, 1, 0)
    assert blob in next(iter(report.deletes.failures))


def erase(directory: Directory, digest: str) -> None:
    """Condemn the blob in a commit that is no collector's."""
    directory.service.answer(request_of("claim.assert", {"claim_type": "fact", "statement": "s"}, "claim"))

    def insert(db: apsw.Connection) -> None:
        condemned.insert(db, Condemned(bytes.fromhex(digest), stored(directory.now), 1))
        db.execute("COMMIT")

    directory.service.exclusively(insert)


def is_free(lock: Path) -> bool:
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
