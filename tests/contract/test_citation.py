"""Exact bytes by citation (machine protocol §4.8, §5.2)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .door import Door, Json
from .protocol import MIB
from .workbench import Workbench

MIXED = "👩🏽‍💻 naïve 漢字\r\n"
"""Characters of one to four bytes, and several of them that people see as one."""
RESULT = {"content_is_untrusted", "citation", "content", "byte_count", "media_type", "truncated"}
SHARED_STORE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)


def cite(artifact: Json, span: str = "") -> str:
    return f"memoree://artifact/{artifact['artifact_id']}@{artifact['revision_id']}{span}"


def fetch(door: Door, citation: str, **fields: Any) -> Json:
    return door.ok("citation.get", {"citation": citation} | fields, context=None)


def kind_of(door: Door, citation: str, **fields: Any) -> str:
    """The kind of the refusal, which always comes with advice."""
    details = refused(door, citation, **fields)
    assert details["next_action"]
    return str(details["citation_error"])


def refused(door: Door, citation: str, **fields: Any) -> Json:
    error = door.refused("CITATION_ERROR", "citation.get", {"citation": citation} | fields, context=None)
    details: Json = error["details"]
    return details


@pytest.mark.proves("machine-196")
def test_a_ranged_citation_gives_its_exact_bytes(door: Door, bench: Workbench) -> None:
    artifact = bench.put("cone 6 reached at 21:40", media_type="text/markdown")
    citation = cite(artifact, "#5-14")
    fetched = fetch(door, citation)
    assert fetched == {
        "content_is_untrusted": True,
        "citation": citation,
        "content": "6 reached",
        "byte_count": 9,
        "media_type": "text/markdown",
        "truncated": False,
    }
    assert "context" not in door.succeeded("citation.get", {"citation": citation}, context=None)


@pytest.mark.proves("machine-196")
def test_the_citations_of_a_search_can_be_fetched(door: Door, bench: Workbench) -> None:
    bench.put("The glaze is zweibelfisch.", title="untitled")
    (hit,) = bench.search("zweibelfisch")["hits"]
    fetched = fetch(door, hit["citation"])
    assert (fetched["citation"], fetched["content"]) == (hit["citation"], hit["excerpt"])


@pytest.mark.proves("machine-196")
@pytest.mark.parametrize(
    "media_type",
    ["application/json", "application/ld+json", "image/svg+xml", "application/yaml", "Application/SQL; charset=utf-8"],
)
def test_what_a_search_cites_can_be_fetched_also_where_it_is_not_shown_as_text(
    door: Door, bench: Workbench, media_type: str
) -> None:
    artifact = bench.put('{"glaze": "zweibelfisch 漢字"}', title="untitled", media_type=media_type)
    assert bench.get(artifact["artifact_id"])["content"]["type"] == "base64"
    (hit,) = bench.search("zweibelfisch")["hits"]
    fetched = fetch(door, hit["citation"])
    assert (fetched["citation"], fetched["content"]) == (hit["citation"], hit["excerpt"])
    assert fetched["media_type"] == media_type


@pytest.mark.proves("machine-196")
def test_a_text_too_long_to_be_shown_as_json_can_be_fetched_in_pieces(door: Door, bench: Workbench) -> None:
    body = b"\0" * 9 + b"\n"
    artifact = bench.put(body * (MIB // 4), media_type="text/plain")
    assert bench.get(artifact["artifact_id"])["content"]["type"] == "base64"
    end = 10 * (MIB // 4)
    assert fetch(door, cite(artifact, f"#{end - 10}-{end}"))["content"].encode() == body


@pytest.mark.proves("machine-196")
def test_old_revisions_and_forgotten_artifacts_are_still_cited(door: Door, bench: Workbench) -> None:
    first = bench.put("first words")
    second = bench.revise(first, "second words")
    bench.forget(second)
    elsewhere = door.here(project_id="prj_elsewhere")
    for revision, content in ((first, "first"), (second, "secon")):
        result = door.ok("citation.get", {"citation": cite(revision, "#0-5")}, context=elsewhere)
        assert result["content"] == content


@pytest.mark.proves("machine-196")
def test_a_fetched_citation_is_spelt_normally(door: Door, bench: Workbench) -> None:
    artifact = bench.put("cone 6 reached")
    assert fetch(door, cite(artifact, "#005-0006"))["citation"] == cite(artifact, "#5-6")


@pytest.mark.proves("machine-197")
@pytest.mark.parametrize(
    ("text", "max_bytes", "kept"),
    [
        (MIXED, 5, 4),
        (MIXED, 4, 4),
        (MIXED, 7, 4),
        (MIXED, 8, 8),
        (MIXED, 10, 8),
        ("字" * 9, 5, 3),
        ("字" * 9, 8, 6),
        ("ï" * 9, 5, 4),
        ("a字字", 6, 4),
        ("x" * 8193, 8192, 8192),
    ],
)
def test_a_bounded_fetch_cuts_at_characters(door: Door, bench: Workbench, text: str, max_bytes: int, kept: int) -> None:
    data = text.encode()
    artifact = bench.put(text)
    fetched = fetch(door, cite(artifact, f"#0-{len(data)}"), max_bytes=max_bytes)
    assert set(fetched) == RESULT | {"remaining_bytes"}
    assert fetched["content"].encode() == data[:kept]
    assert fetched["citation"] == cite(artifact, f"#0-{kept}")
    assert (fetched["byte_count"], fetched["truncated"], fetched["remaining_bytes"]) == (kept, True, len(data) - kept)
    assert fetch(door, fetched["citation"])["content"] == fetched["content"]


@pytest.mark.proves("machine-197")
def test_what_was_left_out_can_be_fetched_piece_by_piece(door: Door, bench: Workbench) -> None:
    data = (MIXED * 3).encode()
    artifact = bench.put(MIXED * 3)
    pieces, start = b"", 0
    while start < len(data):
        fetched = fetch(door, cite(artifact, f"#{start}-{len(data)}"), max_bytes=6)
        pieces += fetched["content"].encode()
        start += fetched["byte_count"]
        assert fetched.get("remaining_bytes", 0) == len(data) - start
    assert pieces == data


@pytest.mark.proves("machine-197")
def test_without_a_bound_8192_bytes_are_fetched(door: Door, bench: Workbench) -> None:
    artifact = bench.put("x" * 8200)
    assert fetch(door, cite(artifact, "#0-8192"))["truncated"] is False
    assert fetch(door, cite(artifact, "#0-8193")).get("remaining_bytes") == 1


@pytest.mark.proves("machine-198")
@pytest.mark.parametrize("max_bytes", [0, 3, 8193, 2**63, 2**64 - 1])
def test_an_output_limit_outside_4_to_8192_is_refused_first(door: Door, max_bytes: int) -> None:
    assert kind_of(door, "nonsense", max_bytes=max_bytes) == "invalid_output_limit"


@pytest.mark.parametrize("max_bytes", [-1, 4.0, "8", True, None])
def test_an_output_limit_is_an_unsigned_integer(door: Door, max_bytes: Any) -> None:
    door.refused("INVALID_REQUEST", "citation.get", {"citation": "x", "max_bytes": max_bytes}, context=None)


@pytest.mark.proves("machine-198")
@pytest.mark.parametrize(
    "citation",
    [
        "",
        " ",
        "a@r#0-1",
        "memoree://claim/clm_1@crev_1",
        "memoree://claim/clm_1@crev_1#0-1",
        "MEMOREE://artifact/a@r#0-1",
        " memoree://artifact/a@r#0-1",
        "memoree://artifact/",
        "memoree://artifact/a",
        "memoree://artifact/a#0-1",
        "memoree://artifact/@r#0-1",
        "memoree://artifact/a@#0-1",
        "memoree://artifact/a@",
        "memoree://artifact/a@r@s#0-1",
        "memoree://artifact/a#b@r#0-1",
        "memoree://artifact/a@r#",
        "memoree://artifact/a@r#-",
        "memoree://artifact/a@r#1",
        "memoree://artifact/a@r#1-",
        "memoree://artifact/a@r#-1",
        "memoree://artifact/a@r#-1-2",
        "memoree://artifact/a@r#1-2-3",
        "memoree://artifact/a@r#1-2#3-4",
        "memoree://artifact/a@r#+1-2",
        "memoree://artifact/a@r#0x1-2",
        "memoree://artifact/a@r#1.0-2",
        "memoree://artifact/a@r#1 -2",
        "memoree://artifact/a@r#１-２",
        "memoree://artifact/a@r#¹-²",
        f"memoree://artifact/a@r#0-{2**64}",
        f"memoree://artifact/a@r#{'9' * 800}-{'9' * 801}",
        f"memoree://artifact/{'a' * 257}@r#0-1",
        f"memoree://artifact/a@{'r' * 257}#0-1",
        f"memoree://artifact/{'字' * 86}@r#0-1",
        f"memoree://artifact/a@r#0-{'1'.zfill(1000)}",
    ],
)
def test_what_is_no_citation_of_an_artifact_is_malformed(door: Door, citation: str) -> None:
    assert refused(door, citation).keys() == {"citation_error", "next_action"}
    assert kind_of(door, citation) == "malformed_citation"


@pytest.mark.proves("machine-198")
def test_the_longest_ids_and_citations_are_read(door: Door) -> None:
    longest = f"memoree://artifact/{'a' * 256}@{'r' * 256}#0-"
    padded = longest + "1".zfill(1024 - len(longest))
    assert len(padded) == 1024
    assert kind_of(door, padded) == "unknown_artifact"
    assert kind_of(door, f"{longest}0{padded.removeprefix(longest)}") == "malformed_citation"


@pytest.mark.proves("machine-198")
@pytest.mark.parametrize(("start", "end"), [(0, 0), (5, 5), (6, 5), (2**64 - 1, 0), (2**64 - 1, 2**64 - 1)])
def test_an_empty_or_reversed_span_is_refused_without_a_look_at_the_artifact(door: Door, start: int, end: int) -> None:
    details = refused(door, f"memoree://artifact/art_unknown@arev_unknown#{start}-{end}")
    del details["next_action"]
    assert details == {"citation_error": "span_out_of_range", "start_byte": start, "end_byte": end}


@pytest.mark.proves("machine-198")
def test_an_end_beyond_the_revision_is_out_of_range(door: Door, bench: Workbench) -> None:
    artifact, empty = bench.put("kiln"), bench.put("")
    assert fetch(door, cite(artifact, "#3-4"))["content"] == "n"
    for record, start, end, total in ((artifact, 3, 5, 4), (artifact, 9, 2**64 - 1, 4), (empty, 0, 1, 0)):
        details = refused(door, cite(record, f"#{start}-{end}"))
        assert details["citation_error"] == "span_out_of_range"
        assert (details["start_byte"], details["end_byte"], details["total_byte_count"]) == (start, end, total)


@pytest.mark.proves("machine-198")
@pytest.mark.parametrize("span", ["", "#0-1"])
def test_what_does_not_exist_is_named_with_and_without_a_span(door: Door, bench: Workbench, span: str) -> None:
    artifact, other = bench.put("kiln"), bench.put("wheel")
    for record, kind in (
        (artifact | {"artifact_id": "art_unknown"}, "unknown_artifact"),
        (artifact | {"revision_id": "arev_unknown"}, "unknown_revision"),
        (artifact | {"revision_id": other["revision_id"]}, "unknown_revision"),
    ):
        details = refused(door, cite(record, span))
        assert details["citation_error"] == kind
        assert {name: details[name] for name in ("artifact_id", "revision_id")} == {
            name: record[name] for name in ("artifact_id", "revision_id")
        }


@pytest.mark.proves("machine-198")
@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"cone 6 reached", "application/octet-stream"),
        (b"\xff\xfe", "text/plain"),
        (b'{"cone":"\xff"}', "application/json"),
    ],
    ids=["png", "words that are not called text", "not utf-8", "json that is not utf-8"],
)
def test_only_what_is_searched_as_text_can_be_fetched(
    door: Door, bench: Workbench, body: bytes, media_type: str
) -> None:
    artifact = bench.put(body, media_type=media_type)
    assert bench.get(artifact["artifact_id"])["content"]["type"] == "base64"
    told = {"media_type": media_type, "total_byte_count": len(body)}
    for span, kind in (("#0-1", "non_text_content"), ("#0-999999999", "non_text_content"), ("", "range_required")):
        citation = cite(artifact, span)
        details = refused(door, citation)
        assert details["citation_error"] == kind
        assert {name: details[name] for name in ("citation", *told)} == {"citation": citation, **told}


@pytest.mark.proves("machine-198")
def test_a_range_is_required_of_text_too(door: Door, bench: Workbench) -> None:
    artifact = bench.put("kiln")
    details = refused(door, cite(artifact))
    assert (details["citation_error"], details["citation"]) == ("range_required", cite(artifact))
    assert (details["media_type"], details["total_byte_count"]) == ("text/plain; charset=utf-8", 4)


@pytest.mark.proves("machine-198")
def test_an_offset_inside_of_a_character_is_refused(door: Door, bench: Workbench) -> None:
    artifact = bench.put("漢字")
    for start, end in ((0, 1), (0, 2), (1, 3), (2, 6), (3, 5), (1, 2)):
        details = refused(door, cite(artifact, f"#{start}-{end}"))
        del details["next_action"]
        assert details == {"citation_error": "utf8_boundary", "start_byte": start, "end_byte": end}
    assert kind_of(door, cite(artifact, "#1-7")) == "span_out_of_range"


@pytest.mark.proves("retrieval-83")
def test_a_citation_names_whole_characters_of_a_text(door: Door, bench: Workbench) -> None:
    artifact = bench.put("a🦀z")
    assert fetch(door, cite(artifact, "#1-5"))["content"] == "🦀"
    for span in ("#2-6", "#0-2", "#2-5"):
        assert kind_of(door, cite(artifact, span)) == "utf8_boundary"
    for span in ("#0-999", "#5-5"):
        assert kind_of(door, cite(artifact, span)) == "span_out_of_range"
    whole = refused(door, cite(artifact))
    assert (whole["citation_error"], whole["total_byte_count"]) == ("range_required", 6)
    binary = bench.put(b"\xff\xfe\x00")
    assert kind_of(door, cite(binary, "#0-2")) == "non_text_content"
    assert kind_of(door, cite(artifact, "#1-5").replace("memoree:", "https:")) == "malformed_citation"


@pytest.mark.proves("retrieval-84")
def test_a_fetch_of_five_bytes_tells_how_many_of_the_span_are_left(door: Door, bench: Workbench) -> None:
    artifact = bench.put("🦀 walks sideways, says the log.")
    fetched = fetch(door, cite(artifact, "#0-19"), max_bytes=5)
    assert (fetched["content"], fetched["citation"]) == ("🦀 ", cite(artifact, "#0-5"))
    assert (fetched["truncated"], fetched["remaining_bytes"]) == (True, 14)
    assert kind_of(door, cite(artifact, "#0-19"), max_bytes=3) == "invalid_output_limit"


@pytest.mark.proves("machine-199")
def test_every_pair_of_offsets_into_mixed_text_gives_exact_bytes_or_the_reason(door: Door, bench: Workbench) -> None:
    data = MIXED.encode()
    artifact = bench.put(MIXED)
    boundaries = {len(MIXED[:count].encode()) for count in range(len(MIXED) + 1)}
    seen = set()
    for start, end in itertools.combinations(range(len(data) + 2), 2):
        answer = door.call("citation.get", {"citation": cite(artifact, f"#{start}-{end}")}, context=None)
        expected = judged(data, boundaries, start, end)
        seen.add(expected)
        assert outcome_of(answer) == expected, (start, end)
        if expected == "exact":
            assert answer["result"]["content"].encode() == data[start:end]
            assert answer["result"]["byte_count"] == end - start
    assert seen == {"exact", "span_out_of_range", "utf8_boundary"}


def outcome_of(answer: Json) -> str:
    return "exact" if answer["ok"] else str(answer["error"]["details"]["citation_error"])


def judged(data: bytes, boundaries: set[int], start: int, end: int) -> str:
    if start >= end or end > len(data):
        return "span_out_of_range"
    return "exact" if {start, end} <= boundaries else "utf8_boundary"


CHARACTERS = st.one_of(st.sampled_from("👩漢字ï"), st.characters(codec="utf-8"))
OFFSETS = st.tuples(st.integers(0, 13), st.sampled_from([0, 0, 0, 0, 0, 0, 1, 2]))
"""So many characters, and so many bytes."""


@pytest.mark.proves("machine-199")
@SHARED_STORE
@given(
    body=st.text(CHARACTERS, min_size=6, max_size=12) | st.text(max_size=2),
    ranges=st.lists(st.tuples(OFFSETS, OFFSETS, st.integers(4, 9)), min_size=4, max_size=8),
)
def test_random_ranges_of_random_text_never_crash(
    door: Door, bench: Workbench, body: str, ranges: list[tuple[tuple[int, int], tuple[int, int], int]]
) -> None:
    data = body.encode()
    artifact = bench.put(body)
    boundaries = {len(body[:count].encode()) for count in range(len(body) + 1)}
    for first, last, max_bytes in ranges:
        start, end = (len(body[:characters].encode()) + more for characters, more in (first, last))
        wanted = {"citation": cite(artifact, f"#{start}-{end}"), "max_bytes": max_bytes}
        answer = door.call("citation.get", wanted, context=None)
        expected = judged(data, boundaries, start, end)
        assert outcome_of(answer) == expected
        if expected != "exact":
            continue
        result = answer["result"]
        cut = max(boundary for boundary in boundaries if boundary <= min(end, start + max_bytes))
        assert result["content"].encode() == data[start:cut]
        assert result["citation"] == cite(artifact, f"#{start}-{cut}")
        assert result.get("remaining_bytes", 0) == end - cut
        assert result["truncated"] is (cut < end)


@pytest.mark.proves("machine-199")
@SHARED_STORE
@given(fragment=st.one_of(st.text(st.characters(codec="utf-8")), st.text(st.sampled_from("a@@##--0189字 "))))
def test_random_text_as_a_citation_never_crashes(door: Door, fragment: str) -> None:
    for citation in (fragment, f"memoree://artifact/{fragment}", f"memoree://artifact/a@r#{fragment}"):
        assert kind_of(door, citation) in {"malformed_citation", "unknown_artifact", "span_out_of_range"}
