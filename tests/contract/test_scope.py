"""Who sees what: horizons, pins and the write scope (machine protocol §2.5–2.7)."""

from __future__ import annotations

import unicodedata
import uuid
from typing import Any

import pytest

from .door import Door, Json
from .workbench import Workbench, span_of, text

REASON: Json = {"reason": "compare with the other studio"}
OWNERS: dict[str, Json] = {
    "project": {},
    "task 1": {"task_id": "tsk_1"},
    "task 2": {"task_id": "tsk_2"},
    "sibling project": {"project_id": "prj_sibling"},
    "sibling project, same task": {"project_id": "prj_sibling", "task_id": "tsk_1"},
    "other workspace": {"workspace_id": "wsp_elsewhere"},
}
PROJECT = {"project", "task 1", "task 2"}
WORKSPACE = PROJECT | {"sibling project", "sibling project, same task"}
VISIBLE = [
    ({}, "ambient", PROJECT),
    ({"task_id": "tsk_1"}, "ambient", {"project", "task 1"}),
    ({"task_id": "tsk_2"}, "ambient", {"project", "task 2"}),
    ({"task_id": "tsk_3"}, "ambient", {"project"}),
    ({"component": "sensors"}, "ambient", PROJECT),
    ({"project_id": "prj_sibling"}, "ambient", {"sibling project", "sibling project, same task"}),
    ({"workspace_id": "wsp_elsewhere"}, "ambient", {"other workspace"}),
    ({"project_id": "prj_empty"}, "ambient", set()),
    ({}, "workspace", WORKSPACE),
    ({"task_id": "tsk_1"}, "workspace", WORKSPACE),
    ({"project_id": "prj_empty"}, "workspace", WORKSPACE),
    ({"workspace_id": "wsp_elsewhere"}, "workspace", {"other workspace"}),
    ({}, "personal", set(OWNERS)),
    ({"workspace_id": "wsp_nobody", "task_id": "tsk_9"}, "personal", set(OWNERS)),
]


@pytest.fixture
def word() -> str:
    """A word that only this test's entities hold, whatever else the store holds."""
    return f"w{uuid.uuid4().hex}"


@pytest.mark.fault_class(24, 28)
@pytest.mark.proves("machine-40", "machine-41", "machine-42")
def test_a_search_sees_exactly_what_its_horizon_allows(door: Door, bench: Workbench, word: str) -> None:
    owner_of: dict[str, str] = {}
    for owner, place in OWNERS.items():
        how = {"context": door.here(**place)}
        owner_of[bench.put(f"{word} artifact", title="untitled", how=how)["artifact_id"]] = owner
        owner_of[bench.claim(f"{word} claim", how=how)["claim_id"]] = owner
    for place, horizon, expected in VISIBLE:
        answer = bench.search(word, horizon=horizon, limit=100, **REASON, how={"context": door.here(**place)})
        seen = [owner_of[hit["entity_id"]] for hit in answer["hits"]]
        assert sorted(seen) == sorted(2 * list(expected)), (place, horizon)


@pytest.mark.proves("machine-36")
@pytest.mark.parametrize("horizon", ["workspace", "personal"])
@pytest.mark.parametrize(
    "reason", [{}, {"reason": ""}, {"reason": "   "}, {"reason": "\n\t"}, {"reason": None}], ids=str
)
def test_a_broad_horizon_needs_a_reason(door: Door, horizon: str, reason: Json) -> None:
    door.refused("INVALID_REQUEST", "search", {"query": "cone", "horizon": horizon} | reason)


@pytest.mark.proves("machine-36")
def test_a_reason_opens_the_horizon_for_this_request_only(door: Door, bench: Workbench, word: str) -> None:
    bench.put(word, how={"context": door.here(project_id="prj_sibling")})
    answer = door.succeeded("search", {"query": word, "horizon": "workspace"} | REASON)
    assert answer["context"]["broadened"] is True
    assert answer["result"]["horizon"] == "workspace"
    assert len(answer["result"]["hits"]) == 1
    assert bench.search(word)["hits"] == []


@pytest.mark.proves("machine-38")
@pytest.mark.parametrize("reason", ["because", "", " "])
def test_a_reason_at_the_ambient_horizon_is_ignored(door: Door, bench: Workbench, reason: str) -> None:
    bench.put("ignored reason")
    answer = door.succeeded("search", {"query": "ignored", "horizon": "ambient", "reason": reason})
    assert answer["context"]["broadened"] is False
    assert len(answer["result"]["hits"]) == 1


def test_a_reason_of_64_kib_is_the_longest_at_every_horizon(door: Door) -> None:
    for horizon in ("ambient", "workspace", "personal"):
        fits = {"query": "cone", "horizon": horizon, "reason": "é" * 32_768}
        door.ok("search", fits)
        door.refused("INVALID_REQUEST", "search", fits | {"reason": "é" * 32_768 + "r"})


