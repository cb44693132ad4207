"""Upgrading a store that an older program made: nothing is lost, and nothing is ever half done."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest
from blake3 import blake3

from memoree.assembly import embedded_service
from memoree.backup import before_migration
from memoree.data_directory import DATABASE_NAME
from memoree.database import artifacts, claims, integrity, meta
from memoree.database.schema import SCHEMA_VERSION, stored_version
from memoree.embedded import EmbeddedService
from memoree.errors import Code, MemoreeError
from memoree.paths import prepare_data_dir

FIXTURES = Path(__file__).with_name("fixtures")
RELEASED = sorted(FIXTURES.glob("schema-*"))
OLDEST = FIXTURES / "schema-1"
COPY_NAME = f"{DATABASE_NAME}.before-schema-{SCHEMA_VERSION}"
WAL_MODE = b"\2\2"
"""Bytes 18 and 19 of a database whose first opening writes nothing."""
CONTEXT = {"workspace_id": "wsp_lab", "project_id": "prj_kiln"}

KILLER = """
import os, shutil, signal, sys
from pathlib import Path

import apsw

import memoree.backup.before_migration, memoree.embedded  # once, and not in every child
from memoree.assembly import embedded_service

template, stores = Path(sys.argv[1]), Path(sys.argv[2])
left = 0


def count_down(cursor, sql, bindings):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return True


def listen(db):
    db.exec_trace = count_down


apsw.connection_hooks.append(listen)
number, killed = 0, True
while killed:
    number += 1
    shutil.copytree(template, stores / f"{number:03}")
    child = os.fork()
    if child == 0:
        left = number
        embedded_service(stores / f"{number:03}")
        os._exit(0)
    killed = os.waitpid(child, 0)[1] == signal.SIGKILL
"""
"""Opens a store again and again, killed at its first statement, at its second, and so on until it lives."""

Json = dict[str, Any]


def opened(data_dir: Path) -> EmbeddedService:
    return embedded_service(data_dir, clock=lambda: datetime(2026, 3, 3, tzinfo=UTC))


def call(service: EmbeddedService, op: str, input: Json) -> Json:
    request = {"request_id": "r", "op": op, "context": CONTEXT, "input": input}
    answer: Json = json.loads(service.call_bytes(json.dumps(request).encode()))
    assert answer["ok"], answer
    result: Json = answer["result"]
    return result


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The oldest store there is."""
    return shutil.copytree(OLDEST, tmp_path / "store")


def connected(path: Path) -> apsw.Connection:
    return apsw.Connection(str(path))


def released(store: Path) -> apsw.Connection:
    """A fixture as it stands in the repository: not even a log may appear beside it."""
    uri = f"{(store / DATABASE_NAME).as_uri()}?immutable=1"
    return apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)


