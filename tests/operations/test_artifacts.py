from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest
from blake3 import blake3

from memoree import limits
from memoree.errors import MemoreeError
from memoree.operations.execute import outcome_of

from .bench import LAB, Bench, dump, put_input, text

LARGE = "cone 6 · " * 2_000


@pytest.mark.proves("machine-69")
def test_a_put_is_acknowledged_with_its_record_and_without_its_bytes(bench: Bench) -> None:
    context = LAB | {"task_id": "tsk_glaze", "component": "sensors", "pins": ["art_elsewhere"]}
    record = bench.write("artifact.put", put_input("α", provenance={"pyrometer": None}, actor="a/1"), context=context)
    assert record["artifact_id"].startswith("art_")
    assert record["revision_id"].startswith("arev_")
    assert record == {
        "artifact_id": record["artifact_id"],
        "revision_id": record["revision_id"],
        "revision_number": 1,
        "kind": "log",
        "title": "Kiln firing 12",
        "media_type": "text/plain; charset=utf-8",
        "blob_hash": blake3("α".encode()).hexdigest(),
        "size_bytes": 2,
        "status": "active",
        "context": LAB | {"task_id": "tsk_glaze", "component": "sensors", "pins": []},
        "provenance": {"pyrometer": None},
        "actor": "a/1",
        "created_at": "2026-03-02T20:41:07.250Z",
        "revision_created_at": "2026-03-02T20:41:07.250Z",
        "revision_commit_seq": 1,
        "commit_seq": 1,
        "created": True,
    }


@pytest.mark.parametrize("body", ["", "cone 6", LARGE], ids=["empty", "inline", "blob"])
@pytest.mark.proves("machine-70", "machine-74")
def test_bytes_come_back_as_they_went_in(bench: Bench, body: str) -> None:
    record = bench.put(body)
    assert bench.read("artifact.get", {"artifact_id": record["artifact_id"]})["content"] == text(body)


def test_only_bodies_up_to_the_inline_limit_are_in_the_database(bench: Bench) -> None:
    at_limit, above = bench.put("x" * limits.INLINE_BODY_BYTES_MAX), bench.put("x" * (limits.INLINE_BODY_BYTES_MAX + 1))
    bodies = dict(bench.db.execute("SELECT revision_id, length(body) FROM artifact_revisions"))
    assert bodies == {at_limit["revision_id"]: limits.INLINE_BODY_BYTES_MAX, above["revision_id"]: None}


def test_what_is_not_text_comes_back_as_base64(bench: Bench) -> None:
    raw = b"\xff\xfe\x00"
    content = {"type": "base64", "data": base64.b64encode(raw).decode()}
    record = bench.put(content=content, media_type="text/plain")
    assert bench.read("artifact.get", {"artifact_id": record["artifact_id"]})["content"] == content


@pytest.mark.parametrize("body", ["cone 6", LARGE], ids=["inline", "blob"])
@pytest.mark.proves("machine-91")
def test_damaged_bytes_are_never_served(bench: Bench, body: str) -> None:
    record = bench.put(body)
    if body == LARGE:
        path = bench.blobs.path(record["blob_hash"])
        path.chmod(0o600)
        path.write_bytes(b"C" + path.read_bytes()[1:])
    else:
        bench.db.execute("UPDATE meta SET erasing = 1")
        bench.db.execute("UPDATE artifact_revisions SET body = ?", (b"Cone 6",))
    with pytest.raises(MemoreeError) as refusal:
        bench.read("artifact.get", {"artifact_id": record["artifact_id"]})
    assert refusal.value.code == "INTEGRITY_ERROR"


@pytest.mark.proves("machine-79")
def test_content_is_left_out_on_request(bench: Bench) -> None:
    record = bench.put()
    found = bench.read("artifact.get", {"artifact_id": record["artifact_id"], "include_content": False})
    assert found == {name: value for name, value in record.items() if name not in ("commit_seq", "created")}


@pytest.mark.proves("machine-81", "machine-83")
def test_a_revision_keeps_title_and_type_and_replaces_everything_else(bench: Bench) -> None:
    first = bench.put(provenance={"serial": 7}, actor="agent/kiln", media_type="text/markdown")
    bench.clock.advance(seconds=60)
    second = bench.revise(first)
    assert (second["revision_number"], second["title"], second["media_type"]) == (2, first["title"], "text/markdown")
    assert second["provenance"] == {}
    assert "actor" not in second
    assert second["created_at"] == first["created_at"]
    assert second["revision_created_at"] == "2026-03-02T20:42:07.250Z"
    old = bench.read("artifact.get", {"artifact_id": first["artifact_id"], "revision_id": first["revision_id"]})
    assert old["content"] == text("cone 6 reached at 21:40")
    assert old["provenance"] == {"serial": 7}


