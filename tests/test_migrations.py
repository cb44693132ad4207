"""Upgrading a store that an older program made: nothing is lost, and nothing is ever half done."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import orjson
import pytest
from blake3 import blake3

from memoree.assembly import embedded_service
from memoree.backup import before_migration
from memoree.data_directory import DATABASE_NAME
from memoree.database import artifacts, claims, index, integrity, meta
from memoree.database.schema import SCHEMA_VERSION, create_or_migrate, stored_version
from memoree.embedded import EmbeddedService
from memoree.errors import Code, MemoreeError
from memoree.paths import prepare_data_dir

FIXTURES = Path(__file__).with_name("fixtures")
RELEASED = sorted(FIXTURES.glob("schema-*"))
OLDEST = FIXTURES / "schema-1"
RICHEST = FIXTURES / "schema-2"
BEFORE_EPISODES = FIXTURES / "schema-4"
FIRST_WITH_EPISODES = 5
each_released = pytest.mark.parametrize("origin", RELEASED, ids=[path.name for path in RELEASED])
COPY_NAME = f"{DATABASE_NAME}.before-schema-{SCHEMA_VERSION}"
INDEX_TABLES = ("artifact_fts", "claim_fts", "projection_fts")
WAL_MODE = b"\2\2"
"""Bytes 18 and 19 of a database whose first opening writes nothing."""
PROGRESS_STEPS = 20
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


def revision_of(citation: str) -> str:
    """What a hit is of, without the bytes that its excerpt shows: those are chosen by each program's own rules."""
    return citation.partition("#")[0]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The oldest store there is."""
    return shutil.copytree(OLDEST, tmp_path / "store")


@pytest.fixture
def richest(tmp_path: Path) -> Path:
    """A store that has a row of every kind."""
    return shutil.copytree(RICHEST, tmp_path / "richest")


def connected(path: Path) -> apsw.Connection:
    return apsw.Connection(str(path))


def released(store: Path) -> apsw.Connection:
    """A fixture as it stands in the repository: not even a log may appear beside it."""
    uri = f"{(store / DATABASE_NAME).as_uri()}?immutable=1"
    return apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)


def schema_of(db: apsw.Connection) -> list[tuple[Any, ...]]:
    return list(db.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name"))


def rows_of(db: apsw.Connection, origin: Path) -> Mapping[str, list[tuple[Any, ...]]]:
    """What the tables of the origin's schema hold, of the columns it has, but for what a migration changes."""
    with closing(released(origin)) as old:
        tables = [name for kind, name, sql in schema_of(old) if kind == "table" and sql.startswith("CREATE TABLE ")]
        kept = [name for name in tables if "_fts_" not in name]
        columns = {name: [column[1] for column in old.execute(f"PRAGMA table_info ({name})")] for name in kept}
    for changing in ("schema_version", "integrity"):
        columns["meta"].remove(changing)
    return {name: sorted(db.execute(f"SELECT {', '.join(columns[name])} FROM {name}"), key=repr) for name in kept}


# --- upgrading --------------------------------------------------------------------------------------------------


@pytest.mark.fault_class(50)
@each_released
def test_an_upgraded_store_holds_and_answers_what_it_did(origin: Path, tmp_path: Path) -> None:
    """Gets and replays answer byte for byte. A search finds the same revisions; scores, order and the excerpts shown
    are those of the new ranking."""
    store = shutil.copytree(origin, tmp_path / "store")
    with closing(connected(store / DATABASE_NAME)) as db:
        version, before, rows = stored_version(db), meta.read(db), rows_of(db, origin)
        hashes = [digest for (digest,) in db.execute("SELECT blob_hash FROM artifact_revisions ORDER BY row_id")]
    service = opened(store)
    try:
        expected = json.loads((store / "expected.json").read_text())
        for each in expected["searches"]:
            hits = call(service, "search", each["input"])["hits"]
            found, wanted = [hit["citation"] for hit in hits], each["citations"]
            assert sorted(map(revision_of, found)) == sorted(map(revision_of, wanted)), each["input"]
        for each in expected["replays"]:
            assert json.loads(service.call_bytes(json.dumps(each["request"]).encode())) == each["answer"]
        for each in expected.get("reads", ()):
            assert call(service, each["op"], each["input"]) == each["result"], each["input"]
        verified = call(service, "verify", {})
        assert (verified["issues"], verified["schema_version"]) == ([], SCHEMA_VERSION)
        assert verified["last_commit_seq"] == before.commit_seq
    finally:
        service.close_sync()
    with closing(connected(store / DATABASE_NAME)) as db:
        now = rows_of(db, origin)
        assert {name: found for name, found in now.items() if name not in ("attempts", "meta")} == {
            name: found for name, found in rows.items() if name not in ("attempts", "meta")
        }
        assert [revision.blob_hash for _, revision in artifacts.every_revision(db)] == hashes
        counted = integrity.with_log(before.integrity, db) if version == 1 else before.integrity
        counted = integrity.with_episodes(counted, db) if version < FIRST_WITH_EPISODES else counted
        assert meta.read(db).integrity == counted == integrity.recompute(db)
        assert len(list(claims.every_revision(db))) == verified["checked_claim_revisions"]


