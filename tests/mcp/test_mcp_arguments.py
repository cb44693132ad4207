"""Every argument of the agent's own tools changes something; those of the bundle are in `test_mcp_bundle`."""

from __future__ import annotations

import pytest
from mcp_support import Json, Model, Shell

from memoree.mcp.tools import AGENT_TOOLS, BUNDLE_TOOLS, Tool

TRIED_HERE = {
    "memory_retrieve": {"query", "max_claims", "max_artifact_refs", "reformulation", "horizon", "reason"},
    "memory_remember": {"text", "title", "kind", "claims"},
    "memory_forget": {"artifact_id", "reason"},
    "claim_retract": {"claim_id", "reason"},
    "memory_browse": {"of", "kind", "limit", "before"},
    "context_build": {"query", "limit", "max_bytes", "horizon", "reason"},
    "conflict_list": {"include_stale", "limit", "before_case_sequence"},
    "citation_get": {"citation", "max_bytes"},
}
TRIED_ON_A_BUNDLE = {
    "memory_answer_pack": {"question", "token_budget", "as_of"},
    "memory_search": {
        *("query", "k", "mode", "exclude_source", "no_global", "expand", "expand_budget"),
        *("include_superseded", "as_of"),
    },
    "memory_get": {"id"},
    "memory_list": {"type", "tag"},
    "memory_write_inbox": {"content", "title"},
    "memory_handoff": {"project", "days"},
    "memory_health": set(),
    "memory_ledger_append": {"topic", "phase", "action", "status", "artifact", "ref"},
    "memory_ledger_status": set(),
    "memory_fleet_status": set(),
}
REFUSED = {"memory_fleet_assign"}
"""There is no registry: its arguments are judged, and then it says so."""


@pytest.mark.parametrize("tool", [*AGENT_TOOLS, *BUNDLE_TOOLS], ids=lambda tool: tool.name)
def test_no_argument_is_left_untried(tool: Tool) -> None:
    if tool.name not in REFUSED:
        assert set(tool.input_schema["properties"]) == {**TRIED_HERE, **TRIED_ON_A_BUNDLE}[tool.name]


def remembered(model: Model, text: str, **more: object) -> Json:
    return model.ok("memory_remember", text=text, **more)


def claims_of(found: Json) -> list[str]:
    return [each["statement"] for each in found["claims"]]


def test_arguments_of_remembering(model: Model, shell: Shell) -> None:
    claim = {
        "statement": "Per leads the guild.",
        "quote": "Per leads",
        "claim_type": "decision",
        "confidence": 0.5,
        "valid_from": "2026-01-01T00:00:00Z",
        "valid_until": "2030-01-01T02:00:00+02:00",
    }
    told = remembered(model, "Per leads the guild.", title="Guild", kind="minutes", claims=[claim])
    artifact = shell.call("artifact.get", {"artifact_id": told["artifact_id"]})
    assert (artifact["title"], artifact["kind"], artifact["content"]["data"]) == (
        "Guild",
        "minutes",
        "Per leads the guild.",
    )
    stored = shell.call("claim.get", {"claim_id": told["claims"][0]["claim_id"]})
    assert (stored["claim_type"], stored["confidence"], stored["statement"]) == ("decision", 0.5, claim["statement"])
    assert stored["valid_from"].startswith("2026-01-01T00:00:00") and stored["valid_until"].startswith(
        "2030-01-01T00:00"
    )


def test_arguments_of_retrieving(model: Model) -> None:
    for number in range(3):
        text = f"Glaze recipe {number}: cobalt {number} percent."
        claim = {
            "statement": f"Glaze recipe {number} has cobalt {number} percent.",
            "quote": f"cobalt {number} percent",
        }
        remembered(model, text, claims=[claim])
        remembered(model, f"Glaze recipe notebook, page {number}, cobalt.")

    def retrieve(query: str = "glaze recipe cobalt", **more: object) -> Json:
        return model.ok("memory_retrieve", query=query, **more)

    assert len(claims_of(retrieve())) == 3
    assert len(claims_of(retrieve(max_claims=1))) == 1
    assert len(retrieve(max_artifact_refs=1)["artifact_refs"]) == 1 < len(retrieve()["artifact_refs"])
    assert claims_of(retrieve("celadon")) == []
    again = retrieve("celadon tenmoku", reformulation="glaze recipe cobalt")
    assert again != retrieve("celadon tenmoku")
    wider = retrieve(horizon="workspace", reason="the user asked for all projects")
    assert wider["searched_horizon"] == "workspace"
    assert model.refused("memory_retrieve", query="x", reason="no wider horizon").startswith("Error [INVALID_ARGUMENT]")


