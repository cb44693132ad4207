"""`memory_remember`: the words that were said, and claims that quote them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_support import Json, Model, Shell, local_model

from memoree import clock
from memoree.envelope import parse
from memoree.errors import Code, MemoreeError
from memoree.mcp.arguments import Claim, Remember
from memoree.mcp.asking import Call, Caller
from memoree.mcp.doors import ToolServer
from memoree.mcp.remembering import locate, remember, title_of

TEXT = "Überall gilt: Mira trinkt Tee. Am Morgen gilt: Mira trinkt Tee mit Milch."


def tea(**more: Any) -> Json:
    return {"statement": "Mira drinks tea.", "claim_type": "preference", **more}


def claim(quote: str, occurrence: int | None = None) -> Claim:
    return parse(Claim, {"statement": "so", "quote": quote, "occurrence": occurrence})


# --- finding the quote ----------------------------------------------------------------------------------------------


@given(st.text(min_size=1, max_size=40), st.data())
def test_what_is_quoted_is_what_stands_at_the_bytes(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    quote = text[start : data.draw(st.integers(start + 1, len(text)))]
    if not quote.strip():
        return
    starts = [position for position in range(len(text)) if text.startswith(quote, position)]
    span = locate(text, claim(quote, starts.index(start) + 1), 0)
    assert text.encode()[span.start : span.end] == quote.encode()
    assert span.start == len(text[:start].encode())


def test_a_quote_that_is_not_in_the_text_is_refused_by_name() -> None:
    with pytest.raises(MemoreeError, match=r"claims\.3\.quote: 'Mira drinks coffee' does not stand in the text"):
        locate(TEXT, claim("Mira drinks coffee"), 3)


def test_a_quote_that_stands_there_repeatedly_is_refused_and_counted() -> None:
    with pytest.raises(MemoreeError, match=r"claims\.0\.quote: .* stands 2 times .*`occurrence`, 1 to 2"):
        locate(TEXT, claim("Mira trinkt Tee"), 0)
    assert locate(TEXT, claim("Mira trinkt Tee", 1), 0) == (15, 30)
    assert locate(TEXT, claim("Mira trinkt Tee", 2), 0) == (48, 63)
    with pytest.raises(MemoreeError, match=r"claims\.0\.occurrence: .* stands only 2 times"):
        locate(TEXT, claim("Mira trinkt Tee", 3), 0)


def test_occurrences_that_overlap_are_counted_each() -> None:
    with pytest.raises(MemoreeError, match="stands 3 times"):
        locate("aaaa", claim("aa"), 0)


def test_a_text_without_title_is_called_by_its_first_line() -> None:
    assert title_of("\n\n## Kiln firing 12\nCone 6.") == "Kiln firing 12"
    assert title_of("x" * 500) == "x" * 120 + "…"
    assert title_of("###") == "###"


# --- over the wire ---------------------------------------------------------------------------------------------------


def test_what_is_remembered_is_retrieved_with_the_words_that_prove_it(model: Model) -> None:
    told = model.ok("memory_remember", text=TEXT, claims=[tea(quote="Mira trinkt Tee", occurrence=2)])
    assert told["created"] is True
    assert told["title"] == TEXT
    found = model.ok("memory_retrieve", query="Mira drinks tea")
    assert found["presence"] == "claims"
    (answer,) = found["claims"]
    assert answer["claim_id"] == told["claims"][0]["claim_id"]
    cited = model.ok("citation_get", citation=told["claims"][0]["citation"])
    assert cited["content"] == "Mira trinkt Tee"
    assert told["claims"][0]["citation"].endswith("#48-63")


def test_nothing_is_written_when_one_quote_cannot_be_found(model: Model) -> None:
    refusal = model.refused(
        "memory_remember", text=TEXT, claims=[tea(quote="mit Milch"), tea(quote="mit Zucker", statement="Sugar.")]
    )
    assert refusal.startswith("Error [INVALID_ARGUMENT]: claims.1.quote: 'mit Zucker' does not stand in the text")
    assert model.ok("memory_browse") == {"items": []}


@pytest.mark.fault_class(12)
def test_the_same_call_twice_is_one_memory(model: Model) -> None:
    arguments: Json = {"text": TEXT, "claims": [tea(quote="mit Milch")]}
    first, second = model.ok("memory_remember", **arguments), model.ok("memory_remember", **arguments)
    assert (first["created"], second["created"]) == (True, False)
    assert second == {**first, "created": False}
    assert len(model.ok("memory_browse")["items"]) == 1
    assert len(model.ok("memory_browse", of="claims")["items"]) == 1


def test_what_is_said_otherwise_is_another_memory(model: Model) -> None:
    first = model.ok("memory_remember", text=TEXT)
    other = model.ok("memory_remember", text=TEXT, title="Tea")
    assert first["artifact_id"] != other["artifact_id"]


def test_what_was_forgotten_can_be_remembered_again(model: Model) -> None:
    arguments: Json = {"text": TEXT, "claims": [tea(quote="mit Milch")]}
    first = model.ok("memory_remember", **arguments)
    model.ok("memory_forget", artifact_id=first["artifact_id"], reason="asked to")
    again = model.ok("memory_remember", **arguments)
    assert again["created"] is True
    assert again["artifact_id"] != first["artifact_id"]
    assert [item["artifact_id"] for item in model.ok("memory_browse")["items"]] == [again["artifact_id"]]
    model.ok("claim_retract", claim_id=again["claims"][0]["claim_id"], reason="was wrong")
    restated = model.ok("memory_remember", **arguments)
    assert restated["artifact_id"] == again["artifact_id"]
    assert restated["claims"][0]["status"] == "active"
    assert restated["claims"][0]["claim_id"] != again["claims"][0]["claim_id"]


def test_what_is_remembered_here_is_found_by_the_command_line(model: Model, shell: Shell) -> None:
    told = model.ok("memory_remember", text=TEXT, claims=[tea(quote="mit Milch")])
    found = shell.call("memory.recall", {"query": "Mira drinks tea"})
    assert [each["claim_id"] for each in found["claims"]] == [told["claims"][0]["claim_id"]]


def test_writes_are_ascribed_to_the_agent(data_dir: Path, shell: Shell) -> None:
    with local_model(data_dir, agent="scribe") as model:
        told = model.ok("memory_remember", text=TEXT)
    found = shell.call("artifact.get", {"artifact_id": told["artifact_id"]})
    assert found["actor"] == "scribe"
    assert found["provenance"] == {"via": "mcp"}


# --- a crash in the middle -------------------------------------------------------------------------------------------


class Interrupted(Exception):
    pass


class Recorder:
    """A store that answers by the key, as the real one does, and can be cut off after some writes."""

    def __init__(self) -> None:
        self.by_key: dict[str, Json] = {}
        self.writes_left = 1000

    async def __call__(self, op: str, input: Mapping[str, Any], key: str | None) -> Mapping[str, Any]:
        if key is None:
            return {"status": "active", **next(each for each in self.by_key.values() if input.items() & each.items())}
        if key in self.by_key:
            return {**self.by_key[key], "created": False}
        if self.writes_left == 0:
            raise Interrupted
        self.writes_left -= 1
        made = {"artifact_id": f"art_{len(self.by_key)}", "revision_id": "arev", "title": "t"}
        if op == "claim.assert":
            made = {"claim_id": f"clm_{len(self.by_key)}", "statement": input["statement"]}
        self.by_key[key] = made
        return {**made, "created": True}


async def remembered(store: Recorder, claims: list[Json]) -> Mapping[str, Any]:
    wanted = parse(Remember, {"text": TEXT, "claims": claims})
    call = Call(Caller(store, {}), "memory_remember", wanted.model_dump(exclude_none=True), clock.utc_now())
    return await remember(call, wanted)


@pytest.mark.fault_class(12)
@pytest.mark.parametrize("survived", range(4))
def test_a_call_that_is_made_again_completes_what_was_cut_off(survived: int) -> None:
    claims = [tea(quote="mit Milch"), tea(quote="Am Morgen", statement="In the morning."), tea(quote="Überall")]
    store = Recorder()
    store.writes_left = survived
    with pytest.raises(Interrupted):
        asyncio.run(remembered(store, claims))
    store.writes_left = 1000
    told = asyncio.run(remembered(store, claims))
    assert len(store.by_key) == 4
    assert [each["claim_id"] for each in told["claims"]] == ["clm_1", "clm_2", "clm_3"]


def test_two_claims_of_the_same_words_are_two() -> None:
    store = Recorder()
    told = asyncio.run(remembered(store, [tea(quote="mit Milch"), tea(quote="mit Milch")]))
    assert told["claims"][0]["claim_id"] != told["claims"][1]["claim_id"]


def test_a_fault_of_the_tool_is_told_without_its_words(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(op: str, input: Mapping[str, Any], key: str | None) -> Mapping[str, Any]:
        raise Interrupted("the password is hunter2")

    outcome = asyncio.run(ToolServer(Caller(broken, {})).call("memory_retrieve", {"query": "x"}))
    assert outcome.text == "Error [INTERNAL]: the tool failed; see the log of the server"
    assert "memory_retrieve failed" in caplog.text


def test_a_refusal_says_its_code_and_what_to_do() -> None:
    async def refusing(op: str, input: Mapping[str, Any], key: str | None) -> Mapping[str, Any]:
        raise MemoreeError(Code.SCOPE_VIOLATION, "it belongs to another project")

    outcome = asyncio.run(ToolServer(Caller(refusing, {})).call("memory_forget", {"artifact_id": "a", "reason": "b"}))
    assert outcome.is_error
    assert outcome.text.startswith("Error [SCOPE_VIOLATION]: it belongs to another project (work in the context")
