"""What a client is told of the tools: the golden list, and what no schema may have."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from mcp_support import Model, local_model

from memoree.mcp.sdk import listed
from memoree.mcp.tools import PROFILES

GOLDEN = Path(__file__).with_name("tools.json")
THE_TEN = [
    "memory_search",
    "memory_get",
    "memory_list",
    "memory_write_inbox",
    "memory_handoff",
    "memory_health",
    "memory_ledger_append",
    "memory_ledger_status",
    "memory_fleet_status",
    "memory_fleet_assign",
]
NOWHERE = {"$ref", "$defs"}
NOT_AT_THE_TOP = {"anyOf", "oneOf", "allOf", "not", "if", "enum", "$ref"}

Json = dict[str, Any]


def wire(profile: str) -> list[Json]:
    return [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed(profile)]


def words(node: Any) -> set[str]:
    """Every word of a schema, names of properties left out."""
    if isinstance(node, list):
        return set().union(*(words(item) for item in node)) if node else set()
    if not isinstance(node, dict):
        return set()
    found: set[str] = set(node)
    for word, value in node.items():
        found |= set().union(*map(words, value.values())) if word == "properties" and value else words(value)
    return found


def test_the_list_is_the_one_that_was_reviewed(request: pytest.FixtureRequest) -> None:
    told = {profile: wire(profile) for profile in PROFILES}
    if request.config.getoption("--write-tools", default=False):
        GOLDEN.write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n")
    assert told == json.loads(GOLDEN.read_text()), "pytest tests/mcp --write-tools writes what there is now"


@pytest.mark.proves("okf-68")
def test_the_profile_okf_has_exactly_the_ten_tools_and_each_an_object_schema(tmp_path: Path) -> None:
    with local_model(tmp_path, profile="okf") as model:
        tools = model.tools()
        assert list(tools) == THE_TEN
        assert all(tool.input_schema["type"] == "object" for tool in tools.values())
        assert model.refused("memory_remember", text="not of this profile") == "Unknown tool: memory_remember"


@pytest.mark.fault_class(58)
def test_the_agent_has_these_and_its_own(idle_model: Model) -> None:
    tools = idle_model.tools()
    assert set(THE_TEN) < set(tools)
    own = {"memory_retrieve", "memory_remember", "memory_forget", "claim_retract", "memory_browse", "context_build"}
    assert set(tools) - set(THE_TEN) == own | {"conflict_list", "citation_get", "memory_answer_pack"}


@pytest.mark.fault_class(58)
@pytest.mark.parametrize("tool", wire("agent"), ids=lambda tool: tool["name"])
def test_a_tool_is_told_so_that_every_client_understands_it(tool: Json) -> None:
    assert re.fullmatch(r"[a-z0-9_]{1,64}", tool["name"])
    assert tool["title"] and len(tool["description"]) > 40
    hints = tool["annotations"]
    assert {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"} <= set(hints)
    assert hints["openWorldHint"] is False
    assert not (hints["readOnlyHint"] and hints["destructiveHint"])
    for schema in (tool["inputSchema"], tool["outputSchema"]):
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"
        assert not NOT_AT_THE_TOP & set(schema)
        assert not NOWHERE & words(schema)
        assert "$schema" not in schema
    assert tool["inputSchema"]["additionalProperties"] is False
    for name, described in tool["inputSchema"]["properties"].items():
        assert described["description"], name
        assert "type" in described, f"{name} has no plain type"
        if "default" in described:
            jsonschema.validate(described["default"], described)
    assert not {"anyOf", "oneOf", "allOf"} & words(tool["inputSchema"])


def test_what_only_reads_is_told_so_and_what_takes_away_too() -> None:
    hints = {tool["name"]: tool["annotations"] for tool in wire("agent")}
    writes = {name for name, hint in hints.items() if not hint["readOnlyHint"]}
    assert writes == {
        "memory_remember",
        "memory_forget",
        "claim_retract",
        "memory_write_inbox",
        "memory_ledger_append",
        "memory_fleet_assign",
    }
    assert {name for name, hint in hints.items() if hint["destructiveHint"]} == {"memory_forget", "claim_retract"}
    assert {name for name in writes if not hints[name]["idempotentHint"]} == {
        "memory_write_inbox",
        "memory_ledger_append",
        "memory_fleet_assign",
    }
