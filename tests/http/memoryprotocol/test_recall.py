"""`POST /v1/recall` (MemoryProtocol §6, §7)."""

from __future__ import annotations

from base64 import b64encode
from contextlib import ExitStack
from typing import Any

import pytest
from http_support import Caller, Scripted, envelope

from memoree.errors import Code, MemoreeError
from memoree.service import Reply, Request, read_reply, refusal

from .conftest import OpenProtocol
from .protocol import Json, Protocol, refused

MEMBERS = {
    "id": list,
    "score": float,
    "text": str,
    "source": str,
    "heading_path": list,
    "valid_from": dict,
    "valid_to": type(None),
    "degraded": bool,
    "rerank_applied": bool,
    "source_op": str,
    "episode_id": str,
}
HIT: Json = {"text": "cone 6", "score": 0.5}


def recall(caller: Protocol, query: Any = "kiln", accept: str = "*/*", **members: Any) -> Any:
    return caller.request("POST", "/v1/recall", {"query": query, **members}, {"Accept": accept})


def hits(caller: Protocol, query: str = "kiln", **members: Any) -> list[Json]:
    response = recall(caller, query, **members)
    assert response.status_code == 200, response.text
    found: list[Json] = response.json()
    assert isinstance(found, list)
    return found


def denied(response: Any, status: int, code: str) -> str:
    """The message of a refusal, where an array of hits is none."""
    assert response.status_code == status, response.text
    return refused(response, status, code)


def sources(caller: Protocol, query: str = "kiln", **members: Any) -> list[str]:
    return [hit["source"] for hit in hits(caller, query, **members)]


@pytest.mark.proves("memoryprotocol-34")
@pytest.mark.parametrize("accept", [None, "*/*", "application/json", "text/html, text/event"])
def test_the_answer_is_an_array_unless_a_stream_is_wanted(a: Protocol, accept: str | None) -> None:
    if accept is None:
        del a.http.headers["Accept"]
    headers = {} if accept is None else {"Accept": accept}
    empty = a.request("POST", "/v1/recall", {"query": "kiln"}, headers)
    assert (empty.status_code, empty.content) == (200, b"[]")
    a.ingest("the kiln is hot")
    response = a.request("POST", "/v1/recall", {"query": "kiln"}, headers)
    assert [hit["text"] for hit in response.json()] == ["the kiln is hot"]
    assert response.headers["memoree-commit-seq"] == "1"


@pytest.mark.proves("memoryprotocol-35", "memoryprotocol-46")
def test_a_hit_has_its_members_and_no_other(a: Protocol) -> None:
    lsn = a.ingest("# Log\n\nthe kiln is hot", "kiln:log", id="01KJR4GZXJDFPSG3SB9V65FA1E")
    (hit,) = hits(a)
    assert {name: type(value) for name, value in hit.items()} == MEMBERS
    assert len(hit["id"]) == 16
    assert all(type(each) is int and 0 <= each <= 255 for each in hit["id"])
    assert hit["score"] > 0
    assert hit | {"id": [], "score": 0.0} == {
        "id": [],
        "score": 0.0,
        "text": "# Log\n\nthe kiln is hot",
        "source": "kiln:log",
        "heading_path": ["Log"],
        "valid_from": {**lsn, "node_id": 0},
        "valid_to": None,
        "degraded": False,
        "rerank_applied": False,
        "source_op": "Keyword",
        "episode_id": "01KJR4GZXJDFPSG3SB9V65FA1E",
    }


@pytest.mark.proves("memoryprotocol-35")
@pytest.mark.parametrize("content", [b"", b"\xff" * 10, b"\xff" * 20_000])
def test_what_is_no_text_is_an_empty_one(a: Protocol, stack: ExitStack, content: bytes) -> None:
    machine = Caller(str(a.http.base_url), "tok-a")
    stack.callback(machine.close)
    picture = {"type": "base64", "data": b64encode(content).decode()}
    put = envelope("artifact.put", {"kind": "episode", "title": "kiln picture", "content": picture}, key="picture")
    assert machine.post(put).status_code == 200
    (hit,) = hits(a)
    assert (hit["source"], hit["text"]) == ("kiln picture", "")


