"""What deliveries and withdrawals leave in the database: rows, events, the integrity sum."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoree.database import integrity
from memoree.errors import MemoreeError
from memoree.operations.execute import outcome_of

from .bench import LAB, Bench, Json, disagreements, dump, text

LARGE = "celadon " * 3_000


def register(bench: Bench, **how: Any) -> Json:
    return bench.write("source.register", {"name": "Studio wiki", "kind": "wiki_adapter"}, **how)


def item_input(source: Json, body: str = "Celadon: 2% iron oxide", **fields: Any) -> Json:
    defaults = {
        "source_id": source["source_id"],
        "external_id": "page-4",
        "external_revision": "v9",
        "kind": "wiki_page",
        "title": "Glaze recipes",
        "content": text(body),
    }
    return defaults | fields


def withdraw_input(source: Json, **fields: Any) -> Json:
    return {"source_id": source["source_id"], "external_id": "page-4", "reason": "deleted"} | fields


def sound(bench: Bench) -> bool:
    """Whether events, tables and the integrity sum tell the same story."""
    assert integrity.recompute(bench.db) == bench.meta().integrity
    assert disagreements(bench.db) == []
    assert list(bench.db.execute("PRAGMA foreign_key_check")) == []
    numbers = [number for (number,) in bench.db.execute("SELECT commit_seq FROM events ORDER BY commit_seq")]
    return numbers == list(range(1, bench.meta().commit_seq + 1))


def events(bench: Bench) -> list[tuple[str, str, str, str | None, list[Any]]]:
    rows = bench.db.execute("SELECT operation, entity_type, entity_id, revision_id, payload FROM events")
    return [(*told, orjson.loads(payload).get("also", [])) for *told, payload in rows]


@pytest.mark.proves("machine-202", "machine-203")
def test_one_event_tells_of_the_item_and_of_its_artifact(bench: Bench) -> None:
    source = register(bench)
    first = bench.write("source.ingest", item_input(source))["item"]
    second = bench.write("source.ingest", item_input(source, external_revision="v10"))["item"]
    bench.write("source.withdraw", withdraw_input(source))
    back = bench.write("source.ingest", item_input(source))["item"]
    item = f"{source['source_id']}:page-4"
    artifact_id = first["artifact_id"]
    assert events(bench) == [
        ("source.register", "source", source["source_id"], None, []),
        ("source.ingest", "source_item", item, "v9",
         [["artifact", artifact_id, first["artifact_revision_id"], "active"]]),
        ("source.ingest", "source_item", item, "v10",
         [["artifact", artifact_id, second["artifact_revision_id"], "active"]]),
        ("source.withdraw", "source_item", item, "v10", [["artifact", artifact_id, None, "forgotten"]]),
        ("source.ingest", "source_item", item, "v9",
         [["artifact", back["artifact_id"], back["artifact_revision_id"], "active"]]),
    ]  # fmt: skip
    assert sound(bench)


def test_withdrawing_what_was_forgotten_directly_changes_no_artifact(bench: Bench) -> None:
    source = register(bench)
    item = bench.write("source.ingest", item_input(source))["item"]
    bench.write("artifact.forget", {"artifact_id": item["artifact_id"], "reason": "by hand"})
    artifacts = list(bench.db.execute("SELECT * FROM artifacts"))
    bench.write("source.withdraw", withdraw_input(source))
    assert list(bench.db.execute("SELECT * FROM artifacts")) == artifacts
    assert events(bench)[-1][-1] == []
    assert sound(bench)


def test_what_a_row_no_longer_says_its_events_still_do(bench: Bench) -> None:
    source = register(bench)
    wanted = {"source_id": source["source_id"], "health": "degraded", "cursor": "c-1", "message": "slow"}
    bench.write("source.checkpoint", wanted | {"actor": "agent/kiln"})
    bench.write("source.ingest", item_input(source, cursor="c-2"))
    bench.write("source.withdraw", withdraw_input(source))
    bench.write("source.ingest", item_input(source, cursor="c-3"))
    told = [orjson.loads(payload) for (payload,) in bench.db.execute("SELECT payload FROM events")]
    assert [event["cursor"] for event in told] == [None, "c-1", "c-2", "c-2", "c-3"]
    assert (told[1]["health"], told[1]["message"], told[3]["reason"]) == ("degraded", "slow", "deleted")
    assert list(bench.db.execute("SELECT actor FROM events WHERE actor IS NOT NULL")) == [("agent/kiln",)]


@pytest.mark.parametrize("op", ["source.ingest", "source.withdraw"])
def test_a_no_op_leaves_nothing_but_its_idempotency_record(bench: Bench, op: str) -> None:
    source = register(bench)
    wanted = item_input(source, LARGE)
    bench.write("source.ingest", wanted)
    if op == "source.withdraw":
        wanted = withdraw_input(source)
        bench.write(op, wanted)
    with bench.nothing_but_a_record():
        assert bench.write(op, wanted)["created"] is False


def test_refusals_leave_no_trace(bench: Bench) -> None:
    source = register(bench)
    item = bench.write("source.ingest", item_input(source))["item"]
    with bench.refused_without_a_trace("INVALID_REQUEST"):
        register(bench)
    with bench.refused_without_a_trace("REVISION_CONFLICT"):
        bench.write("source.ingest", item_input(source, "other"))
    with bench.refused_without_a_trace("INVALID_REQUEST"):
        bench.write("source.ingest", item_input(source, external_revision="v10", kind="page"))
    bench.write("artifact.forget", {"artifact_id": item["artifact_id"], "reason": "by hand"})
    with bench.refused_without_a_trace("INTEGRITY_ERROR"):
        bench.write("source.ingest", item_input(source, external_revision="v10"))


@pytest.mark.fault_class(11)
def test_a_delivery_whose_blob_did_not_arrive_is_made_by_the_retry(bench: Bench) -> None:
    source = register(bench)
    request = bench.request("source.ingest", item_input(source, LARGE), key="wiki/page-4@v9")
    before = dump(bench.db)
    (attempt,) = bench.commit([request], upload=False)
    with pytest.raises(MemoreeError, match="did not reach the store"):
        outcome_of(bench.db, attempt)
    assert dump(bench.db) == before
    (attempt,) = bench.commit([request])
    delivered = outcome_of(bench.db, attempt).result
    assert delivered["created"] is True
    (attempt,) = bench.commit([request])
    assert outcome_of(bench.db, attempt).result == delivered | {"created": False}
    assert bench.db.execute("SELECT count(*) FROM artifacts").fetchall() == [(1,)]


def test_commands_of_one_batch_see_each_other_in_order(bench: Bench) -> None:
    source = register(bench)
    calls = [
        bench.request("source.ingest", item_input(source)),
        bench.request("source.ingest", item_input(source)),
        bench.request("source.withdraw", withdraw_input(source)),
        bench.request("source.withdraw", withdraw_input(source)),
        bench.request("source.ingest", item_input(source)),
    ]
    results = [outcome_of(bench.db, attempt).result for attempt in bench.commit(calls)]
    assert [(result["created"], result["commit_seq"]) for result in results] == [
        (True, 2),
        (False, 2),
        (True, 3),
        (False, 3),
        (True, 4),
    ]
    assert sound(bench)


def test_delivered_revisions_say_from_which_commit_they_were_the_truth(bench: Bench) -> None:
    source = register(bench)
    bench.write("source.ingest", item_input(source))
    bench.write("source.ingest", item_input(source, external_revision="v10"))
    bench.write("source.withdraw", withdraw_input(source))
    assert list(bench.db.execute("SELECT sys_from, sys_to FROM artifacts")) == [(2, 4)]
    assert list(bench.db.execute("SELECT sys_from, sys_to FROM artifact_revisions ORDER BY row_id")) == [(2, 3), (3, 4)]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE sources SET name = 'other'",
        "UPDATE sources SET locator = 'other'",
        "UPDATE sources SET metadata = '{\"a\":1}'",
        "UPDATE sources SET task_id = 'tsk_other'",
        "UPDATE sources SET health = 'error'",
        "UPDATE sources SET health_message = 'other'",
        "UPDATE sources SET cursor = 'other'",
        "UPDATE sources SET last_observed_at = '2026'",
        "UPDATE sources SET commit_seq = 1",
        "UPDATE source_items SET external_revision = 'other'",
        "UPDATE source_items SET payload_digest = zeroblob(32)",
        "UPDATE source_items SET artifact_row = 4",
        "UPDATE source_items SET artifact_revision_row = 4",
        "UPDATE source_items SET state = 'live', withdrawn_at = NULL, withdrawal_reason = NULL",
        "UPDATE source_items SET withdrawal_reason = 'other'",
        "UPDATE source_items SET observed_at = '2026'",
        "UPDATE source_items SET commit_seq = 1",
        "DELETE FROM source_items",
    ],
)
def test_the_sum_notices_damage(bench: Bench, damage: str) -> None:
    source = register(bench)
    bench.write("source.ingest", item_input(source, cursor="c-1"))
    bench.write("source.withdraw", withdraw_input(source))
    bench.put()
    assert sound(bench)
    bench.db.execute(damage)
    assert bench.db.changes() == 1
    assert integrity.recompute(bench.db) != bench.meta().integrity


@pytest.mark.fault_class(35)
def test_a_nul_is_text_like_any_other(bench: Bench) -> None:
    source = bench.write("source.register", {"name": "\0a", "kind": "k\0", "locator": "\0"})
    names = {"external_id": "\0b", "external_revision": "\0", "cursor": "\0c"}
    delivered = bench.write("source.ingest", item_input(source, **names))
    assert (delivered["source"]["name"], delivered["source"]["cursor"]) == ("\0a", "\0c")
    assert (delivered["item"]["external_id"], delivered["item"]["external_revision"]) == ("\0b", "\0")
    assert bench.write("source.ingest", item_input(source, **names))["created"] is False
    assert sound(bench)


CONTEXTS = (LAB, LAB | {"task_id": "tsk_1"}, LAB | {"task_id": "tsk_2"}, LAB | {"project_id": "prj_other"})
OPERATIONS = ("ingest", "ingest", "ingest", "withdraw", "checkpoint", "register", "revise", "forget")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(OPERATIONS),
        st.sampled_from(CONTEXTS),
        st.sampled_from(("page-1", "page-2")),
        st.sampled_from(("v1", "v2")),
        st.sampled_from(("one body", "another body")),
    ),
    min_size=1,
    max_size=30,
)
Step = tuple[str, Json, str, str, str]


class Story:
    """Deliveries, withdrawals and direct changes of one source's items, some of which are refused."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.source = register(bench)
        self.artifact: Json = {"artifact_id": "art_unknown", "revision_id": "arev_unknown"}

    def apply(self, step: Step) -> None:
        op, context, page, revision, body = step
        request = self.bench.request(*self._request(op, page, revision, body), context=context)
        for _ in range(2):
            (attempt,) = self.bench.commit([request])
            try:
                result = outcome_of(self.bench.db, attempt).result
            except MemoreeError:
                continue
            self.artifact = result.get("artifact", self.artifact)

    def _request(self, op: str, page: str, revision: str, body: str) -> tuple[str, Json]:
        match op:
            case "ingest":
                return "source.ingest", item_input(self.source, body, external_id=page, external_revision=revision)
            case "withdraw":
                return "source.withdraw", withdraw_input(self.source, external_id=page, reason=body)
            case "checkpoint":
                return "source.checkpoint", {"source_id": self.source["source_id"], "health": "error", "message": body}
            case "register":
                return "source.register", {"name": body, "kind": page}
            case "revise":
                wanted = {"artifact_id": self.artifact["artifact_id"], "if_revision": self.artifact["revision_id"]}
                return "artifact.revise", wanted | {"content": text(body)}
            case _:
                return "artifact.forget", {"artifact_id": self.artifact["artifact_id"], "reason": body}


@settings(max_examples=25, deadline=None)
@given(steps=STEPS)
def test_events_tables_and_sum_agree_after_any_story_of_a_source(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory))
        try:
            story = Story(bench)
            for step in steps:
                story.apply(step)
            assert sound(bench)
        finally:
            bench.close()
