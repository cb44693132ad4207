"""Whatever a store went through, its events, its tables and its integrity sum tell the same story."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contradiction_rules import broken_rules
from memoree.database import integrity
from memoree.errors import MemoreeError
from memoree.operations.execute import outcome_of

from .bench import LAB, Bench, Json, disagreements, put_input, text

CONTEXTS = (LAB, LAB | {"task_id": "tsk_1"}, LAB | {"task_id": "tsk_2"}, LAB | {"project_id": "prj_other"})
OPERATIONS = (
    "artifact.put",
    "artifact.revise",
    "artifact.forget",
    "claim.assert",
    "claim.revise",
    "claim.retract",
    "contradicts",
    "supersedes",
)
EDGES = ("contradicts", "supersedes")
Step = tuple[str, int, Json, str, bool]


class Story:
    """Applies steps that often, but not always, make sense: some name what is gone, stale or foreign."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.artifacts: list[Json] = [{"artifact_id": "art_unknown", "revision_id": "arev_unknown"}]
        self.claims: list[Json] = [{"claim_id": "clm_unknown", "revision_id": "crev_unknown"}]
        self.acknowledged: list[int] = []

    def apply(self, step: Step) -> None:
        op, choice, context, words, cites = step
        wanted = self._input(op, choice, words, cites)
        request = self.bench.request("relation.put" if op in EDGES else op, wanted, context=context)
        for repeat in range(2):
            try:
                result = self._decide(request)
            except MemoreeError:
                continue
            assert result["created"] is (repeat == 0 and result["commit_seq"] > len(self.acknowledged))
            if result["created"]:
                self.acknowledged.append(result["commit_seq"])
                self._remember(result)

    def _decide(self, request: Any) -> Json:
        (attempt,) = self.bench.commit([request])
        return outcome_of(self.bench.db, attempt).result

    def _remember(self, result: Json) -> None:
        if "relation_id" in result:
            return
        kind, known = ("claim_id", self.claims) if "claim_id" in result else ("artifact_id", self.artifacts)
        # The record of a revised entity joins the older ones, so that later steps may still name a stale revision.
        known.append({kind: result[kind], "revision_id": result["revision_id"]})

    def _input(self, op: str, choice: int, words: str, cites: bool) -> Json:
        artifact = self.artifacts[choice % len(self.artifacts)]
        claim = self.claims[choice % len(self.claims)]
        evidence = [dict(artifact)] if cites else []
        match op:
            case "artifact.put":
                return put_input(words, provenance={"note": None})
            case "artifact.revise":
                wanted = {"artifact_id": artifact["artifact_id"], "if_revision": artifact["revision_id"]}
                return wanted | {"content": text(words)}
            case "artifact.forget":
                return {"artifact_id": artifact["artifact_id"], "reason": words}
            case "claim.assert":
                return {"claim_type": "fact", "statement": words, "confidence": 0.1, "evidence": evidence}
            case "claim.revise":
                wanted = {"claim_id": claim["claim_id"], "if_revision": claim["revision_id"]}
                return wanted | {"statement": words, "evidence": evidence}
            case "claim.retract":
                return {"claim_id": claim["claim_id"], "reason": words}
            case _:
                others = sorted({known["claim_id"] for known in self.claims} - {claim["claim_id"]}) or ["clm_absent"]
                ends = {"source_id": claim["claim_id"], "target_id": others[choice % len(others)]}
                return ends | {"source_type": "claim", "relation": op, "target_type": "claim"}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(OPERATIONS),
        st.integers(0, 20),
        st.sampled_from(CONTEXTS),
        st.text(st.characters(codec="utf-8"), max_size=8).map("w{}".format),
        st.booleans(),
    ),
    min_size=1,
    max_size=25,
)


@pytest.mark.proves("machine-63", "machine-64", "machine-145")
@settings(max_examples=30, deadline=None)
@given(steps=STEPS)
def test_events_tables_and_sum_agree_after_any_story(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory))
        try:
            story = Story(bench)
            for step in steps:
                story.apply(step)
            assert integrity.recompute(bench.db) == bench.meta().integrity
            assert disagreements(bench.db) == []
            numbers = [number for (number,) in bench.db.execute("SELECT commit_seq FROM events ORDER BY commit_seq")]
            assert numbers == story.acknowledged == list(range(1, bench.meta().commit_seq + 1))
            assert list(bench.db.execute("PRAGMA foreign_key_check")) == []
            assert broken_rules(bench.db) == []
        finally:
            bench.close()


