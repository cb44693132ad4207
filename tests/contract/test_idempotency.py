"""Keys, replays, conflicts and the commit counter (machine protocol §1.7, §1.8)."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from .door import Door, EmbeddedDoor, Json
from .fields import INPUTS
from .protocol import COMPLETE_INPUTS, MUTATIONS
from .workbench import Specimens, Workbench, delivery_input, edge_input, entity_ids, projection_input, text

KEY = "kiln-log/12"
CHANGED: dict[str, Json] = {
    "artifact.put": {"title": "another title"},
    "artifact.revise": {"content": text("another body")},
    "artifact.forget": {"reason": "another reason"},
    "claim.assert": {"statement": "Another statement."},
    "claim.revise": {"confidence": 0.61},
    "claim.retract": {"reason": "another reason"},
    "relation.put": {"metadata": {"noticed_by": "day shift"}},
    "source.register": {"name": "Another wiki"},
    "source.ingest": {"title": "Another title"},
    "source.checkpoint": {"health": "healthy"},
    "source.withdraw": {"reason": "another reason"},
    "projection.put": {"text": "another text"},
    "projection.drop": {"reason": "another reason"},
    "feedback.record": {"outcome": "miss"},
}
"""For every mutation one change that would be accepted by itself, or that its state would refuse: the key decides."""
SPELT_DEFAULTS: list[tuple[str, Json]] = [
    ("artifact.put", {"media_type": "text/plain; charset=utf-8"}),
    ("artifact.put", {"provenance": {}}),
    ("artifact.put", {"actor": None}),
    ("artifact.revise", {"provenance": {}}),
    ("claim.assert", {"evidence": []}),
    ("claim.assert", {"valid_from": None}),
    ("claim.revise", {"evidence": []}),
    ("feedback.record", {"retain_query": False}),
]


def minimal(inputs: dict[str, Any], op: str) -> Json:
    """The required members of a complete input."""
    return {name: value for name, value in inputs[op].items() if INPUTS[op][name].when == "required"}


@pytest.mark.fault_class(8)
@pytest.mark.proves("machine-53", "machine-55")
@pytest.mark.parametrize("op", MUTATIONS)
def test_an_exact_repeat_gives_the_original_outcome(door: Door, specimen_inputs: dict[str, Any], op: str) -> None:
    first = door.call(op, specimen_inputs[op], key=KEY, request_id="req_one")
    with door.nothing_written():
        again = door.call(op, specimen_inputs[op], key=KEY, request_id="req_two")
    assert first["result"]["created"] is True
    assert again["result"] == first["result"] | {"created": False}
    assert again["commit_seq"] == first["commit_seq"]
    assert again["request_id"] == "req_two"


@pytest.mark.proves("machine-53")
def test_a_repeated_put_makes_no_second_artifact(door: Door, bench: Workbench) -> None:
    first = bench.put("singular words", how={"key": KEY})
    again = bench.put("singular words", how={"key": KEY})
    assert again["artifact_id"] == first["artifact_id"]
    assert bench.found("singular") == [first["artifact_id"]]


@pytest.mark.proves("machine-55")
@pytest.mark.parametrize("op", MUTATIONS)
def test_the_label_of_the_context_and_the_order_of_members_are_no_part_of_a_request(
    door: Door, specimen_inputs: dict[str, Any], op: str
) -> None:
    first = door.ok(op, specimen_inputs[op], key=KEY, context_source="session")
    reordered = json.loads(json.dumps(specimen_inputs[op]), object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    again = door.ok(op, reordered, key=KEY, context_source="marker", v=1)
    assert again == first | {"created": False}


@pytest.mark.fault_class(10)
@pytest.mark.proves("machine-54")
@pytest.mark.parametrize("op", MUTATIONS)
def test_a_key_with_another_input_is_a_conflict_and_writes_nothing(
    door: Door, specimen_inputs: dict[str, Any], op: str
) -> None:
    door.ok(op, specimen_inputs[op], key=KEY)
    with door.nothing_written():
        error = door.refused("IDEMPOTENCY_CONFLICT", op, specimen_inputs[op] | CHANGED[op], key=KEY)
    assert error["retryable"] is False
    assert error["details"] == {"idempotency_key": KEY}
    assert error["hint"]


@pytest.mark.proves("machine-56")
@pytest.mark.parametrize(("op", "default"), SPELT_DEFAULTS, ids=str)
def test_spelling_out_a_default_makes_another_request(
    door: Door, specimen_inputs: dict[str, Any], op: str, default: Json
) -> None:
    request = minimal(specimen_inputs, op)
    door.ok(op, request, key=KEY)
    door.refused("IDEMPOTENCY_CONFLICT", op, request | default, key=KEY)


@pytest.mark.parametrize(
    ("one", "other"), [(1, 1.0), (0, False), ("1", 1), ({"a": 1}, {"a": 1, "b": None}), ([1, 2], [2, 1])]
)
def test_values_that_differ_in_the_smallest_way_make_another_request(
    door: Door, bench: Workbench, one: Any, other: Any
) -> None:
    bench.put(provenance={"value": one}, how={"key": KEY})
    put = {"kind": "note", "title": "Kiln firing 12", "content": text("cone 6 reached at 21:40")}
    door.refused("IDEMPOTENCY_CONFLICT", "artifact.put", put | {"provenance": {"value": other}}, key=KEY)


@pytest.mark.proves("machine-57")
@pytest.mark.parametrize("op", MUTATIONS)
def test_a_key_of_another_operation_is_a_conflict(
    door: Door, bench: Workbench, specimen_inputs: dict[str, Any], op: str
) -> None:
    if op == "claim.assert":
        bench.put(how={"key": KEY})
    else:
        bench.claim("Of another operation.", how={"key": KEY})
    with door.nothing_written():
        door.refused("IDEMPOTENCY_CONFLICT", op, specimen_inputs[op], key=KEY)


@pytest.mark.proves("machine-58", "machine-59")
@pytest.mark.parametrize(
    "elsewhere", [{"project_id": "prj_other"}, {"workspace_id": "wsp_other"}, {"task_id": "tsk_1"}], ids=str
)
def test_a_key_in_another_namespace_is_another_mutation(door: Door, bench: Workbench, elsewhere: Json) -> None:
    here = bench.put(how={"key": KEY})
    there = bench.put(how={"key": KEY, "context": door.here(**elsewhere)})
    assert here["artifact_id"] != there["artifact_id"]
    assert there["created"] is True


@pytest.mark.proves("machine-59")
@pytest.mark.parametrize("op", MUTATIONS)
@pytest.mark.parametrize("change", [{"component": "sensors"}, {"pins": ["art_A"]}, {"pins": []}], ids=str)
def test_a_key_with_other_pins_or_another_component_is_a_conflict(
    door: Door, specimen_inputs: dict[str, Any], op: str, change: Json
) -> None:
    door.ok(op, specimen_inputs[op], key=KEY)
    if change == {"pins": []}:
        # An omitted default spelt out, inside the context: also another request (consequence 1).
        answer = door.call(op, specimen_inputs[op], key=KEY, context=door.here(**change))
        assert answer["ok"] is False or answer["result"]["created"] is False
        return
    with door.nothing_written():
        door.refused("IDEMPOTENCY_CONFLICT", op, specimen_inputs[op], key=KEY, context=door.here(**change))


@pytest.mark.fault_class(10)
@pytest.mark.proves("machine-58")
@pytest.mark.parametrize("op", MUTATIONS)
def test_a_key_of_another_project_decides_nothing_here(
    door: Door, bench: Workbench, specimen_inputs: dict[str, Any], op: str
) -> None:
    bench.claim("Of another project.", how={"key": KEY, "context": door.here(project_id="prj_other")})
    first = door.ok(op, specimen_inputs[op], key=KEY)
    assert first["created"] is True
    door.refused("IDEMPOTENCY_CONFLICT", op, specimen_inputs[op] | CHANGED[op], key=KEY)


def test_namespaces_whose_ids_join_to_the_same_text_stay_apart(door: Door, bench: Workbench) -> None:
    pairs = [("a\0b", "c"), ("a", "b\0c"), ("a:b", "c"), ("a", "b:c"), ("a/b", "c"), ("a", "b/c")]
    contexts = [door.here(workspace_id=workspace, project_id=project) for workspace, project in pairs]
    contexts += [
        door.here(workspace_id="a", project_id="b", task_id="c"),
        door.here(workspace_id="a", project_id="b\0c\0"),
    ]
    made = [bench.put(how={"key": KEY, "context": context}) for context in contexts]
    assert all(artifact["created"] for artifact in made)
    assert len({artifact["artifact_id"] for artifact in made}) == len(contexts)


@pytest.mark.proves("machine-60")
def test_a_failed_mutation_leaves_its_key_free(door: Door, bench: Workbench) -> None:
    artifact, claim = bench.put(), bench.claim()
    failures: list[tuple[str, str, Json, Json]] = [
        (
            "INVALID_REQUEST",
            "artifact.put",
            {"kind": "note", "title": " ", "content": text("x")},
            {"title": "t"},
        ),
        (
            "REVISION_CONFLICT",
            "artifact.revise",
            {"artifact_id": artifact["artifact_id"], "if_revision": "arev_stale", "content": text("x")},
            {"if_revision": artifact["revision_id"]},
        ),
        (
            "REVISION_CONFLICT",
            "claim.revise",
            {"claim_id": claim["claim_id"], "if_revision": "crev_stale", "statement": "s"},
            {"if_revision": claim["revision_id"]},
        ),
        (
            "NOT_FOUND",
            "claim.assert",
            {
                "claim_type": "fact",
                "statement": "s",
                "evidence": [{"artifact_id": "art_unknown", "revision_id": "arev_unknown"}],
            },
            {"evidence": []},
        ),
        (
            "NOT_FOUND",
            "claim.retract",
            {"claim_id": "clm_unknown", "reason": "r"},
            {"claim_id": claim["claim_id"]},
        ),
        (
            "NOT_FOUND",
            "artifact.forget",
            {"artifact_id": "art_unknown", "reason": "r"},
            {"artifact_id": artifact["artifact_id"]},
        ),
    ]
    source, other = bench.source(), bench.claim("Of the other end.")
    edge = edge_input(other, "supports", artifact)
    failures += [
        ("NOT_FOUND", "relation.put", edge | {"target_id": "art_unknown"}, {"target_id": edge["target_id"]}),
        ("INVALID_REQUEST", "relation.put", edge | {"relation": "contradicts"}, {"relation": "references"}),
        (
            "NOT_FOUND",
            "source.ingest",
            delivery_input({"source_id": "src_unknown"}),
            {"source_id": source["source_id"]},
        ),
        (
            "NOT_FOUND",
            "source.withdraw",
            {"source_id": source["source_id"], "external_id": "page-0", "reason": "r"},
            {"external_id": "page-4"},
        ),
        ("INVALID_REQUEST", "feedback.record", {"query": "?", "outcome": "miss"}, {"query": "cone"}),
    ]
    for number, (code, op, wrong, correction) in enumerate(failures):
        key = f"retry/{op}/{number}"
        with door.nothing_written():
            door.refused(code, op, wrong, key=key)
        assert door.ok(op, wrong | correction, key=key)["created"] is True


def test_a_failure_is_evaluated_afresh_each_time(door: Door, bench: Workbench) -> None:
    artifact = bench.put()
    stale = {"artifact_id": artifact["artifact_id"], "if_revision": "arev_later", "content": text("x")}
    for _ in range(3):
        door.refused("REVISION_CONFLICT", "artifact.revise", stale, key=KEY)


@pytest.mark.proves("machine-61")
def test_a_replayed_revision_of_a_claim_changes_nothing(door: Door, bench: Workbench) -> None:
    claim = bench.claim()
    change = {
        "claim_id": claim["claim_id"],
        "if_revision": claim["revision_id"],
        "statement": "It was cone 5.5.",
    }
    first = door.ok("claim.revise", change, key=KEY)
    before = door.ok("claim.history", {"claim_id": claim["claim_id"]})
    with door.nothing_written():
        assert door.ok("claim.revise", change, key=KEY) == first | {"created": False}
    assert door.ok("claim.history", {"claim_id": claim["claim_id"]}) == before


@pytest.mark.proves("machine-62")
@pytest.mark.parametrize("op", ["artifact.forget", "claim.retract"])
def test_a_replayed_tombstone_gives_the_original_record(door: Door, specimen_inputs: dict[str, Any], op: str) -> None:
    first = door.ok(op, specimen_inputs[op], key=KEY)
    door.refused("INVALID_REQUEST", op, specimen_inputs[op])
    assert door.ok(op, specimen_inputs[op], key=KEY) == first | {"created": False}


@pytest.mark.parametrize("op", [op for op in MUTATIONS if op != "projection.put"])
def test_a_replay_after_the_entity_moved_on_still_gives_the_original_outcome(
    door: Door, bench: Workbench, specimen_inputs: dict[str, Any], op: str
) -> None:
    first = door.ok(op, specimen_inputs[op], key=KEY)
    move_on(bench, op, specimen_inputs[op], first)
    with door.nothing_written():
        assert door.ok(op, specimen_inputs[op], key=KEY) == first | {"created": False}


def move_on(bench: Workbench, op: str, sent: Json, first: Json) -> None:
    """Change whatever the request was about, as far as it can still change."""
    match op:
        case "artifact.put" | "artifact.revise":
            bench.revise(first, "moved on")
            bench.forget(first)
        case "claim.assert" | "claim.revise":
            bench.revise_claim(first, "Moved on.")
            bench.retract(first)
        case "relation.put":
            for end in (first["source_id"], first["target_id"]):
                bench.retract({"claim_id": end})
        case "source.register" | "source.checkpoint":
            bench.ingest(first)
            bench.door.ok("source.checkpoint", {"source_id": first["source_id"], "health": "error"})
        case "source.ingest":
            bench.ingest(first["source"], sent["external_id"], "v10", kind=sent["kind"])
            bench.withdraw(first["source"], sent["external_id"])
        case "source.withdraw":
            bench.ingest(first["source"], sent["external_id"], "v10")
        case "projection.drop":
            projected = {"artifact_id": first["artifact_id"], "revision_id": first["revision_id"]}
            bench.project(projected, projection_key=first["projection_key"], text="put again")


def test_a_projection_is_not_replayed_once_its_revision_is_no_longer_current(
    door: Door, bench: Workbench, specimens: Specimens
) -> None:
    """The one operation that asks for the state before it asks for the key (§4.24)."""
    put = specimens.filled(COMPLETE_INPUTS["projection.put"])
    first = door.ok("projection.put", put, key=KEY)
    changed = door.ok("projection.put", put | {"text": "another text"})
    with door.nothing_written():
        assert door.ok("projection.put", put, key=KEY) == first | {"created": False}
    assert changed["projection_id"] == first["projection_id"]
    artifact = bench.revise(first)
    with door.nothing_written():
        door.refused("REVISION_CONFLICT", "projection.put", put, key=KEY)
    bench.forget(artifact)
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "projection.put", put, key=KEY)


@pytest.mark.proves("machine-65")
def test_a_no_op_is_recorded_under_its_key_like_any_other_outcome(door: Door, bench: Workbench) -> None:
    source, artifact = bench.source(), bench.put()
    item, projection = bench.ingest(source), bench.project(artifact)
    one, other = bench.claim(), bench.claim("It reached cone 5.")
    edge = bench.relate(one, "supports", other)
    dropped = bench.project(artifact, projection_key="dropped")
    drop = {"projection_id": dropped["projection_id"], "reason": "withdrawn"}
    gone = bench.ingest(source, "page-5")
    withdrawal = {"source_id": source["source_id"], "external_id": "page-5", "reason": "deleted"}
    earlier = {
        "projection.drop": (door.ok("projection.drop", drop), drop),
        "source.withdraw": (door.ok("source.withdraw", withdrawal), withdrawal),
        "relation.put": (edge, edge_input(one, "supports", other)),
        "projection.put": (projection, projection_input(artifact) | {"actor": "another agent"}),
        "source.ingest": (item, delivery_input(source)),
    }
    assert gone["commit_seq"] < earlier["source.withdraw"][0]["commit_seq"]
    with door.nothing_written():
        for op, (first, again) in earlier.items():
            no_op = door.succeeded(op, again, key=f"again/{op}")
            assert no_op["result"]["created"] is False, op
            assert no_op["commit_seq"] == no_op["result"]["commit_seq"] == first["commit_seq"], op
            assert door.ok(op, again, key=f"again/{op}") == no_op["result"], op
            door.refused("IDEMPOTENCY_CONFLICT", op, again | CHANGED[op], key=f"again/{op}")


def test_a_replay_survives_a_restart(empty_store: EmbeddedDoor) -> None:
    bench = Workbench(empty_store)
    first = bench.put(how={"key": KEY})
    empty_store.reopen()
    assert bench.put(how={"key": KEY}) == first | {"created": False}


@pytest.mark.proves("machine-63", "machine-64")
def test_commit_numbers_are_dense_from_one_and_failures_take_none(empty_store: EmbeddedDoor) -> None:
    bench = Workbench(empty_store)
    artifact = bench.put(how={"key": KEY})
    numbers = [artifact["commit_seq"]]
    empty_store.refused("NOT_FOUND", "artifact.forget", {"artifact_id": "art_unknown", "reason": "r"})
    bench.put(how={"key": KEY})
    numbers.append(bench.revise(artifact)["commit_seq"])
    stale = {
        "artifact_id": artifact["artifact_id"],
        "if_revision": artifact["revision_id"],
        "content": text("x"),
    }
    empty_store.refused("REVISION_CONFLICT", "artifact.revise", stale)
    claim = bench.claim()
    numbers.append(claim["commit_seq"])
    empty_store.refused("INVALID_REQUEST", "claim.assert", {"claim_type": "fact", "statement": " "})
    numbers.append(bench.revise_claim(claim)["commit_seq"])
    numbers.append(bench.retract(claim)["commit_seq"])
    empty_store.refused("INVALID_REQUEST", "claim.retract", {"claim_id": claim["claim_id"], "reason": "r"})
    numbers.append(bench.forget(artifact)["commit_seq"])
    assert numbers == [1, 2, 3, 4, 5, 6]
    assert empty_store.last_commit_seq() == 6


@pytest.mark.proves("machine-67")
def test_a_search_at_the_commit_of_a_write_shows_the_write(door: Door, bench: Workbench) -> None:
    artifact = bench.put("visible words")
    assert bench.found("visible", min_commit_seq=artifact["commit_seq"]) == [artifact["artifact_id"]]
    claim = bench.claim("Visible words.")
    answer = bench.search("visible", min_commit_seq=claim["commit_seq"])
    assert claim["claim_id"] in entity_ids(answer)


@pytest.mark.proves("machine-67")
def test_a_search_beyond_the_last_commit_is_not_ready(empty_store: EmbeddedDoor) -> None:
    Workbench(empty_store).put()
    error = empty_store.refused("INDEX_NOT_READY", "search", {"query": "cone", "min_commit_seq": 2})
    assert error["retryable"] is True
    assert error["details"] == {"requested_commit_seq": 2, "current_commit_seq": 1}
    assert error["hint"]


@pytest.mark.parametrize("number", [0, -1, -(2**63)])
def test_a_commit_number_at_or_below_zero_asks_for_nothing(bench: Workbench, number: int) -> None:
    assert bench.search("cone", min_commit_seq=number)["hits"] == []


@pytest.mark.parametrize("number", [10**30, 1.5, "1", True, [1], {"$gt": 0}], ids=repr)
def test_a_commit_number_that_is_no_64_bit_integer_is_refused(door: Door, number: Any) -> None:
    door.refused("INVALID_REQUEST", "search", {"query": "cone", "min_commit_seq": number})


@pytest.mark.fault_class(44)
def test_parallel_asserts_are_all_kept_with_dense_commit_numbers(empty_store: EmbeddedDoor) -> None:
    bench = Workbench(empty_store)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda number: bench.claim(f"parallel statement {number}"), range(64)))
    assert sorted(claim["commit_seq"] for claim in made) == list(range(1, 65))
    assert set(bench.found("parallel", limit=100)) == {claim["claim_id"] for claim in made}


@pytest.mark.fault_class(10)
@pytest.mark.fault_class(11)
@pytest.mark.parametrize("op", MUTATIONS)
def test_identical_requests_at_once_are_one_mutation(
    empty_store: EmbeddedDoor, specimen_inputs: dict[str, Any], op: str
) -> None:
    before = empty_store.last_commit_seq()
    body = json.dumps(empty_store.envelope(op, specimen_inputs[op], key=KEY)).encode()
    with ThreadPoolExecutor(8) as pool:
        results = [answer["result"] for answer in pool.map(empty_store.send, [body] * 64)]
    assert sorted(result["created"] for result in results) == [False] * 63 + [True]
    assert len({json.dumps(result | {"created": None}, sort_keys=True) for result in results}) == 1
    assert empty_store.last_commit_seq() == before + 1


@pytest.mark.fault_class(10)
def test_of_different_requests_under_one_key_at_once_one_wins(door: Door) -> None:
    claim = {"claim_type": "fact"}
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda n: door.call("claim.assert", claim | {"statement": f"Version {n}."}, key=KEY), range(8))
        )
    assert sum(answer["ok"] for answer in answers) == 1
    assert {answer["error"]["code"] for answer in answers if not answer["ok"]} == {"IDEMPOTENCY_CONFLICT"}


@pytest.mark.fault_class(45)
def test_of_two_changes_to_one_revision_exactly_one_wins(door: Door, bench: Workbench) -> None:
    artifact = bench.put()
    change = {"artifact_id": artifact["artifact_id"], "if_revision": artifact["revision_id"]}
    with ThreadPoolExecutor(4) as pool:
        answers = list(
            pool.map(lambda n: door.call("artifact.revise", change | {"content": text(f"version {n}")}), range(4))
        )
    won = [answer["result"] for answer in answers if answer["ok"]]
    lost = [answer["error"] for answer in answers if not answer["ok"]]
    assert len(won) == 1
    assert {error["code"] for error in lost} == {"REVISION_CONFLICT"}
    assert all(error["details"]["current_revision"] == won[0]["revision_id"] for error in lost)
    assert bench.get(artifact["artifact_id"])["revision_id"] == won[0]["revision_id"]
