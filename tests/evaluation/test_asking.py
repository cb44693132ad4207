"""Requests that are not decided at once, and what surfaces are asked and answer."""

from __future__ import annotations

import orjson
import pytest

from memoree.client.request import Endpoint, Outgoing
from memoree.errors import MemoreeError
from memoree.evaluation import asking
from memoree.evaluation.asking import Asker
from memoree.evaluation.corpus import Corpus
from memoree.evaluation.running import run_corpus
from memoree.evaluation.surfaces import SEARCH, Reply

REFUSALS = 2


class Slow:
    """Refuses every request twice before it is passed on, and keeps what came."""

    def __init__(self, endpoint: Endpoint, code: str) -> None:
        self._endpoint = endpoint
        self._code = code
        self.bodies: list[bytes] = []

    def exchange(self, request: Outgoing) -> bytes:
        self.bodies.append(request.body)
        if self.bodies.count(request.body) > REFUSALS:
            return self._endpoint.exchange(request)
        error = {"code": self._code, "message": "later", "retryable": True, "details": None}
        refused = {"v": 1, "request_id": request.request_id, "ok": False, "error": error, "warnings": []}
        return orjson.dumps(refused)


@pytest.mark.parametrize("code", ["WRITE_PENDING", "RATE_LIMITED"])
def test_what_is_undecided_is_asked_again_with_the_same_bytes(
    endpoint: Endpoint, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "PAUSE_SECONDS", 0.0)
    slow = Slow(endpoint, code)
    assert Asker(slow).result("doctor", {})["status"] == "ok"
    assert slow.bodies == slow.bodies[:1] * (REFUSALS + 1)


def test_a_refusal_is_raised_as_it_came(endpoint: Endpoint) -> None:
    with pytest.raises(MemoreeError, match="needs a context") as refused:
        Asker(endpoint).result("search", {"query": "kiln"})
    assert refused.value.code == "NO_AMBIENT_CONTEXT"


def test_a_case_is_asked_with_its_own_input(endpoint: Endpoint, mini: Corpus) -> None:
    (peak,) = mini.select(ids=["peak"]).cases
    elsewhere = peak.context.model_copy(update={"project_id": "prj_glaze"})
    wide = {"horizon": "workspace", "reason": "the other studio", "max_excerpt_bytes": 8}
    asked = [peak.model_copy(update={"context": elsewhere, "input": input}) for input in ({}, wide)]
    narrow, broad = run_corpus(endpoint, Corpus(mini.seeds, asked))
    assert (narrow.presence, broad.presence) == ("none", "claims")


def test_only_qualified_hits_of_a_search_are_answers() -> None:
    hits = [{"entity_id": name, "ranking": {"qualified": name == "right"}} for name in ("right", "close")]
    reply = Reply(SEARCH, {"hits": hits}, 0)
    assert reply.answers == hits[:1]
    assert reply.candidates == hits[1:]
    assert reply.says_something
    assert not Reply(SEARCH, {"hits": hits[1:]}, 0).says_something