@pytest.mark.proves("machine-39")
@pytest.mark.parametrize("horizon", ["global", "Ambient", "", "*", None, 1, ["ambient"], {"$ne": "ambient"}])
def test_an_unknown_horizon_is_refused(door: Door, horizon: Any) -> None:
    door.refused("INVALID_REQUEST", "search", {"query": "cone", "horizon": horizon} | REASON)


@pytest.mark.proves("machine-43")
def test_only_an_empty_ambient_search_hints_at_broader_horizons(door: Door, bench: Workbench, word: str) -> None:
    bench.put(word, how={"context": door.here(project_id="prj_sibling")})
    empty = bench.search(word)
    assert empty["hits"] == []
    assert empty["broaden_hint"]
    assert "broaden_hint" not in bench.search(word, horizon="workspace", **REASON)
    absent = f"{word}absent"
    assert "broaden_hint" not in bench.search(absent, horizon="workspace", **REASON)
    assert "broaden_hint" not in bench.search(absent, horizon="personal", **REASON)
    bench.put(word)
    assert "broaden_hint" not in bench.search(word)


@pytest.mark.proves("machine-44")
@pytest.mark.parametrize("spelling", ["{a}", "memoree://artifact/{a}"])
def test_a_pin_without_revision_adds_the_current_revision(
    door: Door, bench: Workbench, word: str, spelling: str
) -> None:
    foreign = bench.put(f"{word} first", how={"context": door.here(workspace_id="wsp_elsewhere")})
    head = bench.revise(foreign, f"{word} second", how={"context": door.here(workspace_id="wsp_elsewhere")})
    pinned = {"context": door.here(pins=[spelling.format(a=foreign["artifact_id"])])}
    for horizon in ("ambient", "workspace"):
        hits = bench.search(word, horizon=horizon, **REASON, how=pinned)["hits"]
        assert [hit["revision_id"] for hit in hits] == [head["revision_id"]], horizon
        assert bench.bytes_at(hits[0]) == f"{word} second".encode()
    assert bench.found(word) == []


@pytest.mark.proves("machine-45")
@pytest.mark.parametrize("spelling", ["{a}@{r}", "memoree://artifact/{a}@{r}"])
def test_a_pin_with_revision_adds_exactly_that_revision(door: Door, bench: Workbench, word: str, spelling: str) -> None:
    there = {"context": door.here(workspace_id="wsp_elsewhere")}
    old = bench.put(f"{word} first", how=there)
    bench.revise(old, f"{word} second", how=there)
    pinned = {"context": door.here(pins=[spelling.format(a=old["artifact_id"], r=old["revision_id"])])}
    for horizon in ("ambient", "workspace"):
        hits = bench.search(word, horizon=horizon, **REASON, how=pinned)["hits"]
        assert [hit["revision_id"] for hit in hits] == [old["revision_id"]], horizon
        assert span_of(hits[0]) is not None
        assert bench.bytes_at(hits[0]) == f"{word} first".encode()


@pytest.mark.proves("machine-45")
def test_a_pinned_old_revision_stands_beside_the_visible_current_one(door: Door, bench: Workbench, word: str) -> None:
    old = bench.put(f"{word} first")
    head = bench.revise(old, f"{word} second")
    pinned = {"context": door.here(pins=[f"{old['artifact_id']}@{old['revision_id']}"])}
    hits = bench.search(word, how=pinned)["hits"]
    assert {hit["revision_id"] for hit in hits} == {old["revision_id"], head["revision_id"]}


@pytest.mark.proves("machine-46")
def test_a_pin_that_pairs_an_artifact_with_a_foreign_revision_adds_nothing(
    door: Door, bench: Workbench, word: str
) -> None:
    there = {"context": door.here(workspace_id="wsp_elsewhere")}
    one, two = bench.put(f"{word} one", how=there), bench.put(f"{word} two", how=there)
    pinned = {"context": door.here(pins=[f"{one['artifact_id']}@{two['revision_id']}"])}
    assert bench.found(word, how=pinned) == []


@pytest.mark.parametrize(
    "pin",
    [
        "{a}@",
        "@{r}",
        "{a}@{r}@{r}",
        "{a}#0-4",
        "artifact:{a}",
        "memoree://claim/{a}",
        "%",
        "*",
        "'; --",
        "{a} ",
    ],
)
def test_a_pin_that_does_not_parse_is_ignored(door: Door, bench: Workbench, word: str, pin: str) -> None:
    foreign = bench.put(word, how={"context": door.here(workspace_id="wsp_elsewhere")})
    spelt = pin.format(a=foreign["artifact_id"], r=foreign["revision_id"])
    assert bench.found(word, how={"context": door.here(pins=[spelt])}) == []


