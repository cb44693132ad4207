"""What a well-formed input is: the members of every operation with their bounds (machine protocol §4).

Only what one member says of itself; rules that tie several together, such as an order of offsets, stand elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .protocol import KIB

Judgement = Callable[[Any], bool]


@dataclass(frozen=True)
class Member:
    """`when` is `required`, `optional` (null is the same as absent) or `defaulted` (null is an error), §0.2.
    `bytes_max` is there for the members that are bounded text."""

    judge: Judgement
    when: str = "required"
    bytes_max: int | None = None

    def accepts(self, value: Any) -> bool:
        return (value is None and self.when == "optional") or self.judge(value)


def _text(bytes_max: int, when: str = "required") -> Member:
    def judge(value: Any) -> bool:
        return isinstance(value, str) and bool(value.strip()) and len(value.encode()) <= bytes_max

    return Member(judge, when, bytes_max)


def _any_text(when: str = "required") -> Member:
    return Member(lambda value: isinstance(value, str), when)


def _one_of(*words: str, when: str = "required") -> Member:
    return Member(lambda value: isinstance(value, str) and value in words, when)


def _integer(low: int, high: int, when: str) -> Member:
    return Member(lambda value: isinstance(value, int) and type(value) is not bool and low <= value <= high, when)


def _number(low: float, high: float, when: str) -> Member:
    return Member(lambda value: type(value) in (int, float) and low <= value <= high, when)


def _boolean(when: str) -> Member:
    return Member(lambda value: type(value) is bool, when)


def _list_of(judge: Judgement, low: int, high: int, when: str = "required") -> Member:
    return Member(lambda value: isinstance(value, list) and low <= len(value) <= high and all(map(judge, value)), when)


def _object_of(members: Mapping[str, Member]) -> Judgement:
    return lambda value: is_well_formed(members, value)


def _free_form(value: Any) -> bool:
    return isinstance(value, dict) and len(_compact(value)) <= 64 * KIB


def _compact(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def is_well_formed(members: Mapping[str, Member], value: Any) -> bool:
    """Whether an input, or an object inside one, has every required member, no unknown one, and none out of bounds."""
    return (
        isinstance(value, dict)
        and value.keys() <= members.keys()
        and all(member.when != "required" or name in value for name, member in members.items())
        and all(members[name].accepts(member) for name, member in value.items())
    )


INTEGER_MAX = 2**63 - 1
ID = _text(256)
KIND, TITLE, REASON, LONG_NAME = _text(128), _text(4096), _text(64 * KIB), _text(4096)
ACTOR, OPTIONAL_ID = _text(1024, "optional"), _text(256, "optional")
LONG_TEXT = _text(64 * KIB, "optional")
FREE_FORM = Member(_free_form, "defaulted")
TIMESTAMP = _any_text("optional")
ENTITY_TYPE = _one_of("artifact", "claim")
RELATION = ("derived_from", "supports", "contradicts", "supersedes", "references", "duplicates")
HEALTH = ("unknown", "healthy", "degraded", "error")
OFFSET = _integer(0, INTEGER_MAX, "required")
CONTENT = Member(_object_of({"type": _one_of("text", "base64"), "data": _any_text()}))
LOCATOR = _object_of(
    {
        "artifact_id": ID,
        "revision_id": ID,
        "start_byte": _integer(0, INTEGER_MAX, "optional"),
        "end_byte": _integer(0, INTEGER_MAX, "optional"),
    }
)
EVIDENCE = _list_of(LOCATOR, 0, 128, "defaulted")
SPANS = _list_of(_object_of({"start_byte": OFFSET, "end_byte": OFFSET}), 1, 64)
CITATIONS = _list_of(_text(512).judge, 0, 128, "defaulted")


def _media_type(when: str) -> Member:
    plain = _text(512, when)
    return Member(lambda value: plain.judge(value) and "/" in value, when, plain.bytes_max)


def _page(cursor: str, cursor_min: int = -INTEGER_MAX) -> dict[str, Member]:
    """A limit of 1 to 100 and an exclusive cursor."""
    return {
        "limit": _integer(1, 100, "defaulted"),
        cursor: _integer(cursor_min, INTEGER_MAX, "optional"),
    }


HORIZON = {
    "horizon": _one_of("ambient", "workspace", "personal", when="defaulted"),
    "reason": Member(lambda value: isinstance(value, str) and len(value.encode()) <= 64 * KIB, "optional"),
}
CLAIM_TYPE = _one_of("fact", "decision", "constraint", "preference", "procedure", "observation")
CONFIDENCE = _number(0, 1, "optional")

INPUTS: Mapping[str, Mapping[str, Member]] = {
    "artifact.put": {
        "kind": KIND, "title": TITLE, "media_type": _media_type("defaulted"), "content": CONTENT,
        "provenance": FREE_FORM, "actor": ACTOR,
    },
    "artifact.get": {"artifact_id": ID, "revision_id": OPTIONAL_ID, "include_content": _boolean("defaulted")},
    "artifact.revise": {
        "artifact_id": ID, "if_revision": ID, "title": _text(4096, "optional"), "media_type": _media_type("optional"),
        "content": CONTENT, "provenance": FREE_FORM, "actor": ACTOR,
    },
    "artifact.history": {"artifact_id": ID} | _page("before_revision_number"),
    "artifact.forget": {"artifact_id": ID, "reason": REASON},
    "citation.get": {"citation": _any_text(), "max_bytes": _integer(0, INTEGER_MAX, "defaulted")},
    "claim.assert": {
        "claim_type": CLAIM_TYPE, "statement": _text(128 * KIB), "confidence": CONFIDENCE, "evidence": EVIDENCE,
        "valid_from": TIMESTAMP, "valid_until": TIMESTAMP, "actor": ACTOR,
    },
    "claim.get": {"claim_id": ID, "revision_id": OPTIONAL_ID},
    "claim.history": {"claim_id": ID} | _page("before_revision_number"),
    "claim.revise": {
        "claim_id": ID, "if_revision": ID, "statement": _text(128 * KIB), "confidence": CONFIDENCE,
        "evidence": EVIDENCE, "actor": ACTOR,
    },
    "claim.retract": {"claim_id": ID, "reason": REASON},
    "relation.put": {
        "source_type": ENTITY_TYPE, "source_id": ID, "relation": _one_of(*RELATION), "target_type": ENTITY_TYPE,
        "target_id": ID, "metadata": FREE_FORM,
    },
    "relation.list": {
        "entity_type": ENTITY_TYPE, "entity_id": ID,
        "direction": _one_of("incoming", "outgoing", "both", when="defaulted"),
        "relation": _one_of(*RELATION, when="optional"),
    } | HORIZON | _page("before_commit_seq", 1),
    "conflict.list": {"include_stale": _boolean("defaulted")} | HORIZON | _page("before_case_sequence", 1),
    "search": {
        "query": _any_text(), "limit": _integer(1, 100, "defaulted"), "include_historical": _boolean("defaulted"),
        "min_commit_seq": _integer(-INTEGER_MAX, INTEGER_MAX, "optional"),
        "recency": Member(_object_of({"enabled": _boolean("required")}), "defaulted"),
    } | HORIZON,
    "memory.recall": {
        "query": _any_text(), "max_claims": _integer(1, 10, "defaulted"),
        "max_artifact_refs": _integer(1, 20, "defaulted"), "max_excerpt_bytes": _integer(1, 1024, "defaulted"),
        "max_candidate_claims": _integer(0, 5, "defaulted"),
        "max_candidate_artifact_refs": _integer(0, 5, "defaulted"),
        "min_commit_seq": _integer(-INTEGER_MAX, INTEGER_MAX, "optional"),
        "recency": Member(_object_of({"enabled": _boolean("required")}), "defaulted"),
    } | HORIZON,
    "context.build": {
        "query": _any_text(), "limit": _integer(1, 100, "defaulted"),
        "max_bytes": _integer(0, INTEGER_MAX, "defaulted"), "include_historical": _boolean("defaulted"),
        "min_commit_seq": _integer(-INTEGER_MAX, INTEGER_MAX, "optional"),
        "recency": Member(_object_of({"enabled": _boolean("required")}), "defaulted"),
    } | HORIZON,
    "memory.probe": {
        "query": _any_text(), "original_query": _text(8192, "optional"), "max_leads": _integer(1, 8, "defaulted"),
        "min_commit_seq": _integer(-INTEGER_MAX, INTEGER_MAX, "optional"),
        "recency": Member(_object_of({"enabled": _boolean("required")}), "defaulted"),
    } | HORIZON,
    "memory.retrieve": {
        "query": _any_text(), "reformulation": _any_text("optional"), "max_claims": _integer(1, 10, "defaulted"),
        "max_artifact_refs": _integer(1, 20, "defaulted"), "max_excerpt_bytes": _integer(1, 1024, "defaulted"),
        "max_recovery_leads": _integer(1, 8, "defaulted"), "max_recovery_bytes": _integer(1, 12 * KIB, "defaulted"),
        "min_commit_seq": _integer(-INTEGER_MAX, INTEGER_MAX, "optional"),
        "recency": Member(_object_of({"enabled": _boolean("required")}), "defaulted"), "profile": _boolean("defaulted"),
    } | HORIZON,
    "source.register": {
        "name": LONG_NAME, "kind": KIND, "locator": LONG_TEXT, "metadata": FREE_FORM, "actor": ACTOR,
    },
    "source.get": {"source_id": ID},
    "source.ingest": {
        "source_id": ID, "external_id": LONG_NAME, "external_revision": LONG_NAME, "kind": KIND, "title": TITLE,
        "media_type": _media_type("defaulted"), "content": CONTENT, "provenance": FREE_FORM,
        "observed_at": TIMESTAMP, "cursor": LONG_TEXT, "actor": ACTOR,
    },
    "source.checkpoint": {
        "source_id": ID, "health": _one_of(*HEALTH), "cursor": LONG_TEXT, "message": LONG_TEXT,
        "observed_at": TIMESTAMP, "actor": ACTOR,
    },
    "source.withdraw": {
        "source_id": ID, "external_id": LONG_NAME, "reason": REASON, "observed_at": TIMESTAMP, "actor": ACTOR,
    },
    "projection.put": {
        "artifact_id": ID, "revision_id": ID, "projection_key": LONG_NAME, "kind": KIND, "text": _text(64 * KIB),
        "evidence_spans": SPANS, "generator": LONG_NAME, "generator_version": LONG_NAME,
        "generator_digest": LONG_NAME, "metadata": FREE_FORM, "actor": ACTOR,
    },
    "projection.list": {
        "artifact_id": ID, "revision_id": OPTIONAL_ID, "limit": _integer(1, 100, "defaulted"),
    },
    "projection.drop": {"projection_id": ID, "reason": REASON, "actor": ACTOR},
    "feedback.record": {
        "query": _any_text(), "outcome": _one_of("miss", "useful", "incorrect", "stale"),
        "retain_query": _boolean("defaulted"), "citations": CITATIONS, "note": LONG_TEXT, "actor": ACTOR,
    },
    "feedback.get": {"feedback_id": ID},
    "feedback.list": _page("before_commit_seq"),
    "feedback.export": _page("before_commit_seq"),
}  # fmt: skip
