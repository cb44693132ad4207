"""`memory.retrieve`: recall, and evidence nearby when no claim answers (machine protocol §4.33, contract §5.3)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .answers import recall
from .door import Door, Json
from .near import QUESTION, anchor, artifacts_nearby, claims_nearby, locator, place, quoted
from .workbench import Workbench

ALWAYS = {
    "content_is_untrusted", "presence", "searched_horizon", "query_analysis", "authority", "claims",
    "claims_truncated", "conflicts", "artifact_refs",
}  # fmt: skip
RECOVERY = {
    "retrieval_tier", "original_query_preserved", "reformulation_applied", "available_leads", "returned_references",
    "returned_content_bytes", "references_truncated", "relevance_policy", "suppressed_references",
    "anchor_routed_references", "evidence", "warning",
}  # fmt: skip
CURRENT = "Where do celadon jars dock after the migration of the windmill orchestra?"


def retrieve(bench: Workbench, query: str = QUESTION, **fields: Any) -> Json:
    return bench.door.ok("memory.retrieve", {"query": query} | fields)


def recovery(bench: Workbench, query: str = QUESTION, **fields: Any) -> Json:
    return packet_of(retrieve(bench, query, **fields))


def packet_of(answer: Json) -> Json:
    assert "recovery" in answer
    packet: Json = answer["recovery"]
    return packet


def contents(packet: Json) -> list[str]:
    return [item["content"] for item in packet["evidence"]]


def without(records: list[Json], *names: str) -> list[Json]:
    return [{name: value for name, value in record.items() if name not in names} for record in records]


@pytest.mark.proves("machine-182")
def test_an_answer_is_that_of_recall_without_its_scores(bench: Workbench) -> None:
    quoted(bench, "The celadon jar cracked.", "The celadon jar cracked in the kiln.")
    quoted(bench, "The celadon jar did not crack.", "The celadon jar is whole.")
    bench.relate(bench.claim("The celadon jar broke."), "contradicts", bench.claim("The celadon jar held."))
    answer, recalled = retrieve(bench, "celadon jar"), recall(bench, "celadon jar")
    assert set(answer) == ALWAYS
    assert answer["presence"] == recalled["presence"] == "claims"
    assert len(answer["claims"]) == 4
    assert answer["claims"] == without(recalled["claims"], "score", "matched_by")
    assert answer["artifact_refs"] == without(recalled["artifact_refs"], "status", "score", "matched_by")
    assert len(answer["conflicts"]) == 1
    for name in ("claims_truncated", "conflicts", "query_analysis"):
        assert answer[name] == recalled[name]
    assert answer["searched_horizon"] == "ambient"
    assert answer["content_is_untrusted"] is True


@pytest.mark.proves("machine-182")
def test_a_claim_that_answers_leaves_nothing_to_recover(bench: Workbench) -> None:
    quoted(bench, "The celadon jar cracked.", "It cracked.")
    quoted(bench, "A jar of celery.", "A jar.", title="Near")
    assert [lead["title"] for lead in bench.door.ok("memory.probe", {"query": "celadon jar"})["leads"]][:1] == ["Near"]
    answer = retrieve(bench, "celadon jar")
    assert (answer["presence"], len(answer["claims"]), set(answer)) == ("claims", 1, ALWAYS)


@pytest.mark.proves("machine-182")
def test_the_limits_of_recall_hold(bench: Workbench) -> None:
    for number in range(4):
        bench.put(f"Celadon {number} " + "lay on the shelf. " * 10)
        bench.claim(f"The celadon {number} cracked.")
    answer = retrieve(bench, "celadon", max_claims=2, max_artifact_refs=1, max_excerpt_bytes=20)
    assert (len(answer["claims"]), answer["claims_truncated"]) == (2, True)
    (ref,) = answer["artifact_refs"]
    assert len(ref["excerpt"].encode()) <= 20


def test_the_answer_names_its_state_and_instant(bench: Workbench) -> None:
    bench.claim("The celadon cracked.")
    answer = bench.door.ok("memory.retrieve", {"query": "celadon", "min_commit_seq": 1})
    authority = answer["authority"]
    assert authority["memory_snapshot_commit_seq"] >= 1
    assert authority["retrieved_at"].endswith("Z")
    assert authority["qualification_policy"] == "deterministic_authority_only_v1"
    assert authority["recovery_policy"] == "unqualified_exact_evidence_v1"
    assert authority["current_source_rule"]
    assert len(authority) == 5
    bench.door.refused("INDEX_NOT_READY", "memory.retrieve", {"query": "celadon", "min_commit_seq": 2**40})


@pytest.mark.proves("machine-183")
def test_weak_claims_give_a_packet_of_exact_evidence(door: Door, bench: Workbench) -> None:
    _, artifact = quoted(bench, "Jar 7 is celadon.", "The celadon jar 7 cracked.", title="Inspection of jar 7")
    answer = retrieve(bench)
    packet = packet_of(answer)
    assert (answer["presence"], answer["claims"], answer["artifact_refs"]) == ("none", [], [])
    assert set(packet) == RECOVERY
    assert packet["evidence"] == [
        {
            "retrieval_tier": "unqualified_evidence",
            "title": "Inspection of jar 7",
            "citation": place(artifact, 0, 26),
            "content": "The celadon jar 7 cracked.",
            "media_type": "text/plain; charset=utf-8",
            "truncated": False,
        }
    ]
    assert packet == packet | {
        "retrieval_tier": "unqualified_evidence",
        "original_query_preserved": True,
        "reformulation_applied": False,
        "available_leads": 1,
        "returned_references": 1,
        "returned_content_bytes": 26,
        "references_truncated": False,
        "relevance_policy": "recovery_lexical_relation_v1",
        "suppressed_references": 0,
        "anchor_routed_references": 0,
    }


@pytest.mark.proves("machine-183")
def test_a_packet_is_bounded_and_every_citation_gives_its_bytes_back(door: Door, bench: Workbench) -> None:
    for number in range(10):
        quoted(bench, f"Jar {number} is celadon.", f"Celadon {number}. " + "é" * 1500, title=f"Jar {number}")
    packet = recovery(bench)
    assert packet["returned_references"] == len(packet["evidence"]) == 8 <= 9
    assert (packet["available_leads"], packet["references_truncated"]) == (10, True)
    sizes = [len(item["content"].encode()) for item in packet["evidence"]]
    assert sum(sizes) == packet["returned_content_bytes"] <= 12_288
    assert set(sizes) <= {1535, 1536}
    for item in packet["evidence"]:
        assert (item["retrieval_tier"], item["truncated"]) == ("unqualified_evidence", True)
        cited = door.ok("citation.get", {"citation": item["citation"]}, context=None)
        assert (cited["content"], cited["citation"]) == (item["content"], item["citation"])


@pytest.mark.proves("machine-183")
@pytest.mark.parametrize(
    ("bytes_max", "sizes"), [(12_288, [20, 20, 20]), (45, [20, 20, 5]), (43, [20, 20]), (20, [20]), (4, [4]), (3, [])]
)
def test_the_byte_budget_is_for_all_references_together(bench: Workbench, bytes_max: int, sizes: list[int]) -> None:
    for number in range(3):
        quoted(bench, f"Jar {number} is celadon.", f"Celadon jar number {number}")
    packet = recovery(bench, max_recovery_bytes=bytes_max)
    read = packet["returned_references"] + packet["suppressed_references"]
    assert read == len(sizes)
    assert packet["returned_content_bytes"] <= sum(sizes)
    assert packet["references_truncated"] is (read < 3)
    if bytes_max > 43:
        assert [len(item["content"]) for item in packet["evidence"]][:2] == sizes[:2]


def test_at_most_as_many_leads_are_followed(bench: Workbench) -> None:
    for number in range(4):
        quoted(bench, f"Jar {number} is celadon.", f"Celadon {number}.")
    packet = recovery(bench, max_recovery_leads=3)
    assert (packet["available_leads"], packet["returned_references"]) == (4, 3)
    assert packet["references_truncated"] is True


def test_a_lead_gives_the_first_of_its_places_that_can_be_read(bench: Workbench) -> None:
    artifact = bench.put("é Celadon ash glaze.")
    evidence = [locator(artifact, 0, 1), locator(artifact, 3, 10), locator(artifact, 11, 20)]
    bench.claim("The celadon cracked.", evidence=evidence)
    packet = recovery(bench)
    assert contents(packet) == ["Celadon"]
    assert packet["references_truncated"] is True


def test_evidence_that_is_no_text_is_not_recovered(bench: Workbench) -> None:
    artifact = bench.put(b"\xff\xfe celadon", title="Scan")
    bench.claim("The celadon cracked.", evidence=[locator(artifact, 0, 10)])
    packet = recovery(bench)
    assert (packet["evidence"], packet["references_truncated"]) == ([], True)


@pytest.mark.proves("machine-184", "retrieval-80")
def test_a_question_about_the_present_recovers_nothing(bench: Workbench) -> None:
    sentence = "Ferry destination is west-pier."
    quoted(bench, sentence, sentence, title="Old berth")
    answer = retrieve(bench, "Where do loaded ferry convoys dock after the migration?")
    assert answer["query_analysis"]["retrieval_profile"]["intent_hint"] == "current_source"
    assert (answer["presence"], "recovery" in answer) == ("none", False)
    assert answer["next_action"]["reason"] == "no_qualified_match"
    assert contents(recovery(bench, "Where do loaded ferry convoys dock after the equinox?")) == [sentence]
    assert retrieve(bench, "What is currently the ferry destination west-pier?")["presence"] == "claims"


@pytest.mark.proves("machine-184")
def test_the_question_and_not_its_reformulation_is_about_the_present(bench: Workbench) -> None:
    quoted(bench, "Jar 7 is celadon.", "The celadon jar 7 cracked.")
    asked = "celadon windmill orchestra currently"
    assert "recovery" not in retrieve(bench, asked, reformulation="celadon glacier harpoon")
    assert "recovery" in retrieve(bench, QUESTION, reformulation=f"{QUESTION} currently")


@pytest.mark.proves("machine-185")
def test_artifacts_that_nothing_was_claimed_about_never_feed_the_packet(bench: Workbench) -> None:
    artifacts_nearby(bench, 4)
    packet = recovery(bench)
    assert (packet["available_leads"], packet["evidence"]) == (4, [])
    assert (packet["returned_references"], packet["suppressed_references"]) == (0, 0)
    assert packet["references_truncated"] is False


@pytest.mark.proves("retrieval-78")
def test_a_claim_that_cites_a_whole_revision_gives_no_bytes(bench: Workbench) -> None:
    artifact = bench.put("The celadon cracked.", title="Untouched")
    bench.claim("The celadon cracked.", evidence=[locator(artifact)])
    packet = recovery(bench)
    assert (packet["evidence"], packet["references_truncated"]) == ([], False)


@pytest.mark.proves("retrieval-79")
def test_evidence_that_shares_no_word_with_the_question_is_withheld(bench: Workbench) -> None:
    quoted(bench, "The celadon settles.", "Backoff doubles each time.")
    answer = retrieve(bench, "celadon windmill orchestra glacier harpoon anvil")
    packet = packet_of(answer)
    assert (answer["presence"], packet["evidence"], packet["suppressed_references"]) == ("none", [], 1)
    assert (packet["returned_references"], packet["returned_content_bytes"]) == (0, 0)
    assert "Backoff" not in json.dumps(answer)


@pytest.mark.parametrize(
    ("query", "body"),
    [
        ("firings windmill orchestra glacier harpoon", "It was fired twice."),
        ("firings windmill orchestra glacier harpoon", "CELADON FIRING LOG"),
        ("fermé windmill orchestra glacier harpoon", "Ferme."),
        ("用户身份 windmill orchestra glacier harpoon", "这里保存用户数据。"),
        ("สวัสดี windmill orchestra glacier harpoon", "คำว่า สวัสดี"),
        ("журнал windmill orchestra glacier harpoon", "ЖУРНАЛ печи"),
        ("kiln_limit_09 windmill orchestra glacier harpoon", "KILN_LIMIT_09 is 1280."),
    ],
)
def test_words_meet_in_any_inflection_and_script(bench: Workbench, query: str, body: str) -> None:
    quoted(bench, query.split()[0], body, title="untitled")
    assert contents(recovery(bench, query)) == [body]


@pytest.mark.proves("retrieval-81")
def test_artifacts_that_answer_do_not_stand_in_for_a_claim(bench: Workbench) -> None:
    bench.put("The celadon windmill orchestra plays by the glacier.", title="Playbill")
    quoted(bench, "Harpoon numbers are painted.", "A harpoon was painted.", title="Paint")
    answer = retrieve(bench)
    assert answer["presence"] == "artifacts_only"
    assert answer["next_action"]["reason"] == "artifacts_without_claims"
    assert contents(packet_of(answer)) == ["A harpoon was painted."]


@pytest.mark.proves("retrieval-82", "machine-186")
def test_a_reformulation_is_another_question(door: Door) -> None:
    for text in ("cone six", " cone six\n", "", "  \t", "é" * 4097, "???", " ".join(f"w{n}" for n in range(49))):
        door.refused("INVALID_REQUEST", "memory.retrieve", {"query": "cone six", "reformulation": text})
    error = door.refused("INVALID_REQUEST", "memory.retrieve", {"query": "cone six", "reformulation": "???"})
    assert error["message"].startswith("input.reformulation:")
    door.ok("memory.retrieve", {"query": "cone six", "reformulation": "cone 6"})


@pytest.mark.proves("machine-186")
def test_limits_beyond_their_bounds_are_refused(door: Door) -> None:
    bounds = {
        "max_recovery_leads": (1, 8),
        "max_recovery_bytes": (1, 12_288),
        "max_claims": (1, 10),
        "max_artifact_refs": (1, 20),
        "max_excerpt_bytes": (1, 1024),
    }
    for name, (least, most) in bounds.items():
        for value in (least - 1, most + 1, 2**32):
            door.refused("INVALID_REQUEST", "memory.retrieve", {"query": "cone", name: value})
        for value in (least, most):
            door.ok("memory.retrieve", {"query": "cone", name: value})
    for unknown in ("include_historical", "max_candidate_claims", "limit"):
        door.refused("INVALID_REQUEST", "memory.retrieve", {"query": "cone", unknown: 1})


@pytest.mark.proves("retrieval-82")
def test_a_reformulation_finds_evidence_and_qualifies_nothing(bench: Workbench) -> None:
    quoted(bench, "Jar 7 cracked in the kiln.", "Jar 7 cracked.", title="Inspection")
    asked = "windmill orchestra"
    assert "recovery" not in retrieve(bench, asked)
    answer = retrieve(bench, asked, reformulation="jar seven cracked kiln windmill orchestra harpoon")
    assert (answer["presence"], answer["claims"]) == ("none", [])
    assert contents(packet_of(answer)) == ["Jar 7 cracked."]
    assert answer["recovery"]["reformulation_applied"] is True


@pytest.mark.proves("retrieval-82")
def test_a_reformulation_that_a_claim_would_answer_leads_to_its_evidence_and_no_further(bench: Workbench) -> None:
    quoted(bench, "Jar 7 cracked in the kiln.", "Jar 7 cracked.", title="Inspection")
    perfect = "Jar 7 cracked in the kiln"
    assert retrieve(bench, perfect)["presence"] == "claims"
    answer = retrieve(bench, "windmill orchestra", reformulation=perfect)
    assert (answer["presence"], answer["claims"]) == ("none", [])
    assert contents(packet_of(answer)) == ["Jar 7 cracked."]
    assert packet_of(answer)["evidence"][0]["retrieval_tier"] == "unqualified_evidence"


def test_without_a_claim_the_next_action_is_to_ask_in_stored_words(bench: Workbench) -> None:
    answer = retrieve(bench, 'what about "slow lane" and DOCK-GATE-77 traffic')
    assert set(answer) == ALWAYS | {"next_action"}
    detail = answer["next_action"].pop("detail")
    assert "query" in detail
    assert answer["next_action"] == {
        "policy_version": "retrieval_next_action_v1",
        "reason": "no_qualified_match",
        "action": "requery_with_stored_vocabulary",
        "unmatched_units": ["slow lane", "dock gate 77", "traffic"],
        "stored_vocabulary": [],
    }


def test_evidence_that_an_anchor_leads_to_needs_no_shared_word_and_comes_first(bench: Workbench) -> None:
    quoted(bench, "Jar 7 is celadon.", "A celadon jar.", title="Near")
    claim, artifact = quoted(bench, "Backoff doubles.", "Backoff doubles each time it runs.", title="Anchored")
    anchor(bench, artifact, claim, "orchestra")
    answer = retrieve(bench)
    packet = packet_of(answer)
    assert answer["presence"] == "none"
    assert [item["title"] for item in packet["evidence"]] == ["Anchored", "Near"]
    assert (packet["anchor_routed_references"], packet["suppressed_references"]) == (1, 0)
    assert answer["next_action"]["stored_vocabulary"] == ["backoff", "doubles", "each", "runs", "time"]


def test_stored_vocabulary_has_at_most_twelve_words_that_were_not_asked(bench: Workbench) -> None:
    body = "orchestras cat " + " ".join(f"word{number:02}" for number in range(20))
    claim, artifact = quoted(bench, "Backoff doubles.", body)
    anchor(bench, artifact, claim, "orchestra")
    answer = retrieve(bench)
    assert answer["next_action"]["stored_vocabulary"] == [f"word{number:02}" for number in range(12)]


def test_forgotten_sources_give_no_bytes(door: Door, bench: Workbench) -> None:
    _, artifact = quoted(bench, "Jar 7 is celadon.", "The celadon jar 7 cracked.", title="Inspection of jar 7")
    assert contents(recovery(bench)) == ["The celadon jar 7 cracked."]
    bench.forget(artifact)
    answer = retrieve(bench)
    assert packet_of(answer)["evidence"] == []
    assert "cracked" not in json.dumps(answer)
    assert "Inspection" not in json.dumps(answer)
    cited = door.ok("citation.get", {"citation": place(artifact, 0, 26)}, context=None)
    assert cited["content"] == "The celadon jar 7 cracked."


def test_recovery_never_looks_beyond_the_horizon(door: Door, bench: Workbench) -> None:
    sibling = {"context": door.here(project_id="prj_sibling")}
    artifact = bench.put("A celadon jar.", how=sibling)
    bench.claim("Jar 7 is celadon.", evidence=[locator(artifact, 0, 14)], how=sibling)
    assert "recovery" not in retrieve(bench)
    door.refused("INVALID_REQUEST", "memory.retrieve", {"query": QUESTION, "horizon": "workspace"})
    wide = retrieve(bench, horizon="workspace", reason="compare")
    assert (wide["searched_horizon"], contents(packet_of(wide))) == ("workspace", ["A celadon jar."])


def test_a_profile_has_timings_and_counts_and_no_content(bench: Workbench) -> None:
    quoted(bench, "Jar 7 is celadon.", "The celadon jar 7 cracked.", title="Inspection of jar 7")
    claims_nearby(bench, 1)
    answer = retrieve(bench, profile=True)
    profile = answer.pop("profile")
    assert answer == retrieve(bench) | {"authority": answer["authority"]}
    times = {name: profile.pop(name) for name in ("total_ms", "recall_ms", "probe_ms", "citation_fetch_ms")}
    assert min(times.values()) > 0
    assert times["total_ms"] >= times["recall_ms"] + times["probe_ms"] + times["citation_fetch_ms"]
    assert profile == {
        "policy_version": "content_free_retrieval_profile_v2",
        "qualified_claim_count": 0,
        "qualified_artifact_count": 0,
        "recovery_reference_count": 1,
        "semantic_state": "disabled",
        "reranker_state": "disabled",
        "breaker_open": False,
    }
    answered = retrieve(bench, "celadon", profile=True)["profile"]
    assert answered["qualified_claim_count"] == 2
    assert answered["probe_ms"] == answered["citation_fetch_ms"] == 0
