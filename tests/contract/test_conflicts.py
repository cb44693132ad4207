"""Conflict cases: how they open, go stale and are resolved (machine protocol §4.18, §6; assertions of §9.7)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from .door import Door, EmbeddedDoor, Json, ManualClock
from .workbench import Workbench, edge_input

REASON: Json = {"reason": "compare with the other studio"}
CASE = {
    "case_id", "relation_id", "state", "source", "target", "metadata", "context", "opened_at", "updated_at",
    "opened_commit_seq", "case_sequence",
}  # fmt: skip


def everything(bench: Workbench) -> list[Json]:
    return bench.conflicts(include_stale=True)


def read(door: Door, claim: Json, revision_id: str | None = None) -> Json:
    return door.ok("claim.get", {"claim_id": claim["claim_id"], "revision_id": revision_id}, context=None)


def frozen(case: Json) -> tuple[str, str]:
    return case["source"]["frozen"]["revision_id"], case["target"]["frozen"]["revision_id"]


def states(bench: Workbench) -> list[str]:
    return [case["state"] for case in everything(bench)]


def cases_of(bench: Workbench, *expected: str) -> list[Json]:
    """Every case there is to see, newest first, which must be in these states."""
    cases = everything(bench)
    assert [case["state"] for case in cases] == list(expected)
    return cases


def open_case(bench: Workbench) -> Json:
    """What is listed by default, which must be one case."""
    cases = bench.conflicts()
    assert len(cases) == 1
    return cases[0]


@pytest.mark.proves("machine-130")
def test_a_contradiction_opens_one_case_over_both_current_revisions(door: Door, bench: Workbench) -> None:
    source = bench.claim("It reached cone 6.")
    target = bench.claim("It reached cone 5.")
    source, target = bench.revise_claim(source, "Cone 6."), bench.revise_claim(target, "Cone 5.")
    made = bench.relate(source, "contradicts", target, metadata={"noticed_by": "night shift"})
    assert (bench.status(source), bench.status(target)) == ("conflicted", "conflicted")
    case = open_case(bench)
    assert CASE <= set(case) <= CASE | {"state_reason"}
    assert case["case_id"].startswith("ccase_") and len(case["case_id"]) == 32
    assert (case["relation_id"], case["state"]) == (made["relation_id"], "open")
    assert case["metadata"] == {"noticed_by": "night shift"}
    assert case["context"] == door.context | {"pins": []}
    assert case["opened_commit_seq"] == made["commit_seq"]
    assert case["opened_at"] == case["updated_at"] == made["created_at"]
    for end, claim in (("source", source), ("target", target)):
        current = read(door, claim)
        assert case[end] == {
            "claim_id": claim["claim_id"],
            "frozen": current,
            "current": current,
            "frozen_is_current": True,
        }


@pytest.mark.fault_class(42)
@pytest.mark.proves("machine-131")
@pytest.mark.parametrize("revised", ["source", "target"])
def test_a_revision_makes_the_case_stale_and_opens_its_successor(door: Door, bench: Workbench, revised: str) -> None:
    source, target, edge = bench.contradiction()
    before = open_case(bench)
    claim = source if revised == "source" else target
    head = bench.revise_claim(claim, "Revised.")
    assert head["status"] == "conflicted"
    assert (bench.status(source), bench.status(target)) == ("conflicted", "conflicted")
    opened, stale = cases_of(bench, "open", "stale")
    assert (stale["case_id"], stale["state"]) == (before["case_id"], "stale")
    assert (stale["opened_commit_seq"], stale["case_sequence"]) == (edge["commit_seq"], before["case_sequence"])
    assert frozen(stale) == (source["revision_id"], target["revision_id"])
    assert opened["state"] == "open"
    assert opened["case_id"] != stale["case_id"]
    assert opened["case_sequence"] > stale["case_sequence"]
    assert opened["relation_id"] == stale["relation_id"] == edge["relation_id"]
    assert opened["opened_commit_seq"] == head["commit_seq"]
    assert opened["opened_at"] == stale["updated_at"] == head["revision_created_at"]
    expected = {"source": source["revision_id"], "target": target["revision_id"]} | {revised: head["revision_id"]}
    assert frozen(opened) == (expected["source"], expected["target"])
    assert door.last_commit_seq() == head["commit_seq"] or not door.owns_store, "the revision is one commit"


@pytest.mark.proves("machine-132")
def test_a_stale_case_shows_what_it_froze_beside_what_is_current(door: Door, bench: Workbench) -> None:
    source, target, _ = bench.contradiction()
    head = bench.revise_claim(source, "Revised.", confidence=0.5)
    _, stale = cases_of(bench, "open", "stale")
    end = stale["source"]
    assert end["frozen_is_current"] is False
    assert end["frozen"] == read(door, source, source["revision_id"])
    assert end["current"] == read(door, source)
    assert (end["frozen"]["statement"], end["current"]["statement"]) == ("It reached cone 6.", "Revised.")
    assert end["current"]["revision_id"] == head["revision_id"]
    assert "confidence" not in end["frozen"]
    assert stale["target"]["frozen_is_current"] is True
    assert stale["target"]["frozen"] == stale["target"]["current"] == read(door, target)
    assert "revis" in stale["state_reason"].lower()


@pytest.mark.proves("machine-132")
def test_what_a_case_froze_shows_the_present_lifecycle(door: Door, bench: Workbench) -> None:
    source, target, _ = bench.contradiction()
    bench.revise_claim(source, "Revised.")
    bench.retract(source, "the thermocouple was faulty")
    (stale,) = cases_of(bench, "stale")
    for shown in (stale["source"]["frozen"], stale["source"]["current"]):
        assert (shown["status"], shown["retraction_reason"]) == ("retracted", "the thermocouple was faulty")
    assert stale["target"]["frozen"]["status"] == bench.status(target) == "active"


@pytest.mark.proves("machine-133")
def test_only_open_cases_are_listed_by_default(door: Door, bench: Workbench) -> None:
    source, _, _ = bench.contradiction()
    bench.revise_claim(source, "Revised.")
    default = open_case(bench)
    assert default["state"] == "open"
    assert bench.conflicts(include_stale=False) == [default]
    answer = door.ok("conflict.list")
    assert (answer["horizon"], answer["include_stale"]) == ("ambient", False)
    assert states(bench) == ["open", "stale"]


@pytest.mark.proves("machine-134")
def test_two_revisions_leave_three_cases_of_which_one_is_open(bench: Workbench) -> None:
    source, target, edge = bench.contradiction()
    second = bench.revise_claim(source, "Second.")
    third = bench.revise_claim(second, "Third.")
    cases = everything(bench)
    assert [case["state"] for case in cases] == ["open", "stale", "stale"]
    assert len({case["case_id"] for case in cases}) == 3
    assert [case["source"]["frozen"]["revision_id"] for case in cases] == [
        third["revision_id"],
        second["revision_id"],
        source["revision_id"],
    ]
    assert {case["target"]["frozen"]["revision_id"] for case in cases} == {target["revision_id"]}
    assert {case["relation_id"] for case in cases} == {edge["relation_id"]}


@pytest.mark.proves("machine-131", "machine-134")
def test_revising_both_ends_never_opens_two_cases_of_one_relation(bench: Workbench) -> None:
    source, target, _ = bench.contradiction()
    for number in range(3):
        source = bench.revise_claim(source, f"Source {number}.")
        target = bench.revise_claim(target, f"Target {number}.")
    cases = everything(bench)
    assert [case["state"] for case in cases] == ["open"] + ["stale"] * 6
    assert frozen(cases[0]) == (source["revision_id"], target["revision_id"])
    assert len({frozen(case) for case in cases}) == 7
    sequences = [case["case_sequence"] for case in cases]
    assert sequences == sorted(sequences, reverse=True)


@pytest.mark.proves("machine-61")
def test_a_replayed_revision_opens_no_further_case(door: Door, bench: Workbench) -> None:
    source, _, _ = bench.contradiction()
    change = {"claim_id": source["claim_id"], "if_revision": source["revision_id"], "statement": "Revised."}
    first = door.ok("claim.revise", change, key="revision")
    before = everything(bench)
    with door.nothing_written():
        assert door.ok("claim.revise", change, key="revision") == first | {"created": False}
    assert everything(bench) == before


@pytest.mark.proves("machine-135")
@pytest.mark.parametrize("retracted", [0, 1])
def test_a_retraction_resolves_the_case_and_frees_the_other_end(bench: Workbench, retracted: int) -> None:
    ends = bench.contradiction()[:2]
    assert bench.retract(ends[retracted])["status"] == "retracted"
    assert bench.status(ends[1 - retracted]) == "active"
    assert everything(bench) == []


@pytest.mark.proves("machine-136")
@pytest.mark.parametrize("superseded", [0, 1])
def test_a_supersession_resolves_the_case_and_frees_the_other_end(bench: Workbench, superseded: int) -> None:
    ends = bench.contradiction()[:2]
    bench.relate(bench.claim("It reached cone 7."), "supersedes", ends[superseded])
    assert (bench.status(ends[superseded]), bench.status(ends[1 - superseded])) == ("superseded", "active")
    assert everything(bench) == []


@pytest.mark.proves("machine-136")
def test_one_end_may_supersede_the_other(bench: Workbench) -> None:
    source, target, _ = bench.contradiction()
    bench.relate(target, "supersedes", source)
    assert (bench.status(source), bench.status(target)) == ("superseded", "active")
    assert everything(bench) == []


@pytest.mark.proves("machine-137")
def test_a_claim_stays_conflicted_as_long_as_one_case_is_open(bench: Workbench) -> None:
    claim, first, _ = bench.contradiction()
    second = bench.claim("It reached cone 7.")
    edge = bench.relate(claim, "contradicts", second)
    bench.retract(first)
    assert (bench.status(claim), bench.status(second)) == ("conflicted", "conflicted")
    case = open_case(bench)
    assert case["relation_id"] == edge["relation_id"]
    bench.relate(bench.claim("It reached cone 8."), "supersedes", second)
    assert bench.status(claim) == "active"
    assert bench.conflicts() == []


@pytest.mark.proves("machine-137")
def test_revising_the_middle_of_two_contradictions_moves_both_cases(bench: Workbench) -> None:
    middle, left, _ = bench.contradiction()
    right = bench.claim("It reached cone 7.")
    bench.relate(right, "contradicts", middle)
    head = bench.revise_claim(middle, "Revised.")
    opened = bench.conflicts()
    assert {frozen(case) for case in opened} == {
        (head["revision_id"], left["revision_id"]),
        (right["revision_id"], head["revision_id"]),
    }
    assert {case["opened_commit_seq"] for case in opened} == {head["commit_seq"]}
    assert sorted(states(bench)) == ["open", "open", "stale", "stale"]
    assert [bench.status(each) for each in (left, middle, right)] == ["conflicted"] * 3


def test_the_cases_that_one_revision_opens_keep_the_order_of_those_they_replace(bench: Workbench) -> None:
    """The contract leaves that order open; a random program found that it showed."""
    shared, left, right = (bench.claim(f"It reached cone {cone}.") for cone in (5, 6, 7))
    older = bench.relate(left, "contradicts", shared)
    newer = bench.relate(right, "contradicts", shared)
    bench.revise_claim(left, "Revised.")
    assert [case["relation_id"] for case in bench.conflicts()] == [older["relation_id"], newer["relation_id"]]
    bench.revise_claim(shared, "Revised.")
    assert [case["relation_id"] for case in bench.conflicts()] == [older["relation_id"], newer["relation_id"]]


@pytest.mark.proves("machine-138")
@pytest.mark.parametrize("ended", [0, 1])
def test_a_contradiction_both_ways_is_two_cases_which_end_together(bench: Workbench, ended: int) -> None:
    ends = bench.contradiction()[:2]
    bench.relate(ends[1], "contradicts", ends[0])
    opened = bench.conflicts()
    assert len(opened) == len({case["relation_id"] for case in opened}) == 2
    assert [case["source"]["claim_id"] for case in opened] == [ends[1]["claim_id"], ends[0]["claim_id"]]
    bench.retract(ends[ended])
    assert everything(bench) == []
    assert bench.status(ends[1 - ended]) == "active"


@pytest.mark.proves("machine-139")
@pytest.mark.parametrize("ended", ["retracted", "superseded"])
def test_revising_against_a_terminal_end_opens_no_case(bench: Workbench, ended: str) -> None:
    claim, other, _ = bench.contradiction()
    if ended == "retracted":
        bench.retract(other)
    else:
        bench.relate(bench.claim("It reached cone 7."), "supersedes", other)
    assert bench.revise_claim(claim, "Revised.")["status"] == "active"
    assert (bench.status(claim), bench.status(other)) == ("active", ended)
    assert everything(bench) == []


@pytest.mark.proves("machine-139")
def test_a_stale_case_of_a_terminal_claim_stays_stale(bench: Workbench) -> None:
    claim, other, _ = bench.contradiction()
    head = bench.revise_claim(claim, "Revised.")
    bench.retract(other)
    bench.revise_claim(head, "Revised again.")
    assert states(bench) == ["stale"]


@pytest.mark.fault_class(24)
@pytest.mark.fault_class(27)
@pytest.mark.proves("machine-140")
def test_cases_are_listed_in_their_task_and_page_from_the_newest(door: Door, bench: Workbench) -> None:
    tasks = [{"context": door.here(task_id=f"tsk_{number}")} for number in (1, 2)]
    edges = [bench.contradiction(how=how)[2]["relation_id"] for how in tasks]
    for how, edge in zip(tasks, edges, strict=True):
        assert [case["relation_id"] for case in bench.conflicts(how=how)] == [edge]
    assert [case["relation_id"] for case in bench.conflicts()] == edges[::-1]
    elsewhere = {"context": door.here(project_id="prj_sibling")}
    assert bench.conflicts(how=elsewhere) == []
    first = door.ok("conflict.list", {"horizon": "workspace", "limit": 1} | REASON, **elsewhere)
    assert [case["relation_id"] for case in first["conflicts"]] == [edges[1]]
    assert first["truncated"] is True
    assert first["next_before_case_sequence"] == first["conflicts"][0]["case_sequence"]
    cursor = {"before_case_sequence": first["next_before_case_sequence"]}
    last = door.ok("conflict.list", {"horizon": "workspace", "limit": 1} | REASON | cursor, **elsewhere)
    assert [case["relation_id"] for case in last["conflicts"]] == [edges[0]]
    assert last["truncated"] is False
    assert "next_before_case_sequence" not in last


@pytest.mark.proves("machine-140")
def test_a_case_is_seen_where_its_relation_is_seen_not_where_its_claims_are(door: Door, bench: Workbench) -> None:
    source, target = bench.claim(), bench.claim("It reached cone 5.")
    bench.relate(source, "contradicts", target, how={"context": door.here(task_id="tsk_1")})
    assert len(bench.conflicts(how={"context": door.here(task_id="tsk_1")})) == 1
    assert bench.conflicts(how={"context": door.here(task_id="tsk_2")}) == []
    assert bench.status(source) == "conflicted"


@pytest.mark.proves("machine-140")
def test_the_stale_and_the_open_page_as_one_list(door: Door, bench: Workbench) -> None:
    source, _, _ = bench.contradiction()
    for number in range(4):
        source = bench.revise_claim(source, f"Revision {number}.")
    seen: list[str] = []
    asked: Json = {"include_stale": True, "limit": 2}
    while True:
        page = door.ok("conflict.list", asked)
        seen += [case["case_id"] for case in page["conflicts"]]
        if not page["truncated"]:
            break
        asked |= {"before_case_sequence": page["next_before_case_sequence"]}
    assert seen == [case["case_id"] for case in everything(bench)]
    assert len(set(seen)) == 5


@pytest.mark.proves("machine-141")
@pytest.mark.parametrize(
    "fault",
    [
        {"limit": 0}, {"limit": 101}, {"limit": None}, {"limit": "10"}, {"before_case_sequence": 0},
        {"before_case_sequence": -1}, {"before_case_sequence": 1.5}, {"include_stale": 1}, {"include_stale": None},
        {"horizon": "global"}, {"include_resolved": True},
    ],
    ids=str,
)  # fmt: skip
def test_a_list_out_of_bounds_is_refused(door: Door, fault: Json) -> None:
    door.refused("INVALID_REQUEST", "conflict.list", fault)
    door.refused("INVALID_REQUEST", "conflict.list", fault, context=None)


@pytest.mark.proves("machine-141")
def test_the_least_cursor_and_the_bounds_of_the_limit_are_accepted(bench: Workbench) -> None:
    bench.contradiction()
    assert bench.conflicts(before_case_sequence=1) == []
    accepted: list[Json] = [{"before_case_sequence": 2**63 - 1}, {"limit": 1}, {"limit": 100}]
    for fits in accepted:
        assert len(bench.conflicts(**fits)) == 1


@pytest.mark.proves("machine-142")
def test_an_empty_page_below_the_personal_horizon_hints_at_a_broader_one(door: Door, bench: Workbench) -> None:
    hinted = {"ambient": True, "workspace": True, "personal": False}
    empty = {"context": door.here(workspace_id="wsp_of_nobody")}
    for horizon, hint in hinted.items():
        page = door.ok("conflict.list", {"horizon": horizon, "before_case_sequence": 1} | REASON, **empty)
        assert (page["conflicts"], "broaden_hint" in page) == ([], hint), horizon
        assert page["truncated"] is False
    bench.contradiction()
    for horizon in hinted:
        page = door.ok("conflict.list", {"horizon": horizon} | REASON)
        assert page["conflicts"] and "broaden_hint" not in page, horizon


@pytest.mark.proves("machine-143")
def test_listing_changes_nothing(door: Door, bench: Workbench) -> None:
    source, target, _ = bench.contradiction()
    bench.revise_claim(source, "Revised.")
    with door.nothing_written():
        first = door.ok("conflict.list", {"include_stale": True})
        for _ in range(3):
            assert door.ok("conflict.list", {"include_stale": True}) == first
    assert (bench.status(source), bench.status(target)) == ("conflicted", "conflicted")


@pytest.mark.proves("machine-144")
def test_no_case_resolves_itself_however_long_it_waits(empty_store: EmbeddedDoor, clock: ManualClock) -> None:
    bench = Workbench(empty_store)
    ends = [
        bench.claim("It reached cone 6.", valid_until="2027-01-01T00:00:00Z"),
        bench.claim("It reached cone 5."),
    ]
    bench.relate(ends[0], "contradicts", ends[1])
    before = everything(bench)
    clock.advance(days=20 * 365)
    assert everything(bench) == before
    bench.put("a write long after")
    empty_store.reopen()
    assert everything(bench) == before
    assert [bench.status(end) for end in ends] == ["conflicted", "conflicted"]


@pytest.mark.proves("machine-145")
def test_a_store_with_every_kind_of_history_verifies(empty_store: EmbeddedDoor) -> None:
    bench = Workbench(empty_store)
    revised, retracted, superseded = (bench.contradiction()[0] for _ in range(3))
    head = bench.revise_claim(revised, "Revised.")
    bench.revise_claim(head, "Revised again.")
    bench.retract(retracted)
    bench.relate(bench.claim("It reached cone 7."), "supersedes", superseded)
    bench.relate(superseded, "duplicates", revised)
    assert sorted(states(bench)) == ["open", "stale", "stale"]
    report = empty_store.ok("verify", context=None)
    assert (report["ok"], report["issues"]) == (True, [])


@pytest.mark.fault_class(42)
def test_a_conflicted_claim_is_found_and_eligible_until_it_ends(bench: Workbench) -> None:
    one, other = bench.claim("Disputable words."), bench.claim("Disputable words, denied.")
    bench.relate(one, "contradicts", other)
    assert {hit["entity_id"]: hit["status"] for hit in bench.search("disputable")["hits"]} == {
        one["claim_id"]: "conflicted",
        other["claim_id"]: "conflicted",
    }
    bench.retract(other)
    assert bench.found("disputable") == [one["claim_id"]]


def test_history_and_old_revisions_show_the_conflict_of_the_present(door: Door, bench: Workbench) -> None:
    source, target, _ = bench.contradiction()
    bench.revise_claim(source, "Revised.")
    revisions = door.ok("claim.history", {"claim_id": source["claim_id"]})["revisions"]
    assert [revision["status"] for revision in revisions] == ["conflicted", "conflicted"]
    assert read(door, source, source["revision_id"])["status"] == "conflicted"
    bench.retract(target)
    revisions = door.ok("claim.history", {"claim_id": source["claim_id"]})["revisions"]
    assert [revision["status"] for revision in revisions] == ["active", "active"]


def test_an_artifact_that_is_forgotten_changes_no_case(bench: Workbench) -> None:
    artifact = bench.put()
    cited: Json = {"evidence": [{"artifact_id": artifact["artifact_id"], "revision_id": artifact["revision_id"]}]}
    source, target = bench.claim(**cited), bench.claim("It reached cone 5.")
    bench.relate(source, "contradicts", target)
    before = bench.conflicts()
    bench.forget(artifact)
    assert bench.conflicts() == before


@pytest.mark.fault_class(15)
def test_ending_one_claim_leaves_the_evidence_and_edges_of_another(door: Door, bench: Workbench) -> None:
    artifact = bench.put()
    cited: Json = {"evidence": [{"artifact_id": artifact["artifact_id"], "revision_id": artifact["revision_id"]}]}
    ended, kept = bench.claim(**cited), bench.claim("It reached cone 5.", **cited)
    edge = bench.relate(kept, "derived_from", artifact)
    bench.relate(ended, "derived_from", artifact)
    before = read(door, kept)
    bench.retract(ended)
    assert read(door, kept) == before
    assert edge["relation_id"] in bench.relations(kept)
    assert bench.get(artifact["artifact_id"])["status"] == "active"


@pytest.mark.fault_class(45)
def test_of_revisions_at_once_one_moves_the_case(door: Door, bench: Workbench) -> None:
    source, _, _ = bench.contradiction()
    change = {"claim_id": source["claim_id"], "if_revision": source["revision_id"]}
    with ThreadPoolExecutor(4) as pool:
        answers = list(
            pool.map(lambda n: door.call("claim.revise", change | {"statement": f"Revision {n}."}), range(4))
        )
    assert sorted(answer["ok"] for answer in answers) == [False, False, False, True]
    assert {answer["error"]["code"] for answer in answers if not answer["ok"]} == {"REVISION_CONFLICT"}
    assert states(bench) == ["open", "stale"]


def test_a_contradiction_that_is_refused_opens_nothing(door: Door, bench: Workbench) -> None:
    source, target, edge = bench.contradiction()
    clash = edge_input(source, "contradicts", target) | {"metadata": {"other": True}}
    door.refused("INVALID_REQUEST", "relation.put", clash)
    assert [case["relation_id"] for case in bench.conflicts()] == [edge["relation_id"]]
