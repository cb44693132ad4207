"""What a caller can learn about the running service: `capabilities`, `instructions`, `doctor` (machine protocol §4.1,
§4.2, §4.35, §8). Only what exists is told: every entry names the operation without which it would not be true."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from memoree import __version__, limits
from memoree.envelope import PROTOCOL_VERSION, Horizon, WireModel
from memoree.operations import instructions_text
from memoree.operations.call import Call
from memoree.operations.registry import Operation, catalogue, read
from memoree.operations.shapes import EmptyInput
from memoree.operations.view import View

AUTHORITATIVE_STORE = "sqlite_wal"


class Offer(NamedTuple):
    """Something the service reports, and the operation without which it would not be true."""

    name: str
    needs: str | None = None


class Bound(NamedTuple):
    name: str
    value: int
    needs: str | None = None


BOUNDS = (
    Bound("max_frame_bytes", limits.FRAME_BYTES_MAX),
    Bound("max_artifact_bytes", limits.ARTIFACT_BYTES_MAX),
    Bound("max_encoded_content_bytes", limits.ENCODED_CONTENT_BYTES_MAX),
    Bound("max_query_bytes", limits.QUERY_BYTES_MAX, "search"),
    Bound("max_title_bytes", limits.TITLE_BYTES_MAX),
    Bound("max_claim_statement_bytes", limits.STATEMENT_BYTES_MAX),
    Bound("max_metadata_bytes", limits.METADATA_BYTES_MAX),
    Bound("max_evidence_items", limits.EVIDENCE_ITEMS_MAX),
    Bound("max_search_items", limits.SEARCH_ITEMS_MAX, "search"),
    Bound("max_recall_claims", limits.RECALL_CLAIMS_MAX, "memory.recall"),
    Bound("max_recall_artifact_refs", limits.RECALL_ARTIFACT_REFS_MAX, "memory.recall"),
    Bound("max_recall_candidate_claims", limits.RECALL_CANDIDATE_CLAIMS_MAX, "memory.recall"),
    Bound("max_recall_candidate_artifact_refs", limits.RECALL_CANDIDATE_ARTIFACT_REFS_MAX, "memory.recall"),
    Bound("max_recall_excerpt_bytes", limits.RECALL_EXCERPT_BYTES_MAX, "memory.recall"),
    Bound("max_recall_evidence_excerpts_per_claim", limits.RECALL_EVIDENCE_EXCERPTS_PER_CLAIM_MAX, "memory.recall"),
    Bound("max_probe_items", limits.PROBE_ITEMS_MAX, "memory.probe"),
    Bound("max_probe_title_bytes", limits.PROBE_TITLE_BYTES_MAX, "memory.probe"),
    Bound("max_retrieve_leads", limits.RETRIEVE_LEADS_MAX, "memory.retrieve"),
    Bound("max_retrieve_references", limits.RETRIEVE_REFERENCES_MAX, "memory.retrieve"),
    Bound("max_retrieve_evidence_bytes", limits.RETRIEVE_EVIDENCE_BYTES_MAX, "memory.retrieve"),
    Bound("max_citation_bytes", limits.CITATION_BYTES_MAX, "citation.get"),
    Bound("max_citation_fetch_bytes", limits.CITATION_FETCH_BYTES_MAX, "citation.get"),
    Bound("max_history_items", limits.HISTORY_ITEMS_MAX),
    Bound("max_relation_list_items", limits.RELATION_LIST_ITEMS_MAX, "relation.list"),
    Bound("max_conflict_list_items", limits.CONFLICT_LIST_ITEMS_MAX, "conflict.list"),
    Bound("max_source_items", limits.SOURCE_ITEMS_MAX, "source.ingest"),
    Bound("max_projection_items", limits.PROJECTION_ITEMS_MAX, "projection.list"),
    Bound("max_feedback_items", limits.FEEDBACK_ITEMS_MAX, "feedback.list"),
)

RETRIEVAL = (
    Offer("exact"),
    Offer("sqlite_fts5", "search"),
    Offer("cited_derived_projection_candidates", "search"),
)

GUARANTEES = (
    Offer("immutable_revisions"),
    Offer("idempotent_mutations"),
    Offer("optimistic_concurrency"),
    Offer("read_your_writes_commit_sequence", "search"),
    Offer("revision_stable_citations", "search"),
    Offer("explicit_search_broadening", "search"),
    Offer("ambient_write_scope"),
    Offer("temporal_validity_filtering", "search"),
    Offer("revision_bound_conflict_lifecycle", "conflict.list"),
    Offer("automatic_live_conflict_reassessment", "conflict.list"),
    Offer("append_only_conflict_events", "conflict.list"),
    Offer("model_independent_exact_tier", "memory.recall"),
    Offer("candidates_never_affect_presence", "memory.recall"),
    Offer("bounded_exact_citation_fetch", "citation.get"),
    Offer("out_of_process_source_sync", "source.ingest"),
    Offer("logical_source_withdrawal_no_erasure", "source.withdraw"),
    Offer("privacy_preserving_explicit_feedback", "feedback.record"),
)

SOURCE_SYNC: dict[str, str | bool] = {
    "connector_runtime": "out_of_process",
    "stable_external_identity": True,
    "cursor_checkpointing": True,
    "withdrawal": "logical",
    "erasure": "none",
}
CITED_PROJECTIONS: dict[str, str | bool] = {
    "role": "candidate_only",
    "exact_raw_evidence_required": True,
    "can_qualify_presence": False,
    "included_in_context_build": False,
}
RETRIEVAL_FEEDBACK: dict[str, str | bool] = {
    "capture": "explicit_only",
    "query_storage_default": "keyed_fingerprint_only",
    "automatic_online_learning": False,
}


class OperationEntry(BaseModel):
    """One row of the catalogue."""

    operation: str
    available: bool
    mutating: bool
    side_effecting: bool
    needs_context: bool
    requires_idempotency_key: bool
    supports_explicit_horizon: bool

    @classmethod
    def of(cls, operation: Operation) -> OperationEntry:
        return cls(
            operation=operation.name,
            available=True,
            mutating=operation.mutating,
            side_effecting=operation.side_effecting,
            needs_context=operation.needs_context,
            requires_idempotency_key=operation.mutating,
            supports_explicit_horizon=operation.horizon,
        )


class Capabilities(BaseModel):
    """The running service. Beside the members below it has every bound of §8 that applies, `max_*`, as integers."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, int] = Field(init=False)

    product: str = "memoree"
    protocol_version: int = PROTOCOL_VERSION
    instruction_set_version: int = instructions_text.INSTRUCTION_SET_VERSION
    local_personal_mode: bool
    authorization: bool
    default_horizon: Horizon = "ambient"
    supported_horizons: list[Horizon]
    ambient_context_sources: list[str]
    broader_horizons_require_reason: bool = True
    prompt_injection_signals: bool
    authoritative_store: str = AUTHORITATIVE_STORE
    blob_store: str
    source_sync: dict[str, str | bool] | None = None
    cited_projections: dict[str, str | bool] | None = None
    retrieval_feedback: dict[str, str | bool] | None = None
    retrieval: list[str]
    guarantees: list[str]
    operations: list[OperationEntry]


