"""Opening a data directory: what is taken for a store, for a new directory and for damage, and what is left alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from memoree.assembly import embedded_service
from memoree.data_directory import DATABASE_NAME
from memoree.database import connection
from memoree.database.connection import open_writer
from memoree.errors import Code, MemoreeError
from test_embedded import call, digests, put, write

OLDEST = Path(__file__).with_name("fixtures") / "schema-1"


def make_a_store(data_dir: Path) -> None:
    service = embedded_service(data_dir)
    put(service, "x" * 20_000)
    service.close_sync()


def lose_the_lock(data_dir: Path) -> None:
    (data_dir / "writer.lock").unlink()


def keep_only_a_damaged_lock(data_dir: Path) -> None:
    shutil.rmtree(data_dir / "objects")
    (data_dir / "writer.lock").write_bytes(b"\0")


def keep_only_a_blob(data_dir: Path) -> None:
    lose_the_lock(data_dir)
    assert any(path.is_file() for path in (data_dir / "objects").rglob("*"))


def keep_only_the_copy_of_a_migration(data_dir: Path) -> None:
    lose_the_lock(data_dir)
    shutil.rmtree(data_dir / "objects")
    (data_dir / f"{DATABASE_NAME}.before-schema-2").write_bytes(b"")


def keep_only_a_log(data_dir: Path) -> None:
    lose_the_lock(data_dir)
    shutil.rmtree(data_dir / "objects")
    (data_dir / f"{DATABASE_NAME}-wal").write_bytes(b"all there is")


def unlink(database: Path) -> None:
    database.unlink()


def empty(database: Path) -> None:
    database.write_bytes(b"")


def lose_the_log_that_held_all_tables(database: Path) -> None:
    database.unlink()
    db = open_writer(database, replicated=False)
    db.close()
    assert database.stat().st_size > 0


@pytest.mark.fault_class(43)
@pytest.mark.fault_class(50)
@pytest.mark.parametrize("loss", [unlink, empty, lose_the_log_that_held_all_tables])
@pytest.mark.parametrize("rest", [keep_only_a_damaged_lock, keep_only_a_blob, keep_only_the_copy_of_a_migration])
def test_whatever_is_left_of_a_store_says_that_there_was_one(
    tmp_path: Path, loss: Callable[[Path], None], rest: Callable[[Path], None]
) -> None:
    make_a_store(tmp_path)
    loss(tmp_path / DATABASE_NAME)
    rest(tmp_path)
    left = digests(tmp_path)
    with pytest.raises(MemoreeError, match="missing or empty") as refused:
        embedded_service(tmp_path)
    assert refused.value.code is Code.INTEGRITY_ERROR
    assert left.items() <= digests(tmp_path).items()


@pytest.mark.fault_class(43)
@pytest.mark.parametrize("loss", [unlink, empty])
def test_a_log_without_its_database_is_kept_and_not_taken_for_nothing(
    tmp_path: Path, loss: Callable[[Path], None]
) -> None:
    """SQLite would remove it: to a database without a page no log can belong."""
    make_a_store(tmp_path)
    loss(tmp_path / DATABASE_NAME)
    keep_only_a_log(tmp_path)
    with pytest.raises(MemoreeError, match="-wal shows") as refused:
        embedded_service(tmp_path)
    assert refused.value.code is Code.INTEGRITY_ERROR
    assert (tmp_path / f"{DATABASE_NAME}-wal").read_bytes() == b"all there is"


def test_a_copy_of_a_directory_without_its_lock_is_a_store(tmp_path: Path) -> None:
    make_a_store(tmp_path)
    lose_the_lock(tmp_path)
    for number in (2, 3):
        service = embedded_service(tmp_path)
        assert write(service, f"commit {number}")["commit_seq"] == number
        service.close_sync()


@pytest.mark.fault_class(43)
@pytest.mark.parametrize("journal", [b"garbage" * 1000, b"\0" * 512, b""], ids=["garbage", "a finished one", "empty"])
def test_a_stray_journal_costs_nothing(tmp_path: Path, journal: bytes) -> None:
    make_a_store(tmp_path)
    (tmp_path / f"{DATABASE_NAME}-journal").write_bytes(journal)
    service = embedded_service(tmp_path)
    assert write(service, "goes on")["commit_seq"] == 2
    assert call(service, "verify", {})["result"]["ok"]
    service.close_sync()


@pytest.mark.fault_class(43)
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("DELETE FROM meta", "0 rows"),
        ("DROP TABLE meta", "no such table"),
        ("UPDATE meta SET schema_version = 0", "version is 0"),
        ("UPDATE meta SET schema_version = -1", "version is -1"),
        ("DROP TABLE meta; CREATE TABLE meta (schema_version); INSERT INTO meta VALUES ('two')", "version is 'two'"),
        ("DROP TABLE meta; CREATE TABLE meta (schema_version); INSERT INTO meta VALUES (2), (2)", "2 rows"),
        ("DROP TABLE meta; CREATE TABLE meta (x)", "no such column"),
    ],
)
def test_a_store_without_its_counters_is_damaged_and_left_alone(tmp_path: Path, damage: str, said: str) -> None:
    make_a_store(tmp_path)
    db = apsw.Connection(str(tmp_path / DATABASE_NAME))
    db.execute(damage)
    db.close()
    before = digests(tmp_path)
    with pytest.raises(MemoreeError, match=said) as refused:
        embedded_service(tmp_path)
    assert refused.value.code is Code.INTEGRITY_ERROR
    assert digests(tmp_path) == before


def test_a_database_of_another_program_is_not_made_a_store(tmp_path: Path) -> None:
    db = apsw.Connection(str(tmp_path / DATABASE_NAME))
    db.execute("CREATE TABLE theirs (x)")
    db.close()
    with pytest.raises(MemoreeError, match="none of Memoree's") as refused:
        embedded_service(tmp_path)
    assert refused.value.code is Code.INTEGRITY_ERROR


@pytest.mark.parametrize("hold", ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"])
@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_a_database_that_another_program_keeps_locked_is_worth_another_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, hold: str
) -> None:
    shutil.copytree(OLDEST, tmp_path / "data")  # to open it means to write
    holder = apsw.Connection(str(tmp_path / "data" / DATABASE_NAME))
    assert holder.execute(f"PRAGMA journal_mode = {mode}").get == mode.lower()
    holder.execute(hold)
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_MS", 10)

    with pytest.raises(MemoreeError, match="keeps the store locked") as refused:
        embedded_service(tmp_path / "data")
    assert refused.value.code is Code.TRANSPORT_ERROR and refused.value.retryable

    holder.close()
    embedded_service(tmp_path / "data").close_sync()


@pytest.mark.fault_class(51)
def test_of_a_killed_later_program_only_what_it_left_half_done_is_taken_back(tmp_path: Path) -> None:
    make_a_store(tmp_path / "data")
    database = tmp_path / "data" / DATABASE_NAME
    later = apsw.Connection(str(database))
    assert later.execute("PRAGMA journal_mode = DELETE").get == "delete"
    later.execute("UPDATE meta SET schema_version = 999")
    before = digests(tmp_path / "data")
    later.execute("BEGIN; UPDATE meta SET schema_version = 1000; CREATE TABLE half_done (x)")
    later.cache_flush()
    killed = shutil.copytree(tmp_path / "data", tmp_path / "killed")
    later.close()
    assert (killed / f"{DATABASE_NAME}-journal").stat().st_size > 0

    with pytest.raises(MemoreeError, match="version 999") as refused:
        embedded_service(killed)

    assert refused.value.code is Code.CONFIG_ERROR
    assert sorted(digests(killed).values()) == sorted(before.values())


@pytest.mark.fault_class(51)
def test_a_stray_journal_does_not_make_a_later_programs_log_part_of_its_database(tmp_path: Path) -> None:
    make_a_store(tmp_path / "data")
    later = apsw.Connection(str(tmp_path / "data" / DATABASE_NAME))
    later.execute("UPDATE meta SET schema_version = 999")
    killed = shutil.copytree(tmp_path / "data", tmp_path / "killed")
    later.close()
    before = digests(killed)
    log = (killed / f"{DATABASE_NAME}-wal").read_bytes()
    (killed / f"{DATABASE_NAME}-journal").write_bytes(b"garbage" * 1000)

    with pytest.raises(MemoreeError, match="version 999"):
        embedded_service(killed)

    assert digests(killed) == before
    assert (killed / f"{DATABASE_NAME}-wal").read_bytes() == log