def test_what_the_new_index_is_for_works_on_old_rows(richest: Path) -> None:
    service = opened(richest)
    try:
        for query, wanted in (
            ("saggr", "saggar firing"),
            ("recipes glazed", "glaze recipe"),
            ("九百度", "素焼きは九百度"),
            ("glazes for a cafe\u0301", "café"),
        ):
            excerpts = [hit["excerpt"] for hit in call(service, "search", {"query": query})["hits"]]
            assert any(wanted in excerpt for excerpt in excerpts), (query, excerpts)
    finally:
        service.close_sync()
    with closing(connected(richest / DATABASE_NAME)) as db:
        [(title, citations)] = db.execute(
            "SELECT title, citations FROM derivations JOIN artifact_revisions ON row_id = revision_row"
        )
        [(quoted,)] = db.execute(
            "SELECT 'memoree://claim/' || claim_id || '@' || r.revision_id FROM claims c"
            " JOIN claim_revisions r ON r.claim_row = c.row_id WHERE claim_type = 'procedure'"
        )
        assert (title, orjson.loads(citations)) == ("Packet of yesterday", [quoted])


def test_a_rebuilt_index_holds_what_writing_would_have_put_there(richest: Path) -> None:
    """A row leaves no posting behind only when every one of them is known from its text."""
    with closing(connected(richest / DATABASE_NAME)) as db:
        create_or_migrate(db)
        db.execute("PRAGMA foreign_keys = OFF")
        for (row,) in db.execute("SELECT row_id FROM artifact_revisions").fetchall():
            index.unindex_artifact_revision(db, revision_row=row)
        for (row,) in db.execute("SELECT row_id FROM claim_revisions").fetchall():
            index.unindex_claim_revision(db, revision_row=row)
        for (row,) in db.execute("SELECT row_id FROM projections WHERE status = 'active'").fetchall():
            index.unindex_projection(db, projection_row=row)
        for table in INDEX_TABLES:
            db.execute(f"INSERT INTO {table} ({table}) VALUES ('integrity-check')")
            db.execute(f"CREATE VIRTUAL TABLE temp.left_in_{table} USING fts5vocab (main, {table}, instance)")
            assert list(db.execute(f"SELECT * FROM left_in_{table}")) == []
        assert db.execute("SELECT count(*) FROM derivations").get == 0


def test_what_was_stored_as_an_episode_is_one_version_by_version(tmp_path: Path) -> None:
    """Of the three in the fixture one was revised, one was forgotten and one erased."""
    store = shutil.copytree(BEFORE_EPISODES, tmp_path / "store")
    with closing(released(BEFORE_EPISODES)) as old:
        made = {
            title: (artifact_id.removeprefix("art_"), commits.split(), forgotten)
            for title, artifact_id, commits, forgotten in old.execute(
                "SELECT r.title, a.artifact_id, group_concat(r.row_id, ' '), a.sys_to FROM artifacts a"
                " JOIN artifact_revisions r ON r.artifact_row = a.row_id WHERE a.kind = 'episode' GROUP BY a.row_id"
            )
        }
        assert old.execute("SELECT count(*) FROM artifacts WHERE kind = 'erased'").get == 2
    assert sorted(made) == ["Rumour", "Standup"]
    opened(store).close_sync()
    standup, [first, second], _ = made["Standup"]
    rumour, [only], forgotten = made["Rumour"]
    with closing(connected(store / DATABASE_NAME)) as db:
        assert list(db.execute("SELECT episode_id, row_id, sys_to, source, t_ref, metadata FROM episodes")) == [
            (standup, int(first), int(second), "Standup", None, "{}"),
            (standup, int(second), None, "Standup", None, "{}"),
            (rumour, int(only), forgotten, "Rumour", None, "{}"),
        ]


@pytest.mark.fault_class(52)
@each_released
def test_a_disk_that_is_full_stops_a_migration_and_nothing_is_lost(origin: Path, tmp_path: Path) -> None:
    database = shutil.copytree(origin, tmp_path / "store") / DATABASE_NAME
    with closing(connected(database)) as db:
        schema, rows = schema_of(db), rows_of(db, origin)
        db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').get}")
        with pytest.raises(apsw.FullError):
            create_or_migrate(db)
        assert (schema_of(db), rows_of(db, origin)) == (schema, rows)


