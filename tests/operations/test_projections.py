"""What projections leave in the database: a row each, and an index row exactly while they are active."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoree import clock
from memoree.database import integrity, meta
from memoree.errors import MemoreeError
from memoree.operations.execute import replay_from_snapshot
from memoree.operations.view import View

from .bench import FACTS, Bench, Json, disagreements

TEXTS = ("green iron glaze", "鉄釉の色 iron", "Straße naïve", "iron\0iron")


def put_input(artifact: Json, **fields: Any) -> Json:
    defaults = {
        "artifact_id": artifact["artifact_id"],
        "revision_id": artifact["revision_id"],
        "projection_key": "summary",
        "kind": "summary",
        "text": TEXTS[0],
        "evidence_spans": [{"start_byte": 0, "end_byte": 4}],
        "generator": "acme-summariser",
        "generator_version": "3",
        "generator_digest": "sha256:00ff",
    }
    return defaults | fields


def project(bench: Bench, artifact: Json, **fields: Any) -> Json:
    return bench.write("projection.put", put_input(artifact, **fields))


def drop(bench: Bench, projection: Json) -> Json:
    return bench.write("projection.drop", {"projection_id": projection["projection_id"], "reason": "withdrawn"})


def found(bench: Bench, expression: str) -> list[str]:
    """The ids of the projections whose index rows match."""
    statement = """
        SELECT projection_id FROM projection_fts JOIN projections ON row_id = projection_fts.rowid
        WHERE projection_fts MATCH ? ORDER BY row_id
    """
    return [projection_id for (projection_id,) in bench.db.execute(statement, (expression,))]


def terms(bench: Bench) -> dict[str, int]:
    """Every term of the index with the number of its rows."""
    bench.db.execute("CREATE VIRTUAL TABLE IF NOT EXISTS temp.terms USING fts5vocab (main, projection_fts, row)")
    return dict(bench.db.execute("SELECT term, doc FROM temp.terms"))


def sound(bench: Bench) -> bool:
    assert integrity.recompute(bench.db) == bench.meta().integrity
    assert disagreements(bench.db) == []
    bench.db.execute("INSERT INTO projection_fts (projection_fts, rank) VALUES ('integrity-check', 0)")
    return True


@pytest.mark.proves("machine-205")
def test_an_active_projection_has_one_index_row_and_no_other_index_knows_it(bench: Bench) -> None:
    artifact = bench.put()
    artifact_rows, claim_rows = rows_of(bench, "artifact_fts"), rows_of(bench, "claim_fts")
    made = [project(bench, artifact, projection_key=text, text=text) for text in TEXTS]
    assert rows_of(bench, "projection_fts") == len(TEXTS)
    assert (rows_of(bench, "artifact_fts"), rows_of(bench, "claim_fts")) == (artifact_rows, claim_rows)
    ids = [projection["projection_id"] for projection in made]
    assert found(bench, "green AND iron") == ids[:1]
    assert found(bench, "iron") == [ids[0], ids[1], ids[3]]
    assert found(bench, 'cjk : "鉄釉 釉の"') == ids[1:2]
    assert found(bench, "strasse AND naive") == ids[2:3]
    assert sound(bench)


def rows_of(bench: Bench, table: str) -> int:
    (row,) = bench.db.execute(f"SELECT count(*) FROM {table}_docsize")
    return int(row[0])


@pytest.mark.proves("machine-208")
@pytest.mark.parametrize("text", TEXTS)
def test_a_dropped_or_replaced_text_leaves_the_index_without_a_trace(bench: Bench, text: str) -> None:
    artifact = bench.put()
    first = project(bench, artifact, text=text)
    before = terms(bench)
    replaced = project(bench, artifact, text="cobalt")
    assert terms(bench) == {"cobalt": 1}
    drop(bench, replaced)
    assert terms(bench) == {}
    assert rows_of(bench, "projection_fts") == 0
    revived = project(bench, artifact, text=text)
    assert terms(bench) == before
    assert revived["projection_id"] == first["projection_id"]
    drop(bench, revived)
    assert terms(bench) == {}
    assert sound(bench)


@pytest.mark.proves("machine-202")
def test_revising_and_forgetting_leave_the_projection_with_its_revision(bench: Bench) -> None:
    artifact = bench.put()
    project(bench, artifact)
    before = list(bench.db.execute("SELECT * FROM projections"))
    bench.revise(artifact)
    bench.write("artifact.forget", {"artifact_id": artifact["artifact_id"], "reason": "draft"})
    assert list(bench.db.execute("SELECT * FROM projections")) == before
    assert rows_of(bench, "projection_fts") == 1
    assert sound(bench)


def test_no_ops_leave_nothing_but_their_idempotency_record(bench: Bench) -> None:
    artifact = bench.put()
    projection = project(bench, artifact, actor="agent/kiln")
    with bench.nothing_but_a_record():
        assert project(bench, artifact, actor="another")["commit_seq"] == projection["commit_seq"]
    dropped = drop(bench, projection)
    with bench.nothing_but_a_record():
        assert drop(bench, projection)["commit_seq"] == dropped["commit_seq"]


def test_refusals_leave_no_trace(bench: Bench) -> None:
    artifact = bench.put()
    with bench.refused_without_a_trace("INVALID_REQUEST"):
        project(bench, artifact, evidence_spans=[{"start_byte": 4, "end_byte": 4}])
    bench.revise(artifact)
    with bench.refused_without_a_trace("REVISION_CONFLICT"):
        project(bench, artifact)


@pytest.mark.proves("machine-207")
def test_a_snapshot_never_answers_for_the_writer(bench: Bench) -> None:
    artifact = bench.put()
    request = bench.request("projection.put", put_input(artifact), key="proj/1")
    bench.commit([request])
    view = View(bench.db, bench.blobs, FACTS, meta.read(bench.db), clock.stored(bench.clock()))
    assert replay_from_snapshot(view, request) is None


def test_every_change_is_one_event_of_the_projection(bench: Bench) -> None:
    artifact = bench.put()
    projection = project(bench, artifact, actor="agent/kiln")
    project(bench, artifact, text="cobalt")
    drop(bench, projection)
    project(bench, artifact)
    rows = list(bench.db.execute("SELECT * FROM events WHERE entity_type = 'projection' ORDER BY commit_seq"))
    operations = ["projection.put", "projection.put", "projection.drop", "projection.put"]
    assert [row[3] for row in rows] == operations
    assert {row[5:7] for row in rows} == {(projection["projection_id"], artifact["revision_id"])}
    assert [row[7] for row in rows] == ["agent/kiln", None, None, None]
    assert [orjson.loads(row[8])["status"] for row in rows] == ["active", "active", "dropped", "active"]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE projections SET revision_row = 2",
        "UPDATE projections SET projection_key = 'other'",
        "UPDATE projections SET kind = 'other'",
        "UPDATE projections SET text = 'other'",
        "UPDATE projections SET evidence_spans = '[[0,5]]'",
        "UPDATE projections SET generator = 'other'",
        "UPDATE projections SET generator_version = 'other'",
        "UPDATE projections SET generator_digest = 'other'",
        "UPDATE projections SET metadata = '{\"a\":1}'",
        "UPDATE projections SET status = 'active', dropped_reason = NULL",
        "UPDATE projections SET dropped_reason = 'other'",
        "UPDATE projections SET actor = 'other'",
        "UPDATE projections SET updated_at = '2026'",
        "UPDATE projections SET commit_seq = 1",
        "DELETE FROM projections",
    ],
)
def test_the_sum_notices_damage(bench: Bench, damage: str) -> None:
    artifact = bench.put()
    bench.put()
    drop(bench, project(bench, artifact))
    assert sound(bench)
    bench.db.execute(damage)
    assert bench.db.changes() == 1
    assert integrity.recompute(bench.db) != bench.meta().integrity


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("put", "put", "put", "drop", "revise", "forget")),
        st.integers(0, 3),
        st.sampled_from(("summary", "title")),
        st.sampled_from(TEXTS),
    ),
    min_size=1,
    max_size=25,
)
Step = tuple[str, int, str, str]


def apply(bench: Bench, artifacts: list[Json], projections: list[Json], step: Step) -> None:
    op, choice, key, text = step
    artifact = artifacts[choice % len(artifacts)]
    projection = projections[choice % len(projections)]
    match op:
        case "put":
            projections.append(project(bench, artifact, projection_key=key, text=text))
        case "drop":
            drop(bench, projection)
        case "revise":
            artifacts.append(bench.revise(artifact))
        case _:
            bench.write("artifact.forget", {"artifact_id": artifact["artifact_id"], "reason": text})


@settings(max_examples=15, deadline=None)
@given(steps=STEPS)
def test_index_events_tables_and_sum_agree_after_any_story_of_projections(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory))
        try:
            artifacts = [bench.put(), bench.put()]
            projections = [{"projection_id": "proj_unknown"}]
            for step in steps:
                try:
                    apply(bench, artifacts, projections, step)
                except MemoreeError:
                    continue
            active = bench.db.execute("SELECT row_id FROM projections WHERE status = 'active' ORDER BY row_id")
            assert active.fetchall() == bench.db.execute("SELECT id FROM projection_fts_docsize ORDER BY id").fetchall()
            assert terms(bench) == terms_of_a_new_index(bench)
            assert sound(bench)
        finally:
            bench.close()


def terms_of_a_new_index(bench: Bench) -> dict[str, int]:
    """The terms of a store in which the projections that are active were put and never changed."""
    texts = [text for (text,) in bench.db.execute("SELECT text FROM projections WHERE status = 'active'")]
    with tempfile.TemporaryDirectory() as directory:
        fresh = Bench(Path(directory))
        try:
            artifact = fresh.put()
            for number, text in enumerate(texts):
                project(fresh, artifact, projection_key=str(number), text=text)
            return terms(fresh)
        finally:
            fresh.close()
