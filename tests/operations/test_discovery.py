from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from memoree import __version__
from memoree.envelope import success
from memoree.operations import instructions_text
from memoree.operations.registry import catalogue

from .bench import LAB, Bench, put_input

Json = dict[str, Any]


def test_capabilities_list_exactly_the_operations_that_exist(bench: Bench) -> None:
    found = bench.read("capabilities", context=None)
    assert [entry["operation"] for entry in found["operations"]] == list(catalogue())
    put = next(entry for entry in found["operations"] if entry["operation"] == "artifact.put")
    assert put == {
        "operation": "artifact.put",
        "available": True,
        "mutating": True,
        "side_effecting": True,
        "needs_context": True,
        "requires_idempotency_key": True,
        "supports_explicit_horizon": False,
    }


def test_capabilities_report_the_facts_of_the_process_that_answers(bench: Bench) -> None:
    found = bench.read("capabilities", context=None)
    assert found["max_concurrent_connections"] == 7
    assert (found["authorization"], found["local_personal_mode"]) == (False, True)
    assert (found["blob_store"], found["authoritative_store"]) == ("filesystem", "sqlite_wal")


def test_nothing_is_offered_before_its_operation_exists(bench: Bench) -> None:
    found = bench.read("capabilities", context=None)
    offers = {
        "max_retrieve_leads": "memory.retrieve",
        "max_feedback_items": "feedback.list",
        "source_sync": "source.ingest",
        "cited_projections": "projection.put",
        "retrieval_feedback": "feedback.record",
    }
    assert {name for name in offers if name in found} == {name for name, op in offers.items() if op in catalogue()}
    assert ("append_only_conflict_events" in found["guarantees"]) is ("conflict.list" in catalogue())
    assert "immutable_revisions" in found["guarantees"]


@pytest.mark.proves("machine-219")
def test_instructions_are_markdown_by_default_and_short(bench: Bench) -> None:
    found = bench.read("instructions", context=None)
    assert found["format"] == "markdown"
    assert len(found["content"].encode()) < 12 * 1024
    for alias in ("agents-md", "claude-md"):
        assert bench.read("instructions", {"format": alias}) == {"format": alias, "content": found["content"]}


def test_the_structured_instructions_say_what_the_markdown_says(bench: Bench) -> None:
    document = bench.read("instructions", {"format": "json"})["content"]
    markdown = bench.read("instructions")["content"]
    sentences = [*document["workflow"], *(rule["text"] for rule in document["rules"])]
    sentences += [word["meaning"] for word in document["concepts"]]
    assert document["purpose"] in markdown
    assert all(sentence in markdown for sentence in sentences)
    assert {rule["level"] for rule in document["rules"]} == {"must", "should"}
    assert document["invocation"]["command"] == "memoree call"


def test_instructions_teach_only_operations_that_exist() -> None:
    everything = instructions_text.markdown(["search", "memory.recall", "relation.put"])
    nothing = instructions_text.markdown([])
    for operation in ("search", "memory.recall", "relation.put"):
        assert f"`{operation}`" in everything
        assert f"`{operation}`" not in nothing


def test_the_doctor_knows_the_state_and_the_process(bench: Bench) -> None:
    bench.put()
    found = bench.read("doctor", context=None)
    assert (found["status"], found["running"], found["daemon_pid"]) == ("ok", True, 4711)
    assert (found["last_commit_seq"], found["schema_version"]) == (1, bench.meta().schema_version)
    assert (found["binary_version"], found["lifecycle_owner"]) == (__version__, "external")


@pytest.fixture
def bundle(bench: Bench) -> Json:
    return bench.read("schema", context=None)


@pytest.mark.proves("machine-218")
def test_every_schema_is_a_root_of_its_own(bundle: Json) -> None:
    schemas = [bundle["request"], bundle["response"]]
    for group in ("operation_inputs", "result_types", "supporting_types"):
        schemas += bundle[group].values()
    for schema in schemas:
        assert schema.get("$schema") == "https://json-schema.org/draft/2020-12/schema"
        Draft202012Validator.check_schema(schema)
        assert all(name in schema.get("$defs", {}) for name in _references(schema))
    assert list(bundle["operation_inputs"]) == list(bundle["result_types"]) == list(catalogue())
    assert list(bundle["supporting_types"]) == ["evidence_locator"]


def test_inputs_refuse_unknown_members_at_every_level(bundle: Json) -> None:
    for schema in bundle["operation_inputs"].values():
        typed = [schema, *schema.get("$defs", {}).values()]
        assert all(part["additionalProperties"] is False for part in typed if part.get("type") == "object")


def test_the_request_schema_requires_its_id_and_operation(bundle: Json) -> None:
    request = bundle["request"]
    assert {"request_id", "op"} <= set(request["required"])
    assert "default" not in request["properties"]["request_id"]
    assert request["properties"]["op"]["enum"] == list(catalogue())
    validator = Draft202012Validator(request)
    wanted = {"v": 1, "request_id": "r", "op": "artifact.put", "context": LAB, "input": put_input()}
    assert validator.is_valid(wanted)
    for broken in ({"op": "artifact.steal"}, {"v": 2}, {"context": {"workspace_id": "w"}}, {"input": 1}, {"x": 1}):
        assert not validator.is_valid(wanted | broken)


def test_real_answers_satisfy_their_published_schemas(bench: Bench, bundle: Json) -> None:
    artifact = bench.put(provenance={"pyrometer": None}, actor="a")
    claim = bench.claim(evidence=[{name: artifact[name] for name in ("artifact_id", "revision_id")}], confidence=1)
    answers = {
        "artifact.put": artifact,
        "artifact.revise": bench.revise(artifact),
        "artifact.forget": bench.write("artifact.forget", {"artifact_id": artifact["artifact_id"], "reason": "r"}),
        "artifact.get": bench.read("artifact.get", {"artifact_id": artifact["artifact_id"]}),
        "artifact.history": bench.read("artifact.history", {"artifact_id": artifact["artifact_id"], "limit": 1}),
        "claim.assert": claim,
        "claim.revise": bench.revise_claim(claim),
        "claim.retract": bench.write("claim.retract", {"claim_id": claim["claim_id"], "reason": "r"}),
        "claim.get": bench.read("claim.get", {"claim_id": claim["claim_id"]}),
        "claim.history": bench.read("claim.history", {"claim_id": claim["claim_id"]}),
    }
    for operation in ("capabilities", "instructions", "schema", "doctor", "context.resolve"):
        answers[operation] = bench.read(operation)
    response = Draft202012Validator(bundle["response"])
    for operation, answer in answers.items():
        Draft202012Validator(bundle["result_types"][operation]).validate(answer)
        call = bench.request("context.resolve")
        response.validate(success("r", answer, context=call.echoed_context(), commit_seq=1))


def _references(schema: Any) -> list[str]:
    if isinstance(schema, dict):
        own = [schema["$ref"].removeprefix("#/$defs/")] if "$ref" in schema else []
        return own + [name for value in schema.values() for name in _references(value)]
    if isinstance(schema, list):
        return [name for value in schema for name in _references(value)]
    return []