@pytest.fixture
def told(bench: Bench) -> Bench:
    """A store with two revisions of an artifact and of a claim, then forgotten and retracted."""
    artifact = bench.put()
    claim = bench.claim(evidence=[{name: artifact[name] for name in ("artifact_id", "revision_id")}])
    bench.revise(artifact)
    bench.revise_claim(claim)
    bench.write("artifact.forget", {"artifact_id": artifact["artifact_id"], "reason": "draft"})
    bench.write("claim.retract", {"claim_id": claim["claim_id"], "reason": "faulty"})
    assert integrity.recompute(bench.db) == bench.meta().integrity
    bench.db.execute("UPDATE meta SET erasing = 1")
    return bench


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE artifact_revisions SET title = 'other' WHERE revision_number = 1",
        "UPDATE artifact_revisions SET blob_hash = zeroblob(32) WHERE revision_number = 2",
        "UPDATE artifact_revisions SET provenance = '{\"a\":1}' WHERE revision_number = 1",
        "UPDATE artifacts SET kind = 'other'",
        "UPDATE artifacts SET forgotten_reason = 'other'",
        "UPDATE artifacts SET status = 'active', forgotten_reason = NULL",
        "UPDATE claim_revisions SET statement = 'other' WHERE revision_number = 1",
        "UPDATE claim_revisions SET confidence = 0.5 WHERE revision_number = 2",
        "UPDATE claim_evidence SET start_byte = 0, end_byte = 1",
        "DELETE FROM claim_evidence",
        "UPDATE claims SET valid_from = '2026'",
        "UPDATE claims SET retraction_reason = 'other'",
        "UPDATE claims SET task_id = 'tsk_other'",
        "UPDATE idempotency SET result = '{}' WHERE row_id = 1",
        "UPDATE idempotency SET fingerprint = zeroblob(32) WHERE row_id = 2",
        "UPDATE idempotency SET key = 'other' WHERE row_id = 3",
        "INSERT INTO idempotency SELECT 99, 'x', operation, fingerprint, commit_seq, result FROM idempotency LIMIT 1",
        "UPDATE events SET actor = 'other' WHERE commit_seq = 1",
        "UPDATE events SET payload = '{}' WHERE commit_seq = 2",
    ],
)
def test_the_sum_notices_damage(told: Bench, damage: str) -> None:
    told.db.execute(damage)
    assert told.db.changes() == 1
    assert integrity.recompute(told.db) != told.meta().integrity


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE artifacts SET head_row = 1",
        "UPDATE artifacts SET revision_count = 3",
        "UPDATE claims SET status = 'superseded', retraction_reason = NULL",
        "UPDATE claims SET head_row = 2",
    ],
)
def test_replayed_events_notice_a_head_that_moved_by_itself(told: Bench, damage: str) -> None:
    assert disagreements(told.db) == []
    told.db.execute(damage)
    assert disagreements(told.db)


def test_rows_say_from_which_commit_until_before_which_they_were_the_truth(told: Bench) -> None:
    def interval(table: str) -> list[tuple[int, int | None]]:
        return list(told.db.execute(f"SELECT sys_from, sys_to FROM {table} ORDER BY row_id"))

    assert interval("artifacts") == [(1, 5)]
    assert interval("artifact_revisions") == [(1, 3), (3, 5)]
    assert interval("claims") == [(2, 6)]
    assert interval("claim_revisions") == [(2, 4), (4, 6)]


@pytest.fixture
def disputed(bench: Bench) -> Bench:
    """A store with a contradiction that was reassessed once."""
    left, right = bench.claim(), bench.claim()
    ends = {"source_id": left["claim_id"], "target_id": right["claim_id"]}
    bench.write("relation.put", ends | {"source_type": "claim", "relation": "contradicts", "target_type": "claim"})
    bench.revise_claim(left)
    assert integrity.recompute(bench.db) == bench.meta().integrity
    assert disagreements(bench.db) == []
    bench.db.execute("UPDATE meta SET erasing = 1")
    return bench


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE relations SET relation = 'supports'",
        "UPDATE relations SET metadata = '{\"a\":1}'",
        "UPDATE relations SET target_id = source_id",
        "DELETE FROM conflict_events WHERE event = 'stale'",
    ],
)
def test_the_sum_notices_damage_to_a_contradiction(disputed: Bench, damage: str) -> None:
    disputed.db.execute(damage)
    assert disputed.db.changes() == 1
    assert integrity.recompute(disputed.db) != disputed.meta().integrity


def test_replayed_events_notice_a_dispute_that_ended_by_itself(disputed: Bench) -> None:
    disputed.db.execute("UPDATE claims SET status = 'active' WHERE row_id = 1")
    assert disagreements(disputed.db)
