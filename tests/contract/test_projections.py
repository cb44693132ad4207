"""Projections: derived text bound to exact spans of one revision (machine protocol §4.24 to §4.26)."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from .door import Door, Json, ManualClock
from .workbench import Workbench, projection_input, span_of, text

PROJECTION_RECORD = {
    "projection_id", "artifact_id", "revision_id", "projection_key", "kind", "text", "evidence_spans", "generator",
    "generator_version", "generator_digest", "metadata", "status", "created_at", "updated_at", "commit_seq",
}  # fmt: skip
"""Members that are always present, §4.24."""
KEY = "proj/glaze/1"


def spans(*bounds: tuple[int, int]) -> list[Json]:
    return [{"start_byte": start, "end_byte": end} for start, end in bounds]


def listed(door: Door, artifact: Json, **fields: Any) -> list[Json]:
    page = door.ok("projection.list", {"artifact_id": artifact["artifact_id"]} | fields)
    projections: list[Json] = page["projections"]
    return projections


def drop_input(projection: Json, **fields: Any) -> Json:
    return {"projection_id": projection["projection_id"], "reason": "the summariser was withdrawn"} | fields


def test_a_projection_is_acknowledged_and_listed(door: Door, bench: Workbench) -> None:
    artifact = bench.put()
    wanted = projection_input(artifact) | {
        "evidence_spans": spans((0, 4), (4, 6), (9, 10)),
        "metadata": {"temperature": {"celsius": 0}, "none": None},
        "actor": "agent/kiln",
    }
    answer = door.succeeded("projection.put", wanted)
    projection = answer["result"]
    assert set(projection) == PROJECTION_RECORD | {"actor", "created"}
    assert projection["projection_id"].startswith("proj_")
    assert {name: projection[name] for name in wanted} == wanted
    assert (projection["status"], projection["created"]) == ("active", True)
    assert projection["commit_seq"] == answer["commit_seq"]
    assert projection["created_at"] == projection["updated_at"]
    record = {name: value for name, value in projection.items() if name != "created"}
    page = door.ok("projection.list", {"artifact_id": artifact["artifact_id"]})
    assert page == {"artifact_id": artifact["artifact_id"], "projections": [record], "truncated": False}


@pytest.mark.proves("machine-205")
def test_what_only_a_projection_says_leads_to_the_raw_span_and_qualifies_nothing(bench: Workbench) -> None:
    artifact = bench.put("cone 6 reached at 21:40")
    projection = bench.project(artifact, text="celadon tenmoku")
    (hit,) = bench.search("celadon tenmoku", min_commit_seq=projection["commit_seq"])["hits"]
    assert (hit["entity_id"], hit["excerpt"], span_of(hit)) == (artifact["artifact_id"], "cone", (0, 4))
    assert hit["ranking"]["qualified"] is False
    assert "tenmoku" not in json.dumps(bench.search("cone", include_historical=True)["hits"])


@pytest.mark.proves("machine-206")
@pytest.mark.parametrize(
    "wrong",
    [
        [], spans(*((at, at + 1) for at in range(65))), spans((0, 0)), spans((5, 4)), spans((0, 1025)),
        spans((1999, 2001)), spans((2000, 2001)), spans((5_000, 5_001)), spans((0, 4), (3, 5)), spans((4, 6), (0, 4)),
        spans((0, 4), (0, 4)), spans((0, 9), (2, 4)), spans((-1, 4)), spans((0, 2**63)), spans((2**63, 2**63 + 1)),
        [{"start_byte": 0}], "0-4", [[0, 4]], [{"start_byte": 0.0, "end_byte": 4}],
    ],
    ids=lambda wrong: str(wrong)[:40],
)  # fmt: skip
def test_spans_that_are_no_exact_pieces_in_order_are_refused(door: Door, bench: Workbench, wrong: Any) -> None:
    artifact = bench.put("x" * 2_000)
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "projection.put", projection_input(artifact) | {"evidence_spans": wrong})


@pytest.mark.proves("machine-206")
@pytest.mark.parametrize(
    "right",
    [
        spans((0, 1024)), spans((976, 2000)), spans((1999, 2000)), spans((0, 1), (1, 2)),
        spans((0, 1000), (1000, 2000)), spans(*((at, at + 1) for at in range(64))),
    ],
    ids=lambda right: str(right)[:40],
)  # fmt: skip
def test_spans_may_touch_and_reach_the_end(bench: Workbench, right: list[Json]) -> None:
    artifact = bench.put("x" * 2_000)
    assert bench.project(artifact, evidence_spans=right)["evidence_spans"] == right


def test_spans_are_of_bytes_whatever_the_bytes_are(bench: Workbench) -> None:
    inside_a_character = spans((1, 3), (5, 7))
    assert bench.project(bench.put("👩🏽‍💻 naïve"), evidence_spans=inside_a_character)["status"] == "active"
    binary = bench.put(b"\xff\xd8\xff\xe0" * 4, media_type="image/jpeg")
    assert bench.project(binary, text="a kiln at night", evidence_spans=spans((0, 16)))["status"] == "active"


@pytest.mark.parametrize(
    "fault",
    [
        {"artifact_id": ""}, {"revision_id": "r" * 257}, {"projection_key": " "}, {"projection_key": "p" * 4097},
        {"kind": "k" * 129}, {"text": ""}, {"text": "t" * 65_537}, {"generator": " "},
        {"generator_version": "v" * 4097}, {"generator_digest": None}, {"metadata": {"m": "x" * 65_536}},
        {"actor": " "},
    ],
    ids=lambda fault: str(fault)[:32],
)  # fmt: skip
def test_a_projection_out_of_bounds_is_refused(door: Door, bench: Workbench, fault: Json) -> None:
    longest = dict.fromkeys(("projection_key", "generator", "generator_version", "generator_digest"), "é" * 2048)
    wanted = projection_input(bench.put()) | longest | {"kind": "k" * 128, "text": "t" * 65_536, "actor": "a" * 1_024}
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "projection.put", wanted | fault)
    assert door.ok("projection.put", wanted)["text"] == wanted["text"]


@pytest.mark.proves("machine-207")
def test_a_projection_is_put_on_the_current_revision_only(door: Door, bench: Workbench) -> None:
    first = bench.put()
    done = bench.project(first, how={"key": KEY})
    head = bench.revise(first, "revised at night")
    with door.nothing_written():
        for key in (KEY, "another"):
            error = door.refused("REVISION_CONFLICT", "projection.put", projection_input(first), key=key)
            assert error["details"] == {
                "entity_type": "artifact",
                "entity_id": first["artifact_id"],
                "current_revision": head["revision_id"],
                "requested_revision": first["revision_id"],
            }
    assert bench.project(head)["created"] is True
    assert listed(door, first, revision_id=first["revision_id"])[0]["projection_id"] == done["projection_id"]


@pytest.mark.proves("machine-207")
def test_a_forgotten_or_withdrawn_artifact_takes_no_projection(door: Door, bench: Workbench) -> None:
    forgotten = bench.put()
    bench.project(forgotten, how={"key": KEY})
    bench.forget(forgotten)
    source = bench.source()
    withdrawn = bench.ingest(source)["artifact"]
    bench.withdraw(source)
    with door.nothing_written():
        for artifact, key in ((forgotten, KEY), (forgotten, "another"), (withdrawn, "a third")):
            door.refused("INVALID_REQUEST", "projection.put", projection_input(artifact), key=key)
    (kept,) = listed(door, forgotten)
    assert kept["status"] == "active"
    assert door.ok("projection.drop", drop_input(kept))["status"] == "dropped"


CHANGES: list[Json] = [
    {"text": "blue cobalt glaze"},
    {"kind": "alias"},
    {"evidence_spans": spans((0, 5))},
    {"generator": "other"},
    {"generator_version": "4"},
    {"generator_digest": "sha256:01ff"},
    {"metadata": {"a": 1.0, "b": [True]}},
    {"metadata": {"a": 1, "b": [1]}},
]


@pytest.mark.proves("machine-208")
def test_the_same_payload_again_is_a_no_op(door: Door, bench: Workbench) -> None:
    artifact = bench.put()
    metadata = {"a": 1, "b": [True]}
    first = bench.project(artifact, metadata=metadata, actor="agent/kiln")
    reordered = dict(reversed(metadata.items()))
    with door.nothing_written():
        for actor in ("agent/kiln", "agent/other"):
            assert bench.project(artifact, metadata=reordered, actor=actor) == first | {"created": False}
    (kept,) = listed(door, artifact)
    assert kept["actor"] == "agent/kiln"


@pytest.mark.proves("machine-208")
@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_another_payload_replaces_in_place(door: Door, bench: Workbench, change: Json) -> None:
    artifact = bench.put()
    first = bench.project(artifact, metadata={"a": 1, "b": [True]}, actor="agent/kiln")
    wanted = {"metadata": {"a": 1, "b": [True]}} | change
    second = bench.project(artifact, **wanted)
    assert (second["projection_id"], second["created_at"]) == (first["projection_id"], first["created_at"])
    assert second["created"] is False
    assert second["commit_seq"] > first["commit_seq"]
    assert {name: second[name] for name in change} == change
    assert "actor" not in second
    assert listed(door, artifact) == [{name: value for name, value in second.items() if name != "created"}]


@pytest.mark.proves("machine-208")
@pytest.mark.parametrize("change", [{}, {"text": "blue cobalt glaze"}], ids=str)
def test_a_dropped_projection_is_revived_in_place(door: Door, bench: Workbench, change: Json) -> None:
    artifact = bench.put()
    first = bench.project(artifact)
    dropped = door.ok("projection.drop", drop_input(first))
    revived = bench.project(artifact, **change)
    assert revived == first | change | {
        "commit_seq": revived["commit_seq"],
        "updated_at": revived["updated_at"],
        "created": False,
    }
    assert revived["commit_seq"] > dropped["commit_seq"]


def test_a_key_is_an_identity_within_its_revision_only(door: Door, bench: Workbench) -> None:
    first = bench.put()
    made = [bench.project(first), bench.project(first, projection_key="title"), bench.project(bench.put())]
    made.append(bench.project(bench.revise(first)))
    assert all(projection["created"] for projection in made)
    assert len({projection["projection_id"] for projection in made}) == 4
    assert len(listed(door, first)) == 3


def test_dropping_says_why_and_keeps_the_record(door: Door, bench: Workbench) -> None:
    artifact = bench.put()
    projection = bench.project(artifact, actor="agent/kiln")
    answer = door.succeeded("projection.drop", drop_input(projection))
    dropped = answer["result"]
    assert set(dropped) == PROJECTION_RECORD | {"dropped_reason", "created"}
    assert (dropped["status"], dropped["dropped_reason"]) == ("dropped", "the summariser was withdrawn")
    assert dropped["text"] == projection["text"]
    assert dropped["created"] is True
    assert answer["commit_seq"] == dropped["commit_seq"] > projection["commit_seq"]
    with door.nothing_written():
        again = door.ok("projection.drop", drop_input(projection, reason="another", actor="another"))
    assert again == dropped | {"created": False}
    assert listed(door, artifact) == [{name: value for name, value in dropped.items() if name != "created"}]


@pytest.mark.parametrize(
    "fault", [{"reason": None}, {"reason": " "}, {"reason": "r" * 65_537}, {"actor": " "}, {"projection_id": ""}],
    ids=lambda fault: str(fault)[:24],
)  # fmt: skip
def test_a_drop_out_of_bounds_is_refused(door: Door, bench: Workbench, fault: Json) -> None:
    wanted = drop_input(bench.project(bench.put()), reason="r" * 65_536)
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "projection.drop", wanted | fault)
    assert door.ok("projection.drop", wanted)["dropped_reason"] == wanted["reason"]


def test_a_list_shows_those_touched_last_first_and_then_by_id(door: Door, bench: Workbench, clock: ManualClock) -> None:
    artifact = bench.put()
    together = [bench.project(artifact, projection_key=f"key {number}") for number in range(3)]
    clock.advance(seconds=1)
    later = bench.project(artifact, projection_key="later")
    clock.advance(seconds=1)
    touched = door.ok("projection.drop", drop_input(together[1]))
    expected = [touched, later, *sorted((together[0], together[2]), key=lambda each: str(each["projection_id"]))]
    assert [each["projection_id"] for each in listed(door, artifact)] == [each["projection_id"] for each in expected]
    page = door.ok("projection.list", {"artifact_id": artifact["artifact_id"], "limit": 2})
    assert [each["projection_id"] for each in page["projections"]] == [
        touched["projection_id"],
        later["projection_id"],
    ]
    assert page["truncated"] is True
    assert door.ok("projection.list", {"artifact_id": artifact["artifact_id"], "limit": 4})["truncated"] is False


def test_a_list_may_keep_to_one_revision(door: Door, bench: Workbench) -> None:
    first = bench.put()
    old = bench.project(first)
    head = bench.revise(first)
    new = bench.project(head)
    for revision, projection in ((first, old), (head, new)):
        wanted = {"artifact_id": first["artifact_id"], "revision_id": revision["revision_id"]}
        page = door.ok("projection.list", wanted)
        assert page["revision_id"] == revision["revision_id"]
        assert [each["projection_id"] for each in page["projections"]] == [projection["projection_id"]]
    assert {each["projection_id"] for each in listed(door, first)} == {old["projection_id"], new["projection_id"]}
    other = bench.put()
    wanted = {"artifact_id": first["artifact_id"], "revision_id": other["revision_id"]}
    door.refused("NOT_FOUND", "projection.list", wanted)
    assert listed(door, other) == []


def test_a_list_ends_early_rather_than_not_fit_into_a_frame(door: Door, bench: Workbench) -> None:
    artifact = bench.put()
    escaped_sixfold = "\0" * 65_535 + "x"
    for number in range(60):
        bench.project(artifact, projection_key=f"key {number}", text=escaped_sixfold)
    page = door.ok("projection.list", {"artifact_id": artifact["artifact_id"]})
    assert page["truncated"] is True
    assert 50 <= len(page["projections"]) < 60


@pytest.mark.parametrize("limit", [0, -1, 101, 1.5, "1", True], ids=repr)
def test_a_list_has_1_to_100_items(door: Door, bench: Workbench, limit: Any) -> None:
    wanted = {"artifact_id": bench.put()["artifact_id"]}
    door.refused("INVALID_REQUEST", "projection.list", wanted | {"limit": limit})
    door.ok("projection.list", wanted | {"limit": 100})


def test_projections_keep_to_the_scope_of_their_artifact(door: Door, bench: Workbench) -> None:
    home = {"context": door.here(task_id="tsk_glaze")}
    artifact = bench.put(how=home)
    projection = bench.project(artifact, how=home)
    requests = {
        "projection.put": projection_input(artifact),
        "projection.list": {"artifact_id": artifact["artifact_id"]},
        "projection.drop": drop_input(projection),
    }
    with door.nothing_written():
        for op, wanted in requests.items():
            for away in ({"project_id": "prj_other"}, {"task_id": "tsk_other"}):
                context = door.here(task_id="tsk_glaze") | away | {"pins": [artifact["artifact_id"]]}
                door.refused("SCOPE_VIOLATION", op, wanted, context=context)
            name = "projection_id" if op == "projection.drop" else "artifact_id"
            door.refused("NOT_FOUND", op, wanted | {name: "unknown"}, context=door.here(project_id="prj_other"))
    for op, wanted in requests.items():
        door.ok(op, wanted, context=door.here())


def test_put_judges_in_the_order_of_the_contract(door: Door, bench: Workbench) -> None:
    artifact = bench.put("four")
    bench.put(how={"key": KEY})
    stale = projection_input(artifact) | {"evidence_spans": spans((0, 5))}
    current = projection_input(bench.revise(artifact, "nine bytes")) | {"evidence_spans": spans((0, 99))}
    away = {"context": door.here(project_id="prj_other"), "key": KEY}
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "projection.put", stale | {"artifact_id": "art_x", "text": " "}, **away)
        door.refused(
            "INVALID_REQUEST", "projection.put", stale | {"artifact_id": "art_x", "evidence_spans": []}, **away
        )
        door.refused("NOT_FOUND", "projection.put", stale | {"artifact_id": "art_x"}, **away)
        door.refused("NOT_FOUND", "projection.put", stale | {"revision_id": "arev_x"}, **away)
        door.refused("SCOPE_VIOLATION", "projection.put", stale, **away)
        door.refused("REVISION_CONFLICT", "projection.put", stale, key=KEY)
        door.refused("INVALID_REQUEST", "projection.put", current, key=KEY)
        door.refused("IDEMPOTENCY_CONFLICT", "projection.put", current | {"evidence_spans": spans((0, 9))}, key=KEY)
    bench.forget(artifact)
    with door.nothing_written():
        door.refused("SCOPE_VIOLATION", "projection.put", stale, **away)
        door.refused("INVALID_REQUEST", "projection.put", stale, key=KEY)


def test_drop_judges_existence_then_scope_then_the_key(door: Door, bench: Workbench) -> None:
    projection = bench.project(bench.put())
    bench.put(how={"key": KEY})
    away = {"context": door.here(project_id="prj_other"), "key": KEY}
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "projection.drop", {"projection_id": "proj_x", "reason": " "}, **away)
        door.refused("NOT_FOUND", "projection.drop", {"projection_id": "proj_x", "reason": "r"}, **away)
        door.refused("SCOPE_VIOLATION", "projection.drop", drop_input(projection), **away)
        door.refused("IDEMPOTENCY_CONFLICT", "projection.drop", drop_input(projection), key=KEY)


def test_replays_answer_the_first_outcome_while_the_revision_is_current(door: Door, bench: Workbench) -> None:
    artifact = bench.put()
    wanted = projection_input(artifact)
    first = door.ok("projection.put", wanted, key=KEY)
    dropped = door.ok("projection.drop", drop_input(first), key="drop")
    bench.project(artifact, text="blue cobalt glaze")
    with door.nothing_written():
        assert door.ok("projection.put", wanted, key=KEY) == first | {"created": False}
        assert door.ok("projection.drop", drop_input(first), key="drop") == dropped | {"created": False}
    (kept,) = listed(door, artifact)
    assert kept["text"] == "blue cobalt glaze"


def test_64_equal_puts_at_once_are_one_projection(door: Door, bench: Workbench) -> None:
    artifact = bench.put()
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: bench.project(artifact), range(64)))
    assert sum(answer["created"] for answer in answers) == 1
    assert len({json.dumps(answer | {"created": False}, sort_keys=True) for answer in answers}) == 1
    assert len(listed(door, artifact)) == 1


def test_puts_that_race_a_revision_never_land_on_the_old_one_afterwards(door: Door, bench: Workbench) -> None:
    artifact = bench.put()
    change = {"artifact_id": artifact["artifact_id"], "if_revision": artifact["revision_id"], "content": text("later")}

    def send(number: int) -> Json:
        if number == 8:
            return door.call("artifact.revise", change)
        return door.call("projection.put", projection_input(artifact) | {"projection_key": f"key {number}"})

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(send, range(16)))
    revised = answers.pop(8)["commit_seq"]
    assert all(answer["commit_seq"] < revised for answer in answers if answer["ok"])
    assert {answer["error"]["code"] for answer in answers if not answer["ok"]} <= {"REVISION_CONFLICT"}
