"""Feedback on retrieval: what is kept of a query, and who sees it (machine protocol §4.27 to §4.29)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from .door import Door, EmbeddedDoor, Json
from .protocol import KIB
from .test_scope import OWNERS, VISIBLE
from .workbench import Workbench

RECORD = {"feedback_id", "outcome", "query_fingerprint", "citations", "context", "created_at", "commit_seq"}
ACKNOWLEDGEMENT = RECORD | {"created"}
SECRET = "zweibelfisch"
FEEDBACK: Json = {"query": "which cone did firing 12 reach", "outcome": "useful"}


@pytest.mark.proves("machine-209")
def test_feedback_keeps_a_fingerprint_in_place_of_the_query(door: Door, bench: Workbench) -> None:
    made = bench.feedback(query=f"Where is the {SECRET}?", outcome="miss")
    assert set(made) == ACKNOWLEDGEMENT
    assert made["feedback_id"].startswith("fb_") and len(made["feedback_id"]) == 29
    assert re.fullmatch("[0-9a-f]{64}", made["query_fingerprint"])
    assert (made["outcome"], made["citations"], made["created"]) == ("miss", [], True)
    assert made["context"] == door.context | {"pins": []}
    told = [made, door.ok("feedback.get", {"feedback_id": made["feedback_id"]})]
    told += [door.ok("feedback.list"), door.ok("feedback.export")]
    assert SECRET not in json.dumps(told).lower()


@pytest.mark.proves("machine-209")
def test_a_retained_query_is_kept_as_it_was_written(door: Door, bench: Workbench) -> None:
    query = '  "Firing 12"  CONE-6? \n'
    made = bench.feedback(query=query, retain_query=True)
    assert set(made) == ACKNOWLEDGEMENT | {"retained_query"}
    assert made["retained_query"] == query
    assert made["query_fingerprint"] == bench.feedback(query=query)["query_fingerprint"]
    assert door.ok("feedback.get", {"feedback_id": made["feedback_id"]})["retained_query"] == query


@pytest.mark.proves("machine-209")
@pytest.mark.parametrize(
    "query",
    [
        "Which cone did Firing 12 reach?",
        "which  cone\tdid firing 12 reach",
        "cone firing 12 reach",
        "what cone, firing: 12, reach - cone!",
        "ＣＯＮＥ firing １２ reach",
    ],
)
def test_queries_that_are_read_alike_have_one_fingerprint(door: Door, bench: Workbench, query: str) -> None:
    asked = [FEEDBACK["query"], query]
    first, second = (bench.search(text)["query_analysis"]["normalized_query"] for text in asked)
    assert first == second
    first, second = (bench.feedback(query=text)["query_fingerprint"] for text in asked)
    assert first == second


@pytest.mark.proves("machine-209")
def test_queries_that_are_read_differently_have_different_fingerprints(bench: Workbench) -> None:
    queries = ["cone six", "six cone", '"cone six"', "cone", "cone six seven", "cône six"]
    assert len({bench.feedback(query=query)["query_fingerprint"] for query in queries}) == len(queries)


@pytest.mark.proves("machine-209")
def test_two_stores_have_different_fingerprints_of_one_query(
    empty_store: EmbeddedDoor, bench: Workbench, tmp_path: Path
) -> None:
    first = bench.feedback()["query_fingerprint"]
    other = EmbeddedDoor(tmp_path / "other", empty_store.clock)
    try:
        assert Workbench(other).feedback()["query_fingerprint"] != first
    finally:
        other.close()
    empty_store.reopen()
    assert bench.feedback()["query_fingerprint"] == first


@pytest.mark.proves("machine-209")
def test_the_file_of_the_store_never_held_the_query(empty_store: EmbeddedDoor, bench: Workbench) -> None:
    given = FEEDBACK | {"query": f"where is the {SECRET}", "note": "a note that is kept"}
    made = empty_store.ok("feedback.record", given, key="k")
    assert empty_store.ok("feedback.record", given, key="k") == made | {"created": False}
    empty_store.refused("IDEMPOTENCY_CONFLICT", "feedback.record", given | {"outcome": "stale"}, key="k")
    empty_store.close()
    stored = b"".join(path.read_bytes() for path in empty_store.data_dir.rglob("*") if path.is_file())
    assert b"a note that is kept" in stored
    assert SECRET.encode() not in stored
    empty_store.reopen()


@pytest.mark.proves("machine-210")
def test_the_export_holds_retained_queries_only(door: Door, bench: Workbench) -> None:
    bench.feedback(query="not kept")
    kept = bench.feedback(query="Kept as it IS", retain_query=True, outcome="stale", citations=["x"], note="why")
    bench.feedback(query="not kept either")
    plain = bench.feedback(query="kept too", retain_query=True, actor="potter")
    exported = door.ok("feedback.export")
    assert set(exported) == {"schema_version", "format", "cases", "truncated"}
    assert (exported["schema_version"], exported["format"]) == (1, "memoree_retrieval_feedback_v1")
    assert exported["truncated"] is False
    assert exported["cases"] == [
        {
            "feedback_id": plain["feedback_id"],
            "query": "kept too",
            "outcome": "useful",
            "citations": [],
            "created_at": plain["created_at"],
            "commit_seq": plain["commit_seq"],
        },
        {
            "feedback_id": kept["feedback_id"],
            "query": "Kept as it IS",
            "outcome": "stale",
            "citations": ["x"],
            "note": "why",
            "created_at": kept["created_at"],
            "commit_seq": kept["commit_seq"],
        },
    ]


@pytest.mark.proves("machine-210")
def test_a_page_of_the_export_is_full_whatever_lies_between(door: Door, bench: Workbench) -> None:
    kept = []
    for number in range(4):
        kept.insert(0, bench.feedback(query=f"kept {number}", retain_query=True)["commit_seq"])
        bench.feedback(query=f"not kept {number}")
    first = door.ok("feedback.export", {"limit": 3})
    assert [case["commit_seq"] for case in first["cases"]] == kept[:3]
    assert (first["truncated"], first["next_before_commit_seq"]) == (True, kept[2])
    rest = door.ok("feedback.export", {"limit": 3, "before_commit_seq": kept[2]})
    assert [case["commit_seq"] for case in rest["cases"]] == kept[3:]
    assert rest["truncated"] is False and "next_before_commit_seq" not in rest


def test_a_complete_record_is_read_back_as_it_was_acknowledged(door: Door, bench: Workbench) -> None:
    given: Json = {
        "query": "which cone",
        "outcome": "incorrect",
        "retain_query": True,
        "citations": ["memoree://artifact/art_1@arev_1#0-4", "anything at all", "twice", "twice"],
        "note": "  it was cone 5\n",
        "actor": "agent/kiln",
    }
    made = door.ok("feedback.record", given)
    record = door.ok("feedback.get", {"feedback_id": made["feedback_id"]})
    assert record == {name: value for name, value in made.items() if name != "created"}
    for name in ("outcome", "citations", "note", "actor"):
        assert record[name] == given[name]
    assert door.ok("feedback.list")["feedback"][0] == record


def test_feedback_is_listed_newest_first_and_page_by_page(door: Door, bench: Workbench) -> None:
    made = [bench.feedback(query=f"question {number}")["commit_seq"] for number in range(5)]
    other = {"context": door.here(project_id="prj_elsewhere")}
    bench.feedback(how=other)
    for limit in (1, 2, 4, 5):
        listed: list[int] = []
        page: Json = {"next_before_commit_seq": None}
        while "next_before_commit_seq" in page:
            wanted = {"limit": limit, "before_commit_seq": page["next_before_commit_seq"]}
            page = door.ok("feedback.list", wanted)
            assert 1 <= len(page["feedback"]) <= limit
            assert page["truncated"] is ("next_before_commit_seq" in page)
            listed += [record["commit_seq"] for record in page["feedback"]]
        assert listed == made[::-1]


@pytest.mark.parametrize("op", ["feedback.list", "feedback.export"])
def test_before_the_first_commit_lies_an_empty_page(door: Door, bench: Workbench, op: str) -> None:
    bench.feedback(retain_query=True)
    for cursor in (1, 0, -1, -(2**63)):
        page = door.ok(op, {"before_commit_seq": cursor})
        assert page["truncated"] is False and "next_before_commit_seq" not in page
        assert page.get("feedback", page.get("cases")) == []
    assert door.ok(op, {"before_commit_seq": 2**63 - 1}) == door.ok(op)


@pytest.mark.parametrize("op", ["feedback.list", "feedback.export"])
@pytest.mark.parametrize("fault", [{"limit": 0}, {"limit": 101}, {"limit": -1}, {"before_commit_seq": 2**63}], ids=str)
def test_a_page_has_bounds(door: Door, op: str, fault: Json) -> None:
    door.refused("INVALID_REQUEST", op, fault)


def test_lists_show_what_the_context_sees_without_a_wider_horizon(door: Door, bench: Workbench) -> None:
    owner_of = {}
    for owner, place in OWNERS.items():
        made = bench.feedback(retain_query=True, how={"context": door.here(**place)})
        owner_of[made["feedback_id"]] = owner
    for place, horizon, expected in VISIBLE:
        if horizon != "ambient":
            continue
        here = {"context": door.here(**place)}
        listed = {owner_of[record["feedback_id"]] for record in door.ok("feedback.list", **here)["feedback"]}
        exported = {owner_of[case["feedback_id"]] for case in door.ok("feedback.export", **here)["cases"]}
        assert listed == exported == expected, place
        for feedback_id, owner in owner_of.items():
            wanted = {"feedback_id": feedback_id}
            if owner in expected:
                assert door.ok("feedback.get", wanted, **here)["feedback_id"] == feedback_id
            else:
                door.refused("SCOPE_VIOLATION", "feedback.get", wanted, **here)


def test_unknown_feedback_does_not_exist_anywhere(door: Door) -> None:
    door.refused("NOT_FOUND", "feedback.get", {"feedback_id": "fb_unknown"})


@pytest.mark.parametrize(
    "fault",
    [
        {"query": ""},
        {"query": " ... ?! "},
        {"query": "q" * 8193},
        {"query": "w " * 49},
        {"query": None},
        {"outcome": "good"},
        {"outcome": None},
        {"retain_query": "yes"},
        {"retain_query": None},
        {"citations": ["x"] * 129},
        {"citations": ["x" * 513]},
        {"citations": [" "]},
        {"citations": None},
        {"note": ""},
        {"note": "n" * (64 * KIB + 1)},
        {"actor": " "},
    ],
    ids=lambda fault: str(fault)[:40],
)
def test_feedback_has_bounds(door: Door, fault: Json) -> None:
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "feedback.record", FEEDBACK | fault)


def test_the_largest_feedback_is_taken(door: Door) -> None:
    largest = {
        "query": f"w {'q' * 8190}",
        "outcome": "miss",
        "citations": ["x" * 512] * 128,
        "note": "n" * 64 * KIB,
        "actor": "a" * 1024,
        "retain_query": True,
    }
    made = door.ok("feedback.record", largest)
    assert door.ok("feedback.get", {"feedback_id": made["feedback_id"]})["note"] == largest["note"]


@pytest.mark.parametrize("query", ["", " ... ", f"{SECRET} " * 49, f"{SECRET}{'q' * 8192}"])
def test_a_refused_query_is_not_repeated(door: Door, query: str) -> None:
    error: dict[str, Any] = door.refused("INVALID_REQUEST", "feedback.record", FEEDBACK | {"query": query})
    assert SECRET not in json.dumps(error)


def test_feedback_changes_no_ranking(door: Door, bench: Workbench) -> None:
    for number in range(3):
        bench.claim(f"The {SECRET} was in box {number}.")
    before = bench.search(SECRET)
    for hit in before["hits"]:
        bench.feedback(query=SECRET, outcome="incorrect", citations=[hit["citation"]])
    after = bench.search(SECRET)
    assert [hit["entity_id"] for hit in after["hits"]] == [hit["entity_id"] for hit in before["hits"]]
    assert [hit["score"] for hit in after["hits"]] == pytest.approx([hit["score"] for hit in before["hits"]])
