"""A database of the past becomes the present: what its counters, its condemned blobs and its rows are after that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from memoree import clock, limits
from memoree.backup.database import copy_database
from memoree.database import condemned, integrity, meta
from memoree.database.connection import open_writer
from memoree.database.meta import Meta
from memoree.erasures import Erasure
from memoree.jobs.tenancy import request_of
from memoree.objects.audit import DirectoryAudit
from memoree.objects.blobs import blob_digest
from memoree.objects.filesystem import FilesystemStore
from memoree.verification.store import verify
from memoree.writer.adoption import Adoption, adopt, condemned_now, is_alive
from operations.bench import FACTS, Bench

EVENTS = "SELECT commit_seq, operation, payload FROM events ORDER BY commit_seq"
LOST = "4a" * 32


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = made(tmp_path / "live")
    yield bench
    bench.close()


def made(directory: Path) -> Bench:
    directory.mkdir()
    return Bench(directory)


def ordered(bench: Bench, operation: str, payload: dict[str, Any]) -> None:
    """What only jobs may ask for."""
    (attempt,) = bench.commit([request_of(operation, payload, f"{operation} at {bench.meta().batch}").call])
    assert attempt.status == "applied", attempt


def copy_of(bench: Bench, path: Path) -> apsw.Connection:
    copy_database(Path(bench.db.filename), path)
    return open_writer(path, replicated=True)


def adopted(past: apsw.Connection, present: Bench, **how: Any) -> Meta:
    members: dict[str, Any] = {"asked": {"commit": 1}, "condemned": condemned_now(present.db), "erasures": ()}
    return adopt(past, present.meta(), Adoption(**(members | how), facts=FACTS, clock=present.clock)).counters


def findings(db: apsw.Connection, objects: Path) -> list[str]:
    return verify(db, DirectoryAudit(FilesystemStore(objects), "local")).lines()


@pytest.mark.proves("operations-27")
def test_the_past_goes_on_where_the_present_ended(bench: Bench, tmp_path: Path) -> None:
    bench.put()
    bench.claim("Firing 12 reached cone 6.")
    with closing(copy_of(bench, tmp_path / "past.sqlite3")) as past:
        for number in range(3):
            bench.claim(f"Firing {number} is lost.")
        present, before = bench.meta(), meta.read(past)
        after = adopted(past, bench)

        assert after == meta.read(past)
        assert (after.history, after.batch, after.commit_seq) == (1, present.batch + 1, present.commit_seq + 1)
        assert after.hlc > present.hlc > before.hlc
        *_, (commit_seq, operation, payload) = past.execute(EVENTS).fetchall()
        assert (commit_seq, operation, payload) == (6, "store.restored", '{"from":5,"to":2,"commit":1}')
        assert findings(past, tmp_path / "live" / "objects") == []


@pytest.mark.proves("operations-27")
def test_a_past_that_had_counted_further_is_not_counted_twice(bench: Bench, tmp_path: Path) -> None:
    for number in range(4):
        bench.claim(f"Firing {number}.")
    newborn = made(tmp_path / "newborn")
    with closing(copy_of(bench, tmp_path / "past.sqlite3")) as past:
        assert not is_alive(newborn.meta())
        after = adopted(past, newborn)

        assert (after.history, after.batch, after.commit_seq) == (0, 5, 5)
        assert findings(past, tmp_path / "live" / "objects") == []
    newborn.close()


@pytest.mark.proves("operations-27")
def test_a_clock_that_was_set_back_since_goes_on_all_the_same(bench: Bench, tmp_path: Path) -> None:
    bench.claim("Firing 12.")
    with closing(copy_of(bench, tmp_path / "past.sqlite3")) as past:
        bench.clock.advance(hours=2)
        bench.claim("Firing 13.")
        bench.clock.advance(hours=-3)
        after = adopted(past, bench)

        assert after.hlc > bench.meta().hlc
        assert findings(past, tmp_path / "live" / "objects") == []


@pytest.mark.proves("operations-15")
def test_what_was_erased_since_is_erased_again_in_the_same_transaction(bench: Bench, tmp_path: Path) -> None:
    erased, kept = bench.claim("The glaze is Xanthippe white."), bench.claim("Firing 12.")
    with closing(copy_of(bench, tmp_path / "past.sqlite3")) as past:
        bench.claim("Firing 13.")
        record = Erasure("ers_1", clock.stored(bench.clock()), 4, (erased["claim_id"],), ())
        after = adopted(past, bench, erasures=[record])

        statements = [statement for (statement,) in past.execute("SELECT statement FROM claim_revisions")]
        assert statements.count("Firing 12.") == 1
        assert not [each for each in statements if "Xanthippe" in each]
        assert after.commit_seq == 5, "the restore, and the erasure"
        assert kept["claim_id"] != erased["claim_id"]
        assert findings(past, tmp_path / "live" / "objects") == []


def test_what_may_be_deleted_at_any_moment_stays_condemned(bench: Bench, tmp_path: Path) -> None:
    garbage, released = blob_digest(b"garbage"), blob_digest(b"released")
    bench.claim("Firing 12.")
    ordered(bench, "blobs.condemn", {"digests": [released]})
    with closing(copy_of(bench, tmp_path / "past.sqlite3")) as past:
        bench.clock.advance(seconds=limits.COLLECT_RELEASE_SECONDS_MIN)
        ordered(bench, "blobs.release", {"digests": [released]})
        ordered(bench, "blobs.condemn", {"digests": [garbage]})
        [present] = condemned.rows(bench.db)
        adopted(past, bench)

        [row] = condemned.rows(past)
        assert (row.digest.hex(), row.condemned_at) == (garbage, present.condemned_at)
        assert not condemned.is_erased(past, row), "a published backup may hold it"
        assert integrity.recompute(past) == meta.read(past).integrity


def test_what_an_erasure_condemned_stays_so(bench: Bench, tmp_path: Path) -> None:
    bench.claim("Firing 12.")
    with closing(copy_of(bench, tmp_path / "past.sqlite3")) as past:
        secret = bench.put("Xanthippe " * 2_000)
        ordered(bench, "store.erase", {"entities": [secret["artifact_id"]], "reason": "asked for"})
        adopted(past, bench)

        [row] = condemned.rows(past)
        assert condemned.is_erased(past, row)
        assert integrity.recompute(past) == meta.read(past).integrity


def test_a_failure_leaves_the_past_as_it_was(bench: Bench, tmp_path: Path) -> None:
    bench.claim("Firing 12.")
    with closing(copy_of(bench, tmp_path / "past.sqlite3")) as past:
        before = meta.read(past)
        row = condemned.Condemned(bytes.fromhex(LOST), "2026-03-02T20:41:07.000000000Z", condemned.NO_COMMIT)
        with pytest.raises(apsw.ConstraintError):
            adopted(past, bench, condemned=[row, row])
        assert meta.read(past) == before
        assert [operation for _, operation, _ in past.execute(EVENTS)] == ["claim.assert"]