@pytest.mark.proves("memoryprotocol-35")
def test_hits_are_degraded_while_the_queue_lags(scripted_protocol: Protocol, scripted: Scripted) -> None:
    scripted.answer = found
    for scripted.lag in (False, True):
        assert hits(scripted_protocol) == [{**HIT, "degraded": scripted.lag}]


def found(request: Request) -> Reply:
    return read_reply(request.call, {"hits": [HIT], "degraded": False}, 7)


@pytest.mark.proves("memoryprotocol-36", "memoryprotocol-38")
def test_k_bounds_the_hits(a: Protocol) -> None:
    for number in range(40):
        a.ingest(f"kiln log {number}", str(number))
    assert len(hits(a)) == 10
    assert len(hits(a, k=3)) == 3
    assert len(hits(a, k=0)) == 30
    assert len(hits(a, k=1000)) == 40
    everything = hits(a, k=40)
    assert hits(a, k=3) == everything[:3]
    scores = [hit["score"] for hit in everything]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.proves("memoryprotocol-37")
@pytest.mark.parametrize("k", [-1, 1.5, "5", None, True, 1001, 2**63])
def test_another_k_is_denied(a: Protocol, k: Any) -> None:
    denied(recall(a, k=k), 422, "validate")


@pytest.mark.proves("memoryprotocol-39")
def test_a_query_must_be_there_and_may_be_empty(a: Protocol) -> None:
    a.ingest("the kiln is hot")
    denied(a.request("POST", "/v1/recall", {"k": 3}), 422, "validate")
    for query in (7, None, ["kiln"]):
        denied(recall(a, query), 422, "validate")
    assert hits(a, "") == []
    assert hits(a, " ?! ") == []


@pytest.mark.proves("memoryprotocol-11")
@pytest.mark.parametrize("member", ["scope", "tenant", "limit", "K"])
def test_an_unknown_member_is_denied(a: Protocol, member: str) -> None:
    denied(recall(a, **{member: "B"}), 422, "validate")


@pytest.mark.proves("memoryprotocol-40")
@pytest.mark.parametrize("mode", ["Graph", "SEMANTIC", "", None, 1])
def test_an_unknown_mode_is_denied(a: Protocol, mode: Any) -> None:
    denied(recall(a, mode=mode), 422, "validate")


@pytest.mark.proves("memoryprotocol-40")
def test_where_graph_mode_is_switched_off_it_is_told_before_anything_else_is_judged(
    open_protocol: OpenProtocol,
) -> None:
    a = open_protocol(graph_mode=False)("tok-a")
    for members in ({}, {"as_of": "not a date"}, {"filter": "source"}):
        denied(recall(a, mode="graph", **members), 501, "graph_mode_unavailable")
    assert hits(a, mode="semantic") == []


@pytest.mark.proves("memoryprotocol-41")
def test_a_query_that_names_nothing_has_nothing_to_walk_from(a: Protocol) -> None:
    a.ingest("everything that Alice did: she showed me the kiln", "talk")
    for query in ("show me everything", "Show me everything", "Alice showed me everything", "what did alice do"):
        found = hits(a, query, mode="graph")
        assert [(hit["degraded"], hit["source_op"]) for hit in found] == [(True, "Keyword")]
        assert [hit["degraded"] for hit in hits(a, query)] == [False]
    assert [(hit["degraded"], hit["source_op"]) for hit in hits(a, "what did Alice do", mode="graph")] == [
        (False, "Graph")
    ]


@pytest.mark.proves("memoryprotocol-42")
@pytest.mark.parametrize(
    "as_of",
    ["not a date", "", "2026-04-21", "2026-04-21T10:30:00", "1969-12-31T00:00:00Z", "1969-12-31T23:59:59.9999Z",
     "1970-01-01T00:00:00+00:01", "2026-13-01T00:00:00Z"],
)  # fmt: skip
def test_an_as_of_that_is_no_instant_since_1970_is_denied(a: Protocol, as_of: str) -> None:
    denied(recall(a, as_of=as_of), 400, "invalid_request")


@pytest.mark.proves("memoryprotocol-43")
def test_as_of_is_an_instant_with_any_offset(a: Protocol) -> None:
    lsn = a.ingest("the kiln is hot", "x")
    for early in ("1970-01-01T00:00:00Z", "2020-04-21T10:30:00+07:00"):
        assert hits(a, as_of=early) == []
    for late in (None, "2100-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z"):
        assert sources(a, as_of=late) == ["x"]
    assert lsn["wall_ms"] > 0


