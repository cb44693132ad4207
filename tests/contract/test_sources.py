"""Sources and the items they deliver (machine protocol §4.19 to §4.23)."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from .door import Door, Json, ManualClock
from .protocol import ARTIFACT_RECORD, MIB
from .workbench import Workbench, body_of, raw, text

SOURCE_RECORD = {
    "source_id", "name", "kind", "metadata", "health", "context", "created_at", "updated_at", "commit_seq",
}  # fmt: skip
ITEM_RECORD = {
    "source_id", "external_id", "external_revision", "artifact_id", "artifact_revision_id", "state", "observed_at",
    "updated_at", "commit_seq",
}  # fmt: skip
"""Members that are always present, §4.19 and §4.21."""
KEY = "wiki/page-4@v9"
LONG = 4096


def registered(door: Door, name: str, **how: Any) -> Json:
    return door.ok("source.register", {"name": name, "kind": "wiki_adapter"}, **how)


def item_input(source: Json, **fields: Any) -> Json:
    defaults = {
        "source_id": source["source_id"],
        "external_id": "page-4",
        "external_revision": "v9",
        "kind": "wiki_page",
        "title": "Glaze recipes",
        "content": text("Celadon: 2% iron oxide"),
    }
    return defaults | fields


def withdraw_input(source: Json, **fields: Any) -> Json:
    return {"source_id": source["source_id"], "external_id": "page-4", "reason": "page deleted in the wiki"} | fields


def present(door: Door, source: Json) -> Json:
    return door.ok("source.get", {"source_id": source["source_id"]})


# --- register, get, checkpoint ---------------------------------------------------------------------------------


def test_a_registered_source_is_acknowledged_and_read_back(door: Door) -> None:
    context = door.here(task_id="tsk_glaze", component="sensors", pins=["art_elsewhere"])
    wanted = {
        "name": "Studio wiki",
        "kind": "wiki_adapter",
        "locator": "https://wiki.example/studio",
        "metadata": {"shelf": {"row": 2}, "none": None},
        "actor": "agent/kiln",
    }
    answer = door.succeeded("source.register", wanted, context=context)
    source = answer["result"]
    assert set(source) == SOURCE_RECORD | {"locator", "created"}
    assert source["source_id"].startswith("src_")
    assert {name: source[name] for name in wanted if name != "actor"} == {
        name: value for name, value in wanted.items() if name != "actor"
    }
    assert source["health"] == "unknown"
    assert source["context"] == context | {"pins": []}
    assert source["created"] is True
    assert source["commit_seq"] == answer["commit_seq"]
    assert source["updated_at"] == source["created_at"]
    read = door.ok("source.get", {"source_id": source["source_id"]}, context=context)
    assert read == {name: value for name, value in source.items() if name != "created"}


def test_two_sources_of_one_place_do_not_share_a_name(door: Door) -> None:
    tasks = {task: door.here(task_id=task) for task in ("tsk_1", "tsk_2")}
    places = [door.here(), door.here(project_id="prj_other"), *tasks.values()]
    first = [registered(door, "Wiki", context=place, key=KEY) for place in places]
    assert len({source["source_id"] for source in first}) == len(places)
    with door.nothing_written():
        for place, source in zip(places, first, strict=True):
            error = door.refused("INVALID_REQUEST", "source.register", {"name": "Wiki", "kind": "k"}, context=place)
            assert source["source_id"] in error["message"]
            assert registered(door, "Wiki", context=place, key=KEY) == source | {"created": False}
    assert registered(door, "wiki")["created"] is True


@pytest.mark.parametrize(
    "fault",
    [
        {"name": None}, {"name": ""}, {"name": " "}, {"name": "n" * (LONG + 1)},
        {"kind": None}, {"kind": " "}, {"kind": "k" * 129},
        {"locator": ""}, {"locator": "\n"}, {"locator": "l" * 65_537},
        {"metadata": {"m": "x" * 65_536}}, {"metadata": []},
        {"actor": " "}, {"actor": "a" * 1025},
    ],
    ids=lambda fault: str(fault)[:24],
)  # fmt: skip
def test_a_registration_out_of_bounds_is_refused(door: Door, fault: Json) -> None:
    wanted = {"name": "n" * LONG, "kind": "k" * 128, "locator": "l" * 65_536, "actor": "a" * 1024}
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "source.register", wanted | fault)
    assert door.ok("source.register", wanted)["name"] == wanted["name"]


def test_a_checkpoint_keeps_the_cursor_and_clears_the_message(door: Door, bench: Workbench) -> None:
    source = bench.source()
    wanted = {"source_id": source["source_id"], "health": "degraded", "cursor": "c-120", "message": "2 pages skipped"}
    observed = {"observed_at": "2026-03-02T21:40:00+01:00"}
    first = door.ok("source.checkpoint", wanted | observed)
    assert set(first) == SOURCE_RECORD | {"cursor", "health_message", "last_observed_at", "created"}
    assert (first["health"], first["cursor"], first["health_message"]) == ("degraded", "c-120", "2 pages skipped")
    assert first["last_observed_at"] == "2026-03-02T20:40:00Z"
    assert first["created"] is True
    second = door.ok("source.checkpoint", {"source_id": source["source_id"], "health": "error"})
    assert (second["health"], second["cursor"]) == ("error", "c-120")
    assert "health_message" not in second
    assert second["last_observed_at"] > first["last_observed_at"]
    assert present(door, source) == {name: value for name, value in second.items() if name != "created"}


def test_an_equal_checkpoint_still_consumes_a_commit_number(door: Door, bench: Workbench) -> None:
    wanted = {"source_id": bench.source()["source_id"], "health": "healthy"}
    first = door.ok("source.checkpoint", wanted, key=KEY)
    second = door.ok("source.checkpoint", wanted)
    assert second["commit_seq"] > first["commit_seq"]
    assert second["created"] is True
    with door.nothing_written():
        assert door.ok("source.checkpoint", wanted, key=KEY) == first | {"created": False}


@pytest.mark.parametrize(
    "fault",
    [
        {"health": None}, {"health": "fine"}, {"cursor": ""}, {"cursor": "c" * 65_537}, {"message": " "},
        {"message": "m" * 65_537}, {"observed_at": "yesterday"}, {"actor": " "}, {"source_id": "s" * 257},
    ],
    ids=lambda fault: str(fault)[:24],
)  # fmt: skip
def test_a_checkpoint_out_of_bounds_is_refused(door: Door, bench: Workbench, fault: Json) -> None:
    wanted = {"source_id": bench.source()["source_id"], "health": "unknown", "cursor": "c" * 65_536}
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "source.checkpoint", wanted | fault)
    assert door.ok("source.checkpoint", wanted)["cursor"] == wanted["cursor"]


# --- ingest ----------------------------------------------------------------------------------------------------


def test_a_first_delivery_makes_an_artifact_that_is_found_at_once(door: Door, bench: Workbench) -> None:
    source = bench.source()
    context = door.here(task_id="tsk_glaze", pins=["art_elsewhere"])
    door.ok("source.checkpoint", {"source_id": source["source_id"], "health": "error", "message": "down"})
    wanted = item_input(
        source,
        provenance={"page": {"views": 3}, "none": None, "memoree_source": "a caller's own"},
        observed_at="2026-03-02T21:40:00.5+01:00",
        cursor="c-118",
        actor="agent/kiln",
    )
    answer = door.succeeded("source.ingest", wanted, context=context)
    result = answer["result"]
    seen, item, artifact = result["source"], result["item"], result["artifact"]
    assert set(result) == {"source", "item", "artifact", "commit_seq", "created"}
    assert set(seen) == SOURCE_RECORD | {"cursor", "last_observed_at"}
    assert set(item) == ITEM_RECORD
    assert set(artifact) == ARTIFACT_RECORD | {"actor"}
    assert result["created"] is True
    assert answer["commit_seq"] == result["commit_seq"] == seen["commit_seq"] == item["commit_seq"]
    assert (seen["health"], seen["cursor"], seen["last_observed_at"]) == (
        "healthy",
        "c-118",
        "2026-03-02T20:40:00.500Z",
    )
    assert seen["context"] == source["context"]
    assert artifact["context"] == context | {"pins": []}
    assert (item["artifact_id"], item["artifact_revision_id"]) == (artifact["artifact_id"], artifact["revision_id"])
    assert (item["external_id"], item["external_revision"], item["state"]) == ("page-4", "v9", "live")
    assert item["observed_at"] == "2026-03-02T20:40:00.500Z"
    assert artifact["provenance"] == {
        "page": {"views": 3},
        "none": None,
        "memoree_source": {
            "source_id": source["source_id"],
            "external_id": "page-4",
            "external_revision": "v9",
            "observed_at": "2026-03-02T20:40:00.500Z",
        },
    }
    assert present(door, source) == seen
    stored = bench.get(artifact["artifact_id"])
    assert body_of(stored) == b"Celadon: 2% iron oxide"
    assert {name: stored[name] for name in artifact} == artifact
    assert bench.found("celadon", min_commit_seq=result["commit_seq"]) == [artifact["artifact_id"]]


@pytest.mark.proves("machine-200")
@pytest.mark.parametrize(
    "same",
    [{}, {"cursor": "c-200"}, {"observed_at": "2030-01-01T00:00:00Z"}, {"actor": "another"},
     {"media_type": "text/plain; charset=utf-8"}, {"content": raw(b"Celadon: 2% iron oxide")}],
    ids=str,
)  # fmt: skip
def test_a_repeated_delivery_touches_nothing(door: Door, bench: Workbench, same: Json) -> None:
    source = bench.source()
    provenance = {"b": 1, "a": [1.5]}
    first = door.ok("source.ingest", item_input(source, cursor="c-118", provenance=provenance))
    wanted = {"source_id": source["source_id"], "health": "degraded", "message": "2 pages skipped"}
    checkpointed = door.ok("source.checkpoint", wanted)
    reordered = dict(reversed(provenance.items()))
    with door.nothing_written():
        answer = door.succeeded("source.ingest", item_input(source, provenance=reordered) | same, key=KEY)
    again = answer["result"]
    assert (again["item"], again["artifact"]) == (first["item"], first["artifact"])
    assert again["commit_seq"] == answer["commit_seq"] == first["commit_seq"]
    assert again["created"] is False
    assert again["source"] == {name: value for name, value in checkpointed.items() if name != "created"}
    assert again["source"]["cursor"] == "c-118"
    assert present(door, source) == again["source"]
    assert door.ok("source.ingest", item_input(source, provenance=reordered) | same, key=KEY) == again


@pytest.mark.proves("machine-201")
@pytest.mark.parametrize(
    "changed",
    [{"content": text("Celadon: 3% iron oxide")}, {"title": "Recipes"}, {"kind": "page"}, {"media_type": "text/html"},
     {"provenance": {"views": 4}}],
    ids=lambda changed: next(iter(changed)),
)  # fmt: skip
def test_an_external_revision_stands_for_one_payload(door: Door, bench: Workbench, changed: Json) -> None:
    source = bench.source()
    first = door.ok("source.ingest", item_input(source))
    with door.nothing_written():
        error = door.refused("REVISION_CONFLICT", "source.ingest", item_input(source) | changed)
    assert f"with another {', '.join(changed)};" in error["message"]
    assert error["details"] == {
        "entity_type": "source_item",
        "entity_id": f"{source['source_id']}:page-4",
        "current_revision": "v9",
        "requested_revision": "v9",
    }
    assert bench.get(first["item"]["artifact_id"])["revision_id"] == first["item"]["artifact_revision_id"]


@pytest.mark.proves("machine-201")
def test_another_external_revision_is_the_next_revision_of_the_same_artifact(door: Door, bench: Workbench) -> None:
    source = bench.source()
    first = bench.ingest(source, cursor="c-1")
    second = bench.ingest(source, external_revision="v10", title="Glazes", media_type="text/markdown")
    assert second["created"] is False
    assert second["commit_seq"] > first["commit_seq"]
    assert second["artifact"]["artifact_id"] == first["artifact"]["artifact_id"]
    assert second["artifact"]["revision_number"] == 2
    assert (second["artifact"]["title"], second["artifact"]["media_type"]) == ("Glazes", "text/markdown")
    assert second["artifact"]["provenance"]["memoree_source"]["external_revision"] == "v10"
    assert second["item"]["external_revision"] == "v10"
    assert second["item"]["artifact_revision_id"] == second["artifact"]["revision_id"]
    assert second["source"]["cursor"] == "c-1"


def test_going_back_to_an_earlier_external_revision_is_a_revision_too(bench: Workbench) -> None:
    source = bench.source()
    numbers = [bench.ingest(source, external_revision=name)["artifact"]["revision_number"] for name in ("a", "b", "a")]
    assert numbers == [1, 2, 3]


def test_an_item_never_changes_its_kind_while_it_lives(door: Door, bench: Workbench) -> None:
    source = bench.source()
    bench.ingest(source)
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "source.ingest", item_input(source, external_revision="v10", kind="page"))


@pytest.mark.fault_class(9)
def test_an_item_delivered_three_times_growing_has_revisions_one_two_three(door: Door, bench: Workbench) -> None:
    source = bench.source()
    for revision, body in (("1", "one"), ("2", "one two"), ("3", "one two three")):
        artifact_id = bench.ingest(source, external_revision=revision, body=body)["item"]["artifact_id"]
    lineage = door.ok("artifact.history", {"artifact_id": artifact_id})["revisions"]
    assert [revision["revision_number"] for revision in lineage] == [3, 2, 1]
    bodies = [body_of(bench.get(artifact_id, revision["revision_id"])) for revision in lineage]
    assert bodies == [b"one two three", b"one two", b"one"]


@pytest.mark.fault_class(11)
def test_a_connector_that_starts_over_meets_the_items_it_delivered_before(door: Door, bench: Workbench) -> None:
    source = bench.source()
    pages = [(f"page-{number}", f"body {number}") for number in range(5)]
    first = [bench.ingest(source, page, body=body) for page, body in pages[:3]]
    again = [bench.ingest(source, page, body=body) for page, body in pages]
    assert [delivery["item"] for delivery in again[:3]] == [delivery["item"] for delivery in first]
    assert [delivery["created"] for delivery in again] == [False, False, False, True, True]
    assert len(set(bench.found("body", limit=100))) == len(pages)


@pytest.mark.fault_class(40)
def test_equal_bytes_under_two_ids_keep_what_sets_them_apart(bench: Workbench) -> None:
    source = bench.source()
    seen = {"march": "2026-03-01T00:00:00Z", "september": "2026-09-01T00:00:00Z"}
    items = {
        name: bench.ingest(source, name, body="Alex on Payments", observed_at=instant)["item"]
        for name, instant in seen.items()
    }
    assert {name: item["observed_at"] for name, item in items.items()} == seen
    assert set(bench.found("alex payments")) == {item["artifact_id"] for item in items.values()}


@pytest.mark.parametrize(
    "fault",
    [
        {"external_id": ""}, {"external_id": "e" * (LONG + 1)}, {"external_revision": " "},
        {"external_revision": "é" * 2049}, {"kind": "k" * 129}, {"title": "t" * (LONG + 1)}, {"media_type": "text"},
        {"content": {"type": "base64", "data": "!"}}, {"provenance": {"p": "x" * 65_536}}, {"observed_at": "now"},
        {"cursor": ""}, {"cursor": "c" * 65_537}, {"actor": " "}, {"source_id": ""},
    ],
    ids=lambda fault: str(fault)[:32],
)  # fmt: skip
def test_a_delivery_out_of_bounds_is_refused(door: Door, bench: Workbench, fault: Json) -> None:
    longest = {"external_id": "e" * LONG, "external_revision": "é" * 2048, "cursor": "c" * 65_536}
    wanted = item_input(bench.source(), **longest)
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "source.ingest", wanted | fault)
    assert door.ok("source.ingest", wanted)["item"]["external_id"] == longest["external_id"]


def room_in_provenance(bench: Workbench, source: Json, observed_at: str) -> int:
    """Length of the longest text under `p` that fits into provenance, for a revision name of two bytes."""
    stored = bench.ingest(source, external_revision="v8", observed_at=observed_at)["artifact"]["provenance"]
    return 65_536 - len(json.dumps(stored, separators=(",", ":"))) - len('"p":"",')


def test_provenance_is_measured_as_it_is_stored(door: Door, bench: Workbench) -> None:
    source = bench.source()
    observed_at = "2026-03-02T20:40:00Z"
    room = room_in_provenance(bench, source, observed_at)
    fitting = item_input(source, observed_at=observed_at, provenance={"p": "x" * room})
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "source.ingest", fitting | {"provenance": {"p": "x" * (room + 1)}})
        replaced = {"memoree_source": "x" * 65_536}
        door.refused("INVALID_REQUEST", "source.ingest", fitting | {"provenance": replaced})
    assert door.ok("source.ingest", fitting)["artifact"]["provenance"]["p"] == "x" * room


def test_a_repeat_does_not_fail_for_a_longer_spelling_of_the_time(
    door: Door, bench: Workbench, clock: ManualClock
) -> None:
    source = bench.source()
    clock.now = clock.now.replace(microsecond=0)
    room = room_in_provenance(bench, source, "2026-03-02T20:40:00.000000001Z")
    fitting = item_input(source, provenance={"p": "x" * room})
    door.refused("INVALID_REQUEST", "source.ingest", fitting | {"provenance": {"p": "x" * (room + 1)}})
    first = door.ok("source.ingest", fitting)
    clock.advance(microseconds=1)
    assert door.ok("source.ingest", fitting)["item"] == first["item"]


# --- withdraw --------------------------------------------------------------------------------------------------


@pytest.mark.fault_class(14)
@pytest.mark.proves("machine-202")
def test_a_withdrawn_item_is_found_no_more_and_nothing_is_erased(door: Door, bench: Workbench) -> None:
    source = bench.source()
    old = bench.ingest(source, external_revision="v8", body="old celadon", title="celadon title")["artifact"]
    delivery = bench.ingest(source, body="new celadon", title="celadon title")
    artifact = delivery["artifact"]
    projection = bench.project(artifact, text="celadon projected")
    cited = {"artifact_id": artifact["artifact_id"], "revision_id": artifact["revision_id"]}
    claim = bench.claim("Nothing but citing.", evidence=[cited])
    door.ok("source.checkpoint", {"source_id": source["source_id"], "health": "degraded", "cursor": "c-7"})
    wanted = withdraw_input(source, observed_at="2026-03-02T20:40:00Z", actor="agent/kiln")
    answer = door.succeeded("source.withdraw", wanted)
    gone = answer["result"]
    assert set(gone) == {"source", "item", "artifact", "erasure_performed", "commit_seq", "created"}
    assert gone["erasure_performed"] is False
    assert gone["created"] is True
    assert answer["commit_seq"] == gone["commit_seq"] == gone["item"]["commit_seq"] == gone["source"]["commit_seq"]
    assert gone["item"] == delivery["item"] | {
        "state": "withdrawn",
        "withdrawn_at": "2026-03-02T20:40:00Z",
        "withdrawal_reason": "page deleted in the wiki",
        "updated_at": gone["item"]["updated_at"],
        "commit_seq": gone["commit_seq"],
    }
    assert gone["artifact"] == artifact | {"status": "forgotten", "forgotten_reason": "page deleted in the wiki"}
    assert (gone["source"]["health"], gone["source"]["cursor"]) == ("degraded", "c-7")
    assert gone["source"]["last_observed_at"] == "2026-03-02T20:40:00Z"
    for query in ("celadon", "old celadon", "new", "title", "projected"):
        assert bench.found(query, min_commit_seq=gone["commit_seq"]) == []
        everywhere = {"horizon": "personal", "reason": "everywhere", "limit": 100}
        assert artifact["artifact_id"] not in bench.found(query, **everywhere)
    pinned = door.here(project_id="prj_other", pins=[f"{artifact['artifact_id']}@{artifact['revision_id']}"])
    assert bench.found("celadon", how={"context": pinned}) == []
    for revision, body in ((old, b"old celadon"), (artifact, b"new celadon")):
        record = bench.get(artifact["artifact_id"], revision["revision_id"])
        assert (record["status"], body_of(record)) == ("forgotten", body)
    assert door.ok("claim.get", {"claim_id": claim["claim_id"]})["status"] == "active"
    listed = door.ok("projection.list", {"artifact_id": artifact["artifact_id"]})["projections"]
    assert [(each["projection_id"], each["status"]) for each in listed] == [(projection["projection_id"], "active")]


@pytest.mark.proves("machine-202")
def test_withdrawing_twice_changes_nothing_and_keeps_the_first_reason(door: Door, bench: Workbench) -> None:
    source = bench.source()
    bench.ingest(source)
    first = door.ok("source.withdraw", withdraw_input(source))
    health = door.ok("source.checkpoint", {"source_id": source["source_id"], "health": "error"})
    with door.nothing_written():
        answer = door.succeeded("source.withdraw", withdraw_input(source, reason="again"))
    again = answer["result"]
    assert again["created"] is False
    assert again["commit_seq"] == answer["commit_seq"] == first["commit_seq"]
    assert (again["item"], again["artifact"]) == (first["item"], first["artifact"])
    assert again["source"]["commit_seq"] == health["commit_seq"]


@pytest.mark.proves("machine-203")
@pytest.mark.parametrize("revision", ["v9", "v10"])
def test_an_item_that_comes_back_is_a_new_artifact(door: Door, bench: Workbench, revision: str) -> None:
    source = bench.source()
    first = bench.ingest(source)
    bench.withdraw(source)
    back = door.ok("source.ingest", item_input(source, external_revision=revision, kind="page"))
    assert back["created"] is True
    assert back["artifact"]["artifact_id"] != first["artifact"]["artifact_id"]
    assert (back["artifact"]["revision_number"], back["artifact"]["kind"]) == (1, "page")
    assert set(back["item"]) == ITEM_RECORD
    assert back["item"]["state"] == "live"
    assert bench.get(first["artifact"]["artifact_id"])["status"] == "forgotten"
    assert bench.found("celadon") == [back["artifact"]["artifact_id"]]


@pytest.mark.fault_class(15)
def test_withdrawing_one_of_two_items_with_equal_bytes_leaves_the_other(door: Door, bench: Workbench) -> None:
    source = bench.source()
    body = "shared celadon " * 2_000
    kept, gone = (bench.ingest(source, name, body=body)["artifact"] for name in ("kept", "gone"))
    assert kept["blob_hash"] == gone["blob_hash"]
    locators = [{"artifact_id": each["artifact_id"], "revision_id": each["revision_id"]} for each in (kept, gone)]
    claim = bench.claim("It is shared.", evidence=locators)
    bench.withdraw(source, "gone")
    assert bench.found("celadon") == [kept["artifact_id"]]
    for locator in door.ok("claim.get", {"claim_id": claim["claim_id"]})["evidence"]:
        assert body_of(bench.get(locator["artifact_id"], locator["revision_id"])) == body.encode()


@pytest.mark.parametrize(
    "fault", [{"reason": None}, {"reason": " "}, {"reason": "r" * 65_537}, {"external_id": ""}, {"observed_at": "now"}],
    ids=lambda fault: str(fault)[:24],
)  # fmt: skip
def test_a_withdrawal_out_of_bounds_is_refused(door: Door, bench: Workbench, fault: Json) -> None:
    source = bench.source()
    bench.ingest(source)
    wanted = withdraw_input(source, reason="r" * 65_536)
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "source.withdraw", wanted | fault)
    assert door.ok("source.withdraw", wanted)["artifact"]["forgotten_reason"] == "r" * 65_536


# --- an artifact that went its own way ---------------------------------------------------------------------------


def test_a_delivery_goes_on_top_of_a_direct_revision(bench: Workbench) -> None:
    source = bench.source()
    first = bench.ingest(source)
    direct = bench.revise(first["artifact"], "corrected by hand")
    repeat = bench.ingest(source)
    assert (repeat["item"], repeat["artifact"]) == (first["item"], first["artifact"])
    assert bench.get(direct["artifact_id"])["revision_id"] == direct["revision_id"]
    assert bench.ingest(source, external_revision="v10")["artifact"]["revision_number"] == 3


def test_a_live_item_whose_artifact_was_forgotten_directly_is_told_until_it_is_withdrawn(
    door: Door, bench: Workbench
) -> None:
    source = bench.source()
    first = door.ok("source.ingest", item_input(source), key=KEY)
    bench.forget(first["artifact"])
    with door.nothing_written():
        door.refused("INTEGRITY_ERROR", "source.ingest", item_input(source))
        door.refused("INTEGRITY_ERROR", "source.ingest", item_input(source, external_revision="v10"))
        assert door.ok("source.ingest", item_input(source), key=KEY) == first | {"created": False}
    gone = bench.withdraw(source)
    assert gone["created"] is True
    assert (gone["item"]["state"], gone["item"]["withdrawal_reason"]) == ("withdrawn", "page deleted in the wiki")
    assert (gone["artifact"]["status"], gone["artifact"]["forgotten_reason"]) == ("forgotten", "dropped")
    back = bench.ingest(source)
    assert back["created"] is True
    assert back["artifact"]["artifact_id"] != first["artifact"]["artifact_id"]


# --- scope, precedence, concurrency -------------------------------------------------------------------------------


def requests_about(source: Json) -> dict[str, Json]:
    return {
        "source.get": {"source_id": source["source_id"]},
        "source.ingest": item_input(source, external_id="page-5"),
        "source.checkpoint": {"source_id": source["source_id"], "health": "healthy"},
        "source.withdraw": withdraw_input(source),
    }


@pytest.mark.proves("machine-204")
@pytest.mark.parametrize("op", requests_about({"source_id": ""}))
def test_a_source_keeps_to_its_project_and_task(door: Door, op: str) -> None:
    home = door.here(task_id="tsk_glaze")
    source = registered(door, "Wiki", context=home)
    door.ok("source.ingest", item_input(source), context=home)
    wanted = requests_about(source)[op]
    pins = [source["source_id"]]
    with door.nothing_written():
        for away in ({"project_id": "prj_other"}, {"workspace_id": "wsp_other"}, {"task_id": "tsk_other"}):
            door.refused("SCOPE_VIOLATION", op, wanted, context=home | away | {"pins": pins})
        unknown = wanted | {"source_id": "src_unknown"}
        door.refused("NOT_FOUND", op, unknown, context=door.here(project_id="prj_other"))
    door.ok(op, wanted, context=door.here())


@pytest.mark.proves("machine-204")
def test_an_unknown_item_is_told_only_to_those_who_may_withdraw_it(door: Door, bench: Workbench) -> None:
    source = bench.source()
    with door.nothing_written():
        door.refused("NOT_FOUND", "source.withdraw", withdraw_input(source))
        away = door.here(project_id="prj_other")
        door.refused("SCOPE_VIOLATION", "source.withdraw", withdraw_input(source), context=away)


def test_an_item_keeps_to_the_task_that_delivered_it(door: Door, bench: Workbench) -> None:
    source = bench.source()
    one, other = door.here(task_id="tsk_1"), door.here(task_id="tsk_2")
    first = bench.ingest(source, how={"context": one})
    with door.nothing_written():
        door.refused("SCOPE_VIOLATION", "source.ingest", item_input(source), context=other)
        door.refused("SCOPE_VIOLATION", "source.withdraw", withdraw_input(source), context=other)
    bench.withdraw(source, how={"context": one})
    back = bench.ingest(source, how={"context": other})
    assert back["artifact"]["context"]["task_id"] == "tsk_2"
    assert bench.get(first["artifact"]["artifact_id"])["status"] == "forgotten"


def test_ingest_judges_in_the_order_of_the_contract(door: Door, bench: Workbench) -> None:
    source = bench.source()
    bench.ingest(source)
    bench.put(how={"key": KEY})
    away = {"context": door.here(project_id="prj_other")}
    big = {"content": raw(b"\0" * (8 * MIB + 1))}
    provenance = {"provenance": {"p": "x" * 65_536}}
    unknown = {"source_id": "src_unknown"}
    conflict = item_input(source, title="other")
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "source.ingest", item_input(source, **big, **provenance, title=" "))
        door.refused("CONTENT_TOO_LARGE", "source.ingest", item_input(source, **big, **provenance))
        door.refused("INVALID_REQUEST", "source.ingest", item_input(source, **provenance) | unknown)
        door.refused("NOT_FOUND", "source.ingest", item_input(source) | unknown, key=KEY, **away)
        door.refused("SCOPE_VIOLATION", "source.ingest", conflict, key=KEY, **away)
        door.refused("IDEMPOTENCY_CONFLICT", "source.ingest", conflict, key=KEY)
        door.refused("REVISION_CONFLICT", "source.ingest", conflict)


@pytest.mark.parametrize("op", ["source.checkpoint", "source.withdraw"])
def test_existence_then_scope_then_the_key(door: Door, bench: Workbench, op: str) -> None:
    source = bench.source()
    bench.ingest(source)
    bench.put(how={"key": KEY})
    away = {"context": door.here(project_id="prj_other")}
    wanted = requests_about(source)[op]
    with door.nothing_written():
        door.refused("INVALID_REQUEST", op, wanted | {"source_id": "src_unknown", "observed_at": "now"}, **away)
        door.refused("NOT_FOUND", op, wanted | {"source_id": "src_unknown"}, key=KEY, **away)
        door.refused("SCOPE_VIOLATION", op, wanted, key=KEY, **away)
        door.refused("IDEMPOTENCY_CONFLICT", op, wanted, key=KEY)


@pytest.mark.parametrize("keys", ["one key", "a key each"])
def test_64_equal_deliveries_at_once_are_one_artifact(door: Door, bench: Workbench, keys: str) -> None:
    source = bench.source()

    def deliver(number: int) -> Json:
        return door.ok("source.ingest", item_input(source), key=KEY if keys == "one key" else f"{KEY}/{number}")

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(deliver, range(64)))
    assert sum(answer["created"] for answer in answers) == 1
    assert len({json.dumps(answer | {"created": False}, sort_keys=True) for answer in answers}) == 1
    lineage = door.ok("artifact.history", {"artifact_id": answers[0]["item"]["artifact_id"]})["revisions"]
    assert len(lineage) == 1
    assert bench.found("celadon") == [answers[0]["item"]["artifact_id"]]


def test_64_different_deliveries_of_one_revision_at_once_are_one_payload(door: Door, bench: Workbench) -> None:
    source = bench.source()

    def deliver(number: int) -> Json:
        return door.call("source.ingest", item_input(source, title=f"Glaze recipes {number}"))

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(deliver, range(64)))
    assert sum(answer["ok"] for answer in answers) == 1
    assert {answer["error"]["code"] for answer in answers if not answer["ok"]} == {"REVISION_CONFLICT"}
    assert len(bench.found("celadon", limit=100)) == 1


@pytest.mark.parametrize("size", [16_384, 16_385, 70_000], ids=["in the row", "a blob", "a blob that is fetched"])
def test_a_delivery_of_any_size_is_stored_and_found(door: Door, bench: Workbench, size: int) -> None:
    source = bench.source()
    body = "celadon " + "x" * (size - 8)
    first = bench.ingest(source, body=body)
    assert body_of(bench.get(first["item"]["artifact_id"])) == body.encode()
    assert bench.found("celadon") == [first["item"]["artifact_id"]]
    assert bench.ingest(source, body=body)["commit_seq"] == first["commit_seq"]