@read("capabilities", position=2, input=EmptyInput, result=Capabilities, needs_context=False)
def capabilities(view: View, call: Call[EmptyInput]) -> Capabilities:
    exists = catalogue()
    facts = view.facts
    horizons: list[Horizon] = ["ambient"]
    if any(operation.horizon for operation in exists.values()):
        horizons += ["workspace", "personal"]
    described = Capabilities(
        local_personal_mode=not facts.authorization,
        authorization=facts.authorization,
        supported_horizons=horizons,
        ambient_context_sources=["explicit", "session", "marker", "personal"],
        prompt_injection_signals="memory.recall" in exists,
        blob_store=facts.blob_store,
        source_sync=SOURCE_SYNC if "source.ingest" in exists else None,
        cited_projections=CITED_PROJECTIONS if "projection.put" in exists else None,
        retrieval_feedback=RETRIEVAL_FEEDBACK if "feedback.record" in exists else None,
        retrieval=_offered(RETRIEVAL, exists),
        guarantees=_offered(GUARANTEES, exists),
        operations=[OperationEntry.of(operation) for operation in exists.values()],
    )
    described.__pydantic_extra__["max_concurrent_connections"] = facts.connections_max
    described.__pydantic_extra__.update(
        (bound.name, bound.value) for bound in BOUNDS if bound.needs is None or bound.needs in exists
    )
    return described