@pytest.mark.proves("memoryprotocol-44")
def test_content_that_was_replaced_is_not_recalled(a: Protocol) -> None:
    a.ingest("the zanzibar ferry", id="01KJR4GZXJDFPSG3SB9V65FA1E")
    a.ingest("the quokka ferry", id="01KJR4GZXJDFPSG3SB9V65FA1E")
    assert hits(a, "zanzibar") == []
    assert len(hits(a, "quokka")) == 1


@pytest.mark.proves("memoryprotocol-31", "memoryprotocol-45")
def test_a_rare_word_is_found_right_after_it_was_ingested(a: Protocol) -> None:
    for number in range(10):
        word = f"xq{number}zvport"
        a.ingest(f"the code is {word}", str(number))
        assert sources(a, word) == [str(number)]


@pytest.mark.proves("memoryprotocol-9", "memoryprotocol-12")
def test_tenants_recall_their_own(as_token: Any) -> None:
    for token in ("tok-a", "tok-upper", "tok-lower"):
        as_token(token).ingest("the kiln is hot", token)
    for token in ("tok-a", "tok-a2"):
        assert sources(as_token(token)) == ["tok-a"]
    assert sources(as_token("tok-upper")) == ["tok-upper"]
    assert sources(as_token("tok-lower")) == ["tok-lower"]
    assert sources(as_token("tok-b")) == []


@pytest.mark.proves("memoryprotocol-29")
def test_chunks_of_a_long_text_carry_their_headings(a: Protocol) -> None:
    parts = [
        f"## Part {number}\n\n" + f"words{number} " * 30 + "and so on. " * 130 + f"\n\nxq{number}zvport\n\n"
        for number in range(8)
    ]
    a.ingest("# Guide\n\n" + "".join(parts))
    for number in range(8):
        (hit,) = hits(a, f"xq{number}zvport")
        assert hit["heading_path"] == ["Guide", f"Part {number}"]


@pytest.mark.proves("memoryprotocol-55", "memoryprotocol-59")
def test_a_filter_narrows(a: Protocol) -> None:
    for source in ("a", "b", "helios:fs/x", "helios:net"):
        a.ingest("the kiln is hot", source)
    assert sources(a, filter="source = 'a'") == ["a"]
    assert sources(a, filter="source LIKE 'helios:fs/%'") == ["helios:fs/x"]
    assert sorted(sources(a, filter="source LIKE '%'")) == ["a", "b", "helios:fs/x", "helios:net"]
    assert sorted(sources(a, filter=None)) == ["a", "b", "helios:fs/x", "helios:net"]
    assert sources(a, filter="colour = 'a'") == []


@pytest.mark.proves("memoryprotocol-56", "memoryprotocol-57")
@pytest.mark.parametrize(
    "filter",
    ["", "source", "source='a'", "source like 'a%'", "source != 'a'", "source = a", "source = 'a", "source LIKE 'a'",
     "source LIKE 'a%b%'", " = 'a'", "source = 'a' AND source = 'b'"],
)  # fmt: skip
@pytest.mark.parametrize("query", ["kiln", ""])
def test_what_is_no_filter_is_denied(a: Protocol, filter: str, query: str) -> None:
    response = recall(a, query, filter=filter)
    denied(response, 400, "validate")
    assert response.json()["reason"] == "invalid_filter"


def test_a_filter_that_is_no_text_is_denied(a: Protocol) -> None:
    denied(recall(a, filter=["source", "a"]), 422, "validate")


def test_a_query_without_an_end_is_denied(a: Protocol) -> None:
    assert "8192" in denied(recall(a, "kiln " * 2000), 422, "validate")


def test_a_fault_in_finding_is_told_as_one(scripted_protocol: Protocol, scripted: Scripted) -> None:
    scripted.answer = lambda request: refusal(request.call.request_id, MemoreeError(Code.INTERNAL_ERROR, "see the log"))
    assert denied(recall(scripted_protocol), 500, "retrieve") == "see the log"


def test_every_recall_looks_at_head_first(scripted_protocol: Protocol, scripted: Scripted) -> None:
    scripted.answer = found
    hits(scripted_protocol)
    assert scripted.strong == [True]
