"""Typed edges between artifacts and claims (machine protocol §4.16, §4.17, §6.4; assertions of §9.6)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from .door import Door, Json
from .fields import RELATION
from .workbench import Workbench, edge_input, entity_of

FREE = ("derived_from", "supports", "references", "duplicates")
"""The types that have no effect on their ends."""
BINDING = ("contradicts", "supersedes")
REASON: Json = {"reason": "compare with the other studio"}
RECORD = {
    "relation_id", "source_type", "source_id", "relation", "target_type", "target_id", "metadata", "context",
    "created_at", "relation_commit_seq",
}  # fmt: skip


def sibling(door: Door) -> Json:
    return {"context": door.here(project_id="prj_sibling")}


def record_of(acknowledgement: Json) -> Json:
    return {name: value for name, value in acknowledgement.items() if name in RECORD}


def listed(door: Door, anchor: Json, *, how: Json | None = None, **fields: Any) -> Json:
    entity_type, entity_id = entity_of(anchor)
    return door.ok("relation.list", {"entity_type": entity_type, "entity_id": entity_id} | fields, **(how or {}))


@pytest.mark.proves("machine-112", "machine-121")
@pytest.mark.parametrize("relation", RELATION)
def test_every_type_is_stored_and_listed_between_claims(door: Door, bench: Workbench, relation: str) -> None:
    source, target = bench.claim(), bench.claim("It reached cone 5.")
    metadata = {"noticed_by": "night shift", "": [None, {"deep": 1.5}]}
    made = bench.relate(source, relation, target, metadata=metadata)
    assert set(made) == RECORD | {"commit_seq", "created"}
    assert made["created"] is True
    assert made["relation_id"].startswith("rel_") and len(made["relation_id"]) == 30
    assert made["relation_commit_seq"] == made["commit_seq"]
    assert made["metadata"] == metadata
    assert {name: made[name] for name in edge_input(source, relation, target)} == edge_input(source, relation, target)
    for anchor in (source, target):
        assert listed(door, anchor)["relations"] == [record_of(made)]


@pytest.mark.proves("machine-112")
@pytest.mark.parametrize("relation", FREE)
def test_the_free_types_join_artifacts_and_claims_in_any_way(door: Door, bench: Workbench, relation: str) -> None:
    artifact, forgotten, claim, retracted = bench.put(), bench.put(), bench.claim(), bench.claim()
    bench.forget(forgotten)
    bench.retract(retracted)
    for source, target in itertools.permutations([artifact, forgotten, claim, retracted], 2):
        made = bench.relate(source, relation, target)
        assert made["created"] is True
        assert record_of(made) in listed(door, target, direction="incoming")["relations"]
    assert bench.get(forgotten["artifact_id"])["status"] == "forgotten"
    assert (bench.status(claim), bench.status(retracted)) == ("active", "retracted")


@pytest.mark.fault_class(42)
@pytest.mark.proves("machine-113")
@pytest.mark.parametrize("relation", RELATION)
def test_an_entity_has_no_relation_with_itself(door: Door, bench: Workbench, relation: str) -> None:
    artifact, claim = bench.put(), bench.claim()
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "relation.put", edge_input(claim, relation, claim))
        door.refused("INVALID_REQUEST", "relation.put", edge_input(artifact, relation, artifact))
        unknown = edge_input({"claim_id": "clm_absent"}, relation, {"claim_id": "clm_absent"})
        door.refused("INVALID_REQUEST", "relation.put", unknown)
    assert bench.status(claim) == "active"


def test_one_id_of_two_kinds_is_no_relation_with_itself(door: Door, bench: Workbench) -> None:
    claim = bench.claim()
    namesake = {"artifact_id": claim["claim_id"]}
    door.refused("NOT_FOUND", "relation.put", edge_input(claim, "references", namesake))


@pytest.mark.fault_class(18)
@pytest.mark.proves("machine-114")
@pytest.mark.parametrize("relation", RELATION)
def test_an_unknown_end_is_not_found(door: Door, bench: Workbench, relation: str) -> None:
    artifact, claim = bench.put(), bench.claim()
    absent = [{"claim_id": "clm_absent"}, {"artifact_id": "art_absent"}]
    mistyped = [{"claim_id": artifact["artifact_id"]}, {"artifact_id": claim["claim_id"]}]
    with door.nothing_written():
        for other in absent + mistyped:
            door.refused("NOT_FOUND", "relation.put", edge_input(claim, relation, other))
            door.refused("NOT_FOUND", "relation.put", edge_input(other, relation, claim))


@pytest.mark.proves("machine-114")
@pytest.mark.parametrize("relation", RELATION)
@pytest.mark.parametrize("foreign_end", ["source", "target"])
def test_a_foreign_end_is_a_violation_and_leaves_no_trace(
    door: Door, bench: Workbench, relation: str, foreign_end: str
) -> None:
    own, foreign = bench.claim(), bench.claim(how=sibling(door))
    ends = (own, foreign) if foreign_end == "target" else (foreign, own)
    with door.nothing_written():
        door.refused("SCOPE_VIOLATION", "relation.put", edge_input(ends[0], relation, ends[1]))
        pinned = {"context": door.here(pins=[foreign["claim_id"]])}
        door.refused("SCOPE_VIOLATION", "relation.put", edge_input(ends[0], relation, ends[1]), **pinned)
    assert bench.relations(own) == []
    assert bench.relations(foreign, how=sibling(door)) == []
    assert (bench.status(own), bench.status(foreign)) == ("active", "active")
    assert bench.conflicts(horizon="workspace", **REASON) == []


@pytest.mark.proves("machine-114")
def test_a_pin_makes_a_foreign_artifact_no_end(door: Door, bench: Workbench) -> None:
    claim, foreign = bench.claim(), bench.put(how=sibling(door))
    pinned = {"context": door.here(pins=[foreign["artifact_id"]])}
    door.refused("SCOPE_VIOLATION", "relation.put", edge_input(claim, "references", foreign), **pinned)


@pytest.mark.fault_class(8)
@pytest.mark.proves("machine-65", "machine-115")
@pytest.mark.parametrize("relation", RELATION)
def test_the_same_edge_again_is_the_edge_that_is_there(door: Door, bench: Workbench, relation: str) -> None:
    source, target = bench.claim(), bench.claim("It reached cone 5.")
    metadata = {"a": 1, "b": {"c": [1, 2], "d": None}}
    first = bench.relate(source, relation, target, metadata=metadata)
    statuses = bench.status(source), bench.status(target)
    cases = bench.conflicts(include_stale=True)
    with door.nothing_written():
        reordered = {"b": {"d": None, "c": [1, 2]}, "a": 1}
        again = door.succeeded("relation.put", edge_input(source, relation, target) | {"metadata": reordered})
        assert again["result"] == first | {"created": False}
        assert again["commit_seq"] == first["commit_seq"]
        for other in ({}, {"a": 2}, metadata | {"e": None}, {"a": 1}):
            edge = edge_input(source, relation, target) | {"metadata": other}
            door.refused("INVALID_REQUEST", "relation.put", edge)
    assert (bench.status(source), bench.status(target)) == statuses
    assert bench.conflicts(include_stale=True) == cases


@pytest.mark.proves("machine-115")
@pytest.mark.parametrize("relation", BINDING)
def test_the_same_edge_again_is_no_fault_once_an_end_is_terminal(door: Door, bench: Workbench, relation: str) -> None:
    source, target = bench.claim(), bench.claim("It reached cone 5.")
    first = bench.relate(source, relation, target)
    bench.retract(source)
    bench.retract(target)
    with door.nothing_written():
        assert bench.relate(source, relation, target) == first | {"created": False}
    assert (bench.status(source), bench.status(target)) == ("retracted", "retracted")


def test_absent_metadata_are_empty_metadata(bench: Workbench) -> None:
    source, target = bench.claim(), bench.claim("It reached cone 5.")
    first = bench.relate(source, "supports", target)
    assert first["metadata"] == {}
    assert bench.relate(source, "supports", target, metadata={}) == first | {"created": False}


def test_a_reversed_edge_and_one_of_another_type_are_other_edges(bench: Workbench) -> None:
    one, other = bench.claim(), bench.claim("It reached cone 5.")
    edges = [bench.relate(*ends) for ends in ((one, "supports", other), (other, "supports", one))]
    edges.append(bench.relate(one, "references", other))
    assert all(edge["created"] for edge in edges)
    assert len({edge["relation_id"] for edge in edges}) == 3


def test_an_edge_put_from_another_context_is_the_edge_that_is_there(door: Door, bench: Workbench) -> None:
    source, target = bench.claim(), bench.claim("It reached cone 5.")
    first = bench.relate(source, "supports", target, how={"context": door.here(task_id="tsk_1")})
    again = bench.relate(source, "supports", target, how={"context": door.here(task_id="tsk_2")})
    assert again == first | {"created": False}
    assert again["context"]["task_id"] == "tsk_1"


@pytest.mark.proves("machine-116")
@pytest.mark.parametrize("relation", BINDING)
def test_contradiction_and_supersession_relate_claims_only(door: Door, bench: Workbench, relation: str) -> None:
    artifact, other, claim = bench.put(), bench.put(), bench.claim()
    with door.nothing_written():
        for source, target in ((artifact, claim), (claim, artifact), (artifact, other)):
            door.refused("INVALID_REQUEST", "relation.put", edge_input(source, relation, target))
    assert bench.status(claim) == "active"


@pytest.mark.fault_class(42)
@pytest.mark.proves("machine-117")
@pytest.mark.parametrize("relation", BINDING)
@pytest.mark.parametrize("ended", ["retracted", "superseded"])
def test_a_terminal_claim_enters_no_contradiction_or_supersession(
    door: Door, bench: Workbench, relation: str, ended: str
) -> None:
    claim, terminal = bench.claim(), bench.claim("It reached cone 5.")
    if ended == "retracted":
        bench.retract(terminal)
    else:
        bench.relate(bench.claim("It reached cone 7."), "supersedes", terminal)
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "relation.put", edge_input(claim, relation, terminal))
        door.refused("INVALID_REQUEST", "relation.put", edge_input(terminal, relation, claim))
    assert (bench.status(claim), bench.status(terminal)) == ("active", ended)
    assert bench.conflicts(include_stale=True) == []


@pytest.mark.proves("machine-103")
def test_a_superseded_claim_is_not_revised(door: Door, bench: Workbench) -> None:
    claim = bench.claim()
    bench.relate(bench.claim("It reached cone 5."), "supersedes", claim)
    change = {"claim_id": claim["claim_id"], "if_revision": claim["revision_id"], "statement": "s"}
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "claim.revise", change)


@pytest.mark.fault_class(14)
@pytest.mark.proves("machine-118")
def test_the_superseded_leave_current_search_and_nothing_else(door: Door, bench: Workbench) -> None:
    old, new = bench.claim("Supersedable words."), bench.claim("Supersedable words, corrected.")
    made = bench.relate(new, "supersedes", old)
    assert (bench.status(old), bench.status(new)) == ("superseded", "active")
    assert bench.found("supersedable", min_commit_seq=made["commit_seq"]) == [new["claim_id"]]
    historical = bench.search("supersedable", include_historical=True)["hits"]
    assert {hit["entity_id"]: hit["status"] for hit in historical} == {
        old["claim_id"]: "superseded",
        new["claim_id"]: "active",
    }
    (revision,) = door.ok("claim.history", {"claim_id": old["claim_id"]})["revisions"]
    assert revision["status"] == "superseded"
    assert "retraction_reason" not in revision
    bench.retract(old)
    assert bench.status(old) == "retracted"


@pytest.mark.fault_class(42)
@pytest.mark.proves("machine-119")
def test_there_is_no_supersession_in_a_circle(door: Door, bench: Workbench) -> None:
    first, second, third = (bench.claim(f"It reached cone {cone}.") for cone in (5, 6, 7))
    bench.relate(second, "supersedes", first)
    bench.relate(third, "supersedes", second)
    with door.nothing_written():
        for source, target in ((first, second), (second, third), (first, third)):
            door.refused("INVALID_REQUEST", "relation.put", edge_input(source, "supersedes", target))
    assert [bench.status(each) for each in (first, second, third)] == ["superseded", "superseded", "active"]


@pytest.mark.proves("machine-120")
@pytest.mark.parametrize("relation", FREE)
def test_a_free_relation_hides_and_merges_nothing(bench: Workbench, relation: str) -> None:
    one, other = bench.claim("Doubled words."), bench.claim("Doubled words.")
    bench.relate(one, relation, other)
    bench.relate(other, relation, one)
    assert (bench.status(one), bench.status(other)) == ("active", "active")
    assert sorted(bench.found("doubled")) == sorted([one["claim_id"], other["claim_id"]])


@pytest.mark.fault_class(39)
def test_claims_contradict_each_other_only_when_someone_says_so(bench: Workbench) -> None:
    alex, sam = bench.claim("Alex works at A."), bench.claim("Sam works at B.")
    bench.revise_claim(alex, "Alex does not work at A.")
    assert (bench.status(alex), bench.status(sam)) == ("active", "active")
    assert bench.conflicts(include_stale=True) == []


@pytest.mark.proves("machine-121")
def test_a_relation_belongs_to_the_context_that_put_it_without_its_pins(door: Door, bench: Workbench) -> None:
    source, target = bench.claim(), bench.claim("It reached cone 5.")
    place = door.here(task_id="tsk_1", component="sensors")
    how = {"context": place | {"pins": ["art_pinned"]}}
    made = door.succeeded("relation.put", edge_input(source, "supports", target), **how)
    assert made["context"]["pins"] == ["art_pinned"]
    assert made["result"]["context"] == place | {"pins": []}
    assert made["result"]["relation_commit_seq"] == made["commit_seq"]
    assert listed(door, source)["relations"][0]["context"] == place | {"pins": []}


@pytest.fixture
def star(bench: Workbench) -> tuple[Json, list[Json]]:
    """A claim, and its edges in the order in which they were made: two out, one in, one out."""
    claim, *others = (bench.claim(f"Statement {number}.") for number in range(5))
    edges = [
        bench.relate(claim, "supports", others[0]),
        bench.relate(claim, "references", others[1]),
        bench.relate(others[2], "supports", claim),
        bench.relate(claim, "supports", others[3]),
    ]
    return claim, edges


@pytest.mark.proves("machine-122")
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_edges_page_from_the_newest_to_the_oldest(door: Door, star: tuple[Json, list[Json]], limit: int) -> None:
    claim, edges = star
    seen: list[Json] = []
    cursor: Json = {}
    for _ in range(len(edges)):
        page = listed(door, claim, limit=limit, **cursor)
        seen += page["relations"]
        if not page["truncated"]:
            assert "next_before_commit_seq" not in page
            break
        assert len(page["relations"]) == limit
        assert page["next_before_commit_seq"] == page["relations"][-1]["relation_commit_seq"]
        cursor = {"before_commit_seq": page["next_before_commit_seq"]}
    assert seen == [record_of(edge) for edge in reversed(edges)]


@pytest.mark.proves("machine-122")
def test_a_page_that_holds_the_last_edge_is_not_truncated(door: Door, star: tuple[Json, list[Json]]) -> None:
    claim, edges = star
    page = listed(door, claim, limit=len(edges))
    assert (len(page["relations"]), page["truncated"]) == (len(edges), False)
    past = listed(door, claim, before_commit_seq=edges[0]["commit_seq"])
    assert (past["relations"], past["truncated"]) == ([], False)
    assert past["broaden_hint"]


@pytest.mark.proves("machine-123")
def test_edges_are_filtered_by_direction_and_type(door: Door, star: tuple[Json, list[Json]]) -> None:
    claim, edges = star
    out = [edges[3], edges[1], edges[0]]
    pages: list[tuple[Json, list[Json]]] = [
        ({"direction": "outgoing"}, out),
        ({"direction": "incoming"}, [edges[2]]),
        ({"direction": "both"}, edges[::-1]),
        ({"relation": "supports"}, [edges[3], edges[2], edges[0]]),
        ({"relation": "supports", "direction": "outgoing"}, [edges[3], edges[0]]),
        ({"relation": "references", "direction": "incoming"}, []),
        ({"relation": "duplicates"}, []),
    ]
    for asked, expected in pages:
        page = listed(door, claim, **asked)
        assert page["relations"] == [record_of(edge) for edge in expected], asked
        assert page.get("relation") == asked.get("relation")
        assert page["direction"] == asked.get("direction", "both")


def test_the_cursor_of_a_filtered_list_pages_through_the_filtered_edges(
    door: Door, star: tuple[Json, list[Json]]
) -> None:
    claim, edges = star
    page = listed(door, claim, relation="supports", limit=2)
    assert [edge["relation_id"] for edge in page["relations"]] == [edges[n]["relation_id"] for n in (3, 2)]
    rest = listed(door, claim, relation="supports", limit=2, before_commit_seq=page["next_before_commit_seq"])
    assert [edge["relation_id"] for edge in rest["relations"]] == [edges[0]["relation_id"]]
    assert rest["truncated"] is False


@pytest.mark.proves("machine-124")
def test_the_defaults_are_both_directions_the_ambient_horizon_and_a_hundred_edges(door: Door, bench: Workbench) -> None:
    hub = bench.claim()
    edges = [bench.relate(hub, "references", bench.put()) for _ in range(101)]
    page = listed(door, hub)
    assert (page["direction"], page["horizon"]) == ("both", "ambient")
    assert (page["entity_type"], page["entity_id"]) == ("claim", hub["claim_id"])
    assert "relation" not in page and "broaden_hint" not in page
    assert len(page["relations"]) == 100 and page["truncated"] is True
    assert page["next_before_commit_seq"] == edges[1]["commit_seq"]
    spelt: Json = {"direction": "both", "horizon": "ambient", "limit": 100, "relation": None, "before_commit_seq": None}
    assert listed(door, hub, **spelt) == page


@pytest.mark.proves("machine-125")
@pytest.mark.parametrize(
    "fault",
    [
        {"limit": 0}, {"limit": 101}, {"limit": None}, {"before_commit_seq": 0}, {"before_commit_seq": -1},
        {"before_commit_seq": "1"}, {"before_commit_seq": 1.5}, {"direction": "sideways"}, {"direction": None},
        {"relation": "likes"}, {"relation": ["supports"]}, {"entity_type": "relation"}, {"entity_id": ""},
    ],
    ids=str,
)  # fmt: skip
def test_a_list_out_of_bounds_is_refused(door: Door, bench: Workbench, fault: Json) -> None:
    valid = {"entity_type": "claim", "entity_id": bench.claim()["claim_id"]}
    door.refused("INVALID_REQUEST", "relation.list", valid | fault)
    door.refused("INVALID_REQUEST", "relation.list", valid | fault, context=None)


@pytest.mark.proves("machine-125")
def test_the_least_cursor_and_the_bounds_of_the_limit_are_accepted(door: Door, bench: Workbench) -> None:
    claim = bench.claim()
    accepted: list[Json] = [{"before_commit_seq": 1}, {"before_commit_seq": 2**63 - 1}, {"limit": 1}, {"limit": 100}]
    for fits in accepted:
        assert listed(door, claim, **fits)["relations"] == []


@pytest.mark.proves("machine-126")
def test_a_foreign_anchor_is_a_violation_and_an_unknown_one_not_found(door: Door, bench: Workbench) -> None:
    for foreign in (bench.claim(how=sibling(door)), bench.put(how=sibling(door))):
        entity_type, entity_id = entity_of(foreign)
        anchor = {"entity_type": entity_type, "entity_id": entity_id}
        door.refused("SCOPE_VIOLATION", "relation.list", anchor)
        listed(door, foreign, horizon="workspace", **REASON)
        elsewhere = {"context": door.here(workspace_id="wsp_elsewhere")}
        door.refused("SCOPE_VIOLATION", "relation.list", anchor | {"horizon": "workspace"} | REASON, **elsewhere)
        listed(door, foreign, horizon="personal", **REASON, how=elsewhere)
        unknown = anchor | {"entity_id": "absent"}
        door.refused("NOT_FOUND", "relation.list", unknown)
        door.refused("NOT_FOUND", "relation.list", unknown | {"horizon": "personal"} | REASON)
        mistyped = anchor | {"entity_type": "claim" if entity_type == "artifact" else "artifact"}
        door.refused("NOT_FOUND", "relation.list", mistyped)


@pytest.mark.proves("machine-127")
@pytest.mark.parametrize("pin", ["{a}", "{a}@{r}", "memoree://artifact/{a}", "memoree://artifact/{a}@{r}"])
def test_a_pinned_foreign_anchor_shows_no_foreign_rows(door: Door, bench: Workbench, pin: str) -> None:
    foreign = bench.put(how=sibling(door))
    made = bench.relate(foreign, "references", bench.put(how=sibling(door)), how=sibling(door))
    pinned = {"context": door.here(pins=[pin.format(a=foreign["artifact_id"], r=foreign["revision_id"])])}
    page = listed(door, foreign, how=pinned)
    assert page["relations"] == []
    assert page["broaden_hint"]
    broad = listed(door, foreign, horizon="workspace", **REASON, how=pinned)
    assert broad["relations"] == [record_of(made)]
    assert "broaden_hint" not in broad


@pytest.mark.proves("machine-127")
def test_a_claim_cannot_be_pinned(door: Door, bench: Workbench) -> None:
    foreign = bench.claim(how=sibling(door))
    anchor = {"entity_type": "claim", "entity_id": foreign["claim_id"]}
    for pin in (foreign["claim_id"], f"memoree://claim/{foreign['claim_id']}"):
        door.refused("SCOPE_VIOLATION", "relation.list", anchor, context=door.here(pins=[pin]))


@pytest.mark.fault_class(24)
@pytest.mark.fault_class(27)
@pytest.mark.proves("machine-128")
def test_an_edge_is_seen_where_the_task_that_made_it_is_seen(door: Door, bench: Workbench) -> None:
    source, target = bench.claim(), bench.claim("It reached cone 5.")
    places: dict[str, Json] = {
        "project": door.here(),
        "task 1": door.here(task_id="tsk_1"),
        "task 2": door.here(task_id="tsk_2"),
    }
    made = {
        name: bench.relate(source, relation, target, how={"context": place})["relation_id"]
        for (name, place), relation in zip(places.items(), FREE, strict=False)
    }
    for where, seen in (
        (places["project"], {"project", "task 1", "task 2"}),
        (places["task 1"], {"project", "task 1"}),
        (places["task 2"], {"project", "task 2"}),
        (door.here(task_id="tsk_3"), {"project"}),
        (door.here(component="sensors"), {"project", "task 1", "task 2"}),
    ):
        assert set(bench.relations(source, how={"context": where})) == {made[name] for name in seen}, where
    assert set(bench.relations(source, how={"context": places["task 2"]}, horizon="workspace", **REASON)) == set(
        made.values()
    )


@pytest.mark.proves("machine-129")
def test_edges_of_superseded_and_retracted_ends_stay_listed_unchanged(door: Door, bench: Workbench) -> None:
    claim, other = bench.claim(), bench.claim("It reached cone 5.")
    edges = [bench.relate(claim, "supports", other), bench.relate(other, "references", claim)]
    before = listed(door, claim)["relations"]
    superseding = bench.relate(bench.claim("It reached cone 7."), "supersedes", claim)
    assert listed(door, claim)["relations"] == [record_of(superseding), *before]
    bench.retract(claim)
    bench.retract(other)
    assert listed(door, claim)["relations"] == [record_of(superseding), *before]
    assert before == [record_of(edge) for edge in reversed(edges)]


@pytest.mark.proves("machine-37")
@pytest.mark.parametrize("horizon", ["workspace", "personal"])
@pytest.mark.parametrize("reason", [{}, {"reason": ""}, {"reason": "   "}, {"reason": None}], ids=str)
@pytest.mark.parametrize("op", ["relation.list", "conflict.list"])
def test_a_broad_list_needs_a_reason(door: Door, bench: Workbench, op: str, horizon: str, reason: Json) -> None:
    valid: Json = {"entity_type": "claim", "entity_id": bench.claim()["claim_id"]} if op == "relation.list" else {}
    door.refused("INVALID_REQUEST", op, valid | {"horizon": horizon} | reason)
    answer = door.succeeded(op, valid | {"horizon": horizon} | REASON)
    assert answer["context"]["broadened"] is True
    assert answer["result"]["horizon"] == answer["context"]["horizon"] == horizon
    ambient = door.succeeded(op, valid | {"horizon": "ambient"} | reason)
    assert ambient["context"]["broadened"] is False


@pytest.mark.parametrize("op", ["relation.list", "conflict.list"])
def test_a_reason_of_64_kib_is_the_longest_of_a_list(door: Door, bench: Workbench, op: str) -> None:
    valid: Json = {"entity_type": "claim", "entity_id": bench.claim()["claim_id"]} if op == "relation.list" else {}
    for horizon in ("ambient", "workspace", "personal"):
        fits = valid | {"horizon": horizon, "reason": "é" * 32_768}
        door.ok(op, fits)
        door.refused("INVALID_REQUEST", op, fits | {"reason": "é" * 32_768 + "r"})


def test_only_an_empty_list_below_the_personal_horizon_hints_at_a_broader_one(door: Door, bench: Workbench) -> None:
    lonely, related = bench.claim(), bench.claim()
    bench.relate(related, "references", bench.put())
    for horizon, hinted in (("ambient", True), ("workspace", True), ("personal", False)):
        assert ("broaden_hint" in listed(door, lonely, horizon=horizon, **REASON)) is hinted, horizon
        assert "broaden_hint" not in listed(door, related, horizon=horizon, **REASON), horizon


@pytest.mark.parametrize("size", [65_536, 65_537])
def test_metadata_are_at_most_64_kib_of_json(door: Door, bench: Workbench, size: int) -> None:
    source, target = bench.claim(), bench.claim("It reached cone 5.")
    edge = edge_input(source, "supports", target) | {"metadata": {"m": "x" * (size - len('{"m":""}'))}}
    if size > 65_536:
        door.refused("INVALID_REQUEST", "relation.put", edge)
    else:
        assert door.ok("relation.put", edge)["metadata"] == edge["metadata"]
