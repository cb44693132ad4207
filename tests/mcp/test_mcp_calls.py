"""What a call may say and what it is answered with; resources and the prompt."""

from __future__ import annotations

import pytest
from mcp_support import Json, Model

from mcp import MCPError


@pytest.mark.proves("okf-71")
@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("memory_search", {"query": "  "}, "query: must not be empty or blank"),
        ("memory_search", {"query": "x", "exclude_source": "A b"}, "exclude_source"),
        ("memory_search", {"query": "x", "k": 0}, "k: "),
        ("memory_search", {"query": "x", "k": "5"}, "k: "),
        ("memory_search", {"query": "x", "mode": "psychic"}, "mode: "),
        ("memory_search", {}, "query: is required"),
        ("memory_search", {"query": None}, "query: Input should be a valid string"),
        ("memory_search", {"query": "x", "limit": 3}, "memory_search does not know the argument 'limit'; it takes"),
        ("memory_write_inbox", {"content": "\n"}, "content: must not be empty or blank"),
        ("memory_ledger_append", {"topic": "t", "phase": "soon", "action": "a"}, "phase: "),
        ("memory_retrieve", {"query": "x", "horizon": "workspace"}, "a reason go together"),
        ("memory_remember", {"text": "x", "claims": [{"statement": "s"}]}, "claims.0.quote: is required"),
        (
            "memory_remember",
            {"text": "x", "claims": [{"statement": "s", "quote": "x", "by": 1}]},
            "claims.0.by: unknown",
        ),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused_by_name(
    idle_model: Model, tool: str, arguments: Json, said: str
) -> None:
    done = idle_model.call(tool, arguments)
    assert done.is_error
    text = done.content[0].text  # type: ignore[union-attr]
    assert text.startswith("Error [INVALID_ARGUMENT]: ") and said in text
    assert idle_model.ok("memory_health")["concepts"] == 0


def test_null_is_the_same_as_to_leave_out_and_a_whole_number_may_have_a_point(idle_model: Model) -> None:
    nulls = {"exclude_source": None, "as_of": None, "expand": None, "mode": None}
    assert idle_model.ok("memory_search", query="x", k=3.0, **nulls) == idle_model.ok("memory_search", query="x", k=3)


@pytest.mark.parametrize("text", ["'; DROP TABLE artifacts; --", "\x00", "𝕏" * 300, "../../etc/passwd", "‮abc"])
def test_odd_words_harm_nothing(idle_model: Model, text: str) -> None:
    for tool, name in (("memory_search", "query"), ("memory_retrieve", "query"), ("memory_get", "id")):
        done = idle_model.call(tool, {name: text})
        assert not done.is_error or done.content[0].text.startswith(  # type: ignore[union-attr]
            ("Error [INVALID_ARGUMENT]", "Error [INVALID_ID]")
        )
    assert idle_model.ok("memory_health")["concepts"] == 0


def test_a_fleet_that_nobody_registered_is_told_so(idle_model: Model) -> None:
    assert idle_model.ok("memory_fleet_status")["registry"] is False
    work = {"engine": "a", "topic": "b", "goal": "c", "verify": "d"}
    assert idle_model.refused("memory_fleet_assign", **work).startswith("Error [NO_REGISTRY]: ")


# --- resources and the prompt ----------------------------------------------------------------------------------------


def test_a_citation_is_a_resource(model: Model) -> None:
    told = model.ok("memory_remember", text="Ofen: Kegel 6 — 21:40", claims=[{"statement": "s", "quote": "Kegel 6"}])
    (whole,) = model.run(lambda client: client.read_resource(told["citation"])).contents
    (part,) = model.run(lambda client: client.read_resource(told["claims"][0]["citation"])).contents
    assert whole.text == "Ofen: Kegel 6 — 21:40"  # type: ignore[union-attr]
    assert (part.text, part.uri) == ("Kegel 6", told["claims"][0]["citation"])  # type: ignore[union-attr]
    (template,) = model.run(lambda client: client.list_resource_templates()).resource_templates
    assert template.uri_template == "memoree://artifact/{artifact_id}@{revision_id}{#span}"


@pytest.mark.parametrize(
    "uri",
    ["file:///etc/passwd", "memoree://artifact/art_x@arev_x", "memoree://artifact/x@y#9-1", "memoree://artifact/x"],
)
def test_what_is_no_citation_of_this_store_is_no_resource(idle_model: Model, uri: str) -> None:
    with pytest.raises(MCPError, match=r"Error \[(INVALID_ARGUMENT|NOT_FOUND|CITATION_ERROR)\]"):
        idle_model.run(lambda client: client.read_resource(uri))


def test_the_prompt_teaches_how_to_answer(idle_model: Model) -> None:
    (prompt,) = idle_model.run(lambda client: client.list_prompts()).prompts
    assert [argument.name for argument in prompt.arguments or []] == ["question"]
    asked = {"question": "Who runs the kiln?"}
    (message,) = idle_model.run(lambda client: client.get_prompt(prompt.name, asked)).messages
    text = message.content.text  # type: ignore[union-attr]
    assert text.endswith("Question: Who runs the kiln?")
    assert "## What the memory doesn't cover" in text
    assert "memory_write_inbox" in text
