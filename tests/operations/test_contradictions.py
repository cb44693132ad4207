"""Conflict cases as the tables hold them: what a client cannot see, and what no code may get around."""

from __future__ import annotations

import apsw
import pytest

from memoree.database import conflicts, relations
from memoree.database.connection import scalar

from .bench import Bench, Json

CASES = "SELECT case_sequence, state, source_revision_row, target_revision_row FROM conflict_cases ORDER BY 1"
EVENTS = "SELECT case_sequence, event, commit_seq FROM conflict_events ORDER BY row_id"


def relate(bench: Bench, source: Json, relation: str, target: Json) -> Json:
    ends = {"source_id": source["claim_id"], "target_id": target["claim_id"]}
    return bench.write("relation.put", ends | {"source_type": "claim", "relation": relation, "target_type": "claim"})


@pytest.fixture
def contradiction(bench: Bench) -> tuple[Json, Json]:
    """Two claims, made by commits 1 and 2, that contradict each other since commit 3."""
    left, right = bench.claim("It was cone 6."), bench.claim("It was cone 5.")
    relate(bench, left, "contradicts", right)
    return left, right


@pytest.mark.proves("machine-131", "machine-145")
def test_a_revision_stales_the_case_and_opens_its_successor_in_one_commit(
    bench: Bench, contradiction: tuple[Json, Json]
) -> None:
    bench.revise_claim(contradiction[1])
    assert list(bench.db.execute(CASES)) == [(1, "stale", 1, 2), (2, "open", 1, 4)]
    assert list(bench.db.execute(EVENTS)) == [(1, "opened", 3), (1, "stale", 4), (2, "opened", 4)]


@pytest.mark.proves("machine-137")
def test_a_claim_stays_conflicted_until_its_last_open_case_is_resolved(
    bench: Bench, contradiction: tuple[Json, Json]
) -> None:
    left, right = contradiction
    third = bench.claim("It was cone 4.")
    relate(bench, left, "contradicts", third)
    statuses = "SELECT status FROM claims ORDER BY row_id"
    relate(bench, third, "supersedes", right)
    assert [status for (status,) in bench.db.execute(statuses)] == ["conflicted", "superseded", "conflicted"]
    bench.write("claim.retract", {"claim_id": third["claim_id"], "reason": "misread"})
    assert [status for (status,) in bench.db.execute(statuses)] == ["active", "superseded", "retracted"]


def test_the_audit_event_names_every_claim_whose_status_it_changed(
    bench: Bench, contradiction: tuple[Json, Json]
) -> None:
    left, right = contradiction
    bench.write("claim.retract", {"claim_id": left["claim_id"], "reason": "misread"})
    also = scalar(bench.db, "SELECT payload ->> 'also' FROM events WHERE operation = 'claim.retract'")
    assert also == f'[["claim","{right["claim_id"]}",null,"active"]]'


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE relations SET metadata = '{}'", "relations are immutable"),
        ("DELETE FROM relations", "relations are never deleted"),
        ("DELETE FROM conflict_cases", "conflict cases are never deleted"),
        ("UPDATE conflict_cases SET source_revision_row = 2 WHERE state = 'open'", "keeps the revisions it froze"),
        ("UPDATE conflict_cases SET state = 'open' WHERE state = 'stale'", "is final"),
        ("UPDATE conflict_events SET event = 'resolved'", "conflict events are immutable"),
        ("DELETE FROM conflict_events", "conflict events are never deleted"),
    ],
)
def test_history_cannot_be_rewritten(
    bench: Bench, contradiction: tuple[Json, Json], statement: str, message: str
) -> None:
    bench.revise_claim(contradiction[0])
    with pytest.raises(apsw.ConstraintError, match=message):
        bench.db.execute(statement)


def test_no_code_can_open_a_second_case_of_a_relation(bench: Bench, contradiction: tuple[Json, Json]) -> None:
    with pytest.raises(apsw.ConstraintError, match="UNIQUE constraint failed"):
        bench.db.execute(
            "INSERT INTO conflict_cases SELECT 9, 'ccase_9', relation_row, source_claim_row, target_revision_row, "
            "target_claim_row, source_revision_row, 'open', '', 9, '', '' FROM conflict_cases"
        )


@pytest.mark.parametrize("direction", ["incoming", "outgoing", "both"])
def test_a_page_of_edges_is_read_in_order_from_an_index(bench: Bench, direction: relations.Direction) -> None:
    names = ("horizon", "workspace_id", "project_id", "task_id", "entity_id", "entity_type", "relation")
    bindings = dict.fromkeys((*names, "before", "limit"), 1)
    plan = [row[-1] for row in bench.db.execute(f"EXPLAIN QUERY PLAN {relations.PAGES[direction]}", bindings)]
    assert any("USING INDEX relations_by_" in step for step in plan)
    assert not any("SCAN" in step or "TEMP B-TREE" in step for step in plan)


def test_finding_the_open_cases_of_a_claim_takes_no_scan(bench: Bench) -> None:
    plan = [row[-1] for row in bench.db.execute(f"EXPLAIN QUERY PLAN {conflicts.OPEN_OF_CLAIM}", (1,))]
    assert any("open_cases_by_source" in step for step in plan)
    assert any("open_cases_by_target" in step for step in plan)