def test_arguments_of_browsing(model: Model) -> None:
    for number in range(3):
        claim = {"statement": f"s{number}", "quote": "note", "claim_type": "fact" if number else "decision"}
        remembered(model, f"note {number}", kind="note" if number else "letter", claims=[claim])

    def browse(**more: object) -> list[str]:
        return [item["text"] for item in model.ok("memory_browse", **more)["items"]]

    assert browse() == ["note 2", "note 1", "note 0"]
    assert browse(of="claims") == ["s2", "s1", "s0"]
    assert browse(kind="letter") == ["note 0"]
    assert browse(of="claims", kind="decision") == ["s0"]
    first = model.ok("memory_browse", limit=2)
    assert [item["text"] for item in first["items"]] == ["note 2", "note 1"]
    assert browse(limit=2, before=first["next_before"]) == ["note 0"]
    assert model.refused("memory_browse", of="claims", kind="rumour").startswith("Error [INVALID_ARGUMENT]")


def test_arguments_of_context_and_citations(model: Model) -> None:
    told = remembered(
        model,
        "The north kiln cracked on Monday.",
        claims=[{"statement": "The north kiln cracked.", "quote": "cracked"}],
    )
    remembered(model, "The north kiln was mended on Friday.")
    built = model.ok("context_build", query="north kiln")
    assert model.ok("context_build", query="north kiln", max_bytes=700)["used_bytes"] <= 700 < built["used_bytes"]
    assert model.ok("context_build", query="north kiln", limit=1)["used_bytes"] < built["used_bytes"]
    assert model.ok("context_build", query="south bakery")["rendered_markdown"] != built["rendered_markdown"]
    wider = model.ok("context_build", query="north kiln", horizon="personal", reason="asked for")
    assert wider != built
    citation = told["claims"][0]["citation"]
    assert model.ok("citation_get", citation=citation)["content"] == "cracked"
    assert model.ok("citation_get", citation=citation, max_bytes=5)["content"] == "crack"
    refused = model.refused("citation_get", citation=told["citation"])
    assert refused.startswith("Error [CITATION_ERROR]: ") and "add #START-END" in refused


def test_arguments_of_taking_away(model: Model, shell: Shell) -> None:
    claim = {"statement": "It rained.", "quote": "rained"}
    told = remembered(model, "It rained on Monday.", claims=[claim])
    claim_id, artifact_id = told["claims"][0]["claim_id"], told["artifact_id"]
    model.ok("claim_retract", claim_id=claim_id, reason="it snowed")
    assert shell.call("claim.get", {"claim_id": claim_id})["retraction_reason"] == "it snowed"
    model.ok("memory_forget", artifact_id=artifact_id, reason="no longer of use")
    assert shell.call("artifact.get", {"artifact_id": artifact_id})["forgotten_reason"] == "no longer of use"
    assert model.refused("memory_forget", artifact_id="art_x", reason="r").startswith("Error [NOT_FOUND]: ")


def test_arguments_of_conflicts(model: Model, shell: Shell) -> None:
    told = [
        remembered(
            model, f"Kiln {number} note", claims=[{"statement": f"The kiln is number {number}.", "quote": "Kiln"}]
        )
        for number in range(3)
    ]
    ids = [each["claims"][0]["claim_id"] for each in told]
    for number in (1, 2):
        against = {"source_type": "claim", "source_id": ids[0], "relation": "contradicts"}
        shell.call("relation.put", {**against, "target_type": "claim", "target_id": ids[number]}, key=f"k{number}")
    both = model.ok("conflict_list")
    assert len(both["conflicts"]) == 2
    one = model.ok("conflict_list", limit=1)
    assert len(one["conflicts"]) == 1
    rest = model.ok("conflict_list", before_case_sequence=one["next_before_case_sequence"])
    assert rest["conflicts"] == both["conflicts"][1:]
    revised = {"claim_id": ids[1], "statement": "The kiln has the number 1."}
    current = shell.call("claim.get", {"claim_id": ids[1]})["revision_id"]
    shell.call("claim.revise", {**revised, "if_revision": current}, key="revised")
    assert len(model.ok("conflict_list")["conflicts"]) == 2  # the revision's case succeeds that of the claim as it was
    assert len(model.ok("conflict_list", include_stale=True)["conflicts"]) == 3
