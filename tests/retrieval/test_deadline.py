from __future__ import annotations

import threading
from collections.abc import Iterator
from time import monotonic

import apsw
import pytest

from memoree.errors import Code, MemoreeError
from memoree.retrieval import engine
from memoree.retrieval.deadline import deadline

from .store import Store

ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
MIXED_LINES = "a 设备 用户 b c 中文 text line\n" * 30_000


@pytest.fixture
def db() -> Iterator[apsw.Connection]:
    db = apsw.Connection(":memory:")
    yield db
    db.close()


def test_an_endless_statement_is_given_up_and_the_connection_works_on(db: apsw.Connection) -> None:
    started = monotonic()
    with pytest.raises(MemoreeError, match="too expensive") as caught, deadline(db, 0.05):
        db.execute(ENDLESS).fetchall()
    assert caught.value.code is Code.INVALID_REQUEST
    assert 0.05 <= monotonic() - started < 5
    assert db.execute("SELECT count(*) FROM (VALUES (1), (2))").fetchall() == [(2,)]


def test_after_the_block_nothing_is_given_up(db: apsw.Connection) -> None:
    with deadline(db, 0.0):
        pass
    bounded = ENDLESS.replace("FROM n)", "FROM n LIMIT 100000)")
    assert db.execute(bounded).fetchall() == [(100_000,)]


def test_an_interrupt_from_elsewhere_is_not_the_fault_of_the_query(db: apsw.Connection) -> None:
    timer = threading.Timer(0.05, db.interrupt)
    timer.start()
    with pytest.raises(apsw.InterruptError), deadline(db, 60.0):
        db.execute(ENDLESS).fetchall()
    timer.join()


@pytest.mark.fault_class(55)
def test_the_clock_is_looked_at_while_the_index_joins_phrases(store: Store) -> None:
    """Joining phrases is the one loop in which the index returns no row to anyone for a long time."""
    store.artifact("Lines", MIXED_LINES)
    match = " AND ".join(['"line a"'] * 400)
    started = monotonic()
    with pytest.raises(MemoreeError, match="too expensive"), deadline(store.db, 0.1):
        store.db.execute("SELECT rowid, rank FROM artifact_fts WHERE artifact_fts MATCH ?", (match,)).fetchall()
    assert monotonic() - started < 5


@pytest.mark.fault_class(55)
def test_a_search_beyond_the_deadline_is_refused_and_the_next_one_answered(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.artifact("Run", "设" * 600_000)
    with monkeypatch.context() as hurry:
        hurry.setattr(engine, "SEARCH_SECONDS_MAX", 0.02)
        with pytest.raises(MemoreeError, match="too expensive") as caught:
            store.search(f'"{"设" * 2_000}"')
    assert caught.value.code is Code.INVALID_REQUEST
    assert store.hits("run")[0]["title"] == "Run"
