"""What feedback leaves in the database, and how pages of it are read."""

from __future__ import annotations

import logging
from pathlib import Path

import apsw
import pytest

from memoree import limits
from memoree.database import feedback as rows
from memoree.database import integrity
from memoree.database.connection import scalar

from .bench import LAB, Bench, Json

SECRET = "zweibelfisch"
FEEDBACK: Json = {"query": f"Where is the {SECRET}?", "outcome": "miss"}


@pytest.mark.proves("machine-209")
def test_the_query_is_in_no_file_and_no_log(bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    bench.write("feedback.record", FEEDBACK | {"note": "a note that is kept"}, key="k")
    bench.write("feedback.record", FEEDBACK | {"note": "a note that is kept"}, key="k")
    in_log = (tmp_path / "store.sqlite3-wal").read_bytes()
    bench.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    for data in (in_log, stored):
        assert b"a note that is kept" in data
        assert SECRET.encode() not in data.lower()
    assert SECRET not in caplog.text.lower()


@pytest.mark.proves("machine-209")
def test_the_key_is_random_and_made_once(bench: Bench, tmp_path: Path) -> None:
    assert rows.key(bench.db) is None
    bench.write("feedback.record", FEEDBACK)
    made = rows.key(bench.db)
    assert made is not None and len(made) == 32
    bench.write("feedback.record", FEEDBACK)
    assert rows.key(bench.db) == made
    (tmp_path / "other").mkdir()
    other = Bench(tmp_path / "other")
    try:
        other.write("feedback.record", FEEDBACK)
        assert rows.key(other.db) != made
    finally:
        other.close()


def test_one_event_tells_that_feedback_was_given_and_not_what_was_asked(bench: Bench) -> None:
    made = bench.write("feedback.record", FEEDBACK | {"actor": "potter", "retain_query": True})
    events = list(bench.db.execute("SELECT commit_seq, operation, entity_type, entity_id, actor, payload FROM events"))
    assert events == [(1, "feedback.record", "feedback", made["feedback_id"], "potter", "{}")]


@pytest.fixture
def told(bench: Bench) -> Bench:
    """A store with two pieces of feedback, the second complete."""
    bench.write("feedback.record", FEEDBACK)
    everything = {"retain_query": True, "citations": ["x"], "note": "why", "actor": "potter"}
    bench.write("feedback.record", FEEDBACK | everything, context=LAB | {"task_id": "tsk_1", "component": "kiln"})
    assert integrity.recompute(bench.db) == bench.meta().integrity
    bench.db.execute("UPDATE meta SET erasing = 1")
    return bench


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE feedback SET outcome = 'stale' WHERE row_id = 1",
        "UPDATE feedback SET query_fingerprint = 'f' WHERE row_id = 1",
        "UPDATE feedback SET retained_query = 'other' WHERE row_id = 1",
        "UPDATE feedback SET retained_query = NULL WHERE row_id = 2",
        "UPDATE feedback SET citations = '[]' WHERE row_id = 2",
        "UPDATE feedback SET note = 'other' WHERE row_id = 2",
        "UPDATE feedback SET actor = NULL WHERE row_id = 2",
        "UPDATE feedback SET workspace_id = 'other' WHERE row_id = 1",
        "UPDATE feedback SET project_id = 'other' WHERE row_id = 1",
        "UPDATE feedback SET task_id = NULL WHERE row_id = 2",
        "UPDATE feedback SET component = NULL WHERE row_id = 2",
        "UPDATE feedback SET created_at = '2026' WHERE row_id = 1",
        "DELETE FROM feedback WHERE row_id = 1",
        "UPDATE feedback_key SET key = randomblob(32)",
        "DELETE FROM feedback_key",
    ],
)
def test_the_sum_notices_damage_to_feedback(told: Bench, damage: str) -> None:
    told.db.execute(damage)
    assert told.db.changes() == 1
    assert integrity.recompute(told.db) != told.meta().integrity


def test_feedback_cannot_be_changed(told: Bench) -> None:
    told.db.execute("UPDATE meta SET erasing = 0")
    with pytest.raises(apsw.ConstraintError, match="immutable"):
        told.db.execute("UPDATE feedback SET outcome = 'stale'")


def test_a_page_is_read_in_the_order_of_its_index(bench: Bench) -> None:
    plans = []

    def explain(cursor: apsw.Cursor, statement: str, bindings: apsw.Bindings | None) -> bool:
        if statement.lstrip().startswith("SELECT feedback_id"):
            plan = bench.db.cursor()
            plan.exec_trace = None
            plans.extend(detail for *_, detail in plan.execute(f"EXPLAIN QUERY PLAN {statement}", bindings))
        return True

    bench.db.exec_trace = explain
    try:
        bench.read("feedback.list")
    finally:
        bench.db.exec_trace = None
    assert len(plans) == 1
    assert "USING INDEX feedback_by_project" in plans[0] and "row_id<?" in plans[0].replace("rowid", "row_id")


def test_a_page_of_large_records_ends_early_and_loses_none(bench: Bench) -> None:
    note = "\x01" * limits.FEEDBACK_NOTE_BYTES_MAX
    calls = [bench.request("feedback.record", FEEDBACK | {"note": note}) for _ in range(30)]
    assert all(attempt.error is None for attempt in bench.commit(calls))
    sizes, before = [], 2**63 - 1
    while True:
        page = bench.read("feedback.list", {"before_commit_seq": before})
        sizes.append(len(page["feedback"]))
        if not page["truncated"]:
            break
        before = page["next_before_commit_seq"]
    assert len(sizes) == 2 and sum(sizes) == 30
    assert scalar(bench.db, "SELECT count(*) FROM feedback") == 30
