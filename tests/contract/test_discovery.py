"""What a service says about itself: capabilities, schema, instructions, doctor (machine protocol §4.1–4.3, §4.35)."""

from __future__ import annotations

import os
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from .door import Door, EmbeddedDoor
from .protocol import CALLER_SIDE_ONLY, CATALOGUE, OPERATIONS, REPORTED_BOUNDS
from .workbench import Workbench

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MARKDOWN_BYTES_MAX = 12 * 1024


@pytest.mark.proves("machine-30")
def test_capabilities_report_every_bound_of_what_is_built(door: Door) -> None:
    capabilities = door.ok("capabilities")
    built = {row["operation"] for row in capabilities["operations"] if row["available"]}
    for bound in REPORTED_BOUNDS:
        if bound.owed_with is None or bound.owed_with in built:
            assert capabilities[bound.field] == bound.value, bound.field
        else:
            assert capabilities.get(bound.field, bound.value) == bound.value, bound.field
    assert capabilities["max_concurrent_connections"] >= 1


def test_capabilities_name_the_product_and_its_rules(door: Door) -> None:
    capabilities = door.ok("capabilities")
    expected = {
        "product": "memoree",
        "protocol_version": 1,
        "default_horizon": "ambient",
        "supported_horizons": ["ambient", "workspace", "personal"],
        "ambient_context_sources": ["explicit", "session", "marker", "personal"],
        "broader_horizons_require_reason": True,
        "prompt_injection_signals": True,
        "authoritative_store": "sqlite_wal",
    }
    assert {name: capabilities[name] for name in expected} == expected
    assert capabilities["instruction_set_version"] >= 1
    assert set(capabilities["retrieval"]) == {"exact", "sqlite_fts5", "cited_derived_projection_candidates"}
    assert {
        "immutable_revisions",
        "idempotent_mutations",
        "optimistic_concurrency",
        "read_your_writes_commit_sequence",
        "revision_stable_citations",
        "explicit_search_broadening",
        "ambient_write_scope",
        "temporal_validity_filtering",
        "revision_bound_conflict_lifecycle",
        "automatic_live_conflict_reassessment",
        "append_only_conflict_events",
        "model_independent_exact_tier",
        "candidates_never_affect_presence",
        "bounded_exact_citation_fetch",
        "out_of_process_source_sync",
        "logical_source_withdrawal_no_erasure",
        "privacy_preserving_explicit_feedback",
    } <= set(capabilities["guarantees"])
    assert capabilities["source_sync"] == {
        "connector_runtime": "out_of_process",
        "stable_external_identity": True,
        "cursor_checkpointing": True,
        "withdrawal": "logical",
        "erasure": "none",
    }
    assert capabilities["cited_projections"] == {
        "role": "candidate_only",
        "exact_raw_evidence_required": True,
        "can_qualify_presence": False,
        "included_in_context_build": False,
    }
    assert capabilities["retrieval_feedback"] == {
        "capture": "explicit_only",
        "query_storage_default": "keyed_fingerprint_only",
        "automatic_online_learning": False,
    }


@pytest.mark.proves("machine-218")
def test_capabilities_list_operations_in_the_order_and_with_the_columns_of_the_catalogue(door: Door) -> None:
    rows = door.ok("capabilities")["operations"]
    listed = [row["operation"] for row in rows]
    catalogue = {operation.name: operation for operation in CATALOGUE}
    assert listed == [name for name in catalogue if name in listed]
    assert [row["operation"] for row in rows if row["available"]] == [name for name in catalogue if name in OPERATIONS]
    for row in rows:
        operation = catalogue[row["operation"]]
        assert row == {
            "operation": operation.name,
            "available": row["available"],
            "mutating": operation.mutating,
            "side_effecting": operation.side_effecting,
            "needs_context": operation.needs_context,
            "requires_idempotency_key": operation.mutating,
            "supports_explicit_horizon": operation.horizon,
        }


@pytest.mark.proves("machine-218")
def test_the_schema_bundle_covers_exactly_the_operations_of_capabilities(door: Door) -> None:
    bundle = door.ok("schema")
    listed = [row["operation"] for row in door.ok("capabilities")["operations"]]
    assert bundle["schema_bundle_version"] == 1
    assert bundle["protocol_version"] == 1
    assert list(bundle["operation_inputs"]) == listed
    assert list(bundle["result_types"]) == listed
    assert not set(CALLER_SIDE_ONLY) & (set(bundle["operation_inputs"]) | set(bundle["result_types"]) | set(listed))
    assert "evidence_locator" in bundle["supporting_types"]


@pytest.mark.proves("machine-218")
def test_every_schema_stands_alone_as_a_root_of_the_2020_12_dialect(door: Door) -> None:
    bundle = door.ok("schema")
    roots = {"request": bundle["request"], "response": bundle["response"]}
    for group in ("operation_inputs", "result_types", "supporting_types"):
        roots |= {f"{group}.{name}": schema for name, schema in bundle[group].items()}
    for name, schema in roots.items():
        assert schema.get("$schema") == DIALECT, name
        Draft202012Validator.check_schema(schema)
        assert unresolved(schema, schema) == [], name


