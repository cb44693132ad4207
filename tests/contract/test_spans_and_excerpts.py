"""Which bytes of an artifact are cited and which are shown (retrieval §1.1, §1.2, §2.7, §3.3; assertions 39 to 47)."""

from __future__ import annotations

import itertools

import pytest

from .answers import PLAIN, only_ref, presence, recall
from .door import Json
from .workbench import Workbench, body_of, span_of

CHUNK_BYTES_MAX = 4096


def span(ref: Json) -> tuple[int, int]:
    found = span_of(ref)
    assert found is not None, f"{ref['citation']} names no span"
    return found


@pytest.mark.proves("retrieval-39")
def test_a_section_deep_in_a_long_body_is_cited_with_its_heading(bench: Workbench) -> None:
    section = "# Deep part\n\nThe marlinspike hangs beside the bollardkey for checking.\n\n"
    before, after = "routine harbour remarks repeated. " * 2500 + "\n\n", "appendix filler words. " * 1200
    bench.put(before + section + after, title="untitled")
    ref = only_ref(bench, "marlinspike bollardkey")
    assert span(ref) == (85002, 85074)
    assert ref["excerpt"] == section
    assert ref["excerpt_truncated"] is False
    assert "excerpt_citation" not in ref


@pytest.mark.proves("retrieval-40")
def test_a_title_is_cited_without_a_span(bench: Workbench) -> None:
    bench.put("filler text. " * 4000, title="PIER-TITLE-318")
    ref = only_ref(bench, "PIER-TITLE-318")
    assert span_of(ref) is None
    assert ref["excerpt"] == "PIER-TITLE-318"
    assert "excerpt_citation" not in ref


@pytest.mark.proves("retrieval-41")
def test_words_of_different_chunks_qualify_together_and_one_chunk_is_cited(bench: Workbench) -> None:
    filler = "neutral words between the two ends. " * 500
    bench.put(f"alphacrate starts the record.\n\n{filler}\n\nomegacrate ends the record.", title="untitled")
    (hit,) = bench.search("alphacrate omegacrate")["hits"]
    assert (hit["ranking"]["qualified"], hit["ranking"]["matched_unit_count"]) == (True, 2)
    assert span_of(hit) == (0, 31)
    assert span(only_ref(bench, "alphacrate omegacrate")) == (0, 31)


@pytest.mark.proves("retrieval-42")
def test_title_and_body_qualify_together_and_the_title_wins_the_tie(bench: Workbench) -> None:
    bench.put("The launch window opens in March.", title="Pelican rollout")
    ref = only_ref(bench, "pelican launch")
    assert span_of(ref) is None
    assert ref["excerpt"] == "Pelican rollout"


def test_a_chunk_that_matches_more_than_the_title_wins(bench: Workbench) -> None:
    body = "The pelican launch window opens in March."
    bench.put(body, title="Pelican rollout")
    assert span(only_ref(bench, "pelican launch")) == (0, len(body))


@pytest.mark.proves("retrieval-43")
def test_spans_are_bytes_and_not_characters(bench: Workbench) -> None:
    bench.put("é" * 10 + " heron note", title="U")
    ref = only_ref(bench, "heron")
    assert span(ref) == (0, 31)
    assert ref["excerpt"] == "é" * 10 + " heron note"


def quetzal_body() -> str:
    """922 bytes of one chunk; the sentence begins after 528, and the first space at or after byte 502 is at 504."""
    before = "a" + "plain words " * 42 + "and some more harbour. "
    body = before + "The quetzalcode threshold is forty two units." + " plain words of no weight." * 14
    assert len(before) == 528
    return body[:922]


@pytest.mark.proves("retrieval-44")
def test_an_excerpt_is_a_window_around_the_match_and_says_which(bench: Workbench) -> None:
    artifact = bench.put(quetzal_body(), title="untitled")
    ref = only_ref(bench, "quetzalcode threshold", max_excerpt_bytes=120)
    whole = f"memoree://artifact/{artifact['artifact_id']}@{artifact['revision_id']}"
    assert ref["citation"] == f"{whole}#0-922"
    assert ref["excerpt_citation"] == f"{whole}#505-625"
    assert ref["excerpt_truncated"] is True
    assert ref["excerpt"].encode() == quetzal_body().encode()[505:625]
    assert len(ref["excerpt"].encode()) == 120


