"""The life of an artifact: revise, history, forget (machine protocol §4.7, §4.9, §4.10, §6.5)."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from .door import Door, Json
from .protocol import ARTIFACT_ACKNOWLEDGEMENT, ARTIFACT_RECORD
from .workbench import Workbench, body_of, text


@pytest.mark.proves("machine-81")
def test_a_revision_never_changes_what_came_before(door: Door, bench: Workbench) -> None:
    first = bench.put("old body", title="old title", media_type="text/markdown", provenance={"by": 1}, actor="one")
    second = bench.revise(first, "new body", title="new title", media_type="text/plain", provenance={"by": 2})
    assert second["revision_number"] == 2
    assert second["artifact_id"] == first["artifact_id"]
    assert second["kind"] == first["kind"]
    assert second["created_at"] == first["created_at"]
    assert second["revision_commit_seq"] == second["commit_seq"] > first["commit_seq"]
    assert not door.owns_store or second["commit_seq"] == first["commit_seq"] + 1
    old = bench.get(first["artifact_id"], first["revision_id"])
    assert body_of(old) == b"old body"
    assert {name: old[name] for name in ARTIFACT_RECORD | {"actor"}} == {
        name: first[name] for name in ARTIFACT_RECORD | {"actor"}
    }
    assert body_of(bench.get(first["artifact_id"])) == b"new body"


@pytest.mark.proves("machine-82")
@pytest.mark.parametrize("stale", ["the previous revision", "arev_unknown"])
def test_a_stale_revision_is_a_conflict_that_names_the_head(door: Door, bench: Workbench, stale: str) -> None:
    first = bench.put()
    head = bench.revise(first)
    requested = first["revision_id"] if stale == "the previous revision" else stale
    change = {"artifact_id": first["artifact_id"], "if_revision": requested, "content": text("x")}
    with door.nothing_written():
        error = door.refused("REVISION_CONFLICT", "artifact.revise", change)
    assert error["details"] == {
        "entity_type": "artifact",
        "entity_id": first["artifact_id"],
        "current_revision": head["revision_id"],
        "requested_revision": requested,
    }
    assert error["retryable"] is False and error["hint"]
    assert all(name in error["message"] for name in (first["artifact_id"], head["revision_id"], requested))


@pytest.mark.proves("machine-83")
def test_a_revision_keeps_title_and_media_type_and_replaces_provenance_and_actor(bench: Workbench) -> None:
    first = bench.put(title="kept", media_type="text/markdown", provenance={"by": 1}, actor="agent/kiln")
    second = bench.revise(first)
    assert (second["title"], second["media_type"]) == ("kept", "text/markdown")
    assert second["provenance"] == {}
    assert "actor" not in second
    assert bench.revise(second, actor="agent/glaze")["actor"] == "agent/glaze"


def test_equal_content_still_makes_a_new_revision(bench: Workbench) -> None:
    first = bench.put("same")
    second = bench.revise(first, "same")
    assert second["revision_number"] == 2
    assert second["blob_hash"] == first["blob_hash"]
    assert second["revision_id"] != first["revision_id"]


@pytest.mark.proves("machine-84")
def test_revising_an_unknown_or_a_foreign_artifact(door: Door, bench: Workbench) -> None:
    foreign = bench.put(how={"context": door.here(project_id="prj_other")})
    change = {
        "artifact_id": foreign["artifact_id"],
        "if_revision": foreign["revision_id"],
        "content": text("x"),
    }
    with door.nothing_written():
        door.refused("NOT_FOUND", "artifact.revise", change | {"artifact_id": "art_unknown"})
        door.refused("SCOPE_VIOLATION", "artifact.revise", change)


@pytest.mark.fault_class(9)
def test_a_name_that_grows_three_times_has_revisions_one_two_three(door: Door, bench: Workbench) -> None:
    head = bench.put("one")
    artifact_id = head["artifact_id"]
    head = bench.revise(head, "one two")
    head = bench.revise(head, "one two three")
    lineage = door.ok("artifact.history", {"artifact_id": artifact_id})["revisions"]
    assert [revision["revision_number"] for revision in lineage] == [3, 2, 1]
    bodies = [body_of(bench.get(artifact_id, revision["revision_id"])) for revision in lineage]
    assert bodies == [b"one two three", b"one two", b"one"]


@pytest.mark.proves("machine-85")
@pytest.mark.parametrize("reason", [None, "", "  ", "\n", 7, "é" * 32_768 + "r"], ids=lambda r: repr(r)[:8])
def test_forgetting_needs_a_reason(door: Door, bench: Workbench, reason: Any) -> None:
    artifact_id = bench.put()["artifact_id"]
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "artifact.forget", {"artifact_id": artifact_id, "reason": reason})
        door.refused("INVALID_REQUEST", "artifact.forget", {"artifact_id": artifact_id})
    door.ok("artifact.forget", {"artifact_id": artifact_id, "reason": "é" * 32_768})


@pytest.mark.fault_class(14)
@pytest.mark.proves("machine-86")
def test_a_forgotten_artifact_leaves_search_and_stays_exactly_readable(door: Door, bench: Workbench) -> None:
    first = bench.put("forgettable words", title="forgettable title")
    head = bench.revise(first, "forgettable words again")
    gone = bench.forget(head)
    for query in ("forgettable", "words", "title"):
        assert bench.found(query, min_commit_seq=gone["commit_seq"]) == []
        assert first["artifact_id"] not in bench.found(query, horizon="personal", reason="everywhere", limit=100)
    for revision, body in ((first, b"forgettable words"), (head, b"forgettable words again")):
        record = bench.get(first["artifact_id"], revision["revision_id"])
        assert record["status"] == "forgotten"
        assert record["forgotten_reason"] == "dropped"
        assert body_of(record) == body
    historical = bench.search("forgettable", include_historical=True)["hits"]
    assert {hit["status"] for hit in historical} == {"forgotten"}
    change = {"artifact_id": head["artifact_id"], "if_revision": head["revision_id"], "content": text("x")}
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "artifact.revise", change)
        door.refused("INVALID_REQUEST", "artifact.forget", {"artifact_id": head["artifact_id"], "reason": "r"})


@pytest.mark.proves("machine-87")
def test_forgetting_says_that_nothing_was_erased(bench: Workbench) -> None:
    stored = bench.put()
    gone = bench.forget(stored)
    assert set(gone) == ARTIFACT_ACKNOWLEDGEMENT | {"forgotten_reason", "physically_erased", "retention_notice"}
    assert gone["physically_erased"] is False
    assert gone["retention_notice"]
    assert gone["status"] == "forgotten"
    assert gone["revision_id"] == stored["revision_id"]
    assert gone["revision_commit_seq"] == stored["commit_seq"]
    assert gone["commit_seq"] == stored["commit_seq"] + 1
    assert {"physically_erased", "retention_notice"}.isdisjoint(bench.get(stored["artifact_id"]))


@pytest.mark.fault_class(15)
def test_forgetting_an_artifact_leaves_the_claims_that_cite_it(door: Door, bench: Workbench) -> None:
    artifact = bench.put("four")
    cited = {"artifact_id": artifact["artifact_id"], "revision_id": artifact["revision_id"]}
    one, two = bench.claim("one claim", evidence=[cited]), bench.claim("another claim", evidence=[cited])
    bench.retract(one)
    bench.forget(artifact)
    record = door.ok("claim.get", {"claim_id": two["claim_id"]})
    assert record["status"] == "active"
    assert record["evidence"] == [cited]
    assert bench.found("another") == [two["claim_id"]]
    assert body_of(bench.get(cited["artifact_id"], cited["revision_id"])) == b"four"


@pytest.mark.fault_class(18)
def test_an_id_of_another_kind_finds_nothing_and_changes_nothing(door: Door, bench: Workbench) -> None:
    artifact, claim = bench.put(), bench.claim()
    with door.nothing_written():
        door.refused("NOT_FOUND", "artifact.forget", {"artifact_id": claim["claim_id"], "reason": "r"})
        door.refused("NOT_FOUND", "claim.retract", {"claim_id": artifact["artifact_id"], "reason": "r"})
        door.refused("NOT_FOUND", "artifact.get", {"artifact_id": artifact["revision_id"]})
        door.refused("NOT_FOUND", "claim.get", {"claim_id": claim["revision_id"]})


@pytest.mark.proves("machine-88")
def test_history_pages_from_the_newest_to_the_oldest(door: Door, bench: Workbench) -> None:
    head = bench.put()
    for _ in range(2):
        head = bench.revise(head)
    wanted = {"artifact_id": head["artifact_id"], "limit": 2}
    page = door.ok("artifact.history", wanted, context=None)
    assert [revision["revision_number"] for revision in page["revisions"]] == [3, 2]
    assert page["truncated"] is True
    assert page.get("next_before_revision_number") == 2
    assert all(set(revision) == ARTIFACT_RECORD for revision in page["revisions"])
    rest = door.ok("artifact.history", wanted | {"before_revision_number": 2}, context=None)
    assert [revision["revision_number"] for revision in rest["revisions"]] == [1]
    assert rest["truncated"] is False
    assert "next_before_revision_number" not in rest


@pytest.mark.parametrize("cursor", [1, 0, -1, -(2**63)])
def test_a_history_cursor_at_or_below_one_gives_an_empty_last_page(door: Door, bench: Workbench, cursor: int) -> None:
    wanted = {"artifact_id": bench.put()["artifact_id"], "before_revision_number": cursor}
    assert door.ok("artifact.history", wanted) == {"revisions": [], "truncated": False}


@pytest.mark.proves("machine-89")
@pytest.mark.parametrize("limit", [0, 101])
def test_a_history_page_holds_1_to_100_revisions(door: Door, bench: Workbench, limit: int) -> None:
    wanted = {"artifact_id": bench.put()["artifact_id"]}
    door.refused("INVALID_REQUEST", "artifact.history", wanted | {"limit": limit})
    door.ok("artifact.history", wanted | {"limit": 1})
    door.ok("artifact.history", wanted | {"limit": 100})


@pytest.mark.proves("machine-89")
def test_the_history_of_an_unknown_artifact_is_not_found(door: Door) -> None:
    door.refused("NOT_FOUND", "artifact.history", {"artifact_id": "art_unknown"})
    door.refused("NOT_FOUND", "artifact.history", {"artifact_id": "art_unknown", "before_revision_number": 1})


@pytest.mark.fault_class(53)
def test_a_long_history_is_walked_without_a_gap_or_a_repeat(door: Door, bench: Workbench) -> None:
    head = bench.put()
    for _ in range(136):
        head = bench.revise(head)
    assert len(door.ok("artifact.history", {"artifact_id": head["artifact_id"]})["revisions"]) == 50
    for limit in (7, 100):
        numbers: list[int] = []
        wanted: Json = {"artifact_id": head["artifact_id"], "limit": limit}
        while True:
            page = door.ok("artifact.history", wanted)
            numbers += [revision["revision_number"] for revision in page["revisions"]]
            if not page["truncated"]:
                break
            wanted["before_revision_number"] = page["next_before_revision_number"]
        assert numbers == list(range(137, 0, -1))


@pytest.mark.fault_class(62)
def test_after_every_edit_reads_and_searches_agree(bench: Workbench) -> None:
    words = [hashlib.sha256(b"%d" % turn).hexdigest()[:16] for turn in range(33)]
    heads = [bench.put(word) for word in words[:3]]
    for turn, word in enumerate(words[3:], 3):
        heads[turn % 3] = bench.revise(heads[turn % 3], word)
        artifact_id = heads[turn % 3]["artifact_id"]
        assert body_of(bench.get(artifact_id)) == word.encode()
        assert bench.found(word) == [artifact_id]
        assert bench.found(words[turn - 3]) == []
