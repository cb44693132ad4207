"""A command that is refused after it changed something: nothing of it is left, and its neighbours are applied."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memoree import clock, ids
from memoree.command import Command
from memoree.database import integrity
from memoree.errors import Code, MemoreeError
from memoree.operations.execute import Success
from memoree.writer import group_commit
from operations.bench import Bench

REFUSED = "the halfway claim"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A store whose operations apply everything, and then refuse what says `REFUSED`."""
    decide = group_commit.decide

    def refusing(tx: Any, call: Any) -> Success:
        success = decide(tx, call)
        if call.input.statement == REFUSED:
            raise MemoreeError(Code.INVALID_REQUEST, "refused after all")
        return success

    monkeypatch.setattr(group_commit, "decide", refusing)
    bench = Bench(tmp_path)
    yield bench
    bench.close()


def claim(bench: Bench, statement: str) -> Command:
    call = bench.request("claim.assert", {"claim_type": "fact", "statement": statement})
    return Command(ids.new_attempt_id(), "local", 0, clock.milliseconds(bench.clock()), call)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_nothing_of_a_halfway_refusal_is_left_and_its_neighbours_are_applied(bench: Bench, place: int) -> None:
    statements = ["one neighbour", "another neighbour"]
    statements.insert(place, REFUSED)

    committed = bench.committer.commit([claim(bench, statement) for statement in statements], bench.blobs)

    assert [attempt.status for attempt in committed.attempts] == [
        "refused" if statement == REFUSED else "applied" for statement in statements
    ]
    assert (bench.meta().batch, bench.meta().commit_seq) == (1, 2)
    stored = [row[0] for row in bench.db.execute("SELECT statement FROM claim_revisions ORDER BY row_id")]
    assert stored == [statement for statement in statements if statement != REFUSED]
    assert list(bench.db.execute("SELECT rowid FROM claim_fts('halfway')")) == []
    assert len(list(bench.db.execute("SELECT rowid FROM claim_fts('neighbour')"))) == 2
    assert bench.meta().integrity == integrity.recompute(bench.db)


def test_the_key_of_a_halfway_refusal_stays_free(bench: Bench) -> None:
    first = claim(bench, REFUSED)

    bench.committer.commit([first], bench.blobs)

    assert list(bench.db.execute("SELECT key FROM idempotency")) == []
    assert bench.meta().commit_seq == 0