@pytest.mark.proves("retrieval-45")
def test_a_body_that_fits_is_whole_and_one_byte_more_is_cut(bench: Workbench) -> None:
    fits = "marlinspike " + "x" * 308
    bench.put(fits, title="untitled")
    ref = only_ref(bench, "marlinspike")
    assert (ref["excerpt"], ref["excerpt_truncated"]) == (fits, False)
    assert "excerpt_citation" not in ref
    bench.put("bollardkey " + "x" * 310, title="untitled")
    cut = only_ref(bench, "bollardkey")
    assert span(cut) == (0, 321)
    assert cut["excerpt_citation"].endswith("#0-320")
    assert cut["excerpt_truncated"] is True


@pytest.mark.proves("retrieval-44", "retrieval-45")
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 16, 40, 120, 121, 122, 123, 1024])
def test_an_excerpt_of_any_size_is_the_bytes_it_cites(bench: Workbench, size: int) -> None:
    body = "żółw 👩‍🚀 " * 20 + "marlinspike " + "漢字かな交じり " * 40
    artifact = bench.put(body, title="untitled")
    ref = only_ref(bench, "marlinspike", max_excerpt_bytes=size)
    assert len(ref["excerpt"].encode()) <= size
    if not ref["excerpt"]:
        assert size < len("ż".encode()), "only where not even one character fits"
        assert (ref["excerpt_truncated"], "excerpt_citation" in ref) == (True, False)
        return
    start, end = span({"citation": ref.get("excerpt_citation", ref["citation"])})
    assert body_of(bench.get(artifact["artifact_id"]))[start:end] == ref["excerpt"].encode()
    assert ref["excerpt_truncated"] is (end - start < len(body.encode()))
    if size >= 16:
        assert "marlinspike" in ref["excerpt"]


# --- chunks ----------------------------------------------------------------------------------------------------------


def chunks_of(bench: Workbench, body: str, markers: list[str]) -> list[tuple[int, int]]:
    """The chunks of a new artifact, as far as its markers are spread over them, in order."""
    bench.put(body, title="untitled")
    spans = {span(hit) for marker in markers for hit in bench.search(f'"{marker}"', limit=1, **PLAIN)["hits"]}
    return sorted(spans)


def check_partition(chunks: list[tuple[int, int]], body: str) -> None:
    encoded = body.encode()
    assert chunks[0][0] == 0
    assert chunks[-1][1] == len(encoded)
    assert all(left[1] == right[0] for left, right in itertools.pairwise(chunks)), chunks
    for start, end in chunks:
        assert 0 < end - start <= CHUNK_BYTES_MAX
        encoded[start:end].decode()


@pytest.mark.proves("retrieval-46")
def test_a_long_paragraph_is_cut_after_the_last_sentence_that_fits(bench: Workbench) -> None:
    markers = [f"S{number:07}" for number in range(1000)]
    body = "".join(f"{marker} here. " for marker in markers)
    chunks = chunks_of(bench, body, markers[::90] + markers[-1:])
    assert chunks == [(0, 4094), (4094, 8189), (8189, 12284), (12284, 15000)]


@pytest.mark.proves("retrieval-46")
def test_text_without_any_boundary_is_cut_at_the_maximum(bench: Workbench) -> None:
    markers = [f"m{number:04}" for number in range(2000)]
    body = "/".join(markers)[:9_999] + "z"
    assert len(body) == 10_000
    chunks = chunks_of(bench, body, [markers[10], markers[900], markers[1600]])
    assert chunks == [(0, 4096), (4096, 8192), (8192, 10000)]