def _offered(offers: Iterable[Offer], exists: Container[str]) -> list[str]:
    return [offer.name for offer in offers if offer.needs is None or offer.needs in exists]


InstructionFormat = Literal["markdown", "json", "agents-md", "claude-md"]


class InstructionsInput(WireModel):
    format: InstructionFormat = "markdown"


class Invocation(BaseModel):
    command: str
    request_stream: str
    response_stream: str
    diagnostics_stream: str


class InstructionRule(BaseModel):
    id: str
    level: Literal["must", "should"]
    text: str


class InstructionConcept(BaseModel):
    name: str
    meaning: str


class InstructionsDocument(BaseModel):
    product: str = "memoree"
    instruction_set_version: int = instructions_text.INSTRUCTION_SET_VERSION
    protocol_version: int = PROTOCOL_VERSION
    purpose: str = instructions_text.PURPOSE
    invocation: Invocation
    workflow: list[str]
    rules: list[InstructionRule]
    concepts: list[InstructionConcept]


class Instructions(BaseModel):
    """One text for the three Markdown formats, or the same as a structure."""

    format: InstructionFormat
    content: str | InstructionsDocument


@read("instructions", position=3, input=InstructionsInput, result=Instructions, needs_context=False)
def instructions(view: View, call: Call[InstructionsInput]) -> Instructions:
    wanted = call.input.format
    if wanted == "json":
        return Instructions(format=wanted, content=_instructions_document(catalogue()))
    return Instructions(format=wanted, content=instructions_text.markdown(catalogue()))


def _instructions_document(exists: Container[str]) -> InstructionsDocument:
    text = instructions_text
    return InstructionsDocument(
        invocation=Invocation(
            command=text.COMMAND,
            request_stream=text.REQUEST_STREAM,
            response_stream=text.RESPONSE_STREAM,
            diagnostics_stream=text.DIAGNOSTICS_STREAM,
        ),
        workflow=[step.text for step in text.existing(text.WORKFLOW, exists)],
        rules=[
            InstructionRule(id=rule.id, level=rule.level, text=rule.text) for rule in text.existing(text.RULES, exists)
        ],
        concepts=[
            InstructionConcept(name=word.name, meaning=word.meaning) for word in text.existing(text.CONCEPTS, exists)
        ],
    )


class Health(BaseModel):
    """`status` is `ok` whenever there is an answer; `last_commit_seq` is the newest commit this state shows."""

    status: Literal["ok"] = "ok"
    running: bool
    daemon_pid: int
    authoritative_store: str = AUTHORITATIVE_STORE
    retrieval_mode: str
    last_commit_seq: int
    binary_version: str = __version__
    schema_version: int
    lifecycle_owner: str


@read("doctor", position=36, input=EmptyInput, result=Health, needs_context=False)
def doctor(view: View, call: Call[EmptyInput]) -> Health:
    return Health(
        running=view.facts.running,
        daemon_pid=view.facts.pid,
        retrieval_mode="fts5" if "search" in catalogue() else "exact",
        last_commit_seq=view.meta.commit_seq,
        schema_version=view.meta.schema_version,
        lifecycle_owner=view.facts.lifecycle_owner,
    )