def unresolved(root: Any, node: Any) -> list[str]:
    """The references inside a schema that do not resolve inside it."""
    if isinstance(node, list):
        return [ref for item in node for ref in unresolved(root, item)]
    if not isinstance(node, dict):
        return []
    broken = [ref for member in node.values() for ref in unresolved(root, member)]
    ref = node.get("$ref")
    if isinstance(ref, str) and not resolves(root, ref):
        broken.append(ref)
    return broken


def resolves(root: Any, ref: str) -> bool:
    if not ref.startswith("#/"):
        return ref == "#"
    for step in ref.removeprefix("#/").split("/"):
        if not isinstance(root, dict) or step not in root:
            return False
        root = root[step]
    return True


@pytest.mark.proves("machine-218")
def test_the_request_schema_requires_id_and_operation(door: Door) -> None:
    request = door.ok("schema")["request"]
    assert {"request_id", "op"} <= set(request["required"])
    assert "default" not in request["properties"]["request_id"]
    assert request["additionalProperties"] is False


@pytest.mark.parametrize("op", OPERATIONS)
def test_requests_and_results_satisfy_the_published_schemas(
    door: Door, specimen_inputs: dict[str, Any], op: str
) -> None:
    bundle = door.ok("schema")
    request = door.envelope(op, specimen_inputs[op])
    Draft202012Validator(bundle["request"]).validate(request)
    Draft202012Validator(bundle["operation_inputs"][op]).validate(specimen_inputs[op])
    answer = door.call(op, specimen_inputs[op])
    Draft202012Validator(bundle["response"]).validate(answer)
    Draft202012Validator(bundle["result_types"][op]).validate(answer["result"])
    refusal = door.call(op, {"surplus": 1})
    Draft202012Validator(bundle["response"]).validate(refusal)
    assert not Draft202012Validator(bundle["operation_inputs"][op]).is_valid({"surplus": 1})


@pytest.mark.proves("machine-219")
def test_instructions_are_markdown_text_unless_asked_otherwise(door: Door) -> None:
    default = door.ok("instructions")
    assert default["format"] == "markdown"
    assert isinstance(default["content"], str)
    assert 0 < len(default["content"].encode()) < MARKDOWN_BYTES_MAX
    for name in ("markdown", "agents-md", "claude-md"):
        same = door.ok("instructions", {"format": name})
        assert same["format"] == name
        assert isinstance(same["content"], str) and same["content"]


@pytest.mark.proves("machine-219")
def test_instructions_as_json_are_a_structured_document_with_the_same_rules(door: Door) -> None:
    document = door.ok("instructions", {"format": "json"})["content"]
    capabilities = door.ok("capabilities")
    assert document["product"] == "memoree"
    assert document["instruction_set_version"] == capabilities["instruction_set_version"]
    assert document["protocol_version"] == 1
    assert set(document["invocation"]) == {
        "command",
        "request_stream",
        "response_stream",
        "diagnostics_stream",
    }
    assert document["workflow"] and all(isinstance(step, str) for step in document["workflow"])
    assert all(set(rule) == {"id", "level", "text"} for rule in document["rules"])
    assert {rule["level"] for rule in document["rules"]} <= {"must", "should"}
    assert all(set(concept) == {"name", "meaning"} for concept in document["concepts"])
    markdown = door.ok("instructions")["content"]
    assert all(rule["text"] in markdown for rule in document["rules"]), "the two forms come from one source"


def test_instructions_refuse_an_unknown_format(door: Door) -> None:
    for unknown in ("html", "Markdown", "", 1, None):
        door.refused("INVALID_REQUEST", "instructions", {"format": unknown})


@pytest.mark.proves("machine-211")
def test_doctor_reports_a_running_service_and_the_number_of_commits(empty_store: EmbeddedDoor) -> None:
    bench = Workbench(empty_store)
    assert empty_store.ok("doctor")["last_commit_seq"] == 0
    artifact = bench.put()
    empty_store.refused("INVALID_REQUEST", "artifact.revise", {"artifact_id": artifact["artifact_id"]})
    empty_store.refused("NOT_FOUND", "artifact.forget", {"artifact_id": "art_unknown", "reason": "r"})
    bench.claim()
    report = empty_store.ok("doctor", context=None)
    assert report["status"] == "ok"
    assert report["running"] is True
    assert report["daemon_pid"] == os.getpid()
    assert report["authoritative_store"] == "sqlite_wal"
    assert report["last_commit_seq"] == 2
    assert report["lifecycle_owner"] in {"memoree", "external"}
    assert isinstance(report["retrieval_mode"], str) and report["retrieval_mode"]
    assert isinstance(report["binary_version"], str) and report["binary_version"]
    assert report["schema_version"] >= 1