@pytest.mark.proves("machine-82")
def test_a_stale_revision_is_refused_and_named(bench: Bench) -> None:
    first = bench.put()
    second = bench.revise(first)
    with bench.refused_without_a_trace("REVISION_CONFLICT"):
        bench.revise(first)
    with pytest.raises(MemoreeError) as refusal:
        bench.revise(first)
    assert refusal.value.details == {
        "entity_type": "artifact",
        "entity_id": first["artifact_id"],
        "current_revision": second["revision_id"],
        "requested_revision": first["revision_id"],
    }


@pytest.mark.proves("machine-80")
def test_a_revision_of_another_artifact_is_not_found(bench: Bench) -> None:
    mine, other = bench.put(), bench.put()
    with pytest.raises(MemoreeError) as refusal:
        bench.read("artifact.get", {"artifact_id": mine["artifact_id"], "revision_id": other["revision_id"]})
    assert refusal.value.code == "NOT_FOUND"


@pytest.mark.proves("machine-86", "machine-87")
def test_a_forgotten_artifact_stays_readable_and_takes_no_change(bench: Bench) -> None:
    record = bench.put()
    forgotten = bench.write("artifact.forget", {"artifact_id": record["artifact_id"], "reason": "draft"})
    assert forgotten["status"] == "forgotten"
    assert forgotten["forgotten_reason"] == "draft"
    assert forgotten["physically_erased"] is False
    assert forgotten["retention_notice"]
    assert (forgotten["revision_commit_seq"], forgotten["commit_seq"]) == (1, 2)
    found = bench.read("artifact.get", {"artifact_id": record["artifact_id"]})
    assert (found["status"], found["content"]) == ("forgotten", text("cone 6 reached at 21:40"))
    assert not {"physically_erased", "retention_notice"} & set(found)
    with bench.refused_without_a_trace("INVALID_REQUEST"):
        bench.revise(record)
    with bench.refused_without_a_trace("INVALID_REQUEST"):
        bench.write("artifact.forget", {"artifact_id": record["artifact_id"], "reason": "again"})


@pytest.mark.proves("machine-84")
@pytest.mark.parametrize("op", ["artifact.revise", "artifact.forget"])
def test_existence_comes_before_scope_and_scope_before_state(bench: Bench, op: str) -> None:
    record = bench.put()
    bench.write("artifact.forget", {"artifact_id": record["artifact_id"], "reason": "draft"})
    change: dict[str, Any] = (
        {"reason": "r"} if op.endswith("forget") else {"if_revision": "arev_stale", "content": text("x")}
    )
    elsewhere = LAB | {"project_id": "prj_other"}
    with bench.refused_without_a_trace("NOT_FOUND"):
        bench.write(op, change | {"artifact_id": "art_unknown"}, context=elsewhere)
    with bench.refused_without_a_trace("SCOPE_VIOLATION"):
        bench.write(op, change | {"artifact_id": record["artifact_id"]}, context=elsewhere)
    with bench.refused_without_a_trace("INVALID_REQUEST"):
        bench.write(op, change | {"artifact_id": record["artifact_id"]})


@pytest.mark.proves("machine-53", "machine-62")
def test_replays_answer_the_first_outcome_after_the_artifact_moved_on(bench: Bench) -> None:
    put = bench.request("artifact.put", put_input(), key="put")
    (attempt,) = bench.commit([put])
    first = outcome_of(bench.db, attempt).result
    change = {"artifact_id": first["artifact_id"], "if_revision": first["revision_id"], "content": text("new")}
    calls = [
        put,
        bench.request("artifact.revise", change, key="revise"),
        bench.request("artifact.forget", {"artifact_id": first["artifact_id"], "reason": "draft"}, key="forget"),
    ]
    outcomes = [outcome_of(bench.db, attempt).result for attempt in bench.commit(calls)]
    before = dump(bench.db)
    repeats = [outcome_of(bench.db, attempt).result for attempt in bench.commit(calls)]
    assert repeats == [outcome | {"created": False} for outcome in outcomes]
    assert dump(bench.db) == before


@pytest.mark.proves("machine-88")
def test_history_pages_from_the_newest_to_the_oldest(bench: Bench) -> None:
    record = bench.put()
    bench.revise(bench.revise(record), title="third")
    wanted = {"artifact_id": record["artifact_id"], "limit": 2}
    page = bench.read("artifact.history", wanted)
    assert [revision["revision_number"] for revision in page["revisions"]] == [3, 2]
    assert page["revisions"][0]["title"] == "third"
    assert all("content" not in revision for revision in page["revisions"])
    assert (page["truncated"], page.get("next_before_revision_number")) == (True, 2)
    rest = bench.read("artifact.history", wanted | {"before_revision_number": 2})
    assert [revision["revision_number"] for revision in rest["revisions"]] == [1]
    assert rest["truncated"] is False
    assert "next_before_revision_number" not in rest