@pytest.mark.fault_class(52)
@each_released
def test_a_migration_that_sqlite_itself_took_back_says_why_it_failed(origin: Path, tmp_path: Path) -> None:
    """As a disk with errors makes it do: the transaction is over before the program hears of it."""
    database = shutil.copytree(origin, tmp_path / "store") / DATABASE_NAME
    with closing(connected(database)) as db:
        schema, rows = schema_of(db), rows_of(db, origin)
        db.set_progress_handler(lambda: db.in_transaction, PROGRESS_STEPS)
        with pytest.raises(apsw.InterruptError):
            create_or_migrate(db)
        db.set_progress_handler(None)
        assert not db.in_transaction
        assert (schema_of(db), rows_of(db, origin)) == (schema, rows)


@pytest.mark.fault_class(51)
def test_what_was_there_before_a_migration_is_kept(store: Path) -> None:
    opened(store).close_sync()
    copy = store / COPY_NAME
    assert copy.stat().st_mode & 0o777 == 0o600
    assert copy.read_bytes()[18:20] == WAL_MODE
    with closing(connected(copy)) as kept, closing(released(OLDEST)) as old:
        assert stored_version(kept) == stored_version(old) == 1
        assert schema_of(kept) == schema_of(old)
        assert rows_of(kept, OLDEST) == rows_of(old, OLDEST)
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


MORE_CLAIMS = """
    INSERT INTO claim_revisions
    WITH RECURSIVE numbers (n) AS (VALUES (1000) UNION ALL SELECT n + 1 FROM numbers WHERE n < 5000)
    SELECT n, 'crev_' || n, 1, n, :words, NULL, NULL, '2026', n, NULL FROM numbers
"""


def test_a_migration_needs_memory_for_a_page_cache_and_not_for_the_store(richest: Path) -> None:
    with closing(connected(richest / DATABASE_NAME)) as db:
        db.execute("PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF")
        db.execute(MORE_CLAIMS, {"words": " celadon glaze at cone six" * 40})
        store_bytes = (richest / DATABASE_NAME).stat().st_size
        assert store_bytes > 5_000_000
        apsw.memory_high_water(True)
        before = apsw.memory_used()
        tracemalloc.start()
        try:
            create_or_migrate(db)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak_bytes + apsw.memory_high_water() - before < store_bytes / 2


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
        damaged = rows_of(db, OLDEST)
    with pytest.raises(MemoreeError) as refused:
        opened(store)
    assert refused.value.code is Code.INTEGRITY_ERROR
    with closing(connected(store / DATABASE_NAME)) as db:
        assert stored_version(db) == 1
        assert rows_of(db, OLDEST) == damaged
    assert list(store.glob("*before-schema*")) == []


# --- killed -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Killed:
    """Stores made of `origin`, each left by a program that was killed one statement later; the last one lived."""

    origin: Path
    stores: list[Path]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(OLDEST, id=OLDEST.name),  # seconds, for a process and a store per statement
        pytest.param(RICHEST, id=RICHEST.name, marks=pytest.mark.nightly),
    ],
)
def killed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Killed:
    directory = tmp_path_factory.mktemp("killed")
    killer = [sys.executable, "-c", KILLER, str(request.param), str(directory)]
    subprocess.run(killer, check=True, capture_output=True, timeout=100)
    stores = sorted(directory.iterdir())
    assert len(stores) > 60, "so many statements are run"
    return Killed(request.param, stores)


@pytest.mark.fault_class(52)
def test_killed_at_any_statement_a_store_has_the_old_schema_or_the_new_and_loses_nothing(killed: Killed) -> None:
    with closing(released(killed.origin)) as db:
        old_version, old_schema, rows = stored_version(db), schema_of(db), rows_of(db, killed.origin)
    with closing(connected(killed.stores[-1] / DATABASE_NAME)) as db:
        new_schema = schema_of(db)
    versions = []
    for store in killed.stores:
        with closing(connected(store / DATABASE_NAME)) as db:
            versions.append(stored_version(db))
            assert schema_of(db) == (old_schema if versions[-1] == old_version else new_schema)
            assert rows_of(db, killed.origin) == rows
            assert db.execute("PRAGMA integrity_check").get == "ok"
            if versions[-1] != old_version:
                assert meta.read(db).integrity == integrity.recompute(db)
        if versions[-1] != old_version:
            assert (store / COPY_NAME).exists(), "the schema changed before there was a copy"
    assert versions == sorted(versions)
    assert set(versions) == {old_version, SCHEMA_VERSION}


@pytest.mark.fault_class(52)
def test_however_it_was_killed_a_store_opens_and_is_whole_afterwards(killed: Killed) -> None:
    """One store of each kind of remains: what the databases hold does not differ, and was looked at above."""
    remains = {tuple(sorted(path.name for path in store.iterdir())): store for store in killed.stores}
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