def schema_of(db: apsw.Connection) -> list[tuple[Any, ...]]:
    return list(db.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name"))


def rows_of(db: apsw.Connection) -> Mapping[str, list[tuple[Any, ...]]]:
    """What the oldest schema's tables hold, of the columns it has, but for what a migration changes."""
    with closing(released(OLDEST)) as old:
        tables = [name for kind, name, sql in schema_of(old) if kind == "table" and sql.startswith("CREATE TABLE ")]
        columns = {name: [column[1] for column in old.execute(f"PRAGMA table_info ({name})")] for name in tables}
    for changing in ("schema_version", "integrity"):
        columns["meta"].remove(changing)
    return {name: sorted(db.execute(f"SELECT {', '.join(columns[name])} FROM {name}"), key=repr) for name in tables}


# --- upgrading --------------------------------------------------------------------------------------------------


@pytest.mark.fault_class(50)
@pytest.mark.parametrize("released", RELEASED, ids=[path.name for path in RELEASED])
def test_an_upgraded_store_holds_and_answers_what_it_did(released: Path, tmp_path: Path) -> None:
    store = shutil.copytree(released, tmp_path / "store")
    with closing(connected(store / DATABASE_NAME)) as db:
        before, rows = meta.read(db), rows_of(db)
        hashes = [revision.blob_hash for _, revision in artifacts.every_revision(db)]
    service = opened(store)
    try:
        expected = json.loads((store / "expected.json").read_text())
        for each in expected["searches"]:
            hits = call(service, "search", each["input"])["hits"]
            assert sorted(hit["citation"] for hit in hits) == sorted(each["citations"]), each["input"]
        for each in expected["replays"]:
            assert json.loads(service.call_bytes(json.dumps(each["request"]).encode())) == each["answer"]
        verified = call(service, "verify", {})
        assert (verified["issues"], verified["schema_version"]) == ([], SCHEMA_VERSION)
        assert verified["last_commit_seq"] == before.commit_seq
    finally:
        service.close_sync()
    with closing(connected(store / DATABASE_NAME)) as db:
        now = rows_of(db)
        assert {name: found for name, found in now.items() if name not in ("attempts", "meta")} == {
            name: found for name, found in rows.items() if name not in ("attempts", "meta")
        }
        assert [revision.blob_hash for _, revision in artifacts.every_revision(db)] == hashes
        counted = integrity.with_log(before.integrity, db)
        assert meta.read(db).integrity == counted == integrity.recompute(db)
        assert len(list(claims.every_revision(db))) == verified["checked_claim_revisions"]


@pytest.mark.fault_class(51)
def test_what_was_there_before_a_migration_is_kept(store: Path) -> None:
    opened(store).close_sync()
    copy = store / COPY_NAME
    assert copy.stat().st_mode & 0o777 == 0o600
    assert copy.read_bytes()[18:20] == WAL_MODE
    with closing(connected(copy)) as kept, closing(released(OLDEST)) as old:
        assert stored_version(kept) == stored_version(old) == 1
        assert schema_of(kept) == schema_of(old)
        assert rows_of(kept) == rows_of(old)
        assert kept.execute("PRAGMA integrity_check").get == "ok"


@pytest.mark.fault_class(51)
def test_an_older_program_refuses_a_newer_store_and_changes_nothing(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(store).close_sync()
    before = {path: blake3(path.read_bytes()).hexdigest() for path in store.rglob("*") if path.is_file()}
    monkeypatch.setattr("memoree.database.schema.SCHEMA_VERSION", 1)
    monkeypatch.setattr("memoree.data_directory.SCHEMA_VERSION", 1)
    with pytest.raises(MemoreeError) as refused:
        opened(store)
    assert refused.value.code is Code.CONFIG_ERROR
    assert {path: blake3(path.read_bytes()).hexdigest() for path in before} == before


def test_a_new_store_and_a_current_one_leave_no_copy(tmp_path: Path) -> None:
    for _ in range(2):
        opened(tmp_path / "new").close_sync()
    assert list((tmp_path / "new").glob("*before-schema*")) == []


def test_the_copy_of_a_migration_is_one_of_our_own_files(store: Path) -> None:
    """Or a directory that was opened to others could not be closed again."""
    (store / "expected.json").unlink()
    opened(store).close_sync()
    store.chmod(0o755)
    prepare_data_dir(store)
    assert store.stat().st_mode & 0o777 == 0o700


# --- the copy ---------------------------------------------------------------------------------------------------


def test_a_sound_copy_of_this_state_is_not_made_again(store: Path) -> None:
    before_migration.keep_before_migration(store / DATABASE_NAME)
    copy = store / COPY_NAME
    made = copy.stat()
    opened(store).close_sync()
    assert (copy.stat().st_ino, copy.stat().st_mtime_ns) == (made.st_ino, made.st_mtime_ns)
    assert [path.name for path in store.glob("*before-schema*")] == [COPY_NAME]


@pytest.mark.parametrize("present", ["garbage", "an older state", "a truncated copy"])
def test_no_copy_is_ever_overwritten(store: Path, present: str) -> None:
    copy = store / COPY_NAME
    if present == "garbage":
        copy.write_bytes(b"mine")
    else:
        shutil.copy(OLDEST / DATABASE_NAME, copy)
        with closing(connected(copy)) as db:
            db.execute("PRAGMA journal_mode = DELETE")
            if present == "an older state":
                db.execute("UPDATE meta SET commit_seq = 9")
    if present == "a truncated copy":
        copy.write_bytes(copy.read_bytes()[: -3 * 4096])
    before = copy.read_bytes()
    opened(store).close_sync()
    assert copy.read_bytes() == before
    with closing(connected(store / f"{COPY_NAME}.1")) as db:
        assert (stored_version(db), meta.read(db).commit_seq) == (1, 10)


@pytest.mark.fault_class(51)
def test_a_damaged_store_is_not_migrated(store: Path) -> None:
    with closing(connected(store / DATABASE_NAME)) as db:
        db.execute("PRAGMA foreign_keys = OFF; UPDATE meta SET erasing = 1; DELETE FROM artifacts WHERE row_id = 1")
        damaged = rows_of(db)
    with pytest.raises(MemoreeError) as refused:
        opened(store)
    assert refused.value.code is Code.INTEGRITY_ERROR
    with closing(connected(store / DATABASE_NAME)) as db:
        assert stored_version(db) == 1
        assert rows_of(db) == damaged
    assert list(store.glob("*before-schema*")) == []


# --- killed -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of stores, each left by a program that was killed one statement later; the last one lived."""
    stores = tmp_path_factory.mktemp("killed")
    killer = [sys.executable, "-c", KILLER, str(OLDEST), str(stores)]
    subprocess.run(killer, check=True, capture_output=True, timeout=100)
    return stores


@pytest.fixture(scope="module")
def migrated_schema(killed: Path) -> list[tuple[Any, ...]]:
    with closing(connected(max(killed.iterdir()) / DATABASE_NAME)) as db:
        assert stored_version(db) == SCHEMA_VERSION
        return schema_of(db)


def each_killed(killed: Path) -> list[Path]:
    stores = sorted(killed.iterdir())
    assert len(stores) > 60, "so many statements are run"
    return stores


@pytest.mark.fault_class(52)
def test_killed_at_any_statement_a_store_has_the_old_schema_or_the_new_and_loses_nothing(
    killed: Path, migrated_schema: list[tuple[Any, ...]]
) -> None:
    with closing(released(OLDEST)) as db:
        old_schema, rows = schema_of(db), rows_of(db)
    versions = []
    for store in each_killed(killed):
        with closing(connected(store / DATABASE_NAME)) as db:
            versions.append(stored_version(db))
            assert schema_of(db) == (old_schema if versions[-1] == 1 else migrated_schema)
            assert rows_of(db) == rows
            assert db.execute("PRAGMA integrity_check").get == "ok"
            if versions[-1] != 1:
                assert meta.read(db).integrity == integrity.recompute(db)
        if versions[-1] != 1:
            assert (store / COPY_NAME).exists(), "the schema changed before there was a copy"
    assert versions == sorted(versions)
    assert set(versions) == {1, SCHEMA_VERSION}


@pytest.mark.fault_class(52)
def test_however_it_was_killed_a_store_opens_and_is_whole_afterwards(killed: Path) -> None:
    """One store of each kind of remains: what the databases hold does not differ, and was looked at above."""
    remains = {tuple(sorted(path.name for path in store.iterdir())): store for store in each_killed(killed)}
    assert len(remains) >= 3, "before, with half a copy, and with the whole of it"
    for store in remains.values():
        service = opened(store)
        try:
            assert call(service, "verify", {})["issues"] == []
        finally:
            service.close_sync()
        assert [path.name for path in store.glob("*before-schema*")] == [COPY_NAME]


@pytest.mark.fault_class(51)
def test_a_program_that_was_overtaken_by_a_newer_one_stops_reading_and_writing(store: Path) -> None:
    service = opened(store)
    try:
        with closing(connected(store / DATABASE_NAME)) as db:
            db.execute(f"UPDATE meta SET schema_version = {SCHEMA_VERSION + 1}")
            before = meta.read(db)
            context = {"context": CONTEXT}
            read = {"request_id": "r", "op": "search", "input": {"query": "cone"}} | context
            claim = {"claim_type": "fact", "statement": "Too late."}
            write = {"request_id": "r", "op": "claim.assert", "idempotency_key": "late", "input": claim} | context
            for request in (read, write):
                answer = json.loads(service.call_bytes(json.dumps(request).encode()))
                assert answer["error"]["code"] == "CONFIG_ERROR", answer
                assert "upgrade it" in answer["error"]["message"]
            assert meta.read(db) == before
    finally:
        service.close_sync()