@pytest.mark.proves("retrieval-46")
@pytest.mark.parametrize("filler", ["👩‍🚀 ", "漢字の連なり", "żółw. ", "plain words\n", "e\u0301", "𠀋𠀌"], ids=ascii)
def test_chunks_partition_a_body_of_any_characters(bench: Workbench, filler: str) -> None:
    markers = [f"mark{number:03}" for number in range(90)]
    parts = []
    for number, marker in enumerate(markers):
        repeated = filler * (240 // len(filler.encode()))
        match number % 9:
            case 0:
                parts.append(f"\n# Section {marker}\n\n{repeated}\n\n")
            case 4:
                parts.append(f"```\n# no heading {marker}\n\n{repeated}\n```\n")
            case _:
                parts.append(f" {marker} {repeated}")
    body = "".join(parts)
    check_partition(chunks_of(bench, body, markers), body)


@pytest.mark.proves("retrieval-46")
def test_a_heading_opens_a_chunk_and_a_comment_in_a_fence_does_not(bench: Workbench) -> None:
    prose = "plain words of some length here. " * 62
    body = f"alphamark {prose}\n# Deltamark\n\n```\n# betamark\n{prose[:700]}\n```\n\ngammamark {prose}"
    at = body.index("# Deltamark")
    chunks = chunks_of(bench, body, ["alphamark", "deltamark", "betamark", "gammamark"])
    check_partition(chunks, body)
    assert chunks[0] == (0, at)
    deltamark = next(chunk for chunk in chunks if chunk[0] == at)
    assert body.index("betamark") < deltamark[1]


# --- what has a body to search ---------------------------------------------------------------------------------------

SEARCHABLE = [
    "text/plain", "text/markdown; charset=utf-8", "TEXT/HTML", "application/json", "application/ld+json",
    "application/atom+xml", "application/xml", "application/yaml", "application/x-yaml", "application/toml",
    "application/javascript", "application/sql", "application/graphql", " application/json ; charset=utf-8",
]  # fmt: skip
OPAQUE = ["application/octet-stream", "image/svg", "application/pdf", "application/jsonx", "x-text/plain"]


@pytest.mark.proves("retrieval-47")
@pytest.mark.parametrize("media_type", SEARCHABLE)
def test_a_body_of_a_textual_media_type_is_found_by_its_words(bench: Workbench, media_type: str) -> None:
    bench.put('{"note": "marlinspike"}', title="bollardkey", media_type=media_type)
    assert span(only_ref(bench, "marlinspike")) == (0, 23)
    assert presence(bench, "bollardkey") == "artifacts_only"


@pytest.mark.proves("retrieval-47")
@pytest.mark.parametrize("media_type", OPAQUE)
def test_a_body_of_another_media_type_is_found_by_its_title_only(bench: Workbench, media_type: str) -> None:
    bench.put(b'{"note": "marlinspike"}', title="bollardkey", media_type=media_type)
    assert presence(bench, "marlinspike") == "none"
    assert span_of(only_ref(bench, "bollardkey")) is None


BINARIES = {
    "a picture": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR marlinspike",
    "two bytes": b"\xff\xfe",
    "UTF-16": "marlinspike".encode("utf-16"),
    "nothing": b"",
    "one byte": b"\x80",
    "invalid UTF-8": b"marlinspike \xc3\x28",
    "half a character": "marlinspike 漢".encode()[:-1],
}


@pytest.mark.proves("retrieval-47")
@pytest.mark.fault_class(61)
@pytest.mark.parametrize("media_type", ["text/plain", "application/json", "application/octet-stream", "image/png"])
def test_bytes_that_are_no_text_spoil_no_recall(bench: Workbench, media_type: str) -> None:
    stored = {
        kind: bench.put(data, title=f"bollardkey {kind}", media_type=media_type) for kind, data in BINARIES.items()
    }
    bench.put("The marlinspike hangs.", title="untitled")
    bench.claim("The marlinspike was greased.")
    answer = recall(bench, "marlinspike", max_artifact_refs=20)
    assert [claim["statement"] for claim in answer["claims"]] == ["The marlinspike was greased."]
    assert [ref["excerpt"] for ref in answer["artifact_refs"]] == ["The marlinspike hangs."]
    titled = recall(bench, "bollardkey", max_artifact_refs=20)["artifact_refs"]
    assert {ref["artifact_id"] for ref in titled} == {artifact["artifact_id"] for artifact in stored.values()}
    for kind, artifact in stored.items():
        assert body_of(bench.get(artifact["artifact_id"])) == BINARIES[kind]


@pytest.mark.fault_class(61)
def test_a_byte_order_mark_and_carriage_returns_stay_in_the_bytes(bench: Workbench) -> None:
    body = "\ufeffmarlinspike\r\nhangs\r\n"
    bench.put(body.encode(), title="untitled", media_type="text/plain")
    ref = only_ref(bench, "marlinspike")
    assert span(ref) == (0, len(body.encode()))
    assert ref["excerpt"] == body