@pytest.mark.parametrize("cursor", [1, 0, -1, -(2**63)])
def test_a_cursor_at_or_below_one_gives_an_empty_last_page(bench: Bench, cursor: int) -> None:
    record = bench.put()
    wanted = {"artifact_id": record["artifact_id"], "before_revision_number": cursor}
    assert bench.read("artifact.history", wanted) == {"revisions": [], "truncated": False}


def test_the_largest_cursor_gives_the_newest_page_and_a_larger_one_is_refused(bench: Bench) -> None:
    wanted = {"artifact_id": bench.put()["artifact_id"]}
    assert len(bench.read("artifact.history", wanted | {"before_revision_number": 2**63 - 1})["revisions"]) == 1
    with pytest.raises(MemoreeError) as refusal:
        bench.read("artifact.history", wanted | {"before_revision_number": 2**63})
    assert refusal.value.code == "INVALID_REQUEST"


def test_a_refusal_after_rows_were_written_leaves_no_trace_and_spares_its_neighbours(bench: Bench) -> None:
    """The blob passes the presence test and turns out damaged when the index asks for its text."""
    call = bench.request("artifact.put", put_input(LARGE))
    assert call.content is not None
    bench.blobs.put(LARGE.encode())
    path = bench.blobs.path(call.content.digest.hex())
    path.chmod(0o600)
    path.write_bytes(b"damaged")
    with bench.refused_without_a_trace("INTEGRITY_ERROR"):
        outcome_of(bench.db, bench.commit([call], upload=False)[0])
    neighbours = [bench.request("artifact.put", put_input(f"neighbour {n}")) for n in range(2)]
    attempts = bench.commit([neighbours[0], call, neighbours[1]], upload=False)
    assert [attempt.code for attempt in attempts] == [None, "INTEGRITY_ERROR", None]
    assert [outcome_of(bench.db, attempts[n]).commit_seq for n in (0, 2)] == [1, 2]


@pytest.mark.fault_class(35)
def test_a_nul_is_text_like_any_other(bench: Bench) -> None:
    record = bench.put(
        "a\0b", kind="k\0", title="\0 t", actor="\0", media_type="text/\0", provenance={"\0": ["\0", None]}
    )
    found = bench.read("artifact.get", {"artifact_id": record["artifact_id"]})
    assert found["content"] == text("a\0b")
    assert (found["kind"], found["title"], found["actor"], found["media_type"]) == ("k\0", "\0 t", "\0", "text/\0")
    assert found["provenance"] == {"\0": ["\0", None]}
    with pytest.raises(MemoreeError) as refusal:
        bench.read("artifact.get", {"artifact_id": record["artifact_id"] + "\0"})
    assert refusal.value.code == "NOT_FOUND"


@pytest.mark.proves("machine-77")
@pytest.mark.parametrize(
    "fields",
    [
        {"kind": " "},
        {"kind": "k" * 129},
        {"title": "t" * 4097},
        {"title": "é" * 2049},
        {"media_type": "plain"},
        {"media_type": None},
        {"provenance": None},
        {"provenance": {"p": "x" * limits.METADATA_BYTES_MAX}},
        {"actor": ""},
        {"content": {"type": "base64", "data": "%"}},
    ],
    ids=lambda fields: orjson.dumps(fields)[:30].decode(),
)
def test_a_field_out_of_bounds_is_refused(bench: Bench, fields: dict[str, Any]) -> None:
    with bench.refused_without_a_trace("INVALID_REQUEST"):
        bench.put(**fields)


def test_provenance_is_accepted_to_its_last_level_and_byte(bench: Bench) -> None:
    deepest: dict[str, Any] = {}
    for _ in range(limits.METADATA_DEPTH_MAX - 1):
        deepest = {"d": deepest}
    widest = {"w": "x" * (limits.METADATA_BYTES_MAX - len('{"w":""}'))}
    many: dict[str, Any] = {"brackets": [[] for _ in range(limits.METADATA_DEPTH_MAX * 2)]}
    for provenance in (deepest, widest, many):
        record = bench.put(provenance=provenance)
        assert bench.read("artifact.get", {"artifact_id": record["artifact_id"]})["provenance"] == provenance
    for too_deep in ({"d": deepest}, _nested(300)):
        with bench.refused_without_a_trace("INVALID_REQUEST"):
            bench.put(provenance=too_deep)


def _nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"d": value}
    return value