def test_a_claim_cannot_be_pinned(door: Door, bench: Workbench, word: str) -> None:
    claim = bench.claim(word, how={"context": door.here(workspace_id="wsp_elsewhere")})
    pins = [claim["claim_id"], f"{claim['claim_id']}@{claim['revision_id']}"]
    assert bench.found(word, how={"context": door.here(pins=pins)}) == []


def test_a_pin_does_not_bring_a_forgotten_artifact_back(door: Door, bench: Workbench, word: str) -> None:
    gone = bench.put(word)
    bench.forget(gone)
    for pin in (gone["artifact_id"], f"{gone['artifact_id']}@{gone['revision_id']}"):
        assert bench.found(word, how={"context": door.here(pins=[pin])}) == []


@pytest.mark.proves("machine-47")
def test_a_pin_makes_an_artifact_readable_and_never_writable(door: Door, bench: Workbench) -> None:
    foreign = bench.put(how={"context": door.here(project_id="prj_sibling")})
    pinned = {"context": door.here(pins=[foreign["artifact_id"]])}
    revision = {
        "artifact_id": foreign["artifact_id"],
        "if_revision": foreign["revision_id"],
        "content": text("x"),
    }
    with door.nothing_written():
        error = door.refused("SCOPE_VIOLATION", "artifact.revise", revision, **pinned)
        door.refused(
            "SCOPE_VIOLATION",
            "artifact.forget",
            {"artifact_id": foreign["artifact_id"], "reason": "r"},
            **pinned,
        )
    assert error["hint"]
    assert bench.get(foreign["artifact_id"])["status"] == "active"


@pytest.mark.parametrize(
    ("owner", "writer", "allowed"),
    [
        ({}, {}, True),
        ({}, {"task_id": "tsk_1"}, True),
        ({"task_id": "tsk_1"}, {}, True),
        ({"task_id": "tsk_1"}, {"task_id": "tsk_1"}, True),
        ({"component": "a"}, {"component": "b"}, True),
        ({"task_id": "tsk_1"}, {"task_id": "tsk_2"}, False),
        ({}, {"project_id": "prj_sibling"}, False),
        ({}, {"workspace_id": "wsp_elsewhere"}, False),
        ({"task_id": "tsk_1"}, {"project_id": "prj_sibling", "task_id": "tsk_1"}, False),
    ],
    ids=str,
)
def test_the_write_scope_is_the_project_and_a_compatible_task(
    door: Door, bench: Workbench, owner: Json, writer: Json, allowed: bool
) -> None:
    home, where = {"context": door.here(**owner)}, door.here(**writer)
    artifact, claim = bench.put("a secret body", how=home), bench.claim("a secret statement", how=home)
    attempts: list[tuple[str, Json]] = [
        (
            "artifact.revise",
            {
                "artifact_id": artifact["artifact_id"],
                "if_revision": artifact["revision_id"],
                "content": text("x"),
            },
        ),
        ("artifact.forget", {"artifact_id": artifact["artifact_id"], "reason": "r"}),
        (
            "claim.revise",
            {"claim_id": claim["claim_id"], "if_revision": claim["revision_id"], "statement": "s"},
        ),
        ("claim.retract", {"claim_id": claim["claim_id"], "reason": "r"}),
    ]
    for op, change in attempts:
        if allowed:
            assert door.ok(op, change, context=where)["context"] == home["context"] | {"pins": []}
        else:
            with door.nothing_written():
                error = door.refused("SCOPE_VIOLATION", op, change, context=where)
            assert "secret" not in error["message"]


def test_an_unknown_id_is_not_found_and_no_scope_violation(door: Door) -> None:
    revision = {"artifact_id": "art_unknown", "if_revision": "arev_x", "content": text("x")}
    door.refused("NOT_FOUND", "artifact.revise", revision)
    door.refused("NOT_FOUND", "artifact.forget", {"artifact_id": "art_unknown", "reason": "r"})
    claim = {"claim_id": "clm_unknown", "if_revision": "crev_x", "statement": "s"}
    door.refused("NOT_FOUND", "claim.revise", claim)
    door.refused("NOT_FOUND", "claim.retract", {"claim_id": "clm_unknown", "reason": "r"})


@pytest.mark.fault_class(23, 26)
@pytest.mark.parametrize("member", ["workspace_id", "project_id", "task_id"])
def test_scopes_that_resemble_each_other_stay_apart(door: Door, bench: Workbench, word: str, member: str) -> None:
    alike = [
        "test_user",
        "test_user1",
        "a",
        "a1",
        "a_",
        "A",
        "a%",
        "%",
        "_",
        "*",
        "' OR 1=1--",
        "a\0",
        "a\0b",
    ]
    alike += [unicodedata.normalize(form, "á") for form in ("NFC", "NFD")]
    owned = {
        name: bench.put(word, title="untitled", how={"context": door.here(**{member: name})})["artifact_id"]
        for name in alike
    }
    for name, artifact_id in owned.items():
        assert bench.found(word, limit=100, how={"context": door.here(**{member: name})}) == [artifact_id], name
