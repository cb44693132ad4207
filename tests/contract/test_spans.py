"""Spans are bytes, half-open, everywhere (machine protocol §0.2, §4.0.2, §4.8, §4.24): every pair of offsets into a
text of characters of one to four bytes, against each operation that takes a span."""

from __future__ import annotations

from typing import Any

import pytest

from .door import Door, Json
from .workbench import Workbench, projection_input

MIXED = "👩🏽‍💻 naïve 漢字\r\n"
BODY = MIXED.encode()
BOUNDARIES = {len(MIXED[:count].encode()) for count in range(len(MIXED) + 1)}
OFFSETS = range(len(BODY) + 2)
PAIRS = [(start, end) for start in OFFSETS for end in OFFSETS]
INSIDE = [(start, end) for start, end in PAIRS if start < end <= len(BODY)]
WRONG = [pair for at in OFFSETS for pair in ((at, at), (at + 1, at), (at, len(BODY) + 1))]
"""Empty, reversed, and past the end."""
EVIDENCE_ITEMS_MAX = 128


@pytest.fixture
def artifact(bench: Workbench) -> Json:
    return bench.put(MIXED)


def span(start: Any, end: Any) -> Json:
    return {"start_byte": start, "end_byte": end}


def evidence(artifact: Json, *pairs: tuple[int, int]) -> Json:
    revision = {"artifact_id": artifact["artifact_id"], "revision_id": artifact["revision_id"]}
    return {
        "claim_type": "fact",
        "statement": "It was naïve.",
        "evidence": [revision | span(*pair) for pair in pairs],
    }


def test_the_text_has_characters_of_every_length() -> None:
    assert {len(character.encode()) for character in MIXED} == {1, 2, 3, 4}
    assert len(BOUNDARIES) < len(BODY)


def test_evidence_may_cut_a_character_and_is_kept_as_it_was_cited(door: Door, artifact: Json) -> None:
    """Early validation is not required (§11, 15), so every span inside the revision is accepted."""
    for first in range(0, len(INSIDE), EVIDENCE_ITEMS_MAX):
        claim = evidence(artifact, *INSIDE[first : first + EVIDENCE_ITEMS_MAX])
        assert door.ok("claim.assert", claim)["evidence"] == claim["evidence"]


@pytest.mark.parametrize("op", ["claim.assert", "claim.revise"])
def test_evidence_outside_of_the_revision_is_refused(door: Door, bench: Workbench, artifact: Json, op: str) -> None:
    head = bench.claim()
    revised = {"claim_id": head["claim_id"], "if_revision": head["revision_id"]} if op == "claim.revise" else {}
    with door.nothing_written():
        for pair in WRONG:
            claim = evidence(artifact, pair) | revised
            if revised:
                del claim["claim_type"]
            door.refused("INVALID_REQUEST", op, claim)


def test_a_projection_may_be_cut_at_every_byte(door: Door, bench: Workbench, artifact: Json) -> None:
    for cut in range(1, len(BODY)):
        pieces = [span(0, cut), span(cut, len(BODY))]
        assert bench.project(artifact, evidence_spans=pieces)["evidence_spans"] == pieces
    projection = projection_input(artifact)
    with door.nothing_written():
        for pair in WRONG:
            door.refused("INVALID_REQUEST", "projection.put", projection | {"evidence_spans": [span(*pair)]})


def test_a_citation_gives_whole_characters_or_says_why_not(door: Door, artifact: Json) -> None:
    revision = f"memoree://artifact/{artifact['artifact_id']}@{artifact['revision_id']}"
    for start, end in PAIRS:
        citation = f"{revision}#{start}-{end}"
        answer = door.call("citation.get", {"citation": citation}, context=None)
        if start >= end or end > len(BODY):
            assert answer["error"]["details"]["citation_error"] == "span_out_of_range", citation
        elif not {start, end} <= BOUNDARIES:
            assert answer["error"]["details"]["citation_error"] == "utf8_boundary", citation
        else:
            assert answer["result"]["content"].encode() == BODY[start:end], citation


@pytest.mark.parametrize("max_bytes", [4, 5, 7, 8, 11])
def test_a_bounded_citation_is_the_longest_run_of_whole_characters(door: Door, artifact: Json, max_bytes: int) -> None:
    revision = f"memoree://artifact/{artifact['artifact_id']}@{artifact['revision_id']}"
    ordered = sorted(BOUNDARIES)
    for start in ordered[:-1]:
        wanted = {"citation": f"{revision}#{start}-{len(BODY)}", "max_bytes": max_bytes}
        fetched = door.ok("citation.get", wanted, context=None)
        end = max(boundary for boundary in ordered if boundary <= start + max_bytes)
        assert fetched["content"].encode() == BODY[start:end]
        assert fetched["citation"] == f"{revision}#{start}-{end}"
        assert fetched["truncated"] is (end < len(BODY))
        assert fetched.get("remaining_bytes", 0) == len(BODY) - end


@pytest.mark.parametrize("wrong", [-1, 0.0, "0", None, True, 2**64, [0], {"$gt": 0}], ids=repr)
@pytest.mark.parametrize("member", ["start_byte", "end_byte"])
def test_an_offset_is_an_unsigned_integer(
    door: Door, bench: Workbench, artifact: Json, member: str, wrong: Any
) -> None:
    broken = span(0, 4) | {member: wrong}
    locator = {"artifact_id": artifact["artifact_id"], "revision_id": artifact["revision_id"]} | broken
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "claim.assert", evidence(artifact) | {"evidence": [locator]})
        door.refused("INVALID_REQUEST", "projection.put", projection_input(artifact) | {"evidence_spans": [broken]})


def test_bytes_that_are_no_text_are_cited_as_evidence_all_the_same(door: Door, bench: Workbench) -> None:
    artifact = bench.put(bytes(range(256)))
    claim = evidence(artifact, (128, 256), (0, 1))
    assert door.ok("claim.assert", claim)["evidence"] == claim["evidence"]
